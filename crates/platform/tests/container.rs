//! Containers that older versions made must still open and hold the same.
//!
//! `THALWEG_GOLDEN=write cargo test -p thalweg-platform --test container` makes that of the present version, once: an existing one is never
//! replaced.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use thalweg_platform::container::ContainerShape;
use thalweg_platform::{Files, OpenMode, Platform, read_file, write_file};

const VERSION: &str = "v1.tsdb";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn one_file(path: &Path) -> Platform {
    Platform::real().with_one_file(path, ContainerShape { checkpoint_blocks: 1, journal_blocks: 3 })
}

fn lock(files: &dyn Files, path: &Path) -> Box<dyn Send + Sync> {
    files.lock(&path.join("LOCK")).unwrap_or_else(|_| panic!("nothing else has it"))
}

/// Commits before the last checkpoint and after it, a file in two places, one that was renamed and one that is gone.
fn write_golden(path: &Path) {
    let platform = one_file(path);
    let files = &*platform.files;
    let held = lock(files, path);
    write_file(files, &path.join("MANIFEST"), b"first").unwrap();
    let [one, other] = ["parts/1", "parts/2"].map(|name| files.open(&path.join(name), OpenMode::CreateNew).unwrap());
    for number in 0..6 {
        one.write_all_at(&[number; 3000], u64::from(number) * 3000).unwrap();
        other.write_all_at(&[number + 100; 3000], u64::from(number) * 3000).unwrap();
    }
    files.sync_directory(path).unwrap();
    files.rename(&path.join("parts/1"), &path.join("log/0000000001.log")).unwrap();
    write_file(files, &path.join("gone"), &vec![1; 20_000]).unwrap();
    files.remove(&path.join("gone")).unwrap();
    write_file(files, &path.join("MANIFEST"), b"second").unwrap();
    drop(held);
}

#[test]
fn containers_of_older_versions_open() {
    if std::env::var_os("THALWEG_GOLDEN").is_some_and(|value| value == "write") && !golden(VERSION).exists() {
        write_golden(&golden(VERSION));
    }
    let scratch = std::env::temp_dir().join(format!("thalweg-container-golden-{}.tsdb", std::process::id()));
    fs::copy(golden(VERSION), &scratch).unwrap();
    let platform = one_file(&scratch);
    let files = &*platform.files;
    for is_locked in [false, true] {
        let held = is_locked.then(|| lock(files, &scratch));
        assert_eq!(files.list(&scratch).unwrap(), ["MANIFEST", "log", "parts"]);
        let read = |name: &str| read_file(files, &scratch.join(name), 1 << 20).unwrap();
        assert_eq!(read("MANIFEST"), b"second");
        for (name, first) in [("log/0000000001.log", 0_u8), ("parts/2", 100)] {
            let expected: Vec<u8> = (0..6).flat_map(|number| [first + number; 3000]).collect();
            assert!(read(name) == expected, "{name}");
        }
        if held.is_some() {
            write_file(files, &scratch.join("MANIFEST"), b"third").unwrap();
            assert_eq!(read("MANIFEST"), b"third");
        }
    }
    fs::remove_file(&scratch).unwrap();
}
