//! OpenTSDB, both protocols: nothing panics, and every series decodes or says why not.
#![no_main]

use ingest::Protocol;
use ingest::opentsdb::{self, Options};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz::{HASHER, check_batch, tight_limits};

fuzz_target!(|body: &[u8]| {
    let limits = tight_limits();
    let options = Options { hasher: HASHER.scope(Protocol::Opentsdb, 1), limits: &limits };
    check_batch(&opentsdb::parse_telnet(body, &options).expect("short bodies are cut into lines").0.batch);
    if let Ok(parsed) = opentsdb::parse_json(body, &options) {
        check_batch(&parsed.batch);
    }
});
