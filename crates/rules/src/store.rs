//! What rules query, and what they write: by token, as scrapes are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use db::{Db, InstantQuery, RangeQuery};
use model::histogram::{BucketSpan, Counts, HistogramCounts, HistogramLayout};
use model::{Labels, METRIC_NAME, Matcher, NativeHistogram, STALE_NAN_BITS, TimeRange, ValueType};
use parking_lot::Mutex;
use promql::{EvaluationResult, Histogram};
use query::{Budget, QueryError};
use scrape::target::{Destination, HistogramSeries, NamedSeries, Rows};

use crate::materialize::DroppedInputs;
use crate::template::TextMap;

const NS_PER_MS: i64 = 1_000_000;

/// Samples that the query of a rule may hold.
const QUERY_SAMPLES_MAX: u64 = 50_000_000;

/// Bytes of a value in a map by series and time, its share of nodes and labels included.
pub(crate) const VALUE_BYTES: u64 = 160;

/// Tokens that are remembered; then all are looked up again.
const TOKENS_MAX: usize = 500_000;

/// A database, and what rules have written to it.
pub struct RuleStore {
    /// Everything.
    pub db: Arc<Db>,
    database: String,
    destination: Destination,
    written: Mutex<HashMap<Labels, Written>>,
    pub(crate) dropped: DroppedInputs,
}

#[derive(Clone)]
enum Written {
    Float(u64),
    Histogram(Arc<HistogramSeries>),
}

/// A value that a rule writes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RuleValue {
    Float(f64),
    Histogram(Arc<Histogram>),
    /// The series has no more values.
    Stale,
}

/// A sample that a rule writes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleSample {
    pub(crate) labels: Labels,
    pub(crate) time_ms: i64,
    pub(crate) value: RuleValue,
}

/// A value that is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StoredValue {
    Float(f64),
    Histogram(NativeHistogram),
    /// The series has no more values.
    Stale,
}

impl RuleStore {
    /// A database that rules query and write to.
    pub fn new(db: Arc<Db>, database: &str) -> Self {
        let destination = Destination::new(db.clone(), database);
        let dropped = DroppedInputs::load(&db, database);
        Self { db, database: database.to_owned(), destination, written: Mutex::default(), dropped }
    }

    /// Evaluates an expression; for a rule whose results are kept right by the log, of what is stored.
    pub(crate) fn query(&self, text: &str, time_ms: i64, is_kept: bool) -> Result<EvaluationResult, String> {
        let budget = self.db.budget(QUERY_SAMPLES_MAX);
        if is_kept {
            budget.read_names_as_stored();
        }
        let query = InstantQuery { budget, ..InstantQuery::new(text, time_ms) };
        self.db.instant(&self.database, &query).map_err(|error| error.to_string())
    }

    /// Evaluates an expression at one moment of the past, of samples that were not folded.
    pub(crate) fn past_instant(
        &self,
        text: &str,
        time_ms: i64,
        budget: &Arc<Budget>,
    ) -> Result<EvaluationResult, QueryError> {
        let query = InstantQuery { budget: budget.clone(), may_cache: false, ..InstantQuery::new(text, time_ms) };
        self.db.instant(&self.database, &query)
    }

    /// As [`RuleStore::past_instant`], at moments from the first to the last by a step.
    pub(crate) fn past_range(
        &self,
        text: &str,
        (start_ms, end_ms, step_ms): (i64, i64, i64),
        budget: &Arc<Budget>,
    ) -> Result<EvaluationResult, QueryError> {
        let query = RangeQuery {
            text: text.to_owned(),
            start_ms,
            end_ms,
            step_ms,
            lookback_ms: None,
            name_removal: None,
            may_cache: false,
            budget: budget.clone(),
        };
        self.db.range(&self.database, &query)
    }

    /// The times of what is stored of a metric; empty if nothing is.
    pub(crate) fn extent(&self, name: &str) -> Result<TimeRange, QueryError> {
        self.db.table_extent(&self.database, name, &self.past_budget())
    }

    /// The time of the newest row of a metric; `i64::MIN` if nothing is stored.
    pub(crate) fn newest_ns(&self, name: &str) -> Result<i64, QueryError> {
        self.db.table_newest_ns(&self.database, name, &self.past_budget())
    }

    /// The times of what is stored of the series of a metric that satisfy all matchers; empty if nothing is.
    pub(crate) fn series_extent(&self, metric: &str, matchers: &[Matcher]) -> Result<TimeRange, QueryError> {
        self.db.series_extent((&self.database, metric), matchers, &self.past_budget())
    }

    /// A budget of queries of the past.
    pub(crate) fn past_budget(&self) -> Arc<Budget> {
        let budget = self.db.budget(QUERY_SAMPLES_MAX);
        budget.be_strict();
        budget.read_names_as_stored();
        budget
    }

    /// Stored values of the series that satisfy all matchers, by series and time, from the first to the last millisecond.
    pub(crate) fn stored(
        &self,
        matchers: &[Matcher],
        range_ms: (i64, i64),
        budget: &Budget,
    ) -> Result<BTreeMap<Labels, BTreeMap<i64, StoredValue>>, QueryError> {
        let found = self.db.samples(&self.database, matchers, range_ms, budget)?;
        let count = found.iter().map(|series| series.values.len() + series.histograms.len()).sum::<usize>();
        budget.hold_bytes(count as u64 * VALUE_BYTES)?;
        let mut stored: BTreeMap<Labels, BTreeMap<i64, StoredValue>> = BTreeMap::new();
        for series in found {
            let floats = series.timestamps_ms.iter().zip(&series.values).map(|(time_ms, value)| {
                let is_stale = model::is_stale_bits(*value);
                (*time_ms, if is_stale { StoredValue::Stale } else { StoredValue::Float(*value) })
            });
            let histograms = series.histograms.into_iter().map(|(time_ms, histogram)| {
                let is_stale = model::is_stale_bits(histogram.sum);
                (time_ms, if is_stale { StoredValue::Stale } else { StoredValue::Histogram(histogram) })
            });
            stored.entry(series.labels).or_default().extend(floats.chain(histograms));
        }
        Ok(stored)
    }

    /// The series that satisfy all matchers and have a value shortly before a time, which counts still.
    pub(crate) fn current_series(&self, matchers: &[Matcher], time_ms: i64) -> Result<Vec<Labels>, String> {
        let budget = self.past_budget();
        let range_ms = (time_ms.saturating_sub(self.db.lookback_ms()), time_ms.saturating_sub(1));
        let stored = self.stored(matchers, range_ms, &budget).map_err(|error| error.to_string())?;
        let has_value = |values: &BTreeMap<i64, StoredValue>| {
            values.last_key_value().is_some_and(|(_, value)| *value != StoredValue::Stale)
        };
        Ok(stored.into_iter().filter(|(_, values)| has_value(values)).map(|(labels, _)| labels).collect())
    }

    /// Deletes the stored values of the series that satisfy all matchers.
    pub(crate) fn delete(&self, matchers: &[Matcher], range: &TimeRange) -> Result<(), String> {
        let deleted = self.db.delete(&self.database, &[matchers.to_vec()], range);
        deleted.map(drop).map_err(|error| error.to_string())
    }

    /// The time before which rows may be gone, by the retention of the database or by the TTL of one of some tables; `None` if none are.
    pub(crate) fn gone_before_ns(&self, is_read: &dyn Fn(&str) -> bool) -> Option<i64> {
        self.db.gone_before_ns(&self.database, is_read)
    }

    /// The names of the metrics that are in a table, or were.
    pub(crate) fn metrics_of_table(&self, table: &str) -> BTreeSet<String> {
        self.db_fields(table).iter().map(|field| model::metric_name(table, field)).collect()
    }

    /// The names of the fields that a table has or had.
    pub(crate) fn db_fields(&self, table: &str) -> Vec<String> {
        self.db.known_fields(&self.database, table)
    }

    /// Returns whether a table has or had text in a field: of it PromQL reads sketches alone.
    pub(crate) fn has_text(&self, table: &str, field: &str) -> bool {
        self.db.known_field_types(&self.database, table, field).contains(&ValueType::String)
    }

    /// Returns whether fields of a table have labels of their own, by which its rows cannot be told apart.
    pub(crate) fn has_labelled_fields(&self, table: &str) -> bool {
        self.db.has_labelled_fields(&self.database, table)
    }

    /// The tables some of whose series went by their age, with the time before which they did.
    pub(crate) fn trimmed_tables(&self) -> Vec<(String, i64)> {
        self.db.trimmed_tables(&self.database)
    }

    /// Deletes the samples before a time of series of tables, by one delete.
    pub(crate) fn trim_tables(&self, tables: &[(&str, &[Vec<Matcher>])], before_ns: i64) -> Result<(), String> {
        self.db.trim_tables(&self.database, tables, before_ns).map(drop).map_err(|error| error.to_string())
    }

    /// Why no rows of a table can go, if views are the reason.
    pub(crate) fn view_hold_on(&self, table: &str) -> Option<String> {
        self.db.view_hold_on(&self.database, table)
    }

    /// Returns whether a view reads a table.
    pub(crate) fn is_read_by_views(&self, table: &str) -> bool {
        self.db.views(&self.database).iter().any(|view| view.definition.source() == table)
    }

    /// The time up to one before which views need no rows of a table.
    pub(crate) fn unread_by_views_before_ns(&self, table: &str, before_ns: i64) -> i64 {
        self.db.unread_by_views_before_ns(&self.database, table, before_ns)
    }

    /// The time before which samples are gone of metrics whose input an entry drops, or dropped, as far as they are asked about; `None` if none are.
    pub(crate) fn dropped_before_ns(&self, is_asked: &dyn Fn(&str) -> bool) -> Option<i64> {
        self.dropped.gone_before_ns(&self.db, is_asked)
    }

    /// Writes samples. They can be queried at once, and are on disk after [`RuleStore::sync`].
    pub(crate) fn write(&self, samples: &[RuleSample]) -> Result<(), String> {
        // Groups that went in the meantime are registered again, once.
        for _ in 0..2 {
            let mut rows = Rows::default();
            for (sample, written) in samples.iter().zip(self.register(samples)?) {
                push(sample, written, &mut rows)?;
            }
            let stale = self.destination.append(&rows)?;
            if stale.is_empty() {
                break;
            }
            let is_stale = |written: &Written| match written {
                Written::Float(token) => stale.contains(token),
                Written::Histogram(series) => stale.contains(&series.token()),
            };
            self.written.lock().retain(|_, written| !is_stale(written));
        }
        Ok(())
    }

    /// Returns when what was written is on disk.
    pub fn sync(&self) -> Result<(), String> {
        self.destination.sync()
    }

    /// Where each sample is written; series that have no token yet, or none of the sample's type, are registered.
    fn register(&self, samples: &[RuleSample]) -> Result<Vec<Option<Written>>, String> {
        let mut known = self.written.lock();
        if known.len() > TOKENS_MAX {
            known.clear();
        }
        let (mut floats, mut histograms) = (Vec::new(), Vec::new());
        let mut written = Vec::with_capacity(samples.len());
        for (at, sample) in samples.iter().enumerate() {
            let found = known.get(&sample.labels);
            match (&sample.value, found) {
                (RuleValue::Float(_), Some(Written::Float(_)))
                | (RuleValue::Histogram(_), Some(Written::Histogram(_)))
                | (RuleValue::Stale, Some(_)) => {}
                (RuleValue::Histogram(_), _) => histograms.push((at, &sample.labels)),
                _ => floats.push((at, &sample.labels)),
            }
            written.push(found.cloned());
        }
        let new_floats = self.destination.register(&named(&floats))?;
        let new_histograms = if histograms.is_empty() {
            Vec::new()
        } else {
            self.destination.register_histograms(&named(&histograms))?
        };
        let new_floats = floats.into_iter().zip(new_floats.into_iter().map(Written::Float));
        let new = new_floats.chain(histograms.into_iter().zip(new_histograms.into_iter().map(Written::Histogram)));
        for ((at, labels), new) in new {
            known.insert(labels.clone(), new.clone());
            if let Some(written) = written.get_mut(at) {
                *written = Some(new);
            }
        }
        Ok(written)
    }
}

fn named<'a>(series: &[(usize, &'a Labels)]) -> Vec<NamedSeries<'a>> {
    let named = |(_, labels): &(usize, &'a Labels)| {
        (labels.get(METRIC_NAME).unwrap_or_default(), labels.retain(|name| name != METRIC_NAME))
    };
    series.iter().map(named).collect()
}

fn push(sample: &RuleSample, written: Option<Written>, rows: &mut Rows) -> Result<(), String> {
    let time_ns = sample.time_ms.saturating_mul(NS_PER_MS);
    match (&sample.value, written) {
        (RuleValue::Float(value), Some(Written::Float(token))) => rows.push(token, time_ns, value.to_bits()),
        (RuleValue::Stale, Some(Written::Float(token))) => rows.push(token, time_ns, STALE_NAN_BITS),
        (RuleValue::Histogram(value), Some(Written::Histogram(series))) => {
            let value = stored_form(value);
            value.validate().map_err(|error| error.to_string())?;
            rows.push_histogram(series, time_ns, value);
        }
        (RuleValue::Stale, Some(Written::Histogram(series))) => {
            rows.push_histogram(series, time_ns, stale_histogram());
        }
        _ => {}
    }
    Ok(())
}

fn stale_histogram() -> NativeHistogram {
    NativeHistogram {
        layout: Arc::default(),
        counter_reset: model::histogram::CounterReset::Unknown,
        sum: f64::from_bits(STALE_NAN_BITS),
        counts: HistogramCounts::Float(Counts::default()),
    }
}

/// A computed histogram as it is stored.
pub(crate) fn stored_form(histogram: &Histogram) -> NativeHistogram {
    let (schema, zero_threshold, zero_count, bounds) = histogram.layout();
    let [positive, negative] = histogram.indexed_buckets();
    let counts = |buckets: &[(i32, f64)]| buckets.iter().map(|(_, count)| *count).collect();
    NativeHistogram {
        counts: HistogramCounts::Float(Counts {
            count: histogram.count(),
            zero_count,
            positive: counts(positive),
            negative: counts(negative),
        }),
        layout: Arc::new(HistogramLayout {
            schema,
            zero_threshold,
            positive_spans: spans(positive),
            negative_spans: spans(negative),
            custom_bounds: bounds.to_vec(),
        }),
        // Values that rules compute are compared by their readers.
        counter_reset: histogram.counter_reset(),
        sum: histogram.sum(),
    }
}

fn spans(buckets: &[(i32, f64)]) -> Vec<BucketSpan> {
    let mut spans: Vec<BucketSpan> = Vec::new();
    let mut next = 0;
    for (index, _) in buckets {
        match spans.last_mut() {
            Some(span) if *index == next => span.length += 1,
            _ => spans.push(BucketSpan { offset: index.saturating_sub(next), length: 1 }),
        }
        next = index.saturating_add(1);
    }
    spans
}

impl RuleStore {
    /// The last value of each series that satisfies all matchers, with its time; series that ended have none.
    pub(crate) fn last_values(&self, matchers: &[Matcher], range_ms: (i64, i64)) -> BTreeMap<TextMap, (i64, f64)> {
        let found = self.db.samples(&self.database, matchers, range_ms, &self.db.budget(QUERY_SAMPLES_MAX));
        let mut last = BTreeMap::new();
        for series in found.unwrap_or_default() {
            let labels: TextMap =
                series.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let samples = series.timestamps_ms.iter().zip(&series.values).rev();
            let mut present = samples.filter(|(_, value)| !model::is_stale_bits(**value));
            if let Some((time_ms, value)) = present.next() {
                last.insert(labels, (*time_ms, *value));
            }
        }
        last
    }
}
