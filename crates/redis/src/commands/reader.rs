//! Reading the samples of keys as the options of a command say.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::arguments::Arguments;
use super::database::State;
use super::error::NO_KEY;
use super::writer::bucket_value;
use super::{CommandError, Work};
use crate::aggregate::{Aggregator, BucketTime, Buckets, Row, Sample};
use crate::series::filter::Filter;
use crate::series::rows::{Rows, TIME_MS_MAX};
use crate::series::settings::Rule;

/// The first and the last time of a command, milliseconds.
pub(super) fn time_range(arguments: &mut Arguments<'_>) -> Result<(i64, i64), CommandError> {
    let mut time = |all: &[u8], all_ms: i64, error: &'static str| {
        let bytes = arguments.next().ok_or(CommandError::Syntax)?;
        if bytes == all {
            return Ok(all_ms);
        }
        let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok());
        number.filter(|number| *number >= 0).map(|number| number.min(TIME_MS_MAX)).ok_or(CommandError::series(error))
    };
    let from_ms = time(b"-", 0, "TSDB: wrong fromTimestamp")?;
    Ok((from_ms, time(b"+", TIME_MS_MAX, "TSDB: wrong toTimestamp")?))
}

/// Where buckets begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    Time(i64),
    From,
    To,
}

/// What a command reads of each key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RangeOptions {
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
    pub(super) is_reversed: bool,
    pub(super) with_latest: bool,
    pub(super) times_ms: Option<Vec<i64>>,
    pub(super) values: Option<(f64, f64)>,
    pub(super) count: Option<usize>,
    pub(super) buckets: Option<Buckets>,
}

impl RangeOptions {
    /// All samples between two times, both included.
    pub(super) const fn between(from_ms: i64, to_ms: i64) -> Self {
        Self {
            from_ms,
            to_ms,
            is_reversed: false,
            with_latest: false,
            times_ms: None,
            values: None,
            count: None,
            buckets: None,
        }
    }
}

/// Which keys a command reads, and how they are shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct KeyOptions {
    pub(super) filters: Vec<Filter>,
    pub(super) labels: ShownLabels,
    pub(super) group_by: Option<(String, Aggregator)>,
    pub(super) leaves_out_empty: bool,
}

/// Labels that are shown with a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum ShownLabels {
    #[default]
    None,
    All,
    These(Vec<String>),
}

/// Words that end a list of labels or filters.
const WORDS: [&str; 13] = [
    "LATEST",
    "FILTER_BY_TS",
    "FILTER_BY_VALUE",
    "COUNT",
    "ALIGN",
    "AGGREGATION",
    "BUCKETTIMESTAMP",
    "EMPTY",
    "WITHLABELS",
    "SELECTED_LABELS",
    "FILTER",
    "GROUPBY",
    "EXCLUDEEMPTY",
];

fn is_word(bytes: &[u8]) -> bool {
    WORDS.iter().any(|word| bytes.eq_ignore_ascii_case(word.as_bytes()))
}

/// Reads options in any order; those that choose keys only where a command has such.
pub(super) struct OptionsParser {
    pub(super) range: RangeOptions,
    pub(super) keys: Option<KeyOptions>,
    /// The aggregators of each of several named keys.
    pub(super) aggregators: Vec<Vec<Aggregator>>,
    /// How many lists of aggregators there are; `None`: one for all keys.
    lists: Option<usize>,
    has_all_before: bool,
    has_all_after: bool,
    align: Option<Align>,
}

impl OptionsParser {
    pub(super) fn new(
        arguments: &mut Arguments<'_>,
        is_reversed: bool,
        chooses_keys: bool,
    ) -> Result<Self, CommandError> {
        Self::read(arguments, is_reversed, chooses_keys.then(KeyOptions::default), None)
    }

    /// Options of so many named keys, each of which has its own aggregators.
    pub(super) fn of_keys_side_by_side(
        arguments: &mut Arguments<'_>,
        is_reversed: bool,
        count: usize,
    ) -> Result<Self, CommandError> {
        Self::read(arguments, is_reversed, None, Some(count))
    }

    fn read(
        arguments: &mut Arguments<'_>,
        is_reversed: bool,
        keys: Option<KeyOptions>,
        lists: Option<usize>,
    ) -> Result<Self, CommandError> {
        let has_all_before = arguments.peek() == Some(b"-");
        let (from_ms, to_ms) = time_range(arguments)?;
        let range = RangeOptions { is_reversed, ..RangeOptions::between(from_ms, to_ms) };
        let (has_all_after, aggregators) = (to_ms == TIME_MS_MAX, Vec::new());
        let mut parser = Self { range, keys, aggregators, lists, has_all_before, has_all_after, align: None };
        while arguments.len() > 0 {
            parser.one(arguments)?;
        }
        parser.finish()
    }

    fn one(&mut self, arguments: &mut Arguments<'_>) -> Result<(), CommandError> {
        let range = &mut self.range;
        if arguments.take("LATEST") {
            range.with_latest = true;
        } else if arguments.take("FILTER_BY_TS") {
            range.times_ms = Some(times(arguments)?);
        } else if arguments.take("FILTER_BY_VALUE") {
            const ERROR: &str = "TSDB: Couldn't parse FILTER_BY_VALUE";
            range.values = Some((arguments.number(ERROR)?, arguments.number(ERROR)?));
        } else if arguments.take("COUNT") {
            let count: i64 = arguments.number("TSDB: Couldn't parse COUNT")?;
            range.count = Some(usize::try_from(count).map_err(|_| CommandError::series("TSDB: Invalid COUNT value"))?);
        } else if arguments.take("ALIGN") {
            self.align = Some(align(arguments)?);
        } else if arguments.take("AGGREGATION") {
            let lists = (0..self.lists.unwrap_or(1)).map(|_| aggregators(arguments.text()?));
            let lists = lists.collect::<Result<Vec<_>, _>>()?;
            range.buckets = Some(aggregation(arguments, lists.first().cloned().unwrap_or_default())?);
            self.aggregators = lists;
        } else {
            return self.of_keys(arguments);
        }
        Ok(())
    }

    fn of_keys(&mut self, arguments: &mut Arguments<'_>) -> Result<(), CommandError> {
        let Some(keys) = &mut self.keys else {
            let word = arguments.text()?;
            return Err(CommandError::other(format!("TSDB: unknown argument {word:?}")));
        };
        keys.parse_one(arguments)
    }

    fn finish(mut self) -> Result<Self, CommandError> {
        if let Some(buckets) = &mut self.range.buckets {
            buckets.align_ms = match self.align {
                None => 0,
                Some(Align::Time(time_ms)) => time_ms,
                Some(Align::From) if self.has_all_before => {
                    return Err(CommandError::series(
                        "TSDB: start alignment can only be used with explicit start timestamp",
                    ));
                }
                Some(Align::From) => self.range.from_ms,
                Some(Align::To) if self.has_all_after => {
                    return Err(CommandError::series(
                        "TSDB: end alignment can only be used with explicit end timestamp",
                    ));
                }
                Some(Align::To) => self.range.to_ms,
            };
        } else if self.align.is_some() {
            return Err(CommandError::series("TSDB: ALIGN parameter can only be used with AGGREGATION"));
        }
        let several = self.range.buckets.as_ref().is_some_and(|buckets| buckets.aggregators.len() > 1);
        if let Some(keys) = &self.keys {
            keys.check()?;
            if several && keys.group_by.is_some() {
                return Err(CommandError::series("TSDB: GROUPBY is not possible with several aggregators"));
            }
        }
        Ok(self)
    }
}

impl KeyOptions {
    /// Reads one of the options that choose keys.
    pub(super) fn parse_one(&mut self, arguments: &mut Arguments<'_>) -> Result<(), CommandError> {
        if arguments.take("WITHLABELS") {
            if self.labels != ShownLabels::None {
                return Err(CommandError::series("TSDB: cannot accept WITHLABELS and SELECTED_LABELS together"));
            }
            self.labels = ShownLabels::All;
        } else if arguments.take("SELECTED_LABELS") {
            if self.labels != ShownLabels::None {
                return Err(CommandError::series("TSDB: cannot accept WITHLABELS and SELECTED_LABELS together"));
            }
            let names = until_word(arguments)?;
            if names.is_empty() {
                return Err(CommandError::series("TSDB: SELECTED_LABELS should have at least 1 parameter"));
            }
            self.labels = ShownLabels::These(names);
        } else if arguments.take("FILTER") {
            self.filters = filters(&until_word(arguments)?)?;
        } else if arguments.take("GROUPBY") {
            let label = arguments.text()?.to_owned();
            if !arguments.take("REDUCE") {
                return Err(CommandError::Syntax);
            }
            let reducer = Aggregator::from_name(arguments.text()?).filter(|reducer| reducer.is_reducer());
            let reducer = reducer.ok_or(CommandError::series("TSDB: failed parsing reducer"))?;
            self.group_by = Some((label, reducer));
        } else if arguments.take("EXCLUDEEMPTY") {
            self.leaves_out_empty = true;
        } else {
            let word = arguments.text()?;
            return Err(CommandError::other(format!("TSDB: unknown argument {word:?}")));
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), CommandError> {
        if self.filters.is_empty() {
            return Err(CommandError::series("TSDB: missing FILTER argument"));
        }
        if self.leaves_out_empty && self.group_by.is_some() {
            return Err(CommandError::series("TSDB: EXCLUDEEMPTY is not allowed with GROUPBY"));
        }
        Ok(())
    }
}

/// Filters of a command: each is held against every key that the narrowest one chooses.
const FILTERS_MAX: usize = 1_000;

/// Filters of which one chooses by values.
pub(super) fn filters(texts: &[String]) -> Result<Vec<Filter>, CommandError> {
    if texts.len() > FILTERS_MAX {
        return Err(CommandError::other(format!("TSDB: a command has at most {FILTERS_MAX} filters")));
    }
    let filters: Option<Vec<Filter>> = texts.iter().map(|text| Filter::parse(text)).collect();
    let filters = filters.ok_or(CommandError::series("TSDB: failed parsing labels"))?;
    if !filters.iter().any(Filter::is_positive) {
        return Err(CommandError::series("TSDB: please provide at least one matcher"));
    }
    Ok(filters)
}

fn until_word(arguments: &mut Arguments<'_>) -> Result<Vec<String>, CommandError> {
    let mut texts = Vec::new();
    while arguments.peek().is_some_and(|next| !is_word(next)) {
        texts.push(arguments.text()?.to_owned());
    }
    Ok(texts)
}

fn times(arguments: &mut Arguments<'_>) -> Result<Vec<i64>, CommandError> {
    let mut times = Vec::new();
    while arguments.peek().is_some_and(|next| !is_word(next)) {
        times.push(arguments.number("TSDB: Couldn't parse FILTER_BY_TS")?);
    }
    if times.is_empty() {
        return Err(CommandError::series("TSDB: FILTER_BY_TS one or more arguments are missing"));
    }
    times.sort_unstable();
    Ok(times)
}

fn align(arguments: &mut Arguments<'_>) -> Result<Align, CommandError> {
    if arguments.take("-") || arguments.take("start") {
        return Ok(Align::From);
    }
    if arguments.take("+") || arguments.take("end") {
        return Ok(Align::To);
    }
    let time_ms: i64 = arguments.number("TSDB: unknown ALIGN parameter")?;
    if time_ms < 0 { Err(CommandError::series("TSDB: unknown ALIGN parameter")) } else { Ok(Align::Time(time_ms)) }
}

/// Aggregators of a bucket, and its width.
pub(super) fn aggregators(text: &str) -> Result<Vec<Aggregator>, CommandError> {
    let aggregators: Option<Vec<Aggregator>> = text.split(',').map(Aggregator::from_name).collect();
    aggregators.ok_or(CommandError::series("TSDB: Unknown aggregation type"))
}

pub(super) fn bucket_width(arguments: &mut Arguments<'_>) -> Result<i64, CommandError> {
    let width_ms: i64 = arguments.number("TSDB: Couldn't parse bucketDuration")?;
    if width_ms <= 0 {
        return Err(CommandError::series("TSDB: bucketDuration must be greater than zero"));
    }
    Ok(width_ms)
}

fn aggregation(arguments: &mut Arguments<'_>, aggregators: Vec<Aggregator>) -> Result<Buckets, CommandError> {
    let width_ms = bucket_width(arguments)?;
    let mut buckets = Buckets { aggregators, width_ms, align_ms: 0, time: BucketTime::Start, with_empty: false };
    loop {
        if arguments.take("EMPTY") {
            buckets.with_empty = true;
        } else if arguments.take("BUCKETTIMESTAMP") {
            buckets.time = match arguments.text()?.to_ascii_lowercase().as_str() {
                "-" | "start" | "low" => BucketTime::Start,
                "~" | "mid" => BucketTime::Middle,
                "+" | "end" | "high" => BucketTime::End,
                _ => return Err(CommandError::series("TSDB: unknown BUCKETTIMESTAMP parameter")),
            };
        } else {
            return Ok(buckets);
        }
    }
}

/// A key as it is when a command begins.
pub(super) struct KeyRead {
    pub(super) name: Arc<str>,
    pub(super) labels: BTreeMap<Arc<str>, Arc<str>>,
    /// The oldest time that it keeps.
    oldest_ms: i64,
    /// The bucket that is not over yet: the source, its rule, and where the bucket begins.
    open: Option<(Arc<str>, Rule, i64)>,
}

impl KeyRead {
    pub(super) fn new(rows: &Rows<'_>, state: &mut State, name: &str, with_latest: bool) -> Result<Self, CommandError> {
        let shared = state.find(rows, name)?;
        let settings = state.catalog.get(name).ok_or(NO_KEY)?.settings.clone();
        let oldest_ms = match settings.retention_ms {
            0 => i64::MIN,
            _ => state.newest(rows, name)?.map_or(i64::MIN, |(last_ms, _)| settings.oldest_ms(last_ms)),
        };
        let source = settings.source.as_ref().filter(|_| with_latest);
        let rule = source.and_then(|source| {
            let rules = &state.catalog.get(source)?.settings.rules;
            Some((source.clone(), rules.iter().find(|rule| rule.to == shared)?.clone()))
        });
        let open = match rule {
            None => None,
            Some((source, rule)) => state.newest(rows, &source)?.map(|(last_ms, _)| {
                let start_ms = rule.buckets().start_of(last_ms);
                (source, rule, start_ms)
            }),
        };
        let open = open.filter(|(_, rule, start_ms)| *start_ms >= rule.from_ms.unwrap_or(i64::MIN));
        Ok(Self { name: shared, labels: settings.labels, oldest_ms, open })
    }

    /// The value of the bucket that is not over yet.
    fn open_sample(&self, rows: &Rows<'_>) -> Result<Option<Sample>, CommandError> {
        let Some((source, rule, start_ms)) = &self.open else { return Ok(None) };
        bucket_value(rows, source, rule, *start_ms)
    }

    /// The newest sample, or that of the bucket that is not over yet.
    pub(super) fn newest(&self, rows: &Rows<'_>, last: Option<Sample>) -> Result<Option<Sample>, CommandError> {
        Ok(self.open_sample(rows)?.or(last))
    }

    /// The rows of the key; of a few of them little more is read.
    pub(super) fn rows(&self, work: &Work<'_>, options: &RangeOptions) -> Result<Vec<Row>, CommandError> {
        let whole = (options.from_ms.max(self.oldest_ms), options.to_ms);
        if whole.0 > whole.1 {
            return Ok(Vec::new());
        }
        let count = options.count.unwrap_or(usize::MAX);
        let budget = work.rows.budget;
        // Means that are weighted by time look further than at the next bucket.
        let has_far = |buckets: &Buckets| buckets.aggregators.contains(&Aggregator::Twa);
        let is_cut = count < FEW_ROWS_MAX && self.open.is_none() && !options.buckets.as_ref().is_some_and(has_far);
        let mut wanted = if is_cut { count.max(1) } else { usize::MAX };
        loop {
            let before = budget.samples();
            let range = match wanted {
                usize::MAX => whole,
                wanted => work.rows.end_range(&self.name, whole, wanted, options.is_reversed)?,
            };
            let mut rows = self.rows_between(work, options, range)?;
            if options.is_reversed {
                rows.reverse();
            }
            // The last bucket may have more samples.
            if range != whole && options.buckets.is_some() {
                rows.pop();
            }
            if range == whole || rows.len() >= count {
                rows.truncate(count);
                return Ok(rows);
            }
            drop(rows);
            budget.give_back(usize::try_from(budget.samples().saturating_sub(before)).unwrap_or(usize::MAX));
            wanted = wanted.saturating_mul(MORE_ROWS);
        }
    }

    /// The rows between two times in order of time, however many.
    fn rows_between(
        &self,
        work: &Work<'_>,
        options: &RangeOptions,
        (from_ms, to_ms): (i64, i64),
    ) -> Result<Vec<Row>, CommandError> {
        let mut samples = work.rows.samples(&self.name, from_ms, to_ms)?;
        if let Some(open) = self.open_sample(work.rows)?.filter(|(time_ms, _)| (from_ms..=to_ms).contains(time_ms)) {
            samples.retain(|(time_ms, _)| *time_ms < open.0);
            samples.push(open);
        }
        if let Some(times_ms) = &options.times_ms {
            samples.retain(|(time_ms, _)| times_ms.binary_search(time_ms).is_ok());
        }
        if let Some((min, max)) = options.values {
            samples.retain(|(_, value)| (min..=max).contains(value));
        }
        rows_of(work, samples, options)
    }
}

/// Of so many rows all samples are read at once.
const FEW_ROWS_MAX: usize = 1 << 20;

/// How many times as many samples are read if those that were read make too few rows.
const MORE_ROWS: usize = 16;

/// Bytes that a row takes, with its text in a reply, and those of each of its values beyond the first.
pub(super) const ROW_BYTES: u64 = 96;
pub(super) const VALUE_BYTES: u64 = 40;

fn row_bytes(options: &RangeOptions) -> u64 {
    let values = options.buckets.as_ref().map_or(1, |buckets| buckets.aggregators.len()) as u64;
    ROW_BYTES + values.saturating_sub(1).saturating_mul(VALUE_BYTES)
}

/// Bytes of a label in a reply beside its name and its value.
const LABEL_BYTES: u64 = 32;

impl ShownLabels {
    /// Bytes that the labels of a key take in a reply.
    pub(super) fn reply_bytes(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> u64 {
        let bytes = |name: &str, value: Option<&Arc<str>>| {
            LABEL_BYTES + name.len() as u64 + value.map_or(0, |value| value.len()) as u64
        };
        match self {
            Self::None => 0,
            Self::All => labels.iter().map(|(name, value)| bytes(name, Some(value))).sum(),
            Self::These(names) => names.iter().map(|name| bytes(name, labels.get(name.as_str()))).sum(),
        }
    }
}

fn rows_of(work: &Work<'_>, samples: Vec<Sample>, options: &RangeOptions) -> Result<Vec<Row>, CommandError> {
    let budget = work.rows.budget;
    let row_bytes = row_bytes(options);
    let Some(buckets) = &options.buckets else {
        budget.hold_bytes((samples.len() as u64).saturating_mul(row_bytes))?;
        return Ok(samples.into_iter().map(|(time_ms, value)| Row { time_ms, values: vec![value] }).collect());
    };
    let (first, last) = (samples.first(), samples.last());
    let between = first.zip(last).map_or(0, |((first_ms, _), (last_ms, _))| buckets.rows_between(*first_ms, *last_ms));
    let most = if buckets.with_empty { between } else { between.min(samples.len() as u64) };
    budget.hold_bytes(most.saturating_mul(row_bytes))?;
    Ok(buckets.rows(&samples))
}
