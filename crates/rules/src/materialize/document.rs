//! The time ranges whose results are pending, as documents of the manifest, one for each rule; `docs/formats/materialized-rules.md`
//! describes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use db::Db;
use model::TimeRange;
use query::views::merged_to;
use relabel::Labels;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use super::past::RANGES_MAX;

pub(super) const KIND: &str = "materialized-rules";

/// A document of one rule; before there was one of all rules of a database.
const VERSION: i64 = 3;
const VERSION_WITHOUT_FAILED: i64 = 2;
const VERSION_OF_ALL: i64 = 1;

/// Ranges of results that failed, at most; with more the oldest become one.
const FAILED_MAX: usize = 64;

/// Bytes that the documents of a database's rules may have, their names included: so that accounts and others have room beside these and views.
pub(super) const BYTES_MAX: usize = 3 << 20;

/// Bytes that a rule's document may have with one range. With as many ranges as there may be it fits a document still.
pub(super) const RULE_BYTES_MAX: usize = 32 << 10;

/// Bytes that the kind and the name of a document have at most.
const NAME_BYTES_MAX: usize = 320;

/// Documents by name.
pub(super) type Documents = BTreeMap<String, Arc<[u8]>>;

/// A rule by its group, its name and its labels.
pub(super) type RuleKey = (String, String, Labels);

/// What outlives a restart of a rule's past.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SavedPast {
    pub(super) pending: Vec<TimeRange>,
    /// Results that could not be computed for a reason that stays.
    pub(super) failed: Vec<TimeRange>,
    pub(super) frozen_ns: Option<i64>,
    /// Up to when it was evaluated.
    pub(super) evaluated_ns: Option<i64>,
    /// The expression for which what was there before the rule was made pending, as a hash.
    pub(super) filled: Option<u128>,
    /// Ranges of results of what was there before the rule.
    pub(super) fill: Vec<TimeRange>,
}

/// The name of a rule's document.
fn name_of(database: &str, (group, name, labels): &RuleKey) -> String {
    let key = json!([group, name, labels]).to_string();
    format!("{database}/{:032x}", xxh3_128(key.as_bytes()))
}

/// Returns whether a document is one of a database: of one of its rules, or of all as it was before.
fn is_of(database: &str, name: &str) -> bool {
    let hash = name.strip_prefix(database).and_then(|rest| rest.strip_prefix('/'));
    let is_hash = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    name == database || hash.is_some_and(is_hash)
}

/// The documents of a database.
pub(super) fn documents(db: &Db, database: &str) -> Documents {
    db.documents(KIND).into_iter().filter(|(name, _)| is_of(database, name)).collect()
}

/// Changes the documents of a database from some to others, all at once.
pub(super) fn change(db: &Db, from: &Documents, to: &Documents) -> Result<(), db::StoreError> {
    let gone = from.keys().filter(|name| !to.contains_key(*name)).map(|name| (name.clone(), None));
    let new = to.iter().filter(|(name, bytes)| from.get(*name) != Some(*bytes));
    let changes: BTreeMap<_, _> = new.map(|(name, bytes)| (name.clone(), Some(bytes.clone()))).chain(gone).collect();
    if changes.is_empty() { Ok(()) } else { db.change_documents(KIND, &changes) }
}

/// The documents of rules, with so many ranges each at most: of more the oldest become one.
pub(super) fn encode_all(database: &str, rules: &BTreeMap<RuleKey, SavedPast>, ranges_max: usize) -> Documents {
    rules.iter().map(|(key, saved)| (name_of(database, key), encode(key, saved, ranges_max).into())).collect()
}

/// Bytes that documents have, their names included.
pub(super) fn bytes_of(documents: &Documents) -> usize {
    documents.iter().map(|(name, bytes)| KIND.len() + name.len() + bytes.len()).sum()
}

/// Bytes that the document of a rule may take, however far its ranges have to be merged, without its name and with it.
pub(super) fn bytes_max(key: &RuleKey) -> (usize, usize) {
    let widest = widest(&[TimeRange::ALL]);
    let bytes = encode(key, &widest, 1).len();
    (bytes, bytes + NAME_BYTES_MAX)
}

/// What takes the most bytes, but for its ranges.
fn widest(ranges: &[TimeRange]) -> SavedPast {
    SavedPast {
        pending: ranges.to_vec(),
        failed: ranges.to_vec(),
        frozen_ns: Some(i64::MIN),
        evaluated_ns: Some(i64::MIN),
        filled: Some(u128::MAX),
        fill: ranges.to_vec(),
    }
}

fn encode((group, name, labels): &RuleKey, saved: &SavedPast, ranges_max: usize) -> Vec<u8> {
    let ranges = |ranges: &[TimeRange], count_max: usize| -> Vec<Value> {
        let merged = merged_to(ranges.to_vec(), ranges_max.min(count_max));
        merged.iter().map(|range| json!([range.start_ns, range.end_ns])).collect()
    };
    let document = json!({
        "version": VERSION, "group": group, "name": name, "labels": labels, "pending": ranges(&saved.pending, RANGES_MAX),
        "failed": ranges(&saved.failed, FAILED_MAX), "frozen_ns": saved.frozen_ns, "evaluated_ns": saved.evaluated_ns,
        "filled": saved.filled.map(|hash| format!("{hash:032x}")),
        "fill": ranges(&saved.fill, FAILED_MAX),
    });
    document.to_string().into_bytes()
}

/// What the documents of a database say.
pub(super) fn decode_all(documents: &Documents) -> Result<BTreeMap<RuleKey, SavedPast>, String> {
    let mut rules: BTreeMap<RuleKey, SavedPast> = BTreeMap::new();
    for bytes in documents.values() {
        for (key, saved) in decode(bytes)? {
            let known = rules.entry(key).or_default();
            known.pending.extend(saved.pending);
            known.failed.extend(saved.failed);
            known.filled = known.filled.or(saved.filled);
            known.fill.extend(saved.fill);
            known.frozen_ns = known.frozen_ns.max(saved.frozen_ns);
            known.evaluated_ns = known.evaluated_ns.max(saved.evaluated_ns);
        }
    }
    Ok(rules)
}

fn decode(bytes: &[u8]) -> Result<Vec<(RuleKey, SavedPast)>, String> {
    let document: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match document["version"].as_i64() {
        Some(VERSION | VERSION_WITHOUT_FAILED) => decode_rule(&document).map(|rule| vec![rule]),
        Some(VERSION_OF_ALL) => {
            document["rules"].as_array().ok_or("it has no rules")?.iter().map(decode_rule).collect()
        }
        _ => Err("it was written by a newer version".to_owned()),
    }
}

fn decode_rule(entry: &Value) -> Result<(RuleKey, SavedPast), String> {
    let text = |name: &str| entry[name].as_str().map(str::to_owned).ok_or_else(|| format!("a rule has no {name}"));
    let labels = entry["labels"].as_object().ok_or("a rule has no labels")?;
    let labels = labels.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
    let range = |pair: &Value| {
        let (start_ns, end_ns) = (pair[0].as_i64(), pair[1].as_i64());
        start_ns.zip(end_ns).map(|(start_ns, end_ns)| TimeRange { start_ns, end_ns }).ok_or("a range is no pair")
    };
    let ranges = |ranges: &[Value]| ranges.iter().map(range).collect::<Result<Vec<_>, _>>();
    let pending = ranges(entry["pending"].as_array().ok_or("a rule has no pending ranges")?)?;
    // Before there was this what failed was not remembered.
    let failed = entry["failed"].as_array().map_or_else(|| Ok(Vec::new()), |failed| ranges(failed))?;
    let fill = entry["fill"].as_array().map_or_else(|| Ok(Vec::new()), |fill| ranges(fill))?;
    let key = (text("group")?, text("name")?, labels.collect());
    let saved = SavedPast {
        pending,
        failed,
        frozen_ns: entry["frozen_ns"].as_i64(),
        evaluated_ns: entry["evaluated_ns"].as_i64(),
        filled: entry["filled"].as_str().and_then(|hash| u128::from_str_radix(hash, 16).ok()),
        fill,
    };
    Ok((key, saved))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: &str, name: &str, labels: &[(&str, &str)]) -> RuleKey {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        (group.to_owned(), name.to_owned(), labels)
    }

    fn rules() -> BTreeMap<RuleKey, SavedPast> {
        let pending = vec![TimeRange::new(-5, 7), TimeRange::new(90, i64::MAX)];
        BTreeMap::from([
            (
                key("g", "job:a", &[("team", "x")]),
                SavedPast {
                    pending,
                    failed: vec![TimeRange::new(1, 2)],
                    frozen_ns: Some(3),
                    evaluated_ns: Some(8),
                    filled: Some(0xf),
                    fill: vec![TimeRange::new(90, 91)],
                },
            ),
            (key("", "b", &[]), SavedPast::default()),
        ])
    }

    #[test]
    fn documents_are_as_they_were_written() {
        let documents = encode_all("d", &rules(), RANGES_MAX);
        let golden = [
            (
                "d/08d3b027e5f3522e2c1aa5737958cfa8",
                r#"{"evaluated_ns":8,"failed":[[1,2]],"fill":[[90,91]],"filled":"0000000000000000000000000000000f","frozen_ns":3,"group":"g","labels":{"team":"x"},"name":"job:a","pending":[[-5,7],[90,9223372036854775807]],"version":3}"#,
            ),
            (
                "d/ab541c76c2dd7742e8d82ea26e6577e0",
                r#"{"evaluated_ns":null,"failed":[],"fill":[],"filled":null,"frozen_ns":null,"group":"","labels":{},"name":"b","pending":[],"version":3}"#,
            ),
        ];
        let shown: Vec<(&str, &str)> =
            documents.iter().map(|(name, bytes)| (name.as_str(), std::str::from_utf8(bytes).unwrap())).collect();
        assert_eq!(shown, golden);
        assert_eq!(decode_all(&documents).unwrap(), rules());
        assert!(documents.keys().all(|name| is_of("d", name) && !is_of("", name) && !is_of("e", name)));
        assert!(is_of("d", "d") && !is_of("d", "d/e"));
    }

    #[test]
    fn the_document_of_all_rules_is_read_still_beside_those_of_rules() {
        let old = r#"{"rules":[{"frozen_ns":null,"group":"","labels":{},"name":"b","pending":[]},{"frozen_ns":3,"group":"g","labels":{"team":"x"},"name":"job:a","pending":[[-5,7],[90,9223372036854775807]]}],"version":1}"#;
        let mut documents = Documents::from([("d".to_owned(), old.as_bytes().into())]);
        let mut before = rules();
        for saved in before.values_mut() {
            (saved.evaluated_ns, saved.failed) = (None, Vec::new());
            (saved.filled, saved.fill) = (None, Vec::new());
        }
        assert_eq!(decode_all(&documents).unwrap(), before);
        let newer = SavedPast { pending: vec![TimeRange::new(20, 30)], evaluated_ns: Some(7), ..SavedPast::default() };
        documents.extend(encode_all("d", &BTreeMap::from([(key("", "b", &[]), newer.clone())]), RANGES_MAX));
        assert_eq!(decode_all(&documents).unwrap()[&key("", "b", &[])], newer);
    }

    #[test]
    fn a_document_that_does_not_know_of_failures_is_read() {
        let old =
            r#"{"evaluated_ns":8,"frozen_ns":3,"group":"g","labels":{},"name":"a","pending":[[-5,7]],"version":2}"#;
        let pending = vec![TimeRange::new(-5, 7)];
        let expected = SavedPast { pending, frozen_ns: Some(3), evaluated_ns: Some(8), ..SavedPast::default() };
        assert_eq!(decode(old.as_bytes()).unwrap(), [(key("g", "a", &[]), expected)]);
    }

    #[test]
    fn as_many_ranges_as_there_may_be_fit_a_document() {
        let pending: Vec<TimeRange> = (0..RANGES_MAX as i64)
            .map(|at| TimeRange { start_ns: i64::MIN + 10 * at, end_ns: i64::MIN + 10 * at + 5 })
            .collect();
        let saved = widest(&pending);
        let long = key("g", &"n".repeat(RULE_BYTES_MAX - 400), &[]);
        let (bytes, with_name) = bytes_max(&long);
        assert!(bytes <= RULE_BYTES_MAX && encode(&long, &saved, RANGES_MAX).len() <= 64 << 10);
        assert!(encode(&long, &widest(&[TimeRange::ALL; 2]), 1).len() <= bytes);
        let one = encode_all(&"d".repeat(255), &BTreeMap::from([(long, saved)]), 1);
        assert!(bytes_of(&one) <= with_name);
        let merged = decode_all(&one).unwrap().into_values().next().unwrap().pending;
        assert_eq!(merged, [TimeRange { start_ns: i64::MIN, end_ns: i64::MIN + 2_555 }]);
    }

    #[test]
    fn what_is_no_such_document_is_refused() {
        for text in [
            "",
            "{}",
            r#"{"version":4,"rules":[]}"#,
            r#"{"version":1}"#,
            r#"{"version":1,"rules":[{"group":"g"}]}"#,
            r#"{"version":2}"#,
            r#"{"version":3,"group":"g","name":"n","labels":{},"pending":[],"failed":[1]}"#,
        ] {
            assert!(decode(text.as_bytes()).is_err(), "{text}");
        }
    }
}
