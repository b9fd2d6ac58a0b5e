//! Lines of JSON: nothing panics, and every series decodes or says why not.
#![no_main]

use ingest::Protocol;
use ingest::json_lines::{self, Options};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz::{HASHER, check_batch, tight_limits};

fuzz_target!(|body: &[u8]| {
    let limits = tight_limits();
    let options = Options { hasher: HASHER.scope(Protocol::JsonLines, 1), limits: &limits };
    check_batch(&json_lines::parse(body, &options).expect("short bodies are cut into lines").batch);
});
