//! What is read of accounts and of clients before they have signed in: grants, web.config.yml, documents of accounts, certificates.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|bytes: &[u8]| {
    access::fuzzing::certificate(bytes);
    access::fuzzing::texts(&String::from_utf8_lossy(bytes));
});
