//! Makes a plan read less: conditions on time become the range of the scan below them, and of a table only those fields are read
//! that are used. The last rows by time are a step of their own, which need not read all.

use super::{Condition, Expression, Lowered, MissingTag, Operator, Plan, Scan};

/// An equal plan that reads less.
pub(crate) fn push_down(plan: Plan) -> Plan {
    match plan {
        Plan::Where { input, condition } => narrow(push_down(*input), condition),
        Plan::GroupBy { input, grouping } => {
            let mut input = push_down(*input);
            if let Some(columns) = grouping.columns() {
                read_only(&mut input, &columns);
            }
            Plan::GroupBy { input: Box::new(input), grouping }
        }
        Plan::Map { input, columns } => Plan::Map { input: Box::new(push_down(*input)), columns },
        Plan::Fill { input, width_ns, with } => Plan::Fill { input: Box::new(push_down(*input)), width_ns, with },
        Plan::Order { input, by, descending } => Plan::Order { input: Box::new(push_down(*input)), by, descending },
        Plan::Limit { input, rows, skip: 0 } => match *input {
            Plan::Order { input, by: Expression::Time, descending: true } => {
                Plan::Last { input: Box::new(push_down(*input)), rows }
            }
            input => Plan::Limit { input: Box::new(push_down(input)), rows, skip: 0 },
        },
        Plan::Last { input, rows } => Plan::Last { input: Box::new(push_down(*input)), rows },
        Plan::Limit { input, rows, skip } => Plan::Limit { input: Box::new(push_down(*input)), rows, skip },
        Plan::Join(mut join) => {
            join.left = push_down(join.left);
            join.right = push_down(join.right);
            Plan::Join(join)
        }
        Plan::Union(plans) => Plan::Union(plans.into_iter().map(push_down).collect()),
        Plan::Likeness(likeness) => {
            let Ok(likeness) = likeness.try_map(|plan| Ok::<_, std::convert::Infallible>(push_down(plan)));
            Plan::Likeness(Box::new(likeness))
        }
        Plan::Labelled(mut labelled) => {
            labelled.input = push_down(labelled.input);
            Plan::Labelled(labelled)
        }
        Plan::AsOf(mut as_of) => {
            as_of.input = push_down(as_of.input);
            Plan::AsOf(as_of)
        }
        source @ (Plan::Scan(_) | Plan::View(_)) => source,
    }
}

/// Leaves the fields of a table that are used: by what works on the rows, and by conditions on them.
fn read_only(plan: &mut Plan, columns: &[&str]) {
    match plan {
        // Where every row counts, the executor reads the columns that are grouped.
        Plan::Scan(Scan { table: Some(table), .. })
            if table.fields.is_empty() && !columns.is_empty() && !table.every_row =>
        {
            table.fields = columns.iter().map(|column| (*column).to_owned()).collect();
            table.fields.sort_unstable();
            table.fields.dedup();
        }
        Plan::Where { input, condition } => {
            let mut columns = columns.to_vec();
            if condition.each_column(&mut |column| columns.push(column)) {
                read_only(input, &columns);
            }
        }
        Plan::Labelled(labelled)
            if matches!(labelled.input, Plan::Labelled(_) | Plan::Map { .. }) || is_as_of(&labelled.input) =>
        {
            read_only(&mut labelled.input, columns);
        }
        Plan::Map { input, columns: made } => {
            made.retain(|(name, _)| columns.contains(&name.as_str()));
            let mut columns = Vec::new();
            let is_all = made.iter().all(|(_, of)| of.each_column(&mut |column| columns.push(column)));
            // Elsewhere rows without these columns may count, as what is computed need not be null there.
            if is_all && is_as_of(input) {
                read_fields(input, columns);
            }
        }
        Plan::AsOf(_) => read_fields(plan, columns.to_vec()),
        _ => {}
    }
}

/// Returns whether rows have columns of other tables as of their times, also where a condition leaves some of them.
fn is_as_of(rows: &Plan) -> bool {
    match rows {
        Plan::AsOf(_) => true,
        Plan::Where { input, .. } => is_as_of(input),
        _ => false,
    }
}

/// Leaves the fields of tables whose rows are read as they are, also where every one counts: those that have columns of others as of their times, and
/// these others.
fn read_fields<'a>(plan: &'a mut Plan, mut columns: Vec<&'a str>) {
    match plan {
        Plan::AsOf(as_of) => {
            as_of.columns.retain(|(name, _)| columns.contains(&name.as_str()));
            columns.retain(|column| !as_of.adds(column));
            read_fields(&mut as_of.input, columns);
        }
        Plan::Where { input, condition } => {
            // Otherwise it reads columns that it does not name.
            let has_named_all = condition.each_column(&mut |column| columns.push(column));
            if has_named_all {
                read_fields(input, columns);
            }
        }
        Plan::Scan(Scan { table: Some(table), .. }) if table.fields.is_empty() && !columns.is_empty() => {
            table.fields = columns.into_iter().map(str::to_owned).collect();
            table.fields.sort_unstable();
            table.fields.dedup();
        }
        _ => {}
    }
}

fn narrow(input: Plan, condition: Expression) -> Plan {
    let Plan::Scan(mut scan) = input else {
        return Plan::Where { input: Box::new(input), condition };
    };
    let translate = |condition: &Expression| {
        let of_time = bound(condition).filter(|(operator, ns)| operator.time_range(*ns).is_some());
        let of_fields = || Condition::Fields(condition.clone());
        Some(of_time.map_or_else(of_fields, |(operator, ns)| Condition::Time(operator, ns)))
    };
    Lowered::new(conjuncts(condition), &mut scan, MissingTag::Empty, translate).plan(scan)
}

/// Conditions that must all hold.
fn conjuncts(condition: Expression) -> Vec<Expression> {
    match condition {
        Expression::Apply(Operator::And, of) => of.into_iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

/// A comparison of the time with a number, the time first.
fn bound(condition: &Expression) -> Option<(Operator, i64)> {
    let Expression::Apply(operator, of) = condition else { return None };
    match of.as_slice() {
        [Expression::Time, Expression::Integer(ns)] => Some((*operator, *ns)),
        [Expression::Integer(ns), Expression::Time] => Some((operator.mirrored()?, *ns)),
        _ => None,
    }
}
