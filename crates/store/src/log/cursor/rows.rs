//! Records as their readers want them: samples of series with labels.

use std::sync::Arc;

use index::{Catalog, DatabaseId, GroupId, MeasurementId, Slot};
use model::{Exemplar, Labels, METRIC_NAME, NativeHistogram, ValueType};
use tracing_mutex::parkinglot::Mutex;

use crate::cache::generations::Generations;
use crate::log::record::{Record, RowBlock, ShardRows, text_of};
use crate::memory::LOG_SERIES_CACHE;
use crate::part::histogram;
use crate::write::exemplars::Entry;
use crate::write::keys::Target;
use crate::{Store, StoreError};

/// A series whose samples are in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSeries {
    /// The database that it is in.
    pub database: Arc<str>,
    /// All of its labels, the metric name among them.
    pub labels: Labels,
    /// The table that it is in: its measurement.
    pub table: Arc<str>,
    /// Its labels without the metric name: the tags of its rows.
    pub tags: Labels,
    /// The column that it is in its table.
    pub field: Arc<str>,
}

impl LogSeries {
    fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.labels.size_bytes() + self.tags.size_bytes() + self.table.len() + self.field.len()
    }
}

/// The value of a sample in the log.
#[derive(Debug, Clone, PartialEq)]
pub enum LogValue {
    /// A float; a stale marker has the bits of [`model::STALE_NAN_BITS`].
    Float(f64),
    /// A signed integer.
    Integer(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A boolean.
    Bool(bool),
    /// A text.
    Text(Arc<str>),
    /// A native histogram; a stale marker is one whose sum has those bits.
    Histogram(Arc<NativeHistogram>),
}

/// A sample in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSample {
    /// Its series.
    pub series: Arc<LogSeries>,
    /// Nanoseconds since the Unix epoch.
    pub timestamp_ns: i64,
    /// Its value.
    pub value: LogValue,
}

/// What one request wrote.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LogRecord {
    /// Its sequence id.
    pub sequence: u64,
    /// Samples, those of a series in the order in which they were written.
    pub samples: Vec<LogSample>,
    /// Of a cursor of rows: how many samples each of `samples` stands for, those of its row.
    pub samples_of_rows: Vec<u32>,
    /// Exemplars by the labels of their series.
    pub exemplars: Vec<(Labels, Exemplar)>,
    /// Since when series count, by their labels, in nanoseconds since the Unix epoch.
    pub starts_ns: Vec<(Labels, i64)>,
}

/// Labels of series that cursors read.
pub(crate) struct LogSeriesCache(Mutex<Generations<u64, Option<Cached>>>);

/// A series, and the measurement whose slots its group has.
#[derive(Clone)]
struct Cached {
    series: Arc<LogSeries>,
    measurement: MeasurementId,
}

impl LogSeriesCache {
    /// For a store that may take so many bytes.
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        Self(Mutex::new(Generations::new(LOG_SERIES_CACHE.bytes(memory_bytes_max))))
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.lock().memory_bytes()
    }

    /// Lets go of everything.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// Which samples of a record are wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) database: Option<&'a str>,
    /// One sample of each row: all that readers need who want to know which rows changed.
    pub(super) rows_alone: bool,
}

impl Wanted<'_> {
    fn has(&self, database: &str) -> bool {
        self.database.is_none_or(|wanted| wanted == database)
    }
}

impl Store {
    /// What a record says, of what is wanted.
    pub(super) fn log_record(
        &self,
        sequence: u64,
        record: &Record,
        wanted: Wanted<'_>,
    ) -> Result<LogRecord, StoreError> {
        let mut out = LogRecord { sequence, ..LogRecord::default() };
        match record {
            Record::Rows(shards, _) => {
                for rows in shards {
                    for block in &rows.blocks {
                        if wanted.rows_alone {
                            self.push_rows(rows, block, wanted, &mut out)?;
                        } else {
                            self.push_block(rows, block, wanted, &mut out.samples)?;
                        }
                    }
                }
            }
            Record::Exemplars(entries) => self.push_exemplars(entries, wanted, &mut out),
            Record::Catalog(_) | Record::Groups { .. } | Record::Mark => {}
        }
        Ok(out)
    }

    fn push_block(
        &self,
        rows: &ShardRows,
        block: &RowBlock,
        wanted: Wanted<'_>,
        out: &mut Vec<LogSample>,
    ) -> Result<(), StoreError> {
        (0..block.groups.len()).try_for_each(|row| self.push_row(rows, (block, row), wanted, out))
    }

    fn push_row(
        &self,
        rows: &ShardRows,
        (block, row): (&RowBlock, usize),
        wanted: Wanted<'_>,
        out: &mut Vec<LogSample>,
    ) -> Result<(), StoreError> {
        let (Some(group), Some(timestamp_ns)) = (block.groups.get(row), block.timestamps_ns.get(row)) else {
            return Ok(());
        };
        for ((slot, value_type), cell) in block.columns.iter().zip(block.row(row)) {
            let Some(Cached { series, .. }) = self.log_series(rows.shard, *group, *slot)? else { continue };
            if !wanted.has(&series.database) {
                // All columns of a row are of one database.
                break;
            }
            if let Some(value) = value_of(*value_type, *cell, &rows.text) {
                out.push(LogSample { series, timestamp_ns: *timestamp_ns, value });
            }
        }
        Ok(())
    }

    /// The first sample of each row, and of rows whose columns have labels of their own all: they have other tags.
    fn push_rows(
        &self,
        rows: &ShardRows,
        block: &RowBlock,
        wanted: Wanted<'_>,
        out: &mut LogRecord,
    ) -> Result<(), StoreError> {
        let mut labelled: Option<(MeasurementId, bool)> = None;
        let Some((slot, value_type)) = block.columns.first() else { return Ok(()) };
        for (row, (group, timestamp_ns)) in block.groups.iter().zip(&block.timestamps_ns).enumerate() {
            let first = self.log_series(rows.shard, *group, *slot)?.zip(block.row(row).first());
            let Some((Cached { series, measurement }, cell)) = first.filter(|(of, _)| wanted.has(&of.series.database))
            else {
                continue;
            };
            if labelled.is_none_or(|(known, _)| known != measurement) {
                let catalog = self.catalog.read();
                let has_labels = |(slot, _): &(Slot, ValueType)| catalog.catalog.has_labels(measurement, *slot);
                labelled = Some((measurement, block.columns.iter().any(has_labels)));
            }
            if labelled.is_some_and(|(_, has_labels)| has_labels) {
                self.push_row(rows, (block, row), wanted, &mut out.samples)?;
            } else if let Some(value) = value_of(*value_type, *cell, &rows.text) {
                out.samples.push(LogSample { series, timestamp_ns: *timestamp_ns, value });
                out.samples_of_rows.resize(out.samples.len() - 1, 1);
                out.samples_of_rows.push(block.columns.len() as u32);
            }
            out.samples_of_rows.resize(out.samples.len(), 1);
        }
        Ok(())
    }

    /// A series by its group and slot; `None` if it left the index: its rows are gone.
    fn log_series(&self, shard: usize, group: GroupId, slot: Slot) -> Result<Option<Cached>, StoreError> {
        let key = Target { shard, group, slot }.pack();
        if let Some(known) = key.and_then(|key| self.caches.log_series().0.lock().get(key)) {
            return Ok(known);
        }
        let found = self.find_log_series(shard, group, slot)?;
        let bytes = found.as_ref().map_or(0, |found| found.series.size_bytes());
        if let Some(key) = key {
            self.caches.log_series().0.lock().insert(key, found.clone(), bytes);
        }
        Ok(found)
    }

    fn find_log_series(&self, shard: usize, group: GroupId, slot: Slot) -> Result<Option<Cached>, StoreError> {
        let Some(shard) = self.shards.get(shard) else { return Ok(None) };
        let found = shard.groups.read().groups.get(group).map_err(StoreError::index(&self.options.directory))?;
        let Some(group) = found else { return Ok(None) };
        let catalog = self.catalog.read();
        let Some(field) = catalog.catalog.field(group.measurement, slot) else { return Ok(None) };
        let Some(database) = database_name(&catalog.catalog, group.database) else { return Ok(None) };
        let tags = field.labels.iter().fold(group.labels, |labels, (name, value)| labels.with(name, value));
        let labels = tags.with(METRIC_NAME, &field.metric());
        let (table, field) = (field.measurement.into(), field.name.into());
        let series = Arc::new(LogSeries { database, labels, table, tags, field });
        Ok(Some(Cached { series, measurement: group.measurement }))
    }

    fn push_exemplars(&self, entries: &[Entry], wanted: Wanted<'_>, out: &mut LogRecord) {
        let catalog = self.catalog.read();
        let is_wanted =
            |database: DatabaseId| database_name(&catalog.catalog, database).is_some_and(|name| wanted.has(&name));
        for entry in entries {
            match entry {
                Entry::Exemplar { series: (database, labels), exemplar } if is_wanted(*database) => {
                    out.exemplars.push((labels.clone(), exemplar.clone()));
                }
                Entry::Start { series: (database, labels), start_ns } if is_wanted(*database) => {
                    out.starts_ns.push((labels.clone(), *start_ns));
                }
                Entry::Exemplar { .. } | Entry::Start { .. } => {}
            }
        }
    }
}

/// A database's name, unless it was dropped.
fn database_name(catalog: &Catalog, database: DatabaseId) -> Option<Arc<str>> {
    catalog.database_names().nth(database as usize).filter(|name| !name.is_empty()).map(Arc::from)
}

/// The value of a cell; the record was checked when it was decoded.
fn value_of(value_type: ValueType, cell: u64, text: &[u8]) -> Option<LogValue> {
    Some(match value_type {
        ValueType::F64 => LogValue::Float(f64::from_bits(cell)),
        ValueType::I64 => LogValue::Integer(cell as i64),
        ValueType::U64 => LogValue::Unsigned(cell),
        ValueType::Bool => LogValue::Bool(cell != 0),
        ValueType::String => LogValue::Text(std::str::from_utf8(text_of(text, cell)?).ok()?.into()),
        ValueType::Histogram => LogValue::Histogram(Arc::new(histogram::from_bytes(text_of(text, cell)?, None)?)),
    })
}
