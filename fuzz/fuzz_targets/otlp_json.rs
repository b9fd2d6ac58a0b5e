//! OpenTelemetry by JSON: nothing panics, and what is written is a message that can be read.
#![no_main]

use ingest::otlp::{self, Deltas, Options, Settings};
use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits, Protocol};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Ok(message) = otlp::json_to_protobuf(body) else { return };
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let (limits, settings) = (Limits::default(), Settings::default());
    let deltas = Deltas::new(settings.delta_limits);
    let hasher = hasher.scope(Protocol::Otlp, 1);
    let options = Options { hasher, settings: &settings, deltas: &deltas, now_ns: 5, limits: &limits };
    assert!(otlp::parse(&message, &options).is_ok());
});
