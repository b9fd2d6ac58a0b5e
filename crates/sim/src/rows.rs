//! Rows as they are drawn, and as the store takes them.

use std::sync::Arc;

use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout};
use model::{
    Batch, Block, Field, GroupIdentity, GroupKey, Labels, NativeHistogram, RejectionKind, ValueType, metric_name,
};
use store::WriteReport;

/// A value of any type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Float(f64),
    Integer(i64),
    Text(String),
    Histogram(NativeHistogram),
}

impl Value {
    pub(crate) fn value_type(&self) -> ValueType {
        match self {
            Self::Float(_) => ValueType::F64,
            Self::Integer(_) => ValueType::I64,
            Self::Text(_) => ValueType::String,
            Self::Histogram(_) => ValueType::Histogram,
        }
    }

    /// A number's cell.
    pub(crate) fn bits(&self) -> Option<u64> {
        match self {
            Self::Float(value) => Some(value.to_bits()),
            Self::Integer(value) => Some(*value as u64),
            Self::Text(_) | Self::Histogram(_) => None,
        }
    }
}

/// A histogram whose buckets depend on a number.
pub(crate) fn histogram_of(number: u64) -> NativeHistogram {
    let buckets = (number % 3 + 1) as u32;
    let positive: Vec<u64> = (0..u64::from(buckets)).map(|bucket| number + bucket).collect();
    let layout = HistogramLayout {
        schema: (number % 4) as i8,
        zero_threshold: 0.001,
        positive_spans: vec![BucketSpan { offset: -2, length: buckets }],
        ..HistogramLayout::default()
    };
    let counts = Counts { count: positive.iter().sum(), zero_count: 0, positive, negative: Vec::new() };
    NativeHistogram {
        layout: Arc::new(layout),
        counter_reset: CounterReset::Unknown,
        sum: number as f64 / 4.0,
        counts: HistogramCounts::Integer(counts),
    }
}

/// A row: measurement, host, timestamp, fields with values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) measurement: &'static str,
    pub(crate) host: String,
    pub(crate) timestamp_ns: i64,
    pub(crate) fields: Vec<(String, Value)>,
}

impl Row {
    /// The metric name of a field.
    pub(crate) fn metric(&self, field: &str) -> String {
        metric_name(self.measurement, field)
    }
}

/// Measurement and host, told apart by a zero.
fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let text = std::str::from_utf8(key).map_err(|error| error.to_string())?;
    let (measurement, host) = text.split_once('\0').ok_or("a key has two pieces")?;
    let labels = Labels::from_pairs([("host", host)]).map_err(|error| error.to_string())?;
    Ok(GroupIdentity { measurement: measurement.to_owned(), labels })
}

/// Rows as a batch: a block for each list of fields, in order of their first rows.
pub(crate) fn batch(database: &str, rows: &[Row]) -> Batch<'static> {
    let mut batch = Batch::new(&[], decode_key);
    for (number, row) in rows.iter().enumerate() {
        let field = |(name, value): &(String, Value)| Field { name: name.clone(), value_type: value.value_type() };
        let fields: Vec<Field> = row.fields.iter().map(field).collect();
        let key = format!("{}\0{}", row.measurement, row.host);
        let text = batch.push_text(key.as_bytes());
        let hash_of =
            |hash: u128, byte: u8| hash.wrapping_mul(0x0100_0193_0000_01b3).wrapping_add(u128::from(byte) + 1);
        let hash = database.bytes().chain(key.bytes()).fold(7u128, hash_of);
        let measurement = Some(row.measurement.to_owned());
        let same = |block: &Block| block.measurement == measurement && block.fields == fields;
        let place = batch.blocks.iter().position(same);
        let place = place.unwrap_or_else(|| {
            batch.blocks.push(Block { measurement: measurement.clone(), fields, ..Block::default() });
            batch.blocks.len() - 1
        });
        let cells: Vec<u64> = row.fields.iter().map(|(_, value)| cell(&mut batch, value)).collect();
        if let Some(block) = batch.blocks.get_mut(place) {
            block.keys.push(GroupKey { hash, text });
            block.timestamps_ns.push(row.timestamp_ns);
            block.lines.push(number as u32 + 1);
            block.cells.extend(cells);
        }
    }
    batch
}

fn cell(batch: &mut Batch<'static>, value: &Value) -> u64 {
    match value {
        Value::Text(text) => batch.push_text(text.as_bytes()).to_cell(),
        Value::Histogram(value) => batch.push_histogram(value.clone()),
        number => number.bits().unwrap_or(0),
    }
}

/// The order in which the store takes rows: block by block.
pub(crate) fn in_order_of_blocks(mut rows: Vec<Row>) -> Vec<Row> {
    let kind = |row: &Row| {
        let fields: Vec<_> = row.fields.iter().map(|(name, value)| (name.clone(), value.value_type())).collect();
        (row.measurement, fields)
    };
    let mut order = Vec::new();
    for row in &rows {
        let kind = kind(row);
        if !order.contains(&kind) {
            order.push(kind);
        }
    }
    rows.sort_by_key(|row| order.iter().position(|known| *known == kind(row)));
    rows
}
/// The rows of a batch that did not come for folded time: the others are named in the report.
pub(crate) fn unfolded(rows: &[Row], report: &WriteReport) -> Result<Vec<Row>, String> {
    if report.rejected.len() as u64 != report.rejected_total
        || report.rejected.iter().any(|rejected| rejected.kind != RejectionKind::Folded)
    {
        return Err(format!("rows were rejected: {:?}", report.rejected));
    }
    let is_rejected = |line: usize| report.rejected.iter().any(|rejected| rejected.line as usize == line);
    Ok((1..).zip(rows).filter(|(line, _)| !is_rejected(*line)).map(|(_, row)| row.clone()).collect())
}
