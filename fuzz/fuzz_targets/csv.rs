//! CSV: nothing panics, and what is written is line protocol that can be read.
#![no_main]

use ingest::csv::{CsvFormat, CsvImporter, CsvMapping, TimeFormat};
use ingest::line::{self, Options, Precision};
use ingest::{Limits, Protocol};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz::{HASHER, check_batch};

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
    let named = [b"t,v,", file].concat();
    if let Ok(importer) = CsvImporter::new(named.as_slice(), mapping, limits()) {
        check(importer);
    }
    // A format, and behind its line the rows.
    let (format, rows) = file.iter().position(|byte| *byte == b'\n').map_or((file, &b""[..]), |end| file.split_at(end));
    if let Ok(format) = CsvFormat::parse(&String::from_utf8_lossy(format)) {
        check(CsvImporter::by_places(rows, format, limits()));
    }
});

fn limits() -> Limits {
    Limits { line_bytes_max: 200, ..Limits::default() }
}

fn check<R: std::io::Read>(mut importer: CsvImporter<R>) {
    let (mut written, mut points) = (Vec::new(), 0);
    while let Ok(Some(chunk)) = importer.next_chunk(3, &mut written) {
        points += chunk.points;
    }
    let limits = Limits::default();
    let hasher = HASHER.scope(Protocol::Line, 1);
    let options = Options { hasher, precision: Precision::Nanosecond, now_ns: 5, limits: &limits };
    let parsed = line::parse(&written, &options).expect("short bodies are cut into lines");
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    check_batch(&parsed.batch);
    assert_eq!(parsed.batch.rows() as u64, points);
}
