//! Reading ahead: who reads many groups often comes to chunks that lie one behind another, and a call of the system costs more than the
//! bytes of a few chunks.
//!
//! Of a file that is mapped the first chunk of each stretch is read, as one that is wanted alone costs least so. Whoever comes back to a
//! stretch wants more of it: from there on its bytes are taken from the map, whatever order groups are read in.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tracing_mutex::parkinglot::Mutex;

use super::index_block::Place;
use crate::cache::number_hash::NumberHash;

/// What is read at once when a chunk turns out to lie behind the one before; twice as much each time that goes on.
const AHEAD_BYTES_MIN: u32 = 8 << 10;
const AHEAD_BYTES_MAX: u32 = 32 << 10;

/// How far behind the one before a chunk may begin.
const GAP_BYTES_MAX: u64 = 2 << 10;

/// Parts of which something is held.
const PARTS_MAX: usize = 256;

/// Bytes of a stretch, and how many are remembered.
const STRETCH_BYTES: u64 = 64 << 10;
const STRETCHES_MAX: usize = 1 << 16;

/// Where one reader is in each part, what it has read ahead there, and near what it was.
#[derive(Default)]
pub(crate) struct ReadAhead {
    spots: Mutex<HashMap<u64, Spot, NumberHash>>,
    /// Parts, and numbers of stretches in them.
    stretches: Mutex<HashSet<(u64, u64), NumberHash>>,
}

#[derive(Default, Clone)]
struct Spot {
    /// Where what was asked for last ends.
    end: u64,
    /// What is read at once; 0: no more than is asked for.
    ahead_bytes: u32,
    offset: u64,
    bytes: Arc<Vec<u8>>,
}

impl Spot {
    fn held(&self, place: Place) -> Option<Vec<u8>> {
        let from = usize::try_from(place.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(from..from.checked_add(place.bytes as usize)?).map(<[u8]>::to_vec)
    }
}

impl ReadAhead {
    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let spots: usize = self.spots.lock().values().map(|spot| size_of::<Spot>() + spot.bytes.len()).sum();
        spots + self.stretches.lock().capacity() * size_of::<(u64, u64)>()
    }

    /// Whether the stretch of a part in which a place begins was asked for before; from now on it was.
    pub(crate) fn was_near(&self, part: u64, place: Place) -> bool {
        let stretch = (part, place.offset / STRETCH_BYTES);
        let mut stretches = self.stretches.lock();
        stretches.contains(&stretch) || (stretches.len() < STRETCHES_MAX && !stretches.insert(stretch))
    }

    /// The bytes at a place of a part; those up to `end` may be read with them.
    pub(crate) fn read<E>(
        &self,
        part: u64,
        place: Place,
        end: u64,
        read: impl Fn(Place) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let ahead_bytes = {
            let mut spots = self.spots.lock();
            if spots.len() >= PARTS_MAX && !spots.contains_key(&part) {
                drop(spots);
                return read(place);
            }
            let spot = spots.entry(part).or_default();
            let before = std::mem::replace(&mut spot.end, place.offset + u64::from(place.bytes));
            if let Some(bytes) = spot.held(place) {
                return Ok(bytes);
            }
            let goes_on = place.offset.checked_sub(before).is_some_and(|gap| gap <= GAP_BYTES_MAX);
            let more = (spot.ahead_bytes * 2).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
            spot.ahead_bytes = if goes_on { more } else { 0 };
            spot.ahead_bytes
        };
        let most = u32::try_from(end.saturating_sub(place.offset)).unwrap_or(u32::MAX);
        if ahead_bytes.min(most) <= place.bytes {
            return read(place);
        }
        let bytes = Arc::new(read(Place { bytes: ahead_bytes.min(most), ..place })?);
        let asked = bytes.get(..place.bytes as usize).unwrap_or_default().to_vec();
        if let Some(spot) = self.spots.lock().get_mut(&part) {
            (spot.offset, spot.bytes) = (place.offset, bytes);
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn whoever_comes_back_to_a_stretch_was_near() {
        let ahead = ReadAhead::default();
        let near = |part, offset| ahead.was_near(part, Place { offset, bytes: 10 });
        assert_eq!(
            [near(1, 0), near(1, STRETCH_BYTES - 1), near(1, STRETCH_BYTES), near(2, 0), near(1, 9)],
            [false, true, false, false, true]
        );
        for stretch in 3..STRETCHES_MAX as u64 {
            assert!(!near(1, stretch * STRETCH_BYTES));
        }
        assert!(!near(3, 0) && !near(3, 0), "no room to remember it");
        assert!(near(2, 0));
    }

    #[test]
    fn chunks_one_behind_another_are_read_at_once() {
        let part: Vec<u8> = (0..100_000u32).map(|byte| byte as u8).collect();
        let reads = RefCell::new(Vec::new());
        let ahead = ReadAhead::default();
        let read = |place: Place| {
            reads.borrow_mut().push(place.bytes);
            let from = place.offset as usize;
            Ok::<_, ()>(part[from..from + place.bytes as usize].to_vec())
        };
        let check = |offset: u64, bytes: u32, expected: &[u32]| {
            let place = Place { offset, bytes };
            let found = ahead.read(7, place, 99_000, read).unwrap();
            assert_eq!(found, part[offset as usize..offset as usize + bytes as usize]);
            assert_eq!(std::mem::take(&mut *reads.borrow_mut()), expected, "{offset}");
        };
        check(50_000, 1000, &[1000]);
        check(51_000, 1000, &[AHEAD_BYTES_MIN]);
        check(52_000, 1000, &[]);
        check(53_500, 5000, &[]);
        // The last one is held in part only.
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
