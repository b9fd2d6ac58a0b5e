//! PromQL over a small database: whatever is asked has an answer or an error, within the query's budget.
#![no_main]

use std::sync::Arc;

use db::{InstantQuery, RangeQuery};
use libfuzzer_sys::fuzz_target;
use query::Budget;
use thalweg_fuzz::database::{DATABASE, END_MS, SAMPLES_MAX, START_MS, database};

fuzz_target!(init: { database(); }, |text: &str| {
    let budget = || Arc::new(Budget::new(SAMPLES_MAX));
    let _ = database().instant(DATABASE, &InstantQuery { budget: budget(), ..InstantQuery::new(text, END_MS) });
    let range = RangeQuery {
        text: text.to_owned(),
        start_ms: START_MS,
        end_ms: END_MS,
        step_ms: 60_000,
        lookback_ms: None,
        name_removal: None,
        may_cache: false,
        budget: budget(),
    };
    let _ = (database().range(DATABASE, &range), database().explain_range(DATABASE, &range));
});
