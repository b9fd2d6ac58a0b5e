//! Hostile bytes as a connection of `thalweg cache`: memcached's commands and HTTP, with bodies of JSON and of columns.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    cache::fuzzing::protocol(data);
});
