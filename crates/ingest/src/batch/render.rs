//! What the parsers' tests share: a hasher, and batches as text, a row a line, in order of the request, behind them what was left
//! out.

use std::fmt::Write;

use model::{Batch, Block, Span, ValueType};

use crate::{KEY_SECRET_BYTES, KeyHasher, Parsed};

/// Hashes keys in tests.
pub(crate) static HASHER: KeyHasher = KeyHasher::new([42; KEY_SECRET_BYTES]);

/// `line measurement{labels} field=value … @time`, then `line! reason`. Rows whose key cannot be decoded are shown as the
/// store would report them.
pub(crate) fn render(parsed: &Parsed<'_>) -> String {
    let mut rows: Vec<(u32, String)> = Vec::new();
    for block in &parsed.batch.blocks {
        assert_eq!(block.cells.len(), block.rows() * block.fields.len());
        assert_eq!((block.keys.len(), block.lines.len()), (block.rows(), block.rows()));
        rows.extend((0..block.rows()).map(|row| (block.lines[row], render_row(&parsed.batch, block, row))));
    }
    rows.extend(parsed.errors.first.iter().map(|error| (error.line, format!("! {}", error.reason))));
    rows.sort_by_key(|(line, _)| *line);
    let mut text = String::new();
    for (line, row) in rows {
        writeln!(text, "{line} {row}").unwrap();
    }
    text
}

fn render_row(batch: &Batch<'_>, block: &Block, row: usize) -> String {
    let identity = match (batch.key_decoder)(batch.text(block.keys[row].text)) {
        Ok(identity) => identity,
        Err(reason) => return format!("! key: {reason}"),
    };
    if let Some(measurement) = &block.measurement {
        assert_eq!(measurement, &identity.measurement, "block and key");
    }
    let mut text = format!("{}{}", identity.measurement, identity.labels);
    for (field, cell) in block.fields.iter().zip(block.row(row)) {
        let value = match field.value_type {
            ValueType::F64 => format!("{:?}", f64::from_bits(*cell)),
            ValueType::I64 => format!("{}i", *cell as i64),
            ValueType::U64 => format!("{cell}u"),
            ValueType::Bool => format!("{}", *cell == 1),
            ValueType::String => format!("{:?}", std::str::from_utf8(batch.text(Span::from_cell(*cell))).unwrap()),
            ValueType::Histogram => format!("{:?}", batch.histograms[*cell as usize]),
        };
        write!(text, " {}={value}", field.name).unwrap();
    }
    write!(text, " @{}", block.timestamps_ns[row]).unwrap();
    text
}
