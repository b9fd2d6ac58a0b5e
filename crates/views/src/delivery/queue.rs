//! Rows that a job has read and not delivered yet, and how they are made of records.

use std::collections::VecDeque;
use std::sync::Arc;

use db::TenantMemory;
use query::Value;
use sql::OutputColumn;

use super::definition::Batching;
use crate::feed::Batch;
use crate::rows::{Row, filtered_rows};
use crate::series_filter::SeriesFilter;

/// Bytes by which the memory of items grows.
const MEMORY_STEP_BYTES: u64 = 64 << 10;

/// Bytes that an item takes beside its content.
const ITEM_BYTES: u64 = 96;

/// Rows that are looked at in one go.
const ROWS_LOOKED_AT_MAX: u64 = 100_000;

/// A row as it is delivered.
#[derive(Debug, Clone)]
pub(crate) enum Payload {
    /// As text.
    Text(String),
    /// As values of columns.
    Row(Arc<[OutputColumn]>, Vec<Value>),
}

/// A row to deliver.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) sequence: u64,
    /// The number of its row in its record.
    pub(crate) row: usize,
    pub(crate) bytes: u64,
    /// Bytes of memory that are taken for it.
    pub(crate) reserved_bytes: u64,
    pub(crate) payload: Payload,
}

impl Payload {
    fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Row(_, values) => {
                let text = |value: &Value| if let Value::Text(text) = value { text.len() } else { 0 };
                values.iter().map(|value| (size_of::<Value>() + text(value)) as u64).sum()
            }
        }
    }

    /// Returns whether it goes into one request with another.
    fn goes_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(_), Self::Text(_)) => true,
            (Self::Row(a, _), Self::Row(b, _)) => a == b,
            _ => false,
        }
    }
}

/// How far a batch of the log was turned into items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    record: usize,
    row: usize,
}

/// A row of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowPosition {
    /// The sequence id of its record.
    pub(crate) sequence: u64,
    /// Its number in the record.
    pub(crate) row: usize,
}

/// A batch of the log that is turned into items.
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) batch: Arc<Batch>,
    /// Records up to this sequence id are not for the job.
    pub(crate) after: u64,
    pub(crate) progress: Progress,
}

impl Pending {
    /// A batch from a row on, if it has that one; otherwise all of it.
    pub(crate) fn new(batch: Arc<Batch>, after: u64, from: Option<RowPosition>) -> Self {
        let progress = from.and_then(|position| {
            let record = batch.records.iter().position(|record| record.sequence == position.sequence)?;
            Some(Progress { record, row: position.row })
        });
        Self { batch, after, progress: progress.unwrap_or_default() }
    }

    /// The first row that was not turned into an item.
    pub(crate) fn position(&self) -> RowPosition {
        let Some(record) = self.batch.records.get(self.progress.record) else {
            return RowPosition { sequence: self.batch.last_sequence.saturating_add(1), row: 0 };
        };
        if record.sequence <= self.after {
            return RowPosition { sequence: self.after.saturating_add(1), row: 0 };
        }
        RowPosition { sequence: record.sequence, row: self.progress.row }
    }
}

/// What makes items of rows.
pub(crate) trait RowWork {
    /// The item of a row; `None` if the row is not wanted.
    fn payload(&mut self, row: &Row<'_>, sequence: u64) -> Result<Option<Payload>, String>;
}

/// What a part of a batch gave.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) items: Vec<Item>,
    /// Bytes of memory that were taken for them.
    pub(crate) reserved_bytes: u64,
    /// Bytes that they take.
    used_bytes: u64,
    /// Where to go on; `None` if the batch is done with.
    pub(crate) next: Option<Progress>,
    /// Rows for which it cannot be said whether they are wanted.
    pub(crate) failed: u64,
    pub(crate) error: Option<String>,
}

impl Prepared {
    fn fits(&mut self, row: &Row<'_>, memory: &TenantMemory) -> bool {
        // Names are in a row's text, too.
        let needed = self.used_bytes + 4 * row.text_bytes() as u64 + ITEM_BYTES;
        if needed <= self.reserved_bytes {
            return true;
        }
        let step = MEMORY_STEP_BYTES.max(needed - self.reserved_bytes);
        let is_taken = memory.take(step, self.reserved_bytes);
        self.reserved_bytes += if is_taken { step } else { 0 };
        is_taken
    }

    /// Adds the item of a row; returns its bytes.
    fn add(&mut self, position: RowPosition, payload: Payload) -> u64 {
        let bytes = payload.bytes();
        self.used_bytes += bytes + ITEM_BYTES;
        self.items.push(Item { sequence: position.sequence, row: position.row, bytes, reserved_bytes: 0, payload });
        bytes
    }
}

/// Makes items of a batch until there is a request full, or the batch or the memory ends. An error: there is no memory for a single item.
pub(crate) fn prepare(
    pending: &Pending,
    work: &mut dyn RowWork,
    filter: &mut SeriesFilter,
    limits: &Batching,
    memory: &TenantMemory,
) -> Result<Prepared, String> {
    let mut out = Prepared::default();
    let (mut progress, mut bytes, mut looked_at) = (pending.progress, 0, 0);
    while let Some(record) = pending.batch.records.get(progress.record) {
        let is_wanted = record.sequence > pending.after;
        for row in filtered_rows(record, filter).skip(progress.row).take_while(|_| is_wanted) {
            let is_full = bytes >= limits.batch_bytes || out.items.len() as u64 >= limits.batch_rows;
            if is_full || looked_at >= ROWS_LOOKED_AT_MAX {
                out.next = Some(progress);
                return Ok(out);
            }
            if !out.fits(&row, memory) {
                if out.items.is_empty() {
                    memory.give_back(out.reserved_bytes);
                    return Err(format!("no memory for {} bytes of a row", row.text_bytes()));
                }
                out.next = Some(progress);
                return Ok(out);
            }
            let position = RowPosition { sequence: record.sequence, row: progress.row };
            looked_at += 1;
            progress.row += 1;
            match work.payload(&row, record.sequence) {
                Ok(Some(payload)) => bytes += out.add(position, payload),
                Ok(None) => {}
                Err(reason) => {
                    out.failed += 1;
                    out.error = Some(reason);
                }
            }
        }
        progress = Progress { record: progress.record + 1, row: 0 };
    }
    Ok(out)
}

/// Rows of one request.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// At least one.
    pub(crate) items: Vec<Item>,
}

impl Chunk {
    /// Sequence id of its last row.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.items.last().map_or(0, |item| item.sequence)
    }

    pub(crate) fn rows(&self) -> u64 {
        self.items.len() as u64
    }

    /// Bytes of memory that are taken for them.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.items.iter().map(|item| item.reserved_bytes).sum()
    }
}

/// Rows that wait, in order.
pub(crate) struct Queue {
    items: VecDeque<Item>,
    bytes: u64,
    /// Everything up to this sequence id is delivered or waits here.
    through: u64,
    /// When the first was added.
    since_ns: Option<u64>,
    memory: Arc<TenantMemory>,
    reserved_bytes: u64,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.memory.give_back(self.reserved_bytes);
    }
}

impl Queue {
    pub(crate) fn new(memory: Arc<TenantMemory>, through: u64) -> Self {
        Self { items: VecDeque::new(), bytes: 0, through, since_ns: None, memory, reserved_bytes: 0 }
    }

    pub(crate) const fn memory(&self) -> &Arc<TenantMemory> {
        &self.memory
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns whether there is a request full.
    pub(crate) fn is_full(&self, limits: &Batching) -> bool {
        self.items.len() as u64 >= limits.batch_rows || self.bytes >= limits.batch_bytes
    }

    /// When the oldest row has waited long enough.
    pub(crate) fn due_ns(&self, limits: &Batching) -> Option<u64> {
        self.since_ns.map(|since_ns| since_ns.saturating_add(limits.batch_age_ms.saturating_mul(1_000_000)))
    }

    pub(crate) fn push(&mut self, prepared: &mut Prepared, now_ns: u64) {
        let mut items = std::mem::take(&mut prepared.items);
        let mut left_bytes = std::mem::take(&mut prepared.reserved_bytes);
        for item in &mut items {
            item.reserved_bytes = left_bytes.min(item.bytes + ITEM_BYTES);
            left_bytes -= item.reserved_bytes;
            self.reserved_bytes += item.reserved_bytes;
        }
        self.memory.give_back(left_bytes);
        if !items.is_empty() {
            self.since_ns.get_or_insert(now_ns);
        }
        self.bytes += items.iter().map(|item| item.bytes).sum::<u64>();
        self.items.extend(items);
    }

    /// Notes that everything up to a sequence id is here.
    pub(crate) fn note_read(&mut self, through: u64) {
        self.through = self.through.max(through);
    }

    /// Everything up to this sequence id is delivered, once what was taken out is.
    pub(crate) fn done_through(&self) -> u64 {
        self.items.front().map_or(self.through, |item| item.sequence.saturating_sub(1)).min(self.through)
    }

    /// Takes out a request's rows: one at least, if there is any.
    pub(crate) fn take_chunk(&mut self, limits: &Batching, now_ns: u64) -> Option<Chunk> {
        let (mut items, mut bytes) = (Vec::<Item>::new(), 0);
        while let Some(next) = self.items.front() {
            let is_full = items.len() as u64 >= limits.batch_rows || bytes + next.bytes > limits.batch_bytes;
            let is_other = items.last().is_some_and(|last| !last.payload.goes_with(&next.payload));
            if !items.is_empty() && (is_full || is_other) {
                break;
            }
            bytes += next.bytes;
            items.extend(self.items.pop_front());
        }
        self.bytes -= bytes;
        self.since_ns = (!self.items.is_empty()).then_some(now_ns);
        (!items.is_empty()).then_some(Chunk { items })
    }

    /// Gives back the memory of rows that were taken out and are delivered.
    pub(crate) fn settle(&mut self, bytes: u64) {
        let bytes = bytes.min(self.reserved_bytes);
        self.reserved_bytes -= bytes;
        self.memory.give_back(bytes);
    }

    /// Drops all that waits and gives its memory back; returns the first row of it.
    pub(crate) fn let_go(&mut self) -> Option<RowPosition> {
        let first = self.items.front().map(|item| RowPosition { sequence: item.sequence, row: item.row })?;
        self.through = self.through.min(first.sequence.saturating_sub(1));
        let reserved_bytes: u64 = self.items.drain(..).map(|item| item.reserved_bytes).sum();
        self.settle(reserved_bytes);
        (self.bytes, self.since_ns) = (0, None);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<TenantMemory> {
        let db = db::Db::open(platform::sim::Simulation::new(1).platform(), db::DbOptions::new("data")).unwrap();
        db.query_memory().tenant()
    }

    fn item(sequence: u64, text: &str) -> Item {
        let payload = Payload::Text(text.to_owned());
        Item { sequence, row: 0, bytes: payload.bytes(), reserved_bytes: 0, payload }
    }

    #[test]
    fn requests_are_bounded_and_the_position_follows_them() {
        let limits = Batching { batch_rows: 2, batch_bytes: 10, batch_age_ms: 5, timeout_ms: 1, retry_for_ms: None };
        let mut queue = Queue::new(memory(), 3);
        assert_eq!((queue.done_through(), queue.due_ns(&limits)), (3, None));
        let items = vec![item(5, "aaaa"), item(5, "bbbb"), item(6, "cccc"), item(9, "a long text"), item(9, "d")];
        queue.push(&mut Prepared { items, ..Prepared::default() }, 1_000);
        queue.note_read(12);
        assert!(queue.is_full(&limits));
        assert_eq!((queue.done_through(), queue.due_ns(&limits)), (4, Some(5_001_000)));
        let mut sizes = Vec::new();
        while let Some(chunk) = queue.take_chunk(&limits, 0) {
            sizes.push((chunk.rows(), chunk.last_sequence(), queue.done_through()));
        }
        assert_eq!(sizes, [(2, 5, 5), (1, 6, 8), (1, 9, 8), (1, 9, 12)]);
        assert!(queue.is_empty() && !queue.is_full(&limits));
    }

    #[test]
    fn memory_goes_back_with_each_request() {
        let limits = Batching { batch_rows: 2, batch_bytes: 100, batch_age_ms: 5, timeout_ms: 1, retry_for_ms: None };
        let memory = memory();
        let mut queue = Queue::new(memory.clone(), 3);
        assert!(memory.take(MEMORY_STEP_BYTES, 0));
        let items = vec![item(5, "aaaa"), item(5, "bbbb"), item(6, "cccc"), item(9, "dddd")];
        queue.push(&mut Prepared { items, reserved_bytes: MEMORY_STEP_BYTES, ..Prepared::default() }, 0);
        let of_item = 4 + ITEM_BYTES;
        assert_eq!(memory.used_bytes(), 4 * of_item, "what no row needs");
        let chunk = queue.take_chunk(&limits, 0).unwrap();
        assert_eq!(memory.used_bytes(), 4 * of_item, "until it is delivered");
        queue.settle(chunk.reserved_bytes());
        assert_eq!(memory.used_bytes(), 2 * of_item);
        queue.note_read(12);
        assert_eq!(queue.let_go(), Some(RowPosition { sequence: 6, row: 0 }));
        assert_eq!((memory.used_bytes(), queue.done_through(), queue.is_empty()), (0, 5, true));
        assert_eq!(queue.let_go(), None);
    }
}
