//! Conditions become part of the plan where they can: those on tags select series, those on fields are tried column by column.

use model::MatchOp;
use query::plan::{Condition, Expression, Lowered, MissingTag, Operator as PlanOperator, Scan, Selector};

use crate::resolve::names::Schema;
use crate::syntax::ast::{Expr, Operator};
use crate::value::DataType;

/// Takes a condition on a table's rows apart, as far as the scan and the plan can have it.
pub(crate) fn lower(condition: Option<&Expr>, schema: &Schema, scan: &mut Scan) -> Lowered<Expr> {
    Lowered::new(conjuncts(condition), scan, MissingTag::Empty, |condition| translated(condition, schema))
}

/// Takes what selects series out of a condition; the rest may be of tags and fields.
pub(crate) fn lower_tags(condition: Option<&Expr>, schema: &Schema, scan: &mut Scan) -> Option<Expr> {
    let of_tags = |condition: &Condition| condition.selector().is_some();
    let translate = |condition: &Expr| translated(condition, schema).filter(of_tags);
    joined(Lowered::new(conjuncts(condition), scan, MissingTag::Empty, translate).rest)
}

/// Conditions that must all hold, as one.
pub(crate) fn joined(mut conditions: Vec<Expr>) -> Option<Expr> {
    if conditions.len() > 1 { Some(Expr::All(conditions)) } else { conditions.pop() }
}

fn conjuncts(condition: Option<&Expr>) -> Vec<Expr> {
    match condition.map(Expr::bare) {
        None => Vec::new(),
        Some(Expr::All(operands)) => operands.iter().flat_map(|operand| conjuncts(Some(operand))).collect(),
        Some(other) => vec![other.clone()],
    }
}

/// The condition as scans and plans have it, if it means the same there.
fn translated(expr: &Expr, schema: &Schema) -> Option<Condition> {
    let each = |all: &[Expr]| all.iter().map(|operand| translated(operand, schema)).collect::<Option<Vec<_>>>();
    match expr.bare() {
        Expr::All(operands) => Some(Condition::All(each(operands)?)),
        Expr::Any(operands) => Some(Condition::Any(each(operands)?)),
        Expr::Binary { operator, left, right } => {
            let selector = selector(*operator, left.bare(), right.bare(), schema).map(Condition::Tag);
            selector.or_else(|| compared(*operator, left, right, schema).map(Condition::Fields))
        }
        _ => None,
    }
}

/// A condition on one tag.
fn selector(operator: Operator, left: &Expr, right: &Expr, schema: &Schema) -> Option<Selector> {
    let ((Expr::Reference { name, cast }, value) | (value, Expr::Reference { name, cast })) = (left, right) else {
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

/// A pattern that matches whole texts in which the given one matches some part.
fn anywhere(pattern: &str) -> String {
    let inner = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$'));
    match inner.filter(|inner| is_one_piece(inner)) {
        Some(inner) => inner.to_owned(),
        None => format!("(?s:.*)(?:{pattern})(?s:.*)"),
    }
}

/// Returns whether anchors around a pattern hold for all of it: no alternative stands outside of a group.
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

/// A comparison of fields and values of one kind.
fn compared(operator: Operator, left: &Expr, right: &Expr, schema: &Schema) -> Option<Expression> {
    let operator = operator.in_plan()?;
    let ((left, left_kind), (right, right_kind)) = (operand(left, schema)?, operand(right, schema)?);
    let alike = left_kind == right_kind || left_kind.is_number() && right_kind.is_number();
    alike.then(|| Expression::Apply(operator, vec![left, right]))
}

impl Operator {
    /// The plan's operator that compares in the same way.
    pub(crate) const fn in_plan(self) -> Option<PlanOperator> {
        match self {
            Self::Equal => Some(PlanOperator::Equal),
            Self::NotEqual => Some(PlanOperator::NotEqual),
            Self::Less => Some(PlanOperator::Less),
            Self::LessOrEqual => Some(PlanOperator::LessOrEqual),
            Self::Greater => Some(PlanOperator::Greater),
            Self::GreaterOrEqual => Some(PlanOperator::GreaterOrEqual),
            _ => None,
        }
    }
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
        let mut scan = Scan::of_table("m");
        let lowered = lower(select.condition.as_ref(), &schema, &mut scan);
        let mut found: Vec<String> = scan.selectors.iter().map(|selector| selector.matcher().to_string()).collect();
        found.extend(lowered.conditions.iter().map(|condition| format!("plan: {condition}")));
        found.extend(joined(lowered.rest).map(|rest| format!("rows: {rest}")));
        assert_eq!(found.join(" "), expected, "{condition}");
    }

    #[test]
    fn tags_select_series() {
        check("h = 'a' and (r != 'b')", r#"h="a" r!="b""#);
        check("(h = 'a' or h = 'b' or 'c' = h) and f > 1", r#"h=~"a|b|c" plan: (> (column "f") 1)"#);
        check("h = 'a' or r = 'b'", "rows: h = 'a' OR r = 'b'");
        check("h =~ /a.c/ and r !~ /^x$/", r#"h=~"(?s:.*)(?:a.c)(?s:.*)" r!~"x""#);
        check("h =~ /^(a|b)$/ and r =~ /^a|b$/", r#"h=~"(a|b)" r=~"(?s:.*)(?:^a|b$)(?s:.*)""#);
        check(
            "f > 1 and (f < 5 or f = 7)",
            r#"plan: (> (column "f") 1) plan: (or (< (column "f") 5) (= (column "f") 7))"#,
        );
        check("f / 2 > 1", "rows: f / 2 > 1");
        check("f = 'x'", "rows: f = 'x'");
        check("other = 'x'", r#"other="x""#);
    }
}
