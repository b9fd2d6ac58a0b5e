//! Postgres's protocol: what passes the check is decoded to its end, and nothing panics up to the parser.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|bytes: &[u8]| {
    server::fuzzing::postgres(bytes);
    // Behind a start, which random bytes seldom are.
    server::fuzzing::postgres(&[b"\0\0\0\x09\0\x03\0\0\0", bytes].concat());
});
