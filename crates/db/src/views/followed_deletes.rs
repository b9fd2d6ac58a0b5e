//! Deletes as those learn of them who follow the log of a database, which has rows alone: written before a delete begins, and told when it is
//! over. A follower has one document; `docs/formats/materialized-rules.md` describes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::TimeRange;
use parking_lot::Mutex;
use query::views::SourceDelete;
use serde_json::{Value, json};
use store::{Store, StoreError};

use crate::Db;

const KIND: &str = "followed-deletes";
const VERSION: i64 = 1;

/// Deletes that a document has; with more they become one of all tables.
const DELETES_MAX: usize = 64;

/// A delete that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedDelete {
    /// Its number: a later one is greater.
    pub number: u64,
    /// The table; `None`: any of the database.
    pub table: Option<String>,
    /// The times of the rows.
    pub range: TimeRange,
}

/// What a follower has not taken yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Followed {
    database: String,
    next_number: u64,
    deletes: Vec<FollowedDelete>,
}

/// The followers of deletes.
pub(super) struct FollowedDeletes {
    store: Arc<Store>,
    /// How many deletes are under way, by database. Locked while documents change.
    active: Mutex<BTreeMap<String, usize>>,
}

/// As long as it lives, a delete is under way.
pub(super) struct ActiveFollowedDelete<'a> {
    deletes: &'a FollowedDeletes,
    database: String,
}

impl Drop for ActiveFollowedDelete<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.deletes.active.lock().get_mut(&self.database) {
            *count = count.saturating_sub(1);
        }
    }
}

impl FollowedDeletes {
    pub(super) fn new(store: &Arc<Store>) -> Self {
        Self { store: store.clone(), active: Mutex::default() }
    }

    /// Notes a delete that is about to begin for those who follow its database, on disk when this returns.
    pub(super) fn note(&self, delete: &SourceDelete<'_>) -> Result<Option<ActiveFollowedDelete<'_>>, StoreError> {
        let mut active = self.active.lock();
        let mut is_followed = false;
        for (reader, bytes) in self.store.documents(KIND) {
            let mut followed = decode(&bytes)?;
            if followed.database == delete.database {
                followed.add(delete.table, delete.range);
                self.store.put_document(KIND, &reader, &encode(&followed))?;
                is_followed = true;
            }
        }
        if !is_followed {
            return Ok(None);
        }
        *active.entry(delete.database.to_owned()).or_default() += 1;
        Ok(Some(ActiveFollowedDelete { deletes: self, database: delete.database.to_owned() }))
    }

    fn find(&self, reader: &str) -> Result<Option<Followed>, StoreError> {
        let found = self.store.documents(KIND).into_iter().find(|(name, _)| name == reader);
        found.map(|(_, bytes)| decode(&bytes)).transpose()
    }
}

impl Followed {
    fn add(&mut self, table: Option<&str>, range: TimeRange) {
        let mut added = FollowedDelete { number: self.next_number, table: table.map(str::to_owned), range };
        self.next_number += 1;
        if self.deletes.len() >= DELETES_MAX {
            // Its number is a new one: a follower that took the others takes this one, too.
            added.range = self.deletes.drain(..).fold(range, |hull, delete| hull.union(delete.range));
            added.table = None;
        }
        self.deletes.push(added);
    }
}

impl Db {
    /// Has the deletes of a database told to a follower from now on, also after a restart, until [`Db::unfollow_deletes`].
    ///
    /// # Errors
    /// As every change of the manifest.
    pub fn follow_deletes(&self, reader: &str, database: &str) -> Result<(), StoreError> {
        let deletes = &self.views.followed_deletes;
        let _changing = deletes.active.lock();
        if deletes.find(reader)?.is_some() {
            return Ok(());
        }
        let followed = Followed { database: database.to_owned(), ..Followed::default() };
        self.store.put_document(KIND, reader, &encode(&followed))
    }

    /// The deletes that a follower has not taken, oldest first; none while one is under way.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn followed_deletes(&self, reader: &str) -> Result<Vec<FollowedDelete>, StoreError> {
        let deletes = &self.views.followed_deletes;
        let active = deletes.active.lock();
        let Some(followed) = deletes.find(reader)? else { return Ok(Vec::new()) };
        let is_active = active.get(&followed.database).is_some_and(|count| *count > 0);
        Ok(if is_active { Vec::new() } else { followed.deletes })
    }

    /// Returns whether there are deletes that a follower has not taken, those under way among them.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn has_followed_deletes(&self, reader: &str) -> Result<bool, StoreError> {
        let deletes = &self.views.followed_deletes;
        let _changing = deletes.active.lock();
        Ok(deletes.find(reader)?.is_some_and(|followed| !followed.deletes.is_empty()))
    }

    /// Notes that a follower has what it needs of the deletes up to a number, on disk.
    ///
    /// # Errors
    /// As every change of the manifest.
    pub fn forget_followed_deletes(&self, reader: &str, through: u64) -> Result<(), StoreError> {
        let deletes = &self.views.followed_deletes;
        let _changing = deletes.active.lock();
        let Some(mut followed) = deletes.find(reader)? else { return Ok(()) };
        followed.deletes.retain(|delete| delete.number > through);
        self.store.put_document(KIND, reader, &encode(&followed))
    }

    /// Has no deletes told to a follower any more.
    ///
    /// # Errors
    /// As every change of the manifest.
    pub fn unfollow_deletes(&self, reader: &str) -> Result<(), StoreError> {
        let _changing = self.views.followed_deletes.active.lock();
        self.store.remove_document(KIND, reader).map(drop)
    }
}

fn encode(followed: &Followed) -> Vec<u8> {
    let delete = |of: &FollowedDelete| json!([of.number, of.table, of.range.start_ns, of.range.end_ns]);
    let deletes: Vec<Value> = followed.deletes.iter().map(delete).collect();
    let document = json!({
        "version": VERSION, "database": followed.database, "next_number": followed.next_number, "deletes": deletes,
    });
    document.to_string().into_bytes()
}

fn decode(bytes: &[u8]) -> Result<Followed, StoreError> {
    let read = || {
        let document: Value = serde_json::from_slice(bytes).ok()?;
        (document["version"].as_i64()? == VERSION).then_some(())?;
        let delete = |entry: &Value| {
            let table = if entry[1].is_null() { None } else { Some(entry[1].as_str()?.to_owned()) };
            let range = TimeRange { start_ns: entry[2].as_i64()?, end_ns: entry[3].as_i64()? };
            Some(FollowedDelete { number: entry[0].as_u64()?, table, range })
        };
        Some(Followed {
            database: document["database"].as_str()?.to_owned(),
            next_number: document["next_number"].as_u64()?,
            deletes: document["deletes"].as_array()?.iter().map(delete).collect::<Option<_>>()?,
        })
    };
    // A delete that is not told would leave results wrong.
    let why =
        "what was deleted since rules took notice of it cannot be read: remove the document, or use an older backup";
    read().ok_or_else(|| StoreError::Invalid(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_as_they_were_written() {
        let mut followed = Followed { database: "d".to_owned(), ..Followed::default() };
        followed.add(Some("cpu"), TimeRange::new(-5, 7));
        followed.add(None, TimeRange::ALL);
        let golden = r#"{"database":"d","deletes":[[0,"cpu",-5,7],[1,null,-9223372036854775808,9223372036854775807]],"next_number":2,"version":1}"#;
        assert_eq!(String::from_utf8(encode(&followed)).unwrap(), golden);
        assert_eq!(decode(golden.as_bytes()).unwrap(), followed);
        for (from, to) in [("\"version\":1", "\"version\":2"), ("7]", "\"7\"]"), ("next_number", "next")] {
            assert!(decode(golden.replace(from, to).as_bytes()).is_err(), "{from}");
        }
    }

    #[test]
    fn many_deletes_become_one_with_a_new_number() {
        let mut followed = Followed::default();
        (0..=DELETES_MAX as i64).for_each(|at| followed.add(Some("cpu"), TimeRange::new(at, at)));
        let all = FollowedDelete { number: 64, table: None, range: TimeRange::new(0, 64) };
        assert_eq!(followed.deletes, [all]);
    }
}
