//! The store against a map, and against crashes that lose or tear whatever was not synced.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;

use model::TimeRange;
use platform::sim::Simulation;
use support::{Content, Row, apply, batch, read_all};
use thalweg_store::{Finding, Store, StoreError, StoreOptions};

const SECOND_NS: i64 = 1_000_000_000;

/// Small sizes, so that a few hundred rows go through every mechanism.
fn options() -> StoreOptions {
    StoreOptions {
        head_bytes_max: 6 << 10,
        log_segment_bytes: 8 << 10,
        log_bytes_max: 64 << 10,
        partition_ns: 60 * SECOND_NS,
        level0_parts_max: 2,
        ..StoreOptions::new("data")
    }
}

fn open(simulation: &Simulation) -> Store {
    Store::open(simulation.platform(), options()).unwrap()
}

/// A batch of a few rows: mostly in order of time, some late, some rewriting what is there, some with other fields.
/// Every value is unique, so that the content tells which write it came from.
fn random_rows(simulation: &Simulation, step: i64) -> Vec<Row> {
    let count = 1 + simulation.below(12);
    let row = |place: u64| {
        let late_s = match simulation.below(10) {
            0 => simulation.below(5000) as i64,
            1 => simulation.below(60) as i64,
            _ => 0,
        };
        let value = (step * 100 + place as i64) as f64;
        let fields = match simulation.below(4) {
            0 => vec![("b".to_owned(), value)],
            1 => vec![("a".to_owned(), value), ("c".to_owned(), value / 8.0)],
            _ => vec![("a".to_owned(), value), ("b".to_owned(), -value)],
        };
        let host = format!("h{}", simulation.below(5));
        // Now and then a clock is off by centuries: that must cost neither rows nor a file for each partition between.
        let timestamp_ns = match simulation.below(200) {
            0 => i64::MIN + step,
            1 => i64::MAX - step,
            _ => (step * 10 - late_s) * SECOND_NS,
        };
        Row { host, timestamp_ns, fields }
    };
    let mut rows: Vec<Row> = (0..count).map(row).collect();
    // The store takes a batch block by block; the oracle must see rows of the same cell in the same order.
    rows.sort_by_key(|row| row.fields.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    rows
}

fn background(store: &Store, simulation: &Simulation) -> Result<(), StoreError> {
    match simulation.below(6) {
        0 => store.flush_all(),
        1 => store.maintain().map(|_| ()),
        _ => Ok(()),
    }
}

#[test]
fn holds_what_a_map_holds() {
    let (mut flushes, mut merges) = (0, 0);
    for seed in 0..20 {
        let simulation = Simulation::new(seed);
        let mut store = open(&simulation);
        let mut expected = Content::new();
        for step in 0..150 {
            let rows = random_rows(&simulation, step);
            store.write("default", &batch(&rows)).unwrap();
            apply(&mut expected, &rows);
            background(&store, &simulation).unwrap();
            if simulation.below(40) == 0 {
                drop(store);
                store = open(&simulation);
            }
        }
        assert_eq!(read_all(&store, TimeRange::ALL), expected, "seed {seed}");
        let stats = store.stats();
        (flushes, merges) = (flushes + stats.flushes, merges + stats.merges);
        let range = TimeRange::new(300 * SECOND_NS, 700 * SECOND_NS);
        for series in expected.values_mut() {
            series.retain(|timestamp, _| range.contains(*timestamp));
        }
        expected.retain(|_, series| !series.is_empty());
        assert_eq!(read_all(&store, range), expected, "seed {seed}, part of the time");
    }
    assert!(flushes > 100 && merges > 20, "{flushes} flushes and {merges} merges test little");
}

/// A crash in the middle of anything: acknowledged batches are there, the one under way is there whole or not at all.
#[test]
fn a_crash_loses_nothing_acknowledged_and_halves_nothing() {
    let mut torn = 0;
    for seed in 0..300 {
        let simulation = Simulation::new(seed);
        let mut expected = Content::new();
        let mut step = 0;
        for _ in 0..4 {
            let store = open(&simulation);
            torn += store.recovery().log_findings.len();
            assert!(
                store.recovery().log_findings.iter().all(|finding| matches!(finding, Finding::TornTail { .. })),
                "seed {seed}: {:?}",
                store.recovery()
            );
            assert_eq!(store.recovery().parts_set_aside, Vec::<String>::new(), "seed {seed}");
            assert_eq!(read_all(&store, TimeRange::ALL), expected, "seed {seed}, step {step}");
            for _ in 0..simulation.below(40) {
                let rows = random_rows(&simulation, step);
                step += 1;
                store.write("default", &batch(&rows)).unwrap();
                apply(&mut expected, &rows);
                background(&store, &simulation).unwrap();
            }
            expected = crash_in_a_write(&simulation, store, expected, step, &mut torn);
            step += 1;
        }
    }
    assert!(torn > 0, "no crash tore a record: the test tests nothing");
}

/// Lets the sync of a write (or of a flush) fail, cuts the power, and says what the store must hold: everything from
/// before, and the failed batch whole or not at all. Counts records that the crash tore.
fn crash_in_a_write(simulation: &Simulation, store: Store, before: Content, step: i64, torn: &mut usize) -> Content {
    let rows = random_rows(simulation, step);
    if simulation.below(3) == 0 {
        simulation.fail_syncs_after(simulation.below(8) as u32);
        // Whether it gets through, and how far, is the simulation's choice.
        let _ = store.settle();
        simulation.crash();
        return before;
    }
    simulation.fail_syncs_after(0);
    assert!(store.write("default", &batch(&rows)).is_err(), "a write whose sync failed was acknowledged");
    assert!(store.write("default", &batch(&rows)).is_err(), "a write behind a failed sync was acknowledged");
    simulation.crash();
    drop(store);
    let mut after = before.clone();
    apply(&mut after, &rows);
    let store = open(simulation);
    *torn += store.recovery().log_findings.len();
    let found = read_all(&store, TimeRange::ALL);
    assert!(found == before || found == after, "the batch under way is there in part");
    found
}

#[test]
fn a_flipped_bit_in_an_acknowledged_record_is_told_and_costs_only_that_record() {
    let mut told = 0;
    for seed in 0..60 {
        let simulation = Simulation::new(seed);
        let store = open(&simulation);
        let mut written = Vec::new();
        for step in 0..6 {
            let rows = vec![Row {
                host: "h".to_owned(),
                timestamp_ns: step * SECOND_NS,
                fields: vec![("a".to_owned(), step as f64)],
            }];
            store.write("default", &batch(&rows)).unwrap();
            written.push(rows);
        }
        drop(store);
        simulation.crash();
        let path = Path::new("data/log/0000000001.log");
        let used = simulation.read(path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64;
        simulation.flip_bit(path, simulation.below(used), simulation.below(8) as u8).unwrap();
        let store = open(&simulation);
        told += store.recovery().log_findings.len();
        let found = read_all(&store, TimeRange::ALL);
        let samples: usize = found.values().map(std::collections::BTreeMap::len).sum();
        let lost_group = store.recovery().log_rows_lost > 0 || found.is_empty();
        assert!(samples >= 5 || lost_group, "seed {seed}: one flipped bit cost {} samples", 6 - samples);
        let mut everything = Content::new();
        written.iter().for_each(|rows| apply(&mut everything, rows));
        for (series, samples) in &found {
            assert!(samples.iter().all(|(timestamp, value)| everything[series].get(timestamp) == Some(value)));
        }
    }
    assert!(told >= 50, "only {told} of 60 flipped bits were told");
}

#[test]
fn a_second_opening_is_refused() {
    let simulation = Simulation::new(1);
    let _store = open(&simulation);
    let second = Store::open(simulation.platform(), options());
    assert!(matches!(second.err(), Some(StoreError::Locked { .. })));
}

#[test]
fn a_damaged_part_is_set_aside_and_the_rest_is_served() {
    let simulation = Simulation::new(3);
    let store = open(&simulation);
    for (step, host) in [(0, "a"), (1, "b")] {
        let fields = vec![("a".to_owned(), 1.0)];
        store.write("default", &batch(&[Row { host: host.to_owned(), timestamp_ns: step, fields }])).unwrap();
        store.flush_all().unwrap();
    }
    drop(store);
    let is_part = |path: &&std::path::PathBuf| path.extension().is_some_and(|extension| extension == "part");
    let files = simulation.files();
    let part = files.iter().find(is_part).unwrap();
    let size = simulation.read(part).unwrap().len() as u64;
    simulation.flip_bit(part, size - 50, 3).unwrap();
    let store = open(&simulation);
    assert_eq!(store.recovery().parts_set_aside.len(), 1);
    assert!(store.recovery().parts_set_aside[0].contains("checksum"), "{:?}", store.recovery());
    assert!(!read_all(&store, TimeRange::ALL).is_empty());
    drop(store);
    assert_eq!(open(&simulation).recovery().parts_set_aside.len(), 0, "told once, not again");
}
