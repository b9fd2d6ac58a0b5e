//! The write path: resolve, log, head, commit. Everything that decides is in [`crate::write::resolve`].

pub(crate) mod admission;
pub(crate) mod beyond_retention;
pub(crate) mod buffer_pool;
pub(crate) mod exemplars;
pub(crate) mod keys;
pub(crate) mod pressure;
pub(crate) mod producers;
pub(crate) mod resolve;
pub(crate) mod sealed;
pub(crate) mod tokens;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use codec::COLUMN_VALUES_MAX;
use index::{DatabaseId, Slot};
use model::{Batch, Block, Field, HISTOGRAM_FIELD, RejectionKind, Span, TimeRange, VALUE_FIELD, ValueType};
use tracing_mutex::parkinglot::{Mutex, RwLock};

use crate::log::NewRecord;
use crate::log::record::{self, BLOCK_ROWS_MAX, RowBlock, ShardRows};
use crate::part::histogram;
use crate::write::admission::{SeriesGate, SeriesTarget};
use crate::write::buffer_pool::BufferPool;
use crate::write::exemplars::Exemplars;
use crate::write::keys::Keys;
use crate::write::pressure::{Admission, Fullness, Pressure};
use crate::write::producers::{Producers, Sent};
use crate::write::resolve::{BlockRoute, Route};
use crate::{Store, StoreError, StoreOptions};

/// Columns that a block may have.
const BLOCK_COLUMNS_MAX: usize = 1 << 16;

/// What writers share.
pub(crate) struct Ingestor {
    keys: Keys,
    buffers: BufferPool,
    pressure: Pressure,
    admission: admission::Admission,
    /// Why new series are refused at present, if they are.
    refusal: RwLock<Option<String>>,
    /// Tables that take rows by token alone: those of views.
    reserved: RwLock<BTreeSet<(DatabaseId, String)>>,
    /// True if there are entries that the log does not hold yet.
    unlogged: AtomicBool,
    /// Exemplars, and since when series count.
    exemplars: Mutex<Exemplars>,
    /// The last request of each producer.
    producers: Mutex<Producers>,
}

impl Ingestor {
    /// With what the log and the index hold.
    pub(crate) fn new(options: &StoreOptions, exemplars: Exemplars, producers: Producers) -> Self {
        Self {
            keys: Keys::new(options.group_keys_max),
            buffers: BufferPool::default(),
            pressure: Pressure::default(),
            admission: admission::Admission::default(),
            refusal: RwLock::default(),
            reserved: RwLock::default(),
            unlogged: AtomicBool::new(false),
            exemplars: Mutex::new(exemplars),
            producers: Mutex::new(producers),
        }
    }

    /// How writers wait for flushes.
    pub(crate) const fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// Cached keys, and the bytes that they take.
    pub(crate) fn keys_count(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn keys_bytes(&self) -> u64 {
        self.keys.memory_bytes() as u64
    }

    /// Bytes of buffers for the next requests.
    pub(crate) fn buffers_bytes(&self) -> u64 {
        self.buffers.size_bytes() as u64
    }

    /// Gives all buffers back to the system.
    pub(crate) fn clear_buffers(&self) {
        self.buffers.clear();
    }

    /// Forgets the groups of keys, and how many series databases have: groups have left the index.
    pub(crate) fn forget_groups(&self) {
        self.keys.clear();
        self.admission.forget();
    }

    /// Makes rows on their way be looked at again: what they were looked up by has changed.
    pub(crate) fn look_again(&self) {
        self.keys.look_again();
    }

    /// Refuses new series for a reason, or admits them again.
    pub(crate) fn refuse_series(&self, reason: Option<String>) {
        *self.refusal.write() = reason;
    }

    /// Returns whether new series are refused.
    pub(crate) fn refuses_series(&self) -> bool {
        self.refusal.read().is_some()
    }

    /// How often new series were refused, by the setting that did.
    pub(crate) fn series_refused(&self) -> [(&'static str, u64); 3] {
        self.admission.refused()
    }

    /// Smallest sequence id of exemplars that no segment holds yet.
    pub(crate) fn exemplars_unsaved_since(&self) -> Option<u64> {
        self.exemplars.lock().unsaved_since
    }

    /// Smallest sequence id of producers' requests that no segment holds yet.
    pub(crate) fn producers_unsaved_since(&self) -> Option<u64> {
        self.producers.lock().unsaved_since
    }
}

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteReport {
    /// Rows that are on disk now.
    pub rows_written: u64,
    /// Values in them.
    pub values_written: u64,
    /// Rows that were not taken, with their lines and reasons; no more than [`crate::StoreOptions::rejections_max`].
    pub rejected: Vec<Rejected>,
    /// How many rows were not taken.
    pub rejected_total: u64,
    /// How many of those may be taken when they are sent again later: a limit for a time refused them.
    pub rejected_for_now: u64,
}

/// A row that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The line or item of the request that it came from, counted from 1.
    pub line: u32,
    /// What the reason is about.
    pub kind: RejectionKind,
    /// Why.
    pub reason: String,
}

impl Store {
    /// From now on rows of a table are refused whose series are not known yet, but for those that are registered by [`Store::register_groups`].
    pub fn reserve_table(&self, database: &str, table: &str) -> Result<(), StoreError> {
        let database = self.database_id(database)?;
        self.ingestor.reserved.write().insert((database, table.to_owned()));
        Ok(())
    }

    /// Ends that.
    pub fn release_table(&self, database: &str, table: &str) {
        if let Some(database) = self.database_number(database) {
            self.ingestor.reserved.write().remove(&(database, table.to_owned()));
        }
    }

    /// Writes a batch; returns when it is on disk. All rows that can be taken are taken, whole or not at all.
    pub fn write(&self, database: &str, batch: &Batch<'_>) -> Result<WriteReport, StoreError> {
        self.write_gated(database, batch, None)
    }

    /// As [`Store::write`]; rows of series that are new have to pass a gate.
    pub fn write_gated(
        &self,
        database: &str,
        batch: &Batch<'_>,
        gate: Option<SeriesGate<'_>>,
    ) -> Result<WriteReport, StoreError> {
        admit(batch)?;
        let database = self.database_id(database)?;
        self.check_not_regular(database)?;
        self.register_metadata(database, &batch.metadata)?;
        self.write_exemplars(database, batch)?;
        loop {
            let generation = self.ingestor.keys.generation();
            let mut route = self.resolve(SeriesTarget { database, gate }, batch)?;
            self.reject_sealed(database, batch, &mut route)?;
            let rows = self.split(batch, &route);
            // A group that left the index meanwhile is registered anew, and rows of time that was folded are rejected.
            let appended = self.append(&rows, Some(generation))?;
            self.ingestor.buffers.recycle_rows(rows);
            if let Some(sequence) = appended {
                self.log.commit(sequence)?;
                let report = self.report(batch, route);
                self.counters.wrote(&report);
                return Ok(report);
            }
        }
    }

    /// Puts rows into the log and the heads under one hold of the shards' locks, so that both have the same order. `None` if
    /// groups left the index since the keys' generation was read: nothing was written.
    pub(crate) fn append(&self, rows: &[ShardRows], generation: Option<u64>) -> Result<Option<u64>, StoreError> {
        Ok(self.append_sent(rows, None, generation)?.map(|(sequence, _)| sequence))
    }

    /// As [`Store::write`], for rows of a producer; also says whether they were there already, and then the sequence id is that of the
    /// producer's last record. A batch without rows is remembered too.
    pub(crate) fn append_sent(
        &self,
        rows: &[ShardRows],
        sent: Option<Sent>,
        generation: Option<u64>,
    ) -> Result<Option<(u64, bool)>, StoreError> {
        if rows.is_empty() && sent.is_none() {
            return Ok(Some((self.log.last_sequence(), false)));
        }
        self.wait_for_room(rows)?;
        self.log_unlogged()?;
        let mut payload = self.ingestor.buffers.payload();
        if let Some(sent) = sent {
            sent.encode(&mut payload);
        }
        record::encode_rows(rows, &mut payload);
        let range = rows.iter().map(ShardRows::range).fold(TimeRange::EMPTY, TimeRange::union);
        let shards: Vec<_> = rows.iter().filter_map(|rows| self.shards.get(rows.shard)).collect();
        let mut states: Vec<_> = shards.iter().map(|shard| shard.state.lock()).collect();
        if generation.is_some_and(|generation| generation != self.ingestor.keys.generation()) {
            return Ok(None);
        }
        let recorded = self.append_record(sent, &payload, range)?;
        self.ingestor.buffers.recycle_payload(payload);
        let sequence = match recorded {
            Ok(sequence) => sequence,
            Err(known) => return Ok(Some((known, true))),
        };
        let now_ns = self.platform.clock.now_ns();
        for ((shard, state), rows) in shards.iter().zip(&mut states).zip(rows) {
            self.journal.record(shard.number, state.newest_ns.min(now_ns), rows);
            shard.apply(state, rows, sequence);
        }
        Ok(Some((sequence, false)))
    }

    /// Appends the record of rows, or says under which sequence id the log has what was sent, or something sent later.
    fn append_record(
        &self,
        sent: Option<Sent>,
        payload: &[u8],
        range: TimeRange,
    ) -> Result<Result<u64, u64>, StoreError> {
        let Some(sent) = sent else {
            return self.log.append(&NewRecord { kind: record::ROWS, payload, range }).map(Ok);
        };
        let mut producers = self.ingestor.producers.lock();
        if let Some(last) = producers.last(sent.producer).filter(|last| last.sequence >= sent.sequence) {
            return Ok(Err(last.record));
        }
        let sequence = self.log.append(&NewRecord { kind: record::SENT_ROWS, payload, range })?;
        producers.applied(sent, sequence, self.options.producers_max);
        Ok(Ok(sequence))
    }

    /// Writers that outrun the flushing wait for it, or flush themselves where no other thread does.
    fn wait_for_room(&self, rows: &[ShardRows]) -> Result<(), StoreError> {
        let cells = rows.iter().flat_map(|rows| &rows.blocks).map(|block| block.rows() * block.columns.len()).sum();
        let is_small = pressure::is_small(cells);
        let full = self.log.stats().bytes > self.options.log_bytes_max * if is_small { 3 } else { 2 };
        for shard in rows.iter().filter_map(|rows| self.shards.get(rows.shard)) {
            if full {
                self.flush(shard)?;
                continue;
            }
            loop {
                let (head_bytes, bytes_max) = (shard.state.lock().head.bytes(), self.head_bytes_max());
                let progress = self.ingestor.pressure.progress();
                match pressure::admit(Fullness { head_bytes, bytes_max, progress }, is_small) {
                    Admission::Enter => break,
                    Admission::Wait => self.ingestor.pressure.wait(progress),
                    Admission::Flush => self.flush_if_over(shard, bytes_max.saturating_mul(2))?,
                }
            }
        }
        Ok(())
    }

    /// The rows of each shard that has some, in order of shards.
    fn split(&self, batch: &Batch<'_>, route: &Route) -> Vec<ShardRows> {
        let mut shards: Vec<ShardRows> =
            (0..self.shards.len()).map(|shard| ShardRows { shard, ..ShardRows::default() }).collect();
        for (block, route) in batch.blocks.iter().zip(&route.blocks) {
            split_block(batch, block, route, &mut shards, &self.ingestor.buffers);
        }
        shards.retain(|rows| !rows.blocks.is_empty());
        shards
    }

    fn report(&self, batch: &Batch<'_>, route: Route) -> WriteReport {
        let Route { blocks, rejected, rejected_for_now } = route;
        let mut report = WriteReport { rejected, rejected_for_now, ..WriteReport::default() };
        report.rejected.sort_by_key(|rejected| rejected.line);
        report.rejected.truncate(self.options.rejections_max);
        for (block, route) in batch.blocks.iter().zip(&blocks) {
            let rows = route.targets.iter().flatten().count() as u64;
            report.rows_written += rows;
            report.values_written += rows * block.fields.len() as u64;
            report.rejected_total += block.rows() as u64 - rows;
        }
        report
    }
}

/// Returns whether the batch is what its type promises.
fn admit(batch: &Batch<'_>) -> Result<(), StoreError> {
    for block in &batch.blocks {
        let rows = block.timestamps_ns.len();
        let width = block.fields.len();
        let even = block.keys.len() == rows && block.lines.len() == rows && block.cells.len() == rows * width;
        if !even || width == 0 || width > BLOCK_COLUMNS_MAX.min(COLUMN_VALUES_MAX) {
            return Err(StoreError::Invalid(format!("a block of {rows} rows and {width} fields is malformed")));
        }
        let lone = |field: &Field| {
            (field.name == VALUE_FIELD && field.value_type == ValueType::F64)
                || (field.name == HISTOGRAM_FIELD && field.value_type == ValueType::Histogram)
        };
        if block.measurement.is_none() && !matches!(block.fields.as_slice(), [field] if lone(field)) {
            return Err(StoreError::Invalid(
                "a block of lone series has one field, value or native_histogram".to_owned(),
            ));
        }
        admit_histograms(batch, block)?;
    }
    Ok(())
}

/// Returns whether every histogram cell stands for a histogram that makes sense.
fn admit_histograms(batch: &Batch<'_>, block: &Block) -> Result<(), StoreError> {
    for (index, _) in block.fields.iter().enumerate().filter(|(_, field)| field.value_type == ValueType::Histogram) {
        for (row, line) in block.lines.iter().enumerate() {
            let cell = block.row(row).get(index).and_then(|cell| usize::try_from(*cell).ok());
            let Some(value) = cell.and_then(|cell| batch.histograms.get(cell)) else {
                return Err(StoreError::Invalid(format!("item {line}: the histogram is missing from the batch")));
            };
            let checked = value.validate();
            checked.map_err(|invalid| StoreError::Invalid(format!("item {line}: {invalid}")))?;
        }
    }
    Ok(())
}

/// Hands a block's rows to their shards. Rows whose columns have other slots than the rows before, and those beyond
/// the size of a block, start a new block.
fn split_block(batch: &Batch<'_>, block: &Block, route: &BlockRoute, shards: &mut [ShardRows], spare: &BufferPool) {
    let lone_type = block.fields.first().map_or(ValueType::F64, |field| field.value_type);
    let has_texts = block.fields.iter().any(|field| field.value_type.is_elsewhere());
    let width = block.fields.len();
    // The slot of the block that each shard's rows go to; where columns are shared, they are the same all along.
    let mut opened: Vec<Option<Slot>> = vec![None; shards.len()];
    let mut row = 0;
    while let Some(target) = route.targets.get(row) {
        let Some(target) = target else {
            row += 1;
            continue;
        };
        let (Some(rows), Some(opened)) = (shards.get_mut(target.shard), opened.get_mut(target.shard)) else {
            row += 1;
            continue;
        };
        let slot = if route.columns.is_some() { 0 } else { target.slot };
        let fits = *opened == Some(slot) && rows.blocks.last().is_some_and(|last| last.rows() < BLOCK_ROWS_MAX);
        if !fits {
            let columns = route.columns.clone().unwrap_or_else(|| vec![(target.slot, lone_type)]);
            rows.blocks.push(RowBlock { columns, ..spare.block() });
            *opened = Some(slot);
        }
        let Some(into) = rows.blocks.last_mut() else { break };
        // Rows of one group come together where a request has several of it.
        let end_max = row + BLOCK_ROWS_MAX - into.rows();
        let mut end = row + 1;
        while end < end_max && matches!(route.targets.get(end), Some(Some(next)) if next == target) {
            end += 1;
        }
        match block.timestamps_ns.get(row..end) {
            // A copy of one is not worth a call.
            Some([timestamp_ns]) => {
                into.groups.push(target.group);
                into.timestamps_ns.push(*timestamp_ns);
            }
            timestamps_ns => {
                into.groups.resize(into.groups.len() + end - row, target.group);
                into.timestamps_ns.extend_from_slice(timestamps_ns.unwrap_or_default());
            }
        }
        match block.cells.get(row * width..end * width).unwrap_or_default() {
            cells if has_texts => {
                let rows_of_run = cells.chunks_exact(width.max(1));
                rows_of_run.for_each(|cells| push_with_texts(batch, &block.fields, cells, into, &mut rows.text));
            }
            [cell] => into.cells.push(*cell),
            cells => into.cells.extend_from_slice(cells),
        }
        row = end;
    }
}

fn push_with_texts(batch: &Batch<'_>, fields: &[Field], cells: &[u64], into: &mut RowBlock, text: &mut Vec<u8>) {
    for (field, cell) in fields.iter().zip(cells) {
        let start = text.len();
        match field.value_type {
            ValueType::String => text.extend_from_slice(batch.text(Span::from_cell(*cell))),
            // Admitted, so it is there and fits.
            ValueType::Histogram => {
                if let Some(value) = usize::try_from(*cell).ok().and_then(|index| batch.histograms.get(index)) {
                    histogram::push_bytes(value, text);
                }
            }
            _ => {
                into.cells.push(*cell);
                continue;
            }
        }
        into.cells.push(Span { start: start as u32, len: (text.len() - start) as u32 }.to_cell());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::record::text_of;
    use crate::write::keys::Target;

    const SHARDS: usize = 2;

    /// Rows of a block as they were sent: their number, in each cell and in each text, says which.
    fn sent(types: &[ValueType], rows: usize) -> (Batch<'static>, Block) {
        let mut batch = Batch::new(&[], |_| Err(String::new()));
        let cell = |batch: &mut Batch<'_>, row: usize, value_type: &ValueType| match value_type {
            ValueType::String => batch.push_text(format!("row {row}").as_bytes()).to_cell(),
            _ => row as u64,
        };
        let fields = types.iter().map(|value_type| Field { name: String::new(), value_type: *value_type }).collect();
        let cells = (0..rows).flat_map(|row| types.iter().map(move |value_type| (row, value_type)));
        let cells = cells.map(|(row, value_type)| cell(&mut batch, row, value_type)).collect();
        let block = Block { fields, timestamps_ns: (0..rows as i64).collect(), cells, ..Block::default() };
        (batch, block)
    }

    /// What shards get: group, time and cells of each row; and that no block has too many rows.
    fn split(types: &[ValueType], targets: Vec<Option<Target>>) -> Vec<Vec<(u32, i64, Vec<String>)>> {
        let (batch, block) = sent(types, targets.len());
        let columns = (types.len() > 1).then(|| (0..).zip(types.iter().copied()).collect());
        let mut shards: Vec<ShardRows> = (0..SHARDS).map(|shard| ShardRows { shard, ..ShardRows::default() }).collect();
        split_block(&batch, &block, &BlockRoute { columns, targets }, &mut shards, &BufferPool::default());
        let rows_of = |rows: &ShardRows| {
            let mut found = Vec::new();
            for block in &rows.blocks {
                assert!((1..=BLOCK_ROWS_MAX).contains(&block.rows()) && block.groups.len() == block.rows());
                for (row, (group, timestamp_ns)) in block.groups.iter().zip(&block.timestamps_ns).enumerate() {
                    let cells = block.row(row).iter().zip(&block.columns);
                    let told = cells.map(|(cell, (_, value_type))| match value_type {
                        ValueType::String => {
                            String::from_utf8_lossy(text_of(&rows.text, *cell).unwrap_or_default()).into_owned()
                        }
                        _ => cell.to_string(),
                    });
                    found.push((*group, *timestamp_ns, told.collect()));
                }
            }
            found
        };
        shards.iter().map(rows_of).collect()
    }

    /// What shards have to get, row by row.
    fn expected(types: &[ValueType], targets: &[Option<Target>]) -> Vec<Vec<(u32, i64, Vec<String>)>> {
        let mut shards = vec![Vec::new(); SHARDS];
        for (row, target) in targets.iter().enumerate() {
            let Some(target) = target else { continue };
            let told = |value_type: &ValueType| match value_type {
                ValueType::String => format!("row {row}"),
                _ => row.to_string(),
            };
            shards[target.shard].push((target.group, row as i64, types.iter().map(told).collect()));
        }
        shards
    }

    fn targets_of(runs: &[(usize, Option<u32>)]) -> Vec<Option<Target>> {
        let target = |group: u32| Target { shard: group as usize % SHARDS, group, slot: group / 2 % 2 };
        runs.iter().flat_map(|(rows, group)| std::iter::repeat_n(group.map(target), *rows)).collect()
    }

    proptest! {
        #[test]
        fn runs_go_where_rows_one_by_one_would(
            runs in proptest::collection::vec((1usize..4, proptest::option::of(0u32..4)), 0..30),
            types in prop_oneof![
                Just(vec![ValueType::F64]),
                Just(vec![ValueType::U64, ValueType::I64]),
                Just(vec![ValueType::U64, ValueType::String]),
            ],
        ) {
            let targets = targets_of(&runs);
            prop_assert_eq!(split(&types, targets.clone()), expected(&types, &targets));
        }
    }

    #[test]
    fn no_run_makes_a_block_too_long() {
        for types in [&[ValueType::F64][..], &[ValueType::U64, ValueType::I64]] {
            let targets = targets_of(&[(7, Some(0)), (2 * BLOCK_ROWS_MAX + 5, Some(0)), (3, None), (9, Some(0))]);
            assert!(split(types, targets.clone()) == expected(types, &targets));
        }
    }
}
