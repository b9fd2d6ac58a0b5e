//! Conditions that become part of a scan: on its time, and on tags. What is taken holds exactly for the rows that are left.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use model::MatchOp;
use query::arrow::{ColumnSource, TableColumn};
use query::plan::{Condition, MissingTag, Operator as PlanOperator, Scan, Selector};

/// Makes a condition part of a scan; `false` if it cannot be: half a condition would be tried again all the same.
pub(crate) fn narrow(scan: &mut Scan, condition: &Expr, columns: &[TableColumn]) -> bool {
    translated(condition, columns).is_some_and(|condition| scan.narrow(&condition, MissingTag::Null))
}

/// The condition as scans have it.
fn translated(condition: &Expr, columns: &[TableColumn]) -> Option<Condition> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let both = vec![translated(left, columns)?, translated(right, columns)?];
            Some(if *op == Operator::And { Condition::All(both) } else { Condition::Any(both) })
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (source(left, columns), source(right, columns)) {
            (Some(source), None) => compared(source, *op, right),
            (None, Some(source)) => compared(source, op.swap()?, left),
            _ => None,
        },
        Expr::Between(between) if !between.negated && is_time(&between.expr, columns) => {
            let bound = |operator, side| Some(Condition::Time(operator, time_ns(side)?));
            Some(Condition::All(vec![
                bound(PlanOperator::GreaterOrEqual, &between.low)?,
                bound(PlanOperator::LessOrEqual, &between.high)?,
            ]))
        }
        Expr::InList(list) => {
            let Some(ColumnSource::Label(name)) = source(&list.expr, columns) else { return None };
            let values = list.list.iter().map(text).collect::<Option<Vec<String>>>()?;
            let op = if list.negated { MatchOp::NotEqual } else { MatchOp::Equal };
            Some(Condition::Tag(Selector { name: name.clone(), op, values }))
        }
        _ => None,
    }
}

/// A column compared with a value.
fn compared(source: &ColumnSource, op: Operator, value: &Expr) -> Option<Condition> {
    match (source, op) {
        (ColumnSource::Time, op) => {
            let operator = match op {
                Operator::GtEq => PlanOperator::GreaterOrEqual,
                Operator::Gt => PlanOperator::Greater,
                Operator::LtEq => PlanOperator::LessOrEqual,
                Operator::Lt => PlanOperator::Less,
                Operator::Eq => PlanOperator::Equal,
                _ => return None,
            };
            Some(Condition::Time(operator, time_ns(value)?))
        }
        (ColumnSource::Label(name), Operator::Eq | Operator::NotEq) => {
            let op = if op == Operator::Eq { MatchOp::Equal } else { MatchOp::NotEqual };
            Some(Condition::Tag(Selector { name: name.clone(), op, values: vec![text(value)?] }))
        }
        _ => None,
    }
}

fn is_time(expression: &Expr, columns: &[TableColumn]) -> bool {
    source(expression, columns) == Some(&ColumnSource::Time)
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

fn text(expression: &Expr) -> Option<String> {
    let Expr::Literal(value, _) = expression else { return None };
    // An empty text is a tag that is not there to a selector, and a text that no tag has to SQL.
    value.try_as_str().flatten().filter(|text| !text.is_empty()).map(str::to_owned)
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
