//! Hostile bytes as the table of the blocks on flash, checksums put right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    store::fuzzing::flash_table(data);
});
