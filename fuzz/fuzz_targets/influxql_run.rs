//! InfluxQL over a small database: whatever is asked has an answer or an error, within the query's budget.
#![no_main]

use std::collections::BTreeMap;

use influxql::{Query, RequestContext};
use libfuzzer_sys::fuzz_target;
use query::Budget;
use thalweg_fuzz::database::{DATABASE, SAMPLES_MAX, database};

fuzz_target!(init: { database(); }, |text: &str| {
    let Ok(query) = Query::parse(text, &BTreeMap::new()) else { return };
    // Inputs must not see what others left behind.
    let session = RequestContext { database: Some(DATABASE), read_only: true };
    for number in 0..query.len().min(3) {
        let _ = database().run_influxql(&query, number, &session, &Budget::new(SAMPLES_MAX));
    }
});
