//! CSV: nothing panics, and what is written is line protocol that can be read.
#![no_main]

use ingest::csv::{CsvImporter, CsvMapping, TimeFormat};
use ingest::line::{self, Options, Precision};
use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits, Protocol};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let mapping = CsvMapping {
        measurement: "m".to_owned(),
        time_column: None,
        time_format: TimeFormat::Auto,
        tags: vec!["t".to_owned()],
        fields: None,
        delimiter: b',',
    };
    // A header that fits, so that rows are reached, whose third column's name the input chooses.
    let file = [b"t,v,", file].concat();
    let limits = Limits { line_bytes_max: 200, ..Limits::default() };
    let Ok(mut importer) = CsvImporter::new(file.as_slice(), mapping, limits) else { return };
    let (mut written, mut points) = (Vec::new(), 0);
    while let Ok(Some(chunk)) = importer.next_chunk(3, &mut written) {
        points += chunk.points;
    }
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits::default();
    let hasher = hasher.scope(Protocol::Line, 1);
    let options = Options { hasher, precision: Precision::Nanosecond, now_ns: 5, limits: &limits };
    let parsed = line::parse(&written, &options).expect("short bodies are cut into lines");
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    assert_eq!(parsed.batch.rows() as u64, points);
});
