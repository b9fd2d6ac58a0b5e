//! What a client of Arrow Flight sends: tickets, handles of statements, and record batches.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(
    init: {
        // Assertions of the library that reads batches are caught where it is called; they are no findings.
        std::panic::set_hook(Box::new(|_| {}));
    },
    |bytes: &[u8]| {
        server::fuzzing::flight(bytes);
    }
);
