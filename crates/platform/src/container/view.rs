//! A container that is read while another process may write it. Blocks that are read may have been given to another file meanwhile: after each
//! read it is looked up whether the file still has them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tracing_mutex::parkinglot::Mutex;

use super::directory::BlockRun;
use super::engine::names_in;
use super::inode::pieces_of;
use super::load::{LoadedContainer, load, read_head};
use crate::{File, Files, Mapped, MappedFile, OpenMode};

/// How often a container is read again whose directory was written meanwhile.
const ATTEMPTS: usize = 8;

/// A container, as it was committed last.
pub(super) struct ContainerView {
    file: Arc<dyn File>,
    loaded: Mutex<LoadedContainer>,
}

fn load_settled(file: &dyn File) -> io::Result<LoadedContainer> {
    let mut loaded = load(file);
    for _ in 1..ATTEMPTS {
        if loaded.is_ok() {
            break;
        }
        loaded = load(file);
    }
    loaded
}

impl ContainerView {
    pub(super) fn open(files: &dyn Files, path: &Path) -> io::Result<Self> {
        let file = files.open(path, OpenMode::Read)?;
        let loaded = load_settled(&*file)?;
        Ok(Self { file, loaded: Mutex::new(loaded) })
    }

    /// Takes over what was committed since.
    fn refresh(&self, loaded: &mut LoadedContainer) -> io::Result<()> {
        let head = read_head(&*self.file)?;
        if head.generation == loaded.head.generation && !loaded.read_on(&*self.file).unwrap_or(true) {
            return Ok(());
        }
        *loaded = load_settled(&*self.file)?;
        Ok(())
    }

    pub(super) fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut loaded = self.loaded.lock();
        self.refresh(&mut loaded)?;
        Ok(names_in(folder, loaded.directory.names.keys()))
    }

    pub(super) fn open_file(self: &Arc<Self>, name: &str) -> io::Result<ViewedFile> {
        let mut loaded = self.loaded.lock();
        self.refresh(&mut loaded)?;
        let id = loaded.directory.names.get(name).copied();
        let found = id.and_then(|id| Some((id, loaded.directory.files.get(&id)?)));
        let (id, entry) = found.ok_or_else(|| gone(name))?;
        let (bytes, runs) = (entry.bytes, entry.runs.clone());
        Ok(ViewedFile { view: self.clone(), name: name.to_owned(), id, bytes, runs })
    }
}

fn gone(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {name}"))
}

/// A file of a container that is only read.
pub(super) struct ViewedFile {
    view: Arc<ContainerView>,
    name: String,
    id: u64,
    bytes: u64,
    runs: Vec<BlockRun>,
}

impl ViewedFile {
    /// An error if another file may have had the blocks while they were read.
    fn check(&self) -> io::Result<()> {
        let mut loaded = self.view.loaded.lock();
        self.view.refresh(&mut loaded)?;
        let has = |(known, run): (&BlockRun, &BlockRun)| known.start == run.start && known.blocks >= run.blocks;
        match loaded.directory.files.get(&self.id) {
            Some(entry) if entry.runs.len() >= self.runs.len() && entry.runs.iter().zip(&self.runs).all(has) => Ok(()),
            _ => Err(gone(&self.name)),
        }
    }

    pub(super) fn map(self) -> io::Result<Mapped> {
        let pieces = pieces_of(&self.runs, 0, self.bytes);
        if pieces.is_empty() {
            return Ok(Arc::new(Vec::new()));
        }
        let pieces: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.offset, piece.bytes)).collect();
        let map = self.view.file.map_pieces(&pieces)?;
        self.check()?;
        Ok(Arc::new(ViewedMap { map, file: self }))
    }
}

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the one-file database is not locked: it is only read")
}

impl File for ViewedFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.bytes);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut rest = buffer;
        for piece in pieces_of(&self.runs, offset, rest.len() as u64) {
            let (part, after) = rest.split_at_mut(piece.bytes as usize);
            self.view.file.read_exact_at(part, piece.offset)?;
            rest = after;
        }
        self.check()
    }

    fn write_all_at(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }
}

struct ViewedMap {
    map: Mapped,
    file: ViewedFile,
}

impl MappedFile for ViewedMap {
    fn bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    fn is_readable(&self) -> bool {
        self.map.is_readable() && self.file.check().is_ok()
    }
}
