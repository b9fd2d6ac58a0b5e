//! Plans over a small database: whatever is asked has an answer or an error, within the query's budget.
#![no_main]

use libfuzzer_sys::fuzz_target;
use query::Budget;
use thalweg_fuzz::database::{DATABASE, SAMPLES_MAX, database};

fuzz_target!(init: { database(); }, |text: &str| {
    let Ok(plan) = database().parse_plan(text) else { return };
    let _ = database().run_plan(DATABASE, &plan, &Budget::new(SAMPLES_MAX));
});
