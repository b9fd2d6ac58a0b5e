//! Rows of COPY as text: what is read can be written and is read back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|text: &str| {
    sql::fuzzing::copy_text(text);
});
