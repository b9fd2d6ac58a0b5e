//! Cursors of the log: what was acknowledged comes at least once and in order, across crashes, releases and lost segments.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use model::{Field, Labels, TimeRange, ValueType};
use platform::objects::ObjectOptions;
use platform::sim::Simulation;
use platform::{DiskSpace, File, Files, LockError, Mapped, OpenMode, Platform};
use support::{Row, batch, read_all};
use thalweg_store::{CommitListener, LogCursor, LogGap, LogRead, LogSample, LogValue, Store, StoreOptions, restore};

const SEGMENT_BYTES: usize = 1 << 13;

fn options(retained_bytes_max: u64) -> StoreOptions {
    StoreOptions {
        log_segment_bytes: SEGMENT_BYTES,
        log_retained_bytes_max: retained_bytes_max,
        reserve_bytes: 0,
        ..StoreOptions::new("data")
    }
}

fn open(simulation: &Simulation, retained_bytes_max: u64) -> Arc<Store> {
    Arc::new(Store::open(simulation.platform(), options(retained_bytes_max)).unwrap())
}

/// Writes a row whose time and value are a number.
fn write(store: &Store, number: i64) {
    let fields = vec![("f".to_owned(), number as f64), ("g".to_owned(), -1.0)];
    let row = Row { host: format!("h{}", number % 5), timestamp_ns: number, fields };
    store.write("default", &batch(&[row])).unwrap();
}

/// The number of a sample of the field `f`.
fn number(sample: &LogSample) -> Option<i64> {
    let LogValue::Float(value) = sample.value else { panic!("a float expected") };
    assert_eq!(&*sample.series.database, "default");
    let host = sample.series.labels.get("host").unwrap();
    match sample.series.labels.get("__name__").unwrap() {
        "m_f" => {
            assert_eq!(host, format!("h{}", sample.timestamp_ns % 5));
            assert_eq!(value, sample.timestamp_ns as f64);
            Some(sample.timestamp_ns)
        }
        name => {
            assert_eq!((name, value), ("m_g", -1.0));
            None
        }
    }
}

#[derive(Debug, Default)]
struct Found {
    numbers: Vec<i64>,
    gaps: Vec<LogGap>,
    last_sequence: u64,
}

/// Reads at most so many times.
fn read(cursor: &mut LogCursor, times: usize) -> Found {
    let mut found = Found::default();
    for _ in 0..times {
        match cursor.read().unwrap() {
            LogRead::End => break,
            LogRead::Gap(gap) => found.gaps.push(gap),
            LogRead::Records(batch) => {
                let sequences: Vec<u64> = batch.records.iter().map(|record| record.sequence).collect();
                assert!(sequences.is_sorted_by(|a, b| a < b), "{sequences:?}");
                found.numbers.extend(batch.records.iter().flat_map(|record| &record.samples).filter_map(number));
            }
        }
        found.last_sequence = cursor.sequence();
    }
    found
}

#[test]
fn it_goes_on_where_it_was_saved_after_a_crash_and_a_release() {
    let simulation = Simulation::new(1);
    let store = open(&simulation, 1 << 30);
    write(&store, 1);
    let mut cursor = LogCursor::open(&store, "a", Some("default")).unwrap();
    assert_eq!(read(&mut cursor, 10).numbers, Vec::<i64>::new(), "it begins at the end");
    (2..200).for_each(|number| write(&store, number));
    let found = read(&mut cursor, 1000);
    assert_eq!(found.numbers, (2..200).collect::<Vec<_>>());
    cursor.save(found.last_sequence).unwrap();
    for number in 200..600 {
        write(&store, number);
        if number % 50 == 0 {
            store.flush_all().unwrap();
        }
    }
    store.flush_all().unwrap();
    assert!(store.stats().log.segments <= 2, "recovery needs none of them: {:?}", store.stats().log);
    assert!(store.log_retained_bytes() > 0);
    // Read and not saved: it comes again.
    assert_eq!(read(&mut cursor, 1000).numbers, (200..600).collect::<Vec<_>>());
    drop((cursor, store));
    simulation.crash();

    let store = open(&simulation, 1 << 30);
    assert!(store.recovery().log_rows < 100, "retained segments are not replayed: {:?}", store.recovery());
    let mut cursor = LogCursor::open(&store, "a", Some("default")).unwrap();
    (600..620).for_each(|number| write(&store, number));
    let found = read(&mut cursor, 1000);
    assert_eq!((found.numbers, found.gaps), ((200..620).collect::<Vec<_>>(), Vec::new()));
    cursor.save(found.last_sequence).unwrap();
    assert_eq!(store.log_retained_bytes(), 0, "nothing is retained once it was read");
    // Of other databases there is nothing.
    let mut other = LogCursor::open(&store, "b", Some("other")).unwrap();
    write(&store, 700);
    assert_eq!(read(&mut other, 10).numbers, Vec::<i64>::new());
    assert_eq!(store.log_cursors().iter().map(|cursor| cursor.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(store.remove_log_cursor("b").unwrap() && !store.remove_log_cursor("b").unwrap());
    assert!(other.save(1 << 40).is_err());
}

/// A disk that refuses to rename files, now and then.
struct Refusing {
    files: Arc<dyn Files>,
    refuses: AtomicBool,
}

impl Files for Refusing {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.files.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.files.list(directory)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.files.open(path, mode)
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.files.map(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.refuses.load(Ordering::Relaxed) && from.extension().is_some_and(|kind| kind == "log") {
            return Err(io::Error::other("refused"));
        }
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.files.sync_directory(directory)
    }

    fn disk_space(&self, directory: &Path) -> io::Result<DiskSpace> {
        self.files.disk_space(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        self.files.lock(path)
    }
}

#[test]
fn a_release_that_fails_half_way_is_tried_again_and_nothing_is_missed() {
    let simulation = Simulation::new(7);
    let platform = simulation.platform();
    let files = Arc::new(Refusing { files: platform.files.clone(), refuses: AtomicBool::new(false) });
    let platform = Platform { files: files.clone(), ..platform };
    let store = Arc::new(Store::open(platform, options(1 << 30)).unwrap());
    let mut cursor = LogCursor::open(&store, "a", None).unwrap();
    for round in 0..6 {
        (round * 100..(round + 1) * 100).for_each(|number| write(&store, number));
        let refuses = round % 2 == 0;
        files.refuses.store(refuses, Ordering::Relaxed);
        assert_eq!(store.flush_all().is_err(), refuses, "{round}");
        if round == 2 {
            let found = read(&mut cursor, 1000);
            assert_eq!((found.numbers, found.gaps), ((0..300).collect::<Vec<_>>(), Vec::new()));
            // What is not renamed yet is given up with the rest.
            cursor.save(found.last_sequence).unwrap();
        }
    }
    assert!(store.stats().log.segments <= 2, "{:?}", store.stats().log);
    let found = read(&mut cursor, 1000);
    assert_eq!((found.numbers, found.gaps), ((300..600).collect::<Vec<_>>(), Vec::new()));
    cursor.save(found.last_sequence).unwrap();
    assert_eq!(store.log_retained_bytes(), 0);
}

#[test]
fn little_memory_is_held_for_little_that_was_read() {
    let store = open(&Simulation::new(8), 1 << 30);
    let mut cursor = LogCursor::open(&store, "a", None).unwrap();
    write(&store, 1);
    let LogRead::Records(batch) = cursor.read().unwrap() else { panic!("records expected") };
    let held_bytes = store.memory().queries().used_bytes();
    assert!((1..100_000).contains(&held_bytes), "{held_bytes}");
    drop(batch);
    assert_eq!(store.memory().queries().used_bytes(), 0);
}

/// Records that were read before stand in its way in a segment: they are no part of what it holds, and no reason to give up.
#[test]
fn one_that_begins_far_into_a_segment_passes_what_is_before() {
    const RECORDS: i64 = 12_000;
    for memory_bytes_max in [8 << 20, 1 << 30] {
        let simulation = Simulation::new(9);
        let options = StoreOptions { log_segment_bytes: 8 << 20, memory_bytes_max, ..options(1 << 30) };
        let store = Arc::new(Store::open(simulation.platform(), options).unwrap());
        (0..RECORDS).for_each(|number| write(&store, number));
        let sequence = store.durable_sequence();
        let mut cursor = LogCursor::open_after(&store, Some("default"), sequence);
        assert_eq!(read(&mut cursor, 10).numbers, Vec::<i64>::new(), "it begins at the end");
        write(&store, RECORDS);
        let LogRead::Records(batch) = cursor.read().unwrap() else { panic!("records expected") };
        let first = batch.records.iter().flat_map(|record| &record.samples).find_map(number);
        let held_bytes = store.memory().queries().used_bytes();
        assert_eq!((first, batch.last_sequence), (Some(RECORDS), sequence + 1));
        assert!((1..200_000).contains(&held_bytes), "{held_bytes}");
        let log_bytes = store.stats().log.bytes;
        assert!(log_bytes > 1 << 20, "{log_bytes}: too few to be of several windows");
    }
}

#[test]
fn one_that_falls_behind_is_told_which_time_it_missed() {
    let simulation = Simulation::new(2);
    let bytes_max = 3 * SEGMENT_BYTES as u64;
    let store = open(&simulation, bytes_max);
    let mut cursor = LogCursor::open(&store, "a", None).unwrap();
    for number in 0..1000 {
        write(&store, number);
        if number % 40 == 0 {
            store.flush_all().unwrap();
        }
    }
    store.flush_all().unwrap();
    assert!((1..=bytes_max).contains(&store.log_retained_bytes()), "{}", store.log_retained_bytes());
    drop(store);
    let found = read(&mut cursor, 1000);
    let [gap] = found.gaps[..] else { panic!("{:?}", found.gaps) };
    let first = found.numbers[0];
    assert_eq!(found.numbers, (first..1000).collect::<Vec<_>>());
    assert_eq!((gap.range.start_ns, gap.range.end_ns), (0, first - 1), "{gap:?}");
    drop(cursor);
    simulation.crash();

    // The gap is remembered until it is done with.
    let store = open(&simulation, bytes_max);
    let mut cursor = LogCursor::open(&store, "a", None).unwrap();
    let LogRead::Gap(again) = cursor.read().unwrap() else { panic!("a gap expected") };
    assert_eq!(again, gap);
    let content = read_all(&store, TimeRange::new(gap.range.start_ns, gap.range.end_ns));
    let times: BTreeSet<i64> = content.values().flat_map(|samples| samples.keys().copied()).collect();
    assert_eq!(times, (0..first).collect());
    cursor.save(gap.sequences.1).unwrap();
    drop(cursor);
    let mut cursor = LogCursor::open(&store, "a", None).unwrap();
    assert_eq!(read(&mut cursor, 1000).gaps, []);
}

/// A backup has no log.
#[test]
fn one_of_a_restored_folder_is_told_the_times_of_what_it_had_not_read() {
    let simulation = Simulation::new(4);
    let store = open(&simulation, 1 << 30);
    let target = simulation.platform().objects.open("sim://backups", &ObjectOptions::default()).unwrap();
    let mut done = LogCursor::open(&store, "done", None).unwrap();
    let mut behind = LogCursor::open(&store, "behind", None).unwrap();
    (500..600).for_each(|number| write(&store, number));
    let read_through = read(&mut behind, 1000).last_sequence;
    behind.save(read_through).unwrap();
    (0..100).for_each(|number| write(&store, number));
    let read_all_through = read(&mut done, 1000).last_sequence;
    done.save(read_all_through).unwrap();
    store.backup(&*target, &mut |_| {}).unwrap();
    drop((done, behind, store));
    restore(&*target, None, &simulation.platform(), Path::new("again"), &mut |_| {}).unwrap();

    let options = StoreOptions { directory: "again".into(), ..options(1 << 30) };
    let store = Arc::new(Store::open(simulation.platform(), options).unwrap());
    let [mut done, mut behind] = ["done", "behind"].map(|name| LogCursor::open(&store, name, None).unwrap());
    write(&store, 1_000);
    let found = read(&mut behind, 1000);
    let [gap] = found.gaps[..] else { panic!("{:?}", found.gaps) };
    assert_eq!((gap.sequences.0, found.numbers), (read_through + 1, vec![1_000]));
    // Late rows are among them, and it is known which times they have.
    assert_eq!(gap.range.start_ns, 0);
    assert!((99..600).contains(&gap.range.end_ns), "{gap:?}");
    let found = read(&mut done, 1000);
    assert_eq!((found.gaps, found.numbers), (Vec::new(), vec![1_000]));
}

#[test]
fn a_damaged_segment_is_a_gap_and_what_follows_is_read() {
    let simulation = Simulation::new(3);
    let store = open(&simulation, 1 << 30);
    let mut cursor = LogCursor::open(&store, "a", None).unwrap();
    for number in 0..300 {
        write(&store, number);
        if number % 40 == 0 {
            store.flush_all().unwrap();
        }
    }
    store.flush_all().unwrap();
    let files = simulation.platform().files;
    let names = files.list(Path::new("data/log")).unwrap();
    let retained: Vec<&String> = names.iter().filter(|name| name.ends_with(".retained")).collect();
    let path = Path::new("data/log").join(retained[2]);
    let file = files.open(&path, OpenMode::Write).unwrap();
    file.write_all_at(b"damage", 4096 + 40).unwrap();
    let found = read(&mut cursor, 1000);
    assert_eq!(found.gaps.len(), 1);
    let range = found.gaps[0].range;
    let numbers: BTreeSet<i64> = found.numbers.iter().copied().collect();
    let missing: Vec<i64> = (0..300).filter(|number| !numbers.contains(number)).collect();
    assert!(!missing.is_empty() && missing.iter().all(|number| range.contains(*number)), "{missing:?} {range:?}");
    assert!(found.numbers.is_sorted() && numbers.contains(&299));
}

/// A record that memory never has room for comes by its time.
#[test]
fn a_record_that_is_too_large_for_memory_is_a_gap() {
    let simulation = Simulation::new(5);
    let small = StoreOptions { memory_bytes_max: 4 << 20, ..options(1 << 30) };
    let store = Arc::new(Store::open(simulation.platform(), small).unwrap());
    let mut cursor = LogCursor::open(&store, "a", None).unwrap();
    write(&store, 1);
    assert_eq!(read(&mut cursor, 10).numbers, [1]);
    let mut bits = 1u64;
    let mut random = || {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        f64::from_bits(bits >> 2)
    };
    let row =
        |time: i64, value| Row { host: "h".to_owned(), timestamp_ns: time, fields: vec![("f".to_owned(), value)] };
    let rows: Vec<Row> = (1000..11_000).map(|time| row(time, random())).collect();
    store.write("default", &batch(&rows)).unwrap();
    write(&store, 2);
    let found = read(&mut cursor, 10);
    let [gap] = found.gaps[..] else { panic!("{:?}", found.gaps) };
    assert!(gap.range.contains(1000) && gap.range.contains(10_999), "{gap:?}");
    assert!(found.numbers.contains(&2) || gap.range.contains(2), "{:?} {gap:?}", found.numbers);
    assert!(matches!(cursor.read().unwrap(), LogRead::End));
    assert_eq!(store.memory().queries().used_bytes(), 0);
}

struct Counting(AtomicU64);

impl CommitListener for Counting {
    fn committed(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn listeners_are_called_as_long_as_they_are_there() {
    let simulation = Simulation::new(4);
    let store = open(&simulation, 0);
    let counting = Arc::new(Counting(AtomicU64::new(0)));
    let weak: Weak<Counting> = Arc::downgrade(&counting);
    store.listen_to_commits(weak);
    write(&store, 1);
    let called = counting.0.load(Ordering::Relaxed);
    assert!(called > 0);
    drop(counting);
    write(&store, 2);
}

/// Whatever happens in whatever order: every acknowledged row is delivered, or is in the time of a gap.
#[test]
fn nothing_acknowledged_is_missed() {
    for seed in 0..60 {
        let simulation = Simulation::new(seed);
        let bytes_max = [1 << 30, 2 * SEGMENT_BYTES as u64][seed as usize % 2];
        let mut store = open(&simulation, bytes_max);
        let mut cursor = LogCursor::open(&store, "a", None).unwrap();
        let (mut next, mut delivered, mut gaps) = (0, Vec::new(), Vec::new());
        for _ in 0..120 {
            match simulation.below(10) {
                0..5 => {
                    for _ in 0..simulation.below(40) {
                        write(&store, next);
                        next += 1;
                    }
                }
                5 => store.flush_all().unwrap(),
                6 => {
                    drop((cursor, store));
                    simulation.crash();
                    store = open(&simulation, bytes_max);
                    cursor = LogCursor::open(&store, "a", None).unwrap();
                }
                _ => {
                    let found = read(&mut cursor, 1 + simulation.below(3) as usize);
                    delivered.push(found.numbers);
                    gaps.extend(found.gaps);
                    if simulation.below(2) == 0 && found.last_sequence > 0 {
                        cursor.save(found.last_sequence).unwrap();
                    }
                }
            }
        }
        let found = read(&mut cursor, usize::MAX);
        delivered.push(found.numbers);
        gaps.extend(found.gaps);
        assert!(delivered.iter().all(|numbers| numbers.is_sorted()), "seed {seed}");
        let all: BTreeSet<i64> = delivered.into_iter().flatten().collect();
        let missed = |number: &i64| !all.contains(number) && !gaps.iter().any(|gap| gap.range.contains(*number));
        assert_eq!((0..next).filter(missed).collect::<Vec<_>>(), Vec::<i64>::new(), "seed {seed}: {gaps:?}");
    }
}

/// How many samples each row has, by its time and tags, as a cursor reads them.
fn samples_of_rows(mut cursor: LogCursor) -> (BTreeMap<(i64, Labels), u32>, usize) {
    let (mut rows, mut read) = (BTreeMap::new(), 0);
    while let LogRead::Records(batch) = cursor.read().unwrap() {
        for record in &batch.records {
            read += record.samples.len();
            for (number, sample) in record.samples.iter().enumerate() {
                let samples = record.samples_of_rows.get(number).copied().unwrap_or(1);
                *rows.entry((sample.timestamp_ns, sample.series.tags.clone())).or_default() += samples;
            }
        }
    }
    (rows, read)
}

#[test]
fn a_cursor_of_rows_reads_each_row_and_tags_that_columns_have() {
    let simulation = Simulation::new(1);
    let store = open(&simulation, 1 << 30);
    (1..100).for_each(|number| write(&store, number));
    let labels = |name: &str, value: &str| Labels::from_pairs([(name, value)]).unwrap();
    let column = |name: &str, labels: Labels| (Field { name: name.to_owned(), value_type: ValueType::F64 }, labels);
    let groups = [labels("host", "x"), labels("host", "y")];
    let columns = [column("f", Labels::empty()), column("f", labels("core", "1")), column("g", labels("core", "1"))];
    for columns in [&columns[..1], &columns[..]] {
        let (tokens, layout) = store.register_groups("default", "wide", &groups, columns).unwrap();
        let mut appender = store.appender();
        for (number, token) in (1_000..).zip(tokens) {
            appender.row(token, &layout, number * columns.len() as i64, &vec![0; columns.len()]).unwrap();
        }
        let sequenced = appender.append(None).unwrap();
        store.commit(&sequenced).unwrap();
    }
    let cursor = |database| LogCursor::open_after(&store, database, 0);
    let (rows, read) = samples_of_rows(cursor(None).of_rows());
    let (expected, all) = samples_of_rows(cursor(None));
    assert_eq!(rows, expected);
    assert_eq!(rows.len(), 99 + 2 + 4);
    assert_eq!((read, all), (99 + 2 + 2 * 3, 2 * 99 + 2 + 2 * 3));
    assert!(samples_of_rows(cursor(Some("other")).of_rows()).0.is_empty());
}
