//! A batch into the database: its columns are read in place, turned into rows, and appended by token.

use std::collections::BTreeMap;

use access::grant::Right;
use access::scope::Scope;
use db::{Appended, Appender, Db, GroupLayout, Sent, StoreError};
use model::{NativeHistogram, ValueType};
use wire::WireError;
use wire::data::Batch;
use wire::rows::{Block, Rows, Run};

use super::written::check_owing_of;
use crate::state::State;

/// Layouts that a connection remembers.
const LAYOUTS_MAX: usize = 64;

/// Bytes that a batch's histograms may take, each with its layout: on the wire many share one.
const HISTOGRAMS_BYTES_MAX: usize = 64 << 20;

/// Why a batch is not applied; chosen by what becomes of its connection.
pub(super) enum ApplyError {
    /// The batch is notice, and the next one may come.
    Invalid(String),
    /// The client broke the protocol.
    Malformed(WireError),
    /// The storage takes nothing now.
    Unavailable(String),
}

impl From<WireError> for ApplyError {
    fn from(error: WireError) -> Self {
        Self::Malformed(error)
    }
}

impl From<StoreError> for ApplyError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Invalid(reason) => Self::Invalid(reason),
            other => Self::Unavailable(other.to_string()),
        }
    }
}

/// Applies one connection's batches; keeps its memory from one to the next.
pub(super) struct Applier<'a> {
    state: &'a State,
    db: &'a Db,
    producer: u64,
    ahead_ms_max: u64,
    layouts: Vec<GroupLayout>,
    rows: Rows,
    cells: Vec<u64>,
    /// Those of the batch at hand, so far.
    histograms_bytes: usize,
    /// Samples by database of the last batch.
    written: BTreeMap<String, u64>,
    /// Databases for whose limits the batch at hand has waited.
    waited_for: Vec<String>,
    /// True if the last batch was refused because its databases owe something.
    is_owing: bool,
}

impl<'a> Applier<'a> {
    /// A batch with a row further ahead of the clock than `ahead_ms_max` is refused.
    pub(super) fn new(state: &'a State, producer: u64, ahead_ms_max: u64) -> Self {
        let (layouts, rows, cells) = (Vec::new(), Rows::default(), Vec::new());
        let (db, written) = (&*state.db, BTreeMap::new());
        let histograms_bytes = 0;
        Self {
            state,
            db,
            producer,
            ahead_ms_max,
            layouts,
            rows,
            cells,
            histograms_bytes,
            written,
            waited_for: Vec::new(),
            is_owing: false,
        }
    }

    /// Samples by database that were read of the last batch, also of one that was refused; `None` of one that limits refused: it will be sent again,
    /// and what was not written adds nothing to what is owed.
    pub(super) fn take_written(&mut self) -> Option<BTreeMap<String, u64>> {
        let written = std::mem::take(&mut self.written);
        (!std::mem::take(&mut self.is_owing)).then_some(written)
    }

    /// Names the databases for whose limits the next batch has waited: of others it is refused if they owe something.
    pub(super) fn has_waited_for(&mut self, databases: Vec<String>) {
        self.waited_for = databases;
    }

    fn check_ahead(&self, timestamps_ns: &[i64]) -> Result<(), ApplyError> {
        let ahead_ns = i64::try_from(self.ahead_ms_max).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let newest_ns_max = self.db.latest_now_ns().saturating_add(ahead_ns);
        match timestamps_ns.iter().max() {
            Some(newest_ns) if *newest_ns > newest_ns_max => Err(ApplyError::Invalid(format!(
                "the time {newest_ns} ns is more than {} ms ahead of the server's clock (ahead_ms_max)",
                self.ahead_ms_max
            ))),
            _ => Ok(()),
        }
    }

    /// Puts a batch into log and heads, as a whole or not at all. On disk it is later.
    /// Rows of databases that the account may not write are refused with it, as if their tokens had never been given out.
    pub(super) fn apply(&mut self, batch: &Batch<'_>, scope: &Scope) -> Result<Appended, ApplyError> {
        self.histograms_bytes = 0;
        let may_write = |database: &str| scope.may_whole(Right::Write, database);
        let mut appender = self.db.appender();
        if !scope.may_everywhere(Right::Write) {
            appender.restrict(&may_write);
        }
        let pushed = self.push_blocks(&mut appender, batch);
        // What was read of a batch that is refused took time, too.
        self.written = appender.cells_by_database();
        pushed?;
        let others = self.written.keys().filter(|database| !self.waited_for.contains(database));
        if let Err(error) = check_owing_of(self.state, scope, others) {
            self.is_owing = true;
            return Err(ApplyError::Unavailable(error.message));
        }
        let sent = (self.producer != 0).then_some(Sent { producer: self.producer, sequence: batch.sequence });
        Ok(appender.append(sent)?)
    }

    fn push_blocks(&mut self, appender: &mut Appender<'_>, batch: &Batch<'_>) -> Result<(), ApplyError> {
        batch.blocks().try_for_each(|block| self.push_block(appender, &block?))
    }

    fn push_block(&mut self, appender: &mut Appender<'_>, block: &Block<'_>) -> Result<(), ApplyError> {
        let mut rows = std::mem::take(&mut self.rows);
        for stretch in block.stretches() {
            block.read(stretch, &mut rows)?;
            self.check_ahead(&rows.timestamps_ns)?;
            self.move_histograms(block, &mut rows)?;
            if rows.present.is_empty() {
                self.push_full(appender, block, &rows)?;
            } else {
                for run in rows.runs(block.types.len()) {
                    self.push_run(appender, block, &rows, &run)?;
                }
            }
        }
        self.rows = rows;
        Ok(())
    }

    /// Scheduler histograms into bytes behind the text, which cells say the place of.
    fn move_histograms(&mut self, block: &Block<'_>, rows: &mut Rows) -> Result<(), ApplyError> {
        if rows.histograms.is_empty() {
            return Ok(());
        }
        // Before they are encoded, which takes time for every bucket of each.
        self.histograms_bytes += rows.histograms.iter().map(size_bytes).sum::<usize>();
        if self.histograms_bytes > HISTOGRAMS_BYTES_MAX {
            let message = format!("the batch's histograms take more than {HISTOGRAMS_BYTES_MAX} bytes: split it");
            return Err(ApplyError::Invalid(message));
        }
        let is_histogram = block.types.iter().map(|kind| *kind == ValueType::Histogram).cycle();
        let is_present = rows.present.iter().copied().chain(std::iter::repeat(true));
        for ((cell, is_histogram), is_present) in rows.cells.iter_mut().zip(is_histogram).zip(is_present) {
            let place = usize::try_from(*cell).unwrap_or(usize::MAX);
            if let Some(value) = rows.histograms.get(place).filter(|_| is_histogram && is_present) {
                *cell = Appender::histogram_cell(value, &mut rows.text);
            }
        }
        Ok(())
    }

    fn push_full(&mut self, appender: &mut Appender<'_>, block: &Block<'_>, rows: &Rows) -> Result<(), ApplyError> {
        if block.slots.is_empty() {
            return Ok(appender.push_samples(&rows.tokens, &rows.timestamps_ns, &rows.cells)?);
        }
        let layout = self.layout(block.measurement, &block.slots, &block.types)?;
        Ok(appender.push_rows(&layout, &rows.tokens, &rows.timestamps_ns, &rows.cells, &rows.text)?)
    }

    /// Rows of which some cells are null: the others, as rows of fewer columns.
    fn push_run(
        &mut self,
        appender: &mut Appender<'_>,
        block: &Block<'_>,
        rows: &Rows,
        run: &Run,
    ) -> Result<(), ApplyError> {
        let (Some(tokens), Some(timestamps_ns)) =
            (rows.tokens.get(run.rows.clone()), rows.timestamps_ns.get(run.rows.clone()))
        else {
            return Ok(());
        };
        if run.columns.is_empty() {
            return Ok(());
        }
        let width = block.types.len();
        let mut cells = std::mem::take(&mut self.cells);
        cells.clear();
        for row in rows.cells.chunks_exact(width).skip(run.rows.start).take(run.rows.len()) {
            cells.extend(run.columns.iter().filter_map(|column| row.get(*column)));
        }
        if block.slots.is_empty() {
            appender.push_samples(tokens, timestamps_ns, &cells)?;
        } else {
            let slots: Vec<u32> = run.columns.iter().filter_map(|column| block.slots.get(*column).copied()).collect();
            let types: Vec<_> = run.columns.iter().filter_map(|column| block.types.get(*column).copied()).collect();
            let layout = self.layout(block.measurement, &slots, &types)?;
            appender.push_rows(&layout, tokens, timestamps_ns, &cells, &rows.text)?;
        }
        self.cells = cells;
        Ok(())
    }

    fn layout(&mut self, measurement: u32, slots: &[u32], types: &[ValueType]) -> Result<GroupLayout, StoreError> {
        if let Some(known) = self.layouts.iter().find(|layout| layout.is_of(measurement, slots, types)) {
            return Ok(known.clone());
        }
        let layout = self.db.group_layout(measurement, slots, types)?;
        if self.layouts.len() >= LAYOUTS_MAX {
            self.layouts.clear();
        }
        self.layouts.push(layout.clone());
        Ok(layout)
    }
}

/// Bytes of a histogram and its layout.
fn size_bytes(value: &NativeHistogram) -> usize {
    let layout = &value.layout;
    let spans = layout.positive_spans.len() + layout.negative_spans.len();
    let counts = layout.positive_buckets() + layout.negative_buckets();
    size_of::<NativeHistogram>() + 8 * (layout.custom_bounds.len() + spans + counts)
}
