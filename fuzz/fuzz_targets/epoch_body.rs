//! Hostile bodies of epochs: CSV, JSON and binary columns.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    let _ = ingest::epoch::parse(data);
    let _ = ingest::epoch::parse(&[ingest::epoch::MAGIC.as_slice(), data].concat());
});
