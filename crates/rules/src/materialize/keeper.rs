//! Passes: what the log has, then some of what is to be computed again.

use std::collections::BTreeMap;
use std::sync::Arc;

use db::{Db, LogCursor, LogRead};
use model::TimeRange;

use super::document::{self, Documents, RuleKey, SavedPast};
use super::drop_input::{self, InputDropper, Surveyed};
use super::follow::{KeptRule, ReaderIndex};
use super::past::{RANGES_MAX, Ranges};
use super::recompute;
use crate::group::Group;
use crate::store::RuleStore;

const NS_PER_MS: i64 = 1_000_000;

/// Samples of the log that a pass reads, and what a batch of it has beyond.
const LOG_SAMPLES_MAX: usize = 2_000_000;

/// Pieces that a pass computes, and how long it does so, in nanoseconds.
const PIECES_MAX: usize = 256;
const PASS_NS_MAX: u64 = 500_000_000;

/// From one save to the next, in nanoseconds.
const SAVE_INTERVAL_NS: u64 = 5_000_000_000;

/// How long what was known of a rule is remembered that is not there any more, in nanoseconds: files may be written in several steps.
const UNSEEN_NS_MAX: u64 = 600_000_000_000;
/// Rules that are remembered so, at most: of more nothing is.
const UNSEEN_MAX: usize = 1_000;

/// How long a rule waits after its results could not be stored, in nanoseconds: twice as long each time, up to the most.
const PAUSE_NS: u64 = 1_000_000_000;
const PAUSE_NS_MAX: u64 = 300_000_000_000;

/// Keeps the results of selected rules right, pass by pass.
pub(crate) struct RuleKeeper {
    database: String,
    cursor: Option<LogCursor>,
    /// The groups that its rules are of.
    groups: Vec<Arc<Group>>,
    rules: Vec<KeptRule>,
    /// For each rule how long it waits, and until when, by the monotonic clock.
    pauses: BTreeMap<usize, (u64, u64)>,
    readers: ReaderIndex,
    dropper: InputDropper,
    /// Sequence id up to which the log was followed.
    sequence: u64,
    /// When all was saved last, by the monotonic clock; `None` before the first time.
    saved_ns: Option<u64>,
    /// The documents that are on disk.
    saved: Documents,
    /// Pasts of rules that were saved before the start, or that went, until the rules are there.
    unseen: BTreeMap<RuleKey, SavedPast>,
    /// Up to when these are remembered, by the monotonic clock.
    unseen_until_ns: u64,
    /// True once it is known that nothing is left of a time when rules were selected.
    is_forgotten: bool,
    /// Why the last pass failed, if it did.
    failure: Option<String>,
}

/// The name of the cursor of a database's rules.
fn cursor_name(database: &str) -> String {
    format!("rules:{database}")
}

/// Lets go of what was kept for selected rules of a database.
fn forget(db: &Db, database: &str) -> Result<(), String> {
    let text = |error: db::StoreError| error.to_string();
    db.remove_log_cursor(&cursor_name(database)).map_err(text)?;
    db.unfollow_deletes(&cursor_name(database)).map_err(text)?;
    document::change(db, &document::documents(db, database), &Documents::new()).map_err(text)
}

impl RuleKeeper {
    pub(crate) fn new(database: &str) -> Self {
        Self {
            database: database.to_owned(),
            cursor: None,
            groups: Vec::new(),
            rules: Vec::new(),
            pauses: BTreeMap::new(),
            readers: ReaderIndex::default(),
            dropper: InputDropper::default(),
            sequence: 0,
            saved_ns: None,
            saved: Documents::new(),
            unseen: BTreeMap::new(),
            unseen_until_ns: 0,
            is_forgotten: false,
            failure: None,
        }
    }

    /// Makes a pass; returns whether more is to be done at once. Why it failed is told in the state of each rule.
    pub(crate) fn pass(&mut self, store: &RuleStore, groups: Vec<Arc<Group>>) -> bool {
        let passed = self.try_pass(store, groups);
        let failure = std::mem::replace(&mut self.failure, passed.as_ref().err().cloned());
        for rule in &self.rules {
            let mut state = rule.past.state.lock();
            if self.failure.is_some() {
                state.error.clone_from(&self.failure);
            } else if failure.is_some() && state.error == failure {
                state.error = None;
            }
        }
        passed.unwrap_or(false)
    }

    fn try_pass(&mut self, store: &RuleStore, groups: Vec<Arc<Group>>) -> Result<bool, String> {
        let is_known = groups.len() == self.groups.len()
            && groups.iter().zip(&self.groups).all(|(one, other)| Arc::ptr_eq(one, other));
        if !is_known {
            self.take_groups(store, groups);
        }
        if self.rules.is_empty() {
            self.cursor = None;
            drop_input::forget_health(&store.db);
            if !self.is_forgotten && store.db.clock().monotonic_ns() >= self.unseen_until_ns {
                forget(&store.db, &self.database)?;
                (self.is_forgotten, self.saved) = (true, Documents::new());
            }
            return Ok(false);
        }
        self.is_forgotten = false;
        if self.cursor.is_none() {
            self.open(store)?;
        }
        self.restore(store);
        self.look_ahead(store);
        let deleted_through = self.take_deletes(store)?;
        let looks = self.dropper.is_due(&self.groups, store);
        if looks {
            if self.saved_ns.is_some() {
                // Not in the pass that opens the cursor: what was written before is visible by now.
                self.take_what_was_there(store);
            }
            // The log shows what is on disk alone: also what was computed before is to be followed.
            store.sync()?;
        }
        let has_more = self.follow(store)?;
        if looks && (has_more || deleted_through.is_some()) {
            self.dropper.look_again();
        } else if looks {
            self.drop_inputs(store)?;
        }
        let is_working = self.compute(store);
        self.save(store)?;
        if let Some(number) = deleted_through {
            let forgotten = store.db.forget_followed_deletes(&cursor_name(&self.database), number);
            forgotten.map_err(|error| error.to_string())?;
        }
        Ok(has_more || is_working)
    }

    fn surveyed<'a>(&'a self, store: &'a RuleStore) -> Surveyed<'a> {
        Surveyed { groups: &self.groups, rules: &self.rules, store }
    }

    /// Has rules that drop their input compute what was there before them, once: else it would go without a result.
    fn take_what_was_there(&self, store: &RuleStore) {
        for rule in &self.rules {
            let Some(of) = rule.rule() else { continue };
            let Some(input) = of.config.dropped.as_ref() else { continue };
            let id = Some(drop_input::fill_id(of));
            if rule.past.state.lock().filled == id {
                continue;
            }
            match drop_input::extent(input, store) {
                Ok(extent) => rule.take_what_was_there((id, &extent), drop_input::gone_before_ns(input, store)),
                // Until its past can be read nothing of it goes.
                Err(why) => rule.past.state.lock().error = Some(why),
            }
        }
    }

    /// Deletes what no result is made of any more. First it is written down how far everything is: no restart may need what goes.
    fn drop_inputs(&mut self, store: &RuleStore) -> Result<(), String> {
        let mut dropper = std::mem::take(&mut self.dropper);
        let outcome = self.drop_by(&mut dropper, store);
        self.dropper = dropper;
        outcome
    }

    fn drop_by(&mut self, dropper: &mut InputDropper, store: &RuleStore) -> Result<(), String> {
        let due = dropper.due(self.surveyed(store));
        if due.is_empty() {
            return Ok(());
        }
        self.saved_ns = None;
        self.save(store)?;
        // What is deleted just now changes results that are not pending yet.
        let is_deleting = store.db.has_followed_deletes(&cursor_name(&self.database));
        if is_deleting.map_err(|error| error.to_string())? {
            return Ok(());
        }
        dropper.drop_inputs(self.surveyed(store), &due)?;
        // A restart has to know how far samples went, also where their table is dropped.
        self.saved_ns = None;
        Ok(())
    }

    /// The rules of other groups than before.
    fn take_groups(&mut self, store: &RuleStore, groups: Vec<Arc<Group>>) {
        self.remember(store);
        let rules = groups
            .iter()
            .flat_map(|group| (0..group.rules.len()).filter_map(|place| KeptRule::new(group, place, &store.db)));
        self.rules = rules.collect();
        let now_ms = store.db.now_ns().div_euclid(NS_PER_MS);
        for rule in &self.rules {
            // What is evaluated now is of that time.
            rule.past.begin(now_ms.saturating_sub(rule.group.query_offset_ms()));
            if rule.rule().is_none_or(|of| of.config.dropped.is_none()) {
                rule.past.state.lock().dropping = None;
            }
        }
        self.readers = ReaderIndex::default();
        self.dropper = InputDropper::default();
        self.pauses.clear();
        self.groups = groups;
    }

    /// Opens the cursor, and what was saved with it.
    fn open(&mut self, store: &RuleStore) -> Result<(), String> {
        self.saved = document::documents(&store.db, &self.database);
        let reason = |why: String| format!("what is to be computed of rules' results is not readable: {why}");
        let saved = document::decode_all(&self.saved).map_err(reason)?;
        for (key, past) in saved {
            self.unseen.entry(key).or_insert(past);
        }
        self.unseen_until_ns = store.db.clock().monotonic_ns().saturating_add(UNSEEN_NS_MAX);
        self.saved_ns = None;
        let followed = store.db.follow_deletes(&cursor_name(&self.database), &self.database);
        followed.map_err(|error| error.to_string())?;
        let cursor = store.db.log_cursor(&cursor_name(&self.database), Some(&self.database));
        let cursor = cursor.map_err(|error| error.to_string())?;
        self.sequence = cursor.sequence();
        self.cursor = Some(cursor);
        Ok(())
    }

    /// Gives rules that come for the first time what was saved of them; what was to be evaluated since then is pending. What was saved of others,
    /// which the configuration has not, goes.
    fn restore(&mut self, store: &RuleStore) {
        for rule in &self.rules {
            let now_ns = now_ns(rule, store);
            let mut state = rule.past.state.lock();
            if std::mem::replace(&mut state.is_restored, true) {
                continue;
            }
            let saved = key_of(rule).and_then(|key| self.unseen.remove(&key)).unwrap_or_default();
            let known = state.pending.list().to_vec();
            // What failed may go well by now.
            let failed = Ranges::new([saved.failed.clone(), state.failed.list().to_vec()].concat());
            (state.failed, state.filled) = (failed, state.filled.or(saved.filled));
            let evaluated_ns = saved.evaluated_ns.filter(|evaluated_ns| *evaluated_ns <= now_ns);
            let missed = evaluated_ns.map(|evaluated_ns| TimeRange::new(evaluated_ns, now_ns.max(evaluated_ns)));
            state.pending =
                Ranges::new(saved.pending.into_iter().chain(saved.failed).chain(known).chain(missed).collect());
            state.fill = Ranges::new([saved.fill, state.fill.list().to_vec()].concat());
            state.frozen_ns = state.frozen_ns.max(saved.frozen_ns);
        }
        if store.db.clock().monotonic_ns() > self.unseen_until_ns {
            self.unseen.clear();
        }
    }

    /// Looks whether a clock that was ahead made results before the start. Where that cannot be read it is tried again in the next pass.
    fn look_ahead(&self, store: &RuleStore) {
        for rule in self.rules.iter().filter(|rule| !rule.past.state.lock().is_ahead_known) {
            let newest = rule.newest_ns(store);
            let mut state = rule.past.state.lock();
            match newest {
                Ok(newest_ns) => state.note_stored(newest_ns, now_ns(rule, store)),
                Err(why) => state.error = Some(why),
            }
        }
    }

    /// Remembers what is known of the rules for a while: they may come again in another group or file.
    fn remember(&mut self, store: &RuleStore) {
        for rule in self.rules.iter().filter(|rule| rule.past.state.lock().is_restored) {
            let Some(key) = key_of(rule) else { continue };
            self.unseen.insert(key, saved_past(rule, store));
        }
        if self.unseen.len() > UNSEEN_MAX {
            self.unseen.clear();
        }
        self.unseen_until_ns = store.db.clock().monotonic_ns().saturating_add(UNSEEN_NS_MAX);
    }

    /// Makes the results pending that deleted rows were part of; returns the number up to which deletes may be forgotten after the next save,
    /// which is due.
    fn take_deletes(&mut self, store: &RuleStore) -> Result<Option<u64>, String> {
        let deletes = store.db.followed_deletes(&cursor_name(&self.database)).map_err(|error| error.to_string())?;
        for delete in &deletes {
            ReaderIndex::deleted(&self.rules, (delete.table.as_deref(), &delete.range), store)?;
        }
        let last = deletes.last().map(|delete| delete.number);
        if last.is_some() {
            self.saved_ns = None;
        }
        Ok(last)
    }

    /// Reads the log; returns whether it has more.
    fn follow(&mut self, store: &RuleStore) -> Result<bool, String> {
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        let mut samples = 0;
        while samples < LOG_SAMPLES_MAX {
            match cursor.read().map_err(|error| error.to_string())? {
                LogRead::End => {
                    self.sequence = cursor.sequence();
                    return Ok(false);
                }
                LogRead::Gap(gap) => {
                    if let Err(why) = ReaderIndex::gap(&self.rules, &gap.range, store) {
                        // It is read again, from where the cursor was saved.
                        self.cursor = None;
                        return Err(why);
                    }
                    self.sequence = gap.sequences.1;
                }
                LogRead::Records(batch) => {
                    samples += batch.records.iter().map(|record| record.samples.len()).sum::<usize>();
                    self.readers.take(&self.rules, &batch.records);
                    self.sequence = batch.last_sequence;
                }
            }
        }
        Ok(true)
    }

    /// Computes some of what is pending, a piece of each rule after another; returns whether something is left that can be done at once.
    fn compute(&mut self, store: &RuleStore) -> bool {
        let clock = store.db.clock();
        let begun_ns = clock.monotonic_ns();
        let mut pieces = 0;
        loop {
            let is_pending = |rule: &KeptRule| !rule.past.state.lock().pending.list().is_empty();
            let now_ns = clock.monotonic_ns();
            let is_waiting = |place: &usize| self.pauses.get(place).is_some_and(|(_, until_ns)| *until_ns > now_ns);
            let due = self.rules.iter().enumerate().filter(|(place, rule)| is_pending(rule) && !is_waiting(place));
            let due: Vec<usize> = due.map(|(place, _)| place).collect();
            if due.is_empty() {
                return false;
            }
            for place in due {
                if pieces >= PIECES_MAX || clock.monotonic_ns().saturating_sub(begun_ns) > PASS_NS_MAX {
                    return true;
                }
                pieces += 1;
                let Some(rule) = self.rules.get(place) else { continue };
                match recompute::compute_newest(rule, store) {
                    Ok(()) => drop(self.pauses.remove(&place)),
                    Err(why) => {
                        rule.past.state.lock().error = Some(why);
                        let pause_ns = self.pauses.get(&place).map_or(PAUSE_NS, |(last_ns, _)| last_ns * 2);
                        let pause_ns = pause_ns.min(PAUSE_NS_MAX);
                        self.pauses.insert(place, (pause_ns, clock.monotonic_ns().saturating_add(pause_ns)));
                    }
                }
            }
        }
    }

    /// Writes to disk now and then how far everything is: results first, then what is pending, then up to where the log needs not be read again.
    fn save(&mut self, store: &RuleStore) -> Result<(), String> {
        let now_ns = store.db.clock().monotonic_ns();
        if self.saved_ns.is_some_and(|saved_ns| now_ns.saturating_sub(saved_ns) < SAVE_INTERVAL_NS) {
            return Ok(());
        }
        let Some(cursor) = &self.cursor else { return Ok(()) };
        store.sync()?;
        let mut rules = BTreeMap::new();
        for rule in &self.rules {
            rules.extend(key_of(rule).map(|key| (key, saved_past(rule, store))));
        }
        for (key, past) in &self.unseen {
            rules.entry(key.clone()).or_insert_with(|| past.clone());
        }
        self.saved = save_all(&store.db, &self.database, (&self.saved, &rules))?;
        cursor.save(self.sequence).map_err(|error| error.to_string())?;
        self.saved_ns = Some(now_ns);
        Ok(())
    }
}

/// Writes the documents of all rules; what is on disk then. Where there is no room for all ranges the oldest of a rule become
/// one, which costs work and no results.
fn save_all(
    db: &Db,
    database: &str,
    (before, rules): (&Documents, &BTreeMap<RuleKey, SavedPast>),
) -> Result<Documents, String> {
    let mut ranges_max = RANGES_MAX;
    loop {
        let documents = document::encode_all(database, rules, ranges_max);
        let is_last = ranges_max == 1;
        if is_last || document::bytes_of(&documents) <= document::BYTES_MAX {
            match document::change(db, before, &documents) {
                Ok(()) => return Ok(documents),
                // Other documents have the room.
                Err(db::StoreError::Invalid(_)) if !is_last => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        ranges_max /= 2;
    }
}

/// The time of which evaluations of a rule are now, in nanoseconds.
fn now_ns(rule: &KeptRule, store: &RuleStore) -> i64 {
    store.db.now_ns().saturating_sub(rule.group.query_offset_ms().saturating_mul(NS_PER_MS))
}

/// A rule's past as it is written. What is gone by the clock is known after a restart, too, so that its time is written in steps: in those by which inputs
/// are dropped.
fn saved_past(rule: &KeptRule, store: &RuleStore) -> SavedPast {
    let frozen_ns = rule.note_frozen(store).map(|ns| ns - ns.rem_euclid(drop_input::STEP_NS));
    rule.past.state.lock().saved(frozen_ns, store.db.trusted_now_ns())
}

fn key_of(rule: &KeptRule) -> Option<RuleKey> {
    let config = &rule.rule()?.config;
    Some((rule.group.config.name.clone(), config.name().to_owned(), config.labels.clone()))
}
