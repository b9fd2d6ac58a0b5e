//! A data folder and one file hold the same: packed, unpacked, copied while open, on this machine's own disk.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use model::TimeRange;
use platform::Platform;
use support::{Content, Row, apply, batch, read_all};
use thalweg_store::{Store, StoreError, StoreOptions, check, copy_folder, inspect};

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("thalweg-store-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn platform(path: &Path) -> Platform {
    Platform::real().with_data(path).unwrap()
}

fn open(path: &Path) -> Store {
    let options = StoreOptions { log_segment_bytes: 64 << 10, partition_ns: 8_000_000_000, ..StoreOptions::new(path) };
    Store::open(platform(path), options).unwrap()
}

fn round(number: i64) -> Vec<Row> {
    let row = |place: i64| Row {
        host: format!("host-{}", place % 3),
        timestamp_ns: 1_700_000_000_000_000_000 + (number * 20 + place) * 1_000_000_000,
        fields: vec![("a".to_owned(), (number * 100 + place) as f64)],
    };
    (0..20).map(row).collect()
}

fn write(store: &Store, content: &mut Content, rounds: std::ops::Range<i64>) {
    for number in rounds {
        store.write("default", &batch(&round(number))).unwrap();
        apply(content, &round(number));
    }
}

/// Every checksum is right, and the rows are these; in the log, too.
fn holds(path: &Path, content: &Content) {
    let report = check(&platform(path), path, None, &mut |_| {}).unwrap();
    assert!(report.damages.is_empty(), "{}: {:?}", path.display(), report.damages);
    assert_eq!(read_all(&open(path), TimeRange::ALL), *content, "{}", path.display());
}

fn copy(from: &Path, to: &Path) -> Result<u64, StoreError> {
    copy_folder((&platform(from), from), (&platform(to), to), &mut |_| {}).map(|report| report.files)
}

#[test]
fn a_folder_becomes_one_file_and_a_folder_again() {
    let scratch = scratch("pack");
    let [folder, file, again, twice] = ["data", "data.tsdb", "again", "twice.tdb"].map(|name| scratch.join(name));
    let mut content = Content::new();
    let store = open(&folder);
    write(&store, &mut content, 0..5);
    store.compact_all().unwrap();
    write(&store, &mut content, 5..8);
    assert!(matches!(copy(&folder, &file), Err(StoreError::Locked { .. })));
    drop(store);
    fs::write(folder.join("audit.log"), "{}\n").unwrap();
    for (from, to) in [(&folder, &file), (&file, &again), (&file, &twice)] {
        assert!(copy(from, to).unwrap() > 4);
        holds(to, &content);
        let error = copy(from, to).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
    }
    assert!(file.is_file() && again.is_dir() && twice.is_file() && !again.join("audit.log").exists());
    let error = copy(&scratch.join("nothing.tsdb"), &scratch.join("new")).unwrap_err().to_string();
    assert!(error.contains("is no data folder") && !scratch.join("nothing.tsdb").exists(), "{error}");
    let report = |path: &Path| inspect(&platform(path), path).unwrap();
    assert_eq!(report(&file).partitions, report(&again).partitions);
    fs::remove_dir_all(&scratch).unwrap();
}

#[test]
fn one_file_is_written_closed_and_copied_while_it_is_open() {
    let scratch = scratch("copy");
    let [file, folder] = ["data.tsdb", "data"].map(|name| scratch.join(name));
    for (from, to) in [(&file, "copy.tsdb"), (&file, "copy"), (&folder, "other.tsdb")] {
        let to = scratch.join(to);
        let mut content = if from.exists() { read_all(&open(from), TimeRange::ALL) } else { Content::new() };
        for _ in 0..2 {
            let store = open(from);
            let begin = content.values().map(std::collections::BTreeMap::len).sum::<usize>() as i64;
            write(&store, &mut content, begin..begin + 3);
            store.maintain_heads().unwrap();
            assert_eq!(read_all(&store, TimeRange::ALL), content);
        }
        let store = open(from);
        let is_held = Store::open(platform(from), StoreOptions::new(from)).err().unwrap();
        assert!(matches!(is_held, StoreError::Locked { pid: Some(pid), .. } if pid == std::process::id()), "{is_held}");
        let report = store.copy_to(&platform(&to), &to, &mut |_| {}).unwrap();
        assert!(report.files > 1 && report.bytes > 100);
        holds(&to, &content);
        store.compact_all().unwrap();
        drop(store);
        holds(from, &content);
    }
    fs::remove_dir_all(&scratch).unwrap();
}
