//! Samples and documents of keys in the database.

use std::collections::BTreeMap;
use std::sync::Arc;

use db::{Appended, Db, GroupsToRegister, SeriesGate, StoreError, Token};
use model::{Cell, Field, Labels, METRIC_NAME, MatchOp, Matcher, Span, TimeRange, ValueType};
use query::plan::{Plan, Scan, Selector};
use query::{Budget, Frame, QueryError};

use super::settings::Settings;
use super::{KEY_LABEL, KEYS_TABLE, TABLE};
use crate::aggregate::Sample;

/// The last time that can be stored, in milliseconds: nanoseconds have 64 bits.
pub const TIME_MS_MAX: i64 = i64::MAX / NS_PER_MS;

pub(crate) const NS_PER_MS: i64 = 1_000_000;

/// Rows that are read at a time where all are looked at and none is shown.
const PIECE_ROWS: u64 = 65_536;

/// Rows of a piece are such a part of those that may be held at once: reading some at an end of a range holds more.
const PIECE_SHARE: u64 = 32;

/// The field of a key's document.
const DOCUMENT_FIELD: &str = "settings";

/// A database, within the budget of a request.
pub struct Rows<'a> {
    /// All databases.
    pub db: &'a Db,
    /// The name of this one.
    pub database: &'a str,
    /// What the request may read.
    pub budget: &'a Arc<Budget>,
    /// Asked before series are made.
    pub gate: SeriesGate<'a>,
}

/// A key's document as it was found.
pub(crate) struct FoundDocument {
    pub(crate) key: String,
    pub(crate) saved_ns: i64,
    pub(crate) settings: Result<Settings, String>,
}

fn matchers(table: &str, key: Option<&str>) -> Vec<Matcher> {
    let of_table = Matcher::new(METRIC_NAME, MatchOp::Equal, table);
    let of_key = key.map(|key| Matcher::new(KEY_LABEL, MatchOp::Equal, key));
    std::iter::once(of_table).chain(of_key).collect()
}

/// The samples of all keys, or of one.
fn scan(key: Option<&str>) -> Scan {
    let mut scan = Scan::of_table(TABLE);
    scan.selectors.extend(key.map(|key| {
        let (name, values) = (KEY_LABEL.to_owned(), vec![key.to_owned()]);
        Selector { name, op: MatchOp::Equal, values }
    }));
    scan
}

/// The labels of a key's samples.
fn series_labels(key: &str, settings: &Settings) -> Result<Labels, StoreError> {
    let own = settings.labels.iter().map(|(name, value)| (&**name, &**value));
    let labels = Labels::from_pairs(own.chain([(KEY_LABEL, key)]));
    labels.map_err(|_| StoreError::Invalid(format!("a label of {key:?} is called {KEY_LABEL:?}, which names the key")))
}

impl Rows<'_> {
    /// The samples of a key between two times, both included, in order of time.
    pub fn samples(&self, key: &str, from_ms: i64, to_ms: i64) -> Result<Vec<Sample>, QueryError> {
        let matchers = matchers(TABLE, Some(key));
        let mut series = self.db.samples(self.database, &matchers, (from_ms, to_ms), self.budget)?;
        if series.len() == 1
            && let Some(only) = series.pop()
        {
            return Ok(only.timestamps_ms.iter().copied().zip(only.values).collect());
        }
        // A key whose labels were changed is several series.
        let all = series.into_iter().flat_map(|series| {
            series.timestamps_ms.iter().copied().zip(series.values.iter().copied()).collect::<Vec<_>>()
        });
        Ok(all.collect::<BTreeMap<i64, _>>().into_iter().collect())
    }

    /// A part of a range of time at its beginning, or at its end, in which a key has so many samples, or the whole range: both times included.
    pub(crate) fn end_range(
        &self,
        key: &str,
        (from_ms, to_ms): (i64, i64),
        rows: usize,
        is_at_end: bool,
    ) -> Result<(i64, i64), QueryError> {
        let input = Box::new(Plan::Scan(Scan { range: millisecond_range(from_ms, to_ms), ..scan(Some(key)) }));
        let plan = if is_at_end { Plan::Last { input, rows } } else { Plan::Limit { input, rows, skip: 0 } };
        self.passing(|| {
            let frames = self.db.run_plan(self.database, &plan, self.budget)?.frames;
            // A series with fewer rows has no others.
            let full = frames.iter().filter(|frame| frame.timestamps_ns.len() >= rows);
            let bounds =
                full.filter_map(|frame| frame.timestamps_ns.last()).map(|time_ns| time_ns.div_euclid(NS_PER_MS));
            Ok(if is_at_end {
                (bounds.max().unwrap_or(from_ms).max(from_ms), to_ms)
            } else {
                (from_ms, bounds.min().unwrap_or(to_ms).min(to_ms))
            })
        })
    }

    /// How many samples a key has between two times, both included, and when the first one is: read in pieces, however many there are.
    pub(crate) fn count(&self, key: &str, (from_ms, to_ms): (i64, i64)) -> Result<(u64, Option<i64>), QueryError> {
        let rows = (self.budget.samples_max() / PIECE_SHARE).clamp(1, PIECE_ROWS) as usize;
        let (mut count, mut first_ms, mut next_ms) = (0, None, Some(from_ms));
        while let Some(from_ms) = next_ms.filter(|from_ms| *from_ms <= to_ms) {
            self.budget.check()?;
            let (_, end_ms) = self.end_range(key, (from_ms, to_ms), rows, false)?;
            self.passing(|| {
                let samples = self.samples(key, from_ms, end_ms)?;
                count += samples.len() as u64;
                first_ms = first_ms.or(samples.first().map(|(time_ms, _)| *time_ms));
                Ok(())
            })?;
            next_ms = end_ms.checked_add(1);
        }
        Ok((count, first_ms))
    }

    /// Does work that holds no samples when it is done.
    fn passing<T>(&self, work: impl FnOnce() -> Result<T, QueryError>) -> Result<T, QueryError> {
        let before = self.budget.samples();
        let done = work();
        let taken = self.budget.samples().saturating_sub(before);
        self.budget.give_back(usize::try_from(taken).unwrap_or(usize::MAX));
        done
    }

    /// The newest sample of a key.
    pub fn last(&self, key: &str) -> Result<Option<Sample>, QueryError> {
        let frames = self.last_rows(scan(Some(key)))?;
        Ok(frames.iter().filter_map(last_sample).max_by_key(|(time_ms, _)| *time_ms))
    }

    fn last_rows(&self, scan: Scan) -> Result<Vec<Frame>, QueryError> {
        let plan = Plan::Last { input: Box::new(Plan::Scan(scan)), rows: 1 };
        Ok(self.db.run_plan(self.database, &plan, self.budget)?.frames)
    }

    /// The keys that have samples, or one of them, with their labels and their newest sample; a key whose labels were changed is there several
    /// times.
    pub(crate) fn keys(&self, key: Option<&str>) -> Result<Vec<(Labels, Sample)>, QueryError> {
        let frames = self.last_rows(scan(key))?;
        Ok(frames.into_iter().filter_map(|frame| last_sample(&frame).map(|sample| (frame.labels, sample))).collect())
    }

    /// The documents of keys.
    pub(crate) fn documents(&self) -> Result<Vec<FoundDocument>, QueryError> {
        let frames = self.last_rows(Scan::of_table(KEYS_TABLE))?;
        let found = frames.iter().filter_map(|frame| {
            let key = frame.labels.get(KEY_LABEL)?.to_owned();
            let saved_ns = *frame.timestamps_ns.first()?;
            let Cell::Text(text) = frame.column(DOCUMENT_FIELD)?.cell(0) else { return None };
            let settings = serde_json::from_str(text).map_err(|error| error.to_string());
            Some(FoundDocument { key, saved_ns, settings })
        });
        Ok(found.collect())
    }

    /// Writes documents of keys; they are on disk once the returned appends are committed.
    pub(crate) fn put_documents(&self, documents: &[(&str, &Settings)], now_ns: i64) -> Result<Appended, StoreError> {
        let labels = |(key, _): &(&str, _)| Labels::from_sorted([(KEY_LABEL, *key)]);
        let groups: Vec<Labels> = documents.iter().map(labels).collect();
        let field = Field { name: DOCUMENT_FIELD.to_owned(), value_type: ValueType::String };
        let members = [(field, Labels::empty())];
        let to_register = GroupsToRegister { measurement: KEYS_TABLE, groups: &groups, members: &members };
        let (tokens, layout) = self.db.register_groups_gated(self.database, &to_register, Some(self.gate))?;
        let (mut text, mut cells) = (Vec::new(), Vec::with_capacity(documents.len()));
        for (_, settings) in documents {
            let start = text.len() as u32;
            serde_json::to_writer(&mut text, settings).map_err(|error| StoreError::Invalid(error.to_string()))?;
            cells.push(Span { start, len: text.len() as u32 - start }.to_cell());
        }
        let tokens: Vec<u64> = tokens.iter().map(|token| token.to_bits()).collect();
        let mut appender = self.db.appender();
        appender.push_rows(&layout, &tokens, &vec![now_ns; tokens.len()], &cells, &text)?;
        appender.append(None)
    }

    /// Makes what samples of keys are written by.
    pub(crate) fn register(&self, keys: &[(&str, &Settings)]) -> Result<Vec<Token>, StoreError> {
        let series = keys.iter().map(|(key, settings)| Ok((TABLE, series_labels(key, settings)?)));
        let series = series.collect::<Result<Vec<_>, StoreError>>()?;
        self.db.register_series_gated(self.database, &series, Some(self.gate))
    }

    /// Deletes a key's samples between two times, both included.
    pub(crate) fn delete_samples(&self, key: &str, from_ms: i64, to_ms: i64) -> Result<(), StoreError> {
        let range = millisecond_range(from_ms, to_ms);
        self.db.delete(self.database, &[matchers(TABLE, Some(key))], &range).map(drop)
    }

    /// Deletes what a key has at a time in series with other labels than its own.
    pub(crate) fn delete_divided(&self, key: &str, settings: &Settings, time_ms: i64) -> Result<(), QueryError> {
        let own = series_labels(key, settings)?.with(METRIC_NAME, TABLE);
        let found = self.db.samples(self.database, &matchers(TABLE, Some(key)), (time_ms, time_ms), self.budget)?;
        let others = found.iter().map(|series| &series.labels).filter(|labels| **labels != own);
        for labels in others {
            let equal = labels.iter().map(|(name, value)| Matcher::new(name, MatchOp::Equal, value));
            let missing = own.iter().filter(|(name, _)| labels.get(name).is_none());
            let absent = missing.map(|(name, _)| Matcher::new(name, MatchOp::Equal, ""));
            let matchers: Vec<Matcher> = equal.chain(absent).collect();
            self.db.delete(self.database, &[matchers], &millisecond_range(time_ms, time_ms))?;
        }
        Ok(())
    }

    /// Deletes the samples of keys before a time, which their retention does not keep; returns the time before which they are gone.
    pub(crate) fn trim(&self, keys: &[&str], before_ms: i64) -> Result<i64, StoreError> {
        let samples: Vec<Vec<Matcher>> =
            keys.iter().map(|key| vec![Matcher::new(KEY_LABEL, MatchOp::Equal, *key)]).collect();
        let gone_ns = self.db.trim_series((self.database, TABLE), &samples, before_ms.saturating_mul(NS_PER_MS))?;
        Ok(gone_ns.div_euclid(NS_PER_MS))
    }

    /// Deletes keys with all that they have.
    pub(crate) fn delete_keys(&self, keys: &[&str]) -> Result<(), StoreError> {
        let samples: Vec<Vec<Matcher>> = keys.iter().map(|key| matchers(TABLE, Some(key))).collect();
        self.db.delete(self.database, &samples, &TimeRange::ALL)?;
        // After a crash in between a key goes once more: its document says when.
        let documents: Vec<Vec<Matcher>> = keys.iter().map(|key| documents_of(key)).collect();
        self.db.delete(self.database, &documents, &TimeRange::ALL).map(drop)
    }
}

/// The time between two milliseconds, both included: a sample that another language wrote may have nanoseconds beyond its milliseconds.
const fn millisecond_range(from_ms: i64, to_ms: i64) -> TimeRange {
    let end_ns = to_ms.saturating_add(1).saturating_mul(NS_PER_MS).saturating_sub(1);
    TimeRange { start_ns: from_ms.saturating_mul(NS_PER_MS), end_ns }
}

/// The sample of a frame's first row.
fn last_sample(frame: &Frame) -> Option<Sample> {
    let time_ns = *frame.timestamps_ns.first()?;
    match frame.value()?.cell(0) {
        Cell::F64(value) => Some((time_ns.div_euclid(NS_PER_MS), value)),
        _ => None,
    }
}

/// A document's series is called by its table and its field.
fn documents_of(key: &str) -> Vec<Matcher> {
    matchers(&format!("{KEYS_TABLE}_{DOCUMENT_FIELD}"), Some(key))
}
