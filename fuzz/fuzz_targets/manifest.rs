//! Hostile bytes as a manifest: as the file, and as the edits of a record whose checksum is right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    store::fuzzing::manifest(data);
});
