//! The fields of an entry. What changes nothing here is accepted, what cannot be exact is refused.

use std::collections::BTreeSet;

use model::{METRIC_NAME, MatchOp, Matcher};
use relabel::{Action, NameScheme, Rule};
use scrape::config::read_rules;
use scrape::config::reader::Fields;
use scrape::config::units::duration_text;
use scrape::config::yaml::Value;

use super::duration::duration_ms;
use super::input::{self, AggregationInput};
use super::matching::{self, MetricSelectors};
use super::outputs::{AggregationGrouping, AggregationOutput, AggregationSource, total_period_ms};

/// The shortest interval.
const INTERVAL_MS_MIN: u64 = 1_000;

/// An entry that can be run.
#[derive(Debug)]
pub(super) struct AggregationEntry {
    pub(super) selection: MetricSelectors,
    /// As it stands in names.
    interval: String,
    pub(super) interval_ms: u64,
    dedup_ms: Option<u64>,
    /// The labels of `by` or `without`, as they stand in names.
    named: AggregationGrouping,
    /// What series become, of which some labels are gone.
    grouping: AggregationGrouping,
    dropped: BTreeSet<String>,
    pub(super) input: AggregationInput,
    pub(super) outputs: Vec<AggregationOutput>,
    pub(super) relabel: Vec<Rule>,
    /// True if its samples go once no result is made of them any more.
    pub(super) drops_input: bool,
}

impl AggregationEntry {
    /// Reads an entry; what is wrong with it is told to the reading.
    pub(super) fn read(fields: &Fields<'_>, lookback_ms: u64) -> Option<Self> {
        // A label of vmagent's own metrics.
        fields.text("name");
        let selection = read_selection(fields);
        let interval = fields.required("interval");
        let interval_ms = fields.parsed("interval", |text| match duration_ms(text) {
            Ok(interval_ms) if interval_ms < INTERVAL_MS_MIN => Err(format!("interval: it is 1s at least, not {text}")),
            read => read.map_err(|why| format!("interval: {why}")),
        });
        let dedup_ms = duration(fields, "dedup_interval").filter(|dedup_ms| *dedup_ms > 0);
        let staleness_ms = duration(fields, "staleness_interval");
        let named = read_grouping(fields);
        let dropped = read_dropped_labels(fields);
        let outputs = read_outputs(fields);
        read_flags(fields);
        let drops_input = read_drop_input(fields, &selection);
        let input = AggregationInput::read(fields, &dropped);
        let relabel = read_relabelling(fields);
        let interval_ms = interval_ms?;
        // Where there are steps, these take the labels away.
        let grouping = if input.has_steps() { named.clone() } else { named.after(&input.left) };
        let entry = Self {
            selection,
            interval,
            interval_ms,
            dedup_ms,
            named,
            grouping,
            dropped,
            input,
            outputs,
            relabel,
            drops_input,
        };
        entry.check(fields, staleness_ms, lookback_ms);
        Some(entry)
    }

    /// What the names of its results have between the metric's and the output's.
    pub(super) fn suffix(&self) -> String {
        let joined = |labels: &BTreeSet<String>| labels.iter().cloned().collect::<Vec<_>>().join("_");
        match &self.named {
            AggregationGrouping::By(labels) if !labels.is_empty() => {
                format!(":{}_by_{}", self.interval, joined(labels))
            }
            AggregationGrouping::Without(labels) => format!(":{}_without_{}", self.interval, joined(labels)),
            _ => format!(":{}", self.interval),
        }
    }

    /// The samples of some selectors, of one metric.
    pub(super) fn source<'a>(
        &'a self,
        (metric, selectors): (&str, &'a [String]),
        lookback_ms: u64,
    ) -> AggregationSource<'a> {
        AggregationSource {
            selectors,
            interval: duration_text(self.interval_ms),
            dedup: self.dedup_ms.map(duration_text),
            lookback: duration_text(lookback_ms),
            grouping: &self.grouping,
            left: &self.input.left,
            relabelling: self.input.relabelling(metric),
        }
    }

    /// The fields by which samples lose labels.
    fn label_loss(&self) -> impl Iterator<Item = &'static str> {
        let dropped = AggregationGrouping::Without(self.dropped.clone());
        let by_steps =
            self.input.left != AggregationGrouping::Each && (self.dropped.is_empty() || self.input.left != dropped);
        let by_steps = by_steps || self.input.changes_labels();
        let fields = [("drop_input_labels", !self.dropped.is_empty()), (input::FIELD, by_steps)];
        fields.into_iter().filter(|(_, is_there)| *is_there).map(|(field, _)| field)
    }

    /// Tells what does not go together.
    fn check(&self, fields: &Fields<'_>, staleness_ms: Option<u64>, lookback_ms: u64) {
        let error = |field: &str, message: String| fields.reading.error(fields.position_of(field), message);
        if let Some(dedup_ms) = self.dedup_ms
            && !self.interval_ms.is_multiple_of(dedup_ms)
        {
            error("dedup_interval", format!("interval {} must be a multiple of dedup_interval", self.interval));
        }
        if staleness_ms.is_some_and(|staleness_ms| staleness_ms < self.interval_ms) {
            error("staleness_interval", "staleness_interval: it must not be shorter than interval".to_owned());
        }
        for field in self.label_loss().filter(|_| self.dedup_ms.is_some()) {
            let why = format!(
                "{field} and dedup_interval: samples of several series would be one before they are counted, which no rule does. Leave one of \
                 them out"
            );
            error(field, why);
        }
        for (output, label) in self.outputs.iter().filter_map(|output| Some((output.name(), output.label()?))) {
            let is_set = self.input.sets(label) && !self.grouping.lacks(label);
            if self.grouping.names(label) || is_set {
                let field = if self.named.names(label) { "by" } else { input::FIELD };
                let why = format!(
                    "{field}: the results of the output {output:?} have a label {label:?} of their own. Leave it out"
                );
                error(field, why);
            }
        }
        self.check_totals(fields);
        if let (true, Some(action)) = (self.drops_input, self.input.choice()) {
            let why = format!(
                "drop_input: samples that a step leaves out stay, but which those are that a step of {} with the action {action} leaves out shows \
                 once the labels are computed. Write in match which series are left, or leave drop_input out",
                input::FIELD
            );
            error("drop_input", why);
        }
        if self.outputs.contains(&AggregationOutput::HistogramBucket) {
            let message = "the buckets of histogram_bucket hold the samples of one window each, and do not go on counting as vmagent's do: \
                           where those are read with increase(…[1h]), read these with sum_over_time(…[1h])";
            fields.reading.warn(fields.position_of("outputs"), message);
        }
        // Of a total and what it adds up the total is named, which the file has.
        let is_summand = |output: &AggregationOutput| {
            self.outputs.iter().any(|total| total.summand().is_some_and(|summand| summand == *output))
        };
        for output in self.outputs.iter().filter(|output| output.is_of_counters() && !is_summand(output)) {
            let name = output.name();
            if staleness_ms != Some(lookback_ms) {
                let lookback = duration_text(lookback_ms);
                let why = format!(
                    "the output {name:?} needs staleness_interval: {lookback}, which is how far PromQL looks back for the sample that a \
                     counter goes on from (--lookback-ms)"
                );
                error("outputs", why);
            }
            for field in self.dedup_ms.map(|_| "dedup_interval").into_iter().chain(self.label_loss()) {
                let why = format!(
                    "the output {name:?} is not exact with {field}: leave that out, or write an entry of its own"
                );
                error(field, why);
            }
        }
    }

    /// Tells what does not go together with running totals.
    fn check_totals(&self, fields: &Fields<'_>) {
        let error = |field: &str, message: String| fields.reading.error(fields.position_of(field), message);
        for output in self.outputs.iter().filter(|output| output.summand().is_some()) {
            let name = output.name();
            let period_ms = total_period_ms(self.interval_ms);
            if !period_ms.is_multiple_of(self.interval_ms) {
                let period = duration_text(period_ms);
                let why =
                    format!("the output {name:?} begins anew each {period}: interval must go into that without a rest");
                error("interval", why);
            }
            if !self.relabel.is_empty() {
                let why = format!(
                    "the output {name:?} adds up results that are relabelled already: leave output_relabel_configs out, or write an entry of its \
                     own"
                );
                error("output_relabel_configs", why);
            }
        }
    }
}

fn duration(fields: &Fields<'_>, name: &'static str) -> Option<u64> {
    fields.parsed(name, |text| duration_ms(text).map_err(|why| format!("{name}: {why}")))
}

fn read_selection(fields: &Fields<'_>) -> MetricSelectors {
    let mut selection = MetricSelectors::new();
    let Some(node) = fields.node("match") else {
        let message =
            "match is missing: it names the metrics that are aggregated, such as http_requests_total{job=\"api\"}";
        fields.reading.error(fields.position, message);
        return selection;
    };
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    for item in items {
        fields.reading.parse(item, |text| matching::add(&mut selection, text));
    }
    selection
}

fn read_grouping(fields: &Fields<'_>) -> AggregationGrouping {
    let labels = |name| fields.texts(name).into_iter().collect::<BTreeSet<String>>();
    let (mut by, without) = (labels("by"), labels("without"));
    if !by.is_empty() && !without.is_empty() {
        fields.reading.error(fields.position_of("without"), "by and without: only one of them may be there");
    }
    if without.contains(METRIC_NAME) {
        let message =
            "without: results have the name of their metric, __name__ cannot be left out. Write the other labels";
        fields.reading.error(fields.position_of("without"), message);
    }
    if !without.is_empty() {
        return AggregationGrouping::Without(without);
    }
    if by.is_empty() {
        return AggregationGrouping::Each;
    }
    // A rule is of one metric as it is.
    by.remove(METRIC_NAME);
    AggregationGrouping::By(by)
}

fn read_dropped_labels(fields: &Fields<'_>) -> BTreeSet<String> {
    let dropped: BTreeSet<String> = fields.texts("drop_input_labels").into_iter().collect();
    if dropped.contains(METRIC_NAME) {
        let message = "drop_input_labels: results have the name of their metric, __name__ cannot be left out. Write the other labels";
        fields.reading.error(fields.position_of("drop_input_labels"), message);
    }
    dropped
}

fn read_outputs(fields: &Fields<'_>) -> Vec<AggregationOutput> {
    let mut outputs: Vec<AggregationOutput> = Vec::new();
    let mut count = 0;
    fields.list("outputs", |node| {
        count += 1;
        let output = fields.reading.parse(node, AggregationOutput::parse)?;
        if outputs.iter().any(|other| other.name() == output.name()) {
            fields.reading.error(node.position, format!("the output {:?} stands twice", output.name()));
        } else {
            outputs.push(output);
        }
        Some(())
    });
    if count == 0 {
        fields.reading.error(fields.position, "outputs is missing: it lists what is computed, such as [sum_samples]");
    }
    // Totals are evaluated after what they add up.
    let (totals, mut all): (Vec<_>, Vec<_>) = outputs.into_iter().partition(|output| output.summand().is_some());
    for summand in totals.iter().filter_map(AggregationOutput::summand) {
        if !all.contains(&summand) {
            all.push(summand);
        }
    }
    all.extend(totals);
    all
}

/// Fields that say how a process aggregates that forgets and sees each sample once.
fn read_flags(fields: &Fields<'_>) {
    // Windows are complete whenever the server was started, and samples count by their own times.
    for name in ["flush_on_shutdown", "enable_windows"] {
        fields.flag(name);
    }
    let refuse = |name: &'static str, why: &str| {
        if fields.flag(name) == Some(true) {
            fields.reading.error(fields.position_of(name), format!("{name}: {why}"));
        }
    };
    refuse("no_align_flush_to_interval", "windows begin and end at multiples of interval. Leave it out");
    refuse(
        "keep_metric_names",
        "the source is stored here, too, and its series and the results would have one name. Leave it out: the results have the name of \
         the metric, the interval, the labels and the output",
    );
    if fields.flag("ignore_old_samples") == Some(true) {
        let message = "ignore_old_samples has no effect: late samples count in the window of their own time";
        fields.reading.warn(fields.position_of("ignore_old_samples"), message);
    }
    if fields.number("ignore_first_intervals").is_some_and(|count| count > 0) {
        let message = "ignore_first_intervals has no effect: the first windows after a start are complete";
        fields.reading.warn(fields.position_of("ignore_first_intervals"), message);
    }
    fields.without_effect("ignore_first_sample_interval", "which samples came before a start is known");
}

/// Metrics that alerts are restored from.
const ALERT_METRICS: [&str; 2] = ["ALERTS", crate::restore::FOR_STATE_METRIC];

fn read_drop_input(fields: &Fields<'_>, selection: &MetricSelectors) -> bool {
    let drops_input = fields.flag("drop_input") == Some(true);
    if let Some(metric) = ALERT_METRICS.iter().find(|metric| drops_input && selection.contains_key(**metric)) {
        let message = format!("drop_input: alerts are restored from {metric} after a restart. Leave it out");
        fields.reading.error(fields.position_of("drop_input"), message);
    }
    drops_input
}

/// Steps that change the labels of results. Their names stay: by these it is known which series an entry writes.
fn read_relabelling(fields: &Fields<'_>) -> Vec<Rule> {
    let rules = read_rules(fields, "output_relabel_configs", NameScheme::Utf8);
    for rule in rules.iter().filter(|rule| may_rename(rule)) {
        let action = rule.text().action.name();
        let message = format!(
            "output_relabel_configs: a step with the action {action:?} may change the name of the results, by which they are found again when \
             samples come late. Leave it out; labels may be set, removed and looked at"
        );
        fields.reading.error(fields.position_of("output_relabel_configs"), message);
    }
    rules
}

/// Returns whether a step may change the name of a metric.
pub(super) fn may_rename(rule: &Rule) -> bool {
    let text = rule.text();
    let matches_name = || {
        let regex = text.regex.clone().unwrap_or_else(|| "(.*)".to_owned());
        let matcher = Matcher::new(METRIC_NAME, MatchOp::Regex, regex);
        index::compile(&[matcher]).is_ok_and(|compiled| compiled.iter().all(|matcher| matcher.matches(METRIC_NAME)))
    };
    match text.action {
        Action::Replace | Action::HashMod | Action::Lowercase | Action::Uppercase | Action::ReplaceAll => {
            text.target_label == METRIC_NAME || text.target_label.contains('$')
        }
        Action::LabelDrop => matches_name(),
        Action::LabelKeep => !matches_name(),
        Action::LabelMap | Action::LabelMapAll | Action::Graphite => true,
        _ => false,
    }
}
