//! Hostile bytes as the head and the directory of a database in one file, checksums put right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    platform::container::fuzz(data);
});
