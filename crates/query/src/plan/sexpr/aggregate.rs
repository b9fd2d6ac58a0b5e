//! The aggregates of a `groupby`.

use super::read::{Fault, Kind, Node};
use crate::plan::{Aggregate, AggregateCall, AggregateInput, PartColumns};
use crate::sketch::Buckets;

/// Why histograms of values are refused.
const OF_SKETCHES: &str = "histograms are put together from a column of them, (histograms (sketches \"name\"))";

/// `max`, `(max "usage_user")`, `(count #TS)`, `(quantile 0.99)` or `(quantile 0.99 "usage_user")`.
pub(super) fn aggregate_call(node: &Node) -> Result<AggregateCall, Fault> {
    let items = if let Kind::List(items) = &node.kind { items.as_slice() } else { &[] };
    let (aggregate, of) = match items {
        [Node { kind: Kind::Symbol(word), .. }, share, of @ ..] if word == "quantile" => {
            (Aggregate::Quantile(share_of(node, share)?), of)
        }
        [Node { kind: Kind::Symbol(word), .. }, share, of @ ..] if word == "approx_quantile" => {
            (Aggregate::ApproxQuantile(share_of(node, share)?), of)
        }
        [Node { kind: Kind::Symbol(word), .. }, percent, of @ ..] if word == "nearest_rank" => {
            (Aggregate::NearestRank(number_of(node, percent)?), of)
        }
        [Node { kind: Kind::Symbol(word), .. }, unit, of @ ..] if word == "integral" => {
            (Aggregate::Integral { unit_ns: unit_of(node, unit)? }, of)
        }
        [Node { kind: Kind::Symbol(word), .. }, low, high, count, of @ ..] if word == "histogram" => {
            (Aggregate::Histogram(buckets_of(node, [low, high, count])?), of)
        }
        [word, of @ ..] => (aggregate(word)?, of),
        [] => (aggregate(node)?, items),
    };
    let input = match of {
        [] if aggregate.has_own_bins() => {
            return Err(node.fault("count_distinct, histogram, integral, mode, nearest_rank and increase are of one field, (count_distinct \"name\"), the first also of a tag, (count_distinct (tag \"name\")), and off_ms is of the times, (off_ms #TS)"));
        }
        [] if aggregate == Aggregate::Histograms => return Err(node.fault(OF_SKETCHES)),
        [] => AggregateInput::Each,
        [Node { kind: Kind::Text(_), .. }] if aggregate == Aggregate::Histograms => {
            return Err(node.fault(OF_SKETCHES));
        }
        [Node { kind: Kind::Text(_), .. }] if aggregate == Aggregate::OffMilliseconds => {
            return Err(node.fault("off_ms is of the times, (off_ms #TS), not of a field"));
        }
        [Node { kind: Kind::Text(name), .. }] => AggregateInput::Column(name.clone()),
        [Node { kind: Kind::Symbol(time), .. }] if time == "#TS" => {
            if aggregate.is_of_sketch() || aggregate.has_own_bins() && aggregate != Aggregate::OffMilliseconds {
                return Err(node.fault(
                    "sketches, counts of different values, integrals, modes, ranks and increases are of fields, not of #TS",
                ));
            }
            AggregateInput::Time
        }
        [Node { kind: Kind::List(parts), .. }] if aggregate.is_of_squares() => parts_of(node, parts)?,
        [Node { kind: Kind::List(parts), .. }] if aggregate.is_of_sketch() || aggregate.is_of_tags() => {
            match parts.as_slice() {
                [Node { kind: Kind::Symbol(word), .. }, Node { kind: Kind::Text(name), .. }]
                    if word == "tag" && aggregate.is_of_tags() =>
                {
                    AggregateInput::Tag(name.clone())
                }
                [Node { kind: Kind::Symbol(word), .. }, Node { kind: Kind::Text(name), .. }]
                    if word == "sketches" && aggregate.is_of_sketch() =>
                {
                    AggregateInput::Sketches(name.clone())
                }
                _ => return Err(node.fault("a column of sketches is (sketches \"name\"), a tag is (tag \"name\")")),
            }
        }
        _ => return Err(node.fault("an aggregate is of one field, such as (max \"usage_user\"), or of #TS")),
    };
    Ok(AggregateCall { aggregate, input })
}

/// `(parts "n" "total" "squares")`
fn parts_of(node: &Node, parts: &[Node]) -> Result<AggregateInput, Fault> {
    match parts {
        [
            Node { kind: Kind::Symbol(word), .. },
            Node { kind: Kind::Text(count), .. },
            Node { kind: Kind::Text(sum), .. },
            Node { kind: Kind::Text(squares), .. },
        ] if word == "parts" => {
            let (count, sum, squares) = (count.clone(), sum.clone(), squares.clone());
            Ok(AggregateInput::Parts(Box::new(PartColumns { count, sum, squares })))
        }
        _ => Err(node.fault("rows that stand for several values are (parts \"count\" \"sum\" \"squares\")")),
    }
}

fn unknown_aggregate(node: &Node) -> Fault {
    let known: Vec<&str> = Aggregate::NAMED.iter().map(|(name, _)| *name).collect();
    node.fault(format!(
        "there are {}, (quantile 0.99), (approx_quantile 0.99), (histogram 0 100 10), (integral 1s \"name\") and (nearest_rank 99 \"name\"), not {}",
        known.join(", "),
        node.name()
    ))
}

fn aggregate(node: &Node) -> Result<Aggregate, Fault> {
    let Kind::Symbol(word) = &node.kind else { return Err(unknown_aggregate(node)) };
    let word = if word == "mean" { "avg" } else { word.as_str() };
    let found = Aggregate::NAMED.iter().find(|(name, _)| *name == word).map(|(_, found)| *found);
    found.ok_or_else(|| unknown_aggregate(node))
}

/// The number that an aggregate takes.
fn number_of(node: &Node, number: &Node) -> Result<f64, Fault> {
    match number.kind {
        Kind::Float(number) if !number.is_nan() => Ok(number),
        Kind::Integer(number) => Ok(number as f64),
        _ => Err(unknown_aggregate(node)),
    }
}

/// The unit of an integral's time, in nanoseconds.
fn unit_of(node: &Node, unit: &Node) -> Result<i64, Fault> {
    match unit.kind {
        Kind::Duration(unit_ns @ 1..) => Ok(unit_ns),
        _ => Err(node.fault("an integral is (integral 1s \"name\"): the unit of its time, and a field")),
    }
}

/// From where to where the buckets of a histogram lie, and how many there are.
fn buckets_of(node: &Node, [low, high, count]: [&Node; 3]) -> Result<Buckets, Fault> {
    let Kind::Integer(count) = count.kind else {
        return Err(
            node.fault("a histogram is (histogram 0 100 10 \"name\"): from where to where, and how many buckets")
        );
    };
    Buckets::new(number_of(node, low)?, number_of(node, high)?, count).map_err(|reason| node.fault(reason))
}

/// The share of a quantile.
fn share_of(node: &Node, share: &Node) -> Result<f64, Fault> {
    let share = number_of(node, share)?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(node.fault("the share of a quantile is between 0 and 1")) }
}
