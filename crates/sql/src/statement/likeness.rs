//! Tables of what is alike: `similar()`, `motifs()`, `discords()` and `groups_alike()`. Arguments after the first ones are named: `k => 10`.

use std::collections::BTreeMap;
use std::fmt::Write;

use model::{Labels, METRIC_NAME, TimeRange};
use query::plan::{BinValue, Likeness, Measure, Offsets, Question, Scan, Selector, SimilarTo};
use query::time::parse_interval;
use query::{Cell, Frame, Interval, Plan, SqlType, Value};
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr};

use crate::error::{SqlError, invalid};
use crate::expression::cast;
use crate::relation::{Column, Relation};
use crate::run::Run;

const COUNT_DEFAULT: usize = 10;

const CORRELATION_DEFAULT: f64 = 0.9;

/// The functions, and how they are called.
const FUNCTIONS: [(&str, &str); 4] = [
    (
        "similar",
        "similar('cpu', 'cpu{host=\"a\"}', '2026-01-01', '2026-01-02', step => '5m'), then k => 10, measure => 'euclidean' | 'pearson' | 'dtw', band => 6, \
         offsets => 'aligned' | 'every', search_from => '2025-12-01', search_to => '2026-01-01', per_series => 1, normalise => false, bins => 'avg' | 'last'",
    ),
    (
        "motifs",
        "motifs('cpu{host=\"a\"}', '2026-01-01', '2026-02-01', step => '5m', window => '1d'), then k => 3, bins => 'last'",
    ),
    (
        "discords",
        "discords('cpu{host=\"a\"}', '2026-01-01', '2026-02-01', step => '5m', window => '1d'), then k => 3, bins => 'last'",
    ),
    (
        "groups_alike",
        "groups_alike('cpu', '2026-01-01', '2026-01-02', step => '5m'), then correlation => 0.9, bins => 'last'",
    ),
];

/// Returns whether a function is one of them.
pub(crate) fn is_likeness(name: &str) -> bool {
    usage(name).is_some()
}

fn usage(name: &str) -> Option<&'static str> {
    FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, usage)| *usage)
}

/// The arguments of a call.
struct Call {
    usage: &'static str,
    /// Those without names, in order, the last first.
    rest: Vec<Value>,
    named: BTreeMap<String, Value>,
}

impl Run<'_> {
    /// The table of one of the functions.
    pub(crate) fn likeness(&mut self, name: &str, arguments: &[FunctionArg]) -> Result<Relation, SqlError> {
        let mut call = Call { usage: usage(name).unwrap_or_default(), rest: Vec::new(), named: BTreeMap::new() };
        for argument in arguments {
            let (named, FunctionArgExpr::Expr(expression)) = argument_of(argument) else {
                return call.wrong("an argument is a value");
            };
            let value = self.constant(expression)?;
            match named {
                Some(named) => drop(call.named.insert(named.to_lowercase(), value)),
                None if call.named.is_empty() => call.rest.push(value),
                None => return call.wrong("arguments without names come first"),
            }
        }
        call.rest.reverse();
        let likeness = self.question(name, &mut call)?;
        let has_correlation = matches!(&likeness.question, Question::Similar(similar) if similar.is_normalised && !matches!(similar.measure, Measure::Dtw { .. }));
        let shape = Shape { name, has_correlation, length_ns: length_ns(&likeness) };
        let frames = self.plan(Plan::Likeness(Box::new(likeness)))?;
        let mut rows: Vec<Vec<Value>> = frames.iter().flat_map(|frame| shape.rows(frame)).collect();
        // Ranks of one series, or of all together; groups by number.
        let by = if name == "similar" || name == "groups_alike" { [1, 0] } else { [0, 1] };
        rows.sort_by(|a, b| {
            let compared = |at: usize| a.get(at).zip(b.get(at)).and_then(|(a, b)| a.compare(b));
            let [first, second] = by.map(|at| compared(at).unwrap_or(std::cmp::Ordering::Equal));
            first.then(second)
        });
        self.charge(rows.len() * shape.columns().len())?;
        Ok(Relation { columns: shape.columns(), rows })
    }

    fn question(&mut self, name: &str, call: &mut Call) -> Result<Likeness, SqlError> {
        let selector = call.text("the series")?;
        let reference = if name == "similar" { Some(call.text("the reference")?) } else { None };
        let (from, to) = (self.time(call, "from")?, self.time(call, "to")?);
        let (Some(from_ns), Some(to_ns)) = (from, to) else { return call.wrong("the range is missing") };
        let Some(step_ns) = call.duration("step")? else {
            return call.wrong("series are compared in bins of time: step => '5m' says how wide they are");
        };
        let bins = call.choice("bins", &BinValue::NAMED)?.unwrap_or(BinValue::Average);
        let count = call.count("k")?.unwrap_or(COUNT_DEFAULT);
        let mut range = (from_ns, to_ns);
        let question = match (name, reference) {
            ("similar", Some(reference)) => {
                let reference = call.scan(&reference, range)?;
                range = (
                    self.time(call, "search_from")?.unwrap_or(from_ns),
                    self.time(call, "search_to")?.unwrap_or(to_ns),
                );
                let measure = call.take("measure").map_or_else(|| "euclidean".to_owned(), |value| value.to_string());
                let measure = Measure::named(&measure, call.count("band")?).or_else(|message| call.wrong(&message))?;
                let offsets = call.choice("offsets", &Offsets::NAMED)?.unwrap_or(Offsets::Aligned);
                let per_series = call.count("per_series")?.unwrap_or(count);
                let is_normalised = call.flag("normalise")?.unwrap_or(true);
                Question::Similar(Box::new(SimilarTo { reference, count, per_series, measure, is_normalised, offsets }))
            }
            ("groups_alike", _) => {
                Question::Alike { correlation: call.number("correlation")?.unwrap_or(CORRELATION_DEFAULT) }
            }
            _ => match call.duration("window")? {
                Some(window_ns) if name == "motifs" => Question::Motifs { count, window_ns },
                Some(window_ns) => Question::Discords { count, window_ns },
                None => return call.wrong("places have a length: window => '1d' says which"),
            },
        };
        let input = call.scan(&selector, range)?;
        if let Some(unknown) = call.named.keys().next() {
            return call.wrong(&format!("it has no argument {unknown}, or not together with the others"));
        }
        if !call.rest.is_empty() {
            return call.wrong("there are more arguments without names than it has");
        }
        Ok(Likeness { input, step_ns, bins, question })
    }

    /// A time, the next of the arguments without names for `from` and `to`, else one by its name.
    fn time(&self, call: &mut Call, name: &str) -> Result<Option<i64>, SqlError> {
        let value = if matches!(name, "from" | "to") { call.rest.pop() } else { call.take(name) };
        let Some(value) = value else { return Ok(None) };
        match cast(value, SqlType::Timestamp, &self.environment)? {
            Value::Timestamp(ns) => Ok(Some(ns)),
            other => call.wrong(&format!("{name}: {other} is no time")),
        }
    }
}

/// An argument's name and value.
fn argument_of(argument: &FunctionArg) -> (Option<String>, &FunctionArgExpr) {
    match argument {
        FunctionArg::Named { name, arg, .. } | FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, .. } => {
            (Some(name.value.clone()), arg)
        }
        FunctionArg::ExprNamed { name, arg, .. } => (Some(name.to_string()), arg),
        FunctionArg::Unnamed(arg) => (None, arg),
    }
}

impl Call {
    fn wrong<T>(&self, message: &str) -> Result<T, SqlError> {
        invalid(format!("{message}; write {}", self.usage))
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.named.remove(name).filter(|value| *value != Value::Null)
    }

    fn text(&mut self, what: &str) -> Result<String, SqlError> {
        match self.rest.pop() {
            Some(Value::Text(text)) => Ok(text.to_string()),
            _ => self.wrong(&format!("{what} is a selector in quotes")),
        }
    }

    fn duration(&mut self, name: &str) -> Result<Option<i64>, SqlError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let interval = match &value {
            Value::Interval(interval) => Some(*interval),
            Value::Text(text) => parse_interval(text),
            _ => None,
        };
        match interval.map(Interval::with_even_days) {
            Some(Interval { months: 0, days: 0, ns }) if ns > 0 => Ok(Some(ns)),
            _ => self.wrong(&format!("{name}: {value} is no length of time")),
        }
    }

    fn count(&mut self, name: &str) -> Result<Option<usize>, SqlError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Int(count @ 0..)) => Ok(Some(usize::try_from(count).unwrap_or(usize::MAX))),
            Some(other) => self.wrong(&format!("{name}: {other} is no number of them")),
        }
    }

    fn number(&mut self, name: &str) -> Result<Option<f64>, SqlError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Int(number)) => Ok(Some(number as f64)),
            Some(Value::Float(number)) => Ok(Some(number)),
            Some(other) => self.wrong(&format!("{name}: {other} is no number")),
        }
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, SqlError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => self.wrong(&format!("{name}: {other} is neither true nor false")),
        }
    }

    fn choice<T: Copy>(&mut self, name: &str, all: &[(&str, T)]) -> Result<Option<T>, SqlError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let text = value.to_string();
        match all.iter().find(|(known, _)| *known == text) {
            Some((_, chosen)) => Ok(Some(*chosen)),
            None => {
                let known: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
                self.wrong(&format!("{name} is {}, not {text:?}", known.join(" or ")))
            }
        }
    }

    fn scan(&self, selector: &str, (from_ns, to_ns): (i64, i64)) -> Result<Plan, SqlError> {
        let selectors = Selector::parse_all(selector).or_else(|message| self.wrong(&message))?;
        if from_ns >= to_ns {
            return self.wrong("the range is empty: its end, which is not part of it, does not come after its start");
        }
        let range = TimeRange::new(from_ns, to_ns - 1);
        Ok(Plan::Scan(Scan { table: None, selectors, tokens: Vec::new(), range }))
    }
}

/// How long a place is.
fn length_ns(likeness: &Likeness) -> i64 {
    let whole = |ns: i64| ns - ns % likeness.step_ns;
    match &likeness.question {
        Question::Similar(similar) => {
            let TimeRange { start_ns, end_ns } = similar.reference.read_range();
            whole(end_ns.saturating_sub(start_ns).saturating_add(1))
        }
        Question::Motifs { window_ns, .. } | Question::Discords { window_ns, .. } => whole(*window_ns),
        Question::Alike { .. } => 0,
    }
}

/// The columns of a function's table.
struct Shape<'a> {
    name: &'a str,
    has_correlation: bool,
    length_ns: i64,
}

impl Shape<'_> {
    fn columns(&self) -> Vec<Column> {
        let column = |name: &str, sql_type| Column::new(name, sql_type);
        let series = column("series", SqlType::Text);
        let rank = || column("rank", SqlType::Int);
        let starts = || column("starts", SqlType::Timestamp);
        let distance = || column("distance", SqlType::Float);
        match self.name {
            "similar" => vec![
                series,
                rank(),
                starts(),
                column("ends", SqlType::Timestamp),
                distance(),
                column("correlation", SqlType::Float),
            ],
            "groups_alike" => vec![series, column("group_number", SqlType::Int), column("members", SqlType::Int)],
            _ => {
                let other = if self.name == "motifs" { "other_starts" } else { "nearest_starts" };
                vec![series, rank(), starts(), column(other, SqlType::Timestamp), distance()]
            }
        }
    }

    fn rows(&self, frame: &Frame) -> Vec<Vec<Value>> {
        let series = Value::Text(series_text(&frame.labels).into());
        let cell = |name: &str, row| frame.column(name).map_or(Cell::Null, |column| column.cell(row));
        let int = |name: &str, row| match cell(name, row) {
            Cell::I64(number) => number,
            _ => 0,
        };
        let float = |name: &str, row| cell(name, row).number().map_or(Value::Null, Value::Float);
        let row = |(row, time_ns): (usize, &i64)| {
            let starts = Value::Timestamp(*time_ns);
            let series = series.clone();
            match self.name {
                "similar" => {
                    let ends = Value::Timestamp(time_ns.saturating_add(self.length_ns));
                    let correlation = if self.has_correlation { float("correlation", row) } else { Value::Null };
                    vec![series, Value::Int(int("rank", row)), starts, ends, float("distance", row), correlation]
                }
                "groups_alike" => vec![series, Value::Int(int("group", row)), Value::Int(int("members", row))],
                _ => {
                    let other = Value::Timestamp(int("other", row));
                    vec![series, Value::Int(int("rank", row)), starts, other, float("distance", row)]
                }
            }
        };
        frame.timestamps_ns.iter().enumerate().map(row).collect()
    }
}

/// Labels as PromQL writes them, which is how selectors are read.
fn series_text(labels: &Labels) -> String {
    let mut text = labels.get(METRIC_NAME).unwrap_or_default().to_owned();
    let mut separator = '{';
    for (name, value) in labels.iter().filter(|(name, _)| *name != METRIC_NAME) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{name}={value:?}");
        separator = ',';
    }
    if separator == ',' {
        text.push('}');
    }
    text
}
