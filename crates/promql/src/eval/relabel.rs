//! Functions that change labels or the order of series.

use std::cmp::Ordering;

use model::METRIC_NAME;
use query::QueryError;

use crate::aggregate::topk::compare;
use crate::eval::evaluator::Evaluator;
use crate::eval::rows::{Row, Steps, Vector};
use crate::syntax::ast::{Expr, Node};
use crate::syntax::check::compile_regex;
use crate::syntax::functions::Function;
use crate::syntax::span::Span;
use crate::syntax::strings::is_label_name;

/// Bytes of a label's value that a query makes: calls in calls could multiply it without end.
const LABEL_VALUE_BYTES_MAX: usize = 64 << 10;

impl<'q> Evaluator<'q> {
    /// `label_replace` and `label_join`.
    pub(crate) fn relabel(
        &self,
        function: Function,
        name: &str,
        input: &Expr,
        texts: &[Expr],
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let texts = texts.iter().map(string_argument).collect::<Result<Vec<&str>, _>>()?;
        match texts.as_slice() {
            [destination, replacement, source, pattern] if function == Function::LabelReplace => {
                let regex = compile_regex(pattern).map_err(|_| {
                    QueryError::Execution(format!("invalid regular expression in label_replace(): {pattern}"))
                })?;
                self.set_label(input, steps, destination, name, |row| {
                    let Some(captures) = regex.captures(row.labels.get(source).unwrap_or_default()) else {
                        return Ok(None);
                    };
                    // No reference adds more than the longest of the captures.
                    let longest = captures.iter().flatten().map(|capture| capture.len()).max().unwrap_or_default();
                    check_value(name, replacement.len() + replacement.matches('$').count() * longest)?;
                    let mut value = String::new();
                    captures.expand(replacement, &mut value);
                    Ok(Some(value))
                })
            }
            [destination, separator, sources @ ..] => {
                if sources.iter().any(|source| source.is_empty()) {
                    return Err(QueryError::Execution(format!("invalid source label name in {name}(): ")));
                }
                self.set_label(input, steps, destination, name, |row| {
                    let values = sources.iter().map(|source| row.labels.get(source).unwrap_or_default());
                    check_value(name, values.clone().map(|value| value.len() + separator.len()).sum())?;
                    Ok(Some(values.collect::<Vec<_>>().join(separator)))
                })
            }
            _ => Err(QueryError::Execution(format!("wrong number of arguments in call to {name:?}"))),
        }
    }

    /// Sets a label of each series to the value computed from it; `None` leaves it as it is.
    fn set_label(
        &self,
        input: &Expr,
        steps: Steps,
        destination: &str,
        function: &str,
        value: impl Fn(&Row) -> Result<Option<String>, QueryError>,
    ) -> Result<Vector<'q>, QueryError> {
        if !is_label_name(destination) {
            return Err(QueryError::Execution(format!(
                "invalid destination label name in {function}(): {destination}"
            )));
        }
        let mut vector = self.vector(input, steps)?;
        for row in &mut vector.rows {
            self.budget.check()?;
            if let Some(value) = value(row)? {
                self.budget.hold_bytes(value.len() as u64)?;
                row.labels = row.labels.with(destination, &value);
                // A new name stays.
                row.drop_name &= destination != METRIC_NAME;
            }
        }
        vector.join_same_labels()?;
        Ok(vector)
    }

    /// Puts series in order; shows in instant queries only.
    pub(crate) fn sort(
        &self,
        function: Function,
        input: &Expr,
        labels: &[Expr],
        span: Span,
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let labels = labels.iter().map(string_argument).collect::<Result<Vec<&str>, _>>()?;
        let mut vector = self.vector(input, steps)?;
        if matches!(function, Function::Sort | Function::SortDescending) {
            vector.map_floats(|_, value| value)?;
        }
        if steps.count > 1 {
            self.annotations.sort_in_range_query(span);
        }
        // With several steps, each series counts by its first value: Prometheus adds them to its result in that order.
        let value = |row: &Row| row.floats().next().map_or(f64::NAN, |(_, value)| value);
        match function {
            Function::Sort => vector.rows.sort_by(|a, b| compare(value(a), value(b), false)),
            Function::SortDescending => vector.rows.sort_by(|a, b| compare(value(a), value(b), true)),
            Function::SortByLabel => vector.rows.sort_by(|a, b| compare_by_labels(a, b, &labels)),
            _ => vector.rows.sort_by(|a, b| compare_by_labels(b, a, &labels)),
        }
        Ok(vector)
    }
}

fn check_value(function: &str, bytes: usize) -> Result<(), QueryError> {
    if bytes <= LABEL_VALUE_BYTES_MAX {
        return Ok(());
    }
    let limit = LABEL_VALUE_BYTES_MAX;
    Err(QueryError::Execution(format!("{function}() would make a label of {bytes} bytes; the limit is {limit}")))
}

pub(crate) fn string_argument(expr: &Expr) -> Result<&str, QueryError> {
    match &expr.unwrapped().node {
        Node::Text(text) => Ok(text),
        _ => Err(QueryError::Execution(format!("expected a string, got {}", expr.kind().name()))),
    }
}

fn compare_by_labels(a: &Row, b: &Row, names: &[&str]) -> Ordering {
    let value = |row: &Row, name: &str| row.labels.get(name).unwrap_or_default().to_owned();
    let differing = names.iter().map(|name| compare_natural(&value(a, name), &value(b, name)));
    differing.fold(Ordering::Equal, Ordering::then).then_with(|| a.labels.cmp(&b.labels))
}

/// Compares texts with runs of digits taken as numbers: `a2` comes before `a10`.
fn compare_natural(a: &str, b: &str) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    let (mut a_rest, mut b_rest) = (a, b);
    loop {
        let (a_run, b_run) = (run(&mut a_rest), run(&mut b_rest));
        if a_run.is_empty() || b_run.is_empty() {
            // The shorter text comes first; `a01` and `a1` are ordered by their bytes.
            return a_run.len().cmp(&b_run.len()).then_with(|| a.cmp(b));
        }
        let order = match (a_run.parse::<u64>(), b_run.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            _ => a_run.cmp(b_run),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Takes the run of digits, or of anything else, at the beginning of a text.
fn run<'a>(rest: &mut &'a str) -> &'a str {
    let digits = rest.starts_with(|c: char| c.is_ascii_digit());
    let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
    let (run, after) = rest.split_at(end);
    *rest = after;
    run
}
