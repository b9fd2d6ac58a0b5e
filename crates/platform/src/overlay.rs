//! Files over others: what is written goes to memory, what is below stays as it is.
//!
//! So a folder can be opened by code that would change it, and by several processes while another one writes to it. Nothing here locks anything: the
//! caller has to find out whether the files that it read belong together.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_mutex::parkinglot::Mutex;

use crate::{DiskSpace, File, Files, LockError, Mapped, OpenMode};

const PAGE_BYTES: usize = 4096;

/// Bytes that are written over what is below, of all files together.
pub const OVERLAY_BYTES_MAX: usize = 256 << 20;

/// Files over others.
pub struct OverlayFiles {
    below: Arc<dyn Files>,
    state: Mutex<State>,
    room: Arc<Room>,
}

/// Differences from below.
#[derive(Default)]
struct State {
    files: BTreeMap<PathBuf, Entry>,
    directories: BTreeSet<PathBuf>,
}

/// A path that is not as it is below.
#[derive(Clone)]
enum Entry {
    /// There is no such file any more.
    Removed,
    /// A file that is below under another name.
    Renamed(PathBuf),
    Written(Arc<OverlayFile>),
}

/// Memory for what is written, until nothing may be any more.
struct Room {
    pages: Mutex<usize>,
    is_sealed: AtomicBool,
}

/// A file of which parts were written.
struct OverlayFile {
    below: Option<Arc<dyn File>>,
    below_bytes: u64,
    content: Mutex<Content>,
    room: Arc<Room>,
}

#[derive(Default)]
struct Content {
    /// By their numbers.
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
    size_bytes: u64,
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} is not there", path.display()))
}

impl OverlayFiles {
    /// Over these files.
    pub fn new(below: Arc<dyn Files>) -> Self {
        Self {
            below,
            state: Mutex::default(),
            room: Arc::new(Room { pages: Mutex::new(0), is_sealed: AtomicBool::new(false) }),
        }
    }

    /// From now on everything that would change a file is an error.
    pub fn seal(&self) {
        self.room.is_sealed.store(true, Ordering::Release);
    }

    fn is_below(&self, path: &Path) -> bool {
        self.below.open(path, OpenMode::Read).is_ok()
    }

    /// A file for reading and writing over one below, or a new one.
    fn written(&self, below: Option<Arc<dyn File>>) -> io::Result<Arc<OverlayFile>> {
        let below_bytes = below.as_ref().map_or(Ok(0), |file| file.size_bytes())?;
        let content = Mutex::new(Content { size_bytes: below_bytes, ..Content::default() });
        Ok(Arc::new(OverlayFile { below, below_bytes, content, room: self.room.clone() }))
    }
}

impl Files for OverlayFiles {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.state.lock().directories.insert(path.to_owned());
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let below = self.below.list(directory);
        let state = self.state.lock();
        let mut names: BTreeSet<String> = match below {
            Ok(names) => names.into_iter().collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound && state.directories.contains(directory) => {
                BTreeSet::new()
            }
            Err(error) => return Err(error),
        };
        for (path, entry) in &state.files {
            let Some(name) = path.file_name().filter(|_| path.parent() == Some(directory)) else { continue };
            let name = name.to_string_lossy().into_owned();
            match entry {
                Entry::Removed => drop(names.remove(&name)),
                Entry::Renamed(_) | Entry::Written(_) => drop(names.insert(name)),
            }
        }
        let inner = state.directories.iter().filter(|inner| inner.parent() == Some(directory));
        names.extend(inner.filter_map(|inner| Some(inner.file_name()?.to_string_lossy().into_owned())));
        Ok(names.into_iter().collect())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        let at_below = match (state.files.get(path), mode) {
            (Some(Entry::Written(_) | Entry::Renamed(_)), OpenMode::CreateNew) => {
                return Err(io::Error::from(io::ErrorKind::AlreadyExists));
            }
            (Some(Entry::Written(file)), _) => return Ok(file.clone()),
            (Some(Entry::Removed), OpenMode::Read | OpenMode::Write) => return Err(not_found(path)),
            (Some(Entry::Renamed(from)), _) => from.clone(),
            (None, OpenMode::CreateNew) if self.is_below(path) => {
                return Err(io::Error::from(io::ErrorKind::AlreadyExists));
            }
            (None | Some(Entry::Removed), _) => path.to_owned(),
        };
        if mode != OpenMode::Read {
            self.room.check()?;
        }
        let file = match mode {
            OpenMode::Read => return self.below.open(&at_below, OpenMode::Read),
            OpenMode::Write => self.written(Some(self.below.open(&at_below, OpenMode::Read)?))?,
            OpenMode::CreateNew => self.written(None)?,
        };
        state.files.insert(path.to_owned(), Entry::Written(file.clone()));
        Ok(file)
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        let entry = self.state.lock().files.get(path).cloned();
        match entry {
            Some(Entry::Removed) => Err(not_found(path)),
            Some(Entry::Renamed(from)) => self.below.map(&from),
            Some(Entry::Written(file)) => {
                let mut bytes = vec![0; usize::try_from(file.size_bytes()?).map_err(io::Error::other)?];
                file.read_exact_at(&mut bytes, 0)?;
                Ok(Arc::new(bytes))
            }
            None => self.below.map(path),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.room.check()?;
        let mut state = self.state.lock();
        let moved = match state.files.get(from) {
            Some(Entry::Removed) => return Err(not_found(from)),
            Some(entry) => entry.clone(),
            None if self.is_below(from) => Entry::Renamed(from.to_owned()),
            None => return Err(not_found(from)),
        };
        state.files.insert(from.to_owned(), Entry::Removed);
        state.files.insert(to.to_owned(), moved);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.room.check()?;
        let mut state = self.state.lock();
        match state.files.get(path) {
            Some(Entry::Removed) => return Err(not_found(path)),
            None if !self.is_below(path) => return Err(not_found(path)),
            _ => {}
        }
        state.files.insert(path.to_owned(), Entry::Removed);
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn disk_space(&self, directory: &Path) -> io::Result<DiskSpace> {
        self.below.disk_space(directory)
    }

    /// Several may read, also while another process has the lock.
    fn lock(&self, _: &Path) -> Result<Box<dyn Send + Sync>, LockError> {
        Ok(Box::new(()))
    }
}

impl Room {
    fn check(&self) -> io::Result<()> {
        if self.is_sealed.load(Ordering::Acquire) {
            let message = "the folder is open for reading only";
            return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, message));
        }
        Ok(())
    }

    fn take(&self) -> io::Result<()> {
        let mut pages = self.pages.lock();
        if (*pages + 1) * PAGE_BYTES > OVERLAY_BYTES_MAX {
            let message = format!("more than {OVERLAY_BYTES_MAX} bytes are written over a folder that is only read");
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        *pages += 1;
        Ok(())
    }
}

impl Drop for OverlayFile {
    fn drop(&mut self) {
        let pages = self.content.lock().pages.len();
        *self.room.pages.lock() -= pages;
    }
}

/// A range of bytes, cut at pages: the page, where the piece begins in it, and its place in the range.
fn page_ranges(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let (page, within) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
        let piece = (PAGE_BYTES - within).min(length - done);
        done += piece;
        Some((page, within, done - piece..done))
    })
}

impl OverlayFile {
    /// The bytes below; zeros where there are none.
    fn read_below(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.fill(0);
        let there = self.below_bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        match (&self.below, buffer.get_mut(..there)) {
            (Some(below), Some(part)) if there > 0 => below.read_exact_at(part, offset),
            _ => Ok(()),
        }
    }
}

impl File for OverlayFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.content.lock();
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > content.size_bytes) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        for (page, within, range) in page_ranges(offset, buffer.len()) {
            let Some(part) = buffer.get_mut(range) else { continue };
            let written = content.pages.get(&page).and_then(|page| page.get(within..within + part.len()));
            match written {
                Some(written) => part.copy_from_slice(written),
                None => self.read_below(part, page * PAGE_BYTES as u64 + within as u64)?,
            }
        }
        Ok(())
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.room.check()?;
        let mut content = self.content.lock();
        for (page, within, range) in page_ranges(offset, data.len()) {
            let Some(part) = data.get(range) else { continue };
            let entry = match content.pages.entry(page) {
                btree_map::Entry::Occupied(known) => known.into_mut(),
                btree_map::Entry::Vacant(new) => {
                    let begin = page * PAGE_BYTES as u64;
                    // Zeros where nothing is need no room: logs are written ahead with them.
                    if begin >= self.below_bytes && part.iter().all(|byte| *byte == 0) {
                        continue;
                    }
                    self.room.take()?;
                    let mut fresh = Box::new([0; PAGE_BYTES]);
                    self.read_below(&mut *fresh, begin)?;
                    new.insert(fresh)
                }
            };
            if let Some(to) = entry.get_mut(within..within + part.len()) {
                to.copy_from_slice(part);
            }
        }
        content.size_bytes = content.size_bytes.max(offset + data.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.content.lock().size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::RealFiles;
    use crate::{read_file, write_file};

    #[test]
    fn what_is_below_stays_as_it_is() {
        let folder = std::env::temp_dir().join(format!("thalweg-overlay-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name);
        std::fs::write(path("a"), vec![7; 10_000]).unwrap();
        std::fs::write(path("b"), b"below").unwrap();
        let files = OverlayFiles::new(Arc::new(RealFiles));
        let content = |name: &str| read_file(&files, &path(name), 1 << 20);
        let file = files.open(&path("a"), OpenMode::Write).unwrap();
        file.write_all_at(&[1, 2], 4095).unwrap();
        file.write_all_at(&[3], 20_000).unwrap();
        let mut expected = vec![7; 10_000];
        expected.resize(20_001, 0);
        (expected[4095], expected[4096], expected[20_000]) = (1, 2, 3);
        assert_eq!(content("a").unwrap(), expected);
        assert_eq!(files.map(&path("a")).unwrap().bytes(), expected);
        files.rename(&path("b"), &path("c")).unwrap();
        assert_eq!(content("c").unwrap(), b"below");
        assert_eq!(content("b").unwrap_err().kind(), io::ErrorKind::NotFound);
        write_file(&files, &path("b"), b"over").unwrap();
        files.remove(&path("a")).unwrap();
        assert_eq!(files.remove(&path("a")).unwrap_err().kind(), io::ErrorKind::NotFound);
        files.create_directory(&path("inner")).unwrap();
        assert_eq!(files.list(&folder).unwrap(), ["b", "c", "inner"]);
        assert!(files.list(&path("inner")).unwrap().is_empty());
        let taken = files.open(&path("b"), OpenMode::CreateNew).err().unwrap();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        // Below nothing has changed.
        assert_eq!(RealFiles.list(&folder).unwrap(), ["a", "b"]);
        assert_eq!(std::fs::read(path("a")).unwrap(), vec![7; 10_000]);
        assert_eq!(std::fs::read(path("b")).unwrap(), b"below");
        files.seal();
        assert_eq!(files.remove(&path("c")).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(file.write_all_at(b"late", 0).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert!(write_file(&files, &path("d"), b"late").is_err());
        assert_eq!(content("c").unwrap(), b"below");
        drop((files.lock(&path("LOCK")).unwrap(), files.lock(&path("LOCK")).unwrap()));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn memory_is_bounded_and_zeros_take_none() {
        let files = OverlayFiles::new(Arc::new(RealFiles));
        let path = std::env::temp_dir().join(format!("thalweg-overlay-new-{}", std::process::id()));
        let file = files.open(&path, OpenMode::CreateNew).unwrap();
        let piece = vec![0; 1 << 20];
        for number in 0..1024 {
            file.write_all_at(&piece, number << 20).unwrap();
        }
        assert_eq!(file.size_bytes().unwrap(), 1 << 30);
        let piece = vec![1; 1 << 20];
        let refused = (0..1024).find_map(|number| file.write_all_at(&piece, number << 20).err());
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::StorageFull);
        drop(file);
        files.remove(&path).unwrap();
        let again = files.open(&path, OpenMode::CreateNew).unwrap();
        again.write_all_at(&piece, 0).unwrap();
        assert!(!path.exists());
    }
}
