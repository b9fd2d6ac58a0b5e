//! Column lists that many groups share.

use std::collections::HashMap;
use std::sync::Arc;

use index::Slot;
use model::ValueType;

pub(crate) type LayoutId = u32;

/// Interned column lists, each sorted by slot. Number 0 is the empty one.
#[derive(Debug)]
pub(crate) struct Layouts {
    columns: Vec<Arc<[(Slot, ValueType)]>>,
    ids: HashMap<Arc<[(Slot, ValueType)]>, LayoutId>,
}

/// How the columns of a block fall into a layout: the index of each.
pub(crate) struct Placement {
    pub(crate) from: LayoutId,
    pub(crate) to: LayoutId,
    /// `None` if the indexes are 0, 1, 2, … and there are no other columns.
    pub(crate) indexes: Option<Vec<usize>>,
}

impl Default for Layouts {
    fn default() -> Self {
        let mut layouts = Self { columns: Vec::new(), ids: HashMap::new() };
        layouts.intern(Vec::new());
        layouts
    }
}

impl Layouts {
    pub(crate) fn get(&self, id: LayoutId) -> Arc<[(Slot, ValueType)]> {
        self.columns.get(id as usize).cloned().unwrap_or_default()
    }

    pub(crate) fn width(&self, id: LayoutId) -> usize {
        self.columns.get(id as usize).map_or(0, |columns| columns.len())
    }

    pub(crate) fn intern(&mut self, columns: Vec<(Slot, ValueType)>) -> LayoutId {
        if let Some(id) = self.ids.get(columns.as_slice()) {
            return *id;
        }
        let columns: Arc<[(Slot, ValueType)]> = columns.into();
        let id = self.columns.len() as LayoutId;
        self.columns.push(columns.clone());
        self.ids.insert(columns, id);
        id
    }

    /// The layout that holds a group's columns and a block's, and where the block's go in it.
    pub(crate) fn placement(&mut self, from: LayoutId, block: &[(Slot, ValueType)]) -> Placement {
        let known = self.get(from);
        let mut columns = known.to_vec();
        columns.extend(block);
        columns.sort_unstable();
        columns.dedup_by_key(|(slot, _)| *slot);
        let to = self.intern(columns);
        let columns = self.get(to);
        let indexes: Vec<usize> = block.iter().map(|column| place_of(&columns, column.0)).collect();
        let straight = indexes.len() == columns.len() && indexes.iter().enumerate().all(|(at, index)| at == *index);
        Placement { from, to, indexes: (!straight).then_some(indexes) }
    }

    /// Where the columns of one layout stand in another that holds them.
    pub(crate) fn offsets(&self, from: LayoutId, to: LayoutId) -> Vec<usize> {
        let columns = self.get(to);
        self.get(from).iter().map(|(slot, _)| place_of(&columns, *slot)).collect()
    }
}

/// Where a slot stands among columns that hold it.
fn place_of(columns: &[(Slot, ValueType)], slot: Slot) -> usize {
    columns.partition_point(|(candidate, _)| *candidate < slot)
}
