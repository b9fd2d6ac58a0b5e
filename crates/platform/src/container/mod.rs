//! A whole data folder in one file: a second form of [`Files`], over another one.
//!
//! * this file: [`OneFile`], whose paths below the container's are the files inside; which paths are containers
//! * `engine`: an open container · `commit`: how names and lengths become durable · `grow`: bytes of files, and their growth · `file`: handles and maps
//! * `inode`: a file's length and blocks · `space`: which blocks are free · `view`: reading without the lock
//! * `directory`, `edits`: what is in a container, and what a commit changes · `layout`: their bytes · `load`: reading them · `fuzz`: hostile ones
//!
//! Layout: `docs/formats/container.md`. What a crash may do to a file inside is what it may do to a file of a folder: names and lengths
//! are durable together, after a sync; bytes written in place are as durable as in any file.

mod commit;
mod directory;
mod edits;
mod engine;
mod file;
mod fuzz;
mod grow;
mod inode;
mod layout;
mod load;
mod space;
#[cfg(test)]
mod tests;
mod view;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing_mutex::parkinglot::Mutex;

use crate::{DiskSpace, File, Files, LockError, Mapped, OpenMode, PathKind, Platform};

pub use engine::ContainerShape;
pub use fuzz::fuzz;

use engine::OpenContainer;
use file::InnerFile;
use grow::WriteKind;
use view::ContainerView;

/// Endings of the names of files that hold a whole database.
pub const ENDINGS: [&str; 2] = ["tsdb", "tdb"];

/// Returns whether a path is a database in one file: there is a file, or nothing yet and the path ends as those do ([`ENDINGS`]).
pub fn is_one_file(files: &dyn Files, path: &Path) -> io::Result<bool> {
    Ok(match files.kind(path)? {
        Some(kind) => kind == PathKind::File,
        None => path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)),
    })
}

/// The path of a file that belongs to a database and stays outside of its data: in its folder, or beside its one file with that file's name
/// before its own.
pub fn companion(files: &dyn Files, data: &Path, name: &str) -> PathBuf {
    if is_one_file(files, data).unwrap_or(false) {
        let mut beside = data.as_os_str().to_owned();
        beside.push(".");
        beside.push(name);
        PathBuf::from(beside)
    } else {
        data.join(name)
    }
}

impl Platform {
    /// The platform on which a path is a data folder: this one, or, if a database in one file is there or is to be made there, one on which the paths below
    /// that file are what is inside.
    pub fn with_data(self, path: &Path) -> io::Result<Self> {
        if is_one_file(&*self.files, path)? {
            Ok(self.with_one_file(path, ContainerShape::default()))
        } else {
            Ok(self)
        }
    }

    /// The platform on which the paths below a path are the inside of one file, which is made with a shape.
    #[must_use]
    pub fn with_one_file(&self, path: &Path, shape: ContainerShape) -> Self {
        Self { files: Arc::new(OneFile::new(self.files.clone(), path, shape)), ..self.clone() }
    }
}

/// Files of which those below one path are inside of one file; all others are those of the files below. Without the container's lock
/// ([`Files::lock`] of a path in it) it is only read, as it was committed last.
pub struct OneFile {
    files: Arc<dyn Files>,
    path: PathBuf,
    shape: ContainerShape,
    access: Arc<Mutex<Access>>,
}

/// How the container is accessed at present.
enum Access {
    /// Without its lock.
    Unlocked(Option<Arc<ContainerView>>),
    Locked(Arc<OpenContainer>),
}

impl OneFile {
    fn new(files: Arc<dyn Files>, path: &Path, shape: ContainerShape) -> Self {
        Self { files, path: path.to_owned(), shape, access: Arc::new(Mutex::new(Access::Unlocked(None))) }
    }

    /// The name of a file inside; `None` for a path outside.
    fn inner(&self, path: &Path) -> io::Result<Option<String>> {
        let Ok(inner) = path.strip_prefix(&self.path) else { return Ok(None) };
        let pieces: Option<Vec<&str>> = inner.iter().map(|piece| piece.to_str()).collect();
        let text = pieces.map(|pieces| pieces.join("/"));
        text.map(Some)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a name in a one-file database is UTF-8"))
    }

    /// Errors say which file they are about.
    fn named<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", self.path.display()))
            }
            _ => error,
        })
    }

    fn locked(&self) -> io::Result<Arc<OpenContainer>> {
        match &*self.access.lock() {
            Access::Locked(container) => Ok(container.clone()),
            Access::Unlocked(_) => {
                let text = format!("{} is not locked: it can only be read", self.path.display());
                Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
            }
        }
    }

    /// The open container, or a view of one without its lock.
    fn readable(&self) -> io::Result<Readable> {
        match &mut *self.access.lock() {
            Access::Locked(container) => Ok(Readable::Open(container.clone())),
            Access::Unlocked(Some(view)) => Ok(Readable::View(view.clone())),
            Access::Unlocked(none) => {
                let view = Arc::new(self.named(ContainerView::open(&*self.files, &self.path))?);
                *none = Some(view.clone());
                Ok(Readable::View(view))
            }
        }
    }

    fn open_inside(&self, name: &str, mode: OpenMode, kind: WriteKind) -> io::Result<Arc<dyn File>> {
        if mode == OpenMode::Read
            && let Readable::View(view) = self.readable()?
        {
            return Ok(Arc::new(self.named(view.open_file(name))?));
        }
        let container = self.locked()?;
        let inode = if mode == OpenMode::CreateNew { container.create_file(name)? } else { container.find(name)? };
        Ok(Arc::new(InnerFile::new(container, inode, kind, mode)))
    }

    /// Makes an empty container, whole or not at all.
    fn make(&self) -> Result<(), LockError> {
        let parent = self.path.parent().unwrap_or(Path::new(""));
        if !parent.as_os_str().is_empty() {
            self.files.create_directory(parent).map_err(LockError::Io)?;
        }
        let mut new = self.path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let _lock = self.files.lock_file(&new)?;
        // Another process may have made it meanwhile, and given this file its name.
        if self.files.kind(&self.path).map_err(LockError::Io)?.is_some() {
            return Ok(());
        }
        let made = || {
            let file = self.files.open(&new, OpenMode::Write)?;
            file.set_size(0)?;
            engine::create(&*file, self.shape)?;
            self.files.rename(&new, &self.path)?;
            self.files.sync_directory(parent)
        };
        made().map_err(LockError::Io)
    }

    fn lock_container(&self) -> Result<Box<dyn Send + Sync>, LockError> {
        let mut access = self.access.lock();
        if let Access::Locked(_) = &*access {
            return Err(LockError::Held { pid: Some(std::process::id()) });
        }
        if self.files.kind(&self.path).map_err(LockError::Io)?.is_none() {
            self.make()?;
        }
        let lock = self.files.lock_file(&self.path).map_err(|error| match error {
            LockError::Held { pid: None } => LockError::Held { pid: user::read(&*self.files, &self.path) },
            error => error,
        })?;
        let open = || {
            let loaded = load::load(&*self.files.open(&self.path, OpenMode::Read)?)?;
            OpenContainer::open(&*self.files, &self.path, loaded)
        };
        let container = Arc::new(self.named(open()).map_err(LockError::Io)?);
        user::write(&*container.base.cached);
        *access = Access::Locked(container.clone());
        Ok(Box::new(ContainerLock { access: self.access.clone(), container, _lock: lock }))
    }
}

enum Readable {
    Open(Arc<OpenContainer>),
    View(Arc<ContainerView>),
}

/// Keeps other processes out of a container, and lets this one write it.
struct ContainerLock {
    access: Arc<Mutex<Access>>,
    container: Arc<OpenContainer>,
    /// Given up last.
    _lock: Box<dyn Send + Sync>,
}

impl Drop for ContainerLock {
    fn drop(&mut self) {
        self.container.close();
        *self.access.lock() = Access::Unlocked(None);
    }
}

/// Who has a container open: serves messages alone.
mod user {
    use std::path::Path;

    use super::layout::{BLOCK_BYTES, USER_BLOCK};
    use crate::{File, Files, OpenMode};

    const DIGITS: usize = 20;

    pub(super) fn write(file: &dyn File) {
        let text = format!("{:<DIGITS$}\n", std::process::id());
        let _ = file.write_all_at(text.as_bytes(), USER_BLOCK * BLOCK_BYTES);
    }

    pub(super) fn read(files: &dyn Files, path: &Path) -> Option<u32> {
        let mut text = [0; DIGITS];
        files.open(path, OpenMode::Read).ok()?.read_exact_at(&mut text, USER_BLOCK * BLOCK_BYTES).ok()?;
        std::str::from_utf8(&text).ok()?.trim().parse().ok()
    }
}

impl Files for OneFile {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        // Folders inside are where files are, and the lock makes the container.
        if self.inner(path)?.is_some() { Ok(()) } else { self.files.create_directory(path) }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let Some(folder) = self.inner(directory)? else { return self.files.list(directory) };
        match self.readable()? {
            Readable::Open(container) => Ok(container.list(&folder)),
            Readable::View(view) => self.named(view.list(&folder)),
        }
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        match self.inner(path)? {
            Some(name) => self.open_inside(&name, mode, WriteKind::Cached),
            None => self.files.open(path, mode),
        }
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        match self.inner(path)? {
            Some(name) => self.open_inside(&name, mode, WriteKind::Direct),
            None => self.files.open_direct(path, mode),
        }
    }

    fn open_durable(&self, path: &Path) -> io::Result<(Arc<dyn File>, bool)> {
        match self.inner(path)? {
            Some(name) => {
                let is_direct = self.locked()?.base.durable_is_direct;
                Ok((self.open_inside(&name, OpenMode::Write, WriteKind::Durable)?, is_direct))
            }
            None => self.files.open_durable(path),
        }
    }

    fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        let Some(name) = self.inner(path)? else { return self.files.kind(path) };
        if name.is_empty() {
            return Ok(Some(PathKind::Folder));
        }
        match self.list(path) {
            Ok(names) if !names.is_empty() => return Ok(Some(PathKind::Folder)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match self.open(path, OpenMode::Read) {
            Ok(_) => Ok(Some(PathKind::File)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        let Some(name) = self.inner(path)? else { return self.files.map(path) };
        match self.readable()? {
            Readable::Open(container) => file::map(&container, container.find(&name)?),
            Readable::View(view) => self.named(view.open_file(&name).and_then(view::ViewedFile::map)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.inner(from)?, self.inner(to)?) {
            (Some(from), Some(to)) => self.locked()?.rename(&from, &to),
            (None, None) => self.files.rename(from, to),
            _ => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match self.inner(path)? {
            Some(name) => self.locked()?.remove(&name),
            None => self.files.remove(path),
        }
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        match self.inner(directory)? {
            Some(_) => self.locked()?.commit(),
            None => self.files.sync_directory(directory),
        }
    }

    fn disk_space(&self, directory: &Path) -> io::Result<DiskSpace> {
        if self.inner(directory)?.is_none() {
            return self.files.disk_space(directory);
        }
        let space = self.files.disk_space(self.path.parent().unwrap_or(Path::new("")))?;
        let inside = match self.readable() {
            Ok(Readable::Open(container)) => container.free_bytes(),
            _ => 0,
        };
        Ok(DiskSpace { free_bytes: space.free_bytes.saturating_add(inside), ..space })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        match self.inner(path).map_err(LockError::Io)? {
            Some(_) => self.lock_container(),
            None => self.files.lock(path),
        }
    }

    fn lock_file(&self, path: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        match self.inner(path).map_err(LockError::Io)? {
            Some(_) => Err(LockError::Io(io::ErrorKind::Unsupported.into())),
            None => self.files.lock_file(path),
        }
    }
}
