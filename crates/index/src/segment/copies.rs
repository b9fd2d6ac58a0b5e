//! A segment's bytes. Each block is checked against its checksum when it is first read, and where a block is damaged a second copy of the
//! file takes over.
//!
//! A copy may be a mapped file. Where the system cannot read one of its pages, zeros stand there and [`SegmentCopy::is_readable`] turns
//! false, also for blocks that were checked before: readers ask after they have read ([`Copies::confirm`]).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use codec::DecodeError;

use super::{HEADER_BYTES, directory_place, slice};

const DAMAGED: &str = "checksum of the block that begins here does not match";
const UNREADABLE: &str = "a page of the mapped file could not be read";

/// One copy of a segment's file.
pub trait SegmentCopy: Send + Sync {
    /// All bytes of the file.
    fn bytes(&self) -> &[u8];

    /// Returns whether every byte that was read so far is what the file holds.
    fn is_readable(&self) -> bool {
        true
    }
}

impl SegmentCopy for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// The bytes of a segment: a mapped file, or a copy in memory.
pub type SegmentBytes = Arc<dyn SegmentCopy>;

/// Finds a second copy of a segment's file once the first turns out to be damaged.
pub trait SegmentTwin: Send + Sync {
    /// Opens the second copy because the first is damaged at an offset; `None` if there is none.
    fn open(&self, offset: u64, what: &'static str) -> Option<SegmentBytes>;
}

/// The file of a segment, and where a second one comes from.
pub(crate) struct Copies {
    first: Checked,
    second: OnceLock<Checked>,
    twin: Option<Box<dyn SegmentTwin>>,
}

/// One copy, with what is known of its blocks.
struct Checked {
    bytes: SegmentBytes,
    block_bytes: usize,
    /// Where the blocks end and the directory begins.
    end: usize,
    checksums: Arc<[u32]>,
    /// A bit for each block that was found whole.
    whole: Box<[AtomicU64]>,
}

impl Copies {
    /// The checksums are those of the directory, of blocks of so many bytes.
    pub(crate) fn new(
        bytes: SegmentBytes,
        block_bytes: usize,
        checksums: Arc<[u32]>,
        twin: Option<Box<dyn SegmentTwin>>,
    ) -> Result<Self, DecodeError> {
        let end = directory_place(bytes.bytes())?.0;
        Ok(Self { first: Checked::new(bytes, block_bytes, end, checksums), second: OnceLock::new(), twin })
    }

    /// Takes all blocks for whole: for fuzzing what is behind the checksums.
    pub(crate) fn trust(&self) {
        self.first.whole.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    }

    /// All bytes of the copy in use, unchecked.
    pub(crate) fn unchecked(&self) -> &[u8] {
        self.current().bytes.bytes()
    }

    /// Bytes at an offset of the file, checked.
    pub(crate) fn get(&self, offset: u64, length: u64) -> Result<&[u8], DecodeError> {
        let current = self.current();
        let found = slice(current.bytes.bytes(), offset, length)?;
        match current.check(offset as usize..offset as usize + found.len()) {
            Ok(()) => Ok(found),
            Err(error) => {
                let second = self.fall_back(&error)?;
                let found = slice(second.bytes.bytes(), offset, length)?;
                second.check(offset as usize..offset as usize + found.len())?;
                Ok(found)
            }
        }
    }

    /// The number at an offset.
    pub(crate) fn u32_at(&self, offset: u64) -> Result<u32, DecodeError> {
        let found = self.get(offset, 4)?;
        Ok(found.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    /// A range of the file whose offsets count from its beginning.
    pub(crate) const fn window(&self, start: u64, length: u64) -> Window<'_> {
        Window { copies: self, start, length }
    }

    /// To be called after reading: whether what was read stood in the file. `Ok(false)` means that a second copy is in use now and the read
    /// must be repeated.
    pub(crate) fn confirm(&self) -> Result<bool, DecodeError> {
        if self.current().bytes.is_readable() {
            return Ok(true);
        }
        self.fall_back(&DecodeError { offset: 0, what: UNREADABLE }).map(|_| false)
    }

    /// Reads every block of the copy in use, also of those that were read before, and never another copy.
    pub(crate) fn check_all(&self) -> Result<(), DecodeError> {
        let current = self.current();
        (0..current.checksums.len()).try_for_each(|block| current.check_block(block))?;
        if current.blocks_of(HEADER_BYTES..current.end).end != current.checksums.len() {
            return Err(DecodeError { offset: HEADER_BYTES, what: "as many checksums as there are blocks" });
        }
        Ok(())
    }

    fn current(&self) -> &Checked {
        self.second.get().unwrap_or(&self.first)
    }

    /// The second copy, opened if need be; the error if there is none, or if it is the one that is damaged.
    #[cold]
    fn fall_back(&self, error: &DecodeError) -> Result<&Checked, DecodeError> {
        if self.second.get().is_none() {
            // One that could not be opened now may be there later.
            let bytes = self.twin.as_ref().and_then(|twin| twin.open(error.offset as u64, error.what));
            let bytes = bytes.ok_or_else(|| error.clone())?;
            let first = &self.first;
            // A copy of the same file has the same directory, byte for byte.
            let directory = |bytes: &SegmentBytes| bytes.bytes().get(first.end..).map(<[u8]>::to_vec);
            let has_same_length = bytes.bytes().len() == first.bytes.bytes().len();
            if !has_same_length || directory(&bytes) != directory(&first.bytes) {
                return Err(error.clone());
            }
            // Another thread may have been quicker.
            let _ = self.second.set(Checked::new(bytes, first.block_bytes, first.end, first.checksums.clone()));
        }
        self.second.get().filter(|second| second.bytes.is_readable()).ok_or_else(|| error.clone())
    }
}

impl Checked {
    fn new(bytes: SegmentBytes, block_bytes: usize, end: usize, checksums: Arc<[u32]>) -> Self {
        let mut whole = Vec::new();
        whole.resize_with(checksums.len().div_ceil(64), AtomicU64::default);
        Self { bytes, block_bytes, end, checksums, whole: whole.into_boxed_slice() }
    }

    /// Blocks that a range of the file touches; header and directory belong to none.
    fn blocks_of(&self, range: Range<usize>) -> Range<usize> {
        let start = range.start.max(HEADER_BYTES);
        let end = range.end.min(self.end);
        if start >= end {
            return 0..0;
        }
        (start - HEADER_BYTES) / self.block_bytes..(end - 1 - HEADER_BYTES) / self.block_bytes + 1
    }

    #[inline]
    fn check(&self, range: Range<usize>) -> Result<(), DecodeError> {
        for block in self.blocks_of(range) {
            let is_whole =
                self.whole.get(block / 64).is_some_and(|word| word.load(Ordering::Relaxed) >> (block % 64) & 1 == 1);
            if !is_whole {
                self.check_block(block)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn check_block(&self, block: usize) -> Result<(), DecodeError> {
        let start = HEADER_BYTES + block * self.block_bytes;
        let damaged = DecodeError { offset: start, what: DAMAGED };
        let end = (start + self.block_bytes).min(self.end);
        let (Some(bytes), Some(expected)) = (self.bytes.bytes().get(start..end), self.checksums.get(block)) else {
            return Err(damaged);
        };
        if crc32c::crc32c(bytes) != *expected || !self.bytes.is_readable() {
            return Err(damaged);
        }
        if let Some(word) = self.whole.get(block / 64) {
            word.fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A range of a segment's file.
#[derive(Clone, Copy)]
pub(crate) struct Window<'a> {
    copies: &'a Copies,
    start: u64,
    length: u64,
}

impl<'a> Window<'a> {
    pub(crate) const fn len(&self) -> u64 {
        self.length
    }

    /// Bytes at an offset of the window, checked.
    pub(crate) fn get(&self, offset: u64, length: u64) -> Result<&'a [u8], DecodeError> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(DecodeError { offset: offset as usize, what: "points beyond the end" });
        }
        self.copies.get(self.start.saturating_add(offset), length)
    }

    /// The number at an offset of the window.
    pub(crate) fn u32_at(&self, offset: u64) -> Result<u32, DecodeError> {
        let found = self.get(offset, 4)?;
        Ok(found.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use model::Labels;

    use super::*;
    use crate::{Groups, IndexError, Segment};

    /// A copy whose pages can be said not to be readable any more.
    struct Copy {
        bytes: Vec<u8>,
        readable: Arc<AtomicBool>,
    }

    impl SegmentCopy for Copy {
        fn bytes(&self) -> &[u8] {
            &self.bytes
        }

        fn is_readable(&self) -> bool {
            self.readable.load(Ordering::SeqCst)
        }
    }

    struct Twin {
        bytes: Vec<u8>,
        opened: Arc<AtomicUsize>,
    }

    impl SegmentTwin for Twin {
        fn open(&self, _offset: u64, _what: &'static str) -> Option<SegmentBytes> {
            self.opened.fetch_add(1, Ordering::SeqCst);
            Some(Arc::new(self.bytes.clone()))
        }
    }

    const GROUPS: u32 = 12_000;

    fn labels(number: u32) -> Labels {
        Labels::from_pairs([("host", format!("alpha-{number}")), ("job", "x".to_owned())]).unwrap()
    }

    fn written() -> Vec<u8> {
        let mut groups = Groups::with_hash_seed(3);
        for number in 0..GROUPS {
            groups.register(0, number % 3, &labels(number), &[0]).unwrap();
        }
        let mut bytes = Vec::new();
        groups.freeze().unwrap().write(&mut bytes).unwrap();
        bytes
    }

    /// Reads all groups, each found again by its labels.
    fn read_all(segment: Segment) -> Result<(), IndexError> {
        let groups = Groups::open(vec![segment], 0)?;
        for number in (0..GROUPS).step_by(7) {
            assert_eq!(groups.get(number)?.unwrap().labels, labels(number));
            assert_eq!(groups.find(0, number % 3, &labels(number))?, Some(number));
        }
        Ok(())
    }

    #[test]
    fn a_damaged_block_is_never_served_and_the_second_copy_takes_over() {
        let bytes = written();
        let end = directory_place(&bytes).unwrap().0;
        assert!(end > super::super::CHECKED_BYTES, "there are several blocks");
        let mut damaged_reads = 0;
        for place in (HEADER_BYTES..end).step_by(1 + end / 60) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 2;
            let alone = Segment::open(1, Arc::new(damaged.clone())).unwrap();
            damaged_reads += usize::from(read_all(alone).is_err());
            let opened = Arc::new(AtomicUsize::new(0));
            let twin = Box::new(Twin { bytes: bytes.clone(), opened: opened.clone() });
            let segment = Segment::open_with_twin(1, Arc::new(damaged), Some(twin)).unwrap();
            read_all(segment).unwrap();
            assert!(opened.load(Ordering::SeqCst) <= 1);
        }
        assert!(damaged_reads > 30, "{damaged_reads}");
    }

    #[test]
    fn a_page_that_cannot_be_read_any_more_is_an_error_or_read_from_the_second_copy() {
        let bytes = written();
        let open = |readable: &Arc<AtomicBool>, twin: Option<Box<dyn SegmentTwin>>| {
            let copy = Copy { bytes: bytes.clone(), readable: readable.clone() };
            let segment = Segment::open_with_twin(1, Arc::new(copy), twin).unwrap();
            segment.verify().unwrap();
            readable.store(false, Ordering::SeqCst);
            segment
        };
        let readable = Arc::new(AtomicBool::new(true));
        assert!(read_all(open(&readable, None)).is_err());
        readable.store(true, Ordering::SeqCst);
        let opened = Arc::new(AtomicUsize::new(0));
        let twin = Twin { bytes: bytes.clone(), opened: opened.clone() };
        read_all(open(&readable, Some(Box::new(twin)))).unwrap();
        assert_eq!(opened.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_copy_of_another_file_does_not_take_over() {
        let bytes = written();
        let mut damaged = bytes.clone();
        damaged[HEADER_BYTES + 100] ^= 1;
        let mut other = bytes;
        let end = other.len() - 40;
        other[end] ^= 1;
        let twin = Box::new(Twin { bytes: other, opened: Arc::default() });
        assert!(Segment::open_with_twin(1, Arc::new(damaged), Some(twin)).unwrap().verify().is_err());
    }
}
