//! Series that keep their rows less long than others of their table: beside backups, and where parts come back from the trash.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use index::{CompiledMatcher, compile};
use model::{MatchOp, Matcher, TimeRange};
use platform::objects::{ObjectOptions, Objects};
use platform::sim::Simulation;
use support::{Content, Row, apply, batch, read_all};
use thalweg_store::{DatabasePolicy, Store, StoreOptions, check, restore, restore_trash, trash_of};

const SECOND_NS: i64 = 1_000_000_000;
const HOUR_NS: i64 = 3600 * SECOND_NS;
const TABLE: (&str, &str) = ("default", "m");

fn options(directory: &str) -> StoreOptions {
    StoreOptions {
        head_bytes_max: 6 << 10,
        log_segment_bytes: 8 << 10,
        log_bytes_max: 64 << 10,
        partition_ns: 60 * SECOND_NS,
        level0_parts_max: 2,
        ..StoreOptions::new(directory)
    }
}

fn target(simulation: &Simulation) -> Arc<dyn Objects> {
    simulation.platform().objects.open("sim://backups", &ObjectOptions::default()).unwrap()
}

fn hosts(hosts: &[&str]) -> Vec<Vec<CompiledMatcher>> {
    hosts.iter().map(|host| compile(&[Matcher::new("host", MatchOp::Equal, *host)]).unwrap()).collect()
}

fn trim(store: &Store, of: &[&str], before_ns: i64) {
    assert_eq!(store.trim_series(TABLE, &hosts(of), before_ns, &mut |_| Ok(())).unwrap(), before_ns);
}

fn trim_content(content: &mut Content, of: &[&str], before_ns: i64) {
    for ((host, _), samples) in content.iter_mut() {
        if of.contains(&host.as_str()) {
            samples.retain(|timestamp_ns, _| *timestamp_ns >= before_ns);
        }
    }
    content.retain(|_, samples| !samples.is_empty());
}

fn write(store: &Store, content: &mut Content, rows: &[Row]) {
    store.write("default", &batch(rows)).unwrap();
    apply(content, rows);
}

fn rows(steps: std::ops::Range<i64>, of: &[&str], scale: f64) -> Vec<Row> {
    let row = |step: i64, host: &str| Row {
        host: host.to_owned(),
        timestamp_ns: step * SECOND_NS,
        fields: vec![("a".to_owned(), step as f64 * scale), ("b".to_owned(), scale)],
    };
    steps.flat_map(|step| of.iter().map(move |host| row(step, host))).collect()
}

fn backup(simulation: &Simulation, store: &Store) -> String {
    store.backup(&*target(simulation), &mut |_| {}).unwrap().name
}

/// A backup in a folder of its own.
fn restored(simulation: &Simulation, name: &str, directory: &str) -> Store {
    let platform = simulation.platform();
    restore(&*target(simulation), Some(name), &platform, Path::new(directory), &mut |_| {}).unwrap();
    let report = check(&platform, Path::new(directory), None, &mut |_| {}).unwrap();
    assert_eq!((&report.damages, &report.unnamed), (&Vec::new(), &Vec::new()));
    Store::open(platform, options(directory)).unwrap()
}

#[test]
fn a_backup_holds_what_was_left_at_its_moment() {
    const ALL: [&str; 4] = ["h0", "h1", "h2", "h3"];
    let simulation = Simulation::new(21);
    let store = Store::open(simulation.platform(), options("data")).unwrap();
    let (mut content, mut taken) = (Content::new(), Vec::new());
    let mut take = |store: &Store, content: &Content| {
        let noted = store.trimmed_tables("default");
        taken.push((backup(&simulation, store), content.clone(), noted));
    };
    write(&store, &mut content, &rows(0..300, &ALL, 1.0));
    take(&store, &content);
    trim(&store, &["h0", "h1"], 100 * SECOND_NS);
    trim_content(&mut content, &["h0", "h1"], 100 * SECOND_NS);
    // No merge has dropped the rows yet: their parts were in the backup before.
    take(&store, &content);
    // Rows that come after a trim for time before it are new ones.
    write(&store, &mut content, &rows(40..50, &["h0", "h2"], 3.0));
    take(&store, &content);
    store.compact_all().unwrap();
    take(&store, &content);
    trim(&store, &["h1"], 200 * SECOND_NS);
    trim_content(&mut content, &["h1"], 200 * SECOND_NS);
    write(&store, &mut content, &rows(300..320, &ALL, 1.0));
    take(&store, &content);
    // All that a series has goes, and with the merge the series itself.
    trim(&store, &["h3"], 400 * SECOND_NS);
    trim_content(&mut content, &["h3"], 400 * SECOND_NS);
    store.compact_all().unwrap();
    take(&store, &content);
    assert_eq!(read_all(&store, TimeRange::ALL), content);
    drop(store);
    let reopened = Store::open(simulation.platform(), options("data")).unwrap();
    assert_eq!(read_all(&reopened, TimeRange::ALL), content);
    for (place, (name, expected, noted)) in taken.iter().enumerate() {
        let store = restored(&simulation, name, &format!("restored-{place}"));
        assert_eq!((place, read_all(&store, TimeRange::ALL)), (place, expected.clone()));
        assert_eq!(store.trimmed_tables("default"), *noted);
        // Nor does settling bring back what was masked.
        store.compact_all().unwrap();
        assert_eq!((place, read_all(&store, TimeRange::ALL)), (place, expected.clone()));
    }
}

/// How far trims have come, nanoseconds.
#[derive(Default)]
struct Progress {
    begun_ns: AtomicI64,
    done_ns: AtomicI64,
}

#[test]
fn backups_beside_trims_hold_each_whole_or_not_at_all() {
    const BACKUPS: usize = 20;
    const TRIMMED: [&str; 3] = ["t0", "t1", "t2"];
    const STEP_S: i64 = 5;
    let simulation = Simulation::new(22);
    let store = Store::open(simulation.platform(), StoreOptions { shards: 1, ..options("data") }).unwrap();
    let mut content = Content::new();
    write(&store, &mut content, &rows(0..2_000, &["t0", "t1", "t2", "kept"], 1.0));
    let (progress, stop) = (Progress::default(), AtomicBool::new(false));
    let taken: Vec<(String, i64, i64)> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut before_s = STEP_S;
            while !stop.load(Ordering::Acquire) && before_s < 1_900 {
                progress.begun_ns.store(before_s * SECOND_NS, Ordering::Release);
                trim(&store, &TRIMMED, before_s * SECOND_NS);
                progress.done_ns.store(before_s * SECOND_NS, Ordering::Release);
                before_s += STEP_S;
                if before_s % 50 == 0 {
                    store.maintain().unwrap();
                }
            }
        });
        let take = |_| {
            let done_ns = progress.done_ns.load(Ordering::Acquire);
            let name = backup(&simulation, &store);
            (name, done_ns, progress.begun_ns.load(Ordering::Acquire))
        };
        while progress.begun_ns.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let taken = (0..BACKUPS).map(take).collect();
        stop.store(true, Ordering::Release);
        taken
    });
    assert!(taken.last().unwrap().2 > 0, "nothing was trimmed meanwhile");
    for (place, (name, done_ns, begun_ns)) in taken.iter().enumerate() {
        let store = restored(&simulation, name, &format!("restored-{place}"));
        let found = read_all(&store, TimeRange::ALL);
        let of_host = |host: &str| found[&(host.to_owned(), "m_a".to_owned())].clone();
        let left: BTreeMap<&str, BTreeMap<i64, f64>> = TRIMMED.map(|host| (host, of_host(host))).into_iter().collect();
        let first_ns = *left["t0"].keys().next().unwrap();
        assert!((*done_ns..=*begun_ns).contains(&first_ns), "{name}: from {first_ns}, not {done_ns} to {begun_ns}");
        assert_eq!(first_ns % (STEP_S * SECOND_NS), 0, "{name}: half of a trim");
        let mut expected = content.clone();
        trim_content(&mut expected, &TRIMMED, first_ns);
        assert!(found == expected, "{name}: not what is left from {first_ns} on");
        // Of what is gone there is a note.
        let noted_ns = store.trimmed_tables("default").first().map_or(0, |(_, before_ns)| *before_ns);
        assert!((first_ns..=*begun_ns).contains(&noted_ns), "{name}: {noted_ns} is noted, {first_ns} is gone");
    }
}

#[test]
fn what_is_in_the_trash_is_trimmed_too() {
    let simulation = Simulation::new(23);
    let options = options("data");
    let store = Store::open(simulation.platform(), options.clone()).unwrap();
    let policy = DatabasePolicy { retention_ns: 6 * HOUR_NS, ..DatabasePolicy::default() };
    store.set_policy("default", &policy).unwrap();
    let mut content = Content::new();
    for step in 0..8 {
        let fields = |value: i64| vec![("a".to_owned(), value as f64)];
        let row =
            |host: &str| Row { host: host.to_owned(), timestamp_ns: simulation.honest_ns(), fields: fields(step) };
        write(&store, &mut content, &[row("h0"), row("h1")]);
        store.flush_all().unwrap();
        while store.maintain().unwrap() {}
        simulation.advance_ns(HOUR_NS);
    }
    store.compact_all().unwrap();
    assert!(store.stats().trash_parts > 0);
    // Only the trash has rows before that.
    let before_ns = simulation.honest_ns() - 6 * HOUR_NS - 1;
    trim(&store, &["h0"], before_ns);
    trim_content(&mut content, &["h0"], before_ns);
    let sequence = store.last_sequence();
    trim(&store, &["h0"], before_ns);
    assert_eq!(store.last_sequence(), sequence, "what is masked is not deleted again");
    drop(store);
    let trashed = trash_of(&simulation.platform(), Path::new("data")).unwrap();
    let restored = restore_trash(&simulation.platform(), Path::new("data"), &[], Some(0)).unwrap();
    assert_eq!(restored.parts as usize, trashed.len());
    let store = Store::open(simulation.platform(), options).unwrap();
    assert_eq!(read_all(&store, TimeRange::ALL), content);
    store.compact_all().unwrap();
    assert_eq!(read_all(&store, TimeRange::ALL), content);
}
