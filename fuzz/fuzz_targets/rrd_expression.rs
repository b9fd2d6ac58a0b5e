//! RRDtool's expressions and statements of exports: nothing panics, and there is a value for each step.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|text: &str| rrd::fuzzing::expression(text));
