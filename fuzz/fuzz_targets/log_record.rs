//! Hostile bytes as the payload of a log record: the first byte is its kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    let Some((kind, payload)) = data.split_first() else {
        return;
    };
    store::fuzzing::log_record(*kind, payload);
});
