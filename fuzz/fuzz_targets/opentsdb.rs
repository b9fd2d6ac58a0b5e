//! OpenTSDB, both protocols: nothing panics, and every series decodes or says why not.
#![no_main]

use ingest::opentsdb::{self, Options};
use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits, Protocol};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits { line_bytes_max: 200, tags_max: 4, name_bytes_max: 20, ..Limits::default() };
    let options = Options { hasher: hasher.scope(Protocol::Opentsdb, 1), limits: &limits };
    check(&opentsdb::parse_telnet(body, &options).expect("short bodies are cut into lines").0.batch);
    if let Ok(parsed) = opentsdb::parse_json(body, &options) {
        check(&parsed.batch);
    }
});

fn check(batch: &model::Batch<'_>) {
    for block in &batch.blocks {
        assert_eq!((block.cells.len(), block.lines.len()), (block.rows(), block.rows()));
        assert_eq!(block.keys.len(), block.rows());
        for key in &block.keys {
            if let Ok(identity) = (batch.key_decoder)(batch.text(key.text)) {
                assert!(!identity.measurement.is_empty());
            }
        }
    }
}
