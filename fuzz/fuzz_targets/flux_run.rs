//! Flux over a small database: whatever is asked has an answer or an error, within the query's budget. Scripts of tasks keep what they say when
//! their options are written again.
#![no_main]

use flux::{Dialect, Query, RequestContext, TaskOptionChanges, TaskScript};
use libfuzzer_sys::fuzz_target;
use query::Budget;
use thalweg_fuzz::database::{SAMPLES_MAX, database};

fuzz_target!(init: { database(); }, |text: &str| {
    if let Ok(script) = TaskScript::parse(text) {
        let changes = TaskOptionChanges { name: Some("other".to_owned()), ..TaskOptionChanges::default() };
        let changed = script.options().changed(text, &changes).expect("it was read");
        let read = TaskScript::parse(&changed).expect("what was written");
        assert_eq!(read.options().period, script.options().period);
    }
    let Ok(query) = Query::parse(text) else { return };
    if let Ok(results) = database().run_flux(&query, &RequestContext::default(), &Budget::new(SAMPLES_MAX)) {
        results.csv(&Dialect::default());
    }
});
