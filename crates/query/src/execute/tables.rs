//! Groups of tables by their names and tags, without their rows.

use index::compile;
use model::Matcher;
use store::SelectedGroup;

use super::Context;
use crate::QueryError;
use crate::plan::{Scan, Selector};
use crate::series::selection;

/// The groups of a scan's table that may have rows in its range; none if it names no table.
pub(crate) fn table_groups(scan: &Scan, context: &Context<'_>) -> Result<Vec<SelectedGroup>, QueryError> {
    let Some(table) = &scan.table else { return Ok(Vec::new()) };
    let matchers: Vec<Matcher> = scan.selectors.iter().map(Selector::matcher).collect();
    let compiled = compile(&matchers)?;
    let (database, fields) = (context.database, table.fields.as_slice());
    let wanted = store::TableSelection { database, table: &table.name, fields, matchers: &compiled };
    let selected = selection::select_table(context.store, &wanted, context.budget)?;
    let mut found = Vec::new();
    for group in selected.iter() {
        context.budget.check()?;
        if context.store.has_rows(group, &scan.range)? {
            found.push(group.clone());
        }
    }
    Ok(found)
}
