//! Containers on a simulated machine: files inside are held against a model, the power fails at any write, and damage is told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::sim::Simulation;
use crate::{read_file, write_file};

const PATH: &str = "db.tsdb";
const SMALL: ContainerShape = ContainerShape { checkpoint_blocks: 1, journal_blocks: 2 };

fn one_file(simulation: &Simulation) -> Platform {
    simulation.platform().with_one_file(Path::new(PATH), SMALL)
}

fn inner(name: &str) -> PathBuf {
    Path::new(PATH).join(name)
}

/// Files whose writes and syncs fail once so many were made: the power is about to go.
struct Failing {
    files: Arc<dyn Files>,
    left: Arc<AtomicI64>,
}

struct FailingFile {
    file: Arc<dyn File>,
    left: Arc<AtomicI64>,
}

impl FailingFile {
    fn count(&self) -> io::Result<()> {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 0 { Err(io::Error::other("the power is gone")) } else { Ok(()) }
    }
}

impl File for FailingFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.count()?;
        self.file.write_all_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.count()?;
        self.file.sync_data()
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.file.size_bytes()
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.count()?;
        self.file.set_size(bytes)
    }
}

impl Files for Failing {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.files.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.files.list(directory)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(FailingFile { file: self.files.open(path, mode)?, left: self.left.clone() }))
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.files.map(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
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

    fn lock_file(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        self.files.lock_file(path)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write {
        name: usize,
        offset: u64,
        bytes: usize,
        is_durable: bool,
    },
    Sync(usize),
    SyncFolder,
    Rename(usize, usize),
    Remove(usize),
    /// Keeps a handle of the file, and a map of it, until the next of these.
    Hold(usize),
    Reopen,
}

const NAMES: [&str; 4] = ["MANIFEST", "log/1", "log/2", "parts/a/b"];

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let offset = prop_oneof![8 => 0_u64..9000, 8 => Just(0), 8 => 0_u64..40_000, 1 => Just(1_200_000)];
    let bytes = prop_oneof![1_usize..300, 1_usize..20_000, Just(4096)];
    prop_oneof![
        6 => (name.clone(), offset, bytes, any::<bool>())
            .prop_map(|(name, offset, bytes, is_durable)| Step::Write { name, offset, bytes, is_durable }),
        3 => name.clone().prop_map(Step::Sync),
        2 => Just(Step::SyncFolder),
        2 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => name.clone().prop_map(Step::Remove),
        1 => name.prop_map(Step::Hold),
        1 => Just(Step::Reopen),
    ]
}

/// What a file must hold: for each byte the synced value and those written since.
#[derive(Debug, Clone, Default)]
struct ModelFile {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Writes since the last sync: offset and bytes.
    since: Vec<(usize, Vec<u8>)>,
}

impl ModelFile {
    fn write(&mut self, offset: usize, data: &[u8]) {
        if self.now.len() < offset {
            // What is skipped is written as zeros.
            self.since.push((self.now.len(), vec![0; offset - self.now.len()]));
        }
        if self.now.len() < offset + data.len() {
            self.now.resize(offset + data.len(), 0);
        }
        self.now[offset..offset + data.len()].copy_from_slice(data);
        self.since.push((offset, data.to_vec()));
    }

    fn sync(&mut self) {
        self.synced.clone_from(&self.now);
        self.since.clear();
    }

    fn allows(&self, found: &[u8]) -> Result<(), String> {
        if found.len() < self.synced.len() || found.len() > self.now.len() {
            return Err(format!("{} bytes, of {} to {}", found.len(), self.synced.len(), self.now.len()));
        }
        let mut ever: Vec<Vec<u8>> = vec![Vec::new(); found.len()];
        for (offset, data) in &self.since {
            for (at, byte) in data.iter().enumerate() {
                if let Some(values) = ever.get_mut(offset + at) {
                    values.push(*byte);
                }
            }
        }
        for (at, byte) in found.iter().enumerate() {
            let before = self.synced.get(at).copied();
            if before != Some(*byte) && !ever[at].contains(byte) {
                return Err(format!("byte {at} is {byte}, was {before:?}, then {:?}", ever[at]));
            }
        }
        Ok(())
    }
}

/// All files by number, and the names that they had after each step since names were made durable.
#[derive(Default)]
struct Model {
    files: Vec<ModelFile>,
    names: BTreeMap<&'static str, usize>,
    history: Vec<BTreeMap<&'static str, usize>>,
}

impl Model {
    fn note(&mut self) {
        self.history.push(self.names.clone());
    }

    fn names_are_durable(&mut self) {
        self.history = vec![self.names.clone()];
    }

    fn file(&mut self, name: usize) -> Option<&mut ModelFile> {
        let number = self.names.get(NAMES[name])?;
        self.files.get_mut(*number)
    }
}

/// A handle and a map of a file, with what the map must hold for good.
struct Held {
    handle: Arc<dyn File>,
    map: Mapped,
    content: Vec<u8>,
}

struct Bench {
    simulation: Simulation,
    left: Arc<AtomicI64>,
    files: Arc<dyn Files>,
    lock: Option<Box<dyn Send + Sync>>,
    model: Model,
    held: Option<Held>,
    counter: u8,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let simulation = Simulation::new(seed);
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let mut bench = Self {
            files: simulation.platform().files,
            simulation,
            left,
            lock: None,
            model: Model::default(),
            held: None,
            counter: 0,
        };
        bench.open().unwrap();
        bench.model.names_are_durable();
        bench
    }

    fn open(&mut self) -> io::Result<()> {
        self.lock = None;
        let platform = self.simulation.platform();
        let failing = Arc::new(Failing { files: platform.files.clone(), left: self.left.clone() });
        let platform = Platform { files: failing, ..platform };
        self.files = platform.with_one_file(Path::new(PATH), SMALL).files;
        match self.files.lock(&inner("LOCK")) {
            Ok(lock) => self.lock = Some(lock),
            Err(LockError::Io(error)) => return Err(error),
            Err(LockError::Held { .. }) => panic!("nothing has it open"),
        }
        Ok(())
    }

    fn run(&mut self, step: &Step) -> io::Result<()> {
        match *step {
            Step::Write { name, offset, bytes, is_durable } => self.write(name, offset, bytes, is_durable)?,
            Step::Sync(name) => {
                if self.model.file(name).is_some() {
                    self.files.open(&inner(NAMES[name]), OpenMode::Read)?.sync_data()?;
                    if let Some(file) = self.model.file(name) {
                        file.sync();
                    }
                }
            }
            Step::SyncFolder => {
                self.files.sync_directory(Path::new(PATH))?;
                self.model.names_are_durable();
            }
            Step::Rename(from, to) => {
                let [from, to] = [NAMES[from], NAMES[to]];
                if let Some(number) = self.model.names.get(from).copied() {
                    self.files.rename(&inner(from), &inner(to))?;
                    self.model.names.remove(from);
                    self.model.names.insert(to, number);
                }
            }
            Step::Remove(name) => {
                if self.model.names.remove(NAMES[name]).is_some() {
                    self.files.remove(&inner(NAMES[name]))?;
                }
            }
            Step::Hold(name) => self.hold(name)?,
            Step::Reopen => {
                self.held = None;
                self.open()?;
            }
        }
        self.model.note();
        Ok(())
    }

    fn write(&mut self, name: usize, offset: u64, bytes: usize, is_durable: bool) -> io::Result<()> {
        self.counter = self.counter.wrapping_add(1).max(1);
        let data = vec![self.counter; bytes];
        let path = inner(NAMES[name]);
        let file = if self.model.file(name).is_some() {
            self.files.open(&path, OpenMode::Write)?
        } else {
            let file = self.files.open(&path, OpenMode::CreateNew)?;
            self.model.names.insert(NAMES[name], self.model.files.len());
            self.model.files.push(ModelFile::default());
            self.model.note();
            file
        };
        // Noted before: what fails may have happened.
        self.model.file(name).unwrap().write(offset as usize, &data);
        if is_durable {
            file.write_durable_at(&data, offset)?;
            self.model.file(name).unwrap().sync();
        } else {
            file.write_all_at(&data, offset)?;
        }
        Ok(())
    }

    fn hold(&mut self, name: usize) -> io::Result<()> {
        self.check_held();
        self.held = None;
        if let Some(content) = self.model.file(name).map(|file| file.now.clone()) {
            let path = inner(NAMES[name]);
            let (handle, map) = (self.files.open(&path, OpenMode::Read)?, self.files.map(&path)?);
            self.held = Some(Held { handle, map, content });
        }
        Ok(())
    }

    /// A file that was removed stays what it was for those who have it open.
    fn check_held(&self) {
        if let Some(Held { handle, map, content }) = &self.held {
            assert_eq!(map.bytes().len(), content.len());
            assert!(handle.size_bytes().unwrap() >= content.len() as u64);
        }
    }

    /// Files read back as they were written.
    fn check_live(&self) {
        for (name, number) in &self.model.names {
            let found = read_file(&*self.files, &inner(name), 1 << 30).unwrap();
            assert!(found == self.model.files[*number].now, "{name}");
            let mapped = self.files.map(&inner(name)).unwrap();
            assert!(mapped.bytes() == found, "{name}, mapped");
        }
        for folder in ["", "log/", "parts/"] {
            let inside = self.model.names.keys().filter_map(|name| name.strip_prefix(folder)?.split('/').next());
            let expected: std::collections::BTreeSet<&str> = inside.collect();
            assert!(self.files.list(&inner(folder)).unwrap().iter().eq(expected));
        }
    }

    /// The power went: what is there must be what was synced, and for the rest something that was written.
    fn crash(&mut self) {
        self.held = None;
        self.simulation.crash();
        self.left.store(i64::MAX, Ordering::SeqCst);
        self.lock = None;
        self.open().unwrap();
        let mut contents = BTreeMap::new();
        for name in NAMES {
            match read_file(&*self.files, &inner(name), 1 << 30) {
                Ok(content) => drop(contents.insert(name, content)),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}"),
            }
        }
        self.model.note();
        let fits = |names: &BTreeMap<&'static str, usize>| {
            if !names.keys().eq(contents.keys()) {
                return Err("other names".to_owned());
            }
            names.iter().try_for_each(|(name, number)| {
                self.model.files[*number].allows(&contents[name]).map_err(|why| format!("{name}: {why}"))
            })
        };
        let verdicts: Vec<Result<(), String>> = self.model.history.iter().map(fits).collect();
        assert!(verdicts.iter().any(Result::is_ok), "after the crash {:?}: {verdicts:?}", contents.keys());
        self.adopt(contents);
    }

    /// Goes on from what is there.
    fn adopt(&mut self, contents: BTreeMap<&'static str, Vec<u8>>) {
        self.model = Model::default();
        for (name, content) in contents {
            self.model.names.insert(name, self.model.files.len());
            self.model.files.push(ModelFile { now: content.clone(), synced: content, since: Vec::new() });
        }
        self.model.names_are_durable();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Whatever is done and wherever the power goes: what was synced is there.
    #[test]
    fn what_was_synced_is_there_after_a_crash(
        seed: u64,
        rounds in prop::collection::vec((prop::collection::vec(step(), 1..40), 0_i64..120), 1..4),
    ) {
        let mut bench = Bench::new(seed);
        for (steps, writes) in rounds {
            bench.left.store(writes, Ordering::SeqCst);
            let went = steps.iter().all(|step| {
                let done = bench.run(step);
                bench.left.load(Ordering::SeqCst) >= 0 && done.map_err(|error| panic!("{step:?}: {error}")).is_ok()
            });
            if went {
                bench.check_live();
                bench.check_held();
            }
            bench.crash();
            bench.check_live();
        }
    }

    /// Without a crash everything is there after the next opening, and no block is lost.
    #[test]
    fn what_was_written_is_there_after_closing(seed: u64, steps in prop::collection::vec(step(), 1..120)) {
        let mut bench = Bench::new(seed);
        for step in &steps {
            bench.run(step).unwrap();
        }
        bench.check_live();
        bench.held = None;
        bench.files.sync_directory(Path::new(PATH)).unwrap();
        bench.open().unwrap();
        bench.check_live();
        let file = bench.simulation.platform().files.open(Path::new(PATH), OpenMode::Read).unwrap();
        let loaded = load::load(&*file).unwrap();
        let used: u64 = loaded.directory.used().unwrap().iter().map(|run| run.blocks).sum();
        let needed: usize = bench.model.names.values().map(|number| bench.model.files[*number].now.len().div_ceil(4096)).sum();
        prop_assert_eq!(used, needed as u64);
        let end = loaded.used.last().unwrap().end();
        prop_assert!(file.size_bytes().unwrap() <= (end + 16) * 4096, "the file is cut where nothing is in use");
    }

    /// A flipped bit, or a cut: nothing is silently other than it was.
    #[test]
    fn damage_is_told_or_repaired(seed in 0_u64..20, at in 0_u64..1 << 20, bit in 0_u8..8, cuts: bool) {
        let simulation = Simulation::new(seed);
        let platform = one_file(&simulation);
        let lock = platform.files.lock(&inner("LOCK")).unwrap_or_else(|_| panic!("nothing has it"));
        for number in 0..seed {
            write_file(&*platform.files, &inner(&format!("parts/{}", number % 7)), &vec![number as u8; 5000]).unwrap();
        }
        let files: Vec<String> = platform.files.list(&inner("parts")).unwrap();
        let before: Vec<Vec<u8>> =
            files.iter().map(|name| read_file(&*platform.files, &inner("parts").join(name), 1 << 20).unwrap()).collect();
        drop((lock, platform));
        let whole = simulation.read(Path::new(PATH)).unwrap();
        let at = at % whole.len() as u64;
        if cuts {
            simulation.spoil(Path::new(PATH), Some(whole[..at as usize].to_vec())).unwrap();
        } else {
            simulation.flip_bit(Path::new(PATH), at, bit).unwrap();
        }
        let platform = one_file(&simulation);
        match platform.files.lock(&inner("LOCK")) {
            Err(LockError::Io(error)) => {
                let text = error.to_string();
                prop_assert!(cuts && text.contains(PATH) && text.contains("offset"), "{}", text);
            }
            Err(LockError::Held { .. }) => prop_assert!(false, "it is not locked"),
            Ok(_lock) => {
                prop_assert_eq!(platform.files.list(&inner("parts")).unwrap(), files.clone());
                let same = files.iter().zip(&before).filter(|(name, content)| {
                    read_file(&*platform.files, &inner("parts").join(name), 1 << 20).unwrap() == **content
                });
                // A flipped bit of a file's own is that file's to find.
                prop_assert!(same.count() + usize::from(!cuts) >= files.len());
            }
        }
    }
}

#[test]
fn a_full_disk_takes_what_fits_into_what_is_free() {
    let simulation = Simulation::new(1);
    let platform = one_file(&simulation);
    let _lock = platform.files.lock(&inner("LOCK")).unwrap_or_else(|_| panic!("nothing has it"));
    let files = &*platform.files;
    let reserve = vec![0; 64 << 10];
    write_file(files, &inner("RESERVE"), &reserve).unwrap();
    write_file(files, &inner("last"), &[1; 10]).unwrap();
    simulation.limit_room(Some(simulation.used_bytes()));
    let full = write_file(files, &inner("part"), &vec![2; 60 << 10]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    // Not durable, and room all the same.
    files.remove(&inner("RESERVE")).unwrap();
    write_file(files, &inner("part"), &vec![2; 60 << 10]).unwrap();
    assert_eq!(read_file(files, &inner("part"), 1 << 20).unwrap(), vec![2; 60 << 10]);
    let full = write_file(files, &inner("more"), &vec![2; 60 << 10]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert!(files.disk_space(&inner("")).unwrap().free_bytes < 64 << 10);
}

#[test]
fn a_failed_sync_lets_nothing_be_written_any_more() {
    let simulation = Simulation::new(1);
    let platform = one_file(&simulation);
    let lock = platform.files.lock(&inner("LOCK")).unwrap_or_else(|_| panic!("nothing has it"));
    let file = platform.files.open(&inner("a"), OpenMode::CreateNew).unwrap();
    file.write_all_at(&[1; 100], 0).unwrap();
    simulation.fail_syncs_after(0);
    assert!(file.sync_data().is_err());
    for error in [file.write_all_at(&[1], 0), file.sync_data(), platform.files.sync_directory(&inner(""))] {
        let text = error.unwrap_err().to_string();
        assert!(text.contains("until it is opened again") && text.contains(PATH), "{text}");
    }
    let mut read = [0; 100];
    file.read_exact_at(&mut read, 0).unwrap();
    drop(lock);
}

#[test]
fn a_container_is_open_once_and_read_beside() {
    let simulation = Simulation::new(1);
    let (platform, other) = (one_file(&simulation), one_file(&simulation));
    assert_eq!(other.files.list(&inner("")).unwrap_err().kind(), io::ErrorKind::NotFound);
    let lock = platform.files.lock(&inner("LOCK")).unwrap_or_else(|_| panic!("nothing has it"));
    let held = other.files.lock(&inner("LOCK")).err();
    let own = std::process::id();
    assert!(matches!(held, Some(LockError::Held { pid: Some(pid) }) if pid == own), "{held:?}");
    write_file(&*platform.files, &inner("parts/a"), &[7; 9000]).unwrap();
    let seen = other.files.open(&inner("parts/a"), OpenMode::Read).unwrap();
    let map = other.files.map(&inner("parts/a")).unwrap();
    let mut read = [0; 9000];
    seen.read_exact_at(&mut read, 0).unwrap();
    assert!(read == [7; 9000] && map.bytes() == read && map.is_readable());
    let refused = other.files.open(&inner("parts/b"), OpenMode::CreateNew).err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    // Removed, and its blocks are another file's: neither is taken for the other.
    platform.files.remove(&inner("parts/a")).unwrap();
    platform.files.sync_directory(&inner("parts")).unwrap();
    write_file(&*platform.files, &inner("parts/b"), &[8; 9000]).unwrap();
    assert_eq!(seen.read_exact_at(&mut read, 0).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(!map.is_readable());
    assert_eq!(read_file(&*other.files, &inner("parts/b"), 1 << 20).unwrap(), [8; 9000]);
    drop(lock);
    drop(other.files.lock(&inner("LOCK")).unwrap_or_else(|_| panic!("it was given up")));
    let late = platform.files.open(&inner("parts/c"), OpenMode::CreateNew).err().unwrap();
    assert_eq!(late.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn which_paths_are_one_file() {
    let simulation = Simulation::new(1);
    let files = simulation.platform().files;
    write_file(&*files, Path::new("folder.tsdb/MANIFEST"), &[1]).unwrap();
    write_file(&*files, Path::new("renamed.db"), &[1]).unwrap();
    let is_one = |path: &str| is_one_file(&*files, Path::new(path)).unwrap();
    assert!(is_one("new.tsdb") && is_one("new.tdb") && is_one("renamed.db"));
    assert!(!is_one("folder.tsdb") && !is_one("new") && !is_one("new.db"));
    assert_eq!(companion(&*files, Path::new("a/new.tsdb"), "audit.log"), Path::new("a/new.tsdb.audit.log"));
    assert_eq!(companion(&*files, Path::new("a/new"), "audit.log"), Path::new("a/new/audit.log"));
}

/// On the machine itself: direct and durable writes, maps, holes.
#[test]
fn a_real_container_gives_back_what_was_written() {
    let folder = std::env::temp_dir().join(format!("thalweg-container-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("real.tsdb");
    let platform = Platform::real().with_data(&path).unwrap();
    let lock = platform.files.lock(&path.join("LOCK")).unwrap_or_else(|_| panic!("nothing has it"));
    let files = &*platform.files;
    // Two files that grow in turns have their blocks in turns.
    let [one, other] = ["parts/1", "parts/2"].map(|name| files.open(&path.join(name), OpenMode::CreateNew).unwrap());
    for number in 0..40_u64 {
        one.write_all_at(&vec![number as u8; 100_000], number * 100_000).unwrap();
        other.write_all_at(&vec![number as u8 + 100; 100_000], number * 100_000).unwrap();
    }
    [&one, &other].iter().for_each(|file| file.sync_data().unwrap());
    files.sync_directory(&path).unwrap();
    let map = files.map(&path.join("parts/2")).unwrap();
    assert!(map.bytes().chunks(100_000).zip(100..).all(|(piece, byte)| piece.iter().all(|found| *found == byte)));
    let direct = files.open_direct(&path.join("flash"), OpenMode::CreateNew).unwrap();
    let mut page = crate::AlignedBytes::zeroed(8192);
    page.fill(9);
    direct.write_all_at(&page, 4 << 20).unwrap();
    let mut read = crate::AlignedBytes::zeroed(8192);
    direct.read_exact_at(&mut read, (4 << 20) - 4096).unwrap();
    assert!(read[..4096].iter().all(|byte| *byte == 0) && read[4096..].iter().all(|byte| *byte == 9));
    let (durable, _) = files.open_durable(&path.join("flash")).unwrap();
    durable.write_durable_at(&page[..4096], 0).unwrap();
    durable.write_durable_at(&page, (4 << 20) + 8192).unwrap();
    files.remove(&path.join("parts/1")).unwrap();
    drop((one, direct, durable));
    drop(lock);
    assert!(map.is_readable());
    let platform = Platform::real().with_data(&path).unwrap();
    let size = |name: &str| read_file(&*platform.files, &path.join(name), 1 << 30).map(|content| content.len());
    assert_eq!((size("flash").unwrap(), size("parts/2").unwrap()), ((4 << 20) + 16384, 4_000_000));
    assert!(size("parts/1").is_err());
    assert_eq!(platform.files.kind(&path.join("parts")).unwrap(), Some(PathKind::Folder));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Threads that grow, replace and remove files of their own beside one another: each finds what it wrote, and so does the next opening.
#[test]
fn threads_write_files_of_their_own() {
    const THREADS: u8 = 4;
    let simulation = Simulation::new(1);
    let platform = one_file(&simulation);
    let lock = platform.files.lock(&inner("LOCK")).unwrap_or_else(|_| panic!("nothing has it"));
    let content = |thread: u8, round: u8| vec![thread * 50 + round; 1000 + usize::from(round) * 3000];
    let works = |thread: u8| {
        let (files, folder) = (&*platform.files, inner(&format!("parts/{thread}")));
        let log = files.open(&folder.join("log"), OpenMode::CreateNew).unwrap();
        for round in 0..40 {
            write_file(files, &folder.join("kept"), &content(thread, round)).unwrap();
            log.write_durable_at(&[round; 700], u64::from(round) * 700).unwrap();
            let map = files.map(&folder.join("kept")).unwrap();
            let part = folder.join(format!("{round}"));
            write_file(files, &part, &content(thread, round)).unwrap();
            if round >= 3 {
                files.remove(&folder.join(format!("{}", round - 3))).unwrap();
            }
            assert!(map.bytes() == content(thread, round));
            assert!(read_file(files, &part, 1 << 20).unwrap() == content(thread, round));
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|thread| drop(scope.spawn(move || works(thread)))));
    drop(lock);
    simulation.crash();
    let platform = one_file(&simulation);
    let _lock = platform.files.lock(&inner("LOCK")).unwrap_or_else(|_| panic!("nothing has it"));
    for thread in 0..THREADS {
        let folder = inner(&format!("parts/{thread}"));
        assert_eq!(platform.files.list(&folder).unwrap(), ["37", "38", "39", "kept", "log"]);
        assert!(read_file(&*platform.files, &folder.join("kept"), 1 << 20).unwrap() == content(thread, 39));
        let log: Vec<u8> = (0..40).flat_map(|round| [round; 700]).collect();
        assert!(read_file(&*platform.files, &folder.join("log"), 1 << 20).unwrap() == log);
    }
}
