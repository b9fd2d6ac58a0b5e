//! Batches that come again: over crashes, released logs, a backup.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use index::compile;
use model::{Field, Labels, MatchOp, Matcher, TimeRange, ValueType};
use platform::objects::ObjectOptions;
use platform::sim::Simulation;
use thalweg_store::{Progress, Sent, Store, StoreOptions, Token, check, restore};

const PRODUCERS_MAX: usize = 2;

fn options(directory: &str) -> StoreOptions {
    StoreOptions { producers_max: PRODUCERS_MAX, log_segment_bytes: 1 << 12, ..StoreOptions::new(directory) }
}

fn register(store: &Store) -> Token {
    let field = |name: &str, value_type| (Field { name: name.to_owned(), value_type }, Labels::empty());
    let members = [field("usage", ValueType::F64), field("state", ValueType::String)];
    let host = Labels::from_pairs([("host", "a")]).unwrap();
    store.register_groups("default", "cpu", &[host], &members).unwrap().0[0]
}

/// Sends one row whose value is its time; whether it was there already.
fn send(store: &Store, token: Token, producer: u64, sequence: u64, time_ns: i64) -> bool {
    let types = [ValueType::F64, ValueType::String];
    // As a later opening would find it: by numbers alone.
    let layout = store.group_layout(0, &[0, 1], &types).unwrap();
    let mut appender = store.appender();
    let cells = [(time_ns as f64).to_bits(), 1 << 32 | 2];
    appender.push_rows(&layout, &[token.to_bits()], &[time_ns], &cells, b"nope").unwrap();
    let written = appender.append(Some(Sent { producer, sequence })).unwrap();
    store.commit(&written).unwrap();
    assert!(written.stale.is_empty());
    written.is_duplicate
}

fn times(store: &Store) -> Vec<i64> {
    let metric = compile(&[Matcher::new("__name__", MatchOp::Equal, "cpu_usage")]).unwrap();
    let groups = store.select("default", &metric).unwrap();
    groups.iter().flat_map(|group| store.read(group, &TimeRange::ALL).unwrap()[0].timestamps_ns().to_vec()).collect()
}

#[test]
fn what_was_applied_is_known_after_a_crash_a_released_log_and_a_restore() {
    let simulation = Simulation::new(5);
    let store = Store::open(simulation.platform(), options("data")).unwrap();
    let token = register(&store);
    assert!(!send(&store, token, 1, 10, 100));
    assert!(!send(&store, token, 1, 11, 110));
    assert!(send(&store, token, 1, 11, 111), "the same again");
    assert!(send(&store, token, 1, 3, 112), "older ones were applied or refused");
    drop(store);
    simulation.crash();

    let store = Store::open(simulation.platform(), options("data")).unwrap();
    assert_eq!((store.last_sent(1), store.last_sent(2)), (Some(11), None));
    assert!(send(&store, token, 1, 11, 113));
    for sequence in 1..200 {
        assert!(!send(&store, token, 2, sequence, 1000 + sequence as i64));
        store.flush_all().unwrap();
    }
    assert!(store.stats().log.segments <= 2, "{:?}", store.stats().log);
    drop(store);
    simulation.crash();

    let store = Store::open(simulation.platform(), options("data")).unwrap();
    assert_eq!((store.last_sent(1), store.last_sent(2)), (Some(11), Some(199)));
    let expected: Vec<i64> = [100, 110].into_iter().chain(1001..1200).collect();
    assert_eq!(times(&store), expected);
    let target = simulation.platform().objects.open("sim://backups", &ObjectOptions::default()).unwrap();
    let report = store.backup(&*target, &mut |_: &Progress| {}).unwrap();
    assert!(!send(&store, token, 3, 1, 5000));
    assert_eq!(store.last_sent(1), None, "one more than are remembered");
    drop(store);
    assert_eq!(check(&simulation.platform(), Path::new("data"), None, &mut |_| {}).unwrap().damages, Vec::new());

    restore(&*target, Some(&report.name), &simulation.platform(), Path::new("again"), &mut |_| {}).unwrap();
    let again = Store::open(simulation.platform(), options("again")).unwrap();
    assert_eq!((again.last_sent(1), again.last_sent(2), again.last_sent(3)), (Some(11), Some(199), None));
}

#[test]
fn tokens_and_slots_from_anywhere_are_checked() {
    let simulation = Simulation::new(6);
    let store = Store::open(simulation.platform(), options("data")).unwrap();
    let token = register(&store).to_bits();
    let lone = store.register_series("default", &[("up", Labels::empty())]).unwrap()[0].to_bits();
    let layout = |slots: &[u32], types: &[ValueType]| store.group_layout(0, slots, types).map_err(|e| e.to_string());
    let (float, text) = (ValueType::F64, ValueType::String);
    assert_eq!(layout(&[1], &[float]).unwrap_err(), "slot 1 of measurement 0 is a string, not a float");
    assert_eq!(layout(&[9], &[float]).unwrap_err(), "measurement 0 has no slot 9: register again");
    assert_eq!(layout(&[0, 0], &[float, float]).unwrap_err(), "a slot stands twice in one block");
    assert!(layout(&[], &[]).is_err() && layout(&[0], &[float, text]).is_err());
    let usage = layout(&[0], &[float]).unwrap();
    let push = |token: u64| store.appender().push_rows(&usage, &[token], &[1], &[0], b"").map_err(|e| e.to_string());
    assert_eq!(push(token), Ok(()));
    assert!(push(lone).unwrap_err().contains("is of measurement 1, not the block's"));
    assert!(push(u64::MAX).unwrap_err().contains("was never given out"));
    assert!(store.appender().push_samples(&[token | 1 << 32], &[1], &[0]).is_err(), "no float in that slot");
    // A group that is not there: left out, and told.
    let mut appender = store.appender();
    appender.push_rows(&usage, &[token, token + 1], &[1, 1], &[0, 0], b"").unwrap();
    appender.push_samples(&[lone + 77], &[1], &[0]).unwrap();
    let written = appender.append(Some(Sent { producer: 1, sequence: 1 })).unwrap();
    let stale: Vec<u64> = written.stale.iter().map(|token| token.to_bits()).collect();
    assert_eq!(stale, [token + 1, lone + 77]);
}
