//! Series by token instead of by labels, and how far in time a group reaches.

use std::sync::Arc;

use index::Slot;
use model::TimeRange;

use crate::part::{ChunkRef, Part, PartKey};
use crate::read::select::{SelectedColumn, SelectedGroup};
use crate::read::{KeySnapshot, by_block};
use crate::write::keys::Target;
use crate::{Store, StoreError, Token};

impl Store {
    /// The series that tokens stand for, each as a group of one column. Tokens that stand for nothing in the database are
    /// left out.
    pub fn select_tokens(&self, database: &str, tokens: &[Token]) -> Result<Vec<SelectedGroup>, StoreError> {
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else {
            return Ok(Vec::new());
        };
        let mut selected = Vec::new();
        for token in tokens {
            let target = Target::unpack(token.to_bits());
            let Some(shard) = self.shards.get(target.shard) else { continue };
            let group = shard.groups.read().groups.get(target.group);
            let group = group.map_err(StoreError::index(&self.options.directory))?;
            let Some(group) = group.filter(|group| group.database == database) else { continue };
            let Some(field) = catalog.catalog.field(group.measurement, target.slot) else { continue };
            let column = SelectedColumn::new(&field, target.slot);
            let key = PartKey { database, measurement: group.measurement, group: target.group, block: 0 };
            let columns = Arc::new(vec![column]);
            selected.push(SelectedGroup { labels: group.labels, columns, rank: 0, shard: target.shard, key });
        }
        Ok(selected)
    }

    /// A range that holds all rows of a group within another, nearly the smallest: chunks count whole. `None` if there are
    /// no rows.
    pub fn extent(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<Option<TimeRange>, StoreError> {
        let Some(shard) = self.shards.get(selected.shard) else {
            return Ok(None);
        };
        let range = &self.retained(selected.key.database, range);
        let mut extent: Option<TimeRange> = None;
        for (block, indexes) in by_block(&selected.columns) {
            let slots: Vec<Slot> =
                indexes.iter().filter_map(|index| selected.columns.get(*index)).map(|column| column.slot).collect();
            let snapshot = KeySnapshot::take(shard, PartKey { block, ..selected.key }, range, &slots);
            for part in snapshot.parts.iter().filter(|part| part.info.range.overlaps(range)) {
                part.find(snapshot.key, self.caches.index_blocks(), |chunks, _| {
                    ranges_of(part, chunks).for_each(|found| widen(&mut extent, range, found));
                })?;
            }
            let heads = snapshot.read_heads(&slots)?;
            heads.iter().filter_map(crate::part::chunk::Rows::range).for_each(|found| widen(&mut extent, range, found));
        }
        Ok(extent)
    }
}

/// Where a part may have rows of a key that has these chunks in it.
pub(crate) fn ranges_of<'a>(part: &Part, chunks: &'a [ChunkRef]) -> impl Iterator<Item = TimeRange> + use<'a> {
    // Folds begin before the samples that are left of them, and end with these.
    let whole = TimeRange::new(part.info.partition.start_ns, part.info.range.end_ns);
    let whole = (part.info.fold_ns > 0).then_some(whole);
    chunks.iter().map(|chunk| chunk.range).chain(whole)
}

/// Adds what of a range lies in the wanted one.
pub(crate) fn widen(extent: &mut Option<TimeRange>, wanted: &TimeRange, found: TimeRange) {
    if !found.overlaps(wanted) {
        return;
    }
    let (start_ns, end_ns) = (found.start_ns.max(wanted.start_ns), found.end_ns.min(wanted.end_ns));
    *extent = Some(match extent {
        None => TimeRange::new(start_ns, end_ns),
        Some(known) => TimeRange::new(known.start_ns.min(start_ns), known.end_ns.max(end_ns)),
    });
}
