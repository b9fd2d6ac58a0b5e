//! Conditions that become part of a scan: on its time, and on tags. What is taken holds exactly for the rows that are left.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use model::{MatchOp, TimeRange};
use query::arrow::{ColumnSource, TableColumn};
use query::plan::{Scan, Selector};

/// Makes a condition part of a scan; `false` if it cannot be.
pub(crate) fn narrow(scan: &mut Scan, condition: &Expr, columns: &[TableColumn]) -> bool {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            // Both or none: half a condition would be tried again all the same.
            let mut tried = scan.clone();
            let is_narrowed = narrow(&mut tried, left, columns) && narrow(&mut tried, right, columns);
            if is_narrowed {
                *scan = tried;
            }
            is_narrowed
        }
        Expr::Between(between) if !between.negated => {
            let column = |side: &Expr| source(side, columns) == Some(&ColumnSource::Time);
            match (column(&between.expr), time_ns(&between.low), time_ns(&between.high)) {
                (true, Some(low), Some(high)) => {
                    narrow_time(scan, TimeRange { start_ns: low, end_ns: high });
                    true
                }
                _ => false,
            }
        }
        _ => match (time_range(condition, columns), tag_values(condition, columns)) {
            (Some(range), _) => {
                narrow_time(scan, range);
                true
            }
            (None, Some((name, op, values))) => {
                select(scan, name, op, values);
                true
            }
            (None, None) => false,
        },
    }
}

fn narrow_time(scan: &mut Scan, range: TimeRange) {
    scan.range.start_ns = scan.range.start_ns.max(range.start_ns);
    scan.range.end_ns = scan.range.end_ns.min(range.end_ns);
}

/// A tag that is not there is null: no comparison holds for it.
fn select(scan: &mut Scan, name: &str, op: MatchOp, values: Vec<String>) {
    scan.selectors.push(Selector { name: name.to_owned(), op, values });
    if op == MatchOp::NotEqual {
        scan.selectors.push(Selector { name: name.to_owned(), op, values: vec![String::new()] });
    }
}

fn source<'a>(expression: &Expr, columns: &'a [TableColumn]) -> Option<&'a ColumnSource> {
    let Expr::Column(column) = expression else { return None };
    columns.iter().find(|known| known.name == column.name).map(|known| &known.source)
}

fn time_ns(expression: &Expr) -> Option<i64> {
    let Expr::Literal(value, _) = expression else { return None };
    match value {
        ScalarValue::TimestampNanosecond(ns, _) => *ns,
        ScalarValue::TimestampMicrosecond(us, _) => us.and_then(|us| us.checked_mul(1000)),
        ScalarValue::TimestampMillisecond(ms, _) => ms.and_then(|ms| ms.checked_mul(1_000_000)),
        ScalarValue::TimestampSecond(s, _) => s.and_then(|s| s.checked_mul(1_000_000_000)),
        _ => None,
    }
}

/// The range that a comparison of the time leaves.
fn time_range(condition: &Expr, columns: &[TableColumn]) -> Option<TimeRange> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
    let (ns, op) = match (source(left, columns), source(right, columns)) {
        (Some(ColumnSource::Time), None) => (time_ns(right)?, *op),
        (None, Some(ColumnSource::Time)) => (time_ns(left)?, op.swap()?),
        _ => return None,
    };
    Some(match op {
        Operator::GtEq => TimeRange { start_ns: ns, end_ns: i64::MAX },
        Operator::Gt => TimeRange { start_ns: ns.checked_add(1)?, end_ns: i64::MAX },
        Operator::LtEq => TimeRange { start_ns: i64::MIN, end_ns: ns },
        Operator::Lt => TimeRange { start_ns: i64::MIN, end_ns: ns.checked_sub(1)? },
        Operator::Eq => TimeRange { start_ns: ns, end_ns: ns },
        _ => return None,
    })
}

fn text(expression: &Expr) -> Option<String> {
    let Expr::Literal(value, _) = expression else { return None };
    // An empty text is a tag that is not there to a selector, and a text that no tag has to SQL.
    value.try_as_str().flatten().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Values that a tag must have, or must not.
fn tag_values<'a>(condition: &Expr, columns: &'a [TableColumn]) -> Option<(&'a str, MatchOp, Vec<String>)> {
    let tag = |side: &Expr| match source(side, columns) {
        Some(ColumnSource::Label(name)) => Some(name.as_str()),
        _ => None,
    };
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Eq | Operator::NotEq), right }) => {
            let (name, value) = match (tag(left), tag(right)) {
                (Some(name), None) => (name, text(right)?),
                (None, Some(name)) => (name, text(left)?),
                _ => return None,
            };
            let op = if *op == Operator::Eq { MatchOp::Equal } else { MatchOp::NotEqual };
            Some((name, op, vec![value]))
        }
        Expr::InList(list) => {
            let values = list.list.iter().map(text).collect::<Option<Vec<String>>>()?;
            let op = if list.negated { MatchOp::NotEqual } else { MatchOp::Equal };
            (!values.is_empty()).then_some((tag(&list.expr)?, op, values))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (name, op, mut values) = tag_values(left, columns)?;
            let (other, other_op, more) = tag_values(right, columns)?;
            values.extend(more);
            (name == other && op == MatchOp::Equal && other_op == op).then_some((name, op, values))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};
    use query::arrow::ArrowType;

    use super::*;

    fn time(ns: i64) -> Expr {
        lit(ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into())))
    }

    #[test]
    fn conditions_become_part_of_scans_or_are_left() {
        let column = |name: &str, arrow_type, source| TableColumn { name: name.to_owned(), arrow_type, source };
        let columns = [
            column("time", ArrowType::Time, ColumnSource::Time),
            column("host", ArrowType::Text, ColumnSource::Label("host".to_owned())),
            column("x", ArrowType::F64, ColumnSource::Column("x".to_owned())),
        ];
        let cases: [(Expr, Option<&str>); 14] = [
            (col("time").gt_eq(time(5)).and(col("time").lt(time(9))), Some("5..8")),
            (time(5).lt(col("time")), Some("6..")),
            (col("time").eq(lit(ScalarValue::TimestampMillisecond(Some(2), None))), Some("2000000..2000000")),
            (col("time").between(time(1), time(2)), Some("1..2")),
            (col("host").eq(lit("a")), Some(".. host=[a]")),
            (col("host").not_eq(lit("a")), Some(".. host!=[a] host!=[]")),
            (lit("a").eq(col("host")).or(col("host").eq(lit("b"))), Some(".. host=[a,b]")),
            (col("host").in_list(vec![lit("a"), lit("b")], true), Some(".. host!=[a,b] host!=[]")),
            // Left to DataFusion.
            (col("host").eq(lit("")), None),
            (col("host").eq(lit("a")).or(col("host").not_eq(lit("b"))), None),
            (col("host").eq(lit("a")).and(col("x").gt(lit(1.0))), None),
            (col("x").eq(lit(1.0)), None),
            (col("time").gt(time(i64::MAX)), None),
            (col("host").is_null(), None),
        ];
        for (condition, expected) in cases {
            let mut scan = Scan::of_table("t");
            let untouched = scan.clone();
            let is_narrowed = narrow(&mut scan, &condition, &columns);
            if expected.is_none() {
                assert_eq!(scan, untouched, "{condition}");
            }
            let bound = |ns: i64| if [i64::MIN, i64::MAX].contains(&ns) { String::new() } else { ns.to_string() };
            let mut found = format!("{}..{}", bound(scan.range.start_ns), bound(scan.range.end_ns));
            for selector in &scan.selectors {
                let op = if selector.op == MatchOp::Equal { "=" } else { "!=" };
                found += &format!(" {}{op}[{}]", selector.name, selector.values.join(","));
            }
            assert_eq!(is_narrowed.then_some(found.as_str()), expected, "{condition}");
        }
    }
}
