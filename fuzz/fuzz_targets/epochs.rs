//! Hostile bytes as records of a file of epochs, blocks of values, and changes of names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    store::fuzzing::epochs(data);
});
