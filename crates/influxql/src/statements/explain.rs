//! `EXPLAIN`: what a selection becomes.

use query::{QueryError, Session, Value};

use crate::resolve::selection::{From, Resolved};
use crate::select;
use crate::select::plan_aggregates;
use crate::select::scan;
use crate::statements::answer::{Answer, Series};

/// The plans of a selection and of those in it, one a line; with `analyze` also what running it gave.
pub(crate) fn explain(session: &dyn Session, selection: &Resolved, analyze: bool) -> Result<Answer, QueryError> {
    let mut lines = Vec::new();
    describe(session, selection, 0, &mut lines)?;
    if analyze {
        let rows = select::rows(session, selection)?;
        let count: usize = rows.iter().map(|series| series.rows.len()).sum();
        lines.push(format!("SERIES: {}", rows.len()));
        lines.push(format!("ROWS: {count}"));
        let reads = session.reads();
        lines.push(format!("READ: groups={} samples={} nodes={}", reads.groups, reads.samples, reads.nodes));
        lines.extend(reads.cached_bins.summary().map(|summary| format!("BINS: {summary}")));
    }
    let rows = lines.iter().map(|line| vec![Value::from(line.as_str())]).collect();
    Ok(Answer { series: vec![Series::list("", &["QUERY PLAN"], rows)], messages: Vec::new() })
}

fn describe(
    session: &dyn Session,
    selection: &Resolved,
    depth: usize,
    lines: &mut Vec<String>,
) -> Result<(), QueryError> {
    let indent = "  ".repeat(depth);
    if let Some(plans) = plan_aggregates::plans(session, selection)? {
        for (database, name, plan) in &plans {
            // With the views that answer it.
            let plan = session.expanded(database, plan)?;
            lines.push(format!("{indent}AGGREGATES OF {name}: {plan}"));
        }
        return Ok(());
    }
    for source in &selection.sources {
        match source {
            From::Table { name, schema, .. } => {
                let Some((plan, rest)) = scan::table_plan(selection, name, schema) else { continue };
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
