//! InfluxQL: a text is statements or an error, and statements as text are read back the same.
#![no_main]

use std::collections::BTreeMap;

use influxql::Query;
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|text: &str| {
    let Ok(query) = Query::parse(text, &BTreeMap::new()) else { return };
    let printed: Vec<String> = (0..query.len()).map(|number| query.text(number)).collect();
    let again = Query::parse(&printed.join(";"), &BTreeMap::new()).expect("what was printed can be read");
    // What is refused is not printed with all its words.
    let texts: Vec<String> = (0..again.len()).map(|number| again.text(number)).collect();
    assert_eq!(texts, printed);
});
