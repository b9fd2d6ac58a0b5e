//! Hostile bytes as a log segment.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    store::fuzzing::log_segment(data);
});
