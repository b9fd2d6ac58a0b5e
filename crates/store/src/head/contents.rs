//! What a flush takes out of a head.

use index::GroupId;
use model::TimeRange;

use super::group::Sealed;
use super::row_buffer::{RowsByGroup, SharedRows};
use super::{Head, SealedChunk};
use crate::part::PartKey;
use crate::part::chunk::{self, Rows};

/// Everything in a head, for a flush.
pub(crate) struct HeadContents<'a> {
    head: &'a Head,
    /// By layout.
    shared: Vec<Option<RowsByGroup<'a>>>,
}

/// Rows of a key, sorted, with the smallest and the largest sequence id among them; or a chunk of such.
pub(crate) enum FlushBlock {
    Sealed(SealedChunk),
    Rows(Rows, (u64, u64)),
}

/// Rows of one key that follow one another in age and become as few chunks as possible.
#[derive(Default)]
struct RowsToJoin {
    rows: Vec<Rows>,
    sequences: Option<(u64, u64)>,
}

impl RowsToJoin {
    fn add(&mut self, rows: Rows, sequences: (u64, u64)) {
        let known = self.sequences.unwrap_or(sequences);
        self.sequences = Some((known.0.min(sequences.0), known.1.max(sequences.1)));
        self.rows.push(rows);
    }

    fn take(&mut self) -> Option<FlushBlock> {
        let Self { mut rows, sequences } = std::mem::take(self);
        let rows = if rows.len() == 1 { rows.pop()? } else { chunk::join(rows) };
        (!rows.timestamps_ns.is_empty()).then_some(FlushBlock::Rows(rows, sequences?))
    }
}

impl<'a> HeadContents<'a> {
    pub(super) fn new(head: &'a Head) -> Self {
        let shared = head.shared.iter().map(|shared| shared.as_ref().map(SharedRows::by_group)).collect();
        Self { head, shared }
    }

    /// Groups and member blocks that have rows; some may come twice.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (GroupId, u32)> {
        let own = self.head.groups.iter().map(|(group, _)| (*group, 0));
        own.chain(self.head.wide.keys().copied())
            .chain(self.shared.iter().flatten().flat_map(RowsByGroup::groups).map(|group| (group, 0)))
    }

    /// A key's rows, oldest first. Quick if groups are requested in order.
    pub(crate) fn blocks(&mut self, group: GroupId, block: u32) -> Vec<FlushBlock> {
        let mut blocks = Vec::new();
        let mut joining = RowsToJoin::default();
        if let Some((_, layout, _)) = self.head.shared_location(group).filter(|_| block == 0)
            && let Some(Some(shared)) = self.shared.get_mut(layout as usize)
        {
            let rows = self.head.columns_of_rows(layout, shared.of_group(group));
            joining.add(rows, self.head.sequences.unwrap_or_default());
            blocks.extend(joining.take());
        }
        let Some(head) = self.head.group(&PartKey { group, block, ..PartKey::default() }) else {
            return blocks;
        };
        for sealed in &head.sealed {
            match sealed {
                Sealed::Dense(dense) => joining.add(dense.rows(None), dense.sequences),
                Sealed::Chunk(chunk) => {
                    blocks.extend(joining.take());
                    blocks.push(FlushBlock::Sealed(chunk.clone()));
                }
            }
        }
        if !head.buffer.is_empty() {
            joining.add(self.head.sorted(head, &TimeRange::ALL, None), head.sequences);
        }
        blocks.extend(joining.take());
        blocks
    }
}
