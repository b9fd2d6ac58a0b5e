//! Hostile bytes as a slab of the result cache: head, records, markers, blocks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    cache::fuzzing::slab(data);
});
