//! Writing samples of a group of commands: checked one by one, appended together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use db::Appended;

use super::database::State;
use super::error::NO_KEY;
use super::{CommandError, Limits};
use crate::aggregate::Sample;
use crate::series::catalog::{Key, KeySlot, Last};
use crate::series::rows::{NS_PER_MS, Rows, TIME_MS_MAX};
use crate::series::settings::{DuplicatePolicy, Rule, Settings};

/// A sample that was checked.
struct PendingSample {
    key: KeySlot,
    time_ms: i64,
    value: f64,
}

/// Writes into a database whose keys are locked.
pub(crate) struct Writer<'a> {
    pub(crate) rows: &'a Rows<'a>,
    pub(crate) state: &'a mut State,
    pub(crate) limits: &'a Limits,
    pub(crate) now_ms: i64,
    /// Appends that are committed before clients are told.
    pub(crate) appended: &'a mut Vec<Appended>,
    samples: Vec<PendingSample>,
    documents: BTreeSet<Arc<str>>,
    /// Times that were written again of keys which may have samples in several series.
    rewritten: Vec<(KeySlot, i64)>,
    /// Keys that were made.
    created: Vec<Arc<str>>,
    /// Why samples that commands have added are not stored.
    failed: Option<CommandError>,
    /// Times of samples of keys with rules.
    touched: BTreeMap<Arc<str>, BTreeSet<i64>>,
    /// Buckets of rules among the samples that are not appended yet.
    buckets: Vec<PendingBucket>,
    /// The oldest time that the database keeps.
    oldest_ms: i64,
}

/// A bucket of a rule: the keys that the rule leads from and to, and its beginning.
struct PendingBucket {
    source: Arc<str>,
    to: Arc<str>,
    start_ms: i64,
}

/// Buckets that could not be computed before that are tried at a time.
const CAUGHT_UP_MAX: usize = 256;

const BLOCKED: CommandError =
    CommandError::series("TSDB: Error at upsert, update is not supported when DUPLICATE_POLICY is set to BLOCK mode");
const TOO_OLD: CommandError = CommandError::series("TSDB: Timestamp is older than retention");
const TOO_EARLY: CommandError =
    CommandError::series("TSDB: timestamp must be equal to or higher than the maximum existing timestamp");

impl<'a> Writer<'a> {
    pub(crate) fn new(
        rows: &'a Rows<'a>,
        state: &'a mut State,
        limits: &'a Limits,
        appended: &'a mut Vec<Appended>,
    ) -> Self {
        let now_ns = rows.db.latest_now_ns();
        let documents = std::mem::take(&mut state.unsaved);
        let retention_ns = rows.db.policy(rows.database).map_or(0, |policy| policy.retention_ns);
        let oldest_ms = if retention_ns > 0 { now_ns.saturating_sub(retention_ns) / NS_PER_MS } else { i64::MIN };
        Self {
            rows,
            state,
            limits,
            now_ms: now_ns / NS_PER_MS,
            appended,
            samples: Vec::new(),
            documents,
            rewritten: Vec::new(),
            created: Vec::new(),
            failed: None,
            touched: BTreeMap::new(),
            buckets: Vec::new(),
            oldest_ms,
        }
    }

    fn key(&self, name: &str) -> Result<&Key, CommandError> {
        self.state.catalog.get(name).ok_or(NO_KEY)
    }

    fn key_at(&self, slot: KeySlot) -> Result<&Key, CommandError> {
        self.state.catalog.at(slot).ok_or(NO_KEY)
    }

    /// Where a key is. No key goes while there is a writer.
    pub(crate) fn slot(&self, name: &str) -> Result<KeySlot, CommandError> {
        self.state.catalog.slot(name).ok_or(NO_KEY)
    }

    /// The key of a name as it is shared.
    fn name(&self, name: &str) -> Result<Arc<str>, CommandError> {
        self.state.catalog.name(name).ok_or(NO_KEY)
    }

    /// Makes a key. One that has labels alone needs no document once it has a sample.
    pub(crate) fn create(&mut self, name: &str, settings: Settings, has_sample: bool) -> Result<(), CommandError> {
        let labels = settings.labels.clone();
        let needs_document = !has_sample || settings != Settings { labels, ..Settings::default() };
        self.state.make_room(self.rows, name)?;
        let name: Arc<str> = name.into();
        self.state.put(name.clone(), Key { settings, last: Last::None, ..Key::default() })?;
        self.created.push(name.clone());
        if needs_document {
            self.documents.insert(name);
        }
        Ok(())
    }

    /// Changes a key's settings.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Settings)) -> Result<(), CommandError> {
        let (name, mut key) = (self.name(name)?, self.key(name)?.clone());
        let labels = key.settings.labels.clone();
        change(&mut key.settings);
        if key.settings.labels != labels {
            // Its samples have other labels from now on.
            (key.token, key.is_divided) = (None, true);
        }
        self.state.put(name.clone(), key)?;
        self.documents.insert(name);
        Ok(())
    }

    /// Writes a key's document with what is written next, if it has none: it stays without samples then.
    pub(crate) fn save_document(&mut self, name: &str) -> Result<(), CommandError> {
        if self.key(name)?.saved_ns.is_none() {
            let name = self.name(name)?;
            self.documents.insert(name);
        }
        Ok(())
    }

    /// Adds a sample by the key's rules, or the policy of this sample; the time of the key's sample then.
    pub(crate) fn add(
        &mut self,
        slot: KeySlot,
        (time_ms, value): Sample,
        on_duplicate: Option<DuplicatePolicy>,
    ) -> Result<i64, CommandError> {
        self.check_time(time_ms)?;
        let last = self.state.last_at(self.rows, slot)?;
        let Some(last) = last else { return self.push(slot, (time_ms, value)) };
        let settings = &self.key_at(slot)?.settings;
        let policy = on_duplicate.unwrap_or_else(|| settings.policy());
        if policy == DuplicatePolicy::Last && settings.ignores(last, (time_ms, value)) {
            return Ok(last.0);
        }
        if time_ms < settings.oldest_ms(last.0) {
            return Err(TOO_OLD);
        }
        let old = if time_ms <= last.0 { self.value_at(slot, last, time_ms)? } else { None };
        let resolved = match old {
            Some(old) => policy.resolve(old, value).ok_or(BLOCKED)?,
            None => value,
        };
        if old.is_some_and(|old| old.to_bits() == resolved.to_bits()) {
            return Ok(time_ms);
        }
        self.push(slot, (time_ms, resolved))
    }

    /// Adds to the newest value of a key.
    pub(crate) fn increment(&mut self, slot: KeySlot, (time_ms, by): Sample) -> Result<i64, CommandError> {
        self.check_time(time_ms)?;
        let last = self.state.last_at(self.rows, slot)?;
        let value = last.map_or(0.0, |(_, value)| value) + by;
        if let Some(last) = last {
            if time_ms < last.0 {
                return Err(TOO_EARLY);
            }
            if self.key_at(slot)?.settings.ignores(last, (time_ms, value)) {
                return Ok(last.0);
            }
        }
        self.push(slot, (time_ms, value))
    }

    /// Refuses times that no sample may have.
    pub(crate) fn check_time(&self, time_ms: i64) -> Result<(), CommandError> {
        let newest_ms = self.now_ms.saturating_add(i64::try_from(self.limits.ahead_ms_max).unwrap_or(i64::MAX));
        if !(0..=TIME_MS_MAX).contains(&time_ms) {
            return Err(CommandError::series("TSDB: invalid timestamp"));
        }
        if time_ms < self.oldest_ms {
            return Err(TOO_OLD);
        }
        if time_ms > newest_ms {
            let most = self.limits.ahead_ms_max;
            return Err(CommandError::other(format!(
                "TSDB: the timestamp is more than {most} ms ahead of the server's clock (ahead_ms_max)"
            )));
        }
        Ok(())
    }

    fn value_at(&mut self, slot: KeySlot, last: Sample, time_ms: i64) -> Result<Option<f64>, CommandError> {
        if time_ms == last.0 {
            return Ok(Some(last.1));
        }
        self.append()?;
        self.settle_rewritten()?;
        let name = self.state.catalog.name_at(slot).ok_or(NO_KEY)?;
        let found = self.rows.samples(name, time_ms, time_ms)?;
        Ok(found.first().map(|(_, value)| *value))
    }

    fn push(&mut self, slot: KeySlot, (time_ms, value): Sample) -> Result<i64, CommandError> {
        let key = self.state.catalog.at_mut(slot).ok_or(NO_KEY)?;
        let (has_rules, last) = (!key.settings.rules.is_empty(), key.last);
        if !matches!(key.last, Last::Sample(last_ms, _) if last_ms > time_ms) {
            key.last = Last::Sample(time_ms, value);
        }
        if key.is_divided && matches!(last, Last::Sample(last_ms, _) if time_ms <= last_ms) {
            self.rewritten.push((slot, time_ms));
        }
        if has_rules && let Some(name) = self.state.catalog.name_at(slot) {
            let touched = self.touched.entry(name.clone()).or_default();
            touched.insert(time_ms);
            if let Last::Sample(last_ms, _) = last {
                touched.insert(last_ms);
            }
        }
        self.samples.push(PendingSample { key: slot, time_ms, value });
        Ok(time_ms)
    }

    /// Appends what is pending, and what rules make of it. After an error none of the commands may be answered as if it was done.
    pub(crate) fn flush(&mut self) -> Result<(), CommandError> {
        let done = self.flush_all();
        if done.is_err() {
            self.undo();
        }
        done
    }

    /// Forgets what is not stored: keys that were made and have no series. Settings of others are written with what is written next.
    fn undo(&mut self) {
        forget_newest(self.state, &std::mem::take(&mut self.samples));
        for name in std::mem::take(&mut self.created) {
            let Some(key) = self.state.catalog.get_mut(&name) else { continue };
            if key.token.is_some() || key.saved_ns.is_some() {
                key.last = Last::Unknown;
            } else {
                self.state.forget(&name);
            }
        }
        self.state.unsaved = std::mem::take(&mut self.documents);
    }

    fn flush_all(&mut self) -> Result<(), CommandError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.append()?;
        self.settle_rewritten()?;
        let touched = std::mem::take(&mut self.touched);
        for (name, times) in touched {
            for rule in self.key(&name)?.settings.rules.clone() {
                self.follow(&name, &rule, &times);
            }
        }
        self.append()?;
        self.put_documents()
    }

    /// Deletes what keys have in series of labels before at times that were written again, once what was written is sure to stay.
    fn settle_rewritten(&mut self) -> Result<(), CommandError> {
        for (slot, time_ms) in std::mem::take(&mut self.rewritten) {
            self.appended.iter().try_for_each(|appended| self.rows.db.commit(appended))?;
            let (name, key) = (self.state.catalog.name_at(slot).ok_or(NO_KEY)?, self.key_at(slot)?);
            self.rows.delete_divided(name, &key.settings, time_ms)?;
        }
        Ok(())
    }

    fn put_documents(&mut self) -> Result<(), CommandError> {
        let names = &self.documents;
        let known = names.iter().filter_map(|name| Some((&**name, &self.state.catalog.get(name)?.settings)));
        let documents: Vec<(&str, &Settings)> = known.collect();
        if documents.is_empty() {
            return Ok(());
        }
        let now_ns = self.state.document_time_ns(self.rows, documents.iter().map(|(name, _)| *name));
        self.appended.push(self.rows.put_documents(&documents, now_ns)?);
        for name in std::mem::take(&mut self.documents) {
            if let Some(key) = self.state.catalog.get_mut(&name) {
                key.saved_ns = Some(now_ns);
            }
        }
        Ok(())
    }

    /// Appends pending samples. If that fails, nothing is known of their keys' newest ones, and all commands of this writer have failed: some of
    /// them may have been answered already.
    fn append(&mut self) -> Result<(), CommandError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let samples = std::mem::take(&mut self.samples);
        if samples.is_empty() {
            return Ok(());
        }
        let done = self.append_samples(&samples);
        self.wake(&samples);
        let buckets = std::mem::take(&mut self.buckets);
        if let Err(error) = &done {
            forget_newest(self.state, &samples);
            self.failed = Some(error.clone());
            if *error != TOO_OLD {
                buckets.iter().for_each(|bucket| self.put_off(&bucket.source, &bucket.to, &[bucket.start_ms]));
            }
        }
        done
    }

    /// Wakes the clients that wait for samples of keys.
    fn wake(&self, samples: &[PendingSample]) {
        if self.state.waiters.is_empty() {
            return;
        }
        let keys: BTreeSet<KeySlot> = samples.iter().map(|sample| sample.key).collect();
        let names = keys.into_iter().filter_map(|slot| self.state.catalog.name_at(slot));
        names.for_each(|name| self.state.waiters.wake(name));
    }

    fn append_samples(&mut self, samples: &[PendingSample]) -> Result<(), CommandError> {
        self.register(samples)?;
        let stale = self.append_by_token(samples.iter())?;
        if stale.is_empty() {
            return Ok(());
        }
        // Their groups went with their last samples: they are made again.
        let again: Vec<&PendingSample> = samples.iter().filter(|sample| stale.contains(&sample.key)).collect();
        for slot in &stale {
            if let Some(key) = self.state.catalog.at_mut(*slot) {
                key.token = None;
            }
        }
        self.register(samples)?;
        let stale = self.append_by_token(again.into_iter())?;
        if stale.is_empty() {
            Ok(())
        } else {
            Err(CommandError::series("ERR keys go while they are written: try again"))
        }
    }

    /// Makes the series of keys that are not known to have one.
    fn register(&mut self, samples: &[PendingSample]) -> Result<(), CommandError> {
        let slots = samples.iter().map(|sample| sample.key);
        let slots: BTreeSet<KeySlot> =
            slots.filter(|slot| self.state.catalog.at(*slot).is_some_and(|key| key.token.is_none())).collect();
        if slots.is_empty() {
            return Ok(());
        }
        let catalog = &self.state.catalog;
        let known =
            slots.iter().filter_map(|slot| Some((*slot, &**catalog.name_at(*slot)?, &catalog.at(*slot)?.settings)));
        let (slots, keys): (Vec<KeySlot>, Vec<(&str, &Settings)>) =
            known.map(|(slot, name, settings)| (slot, (name, settings))).unzip();
        let tokens = self.rows.register(&keys)?;
        for (slot, token) in slots.into_iter().zip(tokens) {
            if let Some(key) = self.state.catalog.at_mut(slot) {
                key.token = Some(token);
            }
        }
        Ok(())
    }

    /// The keys whose tokens stand for nothing any more.
    fn append_by_token<'s>(
        &mut self,
        samples: impl Iterator<Item = &'s PendingSample> + Clone,
    ) -> Result<BTreeSet<KeySlot>, CommandError> {
        let mut appender = self.rows.db.appender();
        for sample in samples.clone() {
            let Some(token) = self.key_at(sample.key)?.token else { continue };
            appender.sample(token, sample.time_ms.saturating_mul(NS_PER_MS), sample.value)?;
        }
        let done = appender.append(None)?;
        self.state.note_own(done.sequence);
        if done.beyond_retention + done.folded > 0 {
            // The others of them are there, and may be read.
            self.appended.push(done);
            return Err(TOO_OLD);
        }
        let is_stale = |sample: &&PendingSample| {
            let token = self.state.catalog.at(sample.key).and_then(|key| key.token);
            token.is_some_and(|token| done.stale.contains(&token))
        };
        let stale = if done.stale.is_empty() {
            BTreeSet::new()
        } else {
            samples.filter(is_stale).map(|sample| sample.key).collect()
        };
        self.appended.push(done);
        Ok(stale)
    }

    /// Writes the buckets of a rule that are over, of times that were written. Those that cannot be computed now are computed later: the samples
    /// are stored.
    fn follow(&mut self, source: &str, rule: &Rule, times: &BTreeSet<i64>) {
        let buckets = rule.buckets();
        let open_ms = match self.state.last(self.rows, source) {
            Ok(None) => return,
            Ok(Some((last_ms, _))) => Some(buckets.start_of(last_ms)),
            Err(_) => None,
        };
        let starts: BTreeSet<i64> = times.iter().map(|time_ms| buckets.start_of(*time_ms)).collect();
        let range = self.first_kept(source, rule)..open_ms.unwrap_or(i64::MAX);
        let mut left = Vec::new();
        for start_ms in starts.into_iter().filter(|start_ms| range.contains(start_ms)) {
            if open_ms.is_none() || self.write_bucket(source, rule, start_ms).is_err() {
                left.push(start_ms);
            }
        }
        self.put_off(source, &rule.to, &left);
    }

    /// The first bucket of a rule that may be computed: those before it were over when the rule was made, or have lost samples.
    fn first_kept(&self, source: &str, rule: &Rule) -> i64 {
        let trimmed_ms = self.state.catalog.get(source).and_then(|key| key.settings.trimmed_ms);
        rule.from_ms.unwrap_or(i64::MIN).max(rule.first_whole_ms(trimmed_ms))
    }

    /// Has buckets of a rule computed later, also after a restart.
    fn put_off(&mut self, source: &str, to: &str, starts_ms: &[i64]) {
        let Some(name) = self.state.catalog.name(source).filter(|_| !starts_ms.is_empty()) else { return };
        self.state.change(&name, |settings| {
            for rule in settings.rules.iter_mut().filter(|rule| *rule.to == *to) {
                starts_ms.iter().for_each(|start_ms| rule.put_off(*start_ms));
            }
        });
        self.documents.insert(name.clone());
        self.state.behind.insert(name);
    }

    /// Writes some of the buckets that could not be computed before. After an error all others were tried, too.
    pub(crate) fn catch_up(&mut self) -> Result<(), CommandError> {
        let (mut left, mut done) = (CAUGHT_UP_MAX, Ok(()));
        for source in self.state.behind.sources() {
            if left == 0 {
                break;
            }
            let rules = self.state.catalog.get(&source).map_or_else(Vec::new, |key| key.settings.rules.clone());
            let mut is_behind = false;
            for mut rule in rules.into_iter().filter(|rule| !rule.pending_ms.is_empty()) {
                done = self.catch_up_rule(&source, &mut rule, &mut left).and(done);
                is_behind |= !rule.pending_ms.is_empty();
                self.state.change(&source, |settings| {
                    let known = settings.rules.iter_mut().filter(|known| known.to == rule.to);
                    known.for_each(|known| known.pending_ms.clone_from(&rule.pending_ms));
                });
                self.documents.insert(source.clone());
            }
            if !is_behind {
                self.state.behind.remove(&source);
            }
        }
        done
    }

    fn catch_up_rule(&mut self, source: &str, rule: &mut Rule, left: &mut usize) -> Result<(), CommandError> {
        // A bucket that is open again is written when it is over.
        let last = self.state.newest(self.rows, source)?;
        let open_ms = last.map_or(i64::MIN, |(last_ms, _)| rule.buckets().start_of(last_ms));
        let (mut failed, mut done) = (Vec::new(), Ok(()));
        while *left > 0
            && let Some(start_ms) = rule.next_pending()
        {
            *left -= 1;
            if start_ms < open_ms
                && let Err(error) = self.write_bucket(source, rule, start_ms)
            {
                failed.push(start_ms);
                done = Err(error);
            }
        }
        failed.into_iter().for_each(|start_ms| rule.put_off(start_ms));
        done
    }

    fn write_bucket(&mut self, source: &str, rule: &Rule, start_ms: i64) -> Result<(), CommandError> {
        let Some(sample) = bucket_value(self.rows, source, rule, start_ms)? else { return Ok(()) };
        let Some(to) = self.state.catalog.slot(&rule.to) else { return Ok(()) };
        // What is known of the newest sample is used by the next push.
        self.state.last_at(self.rows, to)?;
        self.buckets.push(PendingBucket { source: source.into(), to: rule.to.clone(), start_ms });
        self.push(to, sample).map(drop)
    }

    /// Brings the buckets of rules right after samples between two times were deleted.
    pub(crate) fn follow_delete(&mut self, source: &str, (from_ms, to_ms): (i64, i64)) -> Result<(), CommandError> {
        let settings = self.key(source)?.settings.clone();
        for rule in &settings.rules {
            let buckets = rule.buckets();
            // Buckets stay that have lost samples: the others of theirs do not tell what they were made of.
            let whole_ms = rule.first_whole_ms(settings.trimmed_ms).max(0);
            let (first_ms, last_ms) = (buckets.start_of(from_ms).max(whole_ms), buckets.start_of(to_ms));
            if self.state.catalog.get(&rule.to).is_none() || first_ms > last_ms {
                continue;
            }
            self.rows.delete_samples(&rule.to, first_ms, last_ms)?;
            if let Some(key) = self.state.catalog.get_mut(&rule.to) {
                key.last = Last::Unknown;
            }
            self.save_document(&rule.to)?;
            self.follow(source, rule, &BTreeSet::from([from_ms, to_ms]));
        }
        Ok(())
    }
}

/// Has the newest samples of the keys of some looked up again.
fn forget_newest(state: &mut State, samples: &[PendingSample]) {
    for sample in samples {
        if let Some(key) = state.catalog.at_mut(sample.key) {
            key.last = Last::Unknown;
        }
    }
}

/// The value of a rule's bucket; `None` if it has none.
pub(crate) fn bucket_value(
    rows: &Rows<'_>,
    source: &str,
    rule: &Rule,
    start_ms: i64,
) -> Result<Option<Sample>, CommandError> {
    let width_ms = rule.bucket_ms.max(1);
    let end_ms = start_ms.saturating_add(width_ms).saturating_sub(1);
    let margin_ms = rule.margin_ms();
    let range = (start_ms.saturating_sub(margin_ms), end_ms.saturating_add(margin_ms));
    let samples = rows.samples(source, range.0.max(0), range.1)?;
    let shown_ms = start_ms.max(0);
    let found = rule.buckets().rows(&samples).into_iter().find(|row| row.time_ms == shown_ms);
    Ok(found.and_then(|row| Some((row.time_ms, *row.values.first()?))))
}
