//! Line protocol: nothing panics, every row's key decodes or says why not, and what was read can be written and read
//! again with the same result.
#![no_main]

use ingest::line::{self, Options, Precision};
use ingest::{Limits, Protocol};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz::{HASHER, check_batch, tight_limits};

fuzz_target!(|body: &[u8]| {
    let limits = Limits { name_bytes_max: Limits::default().name_bytes_max, ..tight_limits() };
    let hasher = HASHER.scope(Protocol::Line, 1);
    let options = Options { hasher, precision: Precision::Nanosecond, now_ns: 5, limits: &limits };
    let parsed = line::parse(body, &options).expect("short bodies are cut into lines");
    let values = check_batch(&parsed.batch);
    let mut written = Vec::new();
    if line::encode_batch(&mut written, &parsed.batch).is_ok() {
        let roomy = Limits::default();
        let again = line::parse(&written, &Options { limits: &roomy, ..options }).expect("what was written is read");
        assert!(again.errors.is_empty(), "{:?}", again.errors);
        assert_eq!(check_batch(&again.batch), values);
    }
});
