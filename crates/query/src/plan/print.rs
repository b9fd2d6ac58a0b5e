//! A plan as text: what [`crate::parse`] reads.

use std::fmt::{self, Display, Formatter, Write};

use model::{METRIC_NAME, MatchOp, TimeRange};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Aggregate, AggregateCall, AggregateInput, Expression, FillWith, Grouping, Join, Likeness, Plan, Scan, Selector,
    ViewRead,
};

/// Units of durations, longest first, in nanoseconds.
pub(crate) const UNITS: [(&str, i64); 8] = [
    ("w", 604_800_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

const INDENT: usize = 2;

impl Display for Plan {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        push_plan(&mut text, self, 0);
        out.write_str(&text)
    }
}

impl Display for Expression {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time => out.write_str("#TS"),
            Self::Value => out.write_str("#V"),
            Self::Column(name) => write!(out, "(column {})", quoted(name)),
            Self::Label(name) => write!(out, "(label {})", quoted(name)),
            Self::Integer(number) => write!(out, "{number}"),
            Self::Float(number) => out.write_str(&float(*number)),
            Self::Text(text) => out.write_str(&quoted(text)),
            Self::Bool(value) => write!(out, "{value}"),
            Self::Apply(operator, of) => write!(out, "({}{})", operator.name(), spaced(of)),
            Self::Call(function, of) => write!(out, "({}{})", function.name(), spaced(of)),
        }
    }
}

impl Expression {
    /// Bytes of the name of a column that holds its values, at most.
    const COLUMN_NAME_BYTES_MAX: usize = 120;

    /// The name of a column of rows that holds its values: how it is written, columns as `#price`; of a long one the beginning, and a number that others do
    /// not have.
    pub fn column_name(&self) -> String {
        let text = self.short();
        if text.len() <= Self::COLUMN_NAME_BYTES_MAX {
            return text;
        }
        let number = format!("…{:016x}", xxh3_64(text.as_bytes()));
        let mut end = Self::COLUMN_NAME_BYTES_MAX - number.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        format!("{}{number}", text.get(..end).unwrap_or_default())
    }

    fn short(&self) -> String {
        let of_all = |of: &[Self]| spaced(&of.iter().map(Self::short).collect::<Vec<String>>());
        match self {
            Self::Column(name) => format!("#{name}"),
            Self::Apply(operator, of) => format!("({}{})", operator.name(), of_all(of)),
            Self::Call(function, of) => format!("({}{})", function.name(), of_all(of)),
            other => other.to_string(),
        }
    }
}

impl Display for AggregateCall {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let name = self.aggregate.name();
        let share = match self.aggregate {
            Aggregate::Quantile(share) | Aggregate::ApproxQuantile(share) | Aggregate::NearestRank(share) => {
                format!(" {}", float(share))
            }
            Aggregate::Histogram(buckets) => {
                let (low, high, count) = buckets.parts();
                format!(" {} {} {count}", float(low), float(high))
            }
            Aggregate::Integral { unit_ns } => format!(" {}", duration(unit_ns)),
            _ => String::new(),
        };
        match &self.input {
            AggregateInput::Each if share.is_empty() => out.write_str(name),
            AggregateInput::Each => write!(out, "({name}{share})"),
            AggregateInput::Column(of) => write!(out, "({name}{share} {})", quoted(of)),
            AggregateInput::Time => write!(out, "({name}{share} #TS)"),
            AggregateInput::Parts(parts) => {
                let [count, sum, squares] = parts.names().map(quoted);
                write!(out, "({name} (parts {count} {sum} {squares}))")
            }
            AggregateInput::Sketches(of) => write!(out, "({name}{share} (sketches {}))", quoted(of)),
            AggregateInput::Tag(of) => write!(out, "({name} (tag {}))", quoted(of)),
        }
    }
}

fn spaced(of: &[impl Display]) -> String {
    of.iter().fold(String::new(), |mut text, one| {
        let _ = write!(text, " {one}");
        text
    })
}

/// A plan is a pipe; everything in it stands on a line of its own.
fn push_plan(out: &mut String, plan: &Plan, depth: usize) {
    out.push_str("(->>");
    push_steps(out, plan, depth + 1);
    out.push(')');
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', depth * INDENT));
}

fn push_steps(out: &mut String, plan: &Plan, depth: usize) {
    let step = match plan {
        Plan::Scan(scan) => {
            for line in scan_lines(scan) {
                new_line(out, depth);
                out.push_str(&line);
            }
            return;
        }
        Plan::Join(join) => return push_join(out, join, depth),
        Plan::Union(plans) => {
            new_line(out, depth);
            out.push_str("(union");
            for plan in plans {
                new_line(out, depth + 1);
                push_plan(out, plan, depth + 1);
            }
            return out.push(')');
        }
        Plan::View(read) => return push_view(out, read, depth),
        Plan::Likeness(likeness) => return push_likeness(out, likeness, depth),
        Plan::Labelled(labelled) => labelled.text(),
        Plan::AsOf(as_of) => as_of.text(),
        Plan::Where { condition, .. } => format!("(where {condition})"),
        Plan::GroupBy { grouping, .. } => grouping_text(grouping),
        Plan::Map { columns, .. } => {
            let columns: Vec<String> = columns.iter().map(|(name, of)| format!(" {} {of}", quoted(name))).collect();
            format!("(map{})", columns.concat())
        }
        Plan::Fill { width_ns, with, .. } => format!("(fill {} {})", duration(*width_ns), fill_text(*with)),
        Plan::Order { by, descending, .. } => format!("(order {by} {})", if *descending { "desc" } else { "asc" }),
        Plan::Last { rows, .. } => format!("(last {rows})"),
        Plan::Limit { rows, skip: 0, .. } => format!("(limit {rows})"),
        Plan::Limit { rows, skip, .. } => format!("(limit {rows} {skip})"),
    };
    if let Some(input) = plan.input() {
        push_steps(out, input, depth);
    }
    new_line(out, depth);
    out.push_str(&step);
}

/// Which parts of a view are read as they are stored, and which are computed; it is not read back.
fn push_view(out: &mut String, read: &ViewRead, depth: usize) {
    new_line(out, depth);
    let _ = write!(out, "(view {}", quoted(&read.name));
    for part in &read.parts {
        new_line(out, depth + 1);
        let tables = part.plan.tables();
        let stored = tables.iter().filter(|table| **table == read.name).count();
        out.push_str(match stored {
            0 => "(computed ",
            stored if stored == tables.len() => "(stored ",
            _ => "(stored and computed ",
        });
        push_plan(out, &part.plan, depth + 2);
        out.push(')');
    }
    out.push(')');
}

fn push_likeness(out: &mut String, likeness: &Likeness, depth: usize) {
    new_line(out, depth);
    let _ = write!(out, "({}", likeness.head());
    for plan in likeness.plans() {
        new_line(out, depth + 1);
        push_plan(out, plan, depth + 1);
    }
    new_line(out, depth + 1);
    let _ = write!(out, "{})", likeness.options());
}

fn push_join(out: &mut String, join: &Join, depth: usize) {
    new_line(out, depth);
    let _ = write!(out, "(join {}", join.kind.name());
    for plan in [&join.left, &join.right] {
        new_line(out, depth + 1);
        push_plan(out, plan, depth + 1);
    }
    if let Some(on) = &join.on {
        let _ = write!(out, " (on {})", list(on));
    }
    if let Some(within_ns) = join.within_ns {
        let _ = write!(out, " (within {})", duration(within_ns));
    }
    out.push(')');
}

impl Plan {
    /// The input of a step; `None` for those that begin a pipe.
    pub fn input(&self) -> Option<&Self> {
        match self {
            Self::Where { input, .. }
            | Self::GroupBy { input, .. }
            | Self::Map { input, .. }
            | Self::Fill { input, .. }
            | Self::Order { input, .. }
            | Self::Limit { input, .. }
            | Self::Last { input, .. } => Some(input),
            Self::Labelled(labelled) => Some(&labelled.input),
            Self::AsOf(as_of) => Some(&as_of.input),
            Self::Scan(_) | Self::Join(_) | Self::Union(_) | Self::View(_) | Self::Likeness(_) => None,
        }
    }
}

pub(super) fn scan_lines(scan: &Scan) -> Vec<String> {
    let mut lines = Vec::new();
    match &scan.table {
        None => {}
        Some(table) => {
            let word = if table.every_row { "rows-of" } else { "table" };
            let fields = if table.fields.is_empty() { String::new() } else { format!(" {}", list(&table.fields)) };
            lines.push(format!("({word} {}{fields})", quoted(&table.name)));
        }
    }
    match scan.tokens.as_slice() {
        [] => {}
        [token] => lines.push(format!("(index {token})")),
        tokens => lines.push(format!("(index '({}))", spaced(tokens).trim_start())),
    }
    lines.extend(scan.selectors.iter().map(selector_text));
    if scan.range != TimeRange::ALL {
        // Written with its end left out, as half-open ranges are.
        let end = if scan.range.end_ns == i64::MAX { i64::MAX } else { scan.range.end_ns + 1 };
        lines.push(format!("(range {} {end})", scan.range.start_ns));
    }
    if lines.is_empty() {
        lines.push("(all)".to_owned());
    }
    lines
}

pub(super) fn selector_text(selector: &Selector) -> String {
    let values = match selector.values.as_slice() {
        [value] => quoted(value),
        values => list(values),
    };
    if selector.name == METRIC_NAME && selector.op == MatchOp::Equal && selector.values.len() == 1 {
        return format!("(metric {values})");
    }
    let word = match selector.op {
        MatchOp::Equal => "tag",
        MatchOp::NotEqual => "tag-not",
        MatchOp::Regex => "tag-match",
        MatchOp::NotRegex => "tag-not-match",
    };
    format!("({word} {} {values})", quoted(&selector.name))
}

fn grouping_text(grouping: &Grouping) -> String {
    let width = grouping.width_ns.map_or_else(|| "all".to_owned(), duration);
    let aggregates = match grouping.aggregates.as_slice() {
        [one] => one.to_string(),
        several => format!("'({})", spaced(several).trim_start()),
    };
    let offset = match grouping.offset_ns {
        0 => String::new(),
        offset_ns => format!(" (offset {})", duration(offset_ns)),
    };
    let by = grouping.by.as_ref().map(|by| format!(" (by {})", list(by))).unwrap_or_default();
    let undated = if grouping.undated { " (undated)" } else { "" };
    format!("(groupby {width} {aggregates}{offset}{by}{undated})")
}

fn fill_text(with: FillWith) -> String {
    match with {
        FillWith::Null => "null".to_owned(),
        FillWith::Previous => "previous".to_owned(),
        FillWith::Linear => "linear".to_owned(),
        FillWith::Number(number) => float(number),
    }
}

pub(super) fn list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("'({})", quoted.join(" "))
}

/// A text in quotes, as plans have it; quotes and backslashes in it escaped by a backslash.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// A number that is read as a float again.
fn float(number: f64) -> String {
    if number.is_nan() {
        "nan".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "inf" } else { "-inf" }.to_owned()
    } else {
        format!("{number:?}")
    }
}

/// A duration in nanoseconds, as plans have it, in its largest units: `90m` is `1h30m`.
pub fn duration(mut ns: i64) -> String {
    let mut text = String::new();
    for (unit, unit_ns) in UNITS {
        if ns >= unit_ns {
            let _ = write!(text, "{}{unit}", ns / unit_ns);
            ns %= unit_ns;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}
