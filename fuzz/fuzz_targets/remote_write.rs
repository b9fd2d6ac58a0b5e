//! Remote write, both versions: nothing panics, packed or not, every series' labels decode or say why not, and histograms that are
//! taken are valid.
#![no_main]

use ingest::Protocol;
use ingest::remote_write::{self, Options};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz::{HASHER, check_batch, tight_limits};

fuzz_target!(|body: &[u8]| {
    // Most random bytes are no snappy block, so the parsers see them as they are, too.
    if let Ok(unpacked) = remote_write::decompress(body.to_vec(), 1 << 16) {
        parse(&unpacked);
    }
    parse(body);
});

fn parse(body: &[u8]) {
    let limits = tight_limits();
    let options = Options { hasher: HASHER.scope(Protocol::RemoteWrite, 1), limits: &limits, dropped_label: None };
    for request in [remote_write::parse(body, &options), remote_write::parse_v2(body, &options)].into_iter().flatten() {
        check_batch(&request.batch);
    }
}
