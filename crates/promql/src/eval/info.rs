//! `info`: labels of series that describe others, such as `target_info`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::{Labels, METRIC_NAME, MatchOp, Matcher};
use query::QueryError;

use crate::eval::evaluator::Evaluator;
use crate::eval::row_stream::RowSink;
use crate::eval::rows::{Row, Sample, Steps, Vector, metric_name, same_labels};
use crate::range::window_bounds::{SelectorOutput, WindowBounds, WindowEnds};
use crate::syntax::ast::{At, DurationSpec, Expr, NeededLabels, Node, Shift};
use crate::syntax::bind_times::{TimeReference, shared_reference};
use crate::syntax::check::{holds, matches_empty};

/// Labels that say which series an info series describes.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

/// The info metric unless another is named.
const TARGET_INFO: &str = "target_info";

/// Newest info samples at one step, by metric name and identity.
type LatestInfo<'r> = HashMap<(&'r str, Labels), (&'r Row, i64)>;

/// The selection of info series.
struct InfoQuery {
    /// Matchers of those that belong to any row.
    selections: Vec<Vec<Matcher>>,
    /// Rows that are info series themselves and stay as they are.
    ignored: Vec<bool>,
    /// Matchers of their labels.
    data: Vec<Matcher>,
}

impl InfoQuery {
    fn new(base: &Vector<'_>, labels: Option<&Expr>) -> Self {
        let matchers: &[Matcher] = match labels.map(|labels| &labels.node) {
            Some(Node::Selector(selector)) => &selector.matchers,
            _ => &[],
        };
        let is_name = |matcher: &&Matcher| matcher.name == METRIC_NAME;
        let names = effective_names(&matchers.iter().filter(is_name).cloned().collect::<Vec<_>>());
        let data: Vec<Matcher> = matchers.iter().filter(|matcher| !is_name(matcher)).cloned().collect();
        let ignored: Vec<bool> =
            base.rows.iter().map(|row| names.iter().all(|name| holds(name, metric_name(&row.labels)))).collect();
        let described = base.rows.iter().zip(&ignored).filter(|(_, ignored)| !**ignored).map(|(row, _)| &row.labels);
        let identities = identity_matchers(described).into_iter();
        let selections =
            identities.map(|identity| identity.into_iter().chain(data.iter().chain(&names).cloned()).collect());
        Self { selections: selections.collect(), ignored, data }
    }
}

impl<'q> Evaluator<'q> {
    pub(crate) fn info(&self, input: &Expr, labels: Option<&Expr>, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let base = self.vector(input, steps)?;
        let query = InfoQuery::new(&base, labels);
        let info_bounds = info_bounds(shared_reference(input), steps, self.settings.lookback_ms);
        let mut infos = Vector::empty(self.budget);
        for matchers in &query.selections {
            let found = self.instant_samples(matchers, &info_bounds, SelectorOutput::Milliseconds)?;
            found.rows.into_iter().try_for_each(|row| infos.push(row))?;
        }
        self.enriched(&base, &infos, &query.ignored, &query.data, steps)
    }

    /// Gives a sink the rows of info series that would be looked at.
    pub(crate) fn info_rows(
        &self,
        input: &Expr,
        labels: Option<&Expr>,
        steps: Steps,
        sink: &mut dyn RowSink,
    ) -> Result<(), QueryError> {
        let query = InfoQuery::new(&self.vector(input, steps)?, labels);
        let info_bounds = info_bounds(shared_reference(input), steps, self.settings.lookback_ms);
        query.selections.iter().try_for_each(|matchers| {
            self.instant_rows(matchers, &info_bounds, SelectorOutput::Milliseconds, NeededLabels::All, sink)
        })
    }

    fn enriched(
        &self,
        base: &Vector<'q>,
        infos: &Vector<'q>,
        ignored: &[bool],
        data: &[Matcher],
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        if infos.rows.iter().any(Row::has_histograms) {
            return Err(QueryError::Execution("this should be an info metric, with float samples".to_owned()));
        }
        let mut results: BTreeMap<Labels, Row> = BTreeMap::new();
        let lenient = data.iter().all(matches_empty);
        for step in 0..steps.count {
            self.budget.check()?;
            let latest = latest_at(infos, step)?;
            for (row, ignored) in base.rows.iter().zip(ignored) {
                let Some(sample) = row.get(step) else { continue };
                let labels =
                    if *ignored { Some(row.labels.clone()) } else { with_info_labels(row, &latest, data, lenient)? };
                let Some(labels) = labels else { continue };
                add_sample(&mut results, labels, row, step, sample)?;
            }
        }
        let mut vector = Vector::empty(self.budget);
        results.into_values().try_for_each(|row| vector.push(row))?;
        Ok(vector)
    }
}

fn add_sample(
    results: &mut BTreeMap<Labels, Row>,
    labels: Labels,
    base: &Row,
    step: usize,
    sample: Sample,
) -> Result<(), QueryError> {
    let row =
        results.entry(labels).or_insert_with_key(|labels| Row::new(labels.clone()).with_drop_name(base.drop_name));
    if row.has(step) {
        return Err(same_labels());
    }
    row.push(step, sample);
    Ok(())
}

/// Where info series are looked at: as the input is, if it has one reference.
fn info_bounds(reference: Option<TimeReference>, steps: Steps, lookback_ms: i64) -> WindowBounds {
    let shift = reference.map_or_else(Shift::default, |reference| Shift {
        offset: Some(DurationSpec::Fixed(reference.offset_ms)),
        at: reference.pinned_ms.map(At::Time),
    });
    WindowBounds::lookback(WindowEnds::new(&shift, steps), lookback_ms)
}

/// The conditions on info metrics' names: `target_info` unless there are others, and `.+_info` in addition to negative ones.
fn effective_names(names: &[Matcher]) -> Vec<Matcher> {
    if names.is_empty() {
        return vec![Matcher::new(METRIC_NAME, MatchOp::Equal, TARGET_INFO)];
    }
    if names.iter().any(|name| matches!(name.op, MatchOp::Equal | MatchOp::Regex)) {
        return names.to_vec();
    }
    let any = Matcher::new(METRIC_NAME, MatchOp::Regex, ".+_info");
    std::iter::once(any).chain(names.iter().cloned()).collect()
}

/// Matchers for the identities of series: one set for each choice of identifying labels that occurs.
fn identity_matchers<'l>(series: impl Iterator<Item = &'l Labels>) -> Vec<Vec<Matcher>> {
    let mut groups: BTreeMap<[bool; 2], [BTreeSet<&'l str>; 2]> = BTreeMap::new();
    for labels in series {
        let values = IDENTIFYING.map(|name| labels.get(name));
        if values == [None, None] {
            continue;
        }
        let group = groups.entry(values.map(|value| value.is_some())).or_default();
        for (existing, value) in group.iter_mut().zip(values) {
            existing.extend(value);
        }
    }
    let set = |values: [BTreeSet<&str>; 2]| {
        let matcher = |(name, values): (&str, BTreeSet<&str>)| {
            let any: Vec<String> = values.iter().map(|value| regex::escape(value)).collect();
            let op = if any.is_empty() { MatchOp::Equal } else { MatchOp::Regex };
            Matcher::new(name, op, any.join("|"))
        };
        IDENTIFYING.into_iter().zip(values).map(matcher).collect()
    };
    groups.into_values().map(set).collect()
}

fn identity(labels: &Labels) -> Labels {
    labels.retain(|name| IDENTIFYING.contains(&name))
}

fn latest_at<'r>(infos: &'r Vector<'_>, step: usize) -> Result<LatestInfo<'r>, QueryError> {
    let mut latest: LatestInfo<'r> = HashMap::new();
    for row in &infos.rows {
        let Some(time_ms) = row.float(step).map(|time_ms| time_ms as i64) else { continue };
        let key = (metric_name(&row.labels), identity(&row.labels));
        match latest.get(&key) {
            Some((other, known_ms)) if *known_ms == time_ms => {
                return Err(QueryError::Execution(format!(
                    "found duplicate series for info metric: existing {} @ {known_ms}, new {} @ {time_ms}",
                    other.labels, row.labels
                )));
            }
            Some((_, known_ms)) if *known_ms > time_ms => {}
            _ => {
                latest.insert(key, (row, time_ms));
            }
        }
    }
    Ok(latest)
}

/// The labels of a series with those of its info series; nothing, if it has none but should.
fn with_info_labels(
    row: &Row,
    latest: &LatestInfo<'_>,
    data: &[Matcher],
    lenient: bool,
) -> Result<Option<Labels>, QueryError> {
    let own = identity(&row.labels);
    let mut added: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = false;
    for ((_, identity), (info, _)) in latest {
        if *identity != own || own.is_empty() {
            continue;
        }
        found = true;
        for (name, value) in info.labels.iter().filter(|(name, _)| *name != METRIC_NAME) {
            if !data.is_empty() && !data.iter().any(|matcher| matcher.name == name) {
                continue;
            }
            if added.get(name).is_some_and(|existing| *existing != value) {
                return Err(QueryError::Execution(format!("conflicting label: {name}")));
            }
            if row.labels.get(name).is_none() {
                added.insert(name, value);
            }
        }
    }
    if !found && !lenient {
        return Ok(None);
    }
    Ok(Some(added.into_iter().fold(row.labels.clone(), |labels, (name, value)| labels.with(name, value))))
}
