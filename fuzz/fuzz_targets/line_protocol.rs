//! Line protocol: nothing panics, every row's key decodes or says why not, and what was read can be written and read
//! again with the same result.
#![no_main]

use ingest::line::{self, Options, Precision};
use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits, Parsed, Protocol};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits { line_bytes_max: 300, tags_max: 4, fields_max: 6, ..Limits::default() };
    let options =
        Options { hasher: hasher.scope(Protocol::Line, 1), precision: Precision::Nanosecond, now_ns: 5, limits: &limits };
    let parsed = line::parse(body, &options).expect("short bodies are cut into lines");
    let values = check_shape(&parsed);
    let mut written = Vec::new();
    if line::encode_batch(&mut written, &parsed.batch).is_ok() {
        let roomy = Limits::default();
        let again = line::parse(&written, &Options { limits: &roomy, ..options }).expect("what was written is read");
        assert!(again.errors.is_empty(), "{:?}", again.errors);
        assert_eq!(check_shape(&again), values);
    }
});

/// Returns how many values there are.
fn check_shape(parsed: &Parsed<'_>) -> usize {
    for block in &parsed.batch.blocks {
        assert!(!block.fields.is_empty());
        assert_eq!(block.cells.len(), block.rows() * block.fields.len());
        assert_eq!((block.keys.len(), block.lines.len()), (block.rows(), block.rows()));
        for key in &block.keys {
            if let Ok(identity) = (parsed.batch.key_decoder)(parsed.batch.text(key.text)) {
                assert_eq!(block.measurement.as_ref(), Some(&identity.measurement));
            }
        }
    }
    parsed.batch.values()
}
