//! Folders that older versions made must still open and hold the same.
//!
//! `THALWEG_GOLDEN=write cargo test -p thalweg-store --test golden` makes the folder of the present version, once: an existing
//! one is never replaced.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use index::compile;
use model::{EpochColumn, EpochNames, Field, Labels, MatchOp, Matcher, TimeRange, ValueType};
use platform::Platform;
use support::{Content, Row, apply, batch, read_all};
use thalweg_store::{
    DatabasePolicy, EpochBatch, EpochCell, EpochRows, EpochValue, NamesRead, RegularDefinition, Sent, Store,
    StoreOptions,
};

const VERSION: &str = "v6";

/// Partitions so short that the rounds of [`VERSION`] reach every level.
fn options(directory: &Path) -> StoreOptions {
    StoreOptions {
        log_segment_bytes: 4 << 10,
        // Room on a disk is no part of a folder.
        reserve_bytes: 0,
        level0_parts_max: 1,
        partition_ns: 8 * 1_000_000_000,
        // Too little for longer partitions.
        fast_bytes_max: 1,
        node_rows_min: 1,
        ..StoreOptions::new(directory)
    }
}

/// How many rounds a version's folder holds: the last stays in the log.
fn rounds(version: &str) -> i64 {
    if version == "v1" { 3 } else { 8 }
}

fn round(number: i64) -> Vec<Row> {
    let row = |place: i64| Row {
        host: format!("host-{}", place % 3),
        timestamp_ns: 1_700_000_000_000_000_000 + (number * 20 + place) * 1_000_000_000,
        fields: vec![("a".to_owned(), (number * 100 + place) as f64), ("b".to_owned(), place as f64 / 7.0)],
    };
    (0..20).map(row).collect()
}

fn folder(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version)
}

fn write_golden(directory: &Path) {
    let store = Store::open(Platform::real(), options(directory)).unwrap();
    for number in 0..rounds(VERSION) - 1 {
        match number {
            ..5 => drop(store.write("default", &batch(&round(number))).unwrap()),
            5 => send(&store, &round(number), Sent { producer: 8, sequence: 5 }),
            _ => send(&store, &round(number), Sent { producer: 7, sequence: 1 }),
        }
        store.compact_all().unwrap();
    }
    // Late rows, the same again: a patch.
    store.write("default", &batch(&round(0)[..3])).unwrap();
    store.compact_all().unwrap();
    store.set_policy("kept", &DatabasePolicy { retention_ns: 1_000, ..DatabasePolicy::default() }).unwrap();
    let matcher = [Matcher::new("host", MatchOp::Equal, "host-0")];
    store.delete("default", &compile(&matcher).unwrap(), &deleted()).unwrap();
    send(&store, &round(rounds(VERSION) - 1), Sent { producer: 7, sequence: 2 });
}

/// Writes rows by token, and who sent them.
fn send(store: &Store, rows: &[Row], sent: Sent) {
    let field = |name: &str| (Field { name: name.to_owned(), value_type: ValueType::F64 }, Labels::empty());
    let hosts = rows.iter().map(|row| Labels::from_pairs([("host", &row.host)]).unwrap()).collect::<Vec<_>>();
    let (tokens, layout) = store.register_groups("default", "m", &hosts, &[field("a"), field("b")]).unwrap();
    let mut appender = store.appender();
    for (row, token) in rows.iter().zip(tokens) {
        let cells: Vec<u64> = row.fields.iter().map(|(_, value)| value.to_bits()).collect();
        appender.row(token, &layout, row.timestamp_ns, &cells).unwrap();
    }
    let sequenced = appender.append(Some(sent)).unwrap();
    store.commit(&sequenced).unwrap();
}

/// What is deleted of the first host in folders from version 2 on.
fn deleted() -> TimeRange {
    TimeRange::new(1_700_000_000_000_000_000, 1_700_000_005_000_000_000)
}

/// The version of regular databases.
const EPOCHS_VERSION: &str = "v1";

const INTERVAL_NS: i64 = 300_000_000_000;

/// Epochs of more names than a block has: whole ones, one in two parts, one that is written again; a name that goes and comes back.
fn write_epochs(directory: &Path) {
    let store = Store::open(Platform::real(), options(directory)).unwrap();
    store.define_regular("dns", &RegularDefinition::new(INTERVAL_NS)).unwrap();
    let write = |epoch: i64, names: std::ops::Range<i64>, add: i64| {
        let values = EpochColumn::Int(names.clone().map(|name| epoch_value(name, epoch) + add).collect());
        let names: Vec<String> = names.map(|name| format!("n{name}")).collect();
        let names: EpochNames = names.iter().map(String::as_str).collect();
        let time_ns = epoch * INTERVAL_NS + 5;
        store.write_epoch("dns", &EpochBatch { time_ns, names: &names, values: &values }).unwrap();
    };
    write(100, 0..3000, 0);
    write(101, 0..1500, 0);
    write(101, 1500..3000, 0);
    write(102, 0..3000, 7);
    write(102, 0..3000, 0);
    store.remove_names("dns", &["n7"].into_iter().collect(), 103 * INTERVAL_NS).unwrap();
    write(103, 8..3000, 0);
    write(104, 7..8, 0);
}

const fn epoch_value(name: i64, epoch: i64) -> i64 {
    name * name % 1009 + epoch * (name % 3)
}

#[test]
fn regular_databases_of_older_versions_open() {
    let folder = |version: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_epochs").join(version);
    let newest = folder(EPOCHS_VERSION);
    if std::env::var_os("THALWEG_GOLDEN").is_some_and(|value| value == "write") && !newest.exists() {
        write_epochs(&newest);
        let _ = fs::remove_file(newest.join("LOCK"));
    }
    let versions: Vec<PathBuf> = fs::read_dir(folder("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(versions.contains(&newest), "no golden folder of this version");
    for version in versions {
        let scratch = std::env::temp_dir().join(format!("thalweg-golden-epochs-{}", std::process::id()));
        copy(&version, &scratch);
        let store = Store::open(Platform::real(), options(&scratch)).unwrap();
        let read = |name: &str| -> Vec<EpochCell> {
            let names = [store.name_number("dns", name).unwrap().unwrap()];
            let read = NamesRead { names: &names, range: TimeRange::ALL, rows: EpochRows::All };
            store.read_names("dns", &read).unwrap().remove(0).cells
        };
        let value = |name: i64, epoch| EpochCell::Value(EpochValue::Int(epoch_value(name, epoch)));
        for name in [8, 1499, 1500, 2999] {
            let expected = [100, 101, 102, 103].map(|epoch| value(name, epoch));
            assert_eq!(read(&format!("n{name}"))[..4], expected, "n{name}");
        }
        let expected = [value(7, 100), value(7, 101), value(7, 102), EpochCell::Undefined, value(7, 104)];
        assert_eq!(read("n7"), expected);
        let validity = store.name_validity("dns", &[store.name_number("dns", "n7").unwrap().unwrap()]).unwrap();
        assert_eq!((validity.len(), validity[0].to_ns, validity[1].to_ns), (2, Some(103 * INTERVAL_NS), None));
        drop(store);
        fs::remove_dir_all(&scratch).unwrap();
    }
}

/// Zeros do not matter to git; the lock and spare files do not belong to the folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn folders_of_older_versions_open() {
    if std::env::var_os("THALWEG_GOLDEN").is_some_and(|value| value == "write") && !folder(VERSION).exists() {
        write_golden(&folder(VERSION));
    }
    let versions: Vec<PathBuf> = fs::read_dir(folder("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(versions.contains(&folder(VERSION)), "no golden folder of this version");
    for version in versions {
        let scratch = std::env::temp_dir().join(format!("thalweg-golden-{}", std::process::id()));
        copy(&version, &scratch);
        let store = Store::open(Platform::real(), options(&scratch)).unwrap();
        let name = version.file_name().unwrap().to_string_lossy().into_owned();
        let mut expected = Content::new();
        (0..rounds(&name)).for_each(|number| apply(&mut expected, &round(number)));
        if name != "v1" {
            let of_host = expected.iter_mut().filter(|((host, _), _)| host == "host-0");
            of_host.for_each(|(_, samples)| samples.retain(|timestamp_ns, _| !deleted().contains(*timestamp_ns)));
            assert!(store.stats().levels[2].parts > 2, "settled parts are part of the folder");
            assert_eq!(store.policy("kept").unwrap().retention_ns, 1_000);
        }
        if !["v1", "v2", "v3"].contains(&name.as_str()) {
            // The one in the producers' table, the other also in a record of the log.
            assert_eq!(
                (store.last_sent(8), store.last_sent(7), store.last_sent(9)),
                (Some(5), Some(2), None),
                "{name}"
            );
        }
        assert_eq!(read_all(&store, TimeRange::ALL), expected, "{name}");
        assert!(store.recovery().log_rows > 0, "the log is part of the folder");
        assert!(store.stats().levels[1].parts > 0, "merged parts are part of the folder");
        drop(store);
        fs::remove_dir_all(&scratch).unwrap();
    }
}
