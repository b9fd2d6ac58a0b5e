//! Flux over a small database: whatever is asked has an answer or an error, within the query's budget.
#![no_main]

use flux::{Dialect, Query, RequestContext};
use libfuzzer_sys::fuzz_target;
use query::Budget;
use thalweg_fuzz::database::{SAMPLES_MAX, database};

fuzz_target!(init: { database(); }, |text: &str| {
    let Ok(query) = Query::parse(text) else { return };
    if let Ok(results) = database().run_flux(&query, &RequestContext::default(), &Budget::new(SAMPLES_MAX)) {
        results.csv(&Dialect::default());
    }
});
