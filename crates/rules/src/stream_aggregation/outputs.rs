//! Outputs as PromQL. VictoriaMetrics's documentation says what each is of the samples of a window; where it names a query, this is that one.

use std::collections::BTreeSet;

use model::METRIC_NAME;
use scrape::config::units::duration_text;

use super::matching::label;

/// An output that PromQL gives, as it is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AggregationOutput {
    Average,
    CountSamples,
    CountSeries,
    HistogramBucket,
    Increase,
    IncreasePrometheus,
    Last,
    Maximum,
    Minimum,
    /// Of these, as PromQL writes them in a list.
    Quantiles(String),
    RateAverage,
    RateSum,
    StandardDeviation,
    Variance,
    SumSamples,
    SumSamplesTotal,
    Total,
    TotalPrometheus,
    UniqueSamples,
}

/// Outputs by their names, but for quantiles, which have arguments.
const OUTPUTS: [(&str, AggregationOutput); 18] = [
    ("avg", AggregationOutput::Average),
    ("count_samples", AggregationOutput::CountSamples),
    ("count_series", AggregationOutput::CountSeries),
    ("histogram_bucket", AggregationOutput::HistogramBucket),
    ("increase", AggregationOutput::Increase),
    ("increase_prometheus", AggregationOutput::IncreasePrometheus),
    ("last", AggregationOutput::Last),
    ("max", AggregationOutput::Maximum),
    ("min", AggregationOutput::Minimum),
    ("rate_avg", AggregationOutput::RateAverage),
    ("rate_sum", AggregationOutput::RateSum),
    ("stddev", AggregationOutput::StandardDeviation),
    ("stdvar", AggregationOutput::Variance),
    ("sum_samples", AggregationOutput::SumSamples),
    ("sum_samples_total", AggregationOutput::SumSamplesTotal),
    ("total", AggregationOutput::Total),
    ("total_prometheus", AggregationOutput::TotalPrometheus),
    ("unique_samples", AggregationOutput::UniqueSamples),
];

const QUANTILES: &str = "quantiles";

/// How series become those of the results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AggregationGrouping {
    /// Each by itself.
    Each,
    By(BTreeSet<String>),
    Without(BTreeSet<String>),
}

impl AggregationGrouping {
    /// An aggregation over series; what is of each series by itself needs none.
    fn aggregate(&self, operation: &str, inner: &str) -> String {
        match self {
            Self::Each => inner.to_owned(),
            _ => self.aggregate_all(operation, None, inner),
        }
    }

    /// An aggregation that there is for each series by itself, too: over samples, or over relabelled series.
    fn aggregate_all(&self, operation: &str, relabelling: Option<&str>, inner: &str) -> String {
        let labels = match self {
            Self::Each => "without ()".to_owned(),
            Self::By(labels) if labels.is_empty() && relabelling.is_none() => return format!("{operation}({inner})"),
            Self::By(labels) => format!("by ({})", list(labels)),
            Self::Without(labels) => format!("without ({})", list(labels)),
        };
        let relabelling = relabelling.map(|relabelling| format!("{relabelling} ")).unwrap_or_default();
        format!("{operation} {labels} {relabelling}({inner})")
    }

    /// Returns whether results have a label by which series are grouped.
    pub(super) fn names(&self, label: &str) -> bool {
        matches!(self, Self::By(labels) if labels.contains(label))
    }

    /// Returns whether results have lost a label. The name of the metric stays.
    pub(super) fn lacks(&self, label: &str) -> bool {
        match self {
            Self::Each => false,
            Self::By(labels) => label != METRIC_NAME && !labels.contains(label),
            Self::Without(labels) => labels.contains(label),
        }
    }

    /// It of series that another one has left.
    pub(super) fn after(&self, left: &Self) -> Self {
        match (self, left) {
            (_, Self::Each) => self.clone(),
            (Self::Each, _) => left.clone(),
            (Self::By(labels), _) => Self::By(labels.iter().filter(|label| !left.lacks(label)).cloned().collect()),
            (Self::Without(labels), Self::By(left)) => Self::By(left.difference(labels).cloned().collect()),
            (Self::Without(labels), Self::Without(more)) => Self::Without(labels.union(more).cloned().collect()),
        }
    }

    /// How a series finds the result of its group.
    fn matching(&self) -> String {
        match self {
            Self::Each => String::new(),
            Self::By(labels) => format!("on ({}) group_left () ", list(labels)),
            Self::Without(labels) => format!("ignoring ({}) group_left () ", list(labels)),
        }
    }
}

fn list(labels: &BTreeSet<String>) -> String {
    labels.iter().map(|name| label(name)).collect::<Vec<_>>().join(", ")
}

/// The samples that outputs are made of.
#[derive(Debug)]
pub(super) struct AggregationSource<'a> {
    /// Of one metric.
    pub(super) selectors: &'a [String],
    /// The length of a window, as PromQL writes it.
    pub(super) interval: String,
    /// Of so long a time only the last sample of each series counts.
    pub(super) dedup: Option<String>,
    /// Counters go on from a sample that is no older when the window begins.
    pub(super) lookback: String,
    pub(super) grouping: &'a AggregationGrouping,
    /// The labels that samples keep before that.
    pub(super) left: &'a AggregationGrouping,
    /// Steps that relabel series before they are grouped, as PromQL writes them; they take the labels away that are not left, too.
    pub(super) relabelling: Option<String>,
}

impl AggregationSource<'_> {
    /// An aggregation over series, relabelled if they are to be; without that what is of each series by itself needs none.
    fn aggregate(&self, operation: &str, inner: &str) -> String {
        match &self.relabelling {
            Some(relabelling) => self.grouping.aggregate_all(operation, Some(relabelling), inner),
            None => self.grouping.aggregate(operation, inner),
        }
    }

    /// Returns whether each series is a group, with its own labels.
    fn is_of_each(&self) -> bool {
        self.relabelling.is_none() && *self.grouping == AggregationGrouping::Each
    }

    /// A text for each selector, as one expression: a series that several select counts once.
    fn joined(&self, text: impl Fn(&str) -> String) -> String {
        let texts: Vec<String> = self.selectors.iter().map(|selector| text(selector)).collect();
        if texts.len() == 1 { texts.concat() } else { format!("({})", texts.join(" or ")) }
    }

    /// The last sample of each series of each time that is so long, as a range of the window.
    fn deduplicated(&self, dedup: &str) -> String {
        // Of one metric: without its name each series is still itself, and the aggregation is of one.
        let last = self.joined(|selector| format!("last_over_time({selector}[{dedup}])"));
        let last = if self.selectors.len() == 1 { format!("({last})") } else { last };
        format!("max without () {last}[{}:{dedup}]", self.interval)
    }

    /// A function over the samples of the window, of each series.
    fn of_each(&self, function: &str) -> String {
        match &self.dedup {
            Some(dedup) => format!("{function}({})", self.deduplicated(dedup)),
            None => self.of_all(function),
        }
    }

    /// An aggregation over the samples of the window, of all series of a group together.
    fn of_samples(&self, operation: &str, arguments: &str) -> String {
        let ranges = self.dedup.as_ref().map_or_else(|| self.ranges(), |dedup| self.deduplicated(dedup));
        let relabelling = self.relabelling.as_deref();
        self.grouping.aggregate_all(operation, relabelling, &format!("{arguments}{ranges}"))
    }

    /// All samples of the window.
    fn ranges(&self) -> String {
        let ranges: Vec<String> =
            self.selectors.iter().map(|selector| format!("{selector}[{}]", self.interval)).collect();
        ranges.join(", ")
    }

    /// A function over all samples of the window, also of those that are not the last of their time.
    fn of_all(&self, function: &str) -> String {
        self.joined(|selector| format!("{function}({selector}[{}])", self.interval))
    }

    /// A function over the samples before the window from which counters go on.
    fn before(&self, function: &str) -> String {
        self.joined(|selector| format!("{function}({selector}[{}] offset {})", self.lookback, self.interval))
    }

    /// The increase of each counter since the sample before the window, or since its first one.
    fn increase(&self) -> String {
        self.joined(|selector| format!("increase({selector}[{}] anchored)", self.interval))
    }
}

impl AggregationOutput {
    /// An output by its name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(arguments) = text.strip_prefix(QUANTILES).and_then(|rest| rest.strip_prefix('(')) {
            return quantiles(text, arguments).map(Self::Quantiles);
        }
        let found = OUTPUTS.iter().find(|(name, _)| *name == text);
        found.map(|(_, output)| output.clone()).ok_or_else(|| why_not(text))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Quantiles(_) => QUANTILES,
            _ => OUTPUTS.iter().find(|(_, output)| output == self).map_or("", |(name, _)| name),
        }
    }

    /// The label by which its results of a group differ.
    pub(super) const fn label(&self) -> Option<&'static str> {
        match self {
            Self::Quantiles(_) => Some("quantile"),
            Self::HistogramBucket => Some("vmrange"),
            _ => None,
        }
    }

    /// The output whose results it adds up, if it is a running total.
    pub(super) const fn summand(&self) -> Option<Self> {
        match self {
            Self::SumSamplesTotal => Some(Self::SumSamples),
            Self::Total => Some(Self::Increase),
            Self::TotalPrometheus => Some(Self::IncreasePrometheus),
            _ => None,
        }
    }

    /// Returns whether it is of counters, which go on from a sample before the window.
    pub(super) const fn is_of_counters(&self) -> bool {
        matches!(
            self,
            Self::Increase
                | Self::IncreasePrometheus
                | Self::RateAverage
                | Self::RateSum
                | Self::Total
                | Self::TotalPrometheus
        )
    }

    /// The expression whose result at the end of a window is the output; of running totals that is [`running_total`].
    pub(super) fn expression(&self, source: &AggregationSource<'_>) -> String {
        let aggregate = |operation: &str, inner: &str| source.aggregate(operation, inner);
        match self {
            Self::Average => average(source),
            Self::CountSamples => aggregate("sum", &source.of_each("count_over_time")),
            Self::CountSeries => count_series(source),
            Self::HistogramBucket => source.of_samples("histogram_of_samples", ""),
            Self::Increase | Self::Total => {
                let increase = source.increase();
                let (first, before) = (source.of_all("first_over_time"), source.before("last_over_time"));
                // The first sample of a new series is an increase from zero.
                aggregate("sum", &format!("{increase} + ({first} unless {before}) or {increase}"))
            }
            Self::IncreasePrometheus | Self::TotalPrometheus => aggregate("sum", &source.increase()),
            Self::Last => last(source),
            Self::Maximum => aggregate("max", &source.of_each("max_over_time")),
            Self::Minimum => aggregate("min", &source.of_each("min_over_time")),
            Self::Quantiles(quantiles) => {
                source.of_samples("quantiles_of_samples", &format!("\"quantile\", {quantiles}, "))
            }
            Self::RateAverage => aggregate("avg", &rate(source)),
            Self::RateSum => aggregate("sum", &rate(source)),
            Self::StandardDeviation if source.is_of_each() => source.of_each("stddev_over_time"),
            Self::StandardDeviation => format!("sqrt({})", variance(source)),
            Self::Variance if source.is_of_each() => source.of_each("stdvar_over_time"),
            Self::Variance => variance(source),
            Self::SumSamples | Self::SumSamplesTotal => aggregate("sum", &source.of_each("sum_over_time")),
            Self::UniqueSamples => source.of_samples("distinct_of_samples", ""),
        }
    }
}

fn average(source: &AggregationSource<'_>) -> String {
    let (sum, count) = (source.of_each("sum_over_time"), source.of_each("count_over_time"));
    format!("{} / {}", source.aggregate("sum", &sum), source.aggregate("sum", &count))
}

/// Series that differ in labels alone that samples lose are one.
fn count_series(source: &AggregationSource<'_>) -> String {
    let present = source.of_each("present_over_time");
    if let Some(relabelling) = &source.relabelling {
        let distinct = AggregationGrouping::Each.aggregate_all("group", Some(relabelling), &present);
        return source.grouping.aggregate("count", &distinct);
    }
    if *source.left == AggregationGrouping::Each {
        return source.grouping.aggregate("count", &present);
    }
    let distinct = source.left.aggregate("group", &present);
    source.grouping.aggregate("count", &distinct)
}

/// The newest sample of a group; of several at one time the largest.
fn last(source: &AggregationSource<'_>) -> String {
    if let Some(relabelling) = &source.relabelling {
        // A series does not find its group by labels that it does not have. The last sample is that of dedup_interval, too.
        return source.grouping.aggregate_all("last_of_samples", Some(relabelling), &source.ranges());
    }
    let last = source.of_all("last_over_time");
    if source.is_of_each() {
        return last;
    }
    let times = source.of_all("ts_of_last_over_time");
    let newest = source.grouping.aggregate("max", &times);
    let matching = source.grouping.matching();
    source.grouping.aggregate("max", &format!("{last} and {times} == {matching}{newest}"))
}

/// The increase of each counter by the seconds from the sample that it goes on from to its last one.
fn rate(source: &AggregationSource<'_>) -> String {
    let last = source.of_all("ts_of_last_over_time");
    let (before, first) = (source.before("ts_of_last_over_time"), source.of_all("ts_of_first_over_time"));
    // Times are of milliseconds; as seconds since 1970 they have errors, which a difference must not have.
    format!("{} / (round({last} - ({before} or {first}), 0.001) > 0)", source.increase())
}

/// The variance of all samples of a group: that within each series, and that of their means.
fn variance(source: &AggregationSource<'_>) -> String {
    if source.relabelling.is_some() {
        return source.of_samples("stdvar_of_samples", "");
    }
    let of_each = |function| source.of_each(function);
    let (count, mean, within) = (of_each("count_over_time"), of_each("avg_over_time"), of_each("stdvar_over_time"));
    let matching = source.grouping.matching();
    let squares = format!("{count} * ({within} + ({mean} - {matching}({})) ^ 2)", average(source));
    format!("{} / {}", source.grouping.aggregate("sum", &squares), source.grouping.aggregate("sum", &count))
}

/// The arguments of `quantiles(`, up to its end, as PromQL writes them.
fn quantiles(text: &str, arguments: &str) -> Result<String, String> {
    let bad = |why: &str| format!("the output {text:?}: {why}, such as quantiles(0.5, 0.99)");
    let inner = arguments.strip_suffix(')').ok_or_else(|| bad("its ) is missing"))?;
    let mut quantiles: Vec<f64> = Vec::new();
    for argument in inner.split(',') {
        let quantile = argument.trim().parse::<f64>().ok().filter(|quantile| (0.0..=1.0).contains(quantile));
        // No quantile is -0.
        let quantile = quantile.ok_or_else(|| bad("its arguments are numbers from 0 to 1"))?.abs();
        if quantiles.contains(&quantile) {
            return Err(bad(&format!("{quantile} stands twice")));
        }
        quantiles.push(quantile);
    }
    Ok(quantiles.iter().map(f64::to_string).collect::<Vec<_>>().join(", "))
}

/// The period of running totals, in milliseconds: windows end at its end.
pub(super) const fn total_period_ms(interval_ms: u64) -> u64 {
    if interval_ms < 60_000 { 3_600_000 } else { 86_400_000 }
}

/// The running total of results, as an expression.
///
/// A total since some start would change from a late sample's time to now, however long that is. This one begins anew with each day in UTC, of
/// intervals below a minute with each hour, as a counter that is reset: what a sample changes, and what an evaluation reads, has a bound.
pub(super) fn running_total(results: &str, interval_ms: u64) -> String {
    format!("total_of_period({results}[{}])", duration_text(total_period_ms(interval_ms)))
}

/// Why there is no such output, and what to use.
fn why_not(text: &str) -> String {
    match text {
        QUANTILES => format!("the output {text:?} has arguments, such as quantiles(0.5, 0.99)"),
        _ => {
            let names: Vec<&str> = OUTPUTS.iter().map(|(name, _)| *name).collect();
            format!("there is no output {text:?}; there are {}, quantiles(φ, …)", names.join(", "))
        }
    }
}
