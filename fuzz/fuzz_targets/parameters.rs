//! Parameters of requests over HTTP: query strings and forms.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let (query, form) = text.split_once('\n').unwrap_or((&text, ""));
    server::fuzzing::parameters(query, form.as_bytes());
});
