use std::ops::Range;
use std::path::Path;
use std::sync::Barrier;

use platform::objects::{Content, ListedObject, ObjectErrorKind, ObjectInfo, ObjectOptions, PutCondition, Version};
use platform::sim::{ObjectFaults, Simulation};
use proptest::prelude::*;

use super::*;

const URL: &str = "sim://bucket";
const FLASH: &str = "cache/blocks";

fn objects(simulation: &Simulation) -> Arc<dyn Objects> {
    simulation.platform().objects.open(URL, &ObjectOptions::default()).unwrap()
}

fn tier_with(simulation: &Simulation, options: TierOptions) -> Tier {
    Tier::open(simulation.platform(), objects(simulation), options).unwrap()
}

fn small_options(memory_bytes: u64, flash_bytes: u64) -> TierOptions {
    TierOptions {
        block_bytes: 512,
        gap_bytes_max: 1024,
        request_bytes_max: 4096,
        memory_bytes,
        flash: (flash_bytes > 0).then(|| FlashOptions { path: FLASH.into(), file_bytes: flash_bytes }),
        ..TierOptions::default()
    }
}

/// One range.
fn read(tier: &Tier, key: &str, object_bytes: u64, range: Range<u64>) -> Result<Vec<u8>, ObjectError> {
    tier.read(key, object_bytes, std::slice::from_ref(&range)).map(|found| found.concat())
}

fn content(object: u64, size_bytes: usize) -> Vec<u8> {
    (0..size_bytes as u64).map(|place| ((place * 31) ^ (place >> 8) ^ (object * 77)) as u8).collect()
}

fn write(simulation: &Simulation, path: &str, bytes: &[u8]) {
    platform::write_file(&*simulation.platform().files, Path::new(path), bytes).unwrap();
}

#[test]
fn a_file_is_uploaded_read_listed_and_deleted() {
    let simulation = Simulation::new(1);
    let tier = tier_with(&simulation, TierOptions::default());
    let bytes = content(1, 300_000);
    write(&simulation, "parts/1.part", &bytes);
    let uploaded = tier.upload(Path::new("parts/1.part"), "parts/1.part").unwrap();
    assert_eq!(uploaded, Uploaded { size_bytes: 300_000, checksum: crc32c::crc32c(&bytes) });
    let ranges = [0..10, 65_530..65_550, 299_990..300_000, 5..5, 0..300_000];
    let expected: Vec<&[u8]> = ranges.iter().map(|range| &bytes[range.start as usize..range.end as usize]).collect();
    assert_eq!(tier.read("parts/1.part", 300_000, &ranges).unwrap(), expected);
    assert_eq!(tier.list("parts", 10).unwrap(), [ListedObject { key: "parts/1.part".into(), size_bytes: 300_000 }]);
    tier.delete("parts/1.part").unwrap();
    tier.delete("parts/1.part").unwrap();
    assert_eq!(tier.list("", 10).unwrap(), []);
}

#[test]
fn an_empty_file_is_an_object_too() {
    let simulation = Simulation::new(1);
    write(&simulation, "empty", &[]);
    let tier = tier_with(&simulation, TierOptions::default());
    assert_eq!(tier.upload(Path::new("empty"), "empty").unwrap(), Uploaded { size_bytes: 0, checksum: 0 });
    assert_eq!(read(&tier, "empty", 0, 0..0).unwrap(), [0_u8; 0]);
}

#[test]
fn ranges_outside_the_object_are_errors() {
    let simulation = Simulation::new(1);
    let tier = tier_with(&simulation, TierOptions { read_bytes_max: 50, ..TierOptions::default() });
    objects(&simulation).put("a", Content::Bytes(&[1; 100]), &PutCondition::Always).unwrap();
    let backwards = Range { start: 3, end: 2 };
    let cases: [(&[Range<u64>], &str); 3] =
        [(&[0..1, 0..101], "it has 100"), (&[backwards], "it has 100"), (&[0..30, 40..70], "at most 50")];
    for (ranges, expected) in cases {
        let error = tier.read("a", 100, ranges).unwrap_err();
        assert!(error.kind == ObjectErrorKind::Other && error.to_string().contains(expected), "{error}");
    }
    let error = read(&tier, "a", 200, 150..151).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Other, "the object is shorter than the caller thinks: {error}");
    assert_eq!(read(&tier, "b", 10, 0..1).unwrap_err().kind, ObjectErrorKind::Missing);
}

#[test]
fn the_second_read_sends_no_request() {
    let simulation = Simulation::new(1);
    let tier = tier_with(&simulation, TierOptions::default());
    let bytes = content(1, 1 << 20);
    objects(&simulation).put("a", Content::Bytes(&bytes), &PutCondition::Always).unwrap();
    tier.read("a", 1 << 20, &[0..100, 200_000..300_000]).unwrap();
    let before = tier.counters();
    tier.read("a", 1 << 20, &[50..100, 200_010..299_000]).unwrap();
    let after = tier.counters();
    assert_eq!((after.objects.requests, after.misses), (before.objects.requests, before.misses));
    assert_eq!(after.memory_hits - before.memory_hits, 3);
}

#[test]
fn what_was_warmed_is_read_without_a_request() {
    let simulation = Simulation::new(1);
    let tier = tier_with(&simulation, small_options(1 << 20, 0));
    let keys = ["a", "b", "c"];
    for (number, key) in keys.iter().enumerate() {
        let bytes = content(number as u64, 20_000);
        objects(&simulation).put(key, Content::Bytes(&bytes), &PutCondition::Always).unwrap();
    }
    let mut wanted: Vec<(&str, u64, Range<u64>)> = Vec::new();
    for key in keys {
        // Two ranges in one request, one in another; what is missing or beyond the end spoils nothing.
        wanted.extend([(key, 20_000, 0..700), (key, 20_000, 900..1_300), (key, 20_000, 9_000..9_010)]);
        wanted.extend([("gone", 500, 0..9), (key, 20_000, 19_990..20_001)]);
    }
    let before = tier.counters().objects.requests;
    tier.warm(&wanted);
    let warmed = tier.counters();
    assert_eq!(warmed.objects.requests - before, 3 * 2 + 1);
    for (number, key) in keys.iter().enumerate() {
        let bytes = content(number as u64, 20_000);
        for range in [0..700, 900..1_300, 9_000..9_010] {
            let expected = &bytes[range.start as usize..range.end as usize];
            assert_eq!(read(&tier, key, 20_000, range).unwrap(), expected);
        }
    }
    assert_eq!(tier.counters().objects.requests, warmed.objects.requests);
    assert_eq!(read(&tier, "gone", 500, 0..9).unwrap_err().kind, ObjectErrorKind::Missing);
    // What one thread alone lacks it fetches itself.
    tier.warm(&[("a", 20_000, 15_000..15_001)]);
    assert_eq!(tier.counters().objects.requests, warmed.objects.requests + 1);
}

#[test]
fn another_identity_or_size_is_another_object() {
    let simulation = Simulation::new(1);
    let old = content(1, 2_000);
    let options = |identity| TierOptions { identity, ..small_options(0, 100_000) };
    objects(&simulation).put("a", Content::Bytes(&old), &PutCondition::Always).unwrap();
    let tier = tier_with(&simulation, options(1));
    // Memory for nothing: the second time a block is let go it moves to flash.
    (0..2).for_each(|_| drop(read(&tier, "a", 2_000, 0..2_000).unwrap()));
    drop(tier);
    let new = content(2, 2_000);
    objects(&simulation).put("a", Content::Bytes(&new), &PutCondition::Always).unwrap();
    assert_eq!(read(&tier_with(&simulation, options(1)), "a", 2_000, 0..2_000).unwrap(), old);
    assert_eq!(read(&tier_with(&simulation, options(2)), "a", 2_000, 0..2_000).unwrap(), new);
}

#[test]
fn a_wrong_object_is_never_taken_as_uploaded() {
    type Damage = fn(&Simulation);
    let cases: [(&str, Damage); 3] = [
        ("expected checksum", |simulation| simulation.flip_object_bit(URL, "a", 5, 1).unwrap()),
        ("expected 1000 bytes, found 999", |simulation| {
            objects(simulation).put("a", Content::Bytes(&[0; 999]), &PutCondition::Always).map(drop).unwrap();
        }),
        ("is not there", |simulation| objects(simulation).delete("a").unwrap()),
    ];
    for (expected, damage) in cases {
        let simulation = Simulation::new(1);
        let tier = tier_with(&simulation, TierOptions::default());
        write(&simulation, "a", &content(1, 1000));
        let uploaded = tier.upload(Path::new("a"), "a").unwrap();
        tier.verify("a", uploaded).unwrap();
        damage(&simulation);
        let error = tier.verify("a", uploaded).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_missing_local_file_is_not_a_missing_object() {
    let simulation = Simulation::new(1);
    let error = tier_with(&simulation, TierOptions::default()).upload(Path::new("no"), "a").unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Other, "{error}");
}

#[test]
fn uploads_through_faults_are_whole_or_not_acknowledged() {
    let faults = ObjectFaults {
        busy_per_mille: 100,
        other_per_mille: 50,
        lost_answers_per_mille: 150,
        cut_uploads_per_mille: 150,
        conflicts_per_mille: 0,
    };
    let (mut acknowledged, mut happened_unheard, mut cut) = (0, 0, 0);
    for seed in 0..500 {
        let simulation = Simulation::new(seed);
        let tier = tier_with(&simulation, small_options(0, 0));
        let bytes = content(seed, 3_000);
        write(&simulation, "a", &bytes);
        simulation.set_object_faults(faults);
        let uploaded = tier.upload(Path::new("a"), "a");
        simulation.crash();
        let found = simulation.object(URL, "a");
        match (&uploaded, &found) {
            (Ok(_), found) => {
                assert_eq!(found.as_ref(), Some(&bytes), "acknowledged, so it survives the crash");
                acknowledged += 1;
            }
            (Err(_), Some(found)) => {
                assert_eq!(found, &bytes, "whole if at all");
                happened_unheard += 1;
            }
            (Err(_), None) => cut += 1,
        }
        simulation.set_object_faults(ObjectFaults::default());
        let tier = tier_with(&simulation, small_options(0, 0));
        tier.upload(Path::new("a"), "a").unwrap();
        assert_eq!(simulation.object(URL, "a").unwrap(), bytes);
    }
    assert!(acknowledged > 50 && happened_unheard > 50 && cut > 50, "{acknowledged} {happened_unheard} {cut}");
}

#[test]
fn a_manifest_is_fenced() {
    let simulation = Simulation::new(1);
    let (ours, theirs) =
        (tier_with(&simulation, TierOptions::default()), tier_with(&simulation, TierOptions::default()));
    let written = |put: ManifestPut| match put {
        ManifestPut::Written(version) => version,
        ManifestPut::Fenced(found) => panic!("fenced by {found:?}"),
    };
    assert_eq!(ours.load_manifest("MANIFEST", 100).unwrap(), None);
    let first = written(ours.put_manifest("MANIFEST", b"epoch 1", None).unwrap());
    let second = written(ours.put_manifest("MANIFEST", b"epoch 1, edit 2", Some(&first)).unwrap());
    let found = theirs.load_manifest("MANIFEST", 100).unwrap().unwrap();
    assert_eq!(found, ManifestCopy { bytes: b"epoch 1, edit 2".to_vec(), version: second.clone() });
    let third = written(theirs.put_manifest("MANIFEST", b"epoch 2", Some(&found.version)).unwrap());
    let fenced = ManifestPut::Fenced(Some(ManifestCopy { bytes: b"epoch 2".to_vec(), version: third }));
    assert_eq!(ours.put_manifest("MANIFEST", b"epoch 1, edit 3", Some(&second)).unwrap(), fenced);
    assert_eq!(ours.put_manifest("MANIFEST", b"epoch 1, edit 3", None).unwrap(), fenced);
    ours.delete("MANIFEST").unwrap();
    let put = ours.put_manifest("MANIFEST", b"epoch 1, edit 3", Some(&second)).unwrap();
    assert_eq!(put, ManifestPut::Fenced(None));
    assert!(ours.load_manifest("MANIFEST", 100).unwrap().is_none());
}

/// Two writers that take turns through faults: at any time at most one believes that it may write, and what it was
/// told is written is what is there.
#[test]
fn fencing_holds_through_lost_answers_and_false_conflicts() {
    let faults = ObjectFaults {
        busy_per_mille: 100,
        lost_answers_per_mille: 200,
        cut_uploads_per_mille: 100,
        conflicts_per_mille: 100,
        ..ObjectFaults::default()
    };
    let (mut written, mut fenced) = (0, 0);
    for seed in 0..200 {
        let simulation = Simulation::new(seed);
        let tier = tier_with(&simulation, TierOptions::default());
        simulation.set_object_faults(faults);
        let mut known: [Option<Version>; 2] = [None, None];
        let mut edits = 0;
        for _ in 0..40 {
            let writer = simulation.below(2) as usize;
            edits += 1;
            let bytes = format!("writer {writer} edit {edits}").into_bytes();
            // A busy store is asked again with the same bytes.
            let put = (0..100).find_map(|_| tier.put_manifest("M", &bytes, known[writer].as_ref()).ok());
            match put.unwrap() {
                ManifestPut::Written(version) => {
                    assert_eq!(simulation.object(URL, "M").unwrap(), bytes, "seed {seed}");
                    known[writer] = Some(version);
                    written += 1;
                }
                ManifestPut::Fenced(found) => {
                    let found = found.unwrap();
                    assert_ne!(known[writer].as_ref(), Some(&found.version), "fenced by itself");
                    let other = format!("writer {}", 1 - writer).into_bytes();
                    assert!(found.bytes.starts_with(&other), "seed {seed}: fenced by what it wrote itself");
                    known[writer] = Some(found.version);
                    fenced += 1;
                }
            }
        }
    }
    assert!(written > 2_000 && fenced > 500, "{written} {fenced}");
}

#[test]
fn a_probe_leaves_nothing_behind() {
    let simulation = Simulation::new(1);
    let probe = tier_with(&simulation, TierOptions::default()).probe().unwrap();
    assert!(probe.conditional_put);
    assert_eq!(simulation.object_keys(URL), Vec::<String>::new());
    simulation.set_object_faults(ObjectFaults { busy_per_mille: 1000, ..ObjectFaults::default() });
    let error = tier_with(&simulation, TierOptions::default()).probe().unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Busy);
    let text = error.to_string();
    assert!(text.contains("could not store") && text.contains(URL) && text.contains("tried again"), "{text}");
}

/// A store that takes conditions and does not look at them, as old servers do.
struct Careless(Arc<dyn Objects>);

impl Objects for Careless {
    fn location(&self) -> &str {
        self.0.location()
    }
    fn put(&self, key: &str, content: Content<'_>, _: &PutCondition) -> Result<Version, ObjectError> {
        self.0.put(key, content, &PutCondition::Always)
    }
    fn read(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, ObjectError> {
        self.0.read(key, ranges)
    }
    fn head(&self, key: &str) -> Result<ObjectInfo, ObjectError> {
        self.0.head(key)
    }
    fn list(&self, folder: &str, after: Option<&str>, objects_max: usize) -> Result<Vec<ListedObject>, ObjectError> {
        self.0.list(folder, after, objects_max)
    }
    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.0.delete(key)
    }
    fn counters(&self) -> ObjectCounters {
        self.0.counters()
    }
}

#[test]
fn a_probe_tells_a_store_that_ignores_conditions() {
    let simulation = Simulation::new(1);
    let careless = Arc::new(Careless(objects(&simulation)));
    let tier = Tier::open(simulation.platform(), careless, TierOptions::default()).unwrap();
    assert!(!tier.probe().unwrap().conditional_put);
}

/// A store whose reads stop until all readers that are expected wait, so that it is sure that they met.
struct Gate {
    inner: Arc<dyn Objects>,
    reading: Barrier,
    waiting: Barrier,
}

impl Objects for Gate {
    fn location(&self) -> &str {
        self.inner.location()
    }
    fn put(&self, key: &str, content: Content<'_>, condition: &PutCondition) -> Result<Version, ObjectError> {
        self.inner.put(key, content, condition)
    }
    fn read(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, ObjectError> {
        self.reading.wait();
        self.waiting.wait();
        self.inner.read(key, ranges)
    }
    fn head(&self, key: &str) -> Result<ObjectInfo, ObjectError> {
        self.inner.head(key)
    }
    fn list(&self, folder: &str, after: Option<&str>, objects_max: usize) -> Result<Vec<ListedObject>, ObjectError> {
        self.inner.list(folder, after, objects_max)
    }
    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.inner.delete(key)
    }
    fn counters(&self) -> ObjectCounters {
        self.inner.counters()
    }
}

#[test]
fn threads_share_one_request_and_its_error() {
    for exists in [true, false] {
        let simulation = Simulation::new(1);
        let inner = objects(&simulation);
        if exists {
            inner.put("a", Content::Bytes(&content(1, 10_000)), &PutCondition::Always).unwrap();
        }
        let gate = Arc::new(Gate { inner, reading: Barrier::new(2), waiting: Barrier::new(2) });
        let tier = Tier::open(simulation.platform(), gate.clone(), small_options(1 << 20, 0)).unwrap();
        let requests = tier.counters().objects.requests;
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| read(&tier, "a", 10_000, 0..10_000));
            gate.reading.wait();
            // The leader's request is under way: these can only wait for it. A second request would find no one at
            // the barriers and the test would not end.
            let others: Vec<_> = (0..8).map(|_| scope.spawn(|| read(&tier, "a", 10_000, 100..9_000))).collect();
            while tier.counters().waited < 8 * 18 {
                std::thread::yield_now();
            }
            // Nor does who reads ahead ask for what is on its way.
            tier.warm(&[("a", 10_000, 0..700), ("a", 10_000, 9_000..9_500)]);
            gate.waiting.wait();
            let read = leader.join().unwrap();
            assert_eq!(read.is_ok(), exists);
            for other in others {
                match other.join().unwrap() {
                    Ok(found) => assert_eq!(found, &content(1, 10_000)[100..9_000]),
                    Err(error) => assert!(!exists && error.kind == ObjectErrorKind::Missing, "{error}"),
                }
            }
        });
        assert_eq!(tier.counters().objects.requests - requests, 1);
    }
}

#[test]
fn a_scan_does_not_drive_out_what_is_read_often() {
    let simulation = Simulation::new(1);
    let tier = tier_with(&simulation, small_options(100 * (512 + 160), 0));
    let objects = objects(&simulation);
    objects.put("often", Content::Bytes(&content(1, 20 * 512)), &PutCondition::Always).unwrap();
    objects.put("scanned", Content::Bytes(&content(2, 2_000 * 512)), &PutCondition::Always).unwrap();
    let often = |tier: &Tier| drop(read(tier, "often", 20 * 512, 0..20 * 512).unwrap());
    (0..5).for_each(|_| often(&tier));
    for block in 0..2_000 {
        read(&tier, "scanned", 2_000 * 512, block * 512..(block + 1) * 512).unwrap();
    }
    let before = tier.counters().misses;
    often(&tier);
    let missed = tier.counters().misses - before;
    assert!(missed <= 2, "{missed} of 20 blocks were driven out");
}

#[derive(Debug, Clone)]
enum Step {
    Read { object: usize, ranges: Vec<(u16, u16)> },
    Restart,
    Crash,
    FlipBit(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let ranges = proptest::collection::vec((any::<u16>(), 0..5_000_u16), 0..6);
    prop_oneof![
        20 => (0..3_usize, ranges).prop_map(|(object, ranges)| Step::Read { object, ranges }),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
        3 => any::<u32>().prop_map(Step::FlipBit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever the cache's sizes, and whatever happens to its file: what is read is what the object holds.
    #[test]
    fn cached_reads_equal_the_object(
        memory_blocks in 0..40_u64,
        flash_blocks in 0..40_u64,
        sizes in [0..30_000_usize, 0..3_000_usize, 0..600_usize],
        steps in proptest::collection::vec(step(), 1..60),
        seed in any::<u64>(),
    ) {
        let simulation = Simulation::new(seed);
        let contents: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(number, size)| content(number as u64, *size)).collect();
        for (number, bytes) in contents.iter().enumerate() {
            let key = format!("parts/{number}");
            objects(&simulation).put(&key, Content::Bytes(bytes), &PutCondition::Always).unwrap();
        }
        let flash_bytes = if flash_blocks == 0 { 0 } else { 8192 + flash_blocks * (512 + 64) };
        let options = small_options(memory_blocks * 512, flash_bytes);
        let mut tier = tier_with(&simulation, options.clone());
        for step in steps {
            match step {
                Step::Read { object, ranges } => {
                    let bytes = &contents[object];
                    let within = |at: u16| usize::from(at) * bytes.len() / usize::from(u16::MAX);
                    let ranges: Vec<Range<u64>> = ranges.into_iter().map(|(start, length)| {
                        let start = within(start);
                        start as u64..(start + usize::from(length)).min(bytes.len()) as u64
                    }).collect();
                    let found = tier.read(&format!("parts/{object}"), bytes.len() as u64, &ranges).unwrap();
                    let expected: Vec<&[u8]> =
                        ranges.iter().map(|range| &bytes[range.start as usize..range.end as usize]).collect();
                    prop_assert_eq!(found, expected);
                    prop_assert!(tier.counters().memory_bytes <= memory_blocks * 512);
                }
                Step::Restart => tier = tier_with(&simulation, options.clone()),
                Step::Crash => {
                    simulation.crash();
                    tier = tier_with(&simulation, options.clone());
                }
                Step::FlipBit(place) => {
                    if let Ok(file) = simulation.read(Path::new(FLASH)) && !file.is_empty() {
                        let offset = u64::from(place) % file.len() as u64;
                        simulation.flip_bit(Path::new(FLASH), offset, (place % 8) as u8).unwrap();
                    }
                }
            }
        }
    }
}
