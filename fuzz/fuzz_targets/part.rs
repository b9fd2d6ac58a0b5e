//! Hostile bytes as a part: the first half as its index, the second as a chunk.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    let (index, chunk) = data.split_at(data.len() / 2);
    store::fuzzing::part(index, chunk);
});
