//! The flash file: a first page, two lists of deletes, slots for slabs. Layout: `docs/formats/slab.md`.

mod buffer;
pub(crate) mod pool;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use codec::{DecodeError, Reader};
use platform::{AlignedBytes, DIRECT_ALIGN_BYTES, File, OpenMode, Platform};

use crate::{Key, Span};

use buffer::PageBuffer;

/// What a cache's file begins with.
pub const FILE_MAGIC: [u8; 8] = *b"THWGCACH";
const VERSION: u32 = 1;
const PAGE_BYTES: u64 = DIRECT_ALIGN_BYTES as u64;
/// Bytes of one delete.
const DELETE_BYTES: usize = 64;
/// Pages of one of the two lists of deletes.
const DELETE_PAGES: u64 = 127;
/// Deletes that one list has room for.
pub(crate) const DELETES_MAX: usize = DELETE_PAGES as usize * DIRECT_ALIGN_BYTES / DELETE_BYTES;
/// Where the slots begin.
const SLOTS_OFFSET: u64 = 1 << 20;
/// Pages that are read once more, although they are in memory, to make one read of two.
const GAP_PAGES_MAX: usize = 8;

/// What a key no longer answers for: intervals of the span set up to the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delete {
    pub(crate) key: Key,
    pub(crate) span: Span,
    pub(crate) sequence: u64,
}

/// The state of the file that its first page tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) slab_bytes: u32,
    /// Slabs and deletes of another incarnation are none.
    pub(crate) incarnation: u64,
    /// Which of the two lists of deletes holds.
    pub(crate) list: u8,
}

impl Superblock {
    fn encode(&self) -> Vec<u8> {
        let mut out = FILE_MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.slab_bytes.to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.push(self.list);
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    fn decode(page: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(page);
        let checked = reader.bytes(25).ok()?;
        if reader.u32().ok()? != crc32c::crc32c(checked) {
            return None;
        }
        let mut reader = Reader::new(checked);
        if reader.array().ok()? != FILE_MAGIC || reader.u32().ok()? != VERSION {
            return None;
        }
        let (slab_bytes, incarnation) = (reader.u32().ok()?, reader.u64().ok()?);
        Some(Self { slab_bytes, incarnation, list: reader.byte().ok()? & 1 })
    }
}

impl Delete {
    fn encode(&self, incarnation: u64) -> [u8; DELETE_BYTES] {
        let mut out = self.key.0.to_vec();
        for number in [self.span.start as u64, self.span.end as u64, self.sequence, incarnation] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.resize(DELETE_BYTES, 0);
        out.try_into().unwrap_or([0; DELETE_BYTES])
    }

    /// Reads one. `None` if there is none, or one of another incarnation.
    fn decode(bytes: &[u8], incarnation: u64) -> Result<Option<Self>, DecodeError> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut reader = Reader::new(bytes);
        let checked = reader.bytes(52)?;
        if reader.u32()? != crc32c::crc32c(checked) {
            return Err(reader.error("the checksum of a delete does not match"));
        }
        let mut reader = Reader::new(checked);
        let key = Key(reader.array()?);
        let (start, end, sequence) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let span = Span::new(start as i64, end as i64);
        Ok((reader.u64()? == incarnation).then_some(Self { key, span, sequence }))
    }
}

/// The open file.
pub(crate) struct Flash {
    file: Arc<dyn File>,
    slab_bytes: u64,
    /// Pages of slots that were read lately.
    pub(crate) buffer: PageBuffer,
    pub(crate) reads: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

impl Flash {
    /// Opens the file or makes it; what is in a file of another shape is given up.
    pub(crate) fn open(
        platform: &Platform,
        path: &Path,
        slab_bytes: usize,
        buffer_bytes_max: usize,
    ) -> io::Result<(Self, Superblock)> {
        let file = match platform.files.open_direct(path, OpenMode::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = platform.files.open_direct(path, OpenMode::CreateNew)?;
                // A bare name has an empty parent: the working directory.
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                platform.files.sync_directory(folder.unwrap_or(Path::new(".")))?;
                file
            }
            opened => opened?,
        };
        let flash = Self {
            file,
            slab_bytes: slab_bytes as u64,
            buffer: PageBuffer::new(buffer_bytes_max),
            reads: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        };
        let found = flash.read(0, DIRECT_ALIGN_BYTES).ok().and_then(|page| Superblock::decode(&page));
        if let Some(superblock) = found.filter(|found| found.slab_bytes as usize == slab_bytes) {
            return Ok((flash, superblock));
        }
        let superblock = Superblock { slab_bytes: slab_bytes as u32, incarnation: new_incarnation(platform)?, list: 0 };
        flash.write_superblock(&superblock)?;
        Ok((flash, superblock))
    }

    /// Makes a first page hold, durably. Its content is shorter than a sector, so that a crash leaves the old one or the new one.
    pub(crate) fn write_superblock(&self, superblock: &Superblock) -> io::Result<()> {
        self.write_page(0, &superblock.encode())?;
        self.file.sync_data()
    }

    /// How many slots fit into so many bytes of file.
    pub(crate) fn slots(bytes: u64, slab_bytes: usize) -> usize {
        (bytes.saturating_sub(SLOTS_OFFSET) / slab_bytes as u64).min(u64::from(u32::MAX) - 1) as usize
    }

    /// Reads from a slot; offset and length are widened to whole pages, and the bytes asked for are the range that is returned. What is in
    /// memory is not read again.
    pub(crate) fn read_slot(&self, slot: u32, offset: u32, len: u32) -> io::Result<(AlignedBytes, Range<usize>)> {
        self.read_pages(slot, (offset, len), true)
    }

    /// Reads bytes of a slot that will hardly be read again: they do not come into memory.
    pub(crate) fn read_slot_once(&self, slot: u32, offset: u32, len: u32) -> io::Result<(AlignedBytes, Range<usize>)> {
        self.read_pages(slot, (offset, len), false)
    }

    fn read_pages(
        &self,
        slot: u32,
        (offset, len): (u32, u32),
        keeps: bool,
    ) -> io::Result<(AlignedBytes, Range<usize>)> {
        let pages = self.pages(slot, offset, len)?;
        let mut bytes = AlignedBytes::zeroed((pages.end - pages.start) as usize * DIRECT_ALIGN_BYTES);
        let looked = self.buffer.copy(pages.start, &mut bytes);
        for run in looked.missing.chunk_by(|a, b| b.start <= a.end + GAP_PAGES_MAX) {
            let first = run.first().map_or(0, |run| run.start);
            let end = run.last().map_or(0, |run| run.end);
            let part = bytes.get_mut(first * DIRECT_ALIGN_BYTES..end * DIRECT_ALIGN_BYTES).unwrap_or_default();
            let first = pages.start + first as u64;
            self.read_at(first * PAGE_BYTES, part)?;
            if keeps {
                self.buffer.insert(looked.writes, first, part);
            }
        }
        let inside = (u64::from(offset) % PAGE_BYTES) as usize;
        Ok((bytes, inside..inside + len as usize))
    }

    /// Whether a part of a slot is in memory.
    pub(crate) fn has_in_memory(&self, slot: u32, offset: u32, len: u32) -> bool {
        self.pages(slot, offset, len).is_ok_and(|pages| self.buffer.holds(pages))
    }

    /// The pages of the file that a part of a slot lies in.
    fn pages(&self, slot: u32, offset: u32, len: u32) -> io::Result<Range<u64>> {
        let start = u64::from(offset) / PAGE_BYTES;
        let end = (u64::from(offset) + u64::from(len)).div_ceil(PAGE_BYTES);
        if end * PAGE_BYTES > self.slab_bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a place behind the end of its slab"));
        }
        let first = self.slot_offset(slot) / PAGE_BYTES;
        Ok(first + start..first + end)
    }

    /// Writes a slab. Nothing waits for the device: what a crash tears is found out by its checksums.
    pub(crate) fn write_slot(&self, slot: u32, bytes: &AlignedBytes) -> io::Result<()> {
        let written = self.write(self.slot_offset(slot), bytes);
        // Also if that failed: its content is unknown then.
        self.forget_pages(slot);
        written
    }

    /// Makes that nothing lies in a slot: its first page is no head of a slab.
    pub(crate) fn erase_slot(&self, slot: u32) -> io::Result<()> {
        let written = self.write_page(self.slot_offset(slot), &[]);
        self.forget_pages(slot);
        written
    }

    fn forget_pages(&self, slot: u32) {
        let first = self.slot_offset(slot) / PAGE_BYTES;
        self.buffer.forget(first..first + self.slab_bytes / PAGE_BYTES);
    }

    /// Returns when everything that was written is durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Reads the list of deletes, up to the first place that holds none. `None` if it is damaged: then it is unknown what slabs must
    /// not say any more.
    pub(crate) fn read_deletes(&self, superblock: &Superblock) -> io::Result<Option<Vec<Delete>>> {
        let mut found = Vec::new();
        for page in 0..DELETE_PAGES {
            let bytes = match self.read(list_offset(superblock.list) + page * PAGE_BYTES, DIRECT_ALIGN_BYTES) {
                // A file that ends here has no more of them.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                read => read?,
            };
            for bytes in bytes.chunks_exact(DELETE_BYTES) {
                match Delete::decode(bytes, superblock.incarnation) {
                    Ok(Some(delete)) => found.push(delete),
                    Ok(None) => return Ok(Some(found)),
                    Err(_) => return Ok(None),
                }
            }
        }
        Ok(Some(found))
    }

    /// Appends the last of the deletes to the list, durably. The others are those that stand before it: their bytes on the page
    /// do not change.
    pub(crate) fn append_delete(&self, superblock: &Superblock, deletes: &[Delete]) -> io::Result<()> {
        let per_page = DIRECT_ALIGN_BYTES / DELETE_BYTES;
        let page = deletes.len().saturating_sub(1) / per_page;
        let on_page = deletes.get(page * per_page..).unwrap_or_default();
        let bytes: Vec<u8> = on_page.iter().flat_map(|delete| delete.encode(superblock.incarnation)).collect();
        self.write_page(list_offset(superblock.list) + page as u64 * PAGE_BYTES, &bytes)?;
        self.file.sync_data()
    }

    /// Writes all deletes to the other list and makes that one hold. Everything written before is durable then.
    pub(crate) fn replace_deletes(&self, superblock: &mut Superblock, deletes: &[Delete]) -> io::Result<()> {
        let per_page = DIRECT_ALIGN_BYTES / DELETE_BYTES;
        let new = Superblock { list: 1 - superblock.list, ..*superblock };
        // One page more, empty, ends the list whatever lay there.
        for page in 0..=(deletes.len() / per_page).min(DELETE_PAGES as usize - 1) {
            let on_page = deletes.iter().skip(page * per_page).take(per_page);
            let bytes: Vec<u8> = on_page.flat_map(|delete| delete.encode(new.incarnation)).collect();
            self.write_page(list_offset(new.list) + page as u64 * PAGE_BYTES, &bytes)?;
        }
        self.file.sync_data()?;
        self.write_superblock(&new)?;
        *superblock = new;
        Ok(())
    }

    fn slot_offset(&self, slot: u32) -> u64 {
        SLOTS_OFFSET + u64::from(slot) * self.slab_bytes
    }

    fn write_page(&self, offset: u64, content: &[u8]) -> io::Result<()> {
        let mut page = AlignedBytes::zeroed(DIRECT_ALIGN_BYTES);
        page.iter_mut().zip(content).for_each(|(to, from)| *to = *from);
        self.write(offset, &page)
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<AlignedBytes> {
        let mut bytes = AlignedBytes::zeroed(len);
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &AlignedBytes) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        self.bytes_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// A number that no other state of a file has.
pub(crate) fn new_incarnation(platform: &Platform) -> io::Result<u64> {
    let mut bytes = [0; 8];
    platform.random.fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn list_offset(list: u8) -> u64 {
    PAGE_BYTES + u64::from(list) * DELETE_PAGES * PAGE_BYTES
}
