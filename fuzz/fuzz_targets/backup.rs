//! Hostile bytes as the object of a backup, its checksum put right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    store::fuzzing::backup(data);
});
