//! The fast path: what is registered once is written by token, without labels or names (TimeUnion, section 3.4).
//!
//! The slow path takes labels and gives tokens: [`Store::register_series`] for lone series, [`Store::register_groups`] for
//! groups that share a list of members. The fast path takes rows by token: [`Appender`].

use codec::COLUMN_VALUES_MAX;
use index::Slot;
use model::{Field, GroupIdentity, Labels, VALUE_FIELD, ValueType};
use std::sync::Arc;

use crate::keys::Target;
use crate::log::record::{BLOCK_ROWS_MAX, RowBlock, ShardRows};
use crate::{Store, StoreError};

/// Groups or series that one call registers.
const REGISTRATIONS_MAX: usize = 1 << 20;

/// Rows of one [`Appender`].
const APPENDER_CELLS_MAX: usize = 1 << 24;

/// A group or a lone series, registered. Valid as long as it has data or its data folder is open, whichever is longer, and in
/// the same incarnation of the folder ([`Store::incarnation`]) only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// The token as one number: shard, slot and group.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// A token from its number; [`Store::knows`] says whether it still stands for anything.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The members of groups, in the order of their cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLayout {
    columns: Arc<[(Slot, ValueType)]>,
}

impl GroupLayout {
    /// How many members there are: cells of a row.
    pub fn width(&self) -> usize {
        self.columns.len()
    }
}

impl Store {
    /// Registers lone series of floats, each by its metric name and labels; their tokens, in the same order.
    pub fn register_series(&self, database: &str, series: &[(&str, Labels)]) -> Result<Vec<Token>, StoreError> {
        check_registrations(series.len())?;
        let id = self.database_id(database)?;
        let value = [Field { name: VALUE_FIELD.to_owned(), value_type: ValueType::F64 }];
        let mut groups = Vec::with_capacity(series.len());
        let mut last: Option<(&str, u32, Vec<Slot>)> = None;
        for (metric, labels) in series {
            if last.as_ref().is_none_or(|(known, ..)| known != metric) {
                let found = self.resolve_fields(id, metric, &value)?.map_err(StoreError::Invalid)?;
                last = Some((metric, found.0, found.1));
            }
            if let Some((_, measurement, slots)) = &last {
                let identity = GroupIdentity { measurement: (*metric).to_owned(), labels: labels.clone() };
                groups.push((*measurement, identity, slots.clone()));
            }
        }
        self.register_tokens(id, &groups)
    }

    /// Registers groups of a measurement that share a list of members; their tokens, in the same order, and the layout of
    /// their rows. A member is a field, or a field with labels of its own.
    pub fn register_groups(
        &self,
        database: &str,
        measurement: &str,
        groups: &[Labels],
        members: &[(Field, Labels)],
    ) -> Result<(Vec<Token>, GroupLayout), StoreError> {
        check_registrations(groups.len())?;
        let id = self.database_id(database)?;
        let (number, slots) = self.resolve_members(id, measurement, members)?;
        let types = members.iter().map(|(field, _)| field.value_type);
        let columns = slots.iter().copied().zip(types).collect();
        let identity = |labels: &Labels| GroupIdentity { measurement: measurement.to_owned(), labels: labels.clone() };
        let groups = groups.iter().map(|labels| (number, identity(labels), slots.clone())).collect::<Vec<_>>();
        Ok((self.register_tokens(id, &groups)?, GroupLayout { columns }))
    }

    fn register_tokens(
        &self,
        database: u32,
        groups: &[(u32, GroupIdentity, Vec<Slot>)],
    ) -> Result<Vec<Token>, StoreError> {
        let targets = self.register_identities(database, groups)?;
        // A token that is handed out stands for something after a crash too.
        self.log.commit(self.log.last_sequence())?;
        let token = |target: Result<Target, String>| {
            let bits = target
                .map_err(StoreError::Invalid)?
                .pack()
                .ok_or_else(|| StoreError::Invalid("a slot beyond 20 bits has no token".to_owned()));
            bits.map(Token)
        };
        targets.into_iter().map(token).collect()
    }

    /// Whether a token stands for something that exists.
    pub fn knows(&self, token: Token) -> Result<bool, StoreError> {
        let target = Target::unpack(token.0);
        let Some(shard) = self.shards.get(target.shard) else {
            return Ok(false);
        };
        let place = shard.groups.read().groups.place(target.group);
        Ok(place.map_err(StoreError::index(&self.options.directory))?.is_some())
    }

    /// Begins a request: rows by token, written together.
    pub fn appender(&self) -> Appender<'_> {
        let shards = (0..self.shards.len()).map(|shard| ShardRows { shard, ..ShardRows::default() }).collect();
        Appender { store: self, shards, layouts: vec![None; self.shards.len()], cells: 0 }
    }

    /// Writes an appender's rows; returns when they are on disk. Rows of groups that are not there any more are left out:
    /// their tokens, to be registered again.
    fn append_rows(&self, mut rows: Vec<ShardRows>) -> Result<Vec<Token>, StoreError> {
        let mut stale = Vec::new();
        rows.retain(|rows| !rows.blocks.is_empty());
        loop {
            let generation = self.keys.generation();
            for rows in &mut rows {
                self.leave_out_removed(rows, &mut stale)?;
            }
            if let Some(sequence) = self.append(&rows, Some(generation))? {
                self.log.commit(sequence)?;
                return Ok(stale);
            }
        }
    }

    fn leave_out_removed(&self, rows: &mut ShardRows, stale: &mut Vec<Token>) -> Result<(), StoreError> {
        let Some(shard) = self.shards.get(rows.shard) else {
            return Err(StoreError::Invalid(format!("a token of shard {}, which there is not", rows.shard)));
        };
        let index = shard.groups.read();
        let next = index.groups.next_id();
        let any_removed = !index.removed.is_empty();
        let is_known = |group: u32| group < next && !(any_removed && index.removed.contains(group));
        for block in &mut rows.blocks {
            if block.groups.iter().all(|group| is_known(*group)) {
                continue;
            }
            let gone = block.groups.iter().copied().filter(|group| !is_known(*group));
            let token = |group| Target { shard: rows.shard, group, slot: 0 }.pack().map(Token);
            stale.extend(gone.filter_map(token));
            block.retain_groups(is_known);
        }
        Ok(())
    }
}

fn check_registrations(count: usize) -> Result<(), StoreError> {
    if count <= REGISTRATIONS_MAX {
        return Ok(());
    }
    Err(StoreError::Invalid(format!("{count} registrations in one call; at most {REGISTRATIONS_MAX}")))
}

/// Rows by token, written together: all or none.
pub struct Appender<'a> {
    store: &'a Store,
    shards: Vec<ShardRows>,
    /// The layout of each shard's last block, if it came as one: the same again need not be compared.
    layouts: Vec<Option<GroupLayout>>,
    cells: usize,
}

impl Appender<'_> {
    /// Adds a sample of a lone series.
    pub fn sample(&mut self, token: Token, timestamp_ns: i64, value: f64) -> Result<(), StoreError> {
        let target = Target::unpack(token.0);
        let columns = [(target.slot, ValueType::F64)];
        self.push(target, &columns, None, timestamp_ns, &[value.to_bits()])
    }

    /// Adds a row of a group: a cell for each member of the layout, in its order. Cells are bits of the members' types.
    pub fn row(
        &mut self,
        token: Token,
        layout: &GroupLayout,
        timestamp_ns: i64,
        cells: &[u64],
    ) -> Result<(), StoreError> {
        if cells.len() != layout.width() {
            let message = format!("a row of {} cells for a group of {} members", cells.len(), layout.width());
            return Err(StoreError::Invalid(message));
        }
        self.push(Target::unpack(token.0), &layout.columns, Some(layout), timestamp_ns, cells)
    }

    fn push(
        &mut self,
        target: Target,
        columns: &[(Slot, ValueType)],
        shared: Option<&GroupLayout>,
        timestamp_ns: i64,
        cells: &[u64],
    ) -> Result<(), StoreError> {
        let (Some(rows), Some(last_layout)) = (self.shards.get_mut(target.shard), self.layouts.get_mut(target.shard))
        else {
            return Err(StoreError::Invalid(format!("a token of shard {}, which there is not", target.shard)));
        };
        self.cells += cells.len();
        if self.cells > APPENDER_CELLS_MAX {
            return Err(StoreError::Invalid(format!("more than {APPENDER_CELLS_MAX} cells in one request")));
        }
        let is_known = match (shared, &last_layout) {
            (Some(layout), Some(last)) => Arc::ptr_eq(&layout.columns, &last.columns),
            _ => false,
        };
        let is_same = |last: &RowBlock| is_known || last.columns == columns;
        let fits = rows.blocks.last().is_some_and(|last| last.rows() < BLOCK_ROWS_MAX && is_same(last));
        if !fits {
            if columns.len() > COLUMN_VALUES_MAX {
                return Err(StoreError::Invalid(format!("more than {COLUMN_VALUES_MAX} members in one row")));
            }
            rows.blocks.push(RowBlock { columns: columns.to_vec(), ..RowBlock::default() });
            *last_layout = shared.cloned();
        }
        if let Some(block) = rows.blocks.last_mut() {
            block.push(target.group, timestamp_ns, cells);
        }
        Ok(())
    }

    /// Rows that have been added.
    pub fn rows(&self) -> usize {
        self.shards.iter().flat_map(|rows| &rows.blocks).map(RowBlock::rows).sum()
    }

    /// Writes the rows; returns when they are on disk. The tokens of rows that were left out because their groups are not
    /// there any more are to be registered again.
    pub fn commit(self) -> Result<Vec<Token>, StoreError> {
        let (rows, cells) = (self.rows() as u64, self.cells as u64);
        let stale = self.store.append_rows(self.shards)?;
        self.store.counters.appended(rows - stale.len() as u64, cells);
        Ok(stale)
    }
}
