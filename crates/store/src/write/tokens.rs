//! The fast path: what is registered once is written by token, without labels or names (TimeUnion, section 3.4).
//!
//! The slow path takes labels and gives tokens: [`Store::register_series`] for lone series, [`Store::register_groups`] for
//! groups that share a list of members. The fast path takes rows by token: [`Appender`].

use codec::COLUMN_VALUES_MAX;
use index::{DatabaseId, GroupId, MeasurementId, Slot};
use model::{Field, GroupIdentity, Labels, NativeHistogram, Span, VALUE_FIELD, ValueType};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::head::shard::NO_MEASUREMENT;
use crate::log::record::{BLOCK_ROWS_MAX, RowBlock, ShardRows, text_of};
use crate::part::histogram;
use crate::write::admission::{Refusal, SeriesGate, SeriesTarget};
use crate::write::keys::Target;
use crate::write::producers::Sent;
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
    measurement: MeasurementId,
    columns: Arc<[(Slot, ValueType)]>,
}

impl GroupLayout {
    /// How many members there are: cells of a row.
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// The number of the groups' measurement: with the slots it stands for the layout in every later opening of the folder.
    pub fn measurement(&self) -> u32 {
        self.measurement
    }

    /// The members' numbers in their measurement.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.columns.iter().map(|(slot, _)| *slot)
    }

    /// Returns whether these are the measurement and the columns.
    pub fn is_of(&self, measurement: u32, slots: &[u32], types: &[ValueType]) -> bool {
        let same = |((slot, kind), (own_slot, own_kind)): ((&u32, &ValueType), &(Slot, ValueType))| {
            slot == own_slot && kind == own_kind
        };
        self.measurement == measurement
            && self.columns.len() == slots.len()
            && slots.iter().zip(types).zip(self.columns.iter()).all(same)
    }
}

/// Groups of a measurement that share a list of members.
#[derive(Debug, Clone, Copy)]
pub struct GroupsToRegister<'a> {
    /// The measurement.
    pub measurement: &'a str,
    /// The labels of each group.
    pub groups: &'a [Labels],
    /// The members: a field, or a field with labels of its own.
    pub members: &'a [(Field, Labels)],
}

impl Store {
    /// Registers lone series of floats, each by its metric name and labels; their tokens, in the same order.
    pub fn register_series(&self, database: &str, series: &[(&str, Labels)]) -> Result<Vec<Token>, StoreError> {
        self.register_series_gated(database, series, None)
    }

    /// As [`Store::register_series`]; series that are new have to pass a gate.
    pub fn register_series_gated(
        &self,
        database: &str,
        series: &[(&str, Labels)],
        gate: Option<SeriesGate<'_>>,
    ) -> Result<Vec<Token>, StoreError> {
        check_registrations(series.len())?;
        let id = self.database_id(database)?;
        self.check_not_regular(id)?;
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
        self.register_tokens(SeriesTarget { database: id, gate }, &groups)
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
        self.register_groups_gated(database, &GroupsToRegister { measurement, groups, members }, None)
    }

    /// As [`Store::register_groups`]; groups that are new have to pass a gate.
    pub fn register_groups_gated(
        &self,
        database: &str,
        GroupsToRegister { measurement, groups, members }: &GroupsToRegister<'_>,
        gate: Option<SeriesGate<'_>>,
    ) -> Result<(Vec<Token>, GroupLayout), StoreError> {
        check_registrations(groups.len())?;
        let id = self.database_id(database)?;
        self.check_not_regular(id)?;
        let (number, slots) = self.resolve_members(id, measurement, members)?;
        let types = members.iter().map(|(field, _)| field.value_type);
        let columns = slots.iter().copied().zip(types).collect();
        let identity =
            |labels: &Labels| GroupIdentity { measurement: (*measurement).to_owned(), labels: labels.clone() };
        let groups = groups.iter().map(|labels| (number, identity(labels), slots.clone())).collect::<Vec<_>>();
        let tokens = self.register_tokens(SeriesTarget { database: id, gate }, &groups)?;
        Ok((tokens, GroupLayout { measurement: number, columns }))
    }

    /// The layout that a measurement's number, slots and types stand for, as [`GroupLayout`] says them.
    pub fn group_layout(
        &self,
        measurement: u32,
        slots: &[u32],
        types: &[ValueType],
    ) -> Result<GroupLayout, StoreError> {
        let invalid = |message: String| Err(StoreError::Invalid(message));
        if slots.is_empty() || slots.len() != types.len() || slots.len() > COLUMN_VALUES_MAX {
            return invalid(format!("{} slots and {} columns", slots.len(), types.len()));
        }
        let mut sorted = slots.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return invalid("a slot stands twice in one block".to_owned());
        }
        let state = self.catalog.read();
        for (slot, value_type) in slots.iter().zip(types) {
            match state.catalog.field(measurement, *slot) {
                Some(field) if field.value_type == *value_type => {}
                Some(field) => {
                    let (known, sent) = (field.value_type.name(), value_type.name());
                    return invalid(format!("slot {slot} of measurement {measurement} is a {known}, not a {sent}"));
                }
                None => return invalid(format!("measurement {measurement} has no slot {slot}: register again")),
            }
        }
        let columns = slots.iter().copied().zip(types.iter().copied()).collect();
        Ok(GroupLayout { measurement, columns })
    }

    /// The measurement of each token's group, [`NO_MEASUREMENT`] where it is gone.
    fn measurements_of(&self, tokens: &[u64], out: &mut Vec<MeasurementId>) -> Result<(), StoreError> {
        out.clear();
        let known: Vec<_> = self.shards.iter().map(|shard| shard.measurements.read()).collect();
        let of = |token: &u64| {
            let target = Target::unpack(*token);
            let known = known.get(target.shard)?;
            Some(known.get(target.group as usize).copied().unwrap_or(NO_MEASUREMENT))
        };
        let mut all_known = true;
        for token in tokens {
            let Some(measurement) = of(token) else {
                return Err(never_given(*token));
            };
            all_known &= measurement != NO_MEASUREMENT;
            out.push(measurement);
        }
        drop(known);
        if all_known { Ok(()) } else { self.look_up_measurements(tokens, out) }
    }

    fn look_up_measurements(&self, tokens: &[u64], out: &mut [MeasurementId]) -> Result<(), StoreError> {
        for (token, found) in tokens.iter().zip(out).filter(|(_, found)| **found == NO_MEASUREMENT) {
            let Target { shard, group, .. } = Target::unpack(*token);
            let Some(shard) = self.shards.get(shard) else {
                continue;
            };
            let place = shard.groups.read().groups.family(group).map_err(StoreError::index(&self.options.directory))?;
            let Some((_, measurement)) = place else {
                continue;
            };
            let mut known = shard.measurements.write();
            if known.len() <= group as usize {
                known.resize(group as usize + 1, NO_MEASUREMENT);
            }
            known[group as usize] = measurement;
            *found = measurement;
        }
        Ok(())
    }

    /// Returns when what was appended is on disk.
    pub fn commit(&self, appended: &Appended) -> Result<(), StoreError> {
        self.log.commit(appended.sequence)
    }

    fn register_tokens(
        &self,
        to: SeriesTarget<'_>,
        groups: &[(u32, GroupIdentity, Vec<Slot>)],
    ) -> Result<Vec<Token>, StoreError> {
        let targets = self.register_identities(to, groups)?;
        // A token that is handed out stands for something after a crash too.
        self.log.commit(self.log.last_sequence())?;
        let token = |target: Result<Target, Refusal>| {
            let bits = target
                .map_err(|refusal| StoreError::Invalid(refusal.reason))?
                .pack()
                .ok_or_else(|| StoreError::Invalid("a slot beyond 20 bits has no token".to_owned()));
            bits.map(Token)
        };
        targets.into_iter().map(token).collect()
    }

    /// Begins a request: rows by token, written together.
    pub fn appender(&self) -> Appender<'_> {
        let shards = (0..self.shards.len()).map(|shard| ShardRows { shard, ..ShardRows::default() }).collect();
        Appender {
            store: self,
            shards,
            layouts: vec![None; self.shards.len()],
            cells: 0,
            measurements: Vec::new(),
            stale: Vec::new(),
            may_write: None,
            allowed: Vec::new(),
            counted: Vec::new(),
        }
    }

    /// Puts an appender's rows into log and heads. Rows of groups that are not there any more are left out.
    fn append_rows(
        &self,
        mut rows: Vec<ShardRows>,
        mut stale: Vec<Token>,
        sent: Option<Sent>,
    ) -> Result<Appended, StoreError> {
        rows.retain(|rows| !rows.blocks.is_empty());
        let (mut beyond_retention, mut folded) = (0, 0);
        loop {
            let generation = self.ingestor.keys.generation();
            for rows in &mut rows {
                self.leave_out_removed(rows, &mut stale)?;
                beyond_retention += self.leave_out_expired(rows)?;
                folded += self.leave_out_sealed(rows)?;
            }
            if let Some((sequence, is_duplicate)) = self.append_sent(&rows, sent, Some(generation))? {
                self.ingestor.buffers.recycle_rows(rows);
                return Ok(Appended { sequence, stale, is_duplicate, beyond_retention, folded });
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
        let is_known = |group: GroupId| group < next && !(any_removed && index.removed.contains(group));
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

fn never_given(token: u64) -> StoreError {
    StoreError::Invalid(format!("token {token:#x} was never given out"))
}

fn check_registrations(count: usize) -> Result<(), StoreError> {
    if count <= REGISTRATIONS_MAX {
        return Ok(());
    }
    Err(StoreError::Invalid(format!("{count} registrations in one call; at most {REGISTRATIONS_MAX}")))
}

/// What became of rows by token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Sequence id of their record, for [`Store::commit`].
    pub sequence: u64,
    /// Of each row that was left out because its group is not there any more: the token, to be registered again.
    pub stale: Vec<Token>,
    /// True if the producer's batch had been applied before, and was not again.
    pub is_duplicate: bool,
    /// How many rows were left out because they are older than what their databases keep.
    pub beyond_retention: u64,
    /// How many rows were left out because they came for time that is folded.
    pub folded: u64,
}

/// Rows by token, written together: all or none.
pub struct Appender<'a> {
    store: &'a Store,
    shards: Vec<ShardRows>,
    /// The layout of each shard's last block, if it came as one: the same again need not be compared.
    layouts: Vec<Option<GroupLayout>>,
    cells: usize,
    /// Of the rows that are being added.
    measurements: Vec<MeasurementId>,
    stale: Vec<Token>,
    may_write: Option<DatabaseCheck<'a>>,
    /// Databases that passed it.
    allowed: Vec<DatabaseId>,
    /// Cells of measurements, in order of arrival.
    counted: Vec<(MeasurementId, u64)>,
}

/// Says by a database's name whether its rows may be written.
pub type DatabaseCheck<'a> = &'a dyn Fn(&str) -> bool;

impl<'a> Appender<'a> {
    /// Takes only tokens of databases that pass a check, of those that may come from anywhere: others were never given out.
    pub const fn restrict(&mut self, may_write: DatabaseCheck<'a>) {
        self.may_write = Some(may_write);
    }

    fn check_database(&mut self, token: u64, measurement: MeasurementId) -> Result<(), StoreError> {
        let Some(may_write) = self.may_write else { return Ok(()) };
        let state = self.store.catalog.read();
        match state.catalog.database_of(measurement) {
            Some((id, _)) if self.allowed.contains(&id) => Ok(()),
            Some((id, name)) if may_write(name) => {
                self.allowed.push(id);
                Ok(())
            }
            _ => Err(never_given(token)),
        }
    }

    fn count(&mut self, measurement: MeasurementId, cells: u64) {
        match self.counted.last_mut() {
            Some((last, counted)) if *last == measurement => *counted += cells,
            _ => self.counted.push((measurement, cells)),
        }
    }

    /// Cells of rows whose tokens came from anywhere, by the names of their databases.
    pub fn cells_by_database(&self) -> BTreeMap<String, u64> {
        let state = self.store.catalog.read();
        let mut cells: BTreeMap<String, u64> = BTreeMap::new();
        for (measurement, counted) in &self.counted {
            let Some((_, name)) = state.catalog.database_of(*measurement) else { continue };
            match cells.get_mut(name) {
                Some(known) => *known += counted,
                None => drop(cells.insert(name.to_owned(), *counted)),
            }
        }
        cells
    }

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
            rows.blocks.push(RowBlock { columns: columns.to_vec(), ..self.store.ingestor.buffers.block() });
            *last_layout = shared.cloned();
        }
        if let Some(block) = rows.blocks.last_mut() {
            block.push(target.group, timestamp_ns, cells);
        }
        Ok(())
    }

    /// Adds rows of groups, whose tokens may come from anywhere: a token and a timestamp for each, cells row by row. Text cells
    /// are spans of `text`. Rows of groups that are gone are left out; an error adds some of them, and nothing may be
    /// written then.
    pub fn push_rows(
        &mut self,
        layout: &GroupLayout,
        tokens: &[u64],
        timestamps_ns: &[i64],
        cells: &[u64],
        text: &[u8],
    ) -> Result<(), StoreError> {
        let width = layout.width();
        if tokens.len() != timestamps_ns.len() || Some(cells.len()) != tokens.len().checked_mul(width) {
            return Err(StoreError::Invalid("columns of different lengths".to_owned()));
        }
        let mut measurements = std::mem::take(&mut self.measurements);
        self.store.measurements_of(tokens, &mut measurements)?;
        self.check_database(tokens.first().copied().unwrap_or_default(), layout.measurement)?;
        self.count(layout.measurement, cells.len() as u64);
        let has_texts = layout.columns.iter().any(|(_, kind)| kind.is_elsewhere());
        let mut moved = Vec::new();
        let rows = tokens.iter().zip(timestamps_ns).zip(&measurements).zip(cells.chunks_exact(width));
        for (((token, timestamp_ns), measurement), cells) in rows {
            if *measurement != layout.measurement {
                self.note_stale(*token, *measurement)?;
                continue;
            }
            let target = Target::unpack(*token);
            if has_texts {
                self.move_texts(target.shard, layout, cells, text, &mut moved);
            }
            let cells = if has_texts { moved.as_slice() } else { cells };
            self.push(target, &layout.columns, Some(layout), *timestamp_ns, cells)?;
        }
        self.measurements = measurements;
        Ok(())
    }

    /// Adds samples of lone series, whose tokens may come from anywhere. Otherwise as [`Appender::push_rows`].
    pub fn push_samples(&mut self, tokens: &[u64], timestamps_ns: &[i64], values: &[u64]) -> Result<(), StoreError> {
        if tokens.len() != timestamps_ns.len() || tokens.len() != values.len() {
            return Err(StoreError::Invalid("columns of different lengths".to_owned()));
        }
        let mut measurements = std::mem::take(&mut self.measurements);
        self.store.measurements_of(tokens, &mut measurements)?;
        let mut checked = None;
        for (((token, timestamp_ns), measurement), value) in
            tokens.iter().zip(timestamps_ns).zip(&measurements).zip(values)
        {
            if *measurement == NO_MEASUREMENT {
                self.stale.push(Token(*token));
                continue;
            }
            let target = Target::unpack(*token);
            if checked != Some((*measurement, target.slot)) {
                self.check_database(*token, *measurement)?;
                self.store.group_layout(*measurement, &[target.slot], &[ValueType::F64])?;
                checked = Some((*measurement, target.slot));
            }
            self.count(*measurement, 1);
            self.push(target, &[(target.slot, ValueType::F64)], None, *timestamp_ns, std::slice::from_ref(value))?;
        }
        self.measurements = measurements;
        Ok(())
    }

    fn note_stale(&mut self, token: u64, measurement: MeasurementId) -> Result<(), StoreError> {
        if measurement != NO_MEASUREMENT {
            return Err(StoreError::Invalid(format!(
                "token {token:#x} is of measurement {measurement}, not the block's"
            )));
        }
        self.stale.push(Token(token));
        Ok(())
    }

    /// A row's cells with its texts among those of a shard.
    fn move_texts(&mut self, shard: usize, layout: &GroupLayout, cells: &[u64], text: &[u8], moved: &mut Vec<u64>) {
        moved.clear();
        let Some(rows) = self.shards.get_mut(shard) else {
            return;
        };
        moved.extend(cells.iter().zip(layout.columns.iter()).map(|(cell, (_, kind))| {
            if !kind.is_elsewhere() {
                return *cell;
            }
            let bytes = text_of(text, *cell).unwrap_or_default();
            let span = Span { start: rows.text.len() as u32, len: bytes.len() as u32 };
            rows.text.extend_from_slice(bytes);
            span.to_cell()
        }));
    }

    /// The cell of a native histogram, for [`Appender::push_rows`]; its bytes go after the text. The histogram must be valid
    /// ([`NativeHistogram::validate`]).
    pub fn histogram_cell(value: &NativeHistogram, text: &mut Vec<u8>) -> u64 {
        let start = text.len();
        histogram::push_bytes(value, text);
        Span { start: start as u32, len: (text.len() - start) as u32 }.to_cell()
    }

    /// Rows that have been added.
    pub fn rows(&self) -> usize {
        self.shards.iter().flat_map(|rows| &rows.blocks).map(RowBlock::rows).sum()
    }

    /// Writes the rows; returns when they are on disk. The tokens of rows that were left out because their groups are not
    /// there any more are to be registered again.
    pub fn commit(self) -> Result<Vec<Token>, StoreError> {
        let store = self.store;
        let appended = self.append(None)?;
        store.commit(&appended)?;
        Ok(appended.stale)
    }

    /// Puts the rows into log and heads; on disk they are after [`Store::commit`], which many can share. A batch that its
    /// producer has sent before, or that comes before one that was applied, is not applied.
    pub fn append(self, sent: Option<Sent>) -> Result<Appended, StoreError> {
        let (rows, cells, known_stale) = (self.rows() as u64, self.cells as u64, self.stale.len() as u64);
        let appended = self.store.append_rows(self.shards, self.stale, sent)?;
        if !appended.is_duplicate {
            let rejected = appended.beyond_retention + appended.folded;
            let left_out = appended.stale.len() as u64 - known_stale + rejected;
            self.store.counters.appended(rows.saturating_sub(left_out), cells);
            self.store.counters.rejected_rows.fetch_add(rejected, Ordering::Relaxed);
        }
        Ok(appended)
    }
}
