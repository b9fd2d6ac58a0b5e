//! Folders that are open for reading only: one process writes, others read, and what they read is whole.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use model::{MatchOp, Matcher};
use platform::sim::Simulation;
use platform::{DiskSpace, File, Files, LockError, Mapped, OpenMode, Platform};
use query::Budget;
use sql::ClientContext;
use thalweg_db::{Db, DbOptions, StoreError, WriteError};

/// Names the folder to a process that only reads.
const READS: &str = "THALWEG_TEST_READS";

/// How often each reader opens the folder.
const ROUNDS: usize = 25;

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("thalweg-read-only-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn options(folder: &Path) -> DbOptions {
    let mut options = DbOptions::new(folder.join("data"));
    // Flushes and merges all the time.
    options.store.head_bytes_max = 64 << 10;
    options.store.log_segment_bytes = 256 << 10;
    options.store.log_bytes_max = 512 << 10;
    options.store.level0_parts_max = 2;
    options
}

fn values(db: &Db) -> Vec<f64> {
    let matchers = [Matcher::new("__name__", MatchOp::Equal, "n_v")];
    let series = db.samples("default", &matchers, (0, i64::MAX / 1_000_000), &Budget::new(u64::MAX)).unwrap();
    series.into_iter().flat_map(|series| series.values).collect()
}

/// Whether a write is refused because the folder is only read.
fn is_refused(db: &Db, database: &str) -> bool {
    match db.write_lines(database, b"n v=-1 1") {
        Err(WriteError::Invalid(message)) => message.contains("open for reading only"),
        _ => false,
    }
}

/// How many rows were acknowledged.
fn acknowledged(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("acknowledged")).unwrap().parse().unwrap()
}

/// Opens the folder again and again: each time everything that was acknowledged before is there, and what is there has no holes.
fn read(folder: &Path) {
    let (mut before, mut previous) = (0, None::<Db>);
    for round in 0..ROUNDS {
        let least = acknowledged(folder);
        let db = match previous.take().filter(|_| round % 5 > 0) {
            Some(previous) => previous.open_read_only_again(Platform::real(), options(folder)).unwrap(),
            None => Db::open_read_only(Platform::real(), options(folder)).unwrap(),
        };
        let found = values(&db);
        let expected: Vec<f64> = (0..found.len()).map(|number| number as f64).collect();
        assert!(found == expected, "round {round}: {} rows, and not in order", found.len());
        assert!(found.len() >= least.max(before), "round {round}: {} rows, {least} were acknowledged", found.len());
        // The writer goes on: what this database has stays as it is.
        assert_eq!(values(&db).len(), found.len());
        assert!(is_refused(&db, "default"));
        before = found.len();
        previous = Some(db);
    }
    previous.unwrap().close().unwrap();
}

#[test]
fn two_processes_read_while_one_writes() {
    if let Some(folder) = std::env::var_os(READS) {
        return read(Path::new(&folder));
    }
    let folder = folder("processes");
    let acknowledge = |rows: usize| {
        std::fs::write(folder.join("next"), rows.to_string()).unwrap();
        std::fs::rename(folder.join("next"), folder.join("acknowledged")).unwrap();
    };
    let db = Db::open(Platform::real(), options(&folder)).unwrap();
    let mut rows = 0;
    let mut write = |count: usize| {
        let lines: Vec<String> =
            (rows..rows + count).map(|row| format!("n v={row} {}", row as i64 * 1_000_000)).collect();
        let lines = lines.join("\n");
        db.write_lines("default", lines.as_bytes()).unwrap();
        rows += count;
        acknowledge(rows);
        rows
    };
    write(10);
    let start = || -> Child {
        let mut reader = Command::new(std::env::current_exe().unwrap());
        reader.args(["--exact", "two_processes_read_while_one_writes", "--nocapture"]).env(READS, &folder);
        reader.spawn().unwrap()
    };
    let mut readers = [start(), start()];
    let mut ended = [None, None];
    while ended.iter().any(Option::is_none) {
        // Fewer rows a record as there are more: all are read each time.
        let written = write(if acknowledged(&folder) < 200_000 { 100 } else { 1 });
        if written % 5_000 < 100 {
            db.flush().unwrap();
        }
        for (reader, ended) in readers.iter_mut().zip(&mut ended) {
            *ended = ended.or_else(|| reader.try_wait().unwrap());
        }
    }
    assert!(ended.iter().all(|status| status.is_some_and(|status| status.success())), "{ended:?}");
    let stats = db.stats();
    db.close().unwrap();
    drop(db);
    assert!(rows > 1_000, "{rows} rows while {stats:?}");
    // Nothing of it was theirs to change.
    let again = Db::open(Platform::real(), options(&folder)).unwrap();
    assert_eq!(values(&again).len(), rows);
    drop(again);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Files with what is in them.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
    found
}

#[test]
fn nothing_of_the_folder_is_changed() {
    let folder = folder("unchanged");
    let data = folder.join("data");
    let missing = Db::open_read_only(Platform::real(), options(&folder));
    assert!(missing.err().unwrap().to_string().contains("is no data folder"));
    assert!(!data.exists());
    let db = Db::open(Platform::real(), options(&folder)).unwrap();
    db.write_lines("default", b"n v=0 0\nn v=1 1000000\nt,host=a x=1 1000000").unwrap();
    db.flush().unwrap();
    db.write_lines("default", b"n v=2 2000000").unwrap();
    // As after a crash: the log has rows that no part has.
    drop(db);
    let before = contents(&data);
    let [one, other] = [0, 1].map(|_| Db::open_read_only(Platform::real(), options(&folder)).unwrap());
    for db in [&one, &other] {
        assert!(db.is_read_only());
        assert_eq!(values(db), [0.0, 1.0, 2.0]);
        let sql = |text: &str| {
            let parsed = sql::parse(text).unwrap();
            let client = ClientContext::new("default".to_owned(), db.now_ns());
            db.sql(&parsed, 0, &client, &db.budget(1_000_000))
                .map(|answer| answer.relation().unwrap_or_default().rows.len())
        };
        assert_eq!(sql("SELECT host, x FROM t").unwrap(), 1);
        for text in ["INSERT INTO t (time, x) VALUES (now(), 2)", "CREATE TABLE u (a DOUBLE PRECISION)", "DROP TABLE t"]
        {
            let refused = sql(text).unwrap_err().to_string();
            assert!(refused.contains("open for reading only"), "{text}: {refused}");
        }
        let matchers = vec![Matcher::new("__name__", MatchOp::Equal, "n_v")];
        let deleted = db.delete("default", &[matchers], &model::TimeRange::ALL);
        assert!(matches!(deleted, Err(StoreError::ReadOnly)), "{deleted:?}");
        assert!(is_refused(db, "default") && is_refused(db, "new"));
        assert!(db.flush().is_err() && db.snapshot(&mut |_| {}).is_err());
        assert_eq!(values(db), [0.0, 1.0, 2.0]);
    }
    one.close().unwrap();
    drop((one, other));
    let after = contents(&data);
    let changed: Vec<_> = after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes)).collect();
    assert!(changed.is_empty(), "{:?}", changed.iter().map(|(path, _)| path).collect::<Vec<_>>());
    assert_eq!(before.len(), after.len());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Files that note which of them are read.
struct NotedFiles {
    below: Arc<dyn Files>,
    read: Mutex<BTreeSet<PathBuf>>,
}

impl NotedFiles {
    fn note(&self, path: &Path) {
        self.read.lock().unwrap().insert(path.to_owned());
    }

    /// The files of a folder that were read since they were asked for last.
    fn take(&self) -> [BTreeSet<PathBuf>; 2] {
        let read = std::mem::take(&mut *self.read.lock().unwrap());
        ["/data/parts", "/data/index"]
            .map(|folder| read.iter().filter(|path| path.parent() == Some(Path::new(folder))).cloned().collect())
    }
}

impl Files for NotedFiles {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.below.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.below.list(directory)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.note(path);
        self.below.open(path, mode)
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.note(path);
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

#[test]
fn what_is_open_is_not_read_again() {
    let simulation = Simulation::new(5);
    let options = || DbOptions::new("/data");
    let writer = Db::open(simulation.platform(), options()).unwrap();
    let mut rows = 0;
    let mut write = || {
        // New series each time: their groups are a new segment.
        let line = format!("n v={rows} {}\nt{rows},host=a x=1 1000000", rows * 1_000_000);
        writer.write_lines("default", line.as_bytes()).unwrap();
        writer.flush().unwrap();
        rows += 1;
    };
    (0..3).for_each(|_| write());
    let files = Arc::new(NotedFiles { below: simulation.platform().files, read: Mutex::default() });
    let platform = || Platform { files: files.clone(), ..simulation.platform() };
    let first = Db::open_read_only(platform(), options()).unwrap();
    let [parts, segments] = files.take();
    assert!(parts.len() >= 3 && !segments.is_empty(), "{parts:?} {segments:?}");
    let second = first.open_read_only_again(platform(), options()).unwrap();
    let [parts_again, segments_again] = files.take();
    assert_eq!(parts_again, BTreeSet::new());
    // Segments of groups are kept, lists of names are not.
    let lists = segments_again;
    assert!(lists.len() < segments.len() && lists.is_subset(&segments), "{lists:?} of {segments:?}");
    drop(first);
    assert_eq!(values(&second), [0.0, 1.0, 2.0]);
    write();
    let third = second.open_read_only_again(platform(), options()).unwrap();
    let [new_parts, _] = files.take();
    assert!(!new_parts.is_empty() && new_parts.is_disjoint(&parts), "{new_parts:?} beside {parts:?}");
    assert_eq!(values(&third), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(values(&second), [0.0, 1.0, 2.0], "what is open stays as it was");
    // Another folder of the same path has other files of the same names.
    writer.close().unwrap();
    let elsewhere = Simulation::new(6);
    let other = Db::open(elsewhere.platform(), options()).unwrap();
    other.write_lines("default", b"n v=7 1000000").unwrap();
    other.flush().unwrap();
    let fourth = third.open_read_only_again(elsewhere.platform(), options()).unwrap();
    assert_eq!(values(&fourth), [7.0]);
}
