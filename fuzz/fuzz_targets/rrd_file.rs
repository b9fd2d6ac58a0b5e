//! Files of RRDtool, `.rrd` and XML: nothing panics, and what was read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|bytes: &[u8]| rrd::fuzzing::file(bytes));
