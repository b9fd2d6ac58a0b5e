//! Graphite: nothing panics, and every path decodes or says why not.
#![no_main]

use ingest::Protocol;
use ingest::graphite::{self, Options};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz::{HASHER, check_batch, tight_limits};

fuzz_target!(|body: &[u8]| {
    let limits = tight_limits();
    let options = Options { hasher: HASHER.scope(Protocol::Graphite, 1), now_ns: 5, limits: &limits };
    check_batch(&graphite::parse(body, &options).expect("short bodies are cut into lines").batch);
});
