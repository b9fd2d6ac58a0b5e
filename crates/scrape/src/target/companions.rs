//! What stands beside the samples of a response: exemplars, and since when series count.

use std::collections::{HashMap, HashSet};

use ingest::exposition::decode_key;
use ingest::exposition::metric_families::{FoundExemplar, FoundStart};
use ingest::{Parsed, ScopedKeyHasher};
use model::{Exemplar, GroupKey, SeriesExemplar, StartTimestamp};

use super::append::{Body, Destination, NO_TIME, Reader, spell};
use super::negotiation::Format;
use relabel::Labels;

/// Ends the name of a line of OpenMetrics that says since when a series counts.
const CREATED: &str = "_created";

/// What ends the names of the series that such a line is about.
const COUNTING: [&str; 4] = ["_total", "_count", "_sum", "_bucket"];

const NS_PER_MS: i64 = 1_000_000;

/// What a protobuf response says beside its samples.
#[derive(Default)]
pub(super) struct Found {
    pub(super) exemplars: Vec<FoundExemplar>,
    pub(super) starts: Vec<FoundStart>,
}

/// Exemplars and start times of series that relabelling kept.
#[derive(Default)]
struct Companions {
    exemplars: Vec<(Labels, Exemplar)>,
    starts: Vec<(Labels, i64)>,
}

impl Reader<'_> {
    /// Stores exemplars and start times. Labels of known lines are not kept: the few that have either are read again, and those with a
    /// start time only when it is a new one.
    pub(super) fn take_companions(
        &mut self,
        parsed: &mut Parsed<'_>,
        found: Found,
        body: &Body<'_>,
        hasher: &ScopedKeyHasher<'_>,
    ) {
        let mut companions = Companions::default();
        for SeriesExemplar { key, mut exemplar } in std::mem::take(&mut parsed.batch.exemplars) {
            if exemplar.timestamp_ns == NO_TIME {
                exemplar.timestamp_ns = body.time_ns;
            }
            let labels = self.labels_of_line(parsed.batch.text(key.text), 0);
            companions.exemplars.extend(labels.ok().flatten().map(|labels| (labels, exemplar)));
        }
        for FoundExemplar { key, labels, value, time_ns } in found.exemplars {
            let exemplar = Exemplar { labels, value, timestamp_ns: time_ns.unwrap_or(body.time_ns) };
            let labels = self.labels_of_line(key.as_bytes(), 0);
            companions.exemplars.extend(labels.ok().flatten().map(|labels| (labels, exemplar)));
        }
        for FoundStart { key, start_ns } in found.starts {
            if self.cache.note_start(hasher.hash(key.as_bytes()), start_ns) {
                let labels = self.labels_of_line(key.as_bytes(), 0);
                companions.starts.extend(labels.ok().flatten().map(|labels| (labels, start_ns)));
            }
        }
        if body.format == Format::OpenMetrics {
            companions.starts.extend(self.created(parsed));
        }
        if !companions.exemplars.is_empty() || !companions.starts.is_empty() {
            let has_starts = !companions.starts.is_empty();
            if !self.destination.write_companions(companions, hasher) && has_starts {
                // They are stored with the next scrape.
                self.cache.forget_starts();
            }
        }
    }

    /// The series that lines of OpenMetrics say a new start time of.
    fn created(&mut self, parsed: &Parsed<'_>) -> Vec<(Labels, i64)> {
        let rows = || {
            let blocks = parsed.batch.blocks.iter();
            blocks.flat_map(|block| block.keys.iter().zip(&block.cells)).map(|(key, cell)| {
                let text = parsed.batch.text(key.text);
                (key, text, name_of(text), *cell)
            })
        };
        let mut starts = HashMap::new();
        for (key, text, _, cell) in rows().filter(|(_, _, name, _)| name.ends_with(CREATED)) {
            let start_ns = ((f64::from_bits(cell) * 1_000.0).round() as i64).saturating_mul(NS_PER_MS);
            if start_ns > 0 && self.cache.note_start(key.hash, start_ns) {
                starts.extend(stem_and_labels(text, CREATED).map(|series| (series, start_ns)));
            }
        }
        if starts.is_empty() {
            return Vec::new();
        }
        let stems: HashSet<&str> = starts.keys().map(|(stem, _)| stem.as_str()).collect();
        let counting = rows().filter_map(|(_, text, name, _)| {
            let suffix =
                COUNTING.iter().find(|suffix| name.strip_suffix(*suffix).is_some_and(|stem| stems.contains(stem)))?;
            Some((text, *starts.get(&stem_and_labels(text, suffix)?)?))
        });
        counting.filter_map(|(text, start_ns)| Some((self.labels_of_line(text, 0).ok()??, start_ns))).collect()
    }
}

/// The name that a line begins with; one in quotes, which is between the braces, is none.
fn name_of(line: &[u8]) -> &str {
    let end = line.iter().position(|byte| *byte == b'{').unwrap_or(line.len());
    std::str::from_utf8(line.get(..end).unwrap_or_default()).unwrap_or_default().trim()
}

/// A series without the end of its name and without its bound.
fn stem_and_labels(line: &[u8], suffix: &str) -> Option<(String, model::Labels)> {
    let identity = decode_key(line).ok()?;
    let stem = identity.measurement.strip_suffix(suffix)?.to_owned();
    let labels = identity.labels.iter().filter(|(name, _)| *name != "le");
    Some((stem, model::Labels::from_sorted(labels)))
}

impl Destination {
    /// Stores exemplars and start times; returns whether that succeeded. The store passes over those that it has.
    fn write_companions(&self, Companions { exemplars, starts }: Companions, hasher: &ScopedKeyHasher<'_>) -> bool {
        let mut batch = model::Batch::new(&[], decode_key);
        let key_of = |batch: &mut model::Batch<'_>, labels: &Labels| {
            let spelled = spell(labels);
            GroupKey { hash: hasher.hash(&spelled), text: batch.push_text(&spelled) }
        };
        for (labels, exemplar) in exemplars {
            let key = key_of(&mut batch, &labels);
            batch.exemplars.push(SeriesExemplar { key, exemplar });
        }
        for (labels, start_ns) in starts {
            let key = key_of(&mut batch, &labels);
            batch.start_timestamps.push(StartTimestamp { key, start_ns });
        }
        // Exemplars that cannot be stored are lost; why is told where samples fail.
        self.db.write(&self.database, &batch).is_ok()
    }
}
