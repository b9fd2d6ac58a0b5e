//! Graphite: nothing panics, and every path decodes or says why not.
#![no_main]

use ingest::graphite::{self, Options};
use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits, Protocol};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits { line_bytes_max: 200, tags_max: 4, name_bytes_max: 20, ..Limits::default() };
    let options = Options { hasher: hasher.scope(Protocol::Graphite, 1), now_ns: 5, limits: &limits };
    check(&graphite::parse(body, &options).expect("short bodies are cut into lines").batch);
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
