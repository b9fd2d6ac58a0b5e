//! Hostile bytes as the file of a part, magic and checksums put right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    store::fuzzing::part_file(data);
});
