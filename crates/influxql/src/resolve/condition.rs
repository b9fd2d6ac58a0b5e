//! Conditions: what they say of time is taken out, the rest stays.

use jiff::tz::TimeZone;
use model::TimeRange;
use query::plan::Operator as PlanOperator;

use crate::syntax::ast::{Expr, Operator};
use crate::time::{self, TIME_MAX_NS, TIME_MIN_NS};

/// A condition, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SplitCondition {
    /// The condition without its bounds of time.
    pub(crate) rest: Option<Expr>,
    /// No row is earlier; `None`: not said.
    pub(crate) start_ns: Option<i64>,
    /// No row is later; `None`: not said.
    pub(crate) end_ns: Option<i64>,
}

impl SplitCondition {
    /// From here to there, where nothing is said without bounds.
    pub(crate) fn range(&self) -> TimeRange {
        TimeRange::new(self.start_ns.unwrap_or(TIME_MIN_NS), self.end_ns.unwrap_or(TIME_MAX_NS))
    }

    fn limit(&mut self, operator: Operator, time_ns: i64) -> Result<(), String> {
        let Some(compares) = operator.in_plan().filter(|operator| *operator != PlanOperator::NotEqual) else {
            return Err(format!("invalid time comparison operator: {}", operator.written()));
        };
        // Nothing is before the first time of all, nor after the last.
        let range = compares.time_range(time_ns).unwrap_or(TimeRange::new(time_ns, time_ns));
        if range.start_ns != i64::MIN {
            self.start_ns = self.start_ns.max(Some(range.start_ns));
        }
        if range.end_ns != i64::MAX {
            self.end_ns = Some(self.end_ns.map_or(range.end_ns, |known| known.min(range.end_ns)));
        }
        Ok(())
    }
}

/// Takes a condition apart. As InfluxDB does, a time is a bound of the whole selection wherever it stands.
pub(crate) fn split(condition: Option<&Expr>, now_ns: i64, zone: Option<&TimeZone>) -> Result<SplitCondition, String> {
    let mut split = SplitCondition { rest: None, start_ns: None, end_ns: None };
    if let Some(condition) = condition {
        split.rest = rest(condition, now_ns, zone, &mut split)?;
    }
    Ok(split)
}

fn rest(
    expr: &Expr,
    now_ns: i64,
    zone: Option<&TimeZone>,
    bounds: &mut SplitCondition,
) -> Result<Option<Expr>, String> {
    let mut each = |operands: &[Expr], make: fn(Vec<Expr>) -> Expr| -> Result<Option<Expr>, String> {
        let mut kept = Vec::with_capacity(operands.len());
        for operand in operands {
            kept.extend(rest(operand, now_ns, zone, bounds)?);
        }
        Ok(if kept.len() > 1 { Some(make(kept)) } else { kept.pop() })
    };
    match expr {
        Expr::All(operands) => each(operands, Expr::All),
        Expr::Any(operands) => each(operands, Expr::Any),
        Expr::Parentheses(inner) => {
            let kept = rest(inner, now_ns, zone, bounds)?;
            Ok(kept.map(|kept| match kept {
                Expr::All(_) | Expr::Any(_) => Expr::Parentheses(Box::new(kept)),
                kept => kept,
            }))
        }
        Expr::Binary { operator, left, right } if operator.compares() => {
            let (operator, time) = match (is_time(left), is_time(right)) {
                (true, false) => (*operator, right),
                (false, true) => (operator.mirrored(), left),
                _ => return Ok(Some(expr.clone())),
            };
            bounds.limit(operator, moment(time, now_ns, zone)?)?;
            Ok(None)
        }
        Expr::Binary { .. } | Expr::Call { .. } | Expr::Boolean(_) | Expr::Reference { .. } => Ok(Some(expr.clone())),
        _ => Err(format!("invalid condition expression: {expr}")),
    }
}

fn is_time(expr: &Expr) -> bool {
    matches!(expr.bare(), Expr::Reference { name, .. } if name.eq_ignore_ascii_case("time"))
}

/// The moment that an expression says.
fn moment(expr: &Expr, now_ns: i64, zone: Option<&TimeZone>) -> Result<i64, String> {
    match amount(expr, now_ns, zone)? {
        Amount::Moment(time_ns) | Amount::Length(time_ns) => Ok(time_ns),
        Amount::Number(value) => Ok(value as i64),
    }
}

/// The other side of a comparison with `time`.
#[derive(Debug, Clone, Copy)]
enum Amount {
    Moment(i64),
    Length(i64),
    Number(f64),
}

fn amount(expr: &Expr, now_ns: i64, zone: Option<&TimeZone>) -> Result<Amount, String> {
    let bad = || format!("invalid operation: time and {expr} are not compatible");
    match expr.bare() {
        Expr::Text(text) => match time::parse(text, zone) {
            Some(time_ns) => Ok(Amount::Moment(time_ns)),
            None => Err(format!(
                "invalid operation: time and *influxql.StringLiteral are not compatible: {text:?} is no time"
            )),
        },
        Expr::Integer(value) => Ok(Amount::Length(*value)),
        Expr::Number(value) => Ok(Amount::Number(*value)),
        Expr::Duration(length_ns) => Ok(Amount::Length(*length_ns)),
        Expr::Call { name, arguments } if name == "now" && arguments.is_empty() => Ok(Amount::Moment(now_ns)),
        Expr::Binary { operator, left, right } => {
            let (left, right) = (amount(left, now_ns, zone)?, amount(right, now_ns, zone)?);
            combine(*operator, left, right).ok_or_else(bad)
        }
        _ => Err(bad()),
    }
}

fn combine(operator: Operator, left: Amount, right: Amount) -> Option<Amount> {
    match (operator, left, right) {
        (Operator::Add, Amount::Moment(a), Amount::Length(b))
        | (Operator::Add, Amount::Length(a), Amount::Moment(b)) => a.checked_add(b).map(Amount::Moment),
        (Operator::Subtract, Amount::Moment(a), Amount::Length(b)) => a.checked_sub(b).map(Amount::Moment),
        (Operator::Subtract, Amount::Moment(a), Amount::Moment(b))
        | (Operator::Subtract, Amount::Length(a), Amount::Length(b)) => a.checked_sub(b).map(Amount::Length),
        (Operator::Add, Amount::Length(a), Amount::Length(b)) => a.checked_add(b).map(Amount::Length),
        (Operator::Multiply, Amount::Length(a), Amount::Length(b)) => a.checked_mul(b).map(Amount::Length),
        (Operator::Divide, Amount::Length(a), Amount::Length(b)) => a.checked_div(b).map(Amount::Length),
        (Operator::Multiply, Amount::Length(a), Amount::Number(b))
        | (Operator::Multiply, Amount::Number(b), Amount::Length(a)) => Some(Amount::Length((a as f64 * b) as i64)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::syntax::ast::Statement;
    use crate::syntax::parse;

    fn check(condition: &str, expected: &str) {
        let statements = parse(&format!("select a from m where {condition}"), &BTreeMap::new()).unwrap();
        let [Statement::Select(select)] = statements.as_slice() else {
            panic!("not a selection: {condition}");
        };
        let found = match split(select.condition.as_ref(), 1000, None) {
            Ok(SplitCondition { rest, start_ns, end_ns }) => {
                let bound = |time_ns: Option<i64>| time_ns.map_or_else(String::new, |time_ns| time_ns.to_string());
                let rest = rest.map_or_else(String::new, |rest| rest.to_string());
                format!("{rest}|{}..{}", bound(start_ns), bound(end_ns))
            }
            Err(error) => error,
        };
        assert_eq!(found, expected, "{condition}");
    }

    #[test]
    fn times_become_bounds() {
        check("time > 5 and time <= 10", "|6..10");
        check("5 < time and a = 1 and 10 > time", "a = 1|6..9");
        check("(a = 1 or b = 2) and (time >= 5)", "(a = 1 OR b = 2)|5..");
        check("a = 1 or time > 5", "a = 1|6..");
        check("time = 7 and time < 20", "|7..7");
        check("time > now() - 1u - 0s + 5ns", "|6..");
        check("time > 1u * 2", "|2001..");
        check("time > '1970-01-01T00:00:00.00000001Z'", "|11..");
        check("time != 5", "invalid time comparison operator: !=");
        check(
            "time > 'soon'",
            "invalid operation: time and *influxql.StringLiteral are not compatible: \"soon\" is no time",
        );
        check("time > a", "invalid operation: time and a are not compatible");
        check("(a = 1)", "a = 1|..");
    }
}
