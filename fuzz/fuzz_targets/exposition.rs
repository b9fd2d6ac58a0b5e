//! Text exposition: nothing panics, in both formats, with and without extra labels, and extra labels are always there.
#![no_main]

use ingest::exposition::{self, Format, Options};
use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits, Protocol};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits { tags_max: 4, name_bytes_max: 20, ..Limits::default() };
    let extra = [("job".to_owned(), "\"x\\".to_owned())];
    for (format, extra_labels) in [(Format::Text, &extra[..0]), (Format::OpenMetrics, &extra[..])] {
        let hasher = hasher.scope(Protocol::Exposition, 1);
        let options = Options { hasher, format, now_ns: 5, extra_labels, limits: &limits };
        let parsed = exposition::parse(body, &options).expect("short bodies are cut into lines");
        for key in parsed.batch.blocks.iter().flat_map(|block| &block.keys) {
            if let Ok(identity) = (parsed.batch.key_decoder)(parsed.batch.text(key.text)) {
                assert!(!identity.measurement.is_empty());
                assert!(extra_labels.iter().all(|(name, value)| identity.labels.get(name) == Some(value)));
            }
        }
    }
});
