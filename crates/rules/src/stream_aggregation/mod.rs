//! VictoriaMetrics's stream aggregation file: each output of each entry becomes a recording rule whose results are kept right.
//!
//! A rule is evaluated at the end of each window, which is a multiple of its entry's interval since the Unix epoch, over the samples after the
//! beginning of the window and up to its end. Samples that come later change the results as they do those of other materialised rules. What
//! PromQL does not give exactly as VictoriaMetrics defines it is refused when the file is read.
//!
//! * this file: from a file to groups of rules · [`entry`]: the fields of an entry · [`matching`]: which metrics and series it is of
//! * [`input`]: steps that relabel samples first: as selectors and groupings, and from the first on that is neither as PromQL's `relabelled`
//! * [`outputs`]: its outputs as PromQL · [`duration`]: durations as VictoriaMetrics writes them

mod duration;
mod entry;
mod input;
mod matching;
mod outputs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platform::Files;
use promql::{Expression, Features};
use relabel::Labels;
use scrape::config::parse_tree;
use scrape::config::reader::{Fields, Problem, Reading};
use scrape::config::yaml::Position;

use crate::file::{DroppedInput, GroupConfig, LoadedRules, RuleConfig, RuleKind, read_text};
use entry::AggregationEntry;

/// A window is computed a tenth of its length after its end, so that most of its samples are there, but so many milliseconds after it at most.
const DELAY_MS_MAX: u64 = 10_000;

/// A stream aggregation file, and what its rules are evaluated with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregationFile {
    /// The file.
    pub path: PathBuf,
    /// How far PromQL looks back, in milliseconds: counters go on from a sample that is no older when a window begins.
    pub lookback_ms: u64,
    /// What expressions may have.
    pub features: Features,
}

impl AggregationFile {
    /// Reads the file; placeholders such as `%{NAME}` are variables of the environment.
    ///
    /// # Errors
    /// Everything that cannot be read or is not exact here, all at once.
    pub fn load(
        &self,
        files: &dyn Files,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<LoadedRules, Vec<Problem>> {
        let text = read_text(files, &self.path).map_err(|problem| vec![problem])?;
        self.parse(&text, variable)
    }

    /// As [`AggregationFile::load`], of the file's text.
    ///
    /// # Errors
    /// Likewise.
    pub fn parse(&self, text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<LoadedRules, Vec<Problem>> {
        let path = &self.path;
        let filled = fill_in(text, variable)
            .map_err(|message| vec![Problem { file: path.clone(), position: Position::default(), message }])?;
        let node = parse_tree(path, &filled).map_err(|problem| vec![problem])?;
        let reading = Reading::new(path);
        let mut groups = Groups::default();
        for item in reading.items(&node) {
            let Some(fields) = reading.fields(item) else { continue };
            let read = AggregationEntry::read(&fields, self.lookback_ms);
            fields.finish();
            if let Some(entry) = read {
                self.add_rules(&fields, &entry, &mut groups);
            }
        }
        let (problems, warnings) = reading.finish();
        if problems.is_empty() {
            Ok(LoadedRules { groups: groups.into_values().collect(), warnings })
        } else {
            Err(problems)
        }
    }

    /// Adds the rules of an entry. Those of one metric, interval and grouping are one group, so that changes of other entries do not disturb it.
    fn add_rules(&self, fields: &Fields<'_>, entry: &AggregationEntry, groups: &mut Groups) {
        let mut is_of_any = entry.selection.is_empty();
        for (metric, selectors) in &entry.selection {
            let Some(selectors) = entry.input.selectors(metric, selectors) else { continue };
            is_of_any = true;
            let prefix = format!("{metric}{}", entry.suffix());
            for output in &entry.outputs {
                let name = format!("{prefix}_{}", output.name());
                let expr = match output.summand() {
                    Some(summand) => {
                        let results = matching::written(&format!("{prefix}_{}", summand.name()), &[]);
                        outputs::running_total(&results, entry.interval_ms)
                    }
                    None => output.expression(&entry.source((metric, &selectors), self.lookback_ms)),
                };
                if let Err(why) = Expression::parse_with(&expr, self.features) {
                    let output = output.name();
                    let message =
                        format!("output {output:?}: it becomes {expr}, which this server does not allow: {why}");
                    fields.reading.error(fields.position_of("outputs"), message);
                }
                let of_prefix = groups.entry(prefix.clone());
                let of_prefix = of_prefix.or_insert_with(|| group(&self.path, &prefix, entry.interval_ms));
                let dropped =
                    entry.drops_input.then(|| DroppedInput { metric: metric.clone(), selectors: selectors.clone() });
                of_prefix.rules.push(recording(name, expr, (&entry.relabel, dropped)));
            }
        }
        if !is_of_any {
            let message = "input_relabel_configs leaves none of the metrics of match: nothing is aggregated";
            fields.reading.warn(fields.position_of("input_relabel_configs"), message);
        }
    }
}

fn recording(
    name: String,
    expr: String,
    (relabel, dropped): (&[relabel::Rule], Option<DroppedInput>),
) -> Arc<RuleConfig> {
    let (kind, labels) = (RuleKind::Record(name), Labels::new());
    Arc::new(RuleConfig { kind, expr, labels, relabel: relabel.to_vec(), is_materialized: true, dropped })
}

/// Groups by their names.
type Groups = BTreeMap<String, GroupConfig>;

/// A group without rules.
fn group(file: &Path, name: &str, interval_ms: u64) -> GroupConfig {
    let delay_ms = (interval_ms / 10).min(DELAY_MS_MAX);
    GroupConfig {
        file: file.to_owned(),
        name: name.to_owned(),
        interval_ms: Some(interval_ms),
        query_offset_ms: Some(delay_ms),
        eval_offset_ms: Some(delay_ms),
        limit: 0,
        rules: Vec::new(),
    }
}

/// Puts variables in the place of `%{NAME}`.
fn fill_in(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut pieces = text.split("%{");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once('}').ok_or("a placeholder %{NAME} has no end")?;
        let value = variable(name).ok_or_else(|| format!("%{{{name}}}: the environment has no variable {name:?}"))?;
        filled.push_str(&value);
        filled.push_str(rest);
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<LoadedRules, String> {
        let file = AggregationFile { path: "s.yml".into(), lookback_ms: 300_000, features: Features::default() };
        let variable = |name: &str| (name == "INTERVAL").then(|| "30s".to_owned());
        file.parse(text, &variable)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    fn rules(text: &str) -> Vec<(String, String)> {
        let loaded = read(text).unwrap();
        let rules = loaded.groups.iter().flat_map(|group| &group.rules);
        rules.map(|rule| (rule.name().to_owned(), rule.expr.clone())).collect()
    }

    fn one(text: &str) -> (String, String) {
        let found = rules(text);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    #[test]
    fn an_output_becomes_a_rule_at_the_end_of_each_window() {
        let loaded = read("- {match: m, interval: 1m, by: [b, a], outputs: [sum_samples]}").unwrap();
        let group = &loaded.groups[0];
        assert_eq!((group.name.as_str(), group.interval_ms), ("m:1m_by_a_b", Some(60_000)));
        assert_eq!((group.eval_offset_ms, group.query_offset_ms), (Some(6_000), Some(6_000)));
        let rule = &group.rules[0];
        assert!(rule.is_materialized);
        assert_eq!(
            (rule.name(), rule.expr.as_str()),
            ("m:1m_by_a_b_sum_samples", "sum by (a, b) (sum_over_time(m[1m]))")
        );
        let loaded = read("- {match: m, interval: 1h, outputs: [max]}").unwrap();
        assert_eq!(loaded.groups[0].query_offset_ms, Some(10_000), "not six minutes");
    }

    #[test]
    fn entries_of_one_metric_interval_and_grouping_are_a_group() {
        let text = "- {match: [m, n], interval: 1m, by: [a], outputs: [min]}\n- {match: m, interval: 1m, by: [a], outputs: [max]}\n\
                    - {match: m, interval: 60s, by: [a], outputs: [max]}\n";
        let groups = read(text).unwrap().groups;
        let shown = groups.iter().map(|group| (group.name.as_str(), group.rules.len()));
        assert_eq!(shown.collect::<Vec<_>>(), [("m:1m_by_a", 2), ("m:60s_by_a", 1), ("n:1m_by_a", 1)]);
    }

    #[test]
    fn selectors_name_metrics() {
        let exprs = |matching: &str| {
            rules(&format!("- {{interval: 1m, outputs: [count_samples], match: {matching}}}"))
                .into_iter()
                .map(|(_, expr)| expr)
                .collect::<Vec<_>>()
        };
        assert_eq!(exprs("'m{a=~\"x|y\",b!=\"\\\"\"}'"), [r#"count_over_time(m{a=~"x|y",b!="\""}[1m])"#]);
        assert_eq!(
            exprs("'{__name__=~\"m|n\", a=\"x\"}'"),
            [r#"count_over_time(m{a="x"}[1m])"#, r#"count_over_time(n{a="x"}[1m])"#]
        );
        assert_eq!(exprs("'{\"m.n\", \"a.b\"=\"x\"}'"), [r#"count_over_time({"m.n","a.b"="x"}[1m])"#]);
        let several = r#"(count_over_time(m{a="x"}[1m]) or count_over_time(m{a="y"}[1m]))"#;
        assert_eq!(exprs("['m{a=\"x\"}', 'm{a=\"y\"}', 'm{a=\"x\"}']"), [several]);
        assert_eq!(exprs("['m{a=\"x\"}', m]"), ["count_over_time(m[1m])"], "all of it");
        for wrong in ["'{a=\"b\"}'", "'{__name__=~\"m.*\"}'"] {
            let told = read(&format!("- {{interval: 1m, outputs: [max], match: {wrong}}}")).unwrap_err();
            assert!(told.contains("does not say by name which metrics"), "{wrong}: {told}");
        }
        assert!(read("- {interval: 1m, outputs: [max]}").unwrap_err().contains("match is missing"));
        assert!(read("- {interval: 1m, outputs: [max], match: 'm{'}").unwrap_err().starts_with("s.yml:1:"));
    }

    #[test]
    fn variables_are_filled_in() {
        assert_eq!(one("- {match: m, interval: '%{INTERVAL}', outputs: [max]}").0, "m:30s_max");
        assert!(
            read("- {match: m, interval: '%{OTHER}', outputs: [max]}").unwrap_err().contains("no variable \"OTHER\"")
        );
        assert!(read("- %{").unwrap_err().contains("has no end"));
    }

    #[test]
    fn steps_that_relabel_samples_are_what_rules_read_and_group_by() {
        let exprs = |rest: &str| {
            rules(&format!("- {{match: 'm{{z=\"1\"}}', interval: 1m, {rest}}}"))
                .into_iter()
                .map(|(name, expr)| format!("{name} = {expr}"))
                .collect::<Vec<_>>()
        };
        let steps = "input_relabel_configs: [{action: keep, source_labels: [a], regex: 'x|y'}, {action: drop, if: '{b!=\"c\"}'}, \
                     {action: keep, if: 'm{d=~\"e\", f=\"\"}'}, {action: drop_metrics, regex: n}]";
        assert_eq!(
            exprs(&format!("outputs: [max], {steps}")),
            [r#"m:1m_max = max_over_time(m{z="1",a=~"x|y",b="c",d=~"e",f=""}[1m])"#]
        );
        let steps = "input_relabel_configs: [{action: labeldrop, regex: pod|instance}]";
        assert_eq!(
            exprs(&format!("outputs: [count_series], by: [job, pod], {steps}")),
            [
                r#"m:1m_by_job_pod_count_series = count by (job) (group without (instance, pod) (present_over_time(m{z="1"}[1m])))"#
            ]
        );
        assert_eq!(
            exprs(&format!("outputs: [max], {steps}, drop_input_labels: [zone]")),
            [r#"m:1m_max = max without (instance, pod, zone) (max_over_time(m{z="1"}[1m]))"#]
        );
        let steps =
            "input_relabel_configs: [{action: labelkeep, regex: __name__|job|pod}, {action: labeldrop, regex: pod}]";
        assert_eq!(
            exprs(&format!("outputs: [max, count_series], {steps}")),
            [
                r#"m:1m_max = max by (job) (max_over_time(m{z="1"}[1m]))"#,
                r#"m:1m_count_series = count by (job) (group by (job) (present_over_time(m{z="1"}[1m])))"#
            ]
        );
        let loaded = read(
            "- {match: m, interval: 1m, outputs: [max], input_relabel_configs: [{action: keep_metrics, regex: 'n.*'}]}",
        );
        let loaded = loaded.unwrap();
        assert!(
            loaded.groups.is_empty() && loaded.warnings[0].to_string().contains("leaves none"),
            "{:?}",
            loaded.warnings
        );
    }

    /// Checks that an entry is refused, and why.
    fn refused(rest: &str, expected: &str) {
        let told = read(&format!("- {{match: m, interval: 1m, {rest}}}")).unwrap_err();
        assert!(told.starts_with("s.yml:1:") && told.contains(expected), "{rest}: {told}");
    }

    #[test]
    fn steps_that_no_rule_can_take_are_refused() {
        for (steps, expected) in [
            ("[{target_label: __name__, replacement: b}]", "replace changes the names of metrics"),
            ("[{action: labelmap, regex: a, replacement: __name__}]", "labelmap changes the names of metrics"),
            (
                "[{action: labelmap_all, regex: _, replacement: '-', if: n}]",
                "labelmap_all changes the names of metrics",
            ),
            ("[{action: graphite, match: '*', labels: {__name__: '$1'}}]", "graphite changes the names of metrics"),
            ("[{action: drop_metrics, regex: 'x)|(y'}]", "input_relabel_configs: "),
            ("[{action: keep}]", "needs source_labels and regex, or if"),
            ("[{action: labeldrop, regex: __name__}]", "takes the names of metrics"),
            ("[{action: labelkeep, regex: a}]", "takes the names of metrics"),
            ("[{target_label: a, replacement: 'x-{{job}}'}]", "{{label}} stands for"),
            ("[{action: labelkeep, regex: 'tmp_.*', if: n}]", "takes the names of metrics"),
            ("[{action: drop, source_labels: [a, b], regex: x}, {action: drop, regex: x}]", "drop needs source_labels"),
            ("[{action: labeldrop, regex: a}], dedup_interval: 30s", "input_relabel_configs and dedup_interval"),
            ("[{target_label: a, replacement: b}], dedup_interval: 30s", "input_relabel_configs and dedup_interval"),
            (
                "[{action: keepequal, source_labels: [a], target_label: b}], drop_input: true",
                "the action keepequal leaves out",
            ),
            ("[], drop_input_labels: [__name__]", "cannot be left out"),
        ] {
            refused(&format!("outputs: [max], input_relabel_configs: {steps}"), expected);
        }
        refused(
            "outputs: ['quantiles(0.5)'], input_relabel_configs: [{action: labelkeep, regex: __name__|job|quantile}]",
            "input_relabel_configs: the results of the output \"quantiles\" have a label",
        );
        for sets in ["target_label: quantile, replacement: x", "action: graphite, match: '*', labels: {quantile: '$1'}"]
        {
            refused(
                &format!("outputs: ['quantiles(0.5)'], without: [a], input_relabel_configs: [{{{sets}}}]"),
                "input_relabel_configs: the results of the output \"quantiles\" have a label",
            );
        }
        for step in
            ["action: labeldrop, regex: a", "action: labeldrop, regex: 'a.*'", "target_label: a, replacement: b"]
        {
            refused(
                &format!("outputs: [increase], staleness_interval: 5m, input_relabel_configs: [{{{step}}}]"),
                "not exact with input_relabel_configs",
            );
        }
    }

    #[test]
    fn steps_from_the_first_that_sets_labels_on_are_of_the_grouping() {
        let expr = |rest: &str| one(&format!("- {{match: m, interval: 1m, {rest}}}")).1;
        let steps = "input_relabel_configs: [{action: drop, source_labels: [a], regex: x}, {action: labeldrop, regex: pod}, \
                     {source_labels: [a, b], target_label: c, replacement: '$1'}, {action: keep, source_labels: [c], regex: 'y.*'}, \
                     {action: keep_metrics, regex: m|n}, {action: drop, source_labels: [a], regex: z}]";
        let clause = r#"relabelled ("m", {action="labeldrop",regex="pod"}, {action="replace",source_label="a",source_label="b",target_label="c",replacement="$1"}, {action="keep",source_label="c",regex="y.*"}, {action="drop",source_label="a",regex="z"})"#;
        let range = r#"m{a!~"x"}[1m]"#;
        for (rest, expected) in [
            ("outputs: [max]", format!("max without () {clause} (max_over_time({range}))")),
            ("by: [c, pod], outputs: [sum_samples]", format!("sum by (c, pod) {clause} (sum_over_time({range}))")),
            ("by: [__name__], outputs: [min]", format!("min by () {clause} (min_over_time({range}))")),
            ("without: [a], outputs: [last]", format!("last_of_samples without (a) {clause} ({range})")),
            ("outputs: [stddev]", format!("sqrt(stdvar_of_samples without () {clause} ({range}))")),
            ("by: [c], outputs: [unique_samples]", format!("distinct_of_samples by (c) {clause} ({range})")),
            (
                "by: [c], outputs: [count_series]",
                format!("count by (c) (group without () {clause} (present_over_time({range})))"),
            ),
        ] {
            assert_eq!(expr(&format!("{rest}, {steps}")), expected);
        }
        // What only leaves series out goes with everything; what drop_input_labels leaves is what steps see.
        let both = "input_relabel_configs: [{action: keep, source_labels: [a, b], regex: 'x;y'}]";
        assert_eq!(
            expr(&format!("outputs: [max], dedup_interval: 30s, {both}")),
            r#"max without () relabelled ("m", {action="keep",source_label="a",source_label="b",regex="x;y"}) (max_over_time(max without () (last_over_time(m[30s]))[1m:30s]))"#
        );
        assert_eq!(
            expr(&format!("outputs: [min], drop_input_labels: [a.b, b], {both}")),
            r#"min without () relabelled ("m", {action="labeldrop",regex="a\\.b|b"}, {action="keep",source_label="a",source_label="b",regex="x;y"}) (min_over_time(m[1m]))"#
        );
        let counter = "outputs: [increase_prometheus], staleness_interval: 5m";
        assert!(expr(&format!("{counter}, {both}")).contains("(increase(m[1m] anchored))"));
    }

    #[test]
    fn what_would_not_be_exact_is_refused() {
        refused("outputs: [total]", "the output \"total\" needs staleness_interval: 5m");
        refused(
            "outputs: [sum_samples_total], output_relabel_configs: [{action: drop, source_labels: [a]}]",
            "relabelled already",
        );
        refused("outputs: [quantiles]", "has arguments");
        refused("outputs: ['quantiles()']", "numbers from 0 to 1, such as quantiles(0.5, 0.99)");
        refused("outputs: ['quantiles(0.5']", "its ) is missing");
        refused("outputs: ['quantiles(0.5, 1.1)']", "numbers from 0 to 1");
        refused("outputs: ['quantiles(NaN)']", "numbers from 0 to 1");
        refused("outputs: ['quantiles(0.5, .50)']", "0.5 stands twice");
        refused("outputs: ['quantiles(0.5)', 'quantiles(0.9)']", "output \"quantiles\" stands twice");
        refused("outputs: ['quantiles(0.5)'], by: [a, quantile]", "label \"quantile\" of their own");
        refused("outputs: [histogram_bucket], by: [vmrange]", "label \"vmrange\" of their own");
        refused("outputs: [summ_samples]", "there is no output \"summ_samples\"");
        refused("outputs: []", "outputs is missing");
        refused("outputs: [max, max]", "output \"max\" stands twice");
        refused("outputs: [increase]", "staleness_interval: 5m");
        refused("outputs: [rate_sum], staleness_interval: 2m", "staleness_interval: 5m");
        refused("outputs: [increase], staleness_interval: 5m, dedup_interval: 30s", "dedup_interval");
        refused("outputs: [increase], staleness_interval: 5m, drop_input_labels: [a]", "drop_input_labels");
        refused("outputs: [max], dedup_interval: 30s, drop_input_labels: [a]", "drop_input_labels");
        refused("outputs: [max], dedup_interval: 25s", "must be a multiple of dedup_interval");
        refused("outputs: [max], dedup_interval: 2m", "must be a multiple of dedup_interval");
        refused("outputs: [max], staleness_interval: 30s", "staleness_interval: it must not be shorter than interval");
        refused("outputs: [max], by: [a], without: [b]", "by and without");
        refused("outputs: [max], without: [__name__]", "__name__");
        refused("outputs: [max], keep_metric_names: true", "keep_metric_names");
        refused("outputs: [max], no_align_flush_to_interval: true", "multiples of interval");
        for step in [
            "target_label: __name__, replacement: x",
            "target_label: '$1', source_labels: [a]",
            "action: labelmap, regex: a",
            "action: labeldrop, regex: '.*'",
            "action: labelkeep, regex: a",
            "action: labelmap_all, regex: a, replacement: b",
            "action: graphite, match: '*', labels: {a: '$1'}",
        ] {
            refused(&format!("outputs: [max], output_relabel_configs: [{{{step}}}]"), "may change the name");
        }
        refused("outputs: [max], output_relabel_configs: [{action: no}]", "unknown relabel action");
        refused("outputs: [max], dedup_intervall: 1s", "did you mean dedup_interval?");
        let told = read("- {match: m, interval: 7m, outputs: [sum_samples_total]}").unwrap_err();
        assert!(told.contains("begins anew each 1d: interval must go into that"), "{told}");
        assert!(read("- {match: m, outputs: [max]}").unwrap_err().contains("interval is missing"));
        assert!(
            read("- {match: m, interval: 500ms, outputs: [max]}").unwrap_err().contains("interval: it is 1s at least")
        );
        assert!(read("match: m").unwrap_err().contains("expected a list"));
    }

    #[test]
    fn results_are_relabelled() {
        let steps = "{target_label: x, replacement: y}, {action: labeldrop, regex: a}, {action: labelkeep, regex: '__name__|b'}, \
                     {action: drop, source_labels: [b], regex: z}, {action: keep_metrics, regex: 'm:.*'}";
        let text =
            format!("- {{match: m, interval: 1m, by: [a, b], outputs: [max, min], output_relabel_configs: [{steps}]}}");
        let groups = read(&text).unwrap().groups;
        assert!(groups[0].rules.iter().all(|rule| rule.relabel.len() == 5));
    }

    #[test]
    fn what_changes_nothing_is_accepted() {
        let text = "- name: x\n  match: m\n  interval: 1m\n  outputs: [max]\n  flush_on_shutdown: true\n  enable_windows: true\n  keep_metric_names: false\n\
                    \x20 drop_input: false\n  no_align_flush_to_interval: false\n  ignore_old_samples: false\n  ignore_first_intervals: 0\n  dedup_interval: 0s\n\
                    \x20 staleness_interval: 2m\n  input_relabel_configs: []\n  output_relabel_configs: []\n";
        let loaded = read(text).unwrap();
        assert_eq!((loaded.warnings, loaded.groups[0].rules[0].expr.as_str()), (Vec::new(), "max_over_time(m[1m])"));
        let text = "- match: m\n  interval: 1m\n  outputs: [max]\n  ignore_old_samples: true\n  ignore_first_intervals: 2\n  ignore_first_sample_interval: 1m\n";
        let told: Vec<String> = read(text).unwrap().warnings.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].starts_with("s.yml:4:3: ignore_old_samples has no effect"), "{told:?}");
        assert_eq!(read("").unwrap(), LoadedRules::default());
    }

    #[test]
    fn totals_add_up_what_is_stored_beside_them() {
        let text = "- {match: '{\"m.n\"}', interval: 1m, by: [a], outputs: [sum_samples_total, max]}\n\
                    - {match: c, interval: 10s, outputs: [total, increase], staleness_interval: 5m}\n";
        let found = rules(text);
        let shown: Vec<(&str, &str)> = found.iter().map(|(name, expr)| (name.as_str(), expr.as_str())).collect();
        assert_eq!(shown.len(), 5, "{shown:?}");
        assert_eq!((shown[0].0, shown[1].0), ("c:10s_increase", "c:10s_total"));
        assert_eq!(shown[1].1, "total_of_period(c:10s_increase[1h])");
        assert_eq!((shown[2].0, shown[3].0), ("m.n:1m_by_a_max", "m.n:1m_by_a_sum_samples"));
        assert_eq!(shown[4], ("m.n:1m_by_a_sum_samples_total", r#"total_of_period({"m.n:1m_by_a_sum_samples"}[1d])"#));
    }

    #[test]
    fn samples_of_series_that_become_one_are_taken_together() {
        let text =
            "- {match: m, interval: 1m, outputs: ['quantiles( 0.50,1 )', histogram_bucket], drop_input_labels: [a]}";
        let expected = [
            ("m:1m_quantiles", r#"quantiles_of_samples without (a) ("quantile", 0.5, 1, m[1m])"#),
            ("m:1m_histogram_bucket", "histogram_of_samples without (a) (m[1m])"),
        ];
        assert_eq!(rules(text), expected.map(|(name, expr)| (name.to_owned(), expr.to_owned())));
        let warnings = read(text).unwrap().warnings;
        assert!(warnings.len() == 1 && warnings[0].message.contains("sum_over_time(…[1h])"), "{warnings:?}");
    }

    #[test]
    fn what_the_server_does_not_allow_is_refused() {
        let file = AggregationFile { path: "s.yml".into(), lookback_ms: 300_000, features: Features::all(false) };
        let text = "- {match: m, interval: 1m, by: [a], outputs: [last]}";
        let problems = file.parse(text, &|_| None).unwrap_err();
        assert!(problems[0].message.starts_with("output \"last\": it becomes "), "{problems:?}");
    }
}
