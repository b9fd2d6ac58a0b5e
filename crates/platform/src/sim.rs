//! A simulated machine: files in memory that lose or tear at a crash whatever was not synced, a clock that moves only
//! when told and may jump, randomness from a seed.
//!
//! What a crash may do follows what disks and ext4 promise: a synced write stays; each write since the last sync
//! stays, vanishes, or stays in part, by sectors of 512 bytes; of the creations, renames and removals in a folder since
//! its last sync, some first ones stay. Nothing else changes. Object stores are elsewhere and survive (`objects.rs`).

mod objects;
mod spoil;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tracing_mutex::parkinglot::Mutex;

use crate::{Clock, DiskSpace, File, Files, LockError, Mapped, OpenMode, PathKind, Platform, Random};

pub use objects::ObjectFaults;

use objects::{SimBuckets, SimObjectStores};

const SECTOR_BYTES: usize = 512;

/// The room of a disk without a limit.
const UNLIMITED_BYTES: u64 = 1 << 50;

/// Holds the simulated machine's strings.
#[derive(Clone)]
pub struct Simulation {
    disk: Arc<Disk>,
    clock: Arc<SimClock>,
    random: Arc<SimRandom>,
    buckets: Arc<SimBuckets>,
}

impl Simulation {
    /// A machine with an empty disk; everything random in it follows from the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            disk: Arc::new(Disk::default()),
            clock: Arc::new(SimClock::default()),
            random: Arc::new(SimRandom { state: Mutex::new(seed) }),
            buckets: Arc::default(),
        }
    }

    /// The machine as the database sees it. Handles from before a crash are dead: each call fails.
    pub fn platform(&self) -> Platform {
        let boot = self.disk.boot.load(Ordering::SeqCst);
        Platform {
            files: Arc::new(SimFiles { disk: self.disk.clone(), boot }),
            clock: self.clock.clone(),
            random: self.random.clone(),
            objects: Arc::new(SimObjectStores {
                buckets: self.buckets.clone(),
                random: self.random.clone(),
                disk: self.disk.clone(),
                boot,
            }),
        }
    }

    /// From now on requests to object stores fail so often; [`ObjectFaults::default`] ends it.
    pub fn set_object_faults(&self, faults: ObjectFaults) {
        self.buckets.set_faults(faults);
    }

    /// What an object holds, in the store of that address.
    pub fn object(&self, url: &str, key: &str) -> Option<Vec<u8>> {
        self.buckets.content(url, key)
    }

    /// Keys of all objects in the store of that address, sorted.
    pub fn object_keys(&self, url: &str) -> Vec<String> {
        self.buckets.keys(url)
    }

    /// Flips one bit of an object, as a bad store does. `None` if there is no such byte.
    pub fn flip_object_bit(&self, url: &str, key: &str, offset: u64, bit: u8) -> Option<()> {
        self.buckets.flip_bit(url, key, offset, bit)
    }

    /// Cuts the power: unsynced writes are kept, lost or torn as the seed has it, locks are released.
    pub fn crash(&self) {
        self.disk.boot.fetch_add(1, Ordering::SeqCst);
        let mut state = self.disk.state.lock();
        state.locks.clear();
        state.syncs_left = None;
        let journal = std::mem::take(&mut state.journal);
        state.entries = std::mem::take(&mut state.durable_entries);
        for (_, changes) in journal {
            let kept = self.random.below(changes.len() as u64 + 1) as usize;
            for change in changes.into_iter().take(kept) {
                state.apply(change);
            }
        }
        state.durable_entries = state.entries.clone();
        let live: BTreeSet<u64> = state.entries.values().copied().collect();
        state.inodes.retain(|number, _| live.contains(number));
        for inode in state.inodes.values_mut() {
            inode.crash(&self.random);
        }
    }

    /// Lets so many syncs of files succeed and makes all behind them fail, as a dying disk does, until the next crash.
    pub fn fail_syncs_after(&self, successes: u32) {
        self.disk.state.lock().syncs_left = Some(successes);
    }

    /// Limits what all files together may hold; `None` takes the limit away. Writes that would exceed it fail as on a full disk.
    pub fn limit_room(&self, room_bytes: Option<usize>) {
        self.disk.state.lock().room_bytes = room_bytes;
    }

    /// Bytes in all files.
    pub fn used_bytes(&self) -> usize {
        self.disk.state.lock().used_bytes()
    }

    /// Lets time pass: the wall clock and the monotonic one go on together.
    pub fn advance_ns(&self, nanoseconds: i64) {
        self.clock.passed_ns.fetch_add(nanoseconds, Ordering::SeqCst);
    }

    /// What a right clock would show, whatever the wall clock does.
    pub fn honest_ns(&self) -> i64 {
        self.clock.passed_ns.load(Ordering::SeqCst)
    }

    /// Sets the wall clock, and nothing else: from there on it runs as time passes. At [`Simulation::honest_ns`] it is right again.
    pub fn set_clock_ns(&self, wall_ns: i64) {
        *self.clock.wall.lock() = Wall::Ahead(wall_ns.wrapping_sub(self.honest_ns()));
    }

    /// Stops the wall clock until it is set.
    pub fn freeze_clock(&self) {
        let now_ns = self.clock.now_ns();
        *self.clock.wall.lock() = Wall::Frozen(now_ns);
    }

    /// A number below the bound, from the seed.
    pub fn below(&self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// Names of all files, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.disk.state.lock().entries.keys().cloned().collect()
    }

    /// Flips one bit of a file, as a bad disk does, durably as far as the file was synced. An error if there is no such
    /// byte.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let inode = state.inode_of(path)?;
        *inode.content.get_mut(offset as usize).ok_or(io::ErrorKind::UnexpectedEof)? ^= 1 << (bit & 7);
        if let Some(byte) = inode.durable.get_mut(offset as usize) {
            *byte ^= 1 << (bit & 7);
        }
        Ok(())
    }

    /// What a file holds, written but unsynced bytes included.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.disk.state.lock().inode_of(path)?.content.clone())
    }
}

#[derive(Default)]
struct Disk {
    /// Counts crashes, so that handles from before one can be told.
    boot: AtomicU64,
    state: Mutex<DiskState>,
}

#[derive(Default)]
struct DiskState {
    entries: BTreeMap<PathBuf, u64>,
    durable_entries: BTreeMap<PathBuf, u64>,
    /// Changes of names since the folder's last sync.
    journal: BTreeMap<PathBuf, Vec<NameChange>>,
    inodes: BTreeMap<u64, Inode>,
    inodes_made: u64,
    locks: BTreeSet<PathBuf>,
    /// Syncs that succeed before all fail.
    syncs_left: Option<u32>,
    /// Bytes that all files together may hold.
    room_bytes: Option<usize>,
}

#[derive(Clone)]
enum NameChange {
    Put(PathBuf, u64),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Unsynced>,
}

/// A change of a file that a crash may undo.
enum Unsynced {
    /// Bytes at an offset.
    Write(usize, Vec<u8>),
    /// Another size.
    Size(usize),
}

impl Unsynced {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => put(content, data, *offset),
            Self::Size(bytes) => content.resize(*bytes, 0),
        }
    }
}

impl DiskState {
    fn apply(&mut self, change: NameChange) {
        match change {
            NameChange::Put(path, number) => {
                self.entries.insert(path, number);
            }
            NameChange::Rename(from, to) => {
                if let Some(number) = self.entries.remove(&from) {
                    self.entries.insert(to, number);
                }
            }
            NameChange::Remove(path) => {
                self.entries.remove(&path);
            }
        }
    }

    /// Makes all names durable as they are.
    fn settle_names(&mut self) {
        self.journal.clear();
        self.durable_entries = self.entries.clone();
    }

    fn change(&mut self, directory: &Path, change: NameChange) {
        self.apply(change.clone());
        self.journal.entry(directory.to_owned()).or_default().push(change);
    }

    fn used_bytes(&self) -> usize {
        self.entries.values().filter_map(|number| self.inodes.get(number)).map(|inode| inode.content.len()).sum()
    }

    fn inode_of(&mut self, path: &Path) -> io::Result<&mut Inode> {
        let number = self.entries.get(path).copied().ok_or_else(|| missing(path))?;
        self.inodes.get_mut(&number).ok_or_else(|| missing(path))
    }
}

impl Inode {
    fn write(&mut self, data: &[u8], offset: usize) {
        put(&mut self.content, data, offset);
        self.unsynced.push(Unsynced::Write(offset, data.to_vec()));
    }

    fn set_size(&mut self, bytes: usize) {
        self.content.resize(bytes, 0);
        self.unsynced.push(Unsynced::Size(bytes));
    }

    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    fn crash(&mut self, random: &SimRandom) {
        for change in std::mem::take(&mut self.unsynced) {
            match (random.below(3), &change) {
                (0, _) => change.apply(&mut self.durable),
                (1, _) | (_, Unsynced::Size(_)) => {}
                (_, Unsynced::Write(offset, data)) => self.tear(data, *offset, random),
            }
        }
        self.content.clone_from(&self.durable);
    }

    /// Keeps some of a write's sectors.
    fn tear(&mut self, data: &[u8], offset: usize, random: &SimRandom) {
        let mut at = offset;
        let end = offset + data.len();
        while at < end {
            let sector_end = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
            if random.below(2) == 0 {
                put(&mut self.durable, &data[at - offset..sector_end - offset], at);
            }
            at = sector_end;
        }
    }
}

fn put(content: &mut Vec<u8>, data: &[u8], offset: usize) {
    let end = offset + data.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(data);
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {}", path.display()))
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

struct SimFiles {
    disk: Arc<Disk>,
    boot: u64,
}

impl Disk {
    fn check(&self, boot: u64) -> io::Result<()> {
        if self.boot.load(Ordering::SeqCst) == boot { Ok(()) } else { Err(io::Error::other("the machine has crashed")) }
    }
}

impl Files for SimFiles {
    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        self.disk.check(self.boot)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.disk.check(self.boot)?;
        let state = self.disk.state.lock();
        let inside = state.entries.keys().filter(|path| parent(path) == directory);
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.disk.check(self.boot)?;
        let mut state = self.disk.state.lock();
        let number = match (state.entries.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(number), _) => *number,
            (None, OpenMode::CreateNew) => {
                state.inodes_made += 1;
                let number = state.inodes_made;
                state.inodes.insert(number, Inode::default());
                state.change(parent(path), NameChange::Put(path.to_owned(), number));
                number
            }
            (None, _) => return Err(missing(path)),
        };
        Ok(Arc::new(SimFile { disk: self.disk.clone(), boot: self.boot, number }))
    }

    fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        self.disk.check(self.boot)?;
        let state = self.disk.state.lock();
        if state.entries.contains_key(path) {
            return Ok(Some(PathKind::File));
        }
        // Folders are where files are.
        Ok(state.entries.keys().any(|file| file.starts_with(path)).then_some(PathKind::Folder))
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.disk.check(self.boot)?;
        let content = self.disk.state.lock().inode_of(path)?.content.clone();
        Ok(Arc::new(content))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.check(self.boot)?;
        let mut state = self.disk.state.lock();
        if !state.entries.contains_key(from) {
            return Err(missing(from));
        }
        state.change(parent(to), NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.check(self.boot)?;
        let mut state = self.disk.state.lock();
        if !state.entries.contains_key(path) {
            return Err(missing(path));
        }
        state.change(parent(path), NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.disk.check(self.boot)?;
        let mut state = self.disk.state.lock();
        let changes = state.journal.remove(directory).unwrap_or_default();
        let volatile = std::mem::take(&mut state.durable_entries);
        let live = std::mem::replace(&mut state.entries, volatile);
        for change in changes {
            state.apply(change);
        }
        state.durable_entries = std::mem::replace(&mut state.entries, live);
        Ok(())
    }

    fn disk_space(&self, _directory: &Path) -> io::Result<DiskSpace> {
        self.disk.check(self.boot)?;
        let state = self.disk.state.lock();
        let Some(room) = state.room_bytes else {
            return Ok(DiskSpace { free_bytes: UNLIMITED_BYTES, size_bytes: UNLIMITED_BYTES });
        };
        let free_bytes = room.saturating_sub(state.used_bytes()) as u64;
        Ok(DiskSpace { free_bytes, size_bytes: room as u64 })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        // The folder's own lock: no file has to be there.
        self.lock_path(parent(path))
    }

    fn lock_file(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        match self.open(path, OpenMode::CreateNew) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(LockError::Io(error)),
            _ => self.lock_path(path),
        }
    }
}

impl SimFiles {
    fn lock_path(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        self.disk.check(self.boot).map_err(LockError::Io)?;
        if !self.disk.state.lock().locks.insert(path.to_owned()) {
            return Err(LockError::Held { pid: None });
        }
        Ok(Box::new(SimLock { disk: self.disk.clone(), boot: self.boot, path: path.to_owned() }))
    }
}

struct SimLock {
    disk: Arc<Disk>,
    boot: u64,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        if self.disk.check(self.boot).is_ok() {
            self.disk.state.lock().locks.remove(&self.path);
        }
    }
}

struct SimFile {
    disk: Arc<Disk>,
    boot: u64,
    number: u64,
}

impl SimFile {
    fn with<T>(&self, act: impl FnOnce(&mut Inode) -> io::Result<T>) -> io::Result<T> {
        self.disk.check(self.boot)?;
        let mut state = self.disk.state.lock();
        act(state.inodes.get_mut(&self.number).ok_or(io::ErrorKind::NotFound)?)
    }
}

impl File for SimFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|inode| {
            let start = offset as usize;
            let found = inode.content.get(start..start + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(found);
            Ok(())
        })
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let grown = {
            let state = self.disk.state.lock();
            let size = state.inodes.get(&self.number).map_or(0, |inode| inode.content.len());
            let grown = (offset as usize + data.len()).saturating_sub(size);
            grown > 0 && state.room_bytes.is_some_and(|room| state.used_bytes() + grown > room)
        };
        if grown {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.with(|inode| {
            inode.write(data, offset as usize);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        {
            let mut state = self.disk.state.lock();
            match &mut state.syncs_left {
                Some(0) => return Err(io::Error::other("simulated failure of a sync")),
                Some(left) => *left -= 1,
                None => {}
            }
        }
        self.with(|inode| {
            inode.sync();
            Ok(())
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.with(|inode| Ok(inode.content.len() as u64))
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.with(|inode| {
            inode.set_size(bytes as usize);
            Ok(())
        })
    }
}

struct SimClock {
    /// Time that has passed, counted on from a day in 2023.
    passed_ns: AtomicI64,
    wall: Mutex<Wall>,
}

/// What the wall clock does.
enum Wall {
    /// It runs, so far ahead of the right time.
    Ahead(i64),
    /// It stands still.
    Frozen(i64),
}

impl Default for SimClock {
    fn default() -> Self {
        Self { passed_ns: AtomicI64::new(1_700_000_000_000_000_000), wall: Mutex::new(Wall::Ahead(0)) }
    }
}

impl Clock for SimClock {
    fn now_ns(&self) -> i64 {
        match *self.wall.lock() {
            Wall::Ahead(ahead_ns) => self.passed_ns.load(Ordering::SeqCst).saturating_add(ahead_ns),
            Wall::Frozen(at_ns) => at_ns,
        }
    }

    fn monotonic_ns(&self) -> u64 {
        self.passed_ns.load(Ordering::SeqCst) as u64
    }
}

/// `SplitMix64` (Steele, Lea, Flood 2014): small, seeded, good enough to choose faults.
struct SimRandom {
    state: Mutex<u64>,
}

impl SimRandom {
    fn next(&self) -> u64 {
        let mut state = self.state.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

impl Random for SimRandom {
    fn fill(&self, buffer: &mut [u8]) -> io::Result<()> {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_file;

    #[test]
    fn a_crash_keeps_what_was_synced_and_nothing_is_sure_of_the_rest() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..200 {
            let simulation = Simulation::new(seed);
            let files = simulation.platform().files;
            write_file(&*files, Path::new("d/f"), &[1; 2048]).unwrap();
            let file = files.open(Path::new("d/f"), OpenMode::Write).unwrap();
            file.write_all_at(&[2; 1024], 1024).unwrap();
            simulation.crash();
            assert!(file.sync_data().is_err(), "handles from before the crash are dead");
            let content = simulation.read(Path::new("d/f")).unwrap();
            assert_eq!(content[..1024], [1; 1024]);
            outcomes.insert((content[1024], content[2047]));
        }
        assert_eq!(outcomes, BTreeSet::from([(1, 1), (1, 2), (2, 1), (2, 2)]), "kept, lost and torn all happen");
    }

    #[test]
    fn a_full_disk_refuses_to_grow() {
        let simulation = Simulation::new(1);
        let file = simulation.platform().files.open(Path::new("d/f"), OpenMode::CreateNew).unwrap();
        file.write_all_at(&[1; 100], 0).unwrap();
        simulation.limit_room(Some(100));
        assert_eq!(file.write_all_at(&[1], 100).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let space = simulation.platform().files.disk_space(Path::new("d")).unwrap();
        assert!(space.size_bytes == 100 && space.free_bytes < 100, "{space:?}");
        file.write_all_at(&[2; 100], 0).unwrap();
        simulation.limit_room(None);
        file.write_all_at(&[1], 100).unwrap();
    }

    #[test]
    fn the_wall_clock_jumps_and_stands_still_while_time_passes() {
        let simulation = Simulation::new(1);
        let clock = simulation.platform().clock;
        let start_ns = clock.now_ns();
        simulation.set_clock_ns(5);
        simulation.advance_ns(10);
        assert_eq!(
            (clock.now_ns(), clock.monotonic_ns() as i64, simulation.honest_ns()),
            (15, start_ns + 10, start_ns + 10)
        );
        simulation.freeze_clock();
        simulation.advance_ns(10);
        assert_eq!(clock.now_ns(), 15);
        simulation.set_clock_ns(simulation.honest_ns());
        simulation.advance_ns(1);
        assert_eq!(clock.now_ns(), start_ns + 21);
    }

    #[test]
    fn an_unsynced_name_may_be_lost() {
        let lost = (0..100).filter(|seed| {
            let simulation = Simulation::new(*seed);
            let files = simulation.platform().files;
            files.open(Path::new("d/f"), OpenMode::CreateNew).unwrap().sync_data().unwrap();
            simulation.crash();
            simulation.files().is_empty()
        });
        assert!((20..80).contains(&lost.count()));
    }
}
