//! OpenTelemetry by protobuf: nothing panics, and histograms that are taken are valid.
#![no_main]

use ingest::otlp::{self, Deltas, Options, Settings};
use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits, Protocol};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits { tags_max: 4, name_bytes_max: 20, ..Limits::default() };
    let settings = Settings::default();
    let deltas = Deltas::new(settings.delta_limits);
    let hasher = hasher.scope(Protocol::Otlp, 1);
    let options = Options { hasher, settings: &settings, deltas: &deltas, now_ns: 5, limits: &limits };
    let Ok(request) = otlp::parse(body, &options) else { return };
    assert!(request.batch.histograms.iter().all(|histogram| histogram.validate().is_ok()));
    check(&request.batch);
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
