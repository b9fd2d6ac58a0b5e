//! The store against a map, and against crashes that lose or tear whatever was not synced.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::{Path, PathBuf};

use model::TimeRange;
use platform::sim::Simulation;
use support::{Content, Row, apply, batch, read_all};
use thalweg_store::{Finding, Store, StoreError, StoreOptions};

const SECOND_NS: i64 = 1_000_000_000;

/// Small sizes, so that a few hundred rows go through every mechanism.
fn options() -> StoreOptions {
    StoreOptions {
        head_bytes_max: 6 << 10,
        log_segment_bytes: 32 << 10,
        log_bytes_max: 256 << 10,
        partition_ns: 60 * SECOND_NS,
        level0_parts_max: 2,
        ..StoreOptions::new("data")
    }
}

fn open(simulation: &Simulation) -> Store {
    Store::open(simulation.platform(), options()).unwrap()
}

fn accepting(simulation: &Simulation) -> Store {
    Store::open(simulation.platform(), StoreOptions { accept_loss: true, ..options() }).unwrap()
}

/// Why the folder is not opened.
fn refusal(simulation: &Simulation) -> String {
    let before = simulation.files();
    let refused = Store::open(simulation.platform(), options()).err().unwrap().to_string();
    assert_eq!(simulation.files(), before, "nothing is changed in a folder that is refused");
    refused
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
    // Of many sectors, each of which a crash may take.
    let mut rows: Vec<Row> = (0..10).flat_map(|_| random_rows(simulation, step)).collect();
    rows.sort_by_key(|row| row.fields.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    if simulation.below(3) == 0 {
        simulation.fail_syncs_after(simulation.below(8) as u32);
        // Whether it gets through, and how far, is the simulation's choice.
        let _ = store.compact_all();
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
        let logs = files(&simulation, "log");
        let path = &logs[simulation.below(logs.len() as u64) as usize];
        let used = simulation.read(path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64;
        // Each record begins a block.
        let offset = simulation.below(used / 4096 + 1) * 4096 + simulation.below(40);
        simulation.flip_bit(path, offset, simulation.below(8) as u8).unwrap();
        let store = accepting(&simulation);
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
    let is_part = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "part");
    let files = simulation.files();
    let part = files.iter().find(is_part).unwrap();
    let size = simulation.read(part).unwrap().len() as u64;
    simulation.flip_bit(part, size - 50, 3).unwrap();
    let refused = refusal(&simulation);
    assert!(refused.contains(part.to_str().unwrap()) && refused.contains("--accept-loss"), "{refused}");
    assert!(refused.contains("(from 1970-01-01T00:00:00Z to 1970-01-01T00:00:00Z)"), "{refused}");
    let store = accepting(&simulation);
    assert_eq!(store.recovery().parts_set_aside.len(), 1);
    assert!(store.recovery().parts_set_aside[0].contains("checksum"), "{:?}", store.recovery());
    assert!(!read_all(&store, TimeRange::ALL).is_empty());
    drop(store);
    assert_eq!(open(&simulation).recovery().parts_set_aside.len(), 0, "told once, not again");
}

/// One row of a host at some second.
fn row(host: &str, second: i64) -> Row {
    Row { host: host.to_owned(), timestamp_ns: second * SECOND_NS, fields: vec![("a".to_owned(), second as f64)] }
}

/// Writes a row for each second of a range.
fn write_seconds(store: &Store, expected: &mut Content, seconds: std::ops::Range<i64>) {
    for second in seconds {
        let rows = [row("h", second)];
        store.write("default", &batch(&rows)).unwrap();
        apply(expected, &rows);
    }
}

/// Files with an ending, sorted.
fn files(simulation: &Simulation, ending: &str) -> Vec<PathBuf> {
    simulation.files().into_iter().filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
}

#[test]
fn either_copy_of_the_manifest_is_enough() {
    for name in ["MANIFEST", "MANIFEST.twin"] {
        for spoilt in 0..60u64 {
            let simulation = Simulation::new(spoilt);
            let (path, mut expected) = (Path::new("data").join(name), Content::new());
            let store = open(&simulation);
            for round in 0..4 {
                write_seconds(&store, &mut expected, round * 10..round * 10 + 10);
                store.flush_all().unwrap();
            }
            drop(store);
            let whole = simulation.read(&path).unwrap();
            let length = whole.len();
            let content = match spoilt {
                0 => None,
                1 => Some(Vec::new()),
                2..30 => Some(whole[..length - (spoilt as usize - 1).min(length)].to_vec()),
                30..40 => Some(whole[..simulation.below(length as u64) as usize].to_vec()),
                _ => {
                    let mut flipped = whole.clone();
                    flipped[simulation.below(length as u64) as usize] ^= 1 << simulation.below(8);
                    Some(flipped)
                }
            };
            simulation.spoil(&path, content).unwrap();
            let store = open(&simulation);
            assert_eq!(read_all(&store, TimeRange::ALL), expected, "{name} {spoilt}");
            let repaired = store.recovery().manifest_repaired.as_ref().map(|damage| damage.file.clone());
            // A crash may have taken the twin's last record, too.
            let is_told = repaired.as_deref() == path.to_str() || name == "MANIFEST.twin" && repaired.is_none();
            assert!(is_told, "{name} {spoilt}: {repaired:?}");
            drop(store);
            let [one, other] =
                ["data/MANIFEST", "data/MANIFEST.twin"].map(|path| simulation.read(Path::new(path)).unwrap());
            assert!(one == other, "{name} {spoilt}: both are written anew");
        }
    }
}

#[test]
fn a_folder_with_data_and_without_a_manifest_is_refused() {
    let simulation = Simulation::new(5);
    let (store, mut expected) = (open(&simulation), Content::new());
    write_seconds(&store, &mut expected, 0..30);
    store.flush_all().unwrap();
    drop(store);
    let [one, other] = ["data/MANIFEST", "data/MANIFEST.twin"].map(Path::new);
    let whole = [one, other].map(|path| simulation.read(path).unwrap());
    for path in [one, other] {
        simulation.spoil(path, None).unwrap();
    }
    let refused = refusal(&simulation);
    assert!(refused.contains("data/MANIFEST") && refused.contains("thalweg repair"), "{refused}");
    // One of them is there, and it is cut: nothing says how much is missing.
    simulation.put_back(one, whole[0][..whole[0].len() - 1].to_vec());
    let refused = refusal(&simulation);
    assert!(refused.contains("it is cut") && refused.contains("thalweg repair"), "{refused}");
    simulation.put_back(one, whole[0].clone());
    let store = open(&simulation);
    assert_eq!(read_all(&store, TimeRange::ALL), expected);
}

#[test]
fn missing_log_segments_are_noticed() {
    let simulation = Simulation::new(6);
    let (store, mut expected) = (open(&simulation), Content::new());
    write_seconds(&store, &mut expected, 0..40);
    drop(store);
    let store = open(&simulation);
    write_seconds(&store, &mut expected, 40..80);
    drop(store);
    let segments = files(&simulation, "log");
    assert!(segments.len() > 4, "{segments:?}");
    for path in &segments {
        let whole = simulation.read(path).unwrap();
        simulation.spoil(path, None).unwrap();
        let refused = refusal(&simulation);
        let names = format!("{}: the file is missing; log records", path.display());
        assert!(refused.contains(&names), "{refused}");
        simulation.put_back(path, whole);
    }
    // In the middle: the rest is served, and what is lost is remembered until it is acknowledged.
    simulation.spoil(&segments[2], None).unwrap();
    let store = accepting(&simulation);
    let found = read_all(&store, TimeRange::ALL);
    let samples = |content: &Content| content.values().map(std::collections::BTreeMap::len).sum::<usize>();
    assert!(samples(&found) > 40 && samples(&found) < samples(&expected), "{found:?}");
    assert_eq!(store.recovery().losses_accepted, store.health().losses());
    let [loss] = <[_; 1]>::try_from(store.health().losses()).unwrap();
    // The note of the log says what times the lost rows had: responses about other times are not marked.
    let times = |content: &Content| content.values().flat_map(|samples| samples.keys().copied()).collect::<Vec<_>>();
    let (expected_times, found_times) = (times(&expected), times(&found));
    let lost_times: Vec<i64> = expected_times.into_iter().filter(|time_ns| !found_times.contains(time_ns)).collect();
    assert_eq!(loss.range, TimeRange::from_timestamps(&lost_times));
    let warning = |range| store.health().loss_warning(Some(&range));
    assert_eq!(warning(TimeRange::new(loss.range.end_ns + 1, i64::MAX)), None);
    assert!(warning(TimeRange::new(lost_times[0], lost_times[0])).is_some());
    store.write("default", &batch(&[row("h", 1000)])).unwrap();
    drop(store);
    let store = open(&simulation);
    assert_eq!((store.health().losses().len(), samples(&read_all(&store, TimeRange::ALL))), (1, samples(&found) + 1));
    assert_eq!(store.acknowledge_losses().unwrap(), 1);
    drop(store);
    let store = open(&simulation);
    assert!(!store.health().has_losses() && store.recovery().losses_accepted.is_empty());
}

#[test]
fn damage_to_the_last_acknowledged_record_is_no_torn_tail() {
    for seed in 0..40 {
        let simulation = Simulation::new(seed);
        let (store, mut expected) = (open(&simulation), Content::new());
        write_seconds(&store, &mut expected, 0..5);
        let is_noted = seed % 2 == 0;
        if is_noted {
            // Idle: nothing was written between these.
            store.maintain().unwrap();
            store.maintain().unwrap();
        }
        drop(store);
        simulation.crash();
        let path = files(&simulation, "log").pop().unwrap();
        let bytes = simulation.read(&path).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        // The last record begins a block.
        let begin = used / 4096 * 4096;
        let offset = begin as u64 + simulation.below((used - begin) as u64);
        simulation.flip_bit(&path, offset, simulation.below(8) as u8).unwrap();
        if is_noted {
            let refused = refusal(&simulation);
            let names = format!("{}: damaged at offset", path.display());
            assert!(refused.contains(&names), "{seed}: {refused}");
            let store = accepting(&simulation);
            assert_eq!(store.health().losses().len(), 1);
            assert!(read_all(&store, TimeRange::ALL).values().all(|samples| samples.len() == 4));
            // Numbers of lost records are not given out again.
            store.write("default", &batch(&[row("h", 100)])).unwrap();
            drop(store);
            assert_eq!(open(&simulation).health().losses().len(), 1);
        } else if let Some(finding) = open(&simulation).recovery().log_findings.first() {
            assert!(finding.to_string().contains("may have been"), "{finding}");
        }
    }
}

#[test]
fn damage_to_records_whose_rows_are_in_parts_loses_nothing() {
    for is_last in [false, true] {
        let simulation = Simulation::new(8);
        let (store, mut expected) = (open(&simulation), Content::new());
        write_seconds(&store, &mut expected, 0..5);
        store.flush_all().unwrap();
        drop(store);
        let path = files(&simulation, "log").pop().unwrap();
        let used = simulation.read(&path).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
        simulation.flip_bit(&path, if is_last { used as u64 - 2 } else { 40 }, 1).unwrap();
        let store = open(&simulation);
        assert_eq!(read_all(&store, TimeRange::ALL), expected);
        let told: Vec<String> = store.recovery().log_findings.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|finding| finding.contains("nothing is lost")), "{told:?}");
    }
}

#[test]
fn a_missing_part_is_refused_and_its_time_is_marked() {
    let simulation = Simulation::new(9);
    let (store, mut expected) = (open(&simulation), Content::new());
    for round in 0..3 {
        write_seconds(&store, &mut expected, round * 1000..round * 1000 + 5);
        store.flush_all().unwrap();
    }
    drop(store);
    let part = files(&simulation, "part").remove(1);
    simulation.spoil(&part, None).unwrap();
    let refused = refusal(&simulation);
    let names = format!("{}: the file is missing; 5 rows", part.display());
    assert!(
        refused.contains(&names) && refused.contains("from 1970-01-01T00:16:40Z to 1970-01-01T00:16:44Z"),
        "{refused}"
    );
    let store = accepting(&simulation);
    expected
        .values_mut()
        .for_each(|samples| samples.retain(|time_ns, _| !(1000..1005).contains(&(time_ns / SECOND_NS))));
    assert_eq!(read_all(&store, TimeRange::ALL), expected);
    let range = |from: i64, to: i64| TimeRange::new(from * SECOND_NS, to * SECOND_NS);
    let warning = |range: TimeRange| store.health().loss_warning(Some(&range));
    assert!(warning(range(1004, 1100)).is_some_and(|text| text.contains(part.to_str().unwrap())));
    assert_eq!((warning(range(0, 999)), warning(range(1005, 9000))), (None, None));
}

#[test]
fn whole_files_that_nothing_names_are_kept() {
    let simulation = Simulation::new(10);
    let (store, mut expected) = (open(&simulation), Content::new());
    write_seconds(&store, &mut expected, 0..5);
    store.flush_all().unwrap();
    let older = ["data/MANIFEST", "data/MANIFEST.twin"].map(|path| simulation.read(Path::new(path)).unwrap());
    write_seconds(&store, &mut expected, 100..105);
    store.flush_all().unwrap();
    write_seconds(&store, &mut expected, 200..205);
    store.flush_all().unwrap();
    drop(store);
    // Someone puts an older manifest in place: the log's segments tell, or the part does that says when it was made.
    let newest = files(&simulation, "part").pop().unwrap();
    let whole = simulation.read(&newest).unwrap();
    for (path, content) in ["data/MANIFEST", "data/MANIFEST.twin"].into_iter().zip(older) {
        simulation.spoil(Path::new(path), Some(content)).unwrap();
    }
    let options = StoreOptions { accept_loss: true, ..options() };
    let store = Store::open(simulation.platform(), options).unwrap();
    assert!(store.recovery().files_set_aside.iter().any(|file| Path::new(file) == newest), "{:?}", store.recovery());
    let kept = thalweg_store::lost_found(&simulation.platform(), Path::new("data")).unwrap();
    let found = kept.iter().find(|kept| kept.file.ends_with(newest.file_name().unwrap().to_str().unwrap())).unwrap();
    assert_eq!(simulation.read(Path::new(&found.file)).unwrap(), whole);
    assert_eq!(found.range, Some(TimeRange::new(200 * SECOND_NS, 204 * SECOND_NS)));
    drop(store);
    // Beyond the bound the oldest go, and that is told.
    let unnamed = Path::new("data/parts/0000099999.part");
    simulation.put_back(unnamed, whole.clone());
    simulation.put_back(Path::new("data/parts/0000099998.part"), whole.clone());
    let options = StoreOptions { lost_found_bytes_max: whole.len() as u64, ..self::options() };
    let store = Store::open(simulation.platform(), options).unwrap();
    let recovery = store.recovery();
    assert!(!recovery.lost_found_removed.is_empty());
    // None of those that were found just now: the one that does not fit stays.
    assert_eq!(recovery.files_set_aside, ["data/parts/0000099998.part"]);
    let kept = thalweg_store::lost_found(&simulation.platform(), Path::new("data")).unwrap();
    assert!(kept.len() == 1 && kept[0].file.ends_with("-0000099998.part"), "{kept:?}");
    let [left] = recovery.files_left.as_slice() else { panic!("{recovery:?}") };
    assert!(left.starts_with("data/parts/") && left.ends_with("-0000099999.part.unnamed"), "{left}");
    assert_eq!(simulation.read(Path::new(left)).unwrap(), whole);
    let left = left.clone();
    drop(store);
    let store =
        Store::open(simulation.platform(), StoreOptions { lost_found_bytes_max: 10, ..self::options() }).unwrap();
    assert_eq!(store.recovery().files_left, std::slice::from_ref(&left));
    drop(store);
    assert_eq!(open(&simulation).recovery().files_set_aside, [left]);
}

/// What cannot be read for another reason than damage may be whole.
#[test]
fn a_manifest_of_a_newer_version_is_not_repaired() {
    let simulation = Simulation::new(11);
    let (store, mut expected) = (open(&simulation), Content::new());
    write_seconds(&store, &mut expected, 0..5);
    store.flush_all().unwrap();
    drop(store);
    let paths = ["data/MANIFEST", "data/MANIFEST.twin"].map(Path::new);
    let mut newer = simulation.read(paths[0]).unwrap();
    newer[8] += 1;
    let checksum = crc32c::crc32c(&newer[..12]);
    newer[12..16].copy_from_slice(&checksum.to_le_bytes());
    paths.iter().for_each(|path| simulation.spoil(path, Some(newer.clone())).unwrap());
    for is_dry in [true, false] {
        let refused = thalweg_store::repair(&simulation.platform(), Path::new("data"), is_dry).unwrap_err();
        assert!(matches!(refused, StoreError::Newer { .. }), "{refused}");
    }
    assert!(paths.iter().all(|path| simulation.read(path).unwrap() == newer));
}

#[test]
fn a_folder_is_repaired_from_its_parts() {
    for seed in 0..25 {
        let simulation = Simulation::new(seed);
        let (store, mut expected) = (open(&simulation), Content::new());
        for step in 0..60 + simulation.below(60) as i64 {
            let rows = random_rows(&simulation, step);
            store.write("default", &batch(&rows)).unwrap();
            apply(&mut expected, &rows);
            background(&store, &simulation).unwrap();
        }
        if seed % 2 == 0 {
            store.flush_all().unwrap();
        }
        store.maintain_heads().unwrap();
        store.maintain_heads().unwrap();
        drop(store);
        let platform = simulation.platform();
        let readable = thalweg_store::repair(&platform, Path::new("data"), false).unwrap();
        assert!(readable.is_readable, "{readable:?}");
        let damaged = (seed % 3 > 0).then(|| b"damaged".to_vec());
        for name in ["data/MANIFEST", "data/MANIFEST.twin"] {
            simulation.spoil(Path::new(name), damaged.clone()).unwrap();
        }
        let before = simulation.files();
        let planned = thalweg_store::repair(&platform, Path::new("data"), true).unwrap();
        assert_eq!(simulation.files(), before, "a dry run changes nothing");
        assert_eq!(thalweg_store::repair(&platform, Path::new("data"), false).unwrap(), planned);
        let store = open(&simulation);
        assert_eq!(read_all(&store, TimeRange::ALL), expected, "seed {seed}: {planned:?}");
        let report = thalweg_store::check(&platform, Path::new("data"), None, &mut |_| {}).unwrap();
        assert_eq!(report.damages, Vec::new(), "seed {seed}");
        for name in ["data/MANIFEST.damaged", "data/MANIFEST.twin.damaged"] {
            assert_eq!(simulation.read(Path::new(name)).ok(), damaged, "{name}");
        }
        assert_eq!((store.health().losses().len(), store.acknowledge_losses().unwrap()), (1, 1));
    }
}

#[test]
fn opening_reports_how_much_of_the_log_is_replayed() {
    let simulation = Simulation::new(12);
    let (store, mut expected) = (open(&simulation), Content::new());
    write_seconds(&store, &mut expected, 0..80);
    drop(store);
    let options = options();
    assert!(options.progress.to_string().contains("being read"), "{}", options.progress);
    let bytes: usize = files(&simulation, "log").iter().map(|path| simulation.read(path).unwrap().len()).sum();
    let store = Store::open(simulation.platform(), options.clone()).unwrap();
    assert_eq!(read_all(&store, TimeRange::ALL), expected);
    assert_eq!((options.progress.log_bytes(), options.progress.log_bytes_total()), (bytes as u64, bytes as u64));
    assert_eq!(options.progress.to_string(), format!("{bytes} of {bytes} bytes of the log are replayed"));
}

/// Makes parts what earlier versions wrote: they do not say where they belong.
fn strip_labels(simulation: &Simulation, paths: &[PathBuf]) {
    for path in paths {
        let mut bytes = simulation.read(path).unwrap();
        let starts: Vec<usize> = (0..bytes.len() - 16).filter(|at| bytes[*at..].starts_with(b"THWGPART")).collect();
        assert!(!starts.is_empty(), "{}", path.display());
        starts.into_iter().for_each(|at| bytes[at + 12..at + 16].fill(0));
        simulation.spoil(path, Some(bytes)).unwrap();
    }
}

/// A folder that an earlier version wrote first: its parts are known by number alone.
#[test]
fn parts_without_labels_are_found_among_those_with_labels() {
    let mut counted = 0;
    for seed in 0..16 {
        let options = StoreOptions { shards: 1, ..options() };
        let simulation = Simulation::new(seed);
        let store = Store::open(simulation.platform(), options.clone()).unwrap();
        let mut expected = Content::new();
        for step in 0..60 {
            let rows = random_rows(&simulation, step);
            store.write("default", &batch(&rows)).unwrap();
            apply(&mut expected, &rows);
            background(&store, &simulation).unwrap();
        }
        store.flush_all().unwrap();
        drop(store);
        let parts = files(&simulation, "part");
        strip_labels(&simulation, &parts[..parts.len() / 2]);
        for name in ["data/MANIFEST", "data/MANIFEST.twin"] {
            simulation.spoil(Path::new(name), None).unwrap();
        }
        let report = thalweg_store::repair(&simulation.platform(), Path::new("data"), false).unwrap();
        let store = Store::open(simulation.platform(), options).unwrap();
        let found = read_all(&store, TimeRange::ALL);
        // Where it is not known which rows are newer, the older files are kept in `lost+found`, and named.
        assert!(found == expected || !report.left_out.is_empty() || !report.missing.is_empty(), "seed {seed}");
        for (series, samples) in &found {
            assert!(samples.keys().all(|time_ns| expected[series].contains_key(time_ns)), "seed {seed}: {series:?}");
        }
        for path in &parts[..parts.len() / 2] {
            let is_named = report.left_out.iter().any(|why| why.starts_with(path.to_str().unwrap()));
            assert_eq!(simulation.files().contains(path), !is_named, "seed {seed}: {report:?}");
            counted += usize::from(!is_named);
        }
    }
    assert!(counted > 10, "{counted} parts without labels count");
}

#[test]
fn a_folder_of_parts_without_labels_is_repaired_as_far_as_the_index_tells() {
    let (mut whole, mut partly) = (0, 0);
    for seed in 0..16 {
        let options = StoreOptions { shards: 1 + seed as u32 % 2, ..options() };
        let simulation = Simulation::new(seed);
        let store = Store::open(simulation.platform(), options.clone()).unwrap();
        let mut expected = Content::new();
        for step in 0..80 {
            let rows = random_rows(&simulation, step);
            store.write("default", &batch(&rows)).unwrap();
            apply(&mut expected, &rows);
            background(&store, &simulation).unwrap();
        }
        store.flush_all().unwrap();
        drop(store);
        strip_labels(&simulation, &files(&simulation, "part"));
        for name in ["data/MANIFEST", "data/MANIFEST.twin"] {
            simulation.spoil(Path::new(name), None).unwrap();
        }
        let platform = simulation.platform();
        let planned = thalweg_store::repair(&platform, Path::new("data"), true).unwrap();
        let parts = files(&simulation, "part").len();
        assert_eq!(thalweg_store::repair(&platform, Path::new("data"), false).unwrap(), planned);
        assert!(planned.missing.iter().any(|missing| missing.contains("retentions")), "{planned:?}");
        let store = Store::open(simulation.platform(), options).unwrap();
        let found = read_all(&store, TimeRange::ALL);
        if planned.left_out.is_empty() && planned.missing.len() == 3 {
            whole += 1;
            assert_eq!(found, expected, "seed {seed}: {planned:?}");
        } else {
            // Two shards whose series have the same numbers: what cannot be told apart is kept in `lost+found`, and named.
            partly += 1;
            let reasons = planned.left_out.iter().chain(&planned.missing).filter(|why| why.contains("shards alike"));
            assert!(seed % 2 == 1 && reasons.count() > 0 && planned.parts > 0, "seed {seed}: {planned:?}");
            let kept = thalweg_store::lost_found(&platform, Path::new("data")).unwrap();
            assert_eq!(files(&simulation, "part").len(), parts, "{kept:?}");
            for (series, samples) in &found {
                assert!(samples.iter().all(|(time_ns, _)| expected[series].contains_key(time_ns)), "{series:?}");
            }
        }
        // Series go on where they are: none is registered a second time.
        let rows = [row("h0", 1_000_000), row("h1", 1_000_000)];
        store.write("default", &batch(&rows)).unwrap();
        apply(&mut expected, &rows);
        store.compact_all().unwrap();
        if planned.left_out.is_empty() && planned.missing.len() == 3 {
            assert_eq!(read_all(&store, TimeRange::ALL), expected, "seed {seed}");
        }
        let report = thalweg_store::check(&platform, Path::new("data"), None, &mut |_| {}).unwrap();
        assert_eq!(report.damages, Vec::new(), "seed {seed}");
    }
    assert!(whole >= 8 && partly > 0, "{whole} wholly, {partly} partly");
}
