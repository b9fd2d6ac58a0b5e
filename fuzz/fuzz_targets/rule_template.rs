//! What rules read: a template of an alert, which is expanded; a rule file, if the first byte is an `r`.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use rules::file::{ReadOptions, parse};
use rules::template::{Expansion, Template, TextMap, Value, alert_data, with_definitions};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(file) = text.strip_prefix('r') {
        let _ = parse(Path::new("r.yml"), file, &ReadOptions::default());
        return;
    }
    let Ok(template) = Template::parse("t", &with_definitions(text)) else { return };
    let labels = TextMap::from([("instance".to_owned(), "a.example:9100".to_owned())]);
    let dot = alert_data(&labels, &labels, "http://t.example/x", 12.5);
    let query = |_: &str| Ok(Value::List(vec![Value::Sample(labels.clone().into(), 1.0)].into()));
    let expansion = Expansion { dot: &dot, time_ms: 1_700_000_000_000, external_url: "http://t.example/x", query: &query };
    if let Ok(text) = template.expand(&expansion) {
        assert!(text.len() <= 8 << 20);
    }
});
