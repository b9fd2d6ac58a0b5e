//! Hostile bytes as a segment of the index, magic and checksum put around them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    index::fuzzing::segment(data);
});
