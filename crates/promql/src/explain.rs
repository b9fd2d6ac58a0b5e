//! The written form of an evaluation. Operators with PromQL's names stand around plans of the plan language, which can be run by
//! themselves:
//!
//! ```text
//! (promql "sum by (mode) (rate(cpu[5m]))"
//!   (steps 1700000000000000000 1700003600000000000 15s)
//!   (sum
//!     (by '("mode"))
//!     (rate
//!       (window 5m
//!         (->>
//!           (metric "cpu")
//!           (range 1699999700001000000 1700003600001000000))))))
//! ```

use model::{METRIC_NAME, MatchOp, Matcher};
use query::plan::{Scan, Selector as PlanSelector, duration, quoted};
use query::{Plan, QueryError, ViewedWindows};
use relabel::Rule;

use crate::eval::evaluator::Evaluation;
use crate::eval::rows::Steps;
use crate::evaluate::range_steps;
use crate::expression::Expression;
use crate::range::samples::SampleInterval;
use crate::range::window_bounds::{WindowEnds, range_bounds, subquery_grid};
use crate::settings::EvaluationSettings;
use crate::syntax::ast::{
    Aggregate, Call, Cardinality, Chain, Edges, Expr, Grouping, Link, Matching, Node, Range, Selector, Shift, Subquery,
};
use crate::syntax::ast::{RELABELLED, Relabelling};
use crate::syntax::bind_times::{QueryTimes, bind_times};
use crate::syntax::number::plain;

const NS_PER_MS: i64 = 1_000_000;

/// A list that takes more is broken into lines.
const LINE_CHARACTERS_MAX: usize = 100;

const INDENT: usize = 2;

/// Operators of a chain that are shown within each other.
const NESTED_LINKS_MAX: usize = 100;

/// Explains the evaluation at one instant.
pub fn explain_instant(
    expression: &Expression,
    time_ms: i64,
    evaluation: &Evaluation<'_>,
) -> Result<String, QueryError> {
    let bound = bind_times(&expression.expr, QueryTimes::instant(time_ms))?;
    let at = Item::list("at", [Item::nanoseconds(time_ms)]);
    explain(expression, at, &bound, Steps::one(time_ms), evaluation)
}

/// Explains the evaluation at regular steps; fails if the evaluation would fail before it begins.
pub fn explain_range(
    expression: &Expression,
    times: QueryTimes,
    evaluation: &Evaluation<'_>,
) -> Result<String, QueryError> {
    let count = range_steps(expression, times, evaluation.settings)?;
    let bound = bind_times(&expression.expr, times)?;
    let steps = Steps { start_ms: times.start_ms, step_ms: times.step_ms, count };
    explain(expression, steps_item(steps), &bound, steps, evaluation)
}

fn explain(
    expression: &Expression,
    when: Item,
    bound: &Expr,
    steps: Steps,
    evaluation: &Evaluation<'_>,
) -> Result<String, QueryError> {
    let tree = Explainer { settings: evaluation.settings, evaluation }.expr(bound, steps)?;
    let mut text = String::new();
    Item::list("promql", [Item::Word(quoted(&expression.line())), when, tree]).push(&mut text, 0);
    Ok(text)
}

/// A part of the written form.
#[derive(Debug, Clone)]
enum Item {
    Word(String),
    List(Vec<Item>),
    /// A plan of its own.
    Plan(Plan),
}

impl Item {
    fn list(head: impl Into<String>, items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(std::iter::once(Self::Word(head.into())).chain(items).collect())
    }

    fn nanoseconds(time_ms: i64) -> Self {
        Self::Word(time_ms.saturating_mul(NS_PER_MS).to_string())
    }

    fn milliseconds(length_ms: i64) -> Self {
        let length = duration(length_ms.saturating_abs().saturating_mul(NS_PER_MS));
        Self::Word(if length_ms < 0 { format!("-{length}") } else { length })
    }

    fn labels(head: &str, labels: &[String]) -> Self {
        let quoted: Vec<String> = labels.iter().map(|label| quoted(label)).collect();
        Self::list(head, [Self::Word(format!("'({})", quoted.join(" ")))])
    }

    /// On one line; `None` if there is a plan in it.
    fn line(&self) -> Option<String> {
        match self {
            Self::Word(word) => Some(word.clone()),
            Self::Plan(_) => None,
            Self::List(items) => {
                let items = items.iter().map(Self::line).collect::<Option<Vec<_>>>()?;
                Some(format!("({})", items.join(" ")))
            }
        }
    }

    fn push(&self, out: &mut String, depth: usize) {
        let indent = depth * INDENT;
        match self {
            Self::Word(word) => out.push_str(word),
            Self::Plan(plan) => {
                let new_line = format!("\n{}", " ".repeat(indent));
                out.push_str(&plan.to_string().replace('\n', &new_line));
            }
            Self::List(items) => {
                if let Some(line) = self.line().filter(|line| indent + line.len() <= LINE_CHARACTERS_MAX) {
                    return out.push_str(&line);
                }
                out.push('(');
                for (index, item) in items.iter().enumerate() {
                    match (index, item) {
                        (0, _) => {}
                        (1, Self::Word(_)) => out.push(' '),
                        _ => {
                            out.push('\n');
                            out.push_str(&" ".repeat(indent + INDENT));
                        }
                    }
                    item.push(out, depth + 1);
                }
                out.push(')');
            }
        }
    }
}

fn steps_item(Steps { start_ms, step_ms, count }: Steps) -> Item {
    let last_ms = start_ms.saturating_add(step_ms.saturating_mul(count as i64 - 1));
    Item::list("steps", [Item::nanoseconds(start_ms), Item::nanoseconds(last_ms), Item::milliseconds(step_ms)])
}

struct Explainer<'s> {
    settings: &'s EvaluationSettings,
    evaluation: &'s Evaluation<'s>,
}

impl Explainer<'_> {
    fn expr(&self, expr: &Expr, steps: Steps) -> Result<Item, QueryError> {
        let expr = expr.unwrapped();
        match &expr.node {
            Node::Number { value, .. } => return Ok(Item::Word(plain(*value))),
            Node::Text(text) => return Ok(Item::Word(quoted(text))),
            _ => {}
        }
        // As it is evaluated: what is the same at every step is computed once.
        if steps.count > 1 && expr.is_step_invariant() {
            return Ok(Item::list("once", [self.operator(expr, Steps { count: 1, ..steps })?]));
        }
        self.operator(expr, steps)
    }

    fn operator(&self, expr: &Expr, steps: Steps) -> Result<Item, QueryError> {
        Ok(match &expr.node {
            Node::Number { .. } | Node::Text(_) | Node::Parentheses(_) => self.expr(expr, steps)?,
            Node::Selector(selector) => self.instant_selector(selector, steps),
            Node::Range(range) => self.window(range, steps),
            Node::Subquery(subquery) => self.subquery(subquery, steps)?,
            Node::Sign { negative, inner } => Item::list(if *negative { "-" } else { "+" }, [self.expr(inner, steps)?]),
            Node::Chain(chain) => self.chain(chain, steps)?,
            Node::Aggregate(aggregate) => self.aggregate(aggregate, steps)?,
            Node::SampleAggregate(aggregate) => {
                let mut items = grouping_items(&aggregate.grouping);
                for argument in &aggregate.arguments {
                    items.push(self.expr(argument, steps)?);
                }
                Item::list(aggregate.operation.name(), items)
            }
            Node::Call(call) => {
                if let Some(viewed) = self.viewed(call, call.viewed(steps))? {
                    return Ok(viewed);
                }
                let arguments = call.arguments.iter().map(|argument| self.expr(argument, steps));
                Item::list(call.signature.name, arguments.collect::<Result<Vec<_>, _>>()?)
            }
        })
    }

    fn instant_selector(&self, selector: &Selector, steps: Steps) -> Item {
        let (ends, lookback_ms) = (WindowEnds::new(&selector.shift, steps), self.settings.lookback_ms);
        let is_smoothed = selector.edges == Edges::Smoothed;
        let interval = SampleInterval {
            after_ms: ends.first_ms().saturating_sub(lookback_ms),
            to_ms: ends.last_ms().saturating_add(if is_smoothed { lookback_ms } else { 0 }),
        };
        let mut items = vec![Item::milliseconds(lookback_ms)];
        items.extend(shift_items(&selector.shift));
        items.push(scan(&selector.matchers, interval));
        Item::list(if is_smoothed { "smoothed" } else { "newest" }, items)
    }

    fn window(&self, range: &Range, steps: Steps) -> Item {
        let bounds = range_bounds(range, steps, self.settings.lookback_ms);
        let interval = bounds.read_interval();
        let mut items = vec![Item::milliseconds(bounds.range_ms)];
        items.extend(bounds.edges.keyword_and_functions().map(|(word, _)| Item::list(word, [])));
        items.extend(shift_items(&range.selector.shift));
        items.push(scan(&range.selector.matchers, interval));
        Item::list("window", items)
    }

    fn subquery(&self, subquery: &Subquery, steps: Steps) -> Result<Item, QueryError> {
        let grid = subquery_grid(subquery, steps, self.settings.subquery_step_ms);
        let mut items = vec![Item::milliseconds(grid.bounds.range_ms)];
        items.extend(shift_items(&subquery.shift));
        if let Some(subquery_steps) = grid.steps(self.settings)? {
            items.extend([steps_item(subquery_steps), self.expr(&subquery.inner, subquery_steps)?]);
        }
        Ok(Item::list("subquery", items))
    }

    fn chain(&self, chain: &Chain, steps: Steps) -> Result<Item, QueryError> {
        if chain.links.len() > NESTED_LINKS_MAX {
            return self.long_chain(chain, steps);
        }
        let invariant = if steps.count > 1 { chain.invariant_operands() } else { 0 };
        let once = Steps { count: 1, ..steps };
        let mut left = self.expr(&chain.first, if invariant > 1 { once } else { steps })?;
        for (operands, link) in (2..).zip(&chain.links) {
            let right = self.expr(&link.right, if operands <= invariant { once } else { steps })?;
            left = link_item(link, vec![left, right]);
            if operands == invariant {
                left = Item::list("once", [left]);
            }
        }
        Ok(left)
    }

    /// Operators below each other, for nested ones would be unreadable.
    fn long_chain(&self, chain: &Chain, steps: Steps) -> Result<Item, QueryError> {
        let mut items = vec![self.expr(&chain.first, steps)?];
        for link in &chain.links {
            items.push(link_item(link, vec![self.expr(&link.right, steps)?]));
        }
        Ok(Item::list("chain", items))
    }

    fn aggregate(&self, aggregate: &Aggregate, steps: Steps) -> Result<Item, QueryError> {
        let mut items = grouping_items(&aggregate.grouping);
        if let Some(parameter) = &aggregate.parameter {
            items.push(self.expr(parameter, steps)?);
        }
        let viewed = match &aggregate.input.unwrapped().node {
            Node::Call(call) => self.viewed(call, aggregate.viewed(steps))?,
            _ => None,
        };
        items.push(viewed.map_or_else(|| self.expr(&aggregate.input, steps), Ok)?);
        Ok(Item::list(aggregate.operation.name(), items))
    }

    /// A function of windows that a view answers, with what is read of it.
    fn viewed(&self, call: &Call, asked: Option<ViewedWindows<'_>>) -> Result<Option<Item>, QueryError> {
        let Some(asked) = asked else { return Ok(None) };
        let Evaluation { source, budget, .. } = *self.evaluation;
        let Some(plan) = source.plan_by_view(&asked, budget)? else { return Ok(None) };
        let windows = Item::list("viewed", [Item::milliseconds(asked.range_ms), Item::Plan(plan)]);
        Ok(Some(Item::list(call.signature.name, [windows])))
    }
}

fn grouping_items(grouping: &Grouping) -> Vec<Item> {
    let head = if grouping.without { "without" } else { "by" };
    let labels = (!grouping.is_of_all()).then(|| Item::labels(head, &grouping.labels));
    labels.into_iter().chain(grouping.relabelling.as_ref().map(relabelling_item)).collect()
}

/// The metric's name that steps see, and each step as the texts of its fields.
fn relabelling_item(relabelling: &Relabelling) -> Item {
    let step = |rule: &Rule| {
        let fields = rule.text().fields();
        let field = |(name, value): &(String, String)| Item::list(name, [Item::Word(quoted(value))]);
        Item::List(fields.iter().map(field).collect())
    };
    let metric = relabelling.metric.iter().map(|metric| Item::Word(quoted(metric)));
    Item::list(RELABELLED, metric.chain(relabelling.rules.iter().map(step)))
}

/// An operator with what it is applied to.
fn link_item(link: &Link, sides: Vec<Item>) -> Item {
    let mut items = Vec::new();
    items.extend(link.return_bool.then(|| Item::list("bool", [])));
    items.extend(link.matching.iter().flat_map(matching_items));
    items.extend(sides);
    Item::list(link.operator.name(), items)
}

fn shift_items(shift: &Shift) -> Vec<Item> {
    let mut items = Vec::new();
    items.extend(shift.pinned_ms().map(|pinned_ms| Item::list("at", [Item::nanoseconds(pinned_ms)])));
    if shift.offset.is_some() {
        items.push(Item::list("offset", [Item::milliseconds(shift.offset_ms())]));
    }
    items
}

fn matching_items(matching: &Matching) -> Vec<Item> {
    let mut items = Vec::new();
    if matching.on || !matching.labels.is_empty() {
        items.push(Item::labels(if matching.on { "on" } else { "ignoring" }, &matching.labels));
    }
    match matching.cardinality {
        Cardinality::ManyToOne => items.push(Item::labels("group_left", &matching.include)),
        Cardinality::OneToMany => items.push(Item::labels("group_right", &matching.include)),
        Cardinality::OneToOne | Cardinality::ManyToMany => {}
    }
    for (word, fill) in [("fill_left", matching.fill_left), ("fill_right", matching.fill_right)] {
        items.extend(fill.map(|value| Item::list(word, [Item::Word(plain(value))])));
    }
    items
}

/// The plan that selects the samples in an interval.
fn scan(matchers: &[Matcher], interval: SampleInterval) -> Item {
    let selection = interval.selection(matchers);
    let plan_selector = |matcher: &Matcher| PlanSelector {
        name: matcher.name.clone(),
        op: matcher.op,
        values: vec![matcher.value.clone()],
    };
    let mut selectors: Vec<PlanSelector> = matchers.iter().map(plan_selector).collect();
    selectors.sort_by_key(|selector| selector.name != METRIC_NAME || selector.op != MatchOp::Equal);
    Item::Plan(Plan::Scan(Scan { table: None, selectors, tokens: Vec::new(), range: selection.nanoseconds() }))
}

#[cfg(test)]
mod tests {
    use query::{Budget, Selection, Series, Source, TextSink};

    use super::*;

    /// No series, and no views.
    struct Nothing;

    impl Source for Nothing {
        fn select(&self, _: &Selection<'_>, _: &Budget) -> Result<Vec<Series>, QueryError> {
            Ok(Vec::new())
        }

        fn scan_texts(&self, _: &Selection<'_>, _: &Budget, _: &dyn TextSink) -> Result<(), QueryError> {
            Ok(())
        }
    }

    fn check(text: &str, expected: &str) {
        let expression = Expression::parse(text).unwrap();
        let times = QueryTimes { start_ms: 3_600_000, end_ms: 7_200_000, step_ms: 60_000 };
        let (settings, budget) = (EvaluationSettings::default(), Budget::new(0));
        let explained = explain_range(&expression, times, &Evaluation::new(&Nothing, &settings, &budget)).unwrap();
        let lines: Vec<&str> = explained.lines().map(str::trim).collect();
        let text = quoted(&expression.line());
        assert_eq!(lines.join(" "), format!("(promql {text} (steps 3600000000000 7200000000000 1m) {expected})"));
    }

    #[test]
    fn selectors_are_plans_with_the_range_that_is_read() {
        let up = r#"(->> (metric "up") (range 3300001000000 7200001000000))"#;
        check("up", &format!("(newest 5m {up})"));
        check("-(up)", &format!("(- (newest 5m {up}))"));
        check(
            r#"sum by (job) (rate({__name__="x", a=~"b|c", d!="e"}[10m] offset 1h))"#,
            r#"(sum (by '("job")) (rate (window 10m (offset 1h) (->> (metric "x") (tag-match "a" "b|c") (tag-not "d" "e") (range -599999000000 3600001000000)))))"#,
        );
        check(
            "max_over_time(up[10m:2m])",
            r#"(max_over_time (subquery 10m (steps 3120000000000 7200000000000 2m) (newest 5m (->> (metric "up") (range 2820001000000 7200001000000)))))"#,
        );
        check(
            "up @ 600 * 2",
            r#"(once (* (newest 5m (at 600000000000) (->> (metric "up") (range 300001000000 600001000000))) 2))"#,
        );
    }

    #[test]
    fn operators_and_functions_keep_their_names() {
        let up = r#"(newest 5m (->> (metric "up") (range 3300001000000 7200001000000)))"#;
        check("up / on (job) group_left (team) up", &format!(r#"(/ (on '("job")) (group_left '("team")) {up} {up})"#));
        check("up > bool 1", &format!("(> (bool) {up} 1)"));
        check("topk without (job) (3, up)", &format!(r#"(topk (without '("job")) 3 {up})"#));
        check(
            "label_replace(up, \"a\", \"$1\", \"b\", \"(.*)\")",
            &format!(r#"(label_replace {up} "a" "$1" "b" "(.*)")"#),
        );
        check("vector(time() + step())", "(vector (+ (time) 60))");
        check(
            r#"quantiles_of_samples without (a) ("q", 0.5, (up[10m]))"#,
            r#"(quantiles_of_samples (without '("a")) "q" 0.5 (window 10m (->> (metric "up") (range 3000001000000 7200001000000))))"#,
        );
        check(
            r#"sum(up) by () relabelled ("up", {target_label="a", regex="b"})"#,
            &format!(r#"(sum (by '()) (relabelled "up" ((action "replace") (target_label "a") (regex "b"))) {up})"#),
        );
        check(
            "distinct_of_samples(up[10m])",
            r#"(distinct_of_samples (window 10m (->> (metric "up") (range 3000001000000 7200001000000))))"#,
        );
        check("approx_percentile(0.9, up) by (a)", &format!(r#"(approx_percentile (by '("a")) 0.9 {up})"#));
        check(
            "approx_count_distinct(up[10m])",
            r#"(approx_count_distinct (window 10m (->> (metric "up") (range 3000001000000 7200001000000))))"#,
        );
        check(
            "rate(up[5m] smoothed)",
            r#"(rate (window 5m (smoothed) (->> (metric "up") (range 3000001000000 7500001000000))))"#,
        );
    }

    #[test]
    fn plans_in_it_are_plans() {
        let expression = Expression::parse(r#"rate(up{a="\"(b\n"}[5m])"#).unwrap();
        let (settings, budget) = (EvaluationSettings::default(), Budget::new(0));
        let evaluation = Evaluation::new(&Nothing, &settings, &budget);
        let explained = explain_instant(&expression, 7_200_000, &evaluation).unwrap();
        let plan = &explained[explained.find("(->>").unwrap()..];
        let plan = plan.strip_suffix(")))").unwrap();
        let read = query::parse(plan, 0).unwrap();
        let unindented: Vec<&str> = plan.lines().map(str::trim).collect();
        assert_eq!(read.to_string().lines().map(str::trim).collect::<Vec<_>>(), unindented);
    }
}
