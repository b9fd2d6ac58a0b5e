//! A database with its keys in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use db::TenantMemory;
use model::{Labels, METRIC_NAME};
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::CommandError;
use super::behind::Behind;
use super::pause::Pause;
use super::trim::Trims;
use super::waiting::Waiters;
use crate::aggregate::Sample;
use crate::series::KEY_LABEL;
use crate::series::catalog::{Catalog, Key, KeySlot, Last};
use crate::series::rows::{NS_PER_MS, Rows};
use crate::series::settings::Settings;

/// How often documents are looked at that the database's retention would take, milliseconds.
const RENEWAL_MS: i64 = 60_000;

/// Documents that are written again at a time.
const RENEWED_MAX: usize = 10_000;

/// Keys whose newest samples are looked up one by one; of more, all are.
const LOOKED_UP_MAX: usize = 64;

/// Keys whose time has come that are deleted at a time: other commands wait meanwhile.
const DELETED_MAX: usize = 4_096;

/// A database that clients have chosen.
pub(crate) struct Database {
    pub(crate) name: String,
    state: Mutex<State>,
    /// Held alone by a transaction, so that no other request comes between its commands.
    pub(crate) exclusive: RwLock<()>,
    /// True if buckets of rules are still to be computed, or it is not known yet.
    pub(crate) is_behind: AtomicBool,
    /// Clients that wait for samples.
    pub(crate) waiters: Arc<Waiters>,
}

/// The keys of a database.
pub(crate) struct State {
    /// The number of the database that was read; another one of that name has other keys.
    number: Option<u32>,
    is_read: bool,
    pub(crate) catalog: Catalog,
    /// Keys whose settings are to be written: that failed.
    pub(crate) unsaved: BTreeSet<Arc<str>>,
    /// Buckets of rules that are still to be computed.
    pub(crate) behind: Behind,
    /// Keys whose time has come, and that the database has rows of still: clients see nothing of them.
    going: BTreeSet<Arc<str>>,
    /// After a delete of them that failed.
    going_pause: Pause,
    /// Keys with samples that are older than their retention.
    pub(super) trims: Trims,
    /// The first time at which a key goes, milliseconds; the largest if none does.
    next_expiry_ms: i64,
    /// When documents are looked at again that the database's retention would take, milliseconds.
    next_renewal_ms: i64,
    /// The last record of the log that is known of, and how often others than this protocol have written one.
    last_sequence: u64,
    foreign: u64,
    /// Bytes of the catalog that the ledger knows of.
    memory: Arc<TenantMemory>,
    reserved_bytes: u64,
    /// Clients that wait for samples.
    pub(super) waiters: Arc<Waiters>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.memory.give_back(self.reserved_bytes);
    }
}

impl Database {
    pub(crate) fn new(name: String, memory: Arc<TenantMemory>, waiting: Arc<AtomicUsize>) -> Self {
        let waiters = Arc::new(Waiters::new(waiting));
        let state = State {
            number: None,
            is_read: false,
            catalog: Catalog::default(),
            unsaved: BTreeSet::new(),
            behind: Behind::default(),
            going: BTreeSet::new(),
            going_pause: Pause::default(),
            trims: Trims::default(),
            next_expiry_ms: i64::MAX,
            next_renewal_ms: i64::MIN,
            last_sequence: 0,
            foreign: 0,
            memory,
            reserved_bytes: 0,
            waiters: waiters.clone(),
        };
        let is_behind = AtomicBool::new(true);
        Self { name, state: Mutex::new(state), exclusive: RwLock::new(()), is_behind, waiters }
    }

    /// The keys, read from the database if they were not; keys whose time has come are gone.
    pub(crate) fn open(&self, rows: &Rows<'_>, now_ms: i64) -> Result<MutexGuard<'_, State>, CommandError> {
        let mut state = self.state.lock();
        let number = rows.db.database_number(&self.name);
        if !state.is_read || state.number != number {
            state.read(rows)?;
            (state.number, state.is_read) = (number, true);
        }
        if state.next_expiry_ms <= now_ms {
            state.expire(rows, now_ms)?;
        }
        state.delete_going(rows);
        state.trim(rows, now_ms);
        if state.next_renewal_ms <= now_ms {
            state.renew(rows, now_ms)?;
        }
        self.is_behind.store(!state.behind.is_empty(), Ordering::Relaxed);
        Ok(state)
    }
}

impl State {
    fn read(&mut self, rows: &Rows<'_>) -> Result<(), CommandError> {
        self.clear();
        if rows.db.has_database(rows.database) {
            let found = self.read_keys(rows);
            if found.is_err() {
                self.clear();
            }
            found?;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.catalog = Catalog::default();
        self.unsaved.clear();
        self.going.clear();
        self.going_pause = Pause::default();
        self.trims = Trims::default();
        self.behind = Behind::default();
        self.memory.give_back(self.reserved_bytes);
        (self.reserved_bytes, self.next_expiry_ms, self.is_read) = (0, i64::MAX, false);
    }

    fn read_keys(&mut self, rows: &Rows<'_>) -> Result<(), CommandError> {
        for found in rows.documents()? {
            let settings = found.settings.map_err(|error| {
                CommandError::other(format!("ERR the document of the key {:?} cannot be read: {error}", found.key))
            })?;
            let name: Arc<str> = found.key.into();
            if settings.rules.iter().any(|rule| !rule.pending_ms.is_empty()) {
                self.behind.insert(name.clone());
            }
            let key = Key { settings, saved_ns: Some(found.saved_ns), ..Key::default() };
            self.put(name, key)?;
        }
        self.look_around(rows);
        self.take_found(rows.keys(None)?)
    }

    /// Takes in the newest samples of series, and keys that are not known yet.
    fn take_found(&mut self, found: Vec<(Labels, Sample)>) -> Result<(), CommandError> {
        let looked_at = self.foreign;
        for (labels, (time_ms, value)) in found {
            let Some(name) = labels.get(KEY_LABEL).filter(|name| !self.going.contains(*name)) else { continue };
            let last = Last::Sample(time_ms, value);
            let own = || labels.iter().filter(|(label, _)| *label != KEY_LABEL && *label != METRIC_NAME);
            if let Some(known) = self.catalog.get_mut(name) {
                let known_labels = known.settings.labels.iter().map(|(label, value)| (&**label, &**value));
                known.is_divided |= !own().eq(known_labels);
                if !matches!(known.last, Last::Sample(known_ms, _) if known_ms > time_ms) {
                    known.last = last;
                }
                known.looked_at = looked_at;
                continue;
            }
            let labels: BTreeMap<Arc<str>, Arc<str>> =
                own().map(|(label, value)| (label.into(), value.into())).collect();
            let settings = Settings { labels, ..Settings::default() };
            self.put(name.into(), Key { settings, last, looked_at, ..Key::default() })?;
        }
        Ok(())
    }

    /// Notices whether others have written: what is known of newest samples need not be so any more.
    pub(crate) fn look_around(&mut self, rows: &Rows<'_>) {
        let last_sequence = rows.db.last_sequence();
        if last_sequence != self.last_sequence {
            (self.last_sequence, self.foreign) = (last_sequence, self.foreign + 1);
        }
    }

    /// Notes a record with samples of this protocol. If it does not follow the last one, others have written meanwhile.
    pub(crate) fn note_own(&mut self, sequence: u64) {
        if sequence <= self.last_sequence {
            return;
        }
        self.foreign += u64::from(sequence > self.last_sequence + 1);
        self.last_sequence = sequence;
    }

    /// The name of a key; one that others have made is known from now on.
    pub(crate) fn find(&mut self, rows: &Rows<'_>, name: &str) -> Result<Arc<str>, CommandError> {
        if self.catalog.slot(name).is_none() && rows.db.has_database(rows.database) {
            self.look_around(rows);
            self.take_found(rows.keys(Some(name))?)?;
        }
        self.catalog.name(name).ok_or(super::error::NO_KEY)
    }

    /// The newest sample of a key, whatever protocol wrote it before others were looked for ([`Self::look_around`]).
    pub(crate) fn newest(&mut self, rows: &Rows<'_>, name: &str) -> Result<Option<Sample>, CommandError> {
        let name = self.find(rows, name)?;
        let looked_at = self.foreign;
        if let Some(key) = self.catalog.get_mut(&name).filter(|key| key.looked_at != looked_at) {
            (key.last, key.looked_at) = (Last::Unknown, looked_at);
        }
        self.last(rows, &name)
    }

    /// Looks up the newest samples of some keys, if others may have written them.
    pub(crate) fn look_up(&mut self, rows: &Rows<'_>, names: &[Arc<str>]) -> Result<(), CommandError> {
        self.look_around(rows);
        let looked_at = self.foreign;
        let is_old = |key: &Key| key.looked_at != looked_at;
        let old = names.iter().filter(|name| self.catalog.get(name).is_some_and(is_old)).count();
        if old <= LOOKED_UP_MAX {
            return names.iter().try_for_each(|name| self.newest(rows, name).map(drop));
        }
        let found = rows.keys(None)?;
        let all = self.catalog.names();
        // Until all is taken in nothing is known of a key: one that is said to have no samples would begin anew.
        self.for_each(&all, |key| key.last = Last::Unknown);
        let taken = self.take_found(found);
        let is_whole = taken.is_ok();
        self.for_each(&all, |key| match (is_whole, key.last) {
            (false, _) => key.last = Last::Unknown,
            (true, Last::Unknown) => (key.last, key.looked_at) = (Last::None, looked_at),
            (true, _) => {}
        });
        taken
    }

    fn for_each(&mut self, names: &[Arc<str>], mut change: impl FnMut(&mut Key)) {
        for name in names {
            self.catalog.get_mut(name).into_iter().for_each(&mut change);
        }
    }

    /// Adds a key, or changes one, once the ledger has room for it.
    pub(crate) fn put(&mut self, name: Arc<str>, key: Key) -> Result<(), CommandError> {
        let bytes = Catalog::bytes_of(&name, &key.settings);
        if !self.memory.take(bytes, self.reserved_bytes) {
            return Err(CommandError::other(
                "OOM the keys of this database take all the memory that requests may have (memory_bytes_max)",
            ));
        }
        self.next_expiry_ms = self.next_expiry_ms.min(key.settings.expires_ms.unwrap_or(i64::MAX));
        self.reserved_bytes += bytes;
        self.catalog.put(name, key);
        self.give_back();
        Ok(())
    }

    /// Removes a key that the database has nothing of.
    pub(crate) fn forget(&mut self, name: &str) {
        self.catalog.remove(name);
        self.give_back();
    }

    /// Gives back what the catalog does not take any more.
    fn give_back(&mut self) {
        let surplus = self.reserved_bytes.saturating_sub(self.catalog.bytes());
        self.memory.give_back(surplus);
        self.reserved_bytes -= surplus;
    }

    /// Removes keys with all that they have, and the rules that lead to them or from them.
    pub(crate) fn delete(&mut self, rows: &Rows<'_>, names: &[Arc<str>]) -> Result<(), CommandError> {
        let texts: Vec<&str> = names.iter().map(|name| &**name).collect();
        rows.delete_keys(&texts)?;
        self.take_out(rows, names)
    }

    /// Takes keys out of memory, and the rules that lead to them or from them.
    fn take_out(&mut self, rows: &Rows<'_>, names: &[Arc<str>]) -> Result<(), CommandError> {
        let mut changed = Vec::new();
        for name in names {
            let Some(key) = self.catalog.remove(name) else { continue };
            if let Some(source) = &key.settings.source {
                changed.extend(self.change(source, |settings| settings.rules.retain(|rule| rule.to != *name)));
            }
            for rule in &key.settings.rules {
                changed.extend(self.change(&rule.to, |settings| settings.source = None));
            }
        }
        self.give_back();
        self.save(rows, &changed)
    }

    /// Writes settings that were changed; they are on disk when this returns.
    pub(super) fn save(&mut self, rows: &Rows<'_>, changed: &[(Arc<str>, Settings)]) -> Result<(), CommandError> {
        let documents: Vec<(&str, &Settings)> = changed.iter().map(|(name, settings)| (&**name, settings)).collect();
        if documents.is_empty() {
            return Ok(());
        }
        // What cannot be written now is written with what is written next.
        self.unsaved.extend(changed.iter().map(|(name, _)| name.clone()));
        let saved_ns = self.document_time_ns(rows, documents.iter().map(|(name, _)| *name));
        let appended = rows.put_documents(&documents, saved_ns)?;
        rows.db.commit(&appended)?;
        for (name, _) in changed {
            self.unsaved.remove(name);
            if let Some(key) = self.catalog.get_mut(name) {
                key.saved_ns = Some(saved_ns);
            }
        }
        Ok(())
    }

    /// The time of new documents of some keys: after those that they have, also if the clock was set back, for the newest one counts.
    pub(crate) fn document_time_ns<'n>(&self, rows: &Rows<'_>, names: impl Iterator<Item = &'n str>) -> i64 {
        let saved_ns = names.filter_map(|name| self.catalog.get(name)?.saved_ns).max();
        rows.db.latest_now_ns().max(saved_ns.map_or(i64::MIN, |saved_ns| saved_ns.saturating_add(1)))
    }

    /// Changes settings that are no labels; the key with its new settings, which are to be written.
    pub(crate) fn change(
        &mut self,
        name: &Arc<str>,
        change: impl FnOnce(&mut Settings),
    ) -> Option<(Arc<str>, Settings)> {
        let mut key = self.catalog.remove(name)?;
        change(&mut key.settings);
        let settings = key.settings.clone();
        self.catalog.put(name.clone(), key);
        Some((name.clone(), settings))
    }

    /// Writes documents again before the database's retention takes them.
    fn renew(&mut self, rows: &Rows<'_>, now_ms: i64) -> Result<(), CommandError> {
        let retention_ns = rows.db.policy(rows.database).map_or(0, |policy| policy.retention_ns);
        let pause_ms = if retention_ns > 0 { (retention_ns / NS_PER_MS / 8).clamp(1, RENEWAL_MS) } else { RENEWAL_MS };
        self.next_renewal_ms = now_ms.saturating_add(pause_ms);
        if retention_ns == 0 {
            return Ok(());
        }
        let saved_ns = rows.db.latest_now_ns();
        let oldest_ns = saved_ns.saturating_sub(retention_ns / 2);
        let is_old = |key: &Key| key.saved_ns.is_some_and(|written_ns| written_ns < oldest_ns);
        let old: Vec<(Arc<str>, Settings)> = self
            .catalog
            .iter()
            .filter(|(_, key)| is_old(key))
            .map(|(name, key)| (name.clone(), key.settings.clone()))
            .collect();
        for some in old.chunks(RENEWED_MAX) {
            let documents: Vec<(&str, &Settings)> = some.iter().map(|(name, settings)| (&**name, settings)).collect();
            let appended = rows.put_documents(&documents, saved_ns)?;
            rows.db.commit(&appended)?;
            for (name, _) in some {
                if let Some(key) = self.catalog.get_mut(name) {
                    key.saved_ns = Some(saved_ns);
                }
            }
        }
        Ok(())
    }

    fn expire(&mut self, rows: &Rows<'_>, now_ms: i64) -> Result<(), CommandError> {
        let over = |key: &Key| key.settings.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms);
        let names: Vec<Arc<str>> =
            self.catalog.iter().filter(|(_, key)| over(key)).map(|(name, _)| name.clone()).collect();
        if !names.is_empty() {
            self.going.extend(names.iter().cloned());
            self.take_out(rows, &names)?;
        }
        let left = self.catalog.iter().filter_map(|(_, key)| key.settings.expires_ms);
        self.next_expiry_ms = left.min().unwrap_or(i64::MAX);
        Ok(())
    }

    /// Deletes what the database has of some keys whose time has come. If that fails a later command does it.
    fn delete_going(&mut self, rows: &Rows<'_>) {
        if self.going.is_empty() {
            return;
        }
        let now_ns = rows.db.clock().monotonic_ns();
        if !self.going_pause.is_over(now_ns) {
            return;
        }
        let some: Vec<Arc<str>> = self.going.iter().take(DELETED_MAX).cloned().collect();
        let texts: Vec<&str> = some.iter().map(|name| &**name).collect();
        if rows.delete_keys(&texts).is_err() {
            self.going_pause.fail(now_ns);
            return;
        }
        self.going_pause.succeed();
        some.iter().for_each(|name| _ = self.going.remove(name));
    }

    /// Deletes what the database has of a key of that name whose time has come, before there is another one.
    pub(crate) fn make_room(&mut self, rows: &Rows<'_>, name: &str) -> Result<(), CommandError> {
        if self.going.contains(name) {
            rows.delete_keys(&[name])?;
            self.going.remove(name);
        }
        Ok(())
    }

    /// The newest sample of a key, read from the database if it is not known.
    pub(crate) fn last(&mut self, rows: &Rows<'_>, name: &str) -> Result<Option<(i64, f64)>, CommandError> {
        let slot = self.catalog.slot(name).ok_or(super::error::NO_KEY)?;
        self.last_at(rows, slot)
    }

    /// The newest sample of the key at a place, read from the database if it is not known.
    pub(crate) fn last_at(&mut self, rows: &Rows<'_>, slot: KeySlot) -> Result<Option<(i64, f64)>, CommandError> {
        let key = self.catalog.at(slot).ok_or(super::error::NO_KEY)?;
        let last = match (key.last, self.catalog.name_at(slot)) {
            (Last::Unknown, Some(name)) => {
                let found = rows.last(name)?.map_or(Last::None, |(time_ms, value)| Last::Sample(time_ms, value));
                if let Some(key) = self.catalog.at_mut(slot) {
                    key.last = found;
                }
                found
            }
            (known, _) => known,
        };
        Ok(match last {
            Last::Sample(time_ms, value) => Some((time_ms, value)),
            _ => None,
        })
    }
}
