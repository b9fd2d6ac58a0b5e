//! From a response to rows: known lines go straight to their tokens, new ones are parsed, relabelled and registered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use db::{Appender, Db, TenantMemory};
use ingest::exposition;
use ingest::exposition::metric_families::{self, Families, FoundHistogram, NativeHistograms};
use ingest::{Parsed, Protocol, ScopedKeyHasher};
use model::{Field, HISTOGRAM_FIELD, METRIC_NAME, MetricMetadata, NativeHistogram, ValueType};
use parking_lot::Mutex;

use super::cache::{HistogramSeries, LineCache, NotedLine, Series};
use super::companions::Found;
use super::custom_buckets::{Converted, convert};
use super::identity::HistogramSettings;
use super::negotiation::Format;
use crate::config::ScrapeConfig;
use relabel::{Labels, NameScheme, is_label_name, is_metric_name, relabel};

/// The time of samples that bring none, before it is filled in: no line has it.
pub(super) const NO_TIME: i64 = i64::MIN;

/// How far ahead of the clock a sample may be.
const AHEAD_NS_MAX: i64 = 600_000_000_000;

/// Where samples are stored.
pub struct Destination {
    pub(crate) db: Arc<Db>,
    pub(crate) database: String,
    /// What the bodies of all scrapes take.
    pub(crate) body_memory: Arc<TenantMemory>,
    /// The last append, which may not be on disk yet.
    unsynced: Mutex<Option<db::Appended>>,
    /// How many loops scrape targets of these labels.
    running: Mutex<HashMap<Labels, usize>>,
}

impl Destination {
    /// A database that scrapes are written to.
    pub fn new(db: Arc<Db>, database: &str) -> Self {
        let body_memory = db.request_memory().tenant();
        Self { db, database: database.to_owned(), body_memory, unsynced: Mutex::default(), running: Mutex::default() }
    }

    /// Notes that a loop begins to scrape a target of these labels.
    pub(crate) fn begin(&self, labels: &Labels) {
        *self.running.lock().entry(labels.clone()).or_default() += 1;
    }

    /// Notes that one ends.
    pub(crate) fn end(&self, labels: &Labels) {
        let mut running = self.running.lock();
        if let Some(count) = running.get_mut(labels) {
            *count -= 1;
            if *count == 0 {
                running.remove(labels);
            }
        }
    }

    /// Returns whether any loop scrapes a target of these labels.
    pub(super) fn is_running(&self, labels: &Labels) -> bool {
        self.running.lock().contains_key(labels)
    }

    /// Writes rows; the tokens of series that are not there any more.
    pub fn append(&self, rows: &Rows) -> Result<Vec<u64>, String> {
        let mut appender = self.db.appender();
        let failed = |error: db::StoreError| format!("cannot store samples: {error}");
        appender.push_samples(&rows.tokens, &rows.times_ns, &rows.values).map_err(failed)?;
        for HistogramRow { series, time_ns, value } in &rows.histograms {
            let mut text = Vec::new();
            let cell = Appender::histogram_cell(value, &mut text);
            appender.push_rows(&series.layout, &[series.token], &[*time_ns], &[cell], &text).map_err(failed)?;
        }
        let written = appender.append(None).map_err(failed)?;
        let stale = written.stale.iter().map(|token| token.to_bits()).collect();
        *self.unsynced.lock() = Some(written);
        Ok(stale)
    }

    /// Returns when what was appended is on disk.
    pub fn sync(&self) -> Result<(), String> {
        let appended = self.unsynced.lock().take();
        appended.map_or(Ok(()), |appended| self.db.commit(&appended)).map_err(|error| error.to_string())
    }

    /// Registers series; their tokens, in the same order.
    pub fn register(&self, series: &[NamedSeries<'_>]) -> Result<Vec<u64>, String> {
        if series.is_empty() {
            return Ok(Vec::new());
        }
        let tokens = self.db.register_series(&self.database, series);
        let tokens = tokens.map_err(|error| format!("cannot register series: {error}"))?;
        Ok(tokens.into_iter().map(db::Token::to_bits).collect())
    }

    /// Registers series of native histograms; where they are written, in the same order.
    pub fn register_histograms(&self, series: &[NamedSeries<'_>]) -> Result<Vec<Arc<HistogramSeries>>, String> {
        let field = Field { name: HISTOGRAM_FIELD.to_owned(), value_type: ValueType::Histogram };
        let members = [(field, model::Labels::empty())];
        let register = |(metric, labels): &NamedSeries<'_>| {
            let registered = self.db.register_groups(&self.database, metric, std::slice::from_ref(labels), &members);
            let (tokens, layout) = registered.map_err(|error| format!("cannot register series: {error}"))?;
            let token = tokens.first().ok_or("cannot register series: no token")?.to_bits();
            Ok(Arc::new(HistogramSeries { token, layout }))
        };
        series.iter().map(register).collect()
    }

    /// Stores what metrics are about.
    pub(super) fn describe(&self, metadata: &[MetricMetadata]) {
        let mut batch = model::Batch::new(&[], exposition::decode_key);
        metadata.clone_into(&mut batch.metadata);
        // Descriptions that cannot be stored now are when they change; why is told where samples fail.
        let _ = self.db.write(&self.database, &batch);
    }
}

/// A series by its metric's name and its other labels.
pub type NamedSeries<'a> = (&'a str, model::Labels);

/// Takes the metric's name out of a series' labels.
pub(super) fn named(labels: &Labels) -> NamedSeries<'_> {
    let metric = labels.get(METRIC_NAME).map(String::as_str).unwrap_or_default();
    let others = labels.iter().filter(|(name, value)| *name != METRIC_NAME && !value.is_empty());
    (metric, model::Labels::from_sorted(others.map(|(name, value)| (name.as_str(), value.as_str()))))
}

/// A series as the text spells it, everything in quotes.
pub(super) fn spell(labels: &Labels) -> Vec<u8> {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    let metric = quoted(labels.get(METRIC_NAME).map(String::as_str).unwrap_or_default());
    let others = labels.iter().filter(|(name, value)| *name != METRIC_NAME && !value.is_empty());
    let others = others.map(|(name, value)| format!(",{}={}", quoted(name), quoted(value)));
    format!("{{{metric}{}}}", others.collect::<Vec<_>>().concat()).into_bytes()
}

/// A native histogram and where it is written.
struct HistogramRow {
    series: Arc<HistogramSeries>,
    time_ns: i64,
    value: NativeHistogram,
}

/// Samples by token.
#[derive(Default)]
pub struct Rows {
    pub(super) tokens: Vec<u64>,
    pub(super) times_ns: Vec<i64>,
    pub(super) values: Vec<u64>,
    histograms: Vec<HistogramRow>,
}

impl Rows {
    /// Adds a float.
    pub fn push(&mut self, token: u64, time_ns: i64, value_bits: u64) {
        self.tokens.push(token);
        self.times_ns.push(time_ns);
        self.values.push(value_bits);
    }

    /// Adds a native histogram, which must be valid.
    pub fn push_histogram(&mut self, series: Arc<HistogramSeries>, time_ns: i64, value: NativeHistogram) {
        self.histograms.push(HistogramRow { series, time_ns, value });
    }
}

/// What a scrape counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    /// Samples of the response.
    pub(super) scraped: u64,
    /// Those that relabelling kept.
    pub(super) after_relabelling: u64,
    /// Those of series that the scrape before did not have.
    pub(super) series_added: u64,
}

/// A response to be read.
pub(super) struct Body<'a> {
    pub(super) content: &'a [u8],
    pub(super) format: Format,
    pub(super) time_ns: i64,
}

/// What samples are read for.
pub(super) struct Reader<'a> {
    pub(super) job: &'a ScrapeConfig,
    /// The labels of the target.
    pub(super) labels: &'a Labels,
    pub(super) histograms: HistogramSettings,
    pub(super) destination: &'a Destination,
    pub(super) cache: &'a mut LineCache,
    pub(super) counts: Counts,
}

/// The lines of a response, but for those that something else is stored for.
struct Lines<'a> {
    parsed: &'a Parsed<'a>,
    replaced: HashSet<u128>,
}

/// A line that was not in the scrape before.
struct NewLine {
    hash: u128,
    labels: Option<Labels>,
    is_tracked: bool,
}

/// HELP, TYPE and UNIT of a response.
enum Comments {
    /// They are those of the scrape before.
    Known,
    /// They have this hash.
    New(u64),
}

/// A native histogram, what is known of its series, and its labels if nothing is.
struct NewHistogram {
    hash: u128,
    known: Option<Series>,
    labels: Option<Labels>,
    found: FoundHistogram,
}

impl Reader<'_> {
    /// Reads a response into rows; also what its metrics are about, `None` if that is what it was. After an error nothing may be written.
    pub(super) fn read(&mut self, body: &Body<'_>, rows: &mut Rows) -> Result<Option<Vec<MetricMetadata>>, String> {
        let families = match body.format {
            Format::Protobuf => {
                metric_families::read(body.content, self.native()).map_err(|error| error.to_string())?
            }
            Format::Text | Format::OpenMetrics => Families::default(),
        };
        let content = match body.format {
            Format::Protobuf => families.text.as_bytes(),
            Format::Text | Format::OpenMetrics => body.content,
        };
        if body.format == Format::OpenMetrics && !content.trim_ascii_end().ends_with(b"# EOF") {
            return Err("the response does not end with # EOF".to_owned());
        }
        let to = self.destination;
        let database = to.db.database_id(&to.database).map_err(|error| error.to_string())?;
        let hasher = to.db.key_hasher().scope(Protocol::Exposition, database);
        let options = exposition::Options {
            hasher,
            format: match body.format {
                Format::OpenMetrics => exposition::Format::OpenMetrics,
                Format::Text | Format::Protobuf => exposition::Format::Text,
            },
            now_ns: NO_TIME,
            extra_labels: &[],
            limits: to.db.limits(),
        };
        let (mut parsed, comments) = self.parse(content, &options)?;
        let mut found = families.histograms;
        let converted = match self.histograms {
            HistogramSettings { to_custom_buckets: true, .. } => convert(&parsed, &found),
            HistogramSettings { to_custom_buckets: false, .. } => Converted::default(),
        };
        found.extend(converted.histograms);
        let replaced = if self.histograms.always_classic { HashSet::new() } else { converted.lines };
        let histograms = self.look_up_histograms(found, &hasher)?;
        let noted = self.take_rows(&Lines { parsed: &parsed, replaced }, body.time_ns, rows)?;
        let noted_histograms = self.take_histograms(histograms, body.time_ns, rows)?;
        // In the order in which the next scrape looks them up.
        noted_histograms.into_iter().chain(noted).for_each(|line| self.cache.note(line));
        let found = Found { exemplars: families.exemplars, starts: families.starts };
        self.take_companions(&mut parsed, found, body, &hasher);
        let metadata = std::mem::take(&mut parsed.batch.metadata);
        ingest::recycle(parsed.batch);
        Ok(match comments {
            Comments::Known => None,
            Comments::New(hash) => {
                self.cache.note_comments(hash);
                Some(metadata)
            }
        })
    }

    /// Parses a response. Comments are read if they are not those of the scrape before.
    fn parse<'b>(
        &self,
        content: &'b [u8],
        options: &exposition::Options<'_>,
    ) -> Result<(Parsed<'b>, Comments), String> {
        let mut hash = 0;
        let mut parsed = exposition::parse_samples(content, options, &mut hash).map_err(|error| error.to_string())?;
        // Types tell which series are classic histograms.
        let is_known = self.cache.has_comments(hash) && !self.histograms.to_custom_buckets;
        if !is_known {
            ingest::recycle(parsed.batch);
            parsed = exposition::parse(content, options).map_err(|error| error.to_string())?;
        }
        match parsed.errors.first.first() {
            Some(error) => Err(format!("line {}: {}", error.line, error.reason)),
            None => Ok((parsed, if is_known { Comments::Known } else { Comments::New(hash) })),
        }
    }

    fn native(&self) -> NativeHistograms {
        match self.histograms {
            HistogramSettings { native: false, .. } => NativeHistograms::Ignored,
            HistogramSettings { always_classic: true, .. } => NativeHistograms::BesideClassic,
            HistogramSettings { always_classic: false, .. } => NativeHistograms::InPlaceOfClassic,
        }
    }

    /// Takes floats; the lines that they are of.
    fn take_rows(&mut self, lines: &Lines<'_>, scrape_ns: i64, rows: &mut Rows) -> Result<Vec<NotedLine>, String> {
        let parsed = lines.parsed;
        let latest_ns = scrape_ns.saturating_add(AHEAD_NS_MAX);
        let mut new_lines: Vec<NewLine> = Vec::new();
        let mut new_by_hash: HashMap<u128, usize> = HashMap::new();
        let mut noted = Vec::with_capacity(self.cache.len());
        // Rows of new lines: their places among the rows, and their lines.
        let mut waiting = Vec::new();
        let block_rows = parsed.batch.blocks.iter().flat_map(|block| {
            block.keys.iter().zip(&block.timestamps_ns).zip(&block.cells).map(|((key, time), cell)| (key, *time, *cell))
        });
        for (key, time_ns, cell) in block_rows.filter(|(key, ..)| !lines.replaced.contains(&key.hash)) {
            self.counts.scraped += 1;
            let has_time = self.job.honor_timestamps && time_ns != NO_TIME;
            let is_tracked = !has_time || self.job.track_timestamps_staleness;
            let time_ns = if has_time { time_ns } else { scrape_ns };
            if let Some(series) = self.cache.get(key.hash) {
                noted.push(NotedLine { hash: key.hash, series, is_tracked });
                if let Series::Stored(token) = series {
                    self.counts.after_relabelling += 1;
                    if time_ns <= latest_ns {
                        rows.push(token, time_ns, cell);
                    }
                }
                continue;
            }
            let line = match new_by_hash.get(&key.hash) {
                Some(line) => *line,
                None => {
                    let labels = self.labels_of_line(parsed.batch.text(key.text), new_lines.len())?;
                    self.counts.series_added += u64::from(labels.is_some());
                    new_by_hash.insert(key.hash, new_lines.len());
                    new_lines.push(NewLine { hash: key.hash, labels, is_tracked });
                    new_lines.len() - 1
                }
            };
            if new_lines.get(line).is_some_and(|line| line.labels.is_some()) {
                self.counts.after_relabelling += 1;
                if time_ns <= latest_ns {
                    waiting.push((rows.tokens.len(), line));
                    rows.push(0, time_ns, cell);
                }
            }
        }
        let limit = self.job.settings.limits.samples_max;
        if limit > 0 && self.counts.after_relabelling > limit {
            return Err(format!("sample_limit exceeded: {} samples, at most {limit}", self.counts.after_relabelling));
        }
        let stored = self.register(&mut new_lines)?;
        for (row, line) in waiting {
            if let (Some(token), Some(Some(stored))) = (rows.tokens.get_mut(row), stored.get(line)) {
                *token = *stored;
            }
        }
        noted.extend(new_lines.iter().zip(stored).map(|(line, stored)| NotedLine {
            hash: line.hash,
            series: stored.map_or(Series::Dropped, Series::Stored),
            is_tracked: line.is_tracked,
        }));
        Ok(noted)
    }

    /// Looks up where native histograms are written, or makes their labels.
    fn look_up_histograms(
        &mut self,
        found: Vec<FoundHistogram>,
        hasher: &ScopedKeyHasher<'_>,
    ) -> Result<Vec<NewHistogram>, String> {
        let buckets_max = self.job.settings.limits.buckets_max;
        let mut histograms = Vec::new();
        for found in found {
            self.counts.scraped += 1;
            let buckets = found.value.layout.positive_buckets() + found.value.layout.negative_buckets();
            if buckets_max > 0 && buckets as u64 > buckets_max {
                return Err(format!("native_histogram_bucket_limit exceeded: {} has {buckets} buckets", found.key));
            }
            // No text has a line with this hash: a histogram and a float of one spelling are apart.
            let hash = hasher.hash(found.key.as_bytes()) ^ 1;
            let known = self.cache.get(hash);
            let labels = match known {
                Some(_) => None,
                None => self.labels_of_line(found.key.as_bytes(), histograms.len())?,
            };
            self.counts.series_added += u64::from(labels.is_some());
            let is_kept = labels.is_some() || matches!(known, Some(Series::Stored(_)));
            self.counts.after_relabelling += u64::from(is_kept);
            histograms.push(NewHistogram { hash, known, labels, found });
        }
        Ok(histograms)
    }

    fn take_histograms(
        &mut self,
        histograms: Vec<NewHistogram>,
        scrape_ns: i64,
        rows: &mut Rows,
    ) -> Result<Vec<NotedLine>, String> {
        let mut noted = Vec::with_capacity(histograms.len());
        for NewHistogram { hash, known, labels, found } in histograms {
            let time_ns = found.time_ms.filter(|_| self.job.honor_timestamps).map(|ms| ms.saturating_mul(1_000_000));
            let is_tracked = time_ns.is_none() || self.job.track_timestamps_staleness;
            let (series, written_to) = match (known, labels) {
                (Some(series), _) => (series, self.cache.histogram(hash)),
                (None, Some(labels)) => {
                    let all = [named(&labels)];
                    // A float ends the series when it is missing.
                    let token = self.destination.register(&all)?.into_iter().next().unwrap_or_default();
                    let written_to = self.destination.register_histograms(&all)?.into_iter().next();
                    written_to.iter().for_each(|series| self.cache.note_histogram(hash, series.clone()));
                    (Series::Stored(token), written_to)
                }
                (None, None) => (Series::Dropped, None),
            };
            noted.push(NotedLine { hash, series, is_tracked });
            if let Some(series) = written_to {
                rows.push_histogram(series, time_ns.unwrap_or(scrape_ns), found.value);
            }
        }
        Ok(noted)
    }

    /// The tokens of new lines; `None` for those that were dropped.
    fn register(&self, lines: &mut [NewLine]) -> Result<Vec<Option<u64>>, String> {
        let is_kept: Vec<bool> = lines.iter().map(|line| line.labels.is_some()).collect();
        let labels: Vec<Labels> = lines.iter_mut().filter_map(|line| line.labels.take()).collect();
        let series: Vec<NamedSeries<'_>> = labels.iter().map(named).collect();
        let mut tokens = self.destination.register(&series)?.into_iter();
        Ok(is_kept.into_iter().map(|is_kept| if is_kept { tokens.next() } else { None }).collect())
    }

    /// The labels of a line's series, if relabelling and limits keep it.
    pub(super) fn labels_of_line(&self, key: &[u8], new_lines: usize) -> Result<Option<Labels>, String> {
        let series_max = self.job.agent.series_max;
        if series_max > 0 && (self.cache.len() + new_lines) as u64 >= series_max {
            return Ok(None);
        }
        let identity = exposition::decode_key(key)?;
        let mut labels: Labels =
            identity.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        labels.insert(METRIC_NAME.to_owned(), identity.measurement);
        add_target_labels(&mut labels, self.labels, self.job.honor_labels);
        if !relabel(&mut labels, &self.job.metric_relabel) || labels.is_empty() {
            return Ok(None);
        }
        self.check(&labels)?;
        Ok(Some(labels))
    }

    fn check(&self, labels: &Labels) -> Result<(), String> {
        let names: NameScheme = self.job.settings.names;
        let metric = labels.get(METRIC_NAME).map(String::as_str).unwrap_or_default();
        if metric.is_empty() {
            return Err("relabelling left a series without a name".to_owned());
        }
        if !is_metric_name(metric, names) {
            return Err(format!("{metric:?} is no name of a metric"));
        }
        if let Some(name) = labels.keys().find(|name| !is_label_name(name, names)) {
            return Err(format!("{metric}: {name:?} is no name of a label"));
        }
        let limits = &self.job.settings.limits;
        if limits.labels_max > 0 && labels.len() as u64 > limits.labels_max {
            return Err(format!(
                "label_limit exceeded: {metric} has {} labels, at most {}",
                labels.len(),
                limits.labels_max
            ));
        }
        let over = |length: usize, limit: u64| limit > 0 && length as u64 > limit;
        for (name, value) in labels {
            if over(name.len(), limits.label_name_bytes_max) {
                return Err(format!("label_name_length_limit exceeded: {metric} has the label {name:?}"));
            }
            if over(value.len(), limits.label_value_bytes_max) {
                return Err(format!("label_value_length_limit exceeded: {metric}, label {name:?}"));
            }
        }
        Ok(())
    }
}

/// Adds the labels of a target to those of a sample. Where both have one, the target's wins, and the sample's is kept under another name;
/// with `honor_labels` the sample's wins.
fn add_target_labels(labels: &mut Labels, target: &Labels, honor_labels: bool) {
    let mut displaced = Vec::new();
    for (name, value) in target {
        match labels.get(name) {
            Some(own) if honor_labels && !own.is_empty() => {}
            Some(own) if !honor_labels => {
                displaced.push((name.clone(), own.clone()));
                labels.insert(name.clone(), value.clone());
            }
            _ => drop(labels.insert(name.clone(), value.clone())),
        }
    }
    for (name, value) in displaced {
        let mut renamed = format!("exported_{name}");
        while labels.contains_key(&renamed) {
            renamed.insert_str(0, "exported_");
        }
        labels.insert(renamed, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_targets_win_unless_samples_are_honored() {
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let target = labels(&[("instance", "a:1"), ("job", "j")]);
        let sample = labels(&[("__name__", "m"), ("job", "own"), ("exported_job", "older")]);
        let mut changed = sample.clone();
        add_target_labels(&mut changed, &target, false);
        let expected = labels(&[
            ("__name__", "m"),
            ("exported_exported_job", "own"),
            ("exported_job", "older"),
            ("instance", "a:1"),
            ("job", "j"),
        ]);
        assert_eq!(changed, expected);
        let mut changed = sample;
        add_target_labels(&mut changed, &target, true);
        assert_eq!((changed["job"].as_str(), changed["instance"].as_str()), ("own", "a:1"));
    }
}
