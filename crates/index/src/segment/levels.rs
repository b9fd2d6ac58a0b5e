//! Which segments to merge: a decision apart from the code that carries it out.

use std::ops::Range;

/// Neighbours of a size that are merged, and about how many of each size stay.
const FAN_OUT: usize = 4;
/// Segments that one merge takes at most.
const MERGED_MAX: usize = 16;
/// Groups up to which segments are of the smallest size.
const SMALL_GROUPS: u64 = 256;

/// A segment as the decision sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentSize {
    /// Groups that it holds, removed ones among them.
    pub groups: u64,
    /// Those that are removed.
    pub removed: u64,
}

/// The neighbouring segments, oldest first, that should become one; `None` if all is well. Sizes are steps of four: as
/// soon as four neighbours are of a size or smaller, and the largest is not most of them, they become one, so that a group is
/// rewritten a few times for each step and the segments stay few. A segment a quarter of which is removed is rewritten by itself.
pub fn segments_to_merge(segments: &[SegmentSize]) -> Option<Range<usize>> {
    let largest = segments.iter().map(SegmentSize::level).max()?;
    let run = (0..=largest).find_map(|level| {
        let mut runs = segments.chunk_by(|a, b| (a.level() <= level) == (b.level() <= level));
        let mut start = 0;
        runs.find_map(|run| {
            let (range, few) = (start..start + run.len().min(MERGED_MAX), run.len() < FAN_OUT);
            start += run.len();
            let groups: u64 = run.iter().take(MERGED_MAX).map(|segment| segment.groups).sum();
            let largest = run.iter().take(MERGED_MAX).map(|segment| segment.groups).max()?;
            let small = run.first().is_some_and(|segment| segment.level() <= level);
            (small && !few && (level == 0 || groups >= 2 * largest)).then_some(range)
        })
    });
    let purge = || {
        let place = segments.iter().position(|segment| segment.removed > 0 && segment.removed * 4 >= segment.groups)?;
        Some(place..place + 1)
    };
    run.or_else(purge)
}

impl SegmentSize {
    fn level(&self) -> u32 {
        (self.groups / SMALL_GROUPS).checked_ilog(FAN_OUT as u64).map_or(0, |level| level + 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(groups: &[u64], expected: Option<(usize, usize)>) {
        let segments: Vec<SegmentSize> =
            groups.iter().map(|groups| SegmentSize { groups: *groups, removed: 0 }).collect();
        assert_eq!(segments_to_merge(&segments), expected.map(|(from, to)| from..to), "{groups:?}");
    }

    #[test]
    fn neighbours_of_a_size_are_merged() {
        check(&[], None);
        check(&[1, 1, 1], None);
        check(&[1, 1, 1, 1], Some((0, 4)));
        check(&[100_000, 1, 1, 1, 1], Some((1, 5)));
        check(&[100_000, 1, 1, 1], None);
        check(&[100_000, 5000, 5000, 5000, 1], Some((1, 5)));
        check(&[5000, 5000, 5000, 900_000, 5000], None);
        let removed = [SegmentSize { groups: 9, removed: 2 }, SegmentSize { groups: 8, removed: 2 }];
        assert_eq!(segments_to_merge(&removed), Some(1..2));
    }

    proptest! {
        /// Whatever the sizes that come, few segments stay and a group is rewritten seldom.
        #[test]
        fn segments_stay_few(sizes in proptest::collection::vec(1u64..20_000, 1..300)) {
            let mut segments: Vec<SegmentSize> = Vec::new();
            let (mut written, mut total) = (0u64, 0u64);
            for groups in sizes {
                segments.push(SegmentSize { groups, removed: 0 });
                total += groups;
                while let Some(range) = segments_to_merge(&segments) {
                    prop_assert!(range.len() >= 2 && range.len() <= MERGED_MAX);
                    let groups = segments[range.clone()].iter().map(|segment| segment.groups).sum();
                    written += groups;
                    segments.splice(range, [SegmentSize { groups, removed: 0 }]);
                }
            }
            prop_assert!(segments.len() <= 36, "{} segments", segments.len());
            prop_assert!(written <= total * 12, "{written} rewritten of {total}");
        }
    }
}
