//! The outside world behind one seam: clock, files, object storage and randomness, each as the real thing and as a
//! simulation.
//!
//! Whatever runs on a [`Platform`] alone runs the same way inside a simulation, where a crash can lose or tear what was
//! not synced ([`sim::Simulation`]).
//!
//! * `real`: the operating system · `sim`: a machine that crashes, fills up and loses answers
//! * [`container`]: a whole data folder in one file, over either of them
//! * `direct`: files past the system's cache · `mapped`: files as memory, whose unreadable pages are errors · `objects`: object stores
//! * `overlay`: files over others, which stay as they are · `private`: secrets and logs that only their owner may read · [`network`]: HTTP, datagrams, tasks and timers

pub mod container;
mod direct;
mod mapped;
pub mod network;
pub mod objects;
mod overlay;
pub mod private;
mod real;
pub mod sim;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use direct::{AlignedBytes, DIRECT_ALIGN_BYTES};
pub use overlay::{OVERLAY_BYTES_MAX, OverlayFiles};

/// The outside world, as the database sees it.
#[derive(Clone)]
pub struct Platform {
    /// Files and folders.
    pub files: Arc<dyn Files>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Random bytes.
    pub random: Arc<dyn Random>,
    /// Object stores, by their addresses.
    pub objects: Arc<dyn objects::ObjectStores>,
}

impl Platform {
    /// The machine that the program runs on.
    pub fn real() -> Self {
        Self {
            files: Arc::new(real::RealFiles),
            clock: Arc::new(real::RealClock::start()),
            random: Arc::new(real::RealRandom),
            objects: Arc::new(objects::opener::RealObjectStores),
        }
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Platform")
    }
}

/// The time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since the Unix epoch.
    fn now_ns(&self) -> i64;

    /// Nanoseconds since some fixed moment; never goes back.
    fn monotonic_ns(&self) -> u64;

    /// Nanoseconds that the calling thread has had a core, since some fixed moment; where these are not counted, those that have passed.
    fn thread_cpu_ns(&self) -> u64 {
        self.monotonic_ns()
    }
}

/// Random bytes, good enough for hash keys and identities.
pub trait Random: Send + Sync {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]) -> io::Result<()>;
}

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A new file, for reading and writing; it is an error if it exists.
    CreateNew,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A file.
    File,
    /// A folder.
    Folder,
}

/// Why a folder's lock could not be had.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it; its id if the lock file names one.
    Held {
        /// The holder's process id.
        pid: Option<u32>,
    },
    /// The lock file could not be used.
    Io(io::Error),
}

/// The bytes of a whole file.
pub trait MappedFile: Send + Sync {
    /// All of them.
    fn bytes(&self) -> &[u8];

    /// Returns whether everything that was read so far is what the file holds. A page that the system could not read, because the file
    /// was cut or the disk failed, reads as zeros and turns this false for good.
    fn is_readable(&self) -> bool {
        true
    }
}

impl MappedFile for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A mapped file, shared by its readers.
pub type Mapped = Arc<dyn MappedFile>;

/// The room of the disk that a folder is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that may still be written there.
    pub free_bytes: u64,
    /// Bytes that the disk has in all.
    pub size_bytes: u64,
}

/// Files and folders.
pub trait Files: Send + Sync {
    /// Makes a folder, and those above it, durably; no error if it exists.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder, sorted.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reads and writes that bypass the system's cache where the file system can. Offsets, lengths and
    /// buffers of every call are multiples of [`DIRECT_ALIGN_BYTES`]; see [`AlignedBytes`].
    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.open(path, mode)
    }

    /// Opens an existing file for writes that are durable as they return ([`File::write_durable_at`]), and whether they bypass the
    /// system's cache: then their offsets, lengths and buffers are multiples of [`DIRECT_ALIGN_BYTES`].
    fn open_durable(&self, path: &Path) -> io::Result<(Arc<dyn File>, bool)> {
        Ok((self.open(path, OpenMode::Write)?, false))
    }

    /// What a path leads to; `None` if nothing is there.
    fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        match self.open(path, OpenMode::Read) {
            Ok(_) => Ok(Some(PathKind::File)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The bytes of a file that is never written again. Removing the file does not take them away.
    fn map(&self, path: &Path) -> io::Result<Mapped>;

    /// Gives a file another name, replacing what had it. Durable after [`Files::sync_directory`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes creations, renames and removals in a folder durable.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// The room of the disk that a folder is on.
    fn disk_space(&self, directory: &Path) -> io::Result<DiskSpace>;

    /// Locks a folder, and a file in it that names the process. Removing the file does not release the lock; dropping the returned guard or ending the
    /// process does.
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError>;

    /// Locks a file itself, which is made if it is not there, until the guard is dropped or the process ends.
    fn lock_file(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        let _ = path;
        Err(LockError::Io(io::ErrorKind::Unsupported.into()))
    }
}

/// An open file. Positions are given with each call, so that it may be shared.
pub trait File: Send + Sync {
    /// Fills the buffer from an offset; an error if the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all at an offset, extending the file if need be. Durable after [`File::sync_data`].
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written so far durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;

    /// Writes all at an offset; durable when it returns.
    fn write_durable_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset)?;
        self.sync_data()
    }

    /// Size in bytes.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Returns whether the byte at an offset can be read without waiting for the disk; true where that cannot be found out.
    fn is_cached(&self, offset: u64) -> bool {
        let _ = offset;
        true
    }

    /// Has the system begin to read bytes that will be read soon. Nothing where the system takes no such advice.
    fn will_need(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
    }

    /// Cuts the file to a size, or lengthens it by zeros. Durable after [`File::sync_data`].
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives the room of bytes inside the file back to the disk; they read as zeros then. Returns whether the file system can.
    fn punch_hole(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        let _ = (offset, bytes);
        Ok(false)
    }

    /// Pieces of the file (offset and length; all but the last end at a multiple of [`DIRECT_ALIGN_BYTES`], and all begin at one), one after the other as one
    /// memory. They are not written again while they are mapped.
    fn map_pieces(&self, pieces: &[(u64, u64)]) -> io::Result<Mapped> {
        read_pieces(self, pieces)
    }
}

/// Pieces of a file, read into memory.
fn read_pieces(file: &(impl File + ?Sized), pieces: &[(u64, u64)]) -> io::Result<Mapped> {
    let mut content = vec![0; pieces.iter().map(|(_, bytes)| *bytes as usize).sum()];
    let mut rest = content.as_mut_slice();
    for (offset, bytes) in pieces {
        let (piece, after) = rest.split_at_mut(*bytes as usize);
        file.read_exact_at(piece, *offset)?;
        rest = after;
    }
    Ok(Arc::new(content))
}

/// Reads a whole file.
pub fn read_file(files: &dyn Files, path: &Path, size_bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = files.open(path, OpenMode::Read)?;
    let size = file.size_bytes()?;
    if size > size_bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} holds {size} bytes, more than the {size_bytes_max} that such a file may have", path.display()),
        ));
    }
    let mut content = vec![0; size as usize];
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

/// Writes a whole new file durably: under a temporary name first, then renamed, so that it is there whole or not at all.
pub fn write_file(files: &dyn Files, path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    match files.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = files.open(&temporary, OpenMode::CreateNew)?;
    file.write_all_at(content, 0)?;
    file.sync_data()?;
    files.rename(&temporary, path)?;
    files.sync_directory(path.parent().unwrap_or(Path::new(".")))
}
