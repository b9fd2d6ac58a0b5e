//! What is folded or about to be: no rows come for it any more.

use std::sync::Arc;

use index::{GroupId, RoaringBitmap};
use model::TimeRange;

use crate::part::{Part, PartInfo};

/// Groups whose rows of a range are folded, or about to be.
#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    /// Their retention class.
    pub(crate) class: u32,
    pub(crate) range: TimeRange,
    pub(crate) groups: RoaringBitmap,
}

impl Sealed {
    fn has(&self, group: GroupId, timestamp_ns: i64) -> bool {
        self.range.contains(timestamp_ns) && self.groups.contains(group)
    }

    /// Returns whether a group's rows of an instant are folded, or about to be.
    pub(crate) fn any(parts: &[Arc<Part>], sealed: &[Self], group: GroupId, timestamp_ns: i64) -> bool {
        let is_folded = |part: &Arc<Part>| {
            part.info.fold_ns > 0 && part.info.partition.contains(timestamp_ns) && part.groups.contains(group)
        };
        parts.iter().any(is_folded) || sealed.iter().any(|sealed| sealed.has(group, timestamp_ns))
    }
}

/// The last timestamp of folded time among parts.
pub(crate) fn sealed_until_ns<'a>(parts: impl Iterator<Item = &'a PartInfo>) -> i64 {
    parts.filter(|info| info.fold_ns > 0).map(|info| info.partition.end_ns).max().unwrap_or(i64::MIN)
}
