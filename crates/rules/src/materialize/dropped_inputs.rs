//! The metrics some of whose samples went because an entry drops its input, as documents of the manifest: evaluations that would lack samples
//! write nothing, also once no entry drops them any more. `docs/formats/materialized-rules.md` describes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use db::{Db, StoreError};
use parking_lot::Mutex;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

const KIND: &str = "dropped-inputs";
const VERSION: i64 = 1;

/// The metrics of a database.
pub(crate) struct DroppedInputs {
    database: String,
    metrics: Mutex<BTreeSet<String>>,
    /// True if a document cannot be read: then any metric may be one whose samples went.
    is_unknown: bool,
}

impl DroppedInputs {
    /// As the manifest has them.
    pub(crate) fn load(db: &Db, database: &str) -> Self {
        let documents = db.documents(KIND).into_iter().filter(|(name, _)| {
            let hash = name.strip_prefix(database).and_then(|rest| rest.strip_prefix('/'));
            hash.is_some_and(|hash| !hash.contains('/'))
        });
        let metrics: Vec<Option<String>> = documents.map(|(_, bytes)| decode(&bytes)).collect();
        let is_unknown = metrics.contains(&None);
        let metrics = metrics.into_iter().flatten().collect();
        Self { database: database.to_owned(), metrics: Mutex::new(metrics), is_unknown }
    }

    /// Notes metrics of which samples are about to go, on disk when this returns.
    ///
    /// # Errors
    /// As every change of the manifest.
    pub(super) fn note(&self, db: &Db, metrics: &BTreeSet<String>) -> Result<(), StoreError> {
        let mut known = self.metrics.lock();
        let new: BTreeSet<String> = metrics.difference(&known).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        let document = |metric: &String| {
            let name = format!("{}/{:032x}", self.database, xxh3_128(metric.as_bytes()));
            (name, Some(Arc::from(encode(metric))))
        };
        db.change_documents(KIND, &new.iter().map(document).collect::<BTreeMap<_, _>>())?;
        known.extend(new);
        Ok(())
    }

    /// The time before which samples are gone of those metrics that are asked about, in nanoseconds; `None` if none are.
    pub(crate) fn gone_before_ns(&self, db: &Db, is_asked: &dyn Fn(&str) -> bool) -> Option<i64> {
        let asked: BTreeSet<String> = self.metrics.lock().iter().filter(|metric| is_asked(metric)).cloned().collect();
        if asked.is_empty() && !self.is_unknown {
            return None;
        }
        // A metric whose input is dropped is a table of its name.
        let trimmed = db.trimmed_tables(&self.database).into_iter();
        let is_one = |table: &String| asked.contains(table) || self.is_unknown && is_asked(table);
        trimmed.filter(|(table, _)| is_one(table)).map(|(_, before_ns)| before_ns).max()
    }
}

fn encode(metric: &str) -> Vec<u8> {
    json!({ "version": VERSION, "metric": metric }).to_string().into_bytes()
}

fn decode(bytes: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    (document["version"].as_i64()? == VERSION).then_some(())?;
    document["metric"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_as_they_were_written() {
        let golden = r#"{"metric":"m","version":1}"#;
        assert_eq!(encode("m"), golden.as_bytes());
        assert_eq!(decode(golden.as_bytes()).as_deref(), Some("m"));
        for wrong in ["", "{}", r#"{"metric":"m","version":2}"#] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
