//! Reading ahead: who reads many groups often comes to chunks that lie one after another, and a call of the system costs more than the
//! bytes of a few chunks.
//!
//! Of a file that is mapped the first chunk of each interval is read, as one that is wanted alone costs least so. A reader that comes back to an
//! interval wants more of it: from there on its bytes are taken from the map, whatever order groups are read in.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tracing_mutex::parkinglot::Mutex;

use super::index_block::BlockHandle;
use crate::cache::number_hash::NumberHash;

/// Bytes to read ahead when a chunk lies right after the one before; doubled each time that goes on.
const AHEAD_BYTES_MIN: u32 = 8 << 10;
const AHEAD_BYTES_MAX: u32 = 32 << 10;

/// How far after the one before a chunk may begin.
const GAP_BYTES_MAX: u64 = 2 << 10;

/// Parts of which something is cached.
const PARTS_MAX: usize = 256;

/// Bytes of an interval, and how many are remembered.
const INTERVAL_BYTES: u64 = 64 << 10;
const INTERVALS_MAX: usize = 1 << 16;

/// Where one reader is in each part, what it has read ahead there, and near what it was.
#[derive(Default)]
pub(crate) struct ReadAhead {
    spots: Mutex<HashMap<u64, Spot, NumberHash>>,
    /// Parts, and numbers of intervals in them.
    intervals: Mutex<HashSet<(u64, u64), NumberHash>>,
}

#[derive(Default, Clone)]
struct Spot {
    /// Where the last read ends.
    end: u64,
    /// Bytes to read ahead; 0: only the wanted ones.
    ahead_bytes: u32,
    offset: u64,
    bytes: Arc<Vec<u8>>,
}

impl Spot {
    fn cached(&self, handle: BlockHandle) -> Option<Vec<u8>> {
        let from = usize::try_from(handle.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(from..from.checked_add(handle.bytes as usize)?).map(<[u8]>::to_vec)
    }
}

impl ReadAhead {
    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let spots: usize = self.spots.lock().values().map(|spot| size_of::<Spot>() + spot.bytes.len()).sum();
        spots + self.intervals.lock().capacity() * size_of::<(u64, u64)>()
    }

    /// Returns whether the interval of a part in which a handle begins was wanted for before; from now on it was.
    pub(crate) fn was_near(&self, part: u64, handle: BlockHandle) -> bool {
        let interval = (part, handle.offset / INTERVAL_BYTES);
        let mut intervals = self.intervals.lock();
        intervals.contains(&interval) || (intervals.len() < INTERVALS_MAX && !intervals.insert(interval))
    }

    /// A block of a part; the bytes after it up to `end` may be read with it.
    pub(crate) fn read<E>(
        &self,
        part: u64,
        handle: BlockHandle,
        end: u64,
        read: impl Fn(BlockHandle) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let ahead_bytes = {
            let mut spots = self.spots.lock();
            if spots.len() >= PARTS_MAX && !spots.contains_key(&part) {
                drop(spots);
                return read(handle);
            }
            let spot = spots.entry(part).or_default();
            let before = std::mem::replace(&mut spot.end, handle.offset + u64::from(handle.bytes));
            if let Some(bytes) = spot.cached(handle) {
                return Ok(bytes);
            }
            let goes_on = handle.offset.checked_sub(before).is_some_and(|gap| gap <= GAP_BYTES_MAX);
            let more = (spot.ahead_bytes * 2).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
            spot.ahead_bytes = if goes_on { more } else { 0 };
            spot.ahead_bytes
        };
        let most = u32::try_from(end.saturating_sub(handle.offset)).unwrap_or(u32::MAX);
        if ahead_bytes.min(most) <= handle.bytes {
            return read(handle);
        }
        let bytes = Arc::new(read(BlockHandle { bytes: ahead_bytes.min(most), ..handle })?);
        let wanted = bytes.get(..handle.bytes as usize).unwrap_or_default().to_vec();
        if let Some(spot) = self.spots.lock().get_mut(&part) {
            (spot.offset, spot.bytes) = (handle.offset, bytes);
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn an_interval_is_near_from_the_second_read_on() {
        let ahead = ReadAhead::default();
        let near = |part, offset| ahead.was_near(part, BlockHandle { offset, bytes: 10 });
        assert_eq!(
            [near(1, 0), near(1, INTERVAL_BYTES - 1), near(1, INTERVAL_BYTES), near(2, 0), near(1, 9)],
            [false, true, false, false, true]
        );
        for interval in 3..INTERVALS_MAX as u64 {
            assert!(!near(1, interval * INTERVAL_BYTES));
        }
        assert!(!near(3, 0) && !near(3, 0), "no room to remember it");
        assert!(near(2, 0));
    }

    #[test]
    fn adjacent_chunks_are_read_at_once() {
        let part: Vec<u8> = (0..100_000u32).map(|byte| byte as u8).collect();
        let reads = RefCell::new(Vec::new());
        let ahead = ReadAhead::default();
        let read = |handle: BlockHandle| {
            reads.borrow_mut().push(handle.bytes);
            let from = handle.offset as usize;
            Ok::<_, ()>(part[from..from + handle.bytes as usize].to_vec())
        };
        let check = |offset: u64, bytes: u32, expected: &[u32]| {
            let handle = BlockHandle { offset, bytes };
            let found = ahead.read(7, handle, 99_000, read).unwrap();
            assert_eq!(found, part[offset as usize..offset as usize + bytes as usize]);
            assert_eq!(std::mem::take(&mut *reads.borrow_mut()), expected, "{offset}");
        };
        check(50_000, 1000, &[1000]);
        check(51_000, 1000, &[AHEAD_BYTES_MIN]);
        check(52_000, 1000, &[]);
        check(53_500, 5000, &[]);
        // The last one is cached in part only.
        check(58_500, 1000, &[2 * AHEAD_BYTES_MIN]);
        // Elsewhere nothing is known.
        check(10_000, 1000, &[1000]);
        check(58_600, 100, &[]);
        check(98_000, 500, &[500]);
        // No further than the chunks go.
        check(98_500, 400, &[500]);
        check(98_900, 50, &[]);
    }
}
