//! Hostile bytes as the journal's file, its checksum put right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    store::fuzzing::journal(data);
});
