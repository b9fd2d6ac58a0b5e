//! Expressions as text: on one line, or with line breaks where a line would be longer than a hundred characters.

use model::{METRIC_NAME, MatchOp, Matcher};
use relabel::Rule;

use crate::syntax::ast::{
    At, Cardinality, Chain, Duration, DurationNode, DurationSpec, Edges, Expr, Grouping, Link, Matching, Node,
    Selector, Shift,
};
use crate::syntax::ast::{RELABELLED, Relabelling};
use crate::syntax::number::{duration_text, plain, short};
use crate::syntax::strings::quote;

/// Longer parts are broken up.
const LINE_BYTES_MAX: usize = 100;

/// Levels that are indented; deeper ones are not indented further.
const INDENTED_LEVELS_MAX: usize = 200;

/// On one line.
pub(crate) fn line(expr: &Expr) -> String {
    match &expr.node {
        Node::Number { value, duration } => number(*value, *duration),
        Node::Text(text) => quote(text),
        Node::Selector(selector) => format!("{}{}", bare(selector), modifiers(selector)),
        Node::Range(range) => {
            format!("{}[{}]{}", bare(&range.selector), duration_spec(&range.range), range_modifiers(&range.selector))
        }
        Node::Subquery(subquery) => format!("{}{}", line(&subquery.inner), subquery_suffix(expr)),
        Node::Parentheses(inner) => format!("({})", line(inner)),
        Node::Sign { negative, inner } => format!("{}{}", if *negative { "-" } else { "+" }, line(inner)),
        Node::Chain(chain) => chain
            .links
            .iter()
            .fold(line(&chain.first), |left, link| left + &format!(" {} {}", operator(link), line(&link.right))),
        Node::Aggregate(aggregate) => {
            let parameter = aggregate.parameter.as_ref().map(|parameter| format!("{}, ", line(parameter)));
            let head = head(aggregate.operation.name(), &aggregate.grouping);
            format!("{head}({}{})", parameter.unwrap_or_default(), line(&aggregate.input))
        }
        Node::SampleAggregate(aggregate) => {
            let head = head(aggregate.operation.name(), &aggregate.grouping);
            format!("{head}({})", arguments(&aggregate.arguments))
        }
        Node::Call(call) => format!("{}({})", call.signature.name, arguments(&call.arguments)),
    }
}

fn arguments(arguments: &[Expr]) -> String {
    let lines: Vec<String> = arguments.iter().map(line).collect();
    lines.join(", ")
}

/// With line breaks, indented by the level.
pub(crate) fn pretty(expr: &Expr, level: usize) -> String {
    let indent = indentation(level);
    let short_enough = line(expr).len() <= LINE_BYTES_MAX;
    match &expr.node {
        Node::Subquery(_) if short_enough => line(expr),
        Node::Subquery(subquery) => format!("{}{}", pretty(&subquery.inner, level), subquery_suffix(expr)),
        Node::Sign { negative, inner } => {
            format!("{indent}{}{}", if *negative { "-" } else { "+" }, pretty(inner, level).trim())
        }
        Node::Parentheses(inner) if !short_enough => format!("{indent}(\n{}\n{indent})", pretty(inner, level + 1)),
        Node::Chain(chain) if !short_enough => pretty_chain(chain, level),
        Node::Aggregate(aggregate) if !short_enough => {
            let parameter =
                aggregate.parameter.as_ref().map(|parameter| format!("{},\n", pretty(parameter, level + 1)));
            let input = pretty(&aggregate.input, level + 1);
            let head = head(aggregate.operation.name(), &aggregate.grouping);
            format!("{indent}{head}(\n{}{input}\n{indent})", parameter.unwrap_or_default())
        }
        Node::SampleAggregate(aggregate) if !short_enough => {
            let head = head(aggregate.operation.name(), &aggregate.grouping);
            format!("{indent}{head}(\n{}\n{indent})", pretty_arguments(&aggregate.arguments, level + 1))
        }
        Node::Call(call) if !short_enough => {
            let arguments = pretty_arguments(&call.arguments, level + 1);
            format!("{indent}{}(\n{arguments}\n{indent})", call.signature.name)
        }
        _ => format!("{indent}{}", line(expr)),
    }
}

fn pretty_arguments(arguments: &[Expr], level: usize) -> String {
    let broken: Vec<String> = arguments.iter().map(|argument| pretty(argument, level)).collect();
    broken.join(",\n")
}

/// What an operator is applied to stands above it, a level deeper.
fn pretty_chain(chain: &Chain, level: usize) -> String {
    // Each operator with its right side, the last one first, down to a beginning that fits into a line.
    let mut parts = Vec::new();
    let mut level = level;
    let mut links = chain.links.as_slice();
    let mut lengths = vec![line(&chain.first).len()];
    for link in links {
        let before = lengths.last().copied().unwrap_or_default();
        lengths.push(before + operator(link).len() + line(&link.right).len() + 2);
    }
    while let (Some((link, before)), false) =
        (links.split_last(), lengths.get(links.len()).is_some_and(|length| *length <= LINE_BYTES_MAX))
    {
        let right = pretty(&link.right, level + 1);
        parts.push(format!("\n{}{}\n{right}", indentation(level), operator(link)));
        (links, level) = (before, level + 1);
    }
    let first = if links.is_empty() {
        pretty(&chain.first, level)
    } else {
        let beginning = Chain { first: chain.first.clone(), links: links.to_vec() };
        let span = chain.first.span;
        indentation(level) + &line(&Expr::new(Node::Chain(Box::new(beginning)), span))
    };
    parts.push(first);
    parts.into_iter().rev().collect()
}

/// The indentation of a level; it ends growing at a depth that no reader follows.
fn indentation(level: usize) -> String {
    "  ".repeat(level.min(INDENTED_LEVELS_MAX))
}

fn number(value: f64, duration: bool) -> String {
    if !duration {
        return plain(value);
    }
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", duration_text((value.abs() * 1000.0).round() as i64))
}

fn operator(link: &Link) -> String {
    let return_bool = if link.return_bool { " bool" } else { "" };
    let matching = link.matching.as_ref().map(matching).unwrap_or_default();
    format!("{}{return_bool}{matching}", link.operator.name())
}

fn matching(matching: &Matching) -> String {
    let mut text = String::new();
    let group = match matching.cardinality {
        Cardinality::ManyToOne => Some("left"),
        Cardinality::OneToMany => Some("right"),
        _ => None,
    };
    if !matching.labels.is_empty() || matching.on || group.is_some() {
        let how = if matching.on { "on" } else { "ignoring" };
        text.extend([" ", how, " (", &labels(&matching.labels), ")"]);
    }
    if let Some(side) = group {
        text.extend([" group_", side, " (", &labels(&matching.include), ")"]);
    }
    match (matching.fill_left, matching.fill_right) {
        #[expect(clippy::float_cmp, reason = "the same number was written twice, or once for both")]
        (Some(left), Some(right)) if left == right => text.extend([" fill (", &short(left), ")"]),
        (left, right) => {
            for (side, value) in [("left", left), ("right", right)] {
                if let Some(value) = value {
                    text.extend([" fill_", side, " (", &short(value), ")"]);
                }
            }
        }
    }
    text
}

/// The name of an aggregation, and how it groups.
fn head(name: &str, grouping: &Grouping) -> String {
    if grouping.is_of_all() {
        return name.to_owned();
    }
    let how = if grouping.without { "without" } else { "by" };
    let relabelling = grouping.relabelling.as_ref().map(|relabelling| format!("{} ", relabelled(relabelling)));
    format!("{name} {how} ({}) {}", labels(&grouping.labels), relabelling.unwrap_or_default())
}

/// Steps that relabel series, as they stand after the labels of a grouping.
pub(crate) fn relabelled(relabelling: &Relabelling) -> String {
    let step = |rule: &Rule| {
        let fields = rule.text().fields();
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{}={}", label(name), quote(value))).collect();
        format!("{{{}}}", fields.join(","))
    };
    let metric = relabelling.metric.iter().map(|metric| quote(metric));
    let parts: Vec<String> = metric.chain(relabelling.rules.iter().map(step)).collect();
    format!("{RELABELLED} ({})", parts.join(", "))
}

fn labels(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().map(|name| label(name)).collect();
    shown.join(", ")
}

/// A label's name, in quotes unless it is of letters, digits and underscores.
fn label(name: &str) -> String {
    let plain = name
        .chars()
        .enumerate()
        .all(|(index, c)| c == '_' || c.is_ascii_alphabetic() || (index > 0 && c.is_ascii_digit()));
    if plain && !name.is_empty() { name.to_owned() } else { quote(name) }
}

fn matcher(matcher: &Matcher) -> String {
    let op = match matcher.op {
        MatchOp::Equal => "=",
        MatchOp::NotEqual => "!=",
        MatchOp::Regex => "=~",
        MatchOp::NotRegex => "!~",
    };
    format!("{}{op}{}", label(&matcher.name), quote(&matcher.value))
}

/// The selector without modifiers.
fn bare(selector: &Selector) -> String {
    let is_name = |matcher: &&Matcher| {
        matcher.name == METRIC_NAME
            && matcher.op == MatchOp::Equal
            && matcher.value == selector.name
            && !matcher.value.is_empty()
    };
    let mut matchers: Vec<String> = selector.matchers.iter().filter(|matcher| !is_name(matcher)).map(matcher).collect();
    matchers.sort();
    let braces = if matchers.is_empty() { String::new() } else { format!("{{{}}}", matchers.join(",")) };
    format!("{}{braces}", selector.name)
}

fn edges(selector: &Selector) -> &'static str {
    match selector.edges {
        Edges::Plain => "",
        Edges::Anchored => " anchored",
        Edges::Smoothed => " smoothed",
    }
}

fn modifiers(selector: &Selector) -> String {
    format!("{}{}{}", at(&selector.shift), edges(selector), offset(&selector.shift))
}

fn range_modifiers(selector: &Selector) -> String {
    format!("{}{}{}", edges(selector), at(&selector.shift), offset(&selector.shift))
}

fn subquery_suffix(expr: &Expr) -> String {
    let Node::Subquery(subquery) = &expr.node else { return String::new() };
    let step = subquery.step.as_ref().map(duration_spec).unwrap_or_default();
    let shift = &subquery.shift;
    format!("[{}:{step}]{}{}", duration_spec(&subquery.range), at(shift), offset(shift))
}

fn at(shift: &Shift) -> String {
    match shift.at {
        None => String::new(),
        Some(At::Time(time_ms)) => format!(" @ {:.3}", time_ms as f64 / 1000.0),
        Some(At::Start) => " @ start()".to_owned(),
        Some(At::End) => " @ end()".to_owned(),
    }
}

fn offset(shift: &Shift) -> String {
    match &shift.offset {
        None | Some(DurationSpec::Fixed(0)) => String::new(),
        Some(offset) => format!(" offset {}", duration_spec(offset)),
    }
}

fn duration_spec(duration_spec: &DurationSpec) -> String {
    match duration_spec {
        DurationSpec::Fixed(milliseconds) if *milliseconds < 0 => format!("-{}", duration_text(-milliseconds)),
        DurationSpec::Fixed(milliseconds) => duration_text(*milliseconds),
        DurationSpec::Computed(expression) => duration(expression),
    }
}

fn duration(expression: &Duration) -> String {
    let text = match &expression.node {
        DurationNode::Number { value, duration } => number(*value, *duration),
        DurationNode::Step => "step()".to_owned(),
        DurationNode::Range => "range()".to_owned(),
        DurationNode::Sign { negative, inner } => format!("{}{}", if *negative { "-" } else { "" }, duration(inner)),
        DurationNode::Binary { operator: operator @ ("min_of" | "max_of"), left, right } => {
            format!("{operator}({}, {})", duration(left), duration(right))
        }
        DurationNode::Binary { operator, left, right } => format!("{} {operator} {}", duration(left), duration(right)),
    };
    if expression.wrapped { format!("({text})") } else { text }
}
