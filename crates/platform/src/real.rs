//! The machine that the program runs on.

use std::fs;
use std::io::{self, Read, Seek, Write};
#[cfg(target_os = "linux")]
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::{Clock, DiskSpace, File, Files, LockError, Mapped, OpenMode, PathKind, Random};

pub(crate) struct RealFiles;

impl Files for RealFiles {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(path)?;
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self.sync_directory(parent),
            _ => Ok(()),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile::synced(options(mode).open(path)?)))
    }

    #[cfg(target_os = "linux")]
    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        use std::os::unix::fs::OpenOptionsExt;
        let opened = options(mode).custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32).open(path);
        match opened {
            Ok(file) => Ok(Arc::new(RealFile::synced(file))),
            // File systems in memory, and some others, cannot. The attempt may have made the file.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let is_there = mode == OpenMode::CreateNew && path.exists();
                self.open(path, if is_there { OpenMode::Write } else { mode })
            }
            Err(error) => Err(error),
        }
    }

    #[cfg(target_os = "linux")]
    fn open_durable(&self, path: &Path) -> io::Result<(Arc<dyn File>, bool)> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC;
        match options(OpenMode::Write).custom_flags(flags.bits() as i32).open(path) {
            Ok(file) => Ok((Arc::new(RealFile { file, is_durable: true }), true)),
            // File systems in memory, and some others, cannot.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok((self.open(path, OpenMode::Write)?, false)),
            Err(error) => Err(error),
        }
    }

    fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        match fs::metadata(path) {
            Ok(found) => Ok(Some(if found.is_dir() { PathKind::Folder } else { PathKind::File })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        Ok(Arc::new(crate::mapped::GuardedMap::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        fs::File::open(of_working_folder(directory))?.sync_all()
    }

    fn disk_space(&self, directory: &Path) -> io::Result<DiskSpace> {
        let found = rustix::fs::statvfs(of_working_folder(directory))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(DiskSpace { free_bytes: bytes(found.f_bavail), size_bytes: bytes(found.f_blocks) })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        // The folder first: a lock file that was removed meanwhile lets no second process in.
        let folder = lock_folder(path)?;
        let mut file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(LockError::Held { pid: holder(path) }),
            Err(fs::TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        write_pid(&mut file).map_err(LockError::Io)?;
        Ok(Box::new((file, folder)))
    }

    fn lock_file(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        let opened = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(fs::TryLockError::WouldBlock) => Err(LockError::Held { pid: None }),
            Err(fs::TryLockError::Error(error)) => Err(LockError::Io(error)),
        }
    }
}

/// The parent of a bare name is empty: the working folder.
fn of_working_folder(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() { Path::new(".") } else { directory }
}

/// Locks the folder that a lock file is in. `None` where the file system has no locks of folders: some over a network.
fn lock_folder(path: &Path) -> Result<Option<fs::File>, LockError> {
    let folder = fs::File::open(of_working_folder(path.parent().unwrap_or(path))).map_err(LockError::Io)?;
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(fs::TryLockError::WouldBlock) => Err(LockError::Held { pid: holder(path) }),
        Err(fs::TryLockError::Error(_)) => Ok(None),
    }
}

/// The process that a lock file names. That only serves the message: a file that cannot be read still is locked.
fn holder(path: &Path) -> Option<u32> {
    let mut text = String::new();
    let _ = fs::File::open(path).ok()?.take(32).read_to_string(&mut text);
    text.trim().parse().ok()
}

fn options(mode: OpenMode) -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(mode != OpenMode::Read).create_new(mode == OpenMode::CreateNew);
    options
}

fn write_pid(file: &mut fs::File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

struct RealFile {
    file: fs::File,
    /// Whether what is written is on disk when the call returns.
    is_durable: bool,
}

impl RealFile {
    fn synced(file: fs::File) -> Self {
        Self { file, is_durable: false }
    }
}

impl File for RealFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write_durable_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset)?;
        if self.is_durable { Ok(()) } else { self.sync_data() }
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    #[cfg(target_os = "linux")]
    fn is_cached(&self, offset: u64) -> bool {
        let mut byte = [0];
        let read = rustix::io::preadv2(
            &self.file,
            &mut [io::IoSliceMut::new(&mut byte)],
            offset,
            rustix::io::ReadWriteFlags::NOWAIT,
        );
        // File systems that cannot tell refuse the flag.
        read != Err(rustix::io::Errno::AGAIN)
    }

    #[cfg(target_os = "linux")]
    fn will_need(&self, offset: u64, bytes: u64) {
        // It is advice: if the system does not take it, reading takes longer.
        let _ = rustix::fs::fadvise(&self.file, offset, NonZero::new(bytes), rustix::fs::Advice::WillNeed);
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    #[cfg(target_os = "linux")]
    fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        use rustix::fs::FallocateFlags;
        match rustix::fs::fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn map_pieces(&self, pieces: &[(u64, u64)]) -> io::Result<Mapped> {
        match crate::mapped::GuardedMap::of_pieces(&self.file, pieces)? {
            Some(map) => Ok(Arc::new(map)),
            None => crate::read_pieces(self, pieces),
        }
    }
}

pub(crate) struct RealClock {
    start: Instant,
}

impl RealClock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for RealClock {
    fn now_ns(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[cfg(target_os = "linux")]
    fn thread_cpu_ns(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let [seconds, nanoseconds] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or_default());
        seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
    }
}

pub(crate) struct RealRandom;

impl Random for RealRandom {
    fn fill(&self, buffer: &mut [u8]) -> io::Result<()> {
        getrandom::fill(buffer).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_written_are_in_memory_and_advice_changes_nothing() {
        let path = std::env::temp_dir().join(format!("thalweg-advice-{}", std::process::id()));
        let file = RealFiles.open(&path, OpenMode::CreateNew).unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        assert!(file.is_cached(1));
        file.will_need(0, 3);
        file.will_need(9, 0);
        let mut read = [0; 3];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"abc");
    }

    #[test]
    fn a_removed_lock_file_lets_nobody_in() {
        let folder = std::env::temp_dir().join(format!("thalweg-lock-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("LOCK");
        let held = RealFiles.lock(&path).unwrap();
        let own = std::process::id();
        assert!(matches!(RealFiles.lock(&path), Err(LockError::Held { pid: Some(pid) }) if pid == own));
        fs::remove_file(&path).unwrap();
        assert!(matches!(RealFiles.lock(&path), Err(LockError::Held { pid: None })));
        assert!(!path.exists(), "who is not let in leaves nothing");
        drop(held);
        drop(RealFiles.lock(&path).unwrap());
        fs::remove_dir_all(&folder).unwrap();
    }
}
