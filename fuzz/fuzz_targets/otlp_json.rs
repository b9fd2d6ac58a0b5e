//! OpenTelemetry by JSON: nothing panics, and what is written is a message that can be read.
#![no_main]

use ingest::otlp::{self, Deltas, Options, Settings};
use ingest::{Limits, Protocol};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz::{HASHER, check_batch};

fuzz_target!(|body: &[u8]| {
    let Ok(message) = otlp::json_to_protobuf(body) else { return };
    let (limits, settings) = (Limits::default(), Settings::default());
    let deltas = Deltas::new(settings.delta_limits);
    let hasher = HASHER.scope(Protocol::Otlp, 1);
    let options = Options { hasher, settings: &settings, deltas: &deltas, now_ns: 5, limits: &limits };
    check_batch(&otlp::parse(&message, &options).expect("a message can be read").batch);
});
