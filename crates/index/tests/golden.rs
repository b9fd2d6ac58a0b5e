//! Segments that older versions wrote must still open and hold the same.
//!
//! `THALWEG_GOLDEN=write cargo test -p thalweg-index --test golden` makes the file of the present version, once: an existing one is
//! never replaced.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use model::Labels;
use thalweg_index::{Groups, RoaringBitmap, Segment, fuzzing};

/// The version that is written at present.
const VERSION: u32 = 3;

fn file(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}.segment"))
}

fn labels(number: u32) -> Labels {
    let host = format!("host-{}", number % 40);
    let pairs =
        [("host", host), ("os", ["linux", "ünix"][number as usize % 2].to_owned()), ("pod", format!("p{number}"))];
    Labels::from_pairs(pairs.into_iter().skip(number as usize % 3)).unwrap()
}

fn slots(number: u32) -> Vec<u32> {
    if number == 4 { vec![0, 1, 2, 9] } else { vec![0, 1 + number % 3] }
}

/// Two segments; the one that is kept holds groups of two databases, says of an older group that it has grown, and of another that
/// it is removed.
fn write_golden() -> Vec<u8> {
    let mut groups = Groups::with_hash_seed(77);
    let freeze = |groups: &mut Groups, number: u64| {
        let mut bytes = Vec::new();
        groups.freeze().unwrap().write(&mut bytes).unwrap();
        groups.install_frozen(Segment::open(number, Arc::new(bytes.clone())).unwrap());
        bytes
    };
    for number in 0..10 {
        groups.register(0, 0, &labels(number), &slots(number)).unwrap();
    }
    freeze(&mut groups, 1);
    for number in 10..300 {
        groups.register(number % 2, number % 5, &labels(number), &slots(number)).unwrap();
    }
    groups.extend(4, &[2, 9]).unwrap();
    groups.remove(&RoaringBitmap::from_iter([5, 20, 21]));
    freeze(&mut groups, 2)
}

#[test]
fn segments_of_older_versions_open() {
    let present = file(VERSION);
    if std::env::var_os("THALWEG_GOLDEN").is_some_and(|value| value == "write") && !present.exists() {
        fs::create_dir_all(present.parent().unwrap()).unwrap();
        fs::write(&present, write_golden()).unwrap();
    }
    assert!(
        fs::read(present).unwrap() == write_golden(),
        "what is written has changed: that needs a new version, or a new golden file if it need not"
    );
    (2..=VERSION).for_each(|version| check(fs::read(file(version)).unwrap()));
}

fn check(bytes: Vec<u8>) {
    let mut older = Groups::with_hash_seed(77);
    for number in 0..10 {
        older.register(0, 0, &labels(number), &slots(number)).unwrap();
    }
    let mut first = Vec::new();
    older.freeze().unwrap().write(&mut first).unwrap();
    let segments = [(1, first), (2, bytes)].map(|(number, bytes)| Segment::open(number, Arc::new(bytes)).unwrap());
    let groups = Groups::open(segments.into(), 0).unwrap();
    groups.verify().unwrap();
    for number in 0..300 {
        let group = groups.get(number).unwrap();
        let (database, measurement) = if number < 10 { (0, 0) } else { (number % 2, number % 5) };
        if [5, 20, 21].contains(&number) {
            assert_eq!(group, None);
            assert_eq!(groups.find(database, measurement, &labels(number)).unwrap(), None);
            continue;
        }
        let group = group.unwrap();
        assert_eq!((group.database, group.measurement, &group.labels), (database, measurement, &labels(number)));
        assert_eq!(groups.find(database, measurement, &labels(number)).unwrap(), Some(number));
        let expected: Vec<u32> = slots(number);
        assert_eq!(groups.slots(number).unwrap().unwrap().iter().collect::<Vec<_>>(), expected, "group {number}");
    }
}

/// Every byte damaged in turn, and the directory too with a checksum that fits.
#[test]
fn damage_anywhere_never_panics() {
    let bytes = fs::read(file(VERSION)).unwrap();
    let end = bytes.len() - 16;
    let directory = u64::from_le_bytes(bytes[end..end + 8].try_into().unwrap()) as usize;
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] = damaged[place].wrapping_add(1 + place as u8 % 250);
        let length = (end - directory) as u16;
        let framed = [&length.to_le_bytes()[..], &damaged[16..end]].concat();
        fuzzing::segment(&framed);
        if let Ok(segment) = Segment::open(1, Arc::new(damaged)) {
            fuzzing::segment_opened(segment);
        }
    }
    (0..bytes.len()).step_by(7).for_each(|cut| assert!(Segment::open(1, Arc::new(bytes[..cut].to_vec())).is_err()));
}
