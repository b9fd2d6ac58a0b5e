//! OpenTelemetry by protobuf: nothing panics, and histograms that are taken, and what those of delta temporality add up to, are
//! valid.
#![no_main]

use ingest::Protocol;
use ingest::otlp::{self, DeltaLimits, Deltas, Options, Settings};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz::{HASHER, check_batch, tight_limits};

fuzz_target!(|body: &[u8]| {
    let (limits, settings) = (tight_limits(), Settings::default());
    let deltas = Deltas::new(DeltaLimits { series_max: 3, ..DeltaLimits::default() });
    // Twice, so that points meet what they added up to.
    for now_ns in [5, 10] {
        let hasher = HASHER.scope(Protocol::Otlp, 1);
        let options = Options { hasher, settings: &settings, deltas: &deltas, now_ns, limits: &limits };
        let Ok(request) = otlp::parse(body, &options) else { return };
        check_batch(&request.batch);
    }
});
