//! Handles and maps of the files in a container.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::OpenContainer;
use super::grow::WriteKind;
use super::inode::{BytePiece, InnerInode};
use crate::{File, Mapped, MappedFile, OpenMode};

/// An open file in a container.
pub(super) struct InnerFile {
    container: Arc<OpenContainer>,
    inode: Arc<InnerInode>,
    kind: WriteKind,
    is_writable: bool,
}

impl InnerFile {
    pub(super) fn new(container: Arc<OpenContainer>, inode: Arc<InnerInode>, kind: WriteKind, mode: OpenMode) -> Self {
        let is_writable = mode != OpenMode::Read;
        if is_writable {
            inode.writers.fetch_add(1, Ordering::AcqRel);
        }
        Self { container, inode, kind, is_writable }
    }

    fn write(&self, kind: WriteKind, data: &[u8], offset: u64) -> io::Result<bool> {
        if !self.is_writable {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file was opened for reading"));
        }
        self.container.write(&self.inode, kind, data, offset)
    }
}

impl Drop for InnerFile {
    fn drop(&mut self) {
        if self.is_writable && self.inode.writers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.container.end_growth(&self.inode);
        }
    }
}

impl File for InnerFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.container.read(&self.inode, self.kind, buffer, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write(self.kind, data, offset).map(drop)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.container.sync(&self.inode)
    }

    fn write_durable_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let has_grown = self.write(self.kind, data, offset)?;
        if has_grown || self.kind != WriteKind::Durable { self.sync_data() } else { Ok(()) }
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.inode.bytes())
    }

    fn is_cached(&self, offset: u64) -> bool {
        self.inode.single_offset(offset, 1).is_none_or(|place| self.container.base.cached.is_cached(place))
    }

    fn will_need(&self, offset: u64, bytes: u64) {
        let bytes = bytes.min(self.inode.bytes().saturating_sub(offset));
        for BytePiece { offset, bytes } in self.inode.ranges(offset, bytes).unwrap_or_default() {
            self.container.base.cached.will_need(offset, bytes);
        }
    }
}

/// A mapped file of a container, whose blocks nothing else gets meanwhile.
struct InnerMap {
    map: Mapped,
    _inode: Arc<InnerInode>,
}

impl MappedFile for InnerMap {
    fn bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    fn is_readable(&self) -> bool {
        self.map.is_readable()
    }
}

/// The bytes of a file.
pub(super) fn map(container: &OpenContainer, inode: Arc<InnerInode>) -> io::Result<Mapped> {
    let pieces = inode.ranges(0, inode.bytes()).unwrap_or_default();
    if pieces.is_empty() {
        return Ok(Arc::new(Vec::new()));
    }
    let pieces: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.offset, piece.bytes)).collect();
    Ok(Arc::new(InnerMap { map: container.base.cached.map_pieces(&pieces)?, _inode: inode }))
}
