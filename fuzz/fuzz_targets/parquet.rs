//! Hostile bytes as a Parquet file that COPY takes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(
    init: {
        // Assertions of the library that reads the files are caught where it is called; they are no findings.
        std::panic::set_hook(Box::new(|_| {}));
    },
    |data: &[u8]| {
        sql::fuzzing::parquet(data);
    }
);
