//! `EXPLAIN`: what a selection becomes.

use query::{QueryError, Session, Value};

use crate::answer::{Answer, Series};
use crate::resolve::{From, Resolved};
use crate::{plan_aggregates, scan, select};

/// The plans of a selection and of those in it, one a line; with `analyze` also what running it gave.
pub(crate) fn explain(session: &dyn Session, of: &Resolved, analyze: bool) -> Result<Answer, QueryError> {
    let mut lines = Vec::new();
    describe(session, of, 0, &mut lines)?;
    if analyze {
        let rows = select::rows(session, of)?;
        let count: usize = rows.iter().map(|series| series.rows.len()).sum();
        lines.push(format!("SERIES: {}", rows.len()));
        lines.push(format!("ROWS: {count}"));
        let reads = session.reads();
        lines.push(format!("READ: groups={} samples={} nodes={}", reads.groups, reads.samples, reads.nodes));
        lines.extend(reads.cached_bins.summary().map(|told| format!("BINS: {told}")));
    }
    let rows = lines.iter().map(|line| vec![Value::from(line.as_str())]).collect();
    Ok(Answer { series: vec![Series::list("", &["QUERY PLAN"], rows)], messages: Vec::new() })
}

fn describe(session: &dyn Session, of: &Resolved, depth: usize, lines: &mut Vec<String>) -> Result<(), QueryError> {
    let indent = "  ".repeat(depth);
    if let Some(plans) = plan_aggregates::plans(session, of)? {
        lines.extend(plans.iter().map(|(_, name, plan)| format!("{indent}AGGREGATES OF {name}: {plan}")));
        return Ok(());
    }
    for source in &of.sources {
        match source {
            From::Table { name, schema, .. } => {
                let Some((plan, rest)) = scan::table_plan(of, name, schema) else { continue };
                let rest = rest.map_or_else(String::new, |rest| format!(", THEN ROW BY ROW: {rest}"));
                lines.push(format!("{indent}ROWS OF {name}: {plan}{rest}"));
            }
            From::Subquery(inner) => {
                lines.push(format!("{indent}SUBQUERY:"));
                describe(session, inner, depth + 1, lines)?;
            }
        }
    }
    Ok(())
}
