//! Text exposition: nothing panics, in both formats, with and without extra labels, and extra labels are always there.
#![no_main]

use ingest::Protocol;
use ingest::exposition::{self, Format, Options};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz::{HASHER, check_batch, tight_limits};

fuzz_target!(|body: &[u8]| {
    let limits = tight_limits();
    let extra = [("job".to_owned(), "\"x\\".to_owned())];
    for (format, extra_labels) in [(Format::Text, &extra[..0]), (Format::OpenMetrics, &extra[..])] {
        let hasher = HASHER.scope(Protocol::Exposition, 1);
        let options = Options { hasher, format, now_ns: 5, extra_labels, limits: &limits };
        let batch = exposition::parse(body, &options).expect("short bodies are cut into lines").batch;
        check_batch(&batch);
        for key in batch.blocks.iter().flat_map(|block| &block.keys) {
            if let Ok(identity) = (batch.key_decoder)(batch.text(key.text)) {
                assert!(extra_labels.iter().all(|(name, value)| identity.labels.get(name) == Some(value)));
            }
        }
    }
});
