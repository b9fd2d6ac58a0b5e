//! The tree to a plan.

use model::{METRIC_NAME, MatchOp, TimeRange};

use super::aggregate::aggregate_call;
use super::expression;
use super::likeness::is_likeness;
use super::read::{Fault, Kind, Node};
use crate::plan::{
    AsOf, Expression, FillWith, Grouping, Join, JoinKind, Labelled, Operator, Plan, Scan, Selector, TableColumns,
};

/// Steps of a pipe, with what they look like.
const STEPS: &str = "(metric \"name\"), (table \"name\"), (table \"name\" '(\"field\")), rows-of, (tag \"name\" \"value\"), (tag \"name\" '(\"a\" \"b\")), tag-not, tag-match, tag-not-match, \
                     (index 50), (all), (range start end), (where (> #V 95)), (groupby 1h max), (map \"name\" (/ #V 2)), (fill linear), \
                     (order #V desc), (limit 10), (last 10), (join inner …), (union …), (labelled inner …), (as-of …), (similar …), (motifs …), (discords …), (alike …)";

/// The context that a text is read in.
pub(super) struct Lowering {
    pub(super) now_ns: i64,
}

/// A pipe as far as it was read.
enum Pipe {
    Empty,
    /// Selectors may still follow.
    Scan(Scan),
    Steps(Plan),
}

impl Lowering {
    /// `(->> …)`, or something of two plans.
    pub(super) fn plan(&self, node: &Node) -> Result<Plan, Fault> {
        let Kind::List(items) = &node.kind else {
            return Err(node.fault(format!("a query is a list, such as (->> (metric \"up\")), not {}", node.name())));
        };
        let (word, rest) = head(node, items)?;
        match word {
            "->>" | "->" => self.pipe(node, rest),
            "join" => self.join(node, rest),
            "union" => self.union(node, rest),
            word if is_likeness(word) => self.likeness(node, word, rest),
            _ => match operator(word) {
                Some(operator) => self.arithmetic(node, operator, rest),
                None => {
                    Err(node.fault(format!("a query begins with ->>, join, union, similar, motifs, discords, alike or an operator, not with `{word}`")))
                }
            },
        }
    }

    fn pipe(&self, node: &Node, steps: &[Node]) -> Result<Plan, Fault> {
        let mut pipe = Pipe::Empty;
        for step in steps {
            pipe = self.step(pipe, step)?;
        }
        match pipe {
            Pipe::Empty => Err(node.fault(format!("the query selects nothing: its steps are {STEPS}"))),
            Pipe::Scan(scan) => Ok(Plan::Scan(scan)),
            Pipe::Steps(plan) => Ok(plan),
        }
    }

    fn step(&self, pipe: Pipe, step: &Node) -> Result<Pipe, Fault> {
        let Kind::List(items) = &step.kind else {
            return Err(step.fault(format!("a step is a list, not {}: {STEPS}", step.name())));
        };
        let (word, rest) = head(step, items)?;
        let begins = matches!(word, "->>" | "->" | "join" | "union") || is_likeness(word) || operator(word).is_some();
        if begins {
            return match pipe {
                Pipe::Empty => self.plan(step).map(Pipe::Steps),
                _ => Err(step.fault(format!("`{word}` begins a pipe: it has to be its first step"))),
            };
        }
        if matches!(
            word,
            "metric"
                | "table"
                | "rows-of"
                | "tag"
                | "tag-not"
                | "tag-match"
                | "tag-not-match"
                | "index"
                | "range"
                | "all"
        ) {
            return self.select(pipe, step, word, rest);
        }
        let input = match pipe {
            Pipe::Empty => return Err(step.fault(format!("`{word}` has nothing to work on: select series before it"))),
            Pipe::Scan(scan) => Plan::Scan(scan),
            Pipe::Steps(plan) => plan,
        };
        if word == "labelled" {
            return Ok(Pipe::Steps(self.labelled(input, step, rest)?));
        }
        if word == "as-of" {
            return Ok(Pipe::Steps(self.as_of(input, step, rest)?));
        }
        Ok(Pipe::Steps(transform(input, step, word, rest)?))
    }

    /// A step that says which series, or when.
    fn select(&self, pipe: Pipe, step: &Node, word: &str, rest: &[Node]) -> Result<Pipe, Fault> {
        let mut scan = match pipe {
            Pipe::Empty => Scan { table: None, selectors: Vec::new(), tokens: Vec::new(), range: TimeRange::ALL },
            Pipe::Scan(scan) => scan,
            Pipe::Steps(plan) if word == "range" => return Ok(Pipe::Steps(within(plan, self.range(step, rest)?))),
            Pipe::Steps(_) => {
                return Err(
                    step.fault(format!("`{word}` selects series: it has to stand before the steps that work on them"))
                );
            }
        };
        let op = match word {
            "tag-not" => MatchOp::NotEqual,
            "tag-match" => MatchOp::Regex,
            "tag-not-match" => MatchOp::NotRegex,
            _ => MatchOp::Equal,
        };
        match (word, rest) {
            ("all", []) => {}
            ("range", _) => {
                let range = self.range(step, rest)?;
                scan.range =
                    TimeRange::new(scan.range.start_ns.max(range.start_ns), scan.range.end_ns.min(range.end_ns));
            }
            ("index", [tokens]) => scan.tokens.extend(token_list(tokens)?),
            ("table" | "rows-of", [Node { kind: Kind::Text(name), .. }, fields @ ..]) if fields.len() < 2 => {
                let fields = fields.first().map(texts).transpose()?.unwrap_or_default();
                scan.table = Some(TableColumns { name: name.clone(), fields, every_row: word == "rows-of" });
            }
            ("metric", [values]) => {
                scan.selectors.push(Selector { name: METRIC_NAME.to_owned(), op, values: texts(values)? });
            }
            (_, [Node { kind: Kind::Text(name), .. }, values]) if word.starts_with("tag") => {
                scan.selectors.push(Selector { name: name.clone(), op, values: texts(values)? });
            }
            _ => return Err(step.fault(format!("`{word}` is not written like this: {STEPS}"))),
        }
        Ok(Pipe::Scan(scan))
    }

    /// `(labelled inner (->> (rows-of "hosts")) (on '("host" "host")) (labels '("owner" "owner")))`: labels, and the table's columns.
    fn labelled(&self, input: Plan, step: &Node, rest: &[Node]) -> Result<Plan, Fault> {
        let form = "labels of a table are (labelled inner|left (->> (rows-of \"hosts\")) (on '(\"host\" \"host\")) (labels '(\"owner\" \"owner\"))), \
                    then conditions on these labels such as (tag \"owner\" \"ann\")";
        let [Node { kind: Kind::Symbol(kind), .. }, table, options @ ..] = rest else { return Err(step.fault(form)) };
        let Plan::Scan(table) = self.plan(table)? else { return Err(table.fault(form)) };
        let keeps_all = match kind.as_str() {
            "inner" => false,
            "left" => true,
            _ => return Err(step.fault(form)),
        };
        let (mut on, mut labels) = (Vec::new(), Vec::new());
        let mut conditions = no_conditions();
        for option in options {
            let Kind::List(items) = &option.kind else { return Err(option.fault(form)) };
            match head(option, items)? {
                ("on", [of]) => on = pairs(of, form)?,
                ("labels", [of]) => labels = pairs(of, form)?,
                (word, rest) if word.starts_with("tag") => conditions = self.select(conditions, option, word, rest)?,
                _ => return Err(option.fault(form)),
            }
        }
        let selectors = selectors_of(conditions).ok_or_else(|| step.fault(form))?;
        let labelled = Labelled { input, table, on, labels, keeps_all, selectors };
        let is_added = |selector: &Selector| labelled.adds(&selector.name);
        if labelled.on.is_empty() || labelled.table_name().is_empty() || !labelled.selectors.iter().all(is_added) {
            return Err(step.fault(form));
        }
        Ok(Plan::Labelled(Box::new(labelled)))
    }

    /// `(as-of (->> (rows-of "quotes")) (on '("symbol" "symbol")) (columns '("bid" "bid")) (within 1m))`: columns, and the table's fields or tags.
    fn as_of(&self, input: Plan, step: &Node, rest: &[Node]) -> Result<Plan, Fault> {
        let form = "columns of a table as of the rows' times are (as-of (->> (rows-of \"quotes\")) (on '(\"symbol\" \"symbol\")) (columns '(\"bid\" \"bid\"))), then \
                    (labels '(\"venue\" \"venue\")), (earlier) and (within 1m) if wanted, and conditions on these labels such as (tag \"venue\" \"v\")";
        let [table, options @ ..] = rest else { return Err(step.fault(form)) };
        let Plan::Scan(table) = self.plan(table)? else { return Err(table.fault(form)) };
        let (on, columns, labels, selectors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut as_of = AsOf { input, table, on, columns, labels, selectors, is_earlier: false, within_ns: None };
        let mut conditions = no_conditions();
        for option in options {
            let Kind::List(items) = &option.kind else { return Err(option.fault(form)) };
            match head(option, items)? {
                ("on", [of]) => as_of.on = pairs(of, form)?,
                ("columns", [of]) => as_of.columns = pairs(of, form)?,
                ("labels", [of]) => as_of.labels = pairs(of, form)?,
                (word, rest) if word.starts_with("tag") => conditions = self.select(conditions, option, word, rest)?,
                ("earlier", []) => as_of.is_earlier = true,
                ("within", [Node { kind: Kind::Duration(ns), .. }]) if *ns >= 0 => as_of.within_ns = Some(*ns),
                _ => return Err(option.fault(form)),
            }
        }
        as_of.selectors = selectors_of(conditions).ok_or_else(|| step.fault(form))?;
        let is_added = |selector: &Selector| as_of.adds_label(&selector.name);
        let is_of_rows = !as_of.table_name().is_empty() && as_of.table.is_of_every_row();
        if !is_of_rows || !as_of.selectors.iter().all(is_added) {
            return Err(step.fault(form));
        }
        for (place, (name, _)) in as_of.labels.iter().enumerate() {
            if as_of.labels.iter().take(place).any(|(known, _)| known == name) {
                return Err(step.fault(format!("two labels are called {name:?}")));
            }
        }
        Ok(Plan::AsOf(Box::new(as_of)))
    }

    /// `(range start end)`, its end left out.
    fn range(&self, step: &Node, rest: &[Node]) -> Result<TimeRange, Fault> {
        let [start, end] = rest else {
            return Err(step.fault("(range start end) takes two times: nanoseconds since 1970, now, or (- now 6h)"));
        };
        let (start_ns, end_ns) = (self.time(start)?, self.time(end)?);
        if start_ns >= end_ns {
            return Err(step.fault("the range is empty: its start is not before its end"));
        }
        Ok(TimeRange::new(start_ns, if end_ns == i64::MAX { end_ns } else { end_ns - 1 }))
    }

    fn time(&self, node: &Node) -> Result<i64, Fault> {
        let beyond = || node.fault("this time is beyond what 64 bits of nanoseconds hold");
        match &node.kind {
            Kind::Integer(ns) | Kind::Duration(ns) => Ok(*ns),
            Kind::Symbol(symbol) if symbol == "now" => Ok(self.now_ns),
            Kind::List(items) => match items.as_slice() {
                [Node { kind: Kind::Symbol(sign), .. }, time, shift] if sign == "+" || sign == "-" => {
                    let (time, shift) = (self.time(time)?, self.time(shift)?);
                    if sign == "+" { time.checked_add(shift) } else { time.checked_sub(shift) }.ok_or_else(beyond)
                }
                _ => Err(node.fault("a time is computed as (- now 6h) or (+ 0 1d)")),
            },
            _ => Err(node.fault(format!("a time is nanoseconds since 1970, now, or (- now 6h), not {}", node.name()))),
        }
    }

    fn join(&self, node: &Node, rest: &[Node]) -> Result<Plan, Fault> {
        let form = "a join is (join inner|left|asof left right), then (on '(\"label\")) and (within 1m) if wanted";
        let [Node { kind: Kind::Symbol(kind), .. }, left, right, options @ ..] = rest else {
            return Err(node.fault(form));
        };
        let Some((_, kind)) = JoinKind::NAMED.iter().find(|(name, _)| name == kind) else {
            return Err(node.fault(form));
        };
        let (left, right) = (self.plan(left)?, self.plan(right)?);
        let mut join = Join { kind: *kind, left, right, on: None, within_ns: None };
        for option in options {
            let Kind::List(items) = &option.kind else { return Err(option.fault(form)) };
            match (head(option, items)?, join.kind) {
                (("on", [labels]), _) => join.on = Some(texts(labels)?),
                (("within", [Node { kind: Kind::Duration(ns), .. }]), JoinKind::AsOf) if *ns >= 0 => {
                    join.within_ns = Some(*ns);
                }
                (("within", _), _) => return Err(option.fault("(within 1m) belongs to a join as of a time")),
                _ => return Err(option.fault(form)),
            }
        }
        Ok(Plan::Join(Box::new(join)))
    }

    fn union(&self, node: &Node, rest: &[Node]) -> Result<Plan, Fault> {
        if rest.is_empty() {
            return Err(node.fault("a union is of one query or more"));
        }
        rest.iter().map(|plan| self.plan(plan)).collect::<Result<_, _>>().map(Plan::Union)
    }

    /// `(/ plan plan)`, `(* plan 100)`: series joined by labels and time, then computed.
    fn arithmetic(&self, node: &Node, operator: Operator, rest: &[Node]) -> Result<Plan, Fault> {
        let [left, right] = rest else {
            return Err(node.fault("an operator takes two queries, or a query and a number"));
        };
        let of = |columns: [Expression; 2]| vec![("value".to_owned(), Expression::Apply(operator, columns.into()))];
        let is_query = |node: &Node| matches!(node.kind, Kind::List(_));
        match (is_query(left), is_query(right)) {
            (true, true) => {
                let join = Join {
                    kind: JoinKind::Inner,
                    left: self.plan(left)?,
                    right: self.plan(right)?,
                    on: None,
                    within_ns: None,
                };
                let columns = ["left", "right"].map(|side| Expression::Column(side.to_owned()));
                Ok(Plan::Map { input: Box::new(Plan::Join(Box::new(join))), columns: of(columns) })
            }
            (true, false) => {
                let columns = of([Expression::Value, expression::lower(right)?]);
                Ok(Plan::Map { input: Box::new(self.plan(left)?), columns })
            }
            (false, true) => {
                let columns = of([expression::lower(left)?, Expression::Value]);
                Ok(Plan::Map { input: Box::new(self.plan(right)?), columns })
            }
            (false, false) => Err(node.fault("an operator takes two queries, or a query and a number")),
        }
    }
}

/// A step that works on rows.
fn transform(input: Plan, step: &Node, word: &str, rest: &[Node]) -> Result<Plan, Fault> {
    let of_step = |input: Plan| Box::new(input);
    match (word, rest) {
        ("where", [condition]) => Ok(Plan::Where { input: of_step(input), condition: expression::lower(condition)? }),
        ("groupby", [width, aggregates, options @ ..]) => {
            let grouping = grouping(width, aggregates, options)?;
            Ok(Plan::GroupBy { input: of_step(input), grouping })
        }
        ("map", columns) if !columns.is_empty() => {
            Ok(Plan::Map { columns: map_columns(step, columns)?, input: of_step(input) })
        }
        ("fill", _) => fill(input, step, rest),
        ("order", [by, direction @ ..]) => {
            let descending = match direction {
                [] => false,
                [Node { kind: Kind::Symbol(word), .. }] if word == "asc" => false,
                [Node { kind: Kind::Symbol(word), .. }] if word == "desc" => true,
                _ => return Err(step.fault("an order is (order #V asc) or (order #TS desc)")),
            };
            Ok(Plan::Order { input: of_step(input), by: expression::lower(by)?, descending })
        }
        ("limit", [rows, skip @ ..]) => {
            let skip = match skip {
                [] => 0,
                [skip] => count(skip)?,
                _ => return Err(step.fault("a limit is (limit rows) or (limit rows skip)")),
            };
            Ok(Plan::Limit { rows: count(rows)?, skip, input: of_step(input) })
        }
        ("last", [rows]) => Ok(Plan::Last { rows: count(rows)?, input: of_step(input) }),
        _ => Err(step.fault(format!("`{word}` is not a step, or not written like this: {STEPS}"))),
    }
}

pub(super) fn head<'a>(node: &Node, items: &'a [Node]) -> Result<(&'a str, &'a [Node]), Fault> {
    match items.split_first() {
        Some((Node { kind: Kind::Symbol(word), .. }, rest)) => Ok((word, rest)),
        Some((other, _)) => Err(other.fault(format!("a list begins with what it does, not with {}", other.name()))),
        None => Err(node.fault("an empty list does nothing")),
    }
}

fn operator(word: &str) -> Option<Operator> {
    Operator::NAMED.iter().find(|(name, operator)| *name == word && operator.is_arithmetic()).map(|(_, found)| *found)
}

/// Restricts the rows of any steps to a range.
fn within(plan: Plan, range: TimeRange) -> Plan {
    let bound = |operator, ns| Expression::Apply(operator, vec![Expression::Time, Expression::Integer(ns)]);
    let bounds = vec![bound(Operator::GreaterOrEqual, range.start_ns), bound(Operator::LessOrEqual, range.end_ns)];
    Plan::Where { input: Box::new(plan), condition: Expression::Apply(Operator::And, bounds) }
}

/// One text, or a quoted list of some.
fn texts(node: &Node) -> Result<Vec<String>, Fault> {
    let one = |node: &Node| match &node.kind {
        Kind::Text(text) => Ok(text.clone()),
        _ => Err(node.fault(format!("a text such as \"host_0\" is wanted, not {}", node.name()))),
    };
    match &node.kind {
        Kind::Quoted(items) if !items.is_empty() => items.iter().map(one).collect(),
        _ => one(node).map(|text| vec![text]),
    }
}

/// Where conditions on labels are put that a table says.
fn no_conditions() -> Pipe {
    Pipe::Scan(Scan { table: None, selectors: Vec::new(), tokens: Vec::new(), range: TimeRange::ALL })
}

/// Conditions on labels; `None` if others are among them.
fn selectors_of(conditions: Pipe) -> Option<Vec<Selector>> {
    match conditions {
        Pipe::Scan(scan) if scan.table.is_none() && scan.tokens.is_empty() => Some(scan.selectors),
        _ => None,
    }
}

/// A quoted list of texts, two by two.
fn pairs(node: &Node, form: &str) -> Result<Vec<(String, String)>, Fault> {
    let all = texts(node)?;
    let (pairs, rest) = all.as_chunks::<2>();
    if rest.is_empty() {
        Ok(pairs.iter().map(|[a, b]| (a.clone(), b.clone())).collect())
    } else {
        Err(node.fault(form))
    }
}

fn token_list(node: &Node) -> Result<Vec<u64>, Fault> {
    let one = |node: &Node| match node.kind {
        Kind::Integer(number) if number >= 0 => Ok(number as u64),
        _ => Err(node.fault(format!("a token is a whole number, not {}", node.name()))),
    };
    match &node.kind {
        Kind::Quoted(items) if !items.is_empty() => items.iter().map(one).collect(),
        _ => one(node).map(|token| vec![token]),
    }
}

pub(super) fn count(node: &Node) -> Result<usize, Fault> {
    match node.kind {
        Kind::Integer(number) if number >= 0 => Ok(number as usize),
        _ => Err(node.fault(format!("a number of rows is wanted, not {}", node.name()))),
    }
}

fn grouping(width: &Node, aggregates: &Node, options: &[Node]) -> Result<Grouping, Fault> {
    let width_ns = match &width.kind {
        Kind::Duration(ns) if *ns > 0 => Some(*ns),
        Kind::Symbol(word) if word == "all" => None,
        _ => return Err(width.fault("bins have a width such as 15m or 1h, or are `all`")),
    };
    let aggregates = match &aggregates.kind {
        Kind::Quoted(items) if !items.is_empty() => items.iter().map(aggregate_call).collect::<Result<Vec<_>, _>>()?,
        _ => vec![aggregate_call(aggregates)?],
    };
    let mut grouping = Grouping { width_ns, offset_ns: 0, aggregates, by: None, undated: false };
    let form = "a group is (groupby 1h max), (groupby 1h '(min max) (by '(\"region\" \"host\"))) or (groupby 1d max (offset 2h))";
    for option in options {
        let Kind::List(items) = &option.kind else { return Err(option.fault(form)) };
        match head(option, items)? {
            ("by", []) => grouping.by = Some(Vec::new()),
            ("by", [Node { kind: Kind::Quoted(none), .. }]) if none.is_empty() => grouping.by = Some(Vec::new()),
            ("by", [labels]) => grouping.by = Some(texts(labels)?),
            ("offset", [Node { kind: Kind::Duration(ns), .. }]) => {
                let Some(width_ns) = width_ns else { return Err(option.fault("one bin for all rows has no offset")) };
                grouping.offset_ns = ns.rem_euclid(width_ns);
            }
            ("undated", []) => {
                if width_ns.is_some() {
                    return Err(option.fault("bins with a width have times: (undated) is of (groupby all …)"));
                }
                grouping.undated = true;
            }
            _ => return Err(option.fault(form)),
        }
    }
    Ok(grouping)
}

fn map_columns(step: &Node, columns: &[Node]) -> Result<Vec<(String, Expression)>, Fault> {
    if let [only] = columns {
        return Ok(vec![("value".to_owned(), expression::lower(only)?)]);
    }
    let pair = |pair: &[Node]| match pair {
        [Node { kind: Kind::Text(name), .. }, of] => Ok((name.clone(), expression::lower(of)?)),
        _ => Err(step.fault("columns are computed as (map (/ #V 2)) or (map \"half\" (/ #V 2) \"double\" (* #V 2))")),
    };
    columns.chunks(2).map(pair).collect()
}

/// `(fill linear)` after a `groupby`, or `(fill 1h linear)`.
fn fill(input: Plan, step: &Node, rest: &[Node]) -> Result<Plan, Fault> {
    let form = "gaps are filled as (fill null), (fill previous), (fill linear) or (fill 0) behind a groupby, or by a width: (fill 1h 0)";
    let grouped = |plan: &Plan| match plan {
        Plan::GroupBy { grouping, .. } => grouping.width_ns,
        _ => None,
    };
    let (width_ns, with) = match rest {
        [Node { kind: Kind::Duration(ns), .. }, with] if *ns > 0 => (*ns, with),
        [with] => match nearest(&input, &grouped) {
            Some(width_ns) => (width_ns, with),
            None => return Err(step.fault(form)),
        },
        _ => return Err(step.fault(form)),
    };
    let with = match &with.kind {
        Kind::Symbol(word) => match word.as_str() {
            "null" => FillWith::Null,
            "previous" => FillWith::Previous,
            "linear" => FillWith::Linear,
            _ => return Err(step.fault(form)),
        },
        Kind::Integer(number) => FillWith::Number(*number as f64),
        Kind::Float(number) => FillWith::Number(*number),
        _ => return Err(step.fault(form)),
    };
    Ok(Plan::Fill { input: Box::new(input), width_ns, with })
}

/// The answer of the last step that has one.
fn nearest(plan: &Plan, says: &dyn Fn(&Plan) -> Option<i64>) -> Option<i64> {
    says(plan).or_else(|| plan.input().and_then(|input| nearest(input, says)))
}
