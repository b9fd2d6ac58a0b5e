//! The time ranges whose results are pending, as a document of the manifest; `docs/formats/materialized-rules.md` describes it.

use std::collections::BTreeMap;

use model::TimeRange;
use scrape::relabel::Labels;
use serde_json::{Value, json};

pub(super) const KIND: &str = "materialized-rules";

const VERSION: i64 = 1;

/// A rule by its group, its name and its labels.
pub(super) type RuleKey = (String, String, Labels);

/// What outlives a restart of a rule's past.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SavedPast {
    pub(super) pending: Vec<TimeRange>,
    pub(super) frozen_ns: Option<i64>,
}

pub(super) fn encode(rules: &BTreeMap<RuleKey, SavedPast>) -> Vec<u8> {
    let entry = |((group, name, labels), saved): (&RuleKey, &SavedPast)| {
        let pending: Vec<Value> = saved.pending.iter().map(|range| json!([range.start_ns, range.end_ns])).collect();
        json!({ "group": group, "name": name, "labels": labels, "pending": pending, "frozen_ns": saved.frozen_ns })
    };
    json!({ "version": VERSION, "rules": rules.iter().map(entry).collect::<Vec<Value>>() }).to_string().into_bytes()
}

pub(super) fn decode(bytes: &[u8]) -> Result<BTreeMap<RuleKey, SavedPast>, String> {
    let document: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if document["version"].as_i64() != Some(VERSION) {
        return Err("it was written by a newer version".to_owned());
    }
    let rules = document["rules"].as_array().ok_or("it has no rules")?;
    rules.iter().map(decode_rule).collect()
}

fn decode_rule(entry: &Value) -> Result<(RuleKey, SavedPast), String> {
    let text = |name: &str| entry[name].as_str().map(str::to_owned).ok_or_else(|| format!("a rule has no {name}"));
    let labels = entry["labels"].as_object().ok_or("a rule has no labels")?;
    let labels = labels.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
    let range = |pair: &Value| {
        let (start_ns, end_ns) = (pair[0].as_i64(), pair[1].as_i64());
        start_ns.zip(end_ns).map(|(start_ns, end_ns)| TimeRange { start_ns, end_ns }).ok_or("a range is no pair")
    };
    let pending = entry["pending"].as_array().ok_or("a rule has no pending ranges")?;
    let pending = pending.iter().map(range).collect::<Result<_, _>>()?;
    let key = (text("group")?, text("name")?, labels.collect());
    Ok((key, SavedPast { pending, frozen_ns: entry["frozen_ns"].as_i64() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_as_it_was_written() {
        let labels: Labels = [("team".to_owned(), "x".to_owned())].into_iter().collect();
        let key = ("g".to_owned(), "job:a".to_owned(), labels);
        let saved =
            SavedPast { pending: vec![TimeRange::new(-5, 7), TimeRange::new(90, i64::MAX)], frozen_ns: Some(3) };
        let rules =
            BTreeMap::from([(key, saved), ((String::new(), "b".to_owned(), Labels::default()), SavedPast::default())]);
        let bytes = encode(&rules);
        let golden = r#"{"rules":[{"frozen_ns":null,"group":"","labels":{},"name":"b","pending":[]},{"frozen_ns":3,"group":"g","labels":{"team":"x"},"name":"job:a","pending":[[-5,7],[90,9223372036854775807]]}],"version":1}"#;
        assert_eq!(std::str::from_utf8(&bytes).unwrap(), golden);
        assert_eq!(decode(&bytes).unwrap(), rules);
    }

    #[test]
    fn what_is_no_such_document_is_refused() {
        for text in
            ["", "{}", r#"{"version":2,"rules":[]}"#, r#"{"version":1}"#, r#"{"version":1,"rules":[{"group":"g"}]}"#]
        {
            assert!(decode(text.as_bytes()).is_err(), "{text}");
        }
    }
}
