//! Nodes of the `TimeTree`: what the samples of each member of a key add up to, in steps of time aligned to the epoch.
//! After FrogFishDB's aggregated nodes; layout: `docs/formats/summary.md`.
//!
//! A part holds one level of nodes for each key. Windows that are multiples of a node's width add nodes up; the fan-out
//! between samples and nodes is a thousand at least, so that nodes cost next to nothing on disk.

use std::ops::Range;

use codec::{DecodeError, Reader, float, integer, varint};
use index::Slot;
use model::{Summary, SummaryParts, TimeRange, ValueType};

use crate::part::chunk::{Rows, RowsColumn};

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const HOUR_NS: i64 = 60 * MINUTE_NS;

/// Widths that nodes may have: each divides the next, and the windows that people ask for.
const WIDTHS_NS: [i64; 9] = [
    SECOND_NS,
    10 * SECOND_NS,
    MINUTE_NS,
    5 * MINUTE_NS,
    15 * MINUTE_NS,
    HOUR_NS,
    3 * HOUR_NS,
    6 * HOUR_NS,
    24 * HOUR_NS,
];

/// Nodes that are worth writing, at least: fewer are decoded as fast from their samples.
const NODES_MIN: i128 = 8;

/// Nodes that a member may have in a part: more are not written, and are damage where they are read.
const COLUMN_NODES_MAX: usize = 1 << 18;

/// The slot of the rows that a fold had, whichever members had values in them. No member has it.
pub(crate) const ROWS_SLOT: Slot = Slot::MAX;

/// Marks the slot that counts the values of a member of a fold that are no numbers.
const PRESENCE: Slot = 1 << 31;

/// The slot that counts the values of a member that are no numbers.
pub(crate) const fn presence_slot(slot: Slot) -> Slot {
    slot | PRESENCE
}

/// The member whose samples a slot of a node is about.
pub(crate) const fn member_slot(slot: Slot) -> Slot {
    if slot == ROWS_SLOT { slot } else { slot & !PRESENCE }
}

/// The nodes of one key.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Nodes {
    pub(crate) width_ns: i64,
    /// Sorted by slot; members whose values are no numbers have none.
    pub(crate) columns: Vec<NodeColumn>,
}

/// The nodes of one member, those without samples left out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeColumn {
    pub(crate) slot: Slot,
    pub(crate) value_type: ValueType,
    /// Number of the node (its start ÷ width) and what it holds, in order.
    pub(crate) nodes: Vec<(i64, Summary)>,
}

/// The range of time that a node stands for.
pub(crate) fn node_range(number: i64, width_ns: i64) -> TimeRange {
    let start_ns = number.saturating_mul(width_ns);
    TimeRange::new(start_ns, start_ns.saturating_add(width_ns - 1))
}

/// The width of nodes for so many rows, each of them standing for `node_rows` on average at least; `None` if there are too few
/// for any.
pub(crate) fn choose_width(rows: usize, range: &TimeRange, node_rows: usize) -> Option<i64> {
    let span = i128::from(range.end_ns) - i128::from(range.start_ns) + 1;
    let wide_enough = |width: &&i64| rows as i128 * i128::from(**width) >= node_rows as i128 * span;
    let width = WIDTHS_NS.iter().find(wide_enough)?;
    (span / i128::from(*width) >= NODES_MIN).then_some(*width)
}

/// Returns whether no member can have more nodes in a range than are written.
pub(crate) fn are_all_written(range: &TimeRange, width_ns: i64) -> bool {
    let numbers = |timestamp_ns: i64| i128::from(timestamp_ns.div_euclid(width_ns.max(1)));
    numbers(range.end_ns) - numbers(range.start_ns) < COLUMN_NODES_MAX as i128
}

/// The nodes of rows at some indexes (sorted by time), encoded; `None` if there are too few for nodes of so many rows each.
pub(crate) fn of_enough_rows(rows: &Rows, indexes: &Range<usize>, node_rows: usize) -> Option<Vec<u8>> {
    let width_ns = choose_width(indexes.len(), &rows.range_of(indexes)?, node_rows)?;
    let mut bytes = Vec::new();
    encode(&Nodes::of_some_rows(rows, indexes.clone(), width_ns), &mut bytes);
    Some(bytes)
}

impl Nodes {
    /// What rows (sorted by time) add up to.
    pub(crate) fn of_rows(rows: &Rows, width_ns: i64) -> Self {
        Self::of_some_rows(rows, 0..rows.timestamps_ns.len(), width_ns)
    }

    /// What rows at some indexes (sorted by time) add up to.
    pub(crate) fn of_some_rows(rows: &Rows, indexes: Range<usize>, width_ns: i64) -> Self {
        let takes = |column: &&RowsColumn| Summary::takes(column.value_type);
        let of = |column: &RowsColumn| NodeColumn::from_rows(rows, indexes.clone(), column, width_ns);
        let columns = rows.columns.iter().filter(takes).map(of);
        Self { width_ns, columns: columns.filter(|column| !column.nodes.is_empty()).collect() }
    }

    /// What replaces rows (sorted by time): the nodes of numbers, counts of other values, and counts of rows.
    pub(crate) fn of_folded(rows: &Rows, width_ns: i64) -> Self {
        let mut nodes = Self::of_rows(rows, width_ns);
        let counted = |column: &RowsColumn| {
            let cells = vec![0; column.cells.len()];
            let validity = column.validity.clone();
            RowsColumn { cells, validity, ..RowsColumn::new(presence_slot(column.slot), ValueType::I64) }
        };
        let is_other = |column: &&RowsColumn| !Summary::takes(column.value_type);
        let all = RowsColumn { cells: vec![0; rows.timestamps_ns.len()], ..RowsColumn::new(ROWS_SLOT, ValueType::I64) };
        let indexes = 0..rows.timestamps_ns.len();
        for column in rows.columns.iter().filter(is_other).map(counted).chain([all]) {
            nodes.columns.push(NodeColumn::from_rows(rows, indexes.clone(), &column, width_ns));
        }
        nodes.columns.retain(|column| !column.nodes.is_empty());
        nodes.columns.sort_unstable_by_key(|column| column.slot);
        nodes
    }

    /// Returns whether rows are counted.
    pub(crate) fn has_rows(&self) -> bool {
        self.columns.last().is_some_and(|column| column.slot == ROWS_SLOT)
    }

    /// With counts of rows: where there are none, as many as the member with most values has.
    pub(crate) fn with_rows(mut self) -> Self {
        if self.has_rows() || self.columns.is_empty() {
            return self;
        }
        let mut rows: std::collections::BTreeMap<i64, Summary> = std::collections::BTreeMap::new();
        for (number, node) in self.columns.iter().flat_map(|column| &column.nodes) {
            let count = node.count + node.stale_count;
            let known = rows.entry(*number).or_insert(Summary { count: 0, ..Summary::empty(ValueType::I64) });
            let is_first = known.count == 0;
            known.first.0 = if is_first { node.first.0 } else { known.first.0.min(node.first.0) };
            known.last.0 = if is_first { node.last.0 } else { known.last.0.max(node.last.0) };
            known.count = known.count.max(count);
        }
        self.columns.push(NodeColumn {
            slot: ROWS_SLOT,
            value_type: ValueType::I64,
            nodes: rows.into_iter().collect(),
        });
        self
    }

    /// Leaves the nodes that are wanted, by slot and the time of their last sample.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(Slot, i64) -> bool) {
        for column in &mut self.columns {
            let slot = member_slot(column.slot);
            column.nodes.retain(|(_, node)| is_wanted(slot, node.last.0));
        }
    }

    /// Adds nodes of the same or a smaller width that divides this one; their samples may lie among those here.
    pub(crate) fn merge(&mut self, other: &Self) {
        let scale = (self.width_ns / other.width_ns.max(1)).max(1);
        for column in &other.columns {
            let place = match self.columns.binary_search_by_key(&column.slot, |known| known.slot) {
                Ok(place) => place,
                Err(place) => {
                    let new = NodeColumn { slot: column.slot, value_type: column.value_type, nodes: Vec::new() };
                    self.columns.insert(place, new);
                    place
                }
            };
            let Some(known) = self.columns.get_mut(place).filter(|known| known.value_type == column.value_type) else {
                continue;
            };
            for (number, summary) in &column.nodes {
                known.merge(number.div_euclid(scale), summary);
            }
        }
    }
}

impl NodeColumn {
    fn from_rows(rows: &Rows, indexes: Range<usize>, column: &RowsColumn, width_ns: i64) -> Self {
        let mut nodes: Vec<(i64, Summary)> = Vec::new();
        let (mut times, mut from) = (rows.timestamps_ns.get(indexes.clone()).unwrap_or_default(), indexes.start);
        while let Some(first_ns) = times.first() {
            let number = first_ns.div_euclid(width_ns);
            let end_ns = node_range(number, width_ns).end_ns;
            let (of_node, rest) = times.split_at(times.partition_point(|timestamp_ns| *timestamp_ns <= end_ns).max(1));
            let cells = column.cells.get(from..from + of_node.len()).unwrap_or_default();
            let mut summary = Summary::empty(column.value_type);
            if column.validity.is_empty() {
                summary.add_all(of_node, cells, SummaryParts::All);
            } else {
                let rows = of_node.iter().zip(cells).zip(from..).filter(|(_, row)| !column.is_null(*row));
                rows.for_each(|((timestamp_ns, bits), _)| summary.add(*timestamp_ns, *bits));
            }
            if !summary.is_empty() {
                nodes.push((number, summary));
            }
            (times, from) = (rest, from + of_node.len());
        }
        Self { slot: column.slot, value_type: column.value_type, nodes }
    }

    fn merge(&mut self, number: i64, summary: &Summary) {
        match self.nodes.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(place) => self.nodes[place].1.merge_unordered(summary),
            Err(place) => self.nodes.insert(place, (number, *summary)),
        }
    }
}

/// Appends nodes and their checksum.
pub(crate) fn encode(nodes: &Nodes, out: &mut Vec<u8>) {
    let start = out.len();
    varint::push(out, nodes.width_ns as u64);
    // All or none: time that one member's nodes cover is not looked at for the others.
    let is_written = nodes.columns.iter().all(|column| column.nodes.len() <= COLUMN_NODES_MAX);
    let columns = if is_written { nodes.columns.as_slice() } else { &[] };
    varint::push(out, columns.len() as u64);
    for column in columns {
        let mut bytes = Vec::new();
        encode_column(column, nodes.width_ns, &mut bytes);
        varint::push(out, u64::from(column.slot));
        out.push(column.value_type as u8);
        varint::push(out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }
    let checksum = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// A node's whole numbers, in the order in which their arrays are stored.
fn integers(number: i64, width_ns: i64, summary: &Summary) -> [i64; INTEGERS] {
    let start_ns = node_range(number, width_ns).start_ns;
    let sum = summary.sum_integer;
    [
        number,
        summary.count as i64,
        summary.stale_count as i64,
        summary.nan_count as i64,
        summary.first.0.wrapping_sub(start_ns),
        summary.last.0.wrapping_sub(start_ns),
        summary.resets as i64,
        summary.changes as i64,
        sum as i64,
        // Zero where the lower half's sign says it all.
        ((sum >> 64) as i64).wrapping_sub(sum as i64 >> 63),
    ]
}

fn floats(summary: &Summary) -> [f64; FLOATS] {
    [summary.sum.0, summary.sum.1, summary.increase]
}

fn values(summary: &Summary) -> [u64; VALUES] {
    [summary.min, summary.max, summary.first.1, summary.last.1]
}

const INTEGERS: usize = 10;
const FLOATS: usize = 3;
const VALUES: usize = 4;

/// Number of nodes, which arrays follow (one bit each; an array of zeros does not), the arrays.
fn encode_column(column: &NodeColumn, width_ns: i64, out: &mut Vec<u8>) {
    let nodes = &column.nodes;
    let mut mask = 0u64;
    let mut arrays = Vec::new();
    let mut push = |place: usize, is_zero: bool, encode: &dyn Fn(&mut Vec<u8>)| {
        if !is_zero {
            mask |= 1 << place;
            encode(&mut arrays);
        }
    };
    for place in 0..INTEGERS {
        let array: Vec<i64> =
            nodes.iter().map(|(number, summary)| integers(*number, width_ns, summary)[place]).collect();
        push(place, array.iter().all(|value| *value == 0), &|out| integer::encode(&array, out));
    }
    for place in 0..FLOATS {
        let array: Vec<f64> = nodes.iter().map(|(_, summary)| floats(summary)[place]).collect();
        let is_zero = array.iter().all(|value| value.to_bits() == 0);
        push(INTEGERS + place, is_zero, &|out| float::encode(&array, out));
    }
    for place in 0..VALUES {
        let array: Vec<u64> = nodes.iter().map(|(_, summary)| values(summary)[place]).collect();
        let is_zero = array.iter().all(|value| *value == 0);
        push(INTEGERS + FLOATS + place, is_zero, &|out| encode_values(&array, column.value_type, out));
    }
    varint::push(out, nodes.len() as u64);
    varint::push(out, mask);
    out.extend_from_slice(&arrays);
}

fn encode_values(array: &[u64], value_type: ValueType, out: &mut Vec<u8>) {
    if value_type == ValueType::F64 {
        float::encode(&array.iter().map(|bits| f64::from_bits(*bits)).collect::<Vec<_>>(), out);
    } else {
        integer::encode(&array.iter().map(|bits| *bits as i64).collect::<Vec<_>>(), out);
    }
}

/// Reads nodes: of all members, or of those of the given slots (sorted).
pub(crate) fn decode(bytes: &[u8], slots: Option<&[Slot]>) -> Result<Nodes, DecodeError> {
    let mut reader = Reader::new(bytes);
    let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
        return Err(reader.error("bytes missing"));
    };
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(reader.error("checksum of a summary does not match"));
    }
    let width_ns = i64::try_from(reader.varint()?).ok().filter(|width| *width > 0);
    let width_ns = width_ns.ok_or_else(|| reader.error("width of nodes out of range"))?;
    let mut nodes = Nodes { width_ns, columns: Vec::new() };
    for _ in 0..reader.length(body.len())? {
        let slot = u32::try_from(reader.varint()?).map_err(|_| reader.error("slot beyond 32 bits"))?;
        let value_type = ValueType::from_number(reader.byte()?).filter(|kind| Summary::takes(*kind));
        let value_type = value_type.ok_or_else(|| reader.error("a type that has no summary"))?;
        let length = reader.length(reader.rest().len())?;
        let mut column = Reader::new(reader.bytes(length)?);
        if slots.is_none_or(|slots| slots.binary_search(&slot).is_ok()) {
            nodes.columns.push(decode_column(&mut column, slot, value_type, width_ns)?);
        }
    }
    Ok(nodes)
}

fn decode_column(
    reader: &mut Reader<'_>,
    slot: Slot,
    value_type: ValueType,
    width_ns: i64,
) -> Result<NodeColumn, DecodeError> {
    let count = reader.length(COLUMN_NODES_MAX)?;
    let mask = reader.varint()?;
    let is_there = |place: usize| mask >> place & 1 == 1;
    let mut whole: [Vec<i64>; INTEGERS] = Default::default();
    let mut fractions: [Vec<f64>; FLOATS] = Default::default();
    let mut cells: [Vec<u64>; VALUES] = Default::default();
    for (_, array) in whole.iter_mut().enumerate().filter(|(place, _)| is_there(*place)) {
        integer::decode(reader, count, array)?;
    }
    for (_, array) in fractions.iter_mut().enumerate().filter(|(place, _)| is_there(INTEGERS + place)) {
        float::decode(reader, count, array)?;
    }
    for (_, array) in cells.iter_mut().enumerate().filter(|(place, _)| is_there(INTEGERS + FLOATS + place)) {
        *array = decode_values(reader, count, value_type)?;
    }
    let node = |row: usize| {
        let [number, count, stale, nan, first, last, resets, changes, low, high] =
            whole.each_ref().map(|array| array.get(row).copied().unwrap_or(0));
        let [sum, rounded_off, increase] = fractions.each_ref().map(|array| array.get(row).copied().unwrap_or(0.0));
        let [min, max, first_value, last_value] = cells.each_ref().map(|array| array.get(row).copied().unwrap_or(0));
        let start_ns = node_range(number, width_ns).start_ns;
        let high = high.wrapping_add(low >> 63);
        let summary = Summary {
            value_type,
            count: count as u64,
            stale_count: stale as u64,
            nan_count: nan as u64,
            first: (start_ns.wrapping_add(first), first_value),
            last: (start_ns.wrapping_add(last), last_value),
            min,
            max,
            sum: (sum, rounded_off),
            sum_integer: i128::from(high) << 64 | i128::from(low as u64),
            increase,
            resets: resets as u64,
            changes: changes as u64,
        };
        (number, summary)
    };
    let nodes: Vec<(i64, Summary)> = (0..count).map(node).collect();
    if nodes.is_sorted_by(|a, b| a.0 < b.0) {
        return Ok(NodeColumn { slot, value_type, nodes });
    }
    Err(reader.error("nodes out of order"))
}

fn decode_values(reader: &mut Reader<'_>, count: usize, value_type: ValueType) -> Result<Vec<u64>, DecodeError> {
    if value_type == ValueType::F64 {
        let mut values = Vec::new();
        float::decode(reader, count, &mut values)?;
        return Ok(values.into_iter().map(f64::to_bits).collect());
    }
    let mut values = Vec::new();
    integer::decode(reader, count, &mut values)?;
    Ok(values.into_iter().map(|value| value as u64).collect())
}

#[cfg(test)]
mod tests {
    use model::STALE_NAN_BITS;
    use proptest::prelude::*;

    use super::*;

    fn rows(samples: &[(i64, Option<u64>)], value_type: ValueType) -> Rows {
        let mut column = RowsColumn::new(3, value_type);
        samples.iter().for_each(|(_, cell)| column.push(*cell));
        Rows { timestamps_ns: samples.iter().map(|(timestamp_ns, _)| *timestamp_ns).collect(), columns: vec![column] }
    }

    fn samples() -> impl Strategy<Value = Vec<(i64, Option<u64>)>> {
        let value = prop_oneof![
            Just(None),
            Just(Some(STALE_NAN_BITS)),
            Just(Some(f64::NAN.to_bits())),
            (-50i32..50).prop_map(|value| Some(f64::from(value).to_bits()))
        ];
        let sample = (-500i64..500, value);
        proptest::collection::btree_map(sample.0, sample.1, 0..60).prop_map(|samples| samples.into_iter().collect())
    }

    /// Bits, so that NaN equals itself.
    fn text(nodes: &Nodes) -> String {
        format!("{nodes:?}")
    }

    proptest! {
        #[test]
        fn nodes_come_back(samples in samples(), width_ns in 1i64..200, integer in any::<bool>()) {
            let value_type = if integer { ValueType::I64 } else { ValueType::F64 };
            let nodes = Nodes::of_rows(&rows(&samples, value_type), width_ns);
            let mut bytes = Vec::new();
            encode(&nodes, &mut bytes);
            prop_assert_eq!(text(&decode(&bytes, None).unwrap()), text(&nodes));
            prop_assert!(decode(&bytes, Some(&[2])).unwrap().columns.is_empty());
        }

        /// Wider nodes made of narrower ones are those made of the samples.
        #[test]
        fn nodes_add_up(samples in samples(), width_ns in 1i64..50, scale in 1i64..6) {
            let rows = rows(&samples, ValueType::F64);
            let mut wide = Nodes { width_ns: width_ns * scale, columns: Vec::new() };
            wide.merge(&Nodes::of_rows(&rows, width_ns));
            prop_assert_eq!(text(&wide), text(&Nodes::of_rows(&rows, width_ns * scale)));
        }

        #[test]
        fn hostile_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = bytes;
            let checksum = crc32c::crc32c(&bytes);
            bytes.extend_from_slice(&checksum.to_le_bytes());
            let _ = decode(&bytes, None);
        }
    }

    #[test]
    fn widths_follow_the_density() {
        let ten_seconds = |rows: i64| TimeRange::new(0, rows * 10 * SECOND_NS - 1);
        assert_eq!(choose_width(720, &ten_seconds(720), 1000), None, "two hours are decoded as fast");
        assert_eq!(choose_width(11_520, &ten_seconds(11_520), 1000), Some(3 * HOUR_NS));
        assert_eq!(choose_width(100_000, &TimeRange::new(0, 100 * SECOND_NS - 1), 1000), Some(SECOND_NS));
        assert_eq!(choose_width(5, &TimeRange::ALL, 1000), None);
    }

    /// A reader takes the time that one member's nodes cover as covered for all: with one left out, the others must be, too.
    #[test]
    fn a_member_of_too_many_nodes_leaves_out_all_members() {
        let column = |slot: Slot, count: usize| NodeColumn {
            slot,
            value_type: ValueType::F64,
            nodes: (0..count as i64).map(|number| (number, Summary::empty(ValueType::F64))).collect(),
        };
        for (count, columns) in [(COLUMN_NODES_MAX, 2), (COLUMN_NODES_MAX + 1, 0)] {
            let mut bytes = Vec::new();
            encode(&Nodes { width_ns: 7, columns: vec![column(1, 3), column(2, count)] }, &mut bytes);
            let decoded = decode(&bytes, None).unwrap();
            assert_eq!((decoded.width_ns, decoded.columns.len()), (7, columns), "{count} nodes");
        }
    }
}
