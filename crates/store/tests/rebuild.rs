//! From the objects of a lost folder to a folder again.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use model::TimeRange;
use platform::objects::{ObjectOptions, Objects};
use platform::sim::Simulation;
use support::{Content, Row, batch, read_all};
use thalweg_store::{ObjectTierOptions, RebuildReport, Store, StoreError, StoreOptions, rebuild, repair};

const SECOND_NS: i64 = 1_000_000_000;
const TIER: &str = "sim://tier";

fn open(simulation: &Simulation, directory: &str) -> Store {
    Store::open(simulation.platform(), options(directory)).unwrap()
}

fn options(directory: &str) -> StoreOptions {
    let tier = ObjectTierOptions { local_bytes_max: 0, cache_flash_bytes: 0, ..ObjectTierOptions::new(TIER) };
    StoreOptions {
        head_bytes_max: 6 << 10,
        log_segment_bytes: 8 << 10,
        log_bytes_max: 64 << 10,
        partition_ns: 60 * SECOND_NS,
        level0_parts_max: 2,
        fast_bytes_max: 4 << 10,
        objects: Some(tier),
        ..StoreOptions::new(directory)
    }
}

fn objects(simulation: &Simulation) -> Arc<dyn Objects> {
    simulation.platform().objects.open(TIER, &ObjectOptions::default()).unwrap()
}

/// Rows that are each written once, in order of time.
fn write(store: &Store, steps: std::ops::Range<i64>) -> Result<(), StoreError> {
    for step in steps {
        let row = |host: i64| Row {
            host: format!("h{host}"),
            timestamp_ns: step * 100 * SECOND_NS,
            fields: vec![("a".to_owned(), (step * 10 + host) as f64)],
        };
        store.write("default", &batch(&(0..6).map(row).collect::<Vec<_>>()))?;
        store.maintain()?;
    }
    store.compact_all()
}

fn rebuilt(simulation: &Simulation, which: Option<&str>, directory: &str) -> Result<RebuildReport, StoreError> {
    rebuild(&*objects(simulation), which, &simulation.platform(), Path::new(directory), &mut |_| {})
}

fn samples(content: &Content) -> u64 {
    content.values().map(|samples| samples.len() as u64).sum()
}

#[test]
fn all_that_was_uploaded_is_there_again_and_the_lost_folder_is_fenced_off() {
    for seed in 0..20 {
        let simulation = Simulation::new(seed);
        let lost = open(&simulation, "data");
        write(&lost, 0..500 + seed as i64 * 7).unwrap();
        let all = read_all(&lost, TimeRange::ALL);
        let uploaded = lost.stats().levels[2].rows;

        let report = rebuilt(&simulation, None, "again").unwrap();
        let store = open(&simulation, "again");
        let found = read_all(&store, TimeRange::ALL);
        assert!(uploaded > 1000 && samples(&found) == uploaded, "{report:?}, {uploaded} uploaded");
        for (series, found) in &found {
            assert!(found.iter().all(|(time, value)| all[series].get(time) == Some(value)), "{series:?}");
        }
        let newest = found.values().filter_map(|samples| samples.keys().last()).max().copied();
        assert_eq!(report.newest_ns, newest);
        assert_ne!(store.incarnation(), lost.incarnation(), "tokens of the lost folder mean nothing here");

        // It goes on where the lost one stopped, and survives its own loss.
        write(&store, 1000..1400).unwrap();
        let all = read_all(&store, TimeRange::ALL);
        let uploaded = store.stats().levels[2].rows;
        assert!(samples(&all) > samples(&found));
        let fenced = write(&lost, 1000..1400);
        let Err(StoreError::Poisoned { reason }) = fenced else { panic!("the lost folder was not fenced off") };
        assert!(reason.contains("another process writes the objects"), "{reason}");
        drop(store);
        rebuilt(&simulation, None, "third").unwrap();
        assert_eq!(samples(&read_all(&open(&simulation, "third"), TimeRange::ALL)), uploaded);
    }
}

fn refused(result: Result<RebuildReport, StoreError>, expected: &str) {
    let message = result.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn what_is_missing_or_unclear_is_named_and_nothing_is_left_behind() {
    let simulation = Simulation::new(100);
    refused(rebuilt(&simulation, None, "again"), "there is no copy of a manifest in");
    let first = open(&simulation, "first");
    write(&first, 0..400).unwrap();
    drop(first);
    refused(rebuilt(&simulation, Some("0123456789abcdef"), "again"), "no object 0123456789abcdef/MANIFEST");
    refused(rebuilt(&simulation, None, "first"), "first is not empty");

    let keys = simulation.object_keys(TIER);
    let segment = keys.iter().find(|key| key.contains("/index/")).unwrap();
    simulation.flip_object_bit(TIER, segment, 17, 2).unwrap();
    assert!(rebuilt(&simulation, None, "again").is_err());
    simulation.flip_object_bit(TIER, segment, 17, 2).unwrap();
    rebuilt(&simulation, None, "again").unwrap();

    let second = open(&simulation, "second");
    write(&second, 0..400).unwrap();
    refused(rebuilt(&simulation, None, "third"), "several data folders have settled in");
    let folder = segment.split('/').next();
    rebuilt(&simulation, folder, "third").unwrap();
}

const MANIFESTS: [&str; 2] = ["data/MANIFEST", "data/MANIFEST.twin"];

fn row(host: &str) -> Row {
    Row { host: host.to_owned(), timestamp_ns: 0, fields: vec![("a".to_owned(), -1.0)] }
}

/// Objects whose keys have a text in them, and what they hold.
fn bucket(simulation: &Simulation, of: &str) -> BTreeMap<String, Vec<u8>> {
    let keys = simulation.object_keys(TIER).into_iter().filter(|key| key.contains(of));
    keys.map(|key| (key.clone(), simulation.object(TIER, &key).unwrap())).collect()
}

/// Whatever a folder does whose manifest may not know all, the bucket stays as it is, and `uploaded` rows can be had from it.
fn leaves_the_bucket_alone(simulation: &Simulation, before: &BTreeMap<String, Vec<u8>>, uploaded: u64) {
    for round in 0..2 {
        let store = open(simulation, "data");
        write(&store, 2000 + round * 300..2300 + round * 300).unwrap();
        store.compact(&mut |_| {}).unwrap();
        assert!(store.health().has_losses());
        assert!(bucket(simulation, "") == *before, "{:?}", simulation.object_keys(TIER));
    }
    rebuilt(simulation, None, "again").unwrap();
    assert_eq!(samples(&read_all(&open(simulation, "again"), TimeRange::ALL)), uploaded);
}

#[test]
fn what_a_repaired_folder_does_not_know_of_stays_in_the_bucket_until_that_is_acknowledged() {
    for seed in 0..4 {
        let simulation = Simulation::new(seed);
        let store = open(&simulation, "data");
        write(&store, 0..500).unwrap();
        let uploaded = store.stats().levels[2].rows;
        store.write("default", &batch(&[row("h0")])).unwrap();
        store.flush_all().unwrap();
        drop(store);
        let before = bucket(&simulation, "");
        MANIFESTS.iter().for_each(|path| simulation.spoil(Path::new(path), None).unwrap());
        let report = repair(&simulation.platform(), Path::new("data"), false).unwrap();
        assert!(!report.missing.is_empty(), "{report:?}");
        leaves_the_bucket_alone(&simulation, &before, uploaded);

        // Acknowledged: what the copy named goes once another copy has taken its place, and not before.
        let store = open(&simulation, "data");
        assert_eq!(store.acknowledge_losses().unwrap(), 1);
        let content = read_all(&store, TimeRange::ALL);
        store.compact_all().unwrap();
        let lost = bucket(&simulation, "/parts/");
        let old = before.keys().filter(|key| key.contains("/parts/"));
        assert!(old.clone().count() > 0 && old.clone().all(|key| lost.get(key) == before.get(key)));
        assert!(
            bucket(&simulation, "/MANIFEST").iter().all(|(key, copy)| before[key] != *copy),
            "a copy is kept again"
        );
        drop(store);
        let store = open(&simulation, "data");
        store.compact_all().unwrap();
        let left = bucket(&simulation, "/parts/");
        assert!(!left.is_empty() && old.clone().all(|key| !left.contains_key(key)));
        assert_eq!(read_all(&store, TimeRange::ALL), content);
    }
}

#[test]
fn what_an_older_manifest_does_not_know_of_stays_in_the_bucket_when_its_losses_are_accepted() {
    let simulation = Simulation::new(7);
    let store = open(&simulation, "data");
    let rows: Vec<Row> = (0..6).map(|host| row(&format!("h{host}"))).collect();
    store.write("default", &batch(&rows)).unwrap();
    store.flush_all().unwrap();
    let older = MANIFESTS.map(|path| simulation.read(Path::new(path)).unwrap());
    write(&store, 1..500).unwrap();
    let uploaded = store.stats().levels[2].rows;
    drop(store);
    let before = bucket(&simulation, "");
    for (path, content) in MANIFESTS.into_iter().zip(older) {
        simulation.spoil(Path::new(path), Some(content)).unwrap();
    }
    let refused = Store::open(simulation.platform(), options("data")).err().unwrap();
    assert!(matches!(refused, StoreError::Lossy { .. }), "{refused}");
    let accepting = StoreOptions { accept_loss: true, ..options("data") };
    let store = Store::open(simulation.platform(), accepting).unwrap();
    store.compact_all().unwrap();
    assert!(bucket(&simulation, "") == before);
    drop(store);
    leaves_the_bucket_alone(&simulation, &before, uploaded);
}
