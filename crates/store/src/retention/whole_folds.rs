//! Of a fold a delete takes all or nothing: its samples cannot be told apart.

use std::sync::Arc;

use index::RoaringBitmap;
use model::TimeRange;

use crate::head::shard::Shard;
use crate::part::{Part, PartInfo};
use crate::retention::policy::length_text;
use crate::{Store, StoreError};

/// The folded parts that have some of these groups.
fn folded<'a>(parts: &'a [Arc<Part>], groups: &'a RoaringBitmap) -> impl Iterator<Item = &'a PartInfo> {
    let folded = parts.iter().filter(|part| part.info.fold_ns > 0 && !part.groups.is_disjoint(groups));
    folded.map(|part| &part.info)
}

/// Returns whether a time lies within a fold of a part.
const fn cuts_fold(part: &PartInfo, bound_ns: i64) -> bool {
    part.partition.start_ns < bound_ns && bound_ns <= part.range.end_ns && bound_ns.rem_euclid(part.fold_ns) != 0
}

/// The latest time up to one before which a delete takes all or nothing of each fold of its groups.
pub(crate) fn before_folds(parts: &[Arc<Part>], groups: &RoaringBitmap, mut before_ns: i64) -> i64 {
    // Each step goes back, in the end to before the parts.
    while let Some(part) = folded(parts, groups).find(|part| cuts_fold(part, before_ns)) {
        before_ns = before_ns.saturating_sub(before_ns.rem_euclid(part.fold_ns));
    }
    before_ns
}

impl Store {
    /// Fails if a bound of a delete lies within a fold of its groups: the samples of a summary cannot be told apart.
    pub(crate) fn check_folds_whole(
        &self,
        shard: &Shard,
        groups: &RoaringBitmap,
        range: &TimeRange,
    ) -> Result<(), StoreError> {
        let (parts, _) = shard.parts_and_deletes();
        if !parts.iter().any(|part| part.info.fold_ns > 0) {
            return Ok(());
        }
        let folds = groups - self.unfolded_groups(shard)?;
        for part in folded(&parts, &folds) {
            if !cuts_fold(part, range.start_ns) && !cuts_fold(part, range.end_ns.saturating_add(1)) {
                continue;
            }
            let PartInfo { fold_ns, partition, range: rows, .. } = *part;
            let start_ns = range.start_ns.saturating_sub(range.start_ns.rem_euclid(fold_ns));
            let after_ns = range.end_ns.saturating_add(fold_ns - range.end_ns.rem_euclid(fold_ns));
            let width = length_text(fold_ns);
            return Err(StoreError::Invalid(format!(
                "the samples from {} to {} ns are folded to summaries of {width}, of which a delete takes all or nothing: begin and end \
                 it at multiples of {width}, such as from {start_ns} to {} ns",
                partition.start_ns,
                rows.end_ns,
                after_ns.saturating_sub(1)
            )));
        }
        Ok(())
    }
}
