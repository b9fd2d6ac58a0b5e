//! Pages of the flash file that were read lately, in memory: what is hit again is not read again. Pages are compressed as they lie on flash, so
//! that a byte of this holds many times the points that a byte of answers does. What it gives is checked like what is read from the file.

use std::collections::HashMap;
use std::ops::Range;

use platform::DIRECT_ALIGN_BYTES;
use tracing_mutex::parkinglot::Mutex;

const PAGE_BYTES: usize = DIRECT_ALIGN_BYTES;
/// What a page costs beside its bytes: its frame, its index in the map.
const FRAME_BYTES: usize = 64;

/// A page in memory.
#[derive(Debug)]
struct Frame {
    /// Its number in the file.
    page: u64,
    bytes: Box<[u8]>,
    /// Whether it was asked for since the hand last passed.
    is_read: bool,
}

#[derive(Debug, Default)]
struct Inner {
    frames: Vec<Frame>,
    frame_indexes: HashMap<u64, usize>,
    hand: usize,
    /// How often pages were written: what was read before the last time may be what they were.
    writes: u64,
    hits: u64,
}

/// Pages by their number in the file, of so many bytes at most. Who was not asked for since the hand came by goes first.
#[derive(Debug)]
pub(crate) struct PageBuffer {
    inner: Mutex<Inner>,
    frames_max: usize,
}

/// What a look into the buffer gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Runs of pages that are not there, counted from the first that was asked for.
    pub(crate) missing: Vec<Range<usize>>,
    /// For [`PageBuffer::insert`].
    pub(crate) writes: u64,
}

impl PageBuffer {
    /// Of so many bytes; 0 for none at all.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { inner: Mutex::default(), frames_max: bytes_max / (PAGE_BYTES + FRAME_BYTES) }
    }

    /// Copies the pages that are there to where they belong in `to`, whose first page is `first`.
    pub(crate) fn copy(&self, first: u64, to: &mut [u8]) -> Looked {
        let mut missing: Vec<Range<usize>> = Vec::new();
        let mut inner = self.inner.lock();
        for (number, page) in to.chunks_exact_mut(PAGE_BYTES).enumerate() {
            let index = inner.frame_indexes.get(&(first + number as u64)).copied();
            if let Some(frame) = index.and_then(|index| inner.frames.get_mut(index)) {
                page.copy_from_slice(&frame.bytes);
                frame.is_read = true;
                inner.hits += 1;
                continue;
            }
            match missing.last_mut().filter(|run| run.end == number) {
                Some(run) => run.end += 1,
                None => missing.push(number..number + 1),
            }
        }
        Looked { missing, writes: inner.writes }
    }

    /// Whether all of so many pages are there.
    pub(crate) fn holds(&self, pages: Range<u64>) -> bool {
        let inner = self.inner.lock();
        pages.into_iter().all(|page| inner.frame_indexes.contains_key(&page))
    }

    /// Keeps pages that were read after a look, unless any was written meanwhile.
    pub(crate) fn insert(&self, writes: u64, first: u64, bytes: &[u8]) {
        let mut inner = self.inner.lock();
        if inner.writes != writes || self.frames_max == 0 {
            return;
        }
        for (page, bytes) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            inner.insert(page, bytes, self.frames_max);
        }
    }

    /// Says that pages were written.
    pub(crate) fn forget(&self, pages: Range<u64>) {
        let mut inner = self.inner.lock();
        inner.writes += 1;
        for page in pages {
            if let Some(index) = inner.frame_indexes.remove(&page) {
                inner.frames.swap_remove(index);
                if let Some(moved) = inner.frames.get(index).map(|frame| frame.page) {
                    inner.frame_indexes.insert(moved, index);
                }
            }
        }
    }

    /// Pages that were asked for and were there, and the bytes of all that are.
    pub(crate) fn stats(&self) -> (u64, usize) {
        let inner = self.inner.lock();
        (inner.hits, inner.frames.len() * (PAGE_BYTES + FRAME_BYTES))
    }
}

impl Inner {
    fn insert(&mut self, page: u64, bytes: &[u8], frames_max: usize) {
        if self.frame_indexes.contains_key(&page) {
            return;
        }
        if self.frames.len() < frames_max {
            self.frame_indexes.insert(page, self.frames.len());
            self.frames.push(Frame { page, bytes: bytes.into(), is_read: false });
            return;
        }
        // The second round finds all marks taken away.
        for _ in 0..=2 * self.frames.len() {
            let index = self.hand % self.frames.len().max(1);
            self.hand = index + 1;
            let Some(frame) = self.frames.get_mut(index) else { return };
            if !std::mem::take(&mut frame.is_read) {
                self.frame_indexes.remove(&frame.page);
                frame.page = page;
                frame.bytes.copy_from_slice(bytes);
                self.frame_indexes.insert(page, index);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn page(number: u64, version: u64) -> Vec<u8> {
        [number, version].iter().flat_map(|part| part.to_le_bytes()).cycle().take(PAGE_BYTES).collect()
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// Reads pages, and keeps what was read before or after a write of others that comes between.
        Read {
            first: u64,
            count: u64,
            written_between: Option<u64>,
        },
        Write {
            first: u64,
            count: u64,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        let read = (0u64..20, 1u64..6, prop::option::weighted(0.2, 0u64..24));
        prop_oneof![
            4 => read.prop_map(|(first, count, written_between)| Step::Read { first, count, written_between }),
            1 => (0u64..20, 1u64..6).prop_map(|(first, count)| Step::Write { first, count }),
        ]
    }

    proptest! {
        #[test]
        fn pages_are_what_was_written_last(frames in 0usize..12, steps in prop::collection::vec(step(), 1..80)) {
            let buffer = PageBuffer::new(frames * (PAGE_BYTES + FRAME_BYTES));
            let mut versions: BTreeMap<u64, u64> = BTreeMap::new();
            let version = |versions: &BTreeMap<u64, u64>, number| versions.get(&number).copied().unwrap_or(0);
            let file = |versions: &BTreeMap<u64, u64>, first, count| -> Vec<u8> {
                (first..first + count).flat_map(|number| page(number, version(versions, number))).collect()
            };
            let write = |versions: &mut BTreeMap<u64, u64>, first, count| {
                (first..first + count).for_each(|number| *versions.entry(number).or_default() += 1);
                buffer.forget(first..first + count);
            };
            for step in steps {
                match step {
                    Step::Write { first, count } => write(&mut versions, first, count),
                    Step::Read { first, count, written_between } => {
                        let mut bytes = vec![0; count as usize * PAGE_BYTES];
                        let looked = buffer.copy(first, &mut bytes);
                        let truth = file(&versions, first, count);
                        for run in &looked.missing {
                            let run = run.start * PAGE_BYTES..run.end * PAGE_BYTES;
                            bytes[run.clone()].copy_from_slice(&truth[run]);
                        }
                        prop_assert!(bytes == truth);
                        if let Some(number) = written_between {
                            write(&mut versions, number, 1);
                        }
                        buffer.insert(looked.writes, first, &bytes);
                    }
                }
                prop_assert!(buffer.stats().1 <= frames * (PAGE_BYTES + FRAME_BYTES));
            }
        }
    }

    #[test]
    fn what_is_asked_for_stays() {
        let buffer = PageBuffer::new(4 * (PAGE_BYTES + FRAME_BYTES));
        let mut bytes = vec![0; PAGE_BYTES];
        let mut read = |number: u64| {
            let looked = buffer.copy(number, &mut bytes);
            buffer.insert(looked.writes, number, &page(number, 0));
            looked.missing.is_empty()
        };
        assert!(!read(0) && read(0));
        for number in 1..40 {
            assert!(!read(number), "{number}");
            assert!(read(0), "asked for between any two others");
        }
        assert!(buffer.holds(0..1) && !buffer.holds(0..2) && buffer.stats().0 == 40);
    }
}
