//! Openings for reading only, one after another: what the next one takes over is what an opening from the beginning finds, and it reads little more
//! than what was written since.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use model::TimeRange;
use platform::sim::Simulation;
use platform::{DiskSpace, File, Files, LockError, Mapped, OpenMode, Platform};
use support::{Content, Row, batch, read_all};
use thalweg_store::{
    DatabasePolicy, EpochBatch, EpochCell, EpochColumn, EpochNames, EpochRows, NamesRead, RegularDefinition, Store,
    StoreOptions,
};

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const REGULAR: &str = "dns";

fn options() -> StoreOptions {
    StoreOptions {
        head_bytes_max: 32 << 10,
        log_segment_bytes: 64 << 10,
        log_bytes_max: 256 << 10,
        partition_ns: MINUTE_NS,
        level0_parts_max: 2,
        trash_age_ms_max: 0,
        ..StoreOptions::new("/data")
    }
}

fn write_epoch(store: &Store, epoch: i64, cells: &[(String, i64)]) {
    let names: EpochNames = cells.iter().map(|(name, _)| name.as_str()).collect();
    let values = EpochColumn::Int(cells.iter().map(|(_, value)| *value).collect());
    store.write_epoch(REGULAR, &EpochBatch { time_ns: epoch * MINUTE_NS, names: &names, values: &values }).unwrap();
}

/// A name: when it is valid, and all of its cells.
type Named = (Vec<(i64, Option<i64>)>, Vec<(i64, EpochCell)>);

/// Everything that a store shows.
#[derive(Debug, PartialEq)]
struct Shown {
    rows: Content,
    names: BTreeMap<String, Named>,
    documents: Vec<(String, Vec<u8>)>,
    trimmed: Vec<(String, i64)>,
}

fn shown(store: &Store) -> Shown {
    let numbers = store.name_numbers(REGULAR, &TimeRange::ALL, &|_| true).unwrap();
    let numbers: Vec<u32> = numbers.into_iter().map(|(number, _)| number).collect();
    let read = NamesRead { names: &numbers, range: TimeRange::ALL, rows: EpochRows::All };
    let cells = |rows: thalweg_store::NameRows| (rows.name, rows.times_ns.into_iter().zip(rows.cells).collect());
    let cells: BTreeMap<String, Vec<(i64, EpochCell)>> =
        store.read_names(REGULAR, &read).unwrap().into_iter().map(cells).collect();
    let mut valid: BTreeMap<String, Vec<(i64, Option<i64>)>> = BTreeMap::new();
    for validity in store.name_validity(REGULAR, &numbers).unwrap() {
        valid.entry(validity.name).or_default().push((validity.from_ns, validity.to_ns));
    }
    let names = cells.into_iter().map(|(name, cells)| {
        let valid = valid.remove(&name).unwrap_or_default();
        (name, (valid, cells))
    });
    let documents = store.documents("test").into_iter().map(|(name, bytes)| (name, bytes.to_vec()));
    Shown {
        rows: read_all(store, TimeRange::ALL),
        names: names.collect(),
        documents: documents.collect(),
        trimmed: store.trimmed_tables("default"),
    }
}

fn read_only(platform: &Platform, previous: Option<&Store>) -> Store {
    Store::open_read_only_after(platform, &options(), previous).unwrap()
}

/// Something that happens to a folder. Returns whether it may be that epochs are past keeping from now on.
fn change(simulation: &Simulation, store: &mut Option<Store>, step: i64) -> bool {
    let below = |bound: u64| simulation.below(bound) as i64;
    let writer = store.as_ref().unwrap();
    simulation.advance_ns(MINUTE_NS);
    let epoch = simulation.honest_ns() / MINUTE_NS;
    match below(16) {
        0..4 => {
            let late = if below(3) == 0 { below(40) } else { 0 };
            let count = if below(10) == 0 { 1_500 } else { 1 + below(5) };
            let first = below(2_000);
            let cells: Vec<(String, i64)> =
                (0..count).map(|place| (format!("n{}", (first + place * 7) % 2_500), step)).collect();
            write_epoch(writer, epoch - late, &cells);
        }
        4 => {
            let names: Vec<String> = writer
                .name_numbers(REGULAR, &TimeRange::ALL, &|_| true)
                .unwrap()
                .into_iter()
                .take(1)
                .flat_map(|(number, _)| writer.name_validity(REGULAR, &[number]).unwrap())
                .map(|valid| valid.name)
                .take(1)
                .collect();
            let _ = writer.remove_names(REGULAR, &names.iter().map(String::as_str).collect(), epoch * MINUTE_NS);
        }
        5..9 => {
            let row = |place: i64| Row {
                host: format!("h{}", below(4)),
                timestamp_ns: (step * 10 - below(200) + place) * SECOND_NS,
                fields: vec![("a".to_owned(), (step * 10 + place) as f64)],
            };
            let rows: Vec<Row> = (0..=below(20)).map(row).collect();
            writer.write("default", &batch(&rows)).unwrap();
        }
        9 => writer.flush_all().unwrap(),
        10 | 11 => while writer.maintain().unwrap() {},
        12 => writer.put_document("test", &format!("d{}", below(3)), &vec![step as u8; 3_000]).unwrap(),
        13 => {
            let matchers = index::compile(&[model::Matcher::new("host", model::MatchOp::Equal, "h1")]).unwrap();
            writer.trim_series(("default", "m"), &[matchers], step * 5 * SECOND_NS, &mut |_| Ok(())).unwrap();
        }
        14 => {
            // Files of epochs go.
            let retention_ns = if below(2) == 0 { 0 } else { 60 * MINUTE_NS };
            writer.set_policy(REGULAR, &DatabasePolicy { retention_ns, ..DatabasePolicy::default() }).unwrap();
            return true;
        }
        // The manifest is written anew, and files of epochs are ended.
        _ => {
            drop(store.take());
            *store = Some(Store::open(simulation.platform(), options()).unwrap());
        }
    }
    false
}

#[test]
fn a_refresh_shows_what_an_opening_from_the_beginning_shows() {
    for seed in 0..6 {
        let simulation = Simulation::new(seed);
        let mut writer = Some(Store::open(simulation.platform(), options()).unwrap());
        writer.as_ref().unwrap().define_regular(REGULAR, &RegularDefinition::new(MINUTE_NS)).unwrap();
        let platform = simulation.platform();
        let (mut reader, mut has_retention) = (read_only(&platform, None), false);
        for step in 0..120 {
            has_retention |= change(&simulation, &mut writer, step);
            if simulation.below(3) > 0 {
                continue;
            }
            let before = shown(&reader);
            let next = read_only(&platform, Some(&reader));
            let expected = shown(&read_only(&platform, None));
            assert!(shown(&next) == expected, "seed {seed}, step {step}");
            // A reader goes by the time that was saved, so that retention may take a little less from it.
            let written = shown(writer.as_ref().unwrap());
            let written = if has_retention { Shown { names: expected.names.clone(), ..written } } else { written };
            assert!(expected == written, "seed {seed}, step {step}: the writer");
            // What is open stays as it was.
            assert!(shown(&reader) == before, "seed {seed}, step {step}: the opening before changed");
            reader = next;
        }
    }
}

/// Files that count the bytes which are read of them, by the last part of their names.
struct CountedFiles {
    below: Arc<dyn Files>,
    read: Mutex<BTreeMap<PathBuf, Arc<AtomicU64>>>,
}

struct CountedFile {
    below: Arc<dyn File>,
    read: Arc<AtomicU64>,
}

impl CountedFiles {
    /// Bytes that were read since this was asked last, of the manifest and its twin, and of epochs.
    fn take(&self) -> (u64, u64) {
        let mut taken = (0, 0);
        for (path, read) in self.read.lock().unwrap().iter() {
            let bytes = read.swap(0, Ordering::Relaxed);
            if path.starts_with("/data/epochs") {
                taken.1 += bytes;
            } else if path.to_string_lossy().contains("MANIFEST") {
                taken.0 += bytes;
            }
        }
        taken
    }
}

impl File for CountedFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.below.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.below.write_all_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.below.sync_data()
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.below.size_bytes()
    }
}

impl Files for CountedFiles {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.below.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.below.list(directory)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let read = self.read.lock().unwrap().entry(path.to_owned()).or_default().clone();
        Ok(Arc::new(CountedFile { below: self.below.open(path, mode)?, read }))
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.below.map(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below.remove(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.below.sync_directory(directory)
    }

    fn disk_space(&self, directory: &Path) -> io::Result<DiskSpace> {
        self.below.disk_space(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        self.below.lock(path)
    }
}

/// A folder with many names, epochs and documents.
fn large_folder(simulation: &Simulation) -> Store {
    let store = Store::open(simulation.platform(), options()).unwrap();
    store.define_regular(REGULAR, &RegularDefinition::new(MINUTE_NS)).unwrap();
    let cells: Vec<(String, i64)> = (0..5_000).map(|number| (format!("name-{number}"), number)).collect();
    write_epoch(&store, 1, &cells);
    (2..500).for_each(|epoch| write_epoch(&store, epoch, &cells[..3]));
    (0..40).for_each(|number| store.put_document("test", &number.to_string(), &[7; 2_000]).unwrap());
    store
}

#[test]
fn a_refresh_reads_what_was_appended() {
    let simulation = Simulation::new(31);
    let writer = large_folder(&simulation);
    let files = Arc::new(CountedFiles { below: simulation.platform().files, read: Mutex::default() });
    let platform = Platform { files: files.clone(), ..simulation.platform() };
    let first = read_only(&platform, None);
    let (manifest_bytes, epochs_bytes) = files.take();
    assert!(manifest_bytes > 80_000 && epochs_bytes > 50_000, "{manifest_bytes} {epochs_bytes}");
    let second = read_only(&platform, Some(&first));
    let (manifest_bytes, epochs_bytes) = files.take();
    assert!(manifest_bytes < 2_000 && epochs_bytes < 1_000, "{manifest_bytes} {epochs_bytes}");
    write_epoch(&writer, 500, &[("name-7".to_owned(), 1), ("new".to_owned(), 2)]);
    writer.put_document("test", "new", &[1; 100]).unwrap();
    let third = read_only(&platform, Some(&second));
    let (manifest_bytes, epochs_bytes) = files.take();
    assert!(manifest_bytes < 3_000 && epochs_bytes < 2_000, "{manifest_bytes} {epochs_bytes}");
    assert!(shown(&third) == shown(&writer));
    assert_eq!((shown(&second).documents.len(), shown(&third).documents.len()), (40, 41));
    // Other copies of the files, and another folder.
    drop(writer);
    let reopened = Store::open(simulation.platform(), options()).unwrap();
    let fourth = read_only(&platform, Some(&third));
    assert!(files.take().0 > 80_000, "a manifest that was written anew is read whole");
    assert!(shown(&fourth) == shown(&reopened));
}

#[test]
fn files_that_were_put_back_or_cut_are_read_from_the_beginning() {
    let simulation = Simulation::new(32);
    let writer = large_folder(&simulation);
    drop(writer);
    let files = simulation.files().into_iter().filter(|path| path.starts_with("/data"));
    let saved: Vec<(PathBuf, Vec<u8>)> = files.map(|path| (path.clone(), simulation.read(&path).unwrap())).collect();
    let put_back = || {
        for path in simulation.files().iter().filter(|path| path.starts_with("/data")) {
            simulation.spoil(path, None).unwrap();
        }
        saved.iter().for_each(|(path, bytes)| simulation.put_back(path, bytes.clone()));
    };
    let platform = simulation.platform();
    let before = shown(&read_only(&platform, None));
    // The same numbers of openings, records and files, and other values.
    for value in [100, 200] {
        let writer = Store::open(simulation.platform(), options()).unwrap();
        let reader = read_only(&platform, None);
        write_epoch(&writer, 600, &[(format!("made-{value}"), value), ("name-1".to_owned(), value)]);
        writer.put_document("test", "made", &[value as u8; 50]).unwrap();
        let ahead = read_only(&platform, Some(&reader));
        assert!(shown(&ahead) == shown(&writer));
        drop(writer);
        put_back();
        assert!(shown(&read_only(&platform, Some(&ahead))) == before, "what was put back counts");
        let other = Store::open(simulation.platform(), options()).unwrap();
        write_epoch(&other, 600, &[(format!("else-{value}"), value + 1), ("name-1".to_owned(), value + 1)]);
        other.put_document("test", "else", &[value as u8; 50]).unwrap();
        assert!(shown(&read_only(&platform, Some(&ahead))) == shown(&other), "as many records, and others");
        drop(other);
        put_back();
    }
    // A file that is shorter than before.
    let reader = read_only(&platform, None);
    let epochs = saved.iter().filter(|(path, _)| path.starts_with("/data/epochs"));
    for (path, bytes) in epochs {
        simulation.spoil(path, Some(bytes[..bytes.len() - 200].to_vec())).unwrap();
        let [found, again] = [None, Some(&reader)].map(|previous| {
            let opened = Store::open_read_only_after(&platform, &options(), previous);
            opened.map(|store| shown(&store)).map_err(|error| error.to_string())
        });
        assert!(found == again, "{}: {:?} {:?}", path.display(), found.err(), again.err());
        assert!(found.as_ref().is_ok_and(|found| *found != before) || found.is_err());
        simulation.spoil(path, Some(bytes.clone())).unwrap();
    }
    // One of the manifest's files, whose twin has what is missing.
    for name in ["/data/MANIFEST", "/data/MANIFEST.twin"] {
        let bytes = simulation.read(Path::new(name)).unwrap();
        simulation.spoil(Path::new(name), Some(bytes[..bytes.len() / 2].to_vec())).unwrap();
        assert!(shown(&read_only(&platform, Some(&reader))) == before);
        simulation.spoil(Path::new(name), Some(bytes)).unwrap();
    }
}
