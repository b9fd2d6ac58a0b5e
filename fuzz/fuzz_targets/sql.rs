//! SQL: whatever text there is, the parser gives statements or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|text: &str| {
    let _ = sql::parse(text);
});
