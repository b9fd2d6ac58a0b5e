//! Documents and tokens of identity providers, which are read before a client has signed in: the first line is a set of keys, the rest a token.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|bytes: &[u8]| {
    access::fuzzing::oidc(&String::from_utf8_lossy(bytes));
});
