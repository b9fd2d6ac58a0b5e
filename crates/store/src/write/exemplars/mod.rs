//! What stands beside the samples: exemplars, and since when series count. Few, bounded, in memory; durable by log records
//! of their own and, before the log is released, by a segment that holds all of them.
//!
//! * this file: what there is, and writing it
//! * [`entry`]: the bytes of log records and of the segment
//!
//! Layout: `docs/formats/exemplars.md`.

mod entry;

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use codec::{Reader, varint};
use index::{CompiledMatcher, DatabaseId};
use model::{Batch, Exemplar, GroupKey, Labels, METRIC_NAME, TimeRange};
use platform::Files;

use crate::flush::segment;
use crate::log::{NewRecord, record};
use crate::manifest::Edit;
use crate::{Store, StoreError};

pub(crate) use entry::{Entry, times_of};

/// Stands for the number of a shard where the manifest names the segment of exemplars.
pub(crate) const EXEMPLARS_SHARD: u32 = u32::MAX - 1;

/// Keys of series whose newest entry is remembered, to know what comes again, for each entry kept.
const KEYS_PER_ENTRY: usize = 2;

/// A series by database and labels, the metric's name among them.
type SeriesName = (DatabaseId, Labels);

/// Exemplars and start timestamps of a folder.
#[derive(Default)]
pub(crate) struct Exemplars {
    /// In order of arrival; the oldest go when there are too many.
    by_arrival: VecDeque<(SeriesName, Exemplar)>,
    starts_ns: HashMap<SeriesName, i64>,
    /// What a raw key said last: exemplars and start timestamps are sent again and again.
    last_exemplar: HashMap<u128, Exemplar>,
    last_start_ns: HashMap<u128, i64>,
    /// Smallest sequence id of a record that no segment holds.
    pub(crate) unsaved_since: Option<u64>,
    /// Records up to this sequence id are in the segment.
    saved_through: u64,
}

impl Exemplars {
    /// Takes entries in, as written or as read back.
    fn apply(&mut self, entries: impl IntoIterator<Item = Entry>, entries_max: usize) {
        for entry in entries {
            match entry {
                Entry::Exemplar { series, exemplar } => self.by_arrival.push_back((series, exemplar)),
                Entry::Start { series, start_ns } => {
                    self.starts_ns.insert(series, start_ns);
                }
            }
        }
        let beyond = self.by_arrival.len().saturating_sub(entries_max);
        self.by_arrival.drain(..beyond);
        if self.starts_ns.len() > entries_max {
            let mut starts: Vec<i64> = self.starts_ns.values().copied().collect();
            let middle = starts.len() / 2;
            let (_, middle_ns, _) = starts.select_nth_unstable(middle);
            let middle_ns = *middle_ns;
            self.starts_ns.retain(|_, start_ns| *start_ns > middle_ns);
        }
    }

    /// Takes in the records of a log that are replayed.
    pub(crate) fn replay(&mut self, entries: Vec<Entry>, sequence: u64, entries_max: usize) {
        if sequence > self.saved_through {
            self.apply(entries, entries_max);
            self.unsaved_since.get_or_insert(sequence);
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let exemplars = self.by_arrival.iter().cloned();
        let starts = self.starts_ns.iter().map(|(series, start_ns)| (series.clone(), *start_ns));
        exemplars
            .map(|(series, exemplar)| Entry::Exemplar { series, exemplar })
            .chain(starts.map(|(series, start_ns)| Entry::Start { series, start_ns }))
            .collect()
    }

    /// What a batch says that was not said just before.
    fn new_entries(&mut self, database: DatabaseId, batch: &Batch<'_>, entries_max: usize) -> Vec<Entry> {
        if self.last_exemplar.len().max(self.last_start_ns.len()) > entries_max * KEYS_PER_ENTRY {
            self.last_exemplar.clear();
            self.last_start_ns.clear();
        }
        let series = |key: GroupKey| {
            // One that means nothing is reported with its rows.
            let identity = (batch.key_decoder)(batch.text(key.text)).ok()?;
            Some((database, identity.labels.with(METRIC_NAME, &identity.measurement)))
        };
        let mut entries = Vec::new();
        for sent in &batch.exemplars {
            let before = self.last_exemplar.insert(sent.key.hash, sent.exemplar.clone());
            if before.as_ref() != Some(&sent.exemplar) {
                let exemplar = sent.exemplar.clone();
                entries.extend(series(sent.key).map(|series| Entry::Exemplar { series, exemplar }));
            }
        }
        for sent in &batch.start_timestamps {
            if self.last_start_ns.insert(sent.key.hash, sent.start_ns) != Some(sent.start_ns) {
                entries.extend(series(sent.key).map(|series| Entry::Start { series, start_ns: sent.start_ns }));
            }
        }
        entries
    }
}

/// Reads the segment of exemplars.
pub(crate) fn load(files: &dyn Files, path: &Path, entries_max: usize) -> Result<Exemplars, StoreError> {
    let (bytes, start) = segment::read_entries(files, path)?;
    let mut reader = Reader::new(bytes.get(start..).unwrap_or_default());
    let read = reader.varint().and_then(|through| Ok((through, entry::decode(&mut reader)?)));
    let (saved_through, entries) =
        read.map_err(|error| StoreError::corrupt(path, (start + error.offset) as u64, error.what))?;
    let mut exemplars = Exemplars { saved_through, ..Exemplars::default() };
    exemplars.apply(entries, entries_max);
    Ok(exemplars)
}

/// Reads a record's payload.
pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Vec<Entry>, codec::DecodeError> {
    entry::decode(reader)
}

impl Store {
    /// Exemplars of the series that satisfy all matchers, with timestamps in a range: by series in order of labels, those of
    /// one in order of time.
    pub fn exemplars(
        &self,
        database: &str,
        matchers: &[CompiledMatcher],
        range: &TimeRange,
    ) -> Vec<(Labels, Vec<Exemplar>)> {
        let Some(database) = self.catalog.read().catalog.database(database) else {
            return Vec::new();
        };
        let mut found: std::collections::BTreeMap<Labels, Vec<Exemplar>> = std::collections::BTreeMap::new();
        for ((owner, labels), exemplar) in &self.ingestor.exemplars.lock().by_arrival {
            if *owner == database && range.contains(exemplar.timestamp_ns) && matches(matchers, labels) {
                found.entry(labels.clone()).or_default().push(exemplar.clone());
            }
        }
        found.values_mut().for_each(|exemplars| exemplars.sort_by_key(|exemplar| exemplar.timestamp_ns));
        found.into_iter().collect()
    }

    /// Since when the series that satisfy all matchers count, in nanoseconds since the Unix epoch, as far as senders said.
    pub fn start_timestamps(&self, database: &str, matchers: &[CompiledMatcher]) -> Vec<(Labels, i64)> {
        let Some(database) = self.catalog.read().catalog.database(database) else {
            return Vec::new();
        };
        let exemplars = self.ingestor.exemplars.lock();
        let of_database = exemplars.starts_ns.iter().filter(|((owner, _), _)| *owner == database);
        let mut found: Vec<(Labels, i64)> = of_database
            .filter(|((_, labels), _)| matches(matchers, labels))
            .map(|((_, labels), start_ns)| (labels.clone(), *start_ns))
            .collect();
        found.sort();
        found
    }

    /// Puts a batch's exemplars and start timestamps into the log and takes them in. Durable with the batch's rows.
    pub(crate) fn write_exemplars(&self, database: DatabaseId, batch: &Batch<'_>) -> Result<(), StoreError> {
        if batch.exemplars.is_empty() && batch.start_timestamps.is_empty() {
            return Ok(());
        }
        let mut exemplars = self.ingestor.exemplars.lock();
        let entries = exemplars.new_entries(database, batch, self.options.exemplars_max);
        for (kind, entries) in [
            (record::EXEMPLARS, entries.iter().filter(|entry| entry.is_exemplar()).cloned().collect::<Vec<_>>()),
            (record::START_TIMESTAMPS, entries.iter().filter(|entry| !entry.is_exemplar()).cloned().collect()),
        ] {
            if entries.is_empty() {
                continue;
            }
            let mut payload = Vec::new();
            entry::encode(&entries, &mut payload);
            // What the log did not take must not count as said.
            let sequence = self
                .log
                .append(&NewRecord { kind, payload: &payload, range: times_of(&entries) })
                .inspect_err(|_| {
                    exemplars.last_exemplar.clear();
                    exemplars.last_start_ns.clear();
                })?;
            exemplars.unsaved_since.get_or_insert(sequence);
            exemplars.apply(entries, self.options.exemplars_max);
        }
        Ok(())
    }

    /// Writes all of them to a segment, in the place of the one before, if the log has records that no segment holds.
    pub(crate) fn save_exemplars(&self) -> Result<(), StoreError> {
        let (entries, since, through) = {
            let mut exemplars = self.ingestor.exemplars.lock();
            let Some(since) = exemplars.unsaved_since.take() else {
                return Ok(());
            };
            // Every record of theirs is appended under this lock.
            (exemplars.entries(), since, self.log.last_sequence())
        };
        let mut payload = Vec::new();
        varint::push(&mut payload, through);
        entry::encode(&entries, &mut payload);
        let saved = self.replace_segment_beside(EXEMPLARS_SHARD, through, &payload);
        saved.inspect_err(|_| {
            let mut exemplars = self.ingestor.exemplars.lock();
            exemplars.unsaved_since = Some(exemplars.unsaved_since.map_or(since, |later| later.min(since)));
        })
    }

    /// Writes a segment of what stands beside the samples, in the place of its owner's one before.
    pub(crate) fn replace_segment_beside(&self, owner: u32, through: u64, payload: &[u8]) -> Result<(), StoreError> {
        // None may be on disk before its record, whose sequence id another one could get after a crash.
        self.log.commit(through)?;
        let (id, before) = {
            let mut manifest = self.manifest.lock();
            let ours = |(_, of): &(&u64, &Option<u32>)| **of == Some(owner);
            let before: Vec<u64> = manifest.state.segments.iter().filter(ours).map(|(id, _)| *id).collect();
            (manifest.take_id(), before)
        };
        let path = segment::segment_path(&self.options.directory, id);
        segment::write_entries(&*self.platform.files, &path, payload)?;
        let mut edits = vec![Edit::AddSegment { id, shard: Some(owner) }];
        edits.extend(before.iter().map(|id| Edit::RemoveSegment(*id)));
        self.commit_edits(&edits)?;
        self.remove_segments(&before);
        Ok(())
    }
}

fn matches(matchers: &[CompiledMatcher], labels: &Labels) -> bool {
    matchers.iter().all(|matcher| matcher.matches(labels.get(matcher.name()).unwrap_or_default()))
}
