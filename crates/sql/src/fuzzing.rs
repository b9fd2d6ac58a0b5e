//! Entries for fuzzing, of what no public function reads by itself.

use query::Budget;

use crate::copy::parquet::relation;
use crate::copy::text::TextFormat;

/// Reads bytes as a Parquet file.
///
/// # Panics
///
/// If what it finds contradicts itself: that is what a fuzzer looks for.
pub fn parquet(file: &[u8]) {
    let budget = Budget::new(100_000);
    if let Ok(relation) = relation(file.to_vec(), &budget) {
        assert!(relation.rows.iter().all(|row| row.len() == relation.columns.len()), "rows have all columns");
    }
}

/// Reads a text as COPY's rows in both forms. Rows that were read are written, and must read back the same.
///
/// # Panics
///
/// If what it finds contradicts itself: that is what a fuzzer looks for.
pub fn copy_text(text: &str) {
    for format in [TextFormat::new(true), TextFormat::new(false)] {
        let Ok(rows) = format.rows(text) else { continue };
        let written: String = rows.iter().map(|row| format.line(row.iter().cloned())).collect();
        assert_eq!(format.rows(&written).ok(), Some(rows), "{written:?}");
    }
}
