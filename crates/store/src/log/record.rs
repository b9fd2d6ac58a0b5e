//! What log records say. The same [`ShardRows`] go into the log and into the head, when written and when replayed.

use codec::{COLUMN_VALUES_MAX, DecodeError, Reader, cells, histogram, integer, varint};
use index::{CatalogEntry, GroupEntry, GroupId, Slot, decode_entries, encode_entries};
use model::{TimeRange, ValueType};

use crate::write::exemplars;
use crate::write::producers::Sent;

/// Kinds of records. Rows of kind 1 were written by earlier versions.
pub(crate) const PLAIN_ROWS: u8 = 1;
pub(crate) const CATALOG: u8 = 2;
pub(crate) const GROUPS: u8 = 3;
pub(crate) const EXEMPLARS: u8 = 4;
pub(crate) const START_TIMESTAMPS: u8 = 5;
/// Says nothing; has a sequence id that nothing else has.
pub(crate) const MARK: u8 = 6;
pub(crate) const ROWS: u8 = 7;
/// Rows, and who sent them.
pub(crate) const SENT_ROWS: u8 = 8;

/// Rows that one block may hold: bounds columns, and with them what a damaged record can make the reader allocate.
pub(crate) const BLOCK_ROWS_MAX: usize = 1 << 16;

/// What a record says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    Rows(Vec<ShardRows>, Option<Sent>),
    Catalog(Vec<CatalogEntry>),
    Groups { shard: usize, entries: Vec<GroupEntry> },
    Exemplars(Vec<exemplars::Entry>),
    Mark,
}

/// One request's rows for one shard.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ShardRows {
    pub(crate) shard: usize,
    pub(crate) blocks: Vec<RowBlock>,
    /// What string cells point into.
    pub(crate) text: Vec<u8>,
}

impl ShardRows {
    /// The times of the rows.
    pub(crate) fn range(&self) -> TimeRange {
        TimeRange::from_timestamps(self.blocks.iter().flat_map(|block| &block.timestamps_ns))
    }
}

/// Rows with the same columns, in order of arrival; cells row by row.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RowBlock {
    pub(crate) columns: Vec<(Slot, ValueType)>,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) timestamps_ns: Vec<i64>,
    pub(crate) cells: Vec<u64>,
}

impl RowBlock {
    pub(crate) fn push(&mut self, group: GroupId, timestamp_ns: i64, cells: &[u64]) {
        self.groups.push(group);
        self.timestamps_ns.push(timestamp_ns);
        self.cells.extend_from_slice(cells);
    }

    pub(crate) fn rows(&self) -> usize {
        self.timestamps_ns.len()
    }

    pub(crate) fn row(&self, row: usize) -> &[u64] {
        let width = self.columns.len();
        self.cells.get(row * width..(row + 1) * width).unwrap_or_default()
    }
}

impl RowBlock {
    /// Leaves out the rows of other groups.
    pub(crate) fn retain_groups(&mut self, keep: impl Fn(GroupId) -> bool) {
        if !self.groups.iter().all(|group| keep(*group)) {
            self.retain_rows(|group, _| keep(group));
        }
    }

    /// Leaves out the rows that are not to be kept, by group and timestamp.
    pub(crate) fn retain_rows(&mut self, mut keep: impl FnMut(GroupId, i64) -> bool) {
        let mut kept = Self { columns: self.columns.clone(), ..Self::default() };
        for (row, (group, timestamp_ns)) in self.groups.iter().zip(&self.timestamps_ns).enumerate() {
            if keep(*group, *timestamp_ns) {
                kept.push(*group, *timestamp_ns, self.row(row));
            }
        }
        *self = kept;
    }
}

/// Appends the payload of a rows record.
pub(crate) fn encode_rows(shards: &[ShardRows], out: &mut Vec<u8>) {
    varint::push(out, shards.len() as u64);
    for rows in shards {
        varint::push(out, rows.shard as u64);
        varint::push(out, rows.text.len() as u64);
        out.extend_from_slice(&rows.text);
        varint::push(out, rows.blocks.len() as u64);
        for block in &rows.blocks {
            encode_block(block, out);
        }
    }
}

fn encode_block(block: &RowBlock, out: &mut Vec<u8>) {
    varint::push(out, block.columns.len() as u64);
    for (slot, value_type) in &block.columns {
        varint::push(out, u64::from(*slot));
        out.push(*value_type as u8);
    }
    varint::push(out, block.rows() as u64);
    let groups: Vec<i64> = block.groups.iter().map(|group| i64::from(*group)).collect();
    integer::encode(&groups, out);
    integer::encode(&block.timestamps_ns, out);
    let is_float: Vec<bool> = block.columns.iter().map(|(_, value_type)| *value_type == ValueType::F64).collect();
    cells::encode(&block.cells, &is_float, out);
}

/// Appends the payload of a catalog record.
pub(crate) fn encode_catalog(entries: &[CatalogEntry], out: &mut Vec<u8>) {
    encode_entries(entries, out);
}

/// Appends the payload of a groups record.
pub(crate) fn encode_groups(shard: usize, entries: &[GroupEntry], out: &mut Vec<u8>) {
    varint::push(out, shard as u64);
    encode_entries(entries, out);
}

/// Reads a payload.
pub(crate) fn decode(kind: u8, payload: &[u8]) -> Result<Record, DecodeError> {
    let mut reader = Reader::new(payload);
    let record = match kind {
        ROWS | PLAIN_ROWS | SENT_ROWS => {
            let sent = (kind == SENT_ROWS).then(|| Sent::decode(&mut reader)).transpose()?;
            let shards = reader.length(payload.len())?;
            Record::Rows((0..shards).map(|_| decode_shard(kind, &mut reader)).collect::<Result<_, _>>()?, sent)
        }
        CATALOG => Record::Catalog(decode_entries(&mut reader)?),
        GROUPS => {
            Record::Groups { shard: reader.length(usize::from(u16::MAX))?, entries: decode_entries(&mut reader)? }
        }
        EXEMPLARS | START_TIMESTAMPS => Record::Exemplars(exemplars::decode(&mut reader)?),
        MARK => Record::Mark,
        _ => return Err(reader.error("unknown kind of record")),
    };
    if reader.is_empty() { Ok(record) } else { Err(reader.error("bytes left over")) }
}

/// The shard of a groups record.
pub(crate) fn groups_shard(payload: &[u8]) -> Result<usize, DecodeError> {
    Reader::new(payload).length(usize::from(u16::MAX))
}

fn decode_shard(kind: u8, reader: &mut Reader<'_>) -> Result<ShardRows, DecodeError> {
    let shard = reader.length(usize::from(u16::MAX))?;
    let text_bytes = reader.length(reader.rest().len())?;
    let text = reader.bytes(text_bytes)?.to_vec();
    let blocks = reader.length(reader.rest().len())?;
    let blocks = (0..blocks).map(|_| decode_block(kind, reader, &text)).collect::<Result<_, _>>()?;
    Ok(ShardRows { shard, blocks, text })
}

fn decode_block(kind: u8, reader: &mut Reader<'_>, text: &[u8]) -> Result<RowBlock, DecodeError> {
    let width = reader.length(reader.rest().len())?;
    let mut columns = Vec::with_capacity(width);
    for _ in 0..width {
        let slot = u32::try_from(reader.varint()?).map_err(|_| reader.error("slot beyond 32 bits"))?;
        let value_type = ValueType::from_number(reader.byte()?).ok_or_else(|| reader.error("unknown value type"))?;
        columns.push((slot, value_type));
    }
    let rows = reader.length(BLOCK_ROWS_MAX.min(COLUMN_VALUES_MAX))?;
    let mut groups = Vec::new();
    integer::decode(reader, rows, &mut groups)?;
    let groups: Result<Vec<GroupId>, _> = groups.into_iter().map(GroupId::try_from).collect();
    let groups = groups.map_err(|_| reader.error("group beyond 32 bits"))?;
    let mut timestamps_ns = Vec::new();
    integer::decode(reader, rows, &mut timestamps_ns)?;
    let mut cells = Vec::new();
    if kind == PLAIN_ROWS {
        let plain = reader.bytes(rows.saturating_mul(width).saturating_mul(8))?;
        cells.extend(plain.as_chunks::<8>().0.iter().map(|cell| u64::from_le_bytes(*cell)));
    } else {
        cells::decode(reader, rows, width, &mut cells)?;
    }
    let block = RowBlock { columns, groups, timestamps_ns, cells };
    check_texts(&block, text).ok_or_else(|| reader.error("string cell outside the text"))?;
    Ok(block)
}

/// Returns whether every string cell points at UTF-8 in the text, and every histogram cell at a histogram.
fn check_texts(block: &RowBlock, text: &[u8]) -> Option<()> {
    for (column, (_, kind)) in block.columns.iter().enumerate().filter(|(_, (_, kind))| kind.is_elsewhere()) {
        for row in 0..block.rows() {
            let bytes = text_of(text, *block.row(row).get(column)?)?;
            match kind {
                ValueType::Histogram => drop(histogram::decode_row(&mut Reader::new(bytes)).ok()?),
                _ => drop(std::str::from_utf8(bytes).ok()?),
            }
        }
    }
    Some(())
}

/// The bytes that a cell points at.
pub(crate) fn text_of(text: &[u8], cell: u64) -> Option<&[u8]> {
    let span = model::Span::from_cell(cell);
    text.get(span.start as usize..)?.get(..span.len as usize)
}

/// Reads bytes as the payload of a log record: the entry for fuzzing.
pub fn fuzz(kind: u8, payload: &[u8]) {
    let _ = decode(kind, payload);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_come_back() {
        let rows = ShardRows {
            shard: 1,
            text: b"hello".to_vec(),
            blocks: vec![RowBlock {
                columns: vec![(3, ValueType::F64), (0, ValueType::String)],
                groups: vec![5, 9],
                timestamps_ns: vec![1_700_000_000_000_000_000, 0],
                cells: vec![1.5f64.to_bits(), 5, model::STALE_NAN_BITS, 1 << 32 | 4],
            }],
        };
        let mut payload = Vec::new();
        encode_rows(std::slice::from_ref(&rows), &mut payload);
        assert_eq!(decode(ROWS, &payload), Ok(Record::Rows(vec![rows.clone()], None)));
        let sent = Sent { producer: u64::MAX, sequence: 9 };
        let mut sent_payload = Vec::new();
        sent.encode(&mut sent_payload);
        sent_payload.extend_from_slice(&payload);
        assert_eq!(decode(SENT_ROWS, &sent_payload), Ok(Record::Rows(vec![rows.clone()], Some(sent))));
        // As earlier versions wrote it.
        let plain: Vec<u8> = rows.blocks[0].cells.iter().flat_map(|cell| cell.to_le_bytes()).collect();
        let mut cells = Vec::new();
        cells::encode(&rows.blocks[0].cells, &[true, false], &mut cells);
        assert!(payload.ends_with(&cells));
        payload.truncate(payload.len() - cells.len());
        payload.extend_from_slice(&plain);
        assert_eq!(decode(PLAIN_ROWS, &payload), Ok(Record::Rows(vec![rows], None)));
    }

    proptest! {
        #[test]
        fn hostile_payloads_are_an_error_or_a_record(kind in 0u8..10, payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(kind, &payload);
        }
    }
}
