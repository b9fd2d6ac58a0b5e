//! Batches from plain data, and everything a store holds as plain data.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "tests, each using its own part")]

use std::collections::BTreeMap;

use index::compile;
use model::{Batch, Block, Field, GroupIdentity, GroupKey, Labels, SampleColumn, TimeRange, ValueType};
use thalweg_store::Store;

/// A row: host, timestamp, fields with values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) host: String,
    pub(crate) timestamp_ns: i64,
    pub(crate) fields: Vec<(String, f64)>,
}

/// What a store holds: host and metric to samples.
pub(crate) type Content = BTreeMap<(String, String), BTreeMap<i64, f64>>;

fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let host = std::str::from_utf8(key).map_err(|error| error.to_string())?;
    let labels = Labels::from_pairs([("host", host)]).map_err(|error| error.to_string())?;
    Ok(GroupIdentity { measurement: "m".to_owned(), labels })
}

/// A batch of rows of the measurement `m`; each host is a group.
pub(crate) fn batch(rows: &[Row]) -> Batch<'static> {
    let mut batch = Batch::new(&[], decode_key);
    for (number, row) in rows.iter().enumerate() {
        let field = |(name, _): &(String, f64)| Field { name: name.clone(), value_type: ValueType::F64 };
        let fields: Vec<Field> = row.fields.iter().map(field).collect();
        let text = batch.push_text(row.host.as_bytes());
        let hash = row.host.bytes().fold(7u128, |hash, byte| hash * 1_000_003 + u128::from(byte));
        let place = batch.blocks.iter().position(|block| block.fields == fields);
        let place = place.unwrap_or_else(|| {
            let measurement = Some("m".to_owned());
            batch.blocks.push(Block { measurement, fields, ..Block::default() });
            batch.blocks.len() - 1
        });
        let block = &mut batch.blocks[place];
        block.keys.push(GroupKey { hash, text });
        block.timestamps_ns.push(row.timestamp_ns);
        block.lines.push(number as u32 + 1);
        block.cells.extend(row.fields.iter().map(|(_, value)| value.to_bits()));
    }
    batch
}

/// Puts rows into the oracle, the way the store should: by block, then in order.
pub(crate) fn apply(content: &mut Content, rows: &[Row]) {
    for row in rows {
        for (field, value) in &row.fields {
            let series = content.entry((row.host.clone(), format!("m_{field}"))).or_default();
            series.insert(row.timestamp_ns, *value);
        }
    }
}

/// Everything in the default database in a range.
pub(crate) fn read_all(store: &Store, range: TimeRange) -> Content {
    let mut content = Content::new();
    for group in store.select("default", &compile(&[]).unwrap()).unwrap() {
        let columns = store.read(&group, &range).unwrap();
        for (selected, column) in group.columns.iter().zip(columns) {
            let SampleColumn::F64(timestamps, values) = column else {
                panic!("a column of floats expected");
            };
            assert!(timestamps.is_sorted_by(|a, b| a < b), "timestamps ascend, none twice");
            if timestamps.is_empty() {
                continue;
            }
            let host = group.labels.get("host").unwrap_or_default().to_owned();
            content.insert((host, selected.metric.clone()), timestamps.into_iter().zip(values).collect());
        }
    }
    content
}
