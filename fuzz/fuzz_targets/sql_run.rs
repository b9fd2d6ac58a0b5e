//! SQL over a small database: whatever is asked has an answer or an error, within the query's budget.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use query::Budget;
use sql::ClientContext;
use thalweg_fuzz::database::{DATABASE, SAMPLES_MAX, database};

/// Statements that change nothing: inputs must not see what others left behind.
const READING: [&str; 5] = ["select", "with", "explain", "show", "values"];

fuzz_target!(init: { database(); }, |text: &str| {
    let first = text.split(|character: char| !character.is_ascii_alphabetic()).next().unwrap_or_default();
    if !READING.contains(&first.to_ascii_lowercase().as_str()) {
        return;
    }
    let Ok(parsed) = sql::parse(text) else { return };
    let session = ClientContext::new(DATABASE, database().now_ns());
    if parsed.statements.len() == 1 {
        let budget = Arc::new(Budget::new(SAMPLES_MAX));
        let _ = database().sql(&parsed, 0, &session, &budget);
        let _ = database().describe_sql(&parsed, 0, &session, &budget);
    }
});
