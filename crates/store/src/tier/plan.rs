//! Which blocks a read needs, and in which requests those that are missing are fetched. Pure functions.

use std::ops::Range;

/// Blocks of an object, by number: from the first to before the last.
pub(super) type Run = Range<u32>;

/// How an object is cut into blocks, and how missing ones are joined into requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) object_bytes: u64,
    pub(super) block_bytes: u64,
    /// Unwanted bytes between two blocks that are fetched together.
    pub(super) gap_bytes_max: u64,
    pub(super) request_bytes_max: u64,
}

impl Shape {
    /// Numbers of the blocks that ranges touch, sorted, each once. The ranges lie in the object.
    pub(super) fn blocks(&self, ranges: &[Range<u64>]) -> Vec<u32> {
        let touched = ranges.iter().filter(|range| range.start < range.end).flat_map(|range| {
            let first = range.start / self.block_bytes;
            let last = (range.end - 1) / self.block_bytes;
            (first..=last).map(|number| number as u32)
        });
        let mut numbers: Vec<u32> = touched.collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Joins sorted block numbers into runs: over gaps that are short enough, up to the length of a request.
    pub(super) fn runs(&self, missing: &[u32]) -> Vec<Run> {
        let gap_blocks_max = (self.gap_bytes_max / self.block_bytes) as u32;
        let run_blocks_max = ((self.request_bytes_max / self.block_bytes) as u32).max(1);
        let mut runs: Vec<Run> = Vec::new();
        for number in missing {
            match runs.last_mut() {
                Some(run) if number - run.end <= gap_blocks_max && number + 1 - run.start <= run_blocks_max => {
                    run.end = number + 1;
                }
                _ => runs.push(*number..number + 1),
            }
        }
        runs
    }

    /// Bytes of blocks; the object's last one may be short.
    pub(super) fn bytes(&self, run: &Run) -> Range<u64> {
        let start = u64::from(run.start) * self.block_bytes;
        let end = u64::from(run.end) * self.block_bytes;
        start.min(self.object_bytes)..end.min(self.object_bytes)
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, of which some have one")]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { object_bytes: 1050, block_bytes: 100, gap_bytes_max: 200, request_bytes_max: 500 };

    #[test]
    fn ranges_touch_blocks() {
        let cases: [(&[Range<u64>], &[u32]); 6] = [
            (&[0..1], &[0]),
            (&[0..100], &[0]),
            (&[99..101], &[0, 1]),
            (&[1000..1050, 0..1], &[0, 10]),
            (&[150..250, 120..160], &[1, 2]),
            (&[5..5], &[]),
        ];
        for (ranges, expected) in cases {
            assert_eq!(SHAPE.blocks(ranges), expected, "{ranges:?}");
        }
    }

    #[test]
    fn missing_blocks_are_joined_within_bounds() {
        let cases: [(&[u32], &[Run]); 5] = [
            (&[], &[]),
            (&[3], &[3..4]),
            // A gap of two blocks is bridged, one of three is not.
            (&[0, 3], &[0..4]),
            (&[0, 4], &[0..1, 4..5]),
            // A request ends at five blocks.
            (&[0, 1, 2, 3, 4, 5, 6], &[0..5, 5..7]),
        ];
        for (missing, expected) in cases {
            assert_eq!(SHAPE.runs(missing), expected, "{missing:?}");
        }
    }

    #[test]
    fn the_last_block_may_be_short() {
        assert_eq!(SHAPE.bytes(&(9..11)), 900..1050);
    }
}
