//! Outputs as PromQL. VictoriaMetrics's documentation says what each is of the samples of a window; where it names a query, this is that one.

use std::collections::BTreeSet;

use super::matching::label;

/// An output that PromQL gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AggregationOutput {
    Average,
    CountSamples,
    CountSeries,
    Increase,
    IncreasePrometheus,
    Last,
    Maximum,
    Minimum,
    RateAverage,
    RateSum,
    StandardDeviation,
    Variance,
    SumSamples,
}

/// Outputs by their names.
const OUTPUTS: [(&str, AggregationOutput); 13] = [
    ("avg", AggregationOutput::Average),
    ("count_samples", AggregationOutput::CountSamples),
    ("count_series", AggregationOutput::CountSeries),
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
];

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
            Self::By(labels) if labels.is_empty() => format!("{operation}({inner})"),
            Self::By(labels) => format!("{operation} by ({}) ({inner})", list(labels)),
            Self::Without(labels) => format!("{operation} without ({}) ({inner})", list(labels)),
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
    /// Labels that samples lose first.
    pub(super) dropped: &'a BTreeSet<String>,
}

impl AggregationSource<'_> {
    /// A text for each selector, as one expression: a series that several select counts once.
    fn joined(&self, text: impl Fn(&str) -> String) -> String {
        let texts: Vec<String> = self.selectors.iter().map(|selector| text(selector)).collect();
        if texts.len() == 1 { texts.concat() } else { format!("({})", texts.join(" or ")) }
    }

    /// A function over the samples of the window, of each series.
    fn of_each(&self, function: &str) -> String {
        let interval = &self.interval;
        let Some(dedup) = &self.dedup else {
            return self.joined(|selector| format!("{function}({selector}[{interval}])"));
        };
        // Of one metric: without its name each series is still itself, and the aggregation is of one.
        let last = self.joined(|selector| format!("last_over_time({selector}[{dedup}])"));
        let last = if self.selectors.len() == 1 { format!("({last})") } else { last };
        format!("{function}(max without () {last}[{interval}:{dedup}])")
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

    /// Zero for series that had a sample a short while ago: until they are forgotten their increase is nothing.
    fn silent(&self) -> String {
        format!("0 * {}", self.joined(|selector| format!("present_over_time({selector}[{}])", self.lookback)))
    }
}

impl AggregationOutput {
    /// An output by its name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let found = OUTPUTS.iter().find(|(name, _)| *name == text);
        found.map(|(_, output)| *output).ok_or_else(|| why_not(text))
    }

    pub(super) fn name(self) -> &'static str {
        OUTPUTS.iter().find(|(_, output)| *output == self).map_or("", |(name, _)| name)
    }

    /// Returns whether it is of counters, which go on from a sample before the window.
    pub(super) const fn is_of_counters(self) -> bool {
        matches!(self, Self::Increase | Self::IncreasePrometheus | Self::RateAverage | Self::RateSum)
    }

    /// The expression whose result at the end of a window is the output.
    pub(super) fn expression(self, source: &AggregationSource<'_>) -> String {
        let aggregate = |operation: &str, inner: &str| source.grouping.aggregate(operation, inner);
        match self {
            Self::Average => average(source),
            Self::CountSamples => aggregate("sum", &source.of_each("count_over_time")),
            Self::CountSeries => count_series(source),
            Self::Increase => {
                let (increase, silent) = (source.increase(), source.silent());
                let (first, before) = (source.of_all("first_over_time"), source.before("last_over_time"));
                // The first sample of a new series is an increase from zero.
                aggregate("sum", &format!("{increase} + ({first} unless {before}) or {increase} or {silent}"))
            }
            Self::IncreasePrometheus => aggregate("sum", &format!("{} or {}", source.increase(), source.silent())),
            Self::Last => last(source),
            Self::Maximum => aggregate("max", &source.of_each("max_over_time")),
            Self::Minimum => aggregate("min", &source.of_each("min_over_time")),
            Self::RateAverage => aggregate("avg", &rate(source)),
            Self::RateSum => aggregate("sum", &rate(source)),
            Self::StandardDeviation if *source.grouping == AggregationGrouping::Each => {
                source.of_each("stddev_over_time")
            }
            Self::StandardDeviation => format!("sqrt({})", variance(source)),
            Self::Variance if *source.grouping == AggregationGrouping::Each => source.of_each("stdvar_over_time"),
            Self::Variance => variance(source),
            Self::SumSamples => aggregate("sum", &source.of_each("sum_over_time")),
        }
    }
}

fn average(source: &AggregationSource<'_>) -> String {
    let (sum, count) = (source.of_each("sum_over_time"), source.of_each("count_over_time"));
    format!("{} / {}", source.grouping.aggregate("sum", &sum), source.grouping.aggregate("sum", &count))
}

/// Series that differ in labels alone that samples lose are one.
fn count_series(source: &AggregationSource<'_>) -> String {
    let present = source.of_each("present_over_time");
    if source.dropped.is_empty() {
        return source.grouping.aggregate("count", &present);
    }
    let distinct = AggregationGrouping::Without(source.dropped.clone()).aggregate("group", &present);
    source.grouping.aggregate("count", &distinct)
}

/// The newest sample of a group; of several at one time the largest.
fn last(source: &AggregationSource<'_>) -> String {
    let last = source.of_all("last_over_time");
    if *source.grouping == AggregationGrouping::Each {
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
    let of_each = |function| source.of_each(function);
    let (count, mean, within) = (of_each("count_over_time"), of_each("avg_over_time"), of_each("stdvar_over_time"));
    let matching = source.grouping.matching();
    let squares = format!("{count} * ({within} + ({mean} - {matching}({})) ^ 2)", average(source));
    format!("{} / {}", source.grouping.aggregate("sum", &squares), source.grouping.aggregate("sum", &count))
}

/// Why there is no such output, and what to use.
fn why_not(text: &str) -> String {
    let why = match text {
        "total" | "total_prometheus" | "sum_samples_total" | "count_samples_total" => {
            "is a running total since the aggregator's start: a late sample would change all of its values, a restart begins anew. \
             Use increase, or query the source with increase() or rate()"
        }
        "histogram_bucket" => {
            "goes on counting for as long as samples come: a late sample would change all of its values. Use a materialised view \
             with quantile_sketch() or approx_percentile()"
        }
        "unique_samples" => "is nothing that PromQL counts. Use a materialised view with count(DISTINCT …)",
        _ if text.starts_with("quantiles") => {
            "is an estimate by some of the samples there. Use a materialised view with approx_percentile(), or, of each series by itself, a \
             recording rule of quantile_over_time() that --materialize-rules selects"
        }
        _ => {
            let names: Vec<&str> = OUTPUTS.iter().map(|(name, _)| *name).collect();
            return format!("there is no output {text:?}; there are {}", names.join(", "));
        }
    };
    format!("the output {text:?} {why}")
}
