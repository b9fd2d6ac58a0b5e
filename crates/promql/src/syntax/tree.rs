//! Expressions as JSON, in the form of Prometheus's `parse_query`: objects with their keys in alphabetical order.

use model::{MatchOp, Matcher};

use crate::syntax::ast::RELABELLED;
use crate::syntax::ast::{
    At, Cardinality, Chain, Duration, DurationNode, DurationSpec, Edges, Expr, Grouping, Link, Node, Range, Selector,
    Shift, Subquery,
};
use crate::syntax::number::plain;
use crate::syntax::print;
use crate::syntax::strings::hexadecimal;

/// An object of fields whose values are JSON already.
fn object(fields: &[(&str, String)]) -> String {
    let mut sorted: Vec<&(&str, String)> = fields.iter().collect();
    sorted.sort_by_key(|(name, _)| *name);
    let fields: Vec<String> = sorted.into_iter().map(|(name, value)| format!("{}:{value}", text(name))).collect();
    format!("{{{}}}", fields.join(","))
}

fn text(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            c if c < ' ' => json.extend(["\\u", &hexadecimal(c, 4)]),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn texts(texts: &[String]) -> String {
    list(texts.iter().map(|item| text(item)))
}

/// The expression as JSON.
pub(crate) fn json(expr: &Expr) -> String {
    let kind = |name: &str| ("type", text(name));
    match &expr.node {
        Node::Number { value, .. } => object(&[kind("numberLiteral"), ("val", text(&plain(*value)))]),
        Node::Text(value) => object(&[kind("stringLiteral"), ("val", text(value))]),
        Node::Selector(selector) => object(&selector_fields(selector, "vectorSelector")),
        Node::Range(range) => range_json(range),
        Node::Subquery(subquery) => subquery_json(subquery),
        Node::Parentheses(inner) => object(&[kind("parenExpr"), ("expr", json(inner))]),
        Node::Sign { negative, inner } => {
            let op = text(if *negative { "-" } else { "+" });
            object(&[kind("unaryExpr"), ("op", op), ("expr", json(inner))])
        }
        Node::Chain(chain) => chain_json(chain),
        Node::Aggregate(aggregate) => {
            let fields = [
                kind("aggregation"),
                ("op", text(aggregate.operation.name())),
                ("expr", json(&aggregate.input)),
                ("param", aggregate.parameter.as_ref().map_or("null".to_owned(), json)),
            ];
            object(&[&fields[..], &grouping_fields(&aggregate.grouping)].concat())
        }
        Node::SampleAggregate(aggregate) => {
            let fields = [
                kind("sampleAggregation"),
                ("op", text(aggregate.operation.name())),
                ("args", list(aggregate.arguments.iter().map(json))),
            ];
            object(&[&fields[..], &grouping_fields(&aggregate.grouping)].concat())
        }
        Node::Call(call) => {
            let signature = call.signature;
            let function = object(&[
                ("name", text(signature.name)),
                ("argTypes", list(signature.arguments.iter().map(|kind| text(kind.short_name())))),
                ("variadic", signature.variadic.to_string()),
                ("returnType", text(signature.result.short_name())),
            ]);
            object(&[kind("call"), ("func", function), ("args", list(call.arguments.iter().map(json)))])
        }
    }
}

/// How an aggregation groups. The steps of one that relabels, which Prometheus does not have, are a text.
fn grouping_fields(grouping: &Grouping) -> Vec<(&'static str, String)> {
    let mut fields = vec![("grouping", texts(&grouping.labels)), ("without", grouping.without.to_string())];
    fields.extend(grouping.relabelling.as_ref().map(|relabelling| (RELABELLED, text(&print::relabelled(relabelling)))));
    fields
}

/// An object for each operator, the left side of the last one within it. All are around the first operand, so that a long chain is
/// written once.
fn chain_json(chain: &Chain) -> String {
    // No value has it: control characters are escaped.
    const LEFT: &str = "\0";
    let objects = chain.links.iter().map(|link| {
        object(&[
            ("type", text("binaryExpr")),
            ("op", text(link.operator.name())),
            ("lhs", LEFT.to_owned()),
            ("rhs", json(&link.right)),
            ("matching", matching_json(link)),
            ("bool", link.return_bool.to_string()),
        ])
    });
    let objects: Vec<String> = objects.collect();
    let around: Vec<(&str, &str)> = objects.iter().filter_map(|object| object.split_once(LEFT)).collect();
    let before: String = around.iter().rev().map(|(before, _)| *before).collect();
    let after: String = around.iter().map(|(_, after)| *after).collect();
    before + &json(&chain.first) + &after
}

fn matching_json(link: &Link) -> String {
    let Some(matching) = &link.matching else { return "null".to_owned() };
    let cardinality = match matching.cardinality {
        Cardinality::OneToOne => "one-to-one",
        Cardinality::ManyToOne => "many-to-one",
        Cardinality::OneToMany => "one-to-many",
        Cardinality::ManyToMany => "many-to-many",
    };
    let fill = |value: Option<f64>| value.map_or("null".to_owned(), plain);
    object(&[
        ("card", text(cardinality)),
        ("labels", texts(&matching.labels)),
        ("on", matching.on.to_string()),
        ("include", texts(&matching.include)),
        ("fillValues", object(&[("lhs", fill(matching.fill_left)), ("rhs", fill(matching.fill_right))])),
    ])
}

fn shift_fields(shift: &Shift) -> [(&'static str, String); 4] {
    let none = || "null".to_owned();
    let (time, word) = match shift.at {
        None => (none(), none()),
        Some(At::Time(time_ms)) => (time_ms.to_string(), none()),
        Some(At::Start) => (none(), text("start")),
        Some(At::End) => (none(), text("end")),
    };
    let [offset, expression] = extent_fields(shift.offset.as_ref(), ["offset", "offsetExpr"]);
    [offset, expression, ("timestamp", time), ("startOrEnd", word)]
}

fn extent_fields(extent: Option<&DurationSpec>, names: [&'static str; 2]) -> [(&'static str, String); 2] {
    let (fixed, computed) = match extent {
        None => (0, "null".to_owned()),
        Some(DurationSpec::Fixed(milliseconds)) => (*milliseconds, "null".to_owned()),
        Some(DurationSpec::Computed(expression)) => (0, duration_json(expression)),
    };
    [(names[0], fixed.to_string()), (names[1], computed)]
}

fn duration_json(expression: &Duration) -> String {
    let wrapped = ("wrapped", expression.wrapped.to_string());
    let computed = |op: &str, left: String, right: String| {
        object(&[("type", text("durationExpr")), ("op", text(op)), ("lhs", left), ("rhs", right), wrapped.clone()])
    };
    let none = || "null".to_owned();
    match &expression.node {
        DurationNode::Number { value, duration } => object(&[
            ("type", text("numberLiteral")),
            ("val", text(&plain(*value))),
            ("duration", duration.to_string()),
        ]),
        DurationNode::Step => computed("step", none(), none()),
        DurationNode::Range => computed("range", none(), none()),
        DurationNode::Sign { negative, inner } => {
            computed(if *negative { "-" } else { "+" }, none(), duration_json(inner))
        }
        DurationNode::Binary { operator, left, right } => computed(operator, duration_json(left), duration_json(right)),
    }
}

fn selector_fields(selector: &Selector, kind: &str) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("type", text(kind)),
        ("name", text(&selector.name)),
        ("matchers", list(selector.matchers.iter().map(matcher_json))),
        ("anchored", (selector.edges == Edges::Anchored).to_string()),
        ("smoothed", (selector.edges == Edges::Smoothed).to_string()),
    ];
    fields.extend(shift_fields(&selector.shift));
    fields
}

fn matcher_json(matcher: &Matcher) -> String {
    let op = match matcher.op {
        MatchOp::Equal => "=",
        MatchOp::NotEqual => "!=",
        MatchOp::Regex => "=~",
        MatchOp::NotRegex => "!~",
    };
    object(&[("name", text(&matcher.name)), ("value", text(&matcher.value)), ("type", text(op))])
}

fn range_json(range: &Range) -> String {
    let mut fields = selector_fields(&range.selector, "matrixSelector");
    fields.extend(extent_fields(Some(&range.range), ["range", "rangeExpr"]));
    object(&fields)
}

fn subquery_json(subquery: &Subquery) -> String {
    let mut fields = vec![("type", text("subquery")), ("expr", json(&subquery.inner))];
    fields.extend(extent_fields(Some(&subquery.range), ["range", "rangeExpr"]));
    fields.extend(extent_fields(subquery.step.as_ref(), ["step", "stepExpr"]));
    fields.extend(shift_fields(&subquery.shift));
    object(&fields)
}
