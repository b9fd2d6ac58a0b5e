//! Conditions become part of the plan where they can: those on tags select series, those on fields are tried column by column.

use model::MatchOp;
use query::plan::{Expression, Operator as PlanOperator, Selector};

use crate::names::Schema;
use crate::syntax::ast::{Expr, Operator};
use crate::value::DataType;

/// What of a condition selects series, and what rows must satisfy besides.
pub(crate) fn selectors(condition: Option<&Expr>, schema: &Schema) -> (Vec<Selector>, Option<Expr>) {
    let (mut selectors, mut rest) = (Vec::new(), Vec::new());
    if let Some(condition) = condition {
        conjuncts(condition, &mut |conjunct| match selector(conjunct, schema) {
            Some(selector) => selectors.push(selector),
            None => rest.push(conjunct.clone()),
        });
    }
    let rest = if rest.len() > 1 { Some(Expr::All(rest)) } else { rest.pop() };
    (selectors, rest)
}

fn conjuncts<'e>(expr: &'e Expr, visit: &mut impl FnMut(&'e Expr)) {
    match expr.bare() {
        Expr::All(operands) => operands.iter().for_each(|operand| conjuncts(operand, visit)),
        other => visit(other),
    }
}

/// A condition on one tag.
fn selector(expr: &Expr, schema: &Schema) -> Option<Selector> {
    match expr.bare() {
        Expr::Any(operands) => {
            let mut all: Option<Selector> = None;
            for operand in operands {
                let next = selector(operand, schema).filter(|next| next.op == MatchOp::Equal)?;
                match &mut all {
                    None => all = Some(next),
                    Some(all) if all.name == next.name => all.values.extend(next.values),
                    Some(_) => return None,
                }
            }
            all
        }
        Expr::Binary { operator, left, right } => {
            let (Expr::Reference { name, cast }, value) = (match (left.bare(), right.bare()) {
                (reference @ Expr::Reference { .. }, value) | (value, reference @ Expr::Reference { .. }) => {
                    (reference, value)
                }
                _ => return None,
            }) else {
                return None;
            };
            if !matches!(schema.type_of(name, *cast), DataType::Tag | DataType::Unknown) {
                return None;
            }
            let (op, value) = match (operator, value) {
                (Operator::Equal, Expr::Text(text)) => (MatchOp::Equal, text.clone()),
                (Operator::NotEqual, Expr::Text(text)) => (MatchOp::NotEqual, text.clone()),
                (Operator::Matches, Expr::Pattern(pattern)) => (MatchOp::Regex, anywhere(pattern)),
                (Operator::MatchesNot, Expr::Pattern(pattern)) => (MatchOp::NotRegex, anywhere(pattern)),
                _ => return None,
            };
            Some(Selector { name: name.clone(), op, values: vec![value] })
        }
        _ => None,
    }
}

/// A pattern that matches whole texts in which the given one matches some part.
fn anywhere(pattern: &str) -> String {
    let inner = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$'));
    match inner.filter(|inner| is_one_piece(inner)) {
        Some(inner) => inner.to_owned(),
        None => format!("(?s:.*)(?:{pattern})(?s:.*)"),
    }
}

/// Whether anchors around a pattern hold for all of it: no alternative stands outside of a group.
fn is_one_piece(pattern: &str) -> bool {
    let mut depth = 0i32;
    for character in pattern.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            '\\' | '[' => return false,
            '|' if depth == 0 => return false,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    true
}

/// The condition as an expression of the plan, if it means the same there.
pub(crate) fn expression(expr: &Expr, schema: &Schema) -> Option<Expression> {
    match expr.bare() {
        Expr::All(operands) => Some(Expression::Apply(PlanOperator::And, each(operands, schema)?)),
        Expr::Any(operands) => Some(Expression::Apply(PlanOperator::Or, each(operands, schema)?)),
        Expr::Binary { operator, left, right } if operator.compares() => {
            let ((left, left_kind), (right, right_kind)) = (operand(left, schema)?, operand(right, schema)?);
            let alike = left_kind == right_kind || left_kind.is_number() && right_kind.is_number();
            let operator = match operator {
                Operator::Equal => PlanOperator::Equal,
                Operator::NotEqual => PlanOperator::NotEqual,
                Operator::Less => PlanOperator::Less,
                Operator::LessOrEqual => PlanOperator::LessOrEqual,
                Operator::Greater => PlanOperator::Greater,
                Operator::GreaterOrEqual => PlanOperator::GreaterOrEqual,
                _ => return None,
            };
            alike.then(|| Expression::Apply(operator, vec![left, right]))
        }
        _ => None,
    }
}

fn each(operands: &[Expr], schema: &Schema) -> Option<Vec<Expression>> {
    operands.iter().map(|operand| expression(operand, schema)).collect()
}

fn operand(expr: &Expr, schema: &Schema) -> Option<(Expression, DataType)> {
    match expr.bare() {
        Expr::Reference { name, cast: None } => {
            let kind = schema.fields.get(name).copied()?;
            Some((Expression::Column(name.clone()), kind))
        }
        Expr::Number(value) => Some((Expression::Float(*value), DataType::Float)),
        Expr::Integer(value) => Some((Expression::Integer(*value), DataType::Integer)),
        Expr::Text(text) => Some((Expression::Text(text.clone()), DataType::Text)),
        Expr::Boolean(value) => Some((Expression::Bool(*value), DataType::Boolean)),
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
        let mut schema = Schema::default();
        schema.tags.extend(["h".to_owned(), "r".to_owned()]);
        schema.add_field("f", DataType::Float);
        let (selectors, rest) = selectors(select.condition.as_ref(), &schema);
        let mut found: Vec<String> = selectors.iter().map(|selector| selector.matcher().to_string()).collect();
        found.extend(rest.map(|rest| {
            let lowered = if expression(&rest, &schema).is_some() { "plan" } else { "rows" };
            format!("{lowered}: {rest}")
        }));
        assert_eq!(found.join(" "), expected, "{condition}");
    }

    #[test]
    fn tags_select_series() {
        check("h = 'a' and (r != 'b')", r#"h="a" r!="b""#);
        check("(h = 'a' or h = 'b' or 'c' = h) and f > 1", r#"h=~"a|b|c" plan: f > 1"#);
        check("h = 'a' or r = 'b'", "rows: h = 'a' OR r = 'b'");
        check("h =~ /a.c/ and r !~ /^x$/", r#"h=~"(?s:.*)(?:a.c)(?s:.*)" r!~"x""#);
        check("h =~ /^(a|b)$/ and r =~ /^a|b$/", r#"h=~"(a|b)" r=~"(?s:.*)(?:^a|b$)(?s:.*)""#);
        check("f > 1 and (f < 5 or f = 7)", "plan: f > 1 AND f < 5 OR f = 7");
        check("f / 2 > 1", "rows: f / 2 > 1");
        check("f = 'x'", "rows: f = 'x'");
        check("other = 'x'", r#"other="x""#);
    }
}
