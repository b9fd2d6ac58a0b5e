//! Groups of tables by their names and tags, without their rows.

use index::compile;
use model::Matcher;
use store::{NameKind, SelectedGroup};

use super::Context;
use crate::QueryError;
use crate::plan::{Scan, Selector};
use crate::series::names::NamesOf;
use crate::series::regular::RegularSource;
use crate::series::selection;

/// The values that a tag has in a scan's table and range, sorted, from the index: whether a series has rows in the range is judged by whole chunks,
/// for very many series by whole parts.
pub(crate) fn tag_values(scan: &Scan, tag: &str, context: &Context<'_>) -> Result<Vec<String>, QueryError> {
    let Some(table) = &scan.table else { return Ok(Vec::new()) };
    let matchers: Vec<Matcher> = scan.selectors.iter().map(Selector::matcher).collect();
    if let Some(source) = RegularSource::of_database(context.store, context.database) {
        if table.name != context.database {
            return Ok(Vec::new());
        }
        return source.label_texts(NameKind::Values(tag), &matchers, (&scan.range, false), context.budget);
    }
    let Context { store, database, helpers, .. } = *context;
    let within = NamesOf { store, database, table: Some(&table.name), helpers };
    within.find(NameKind::Values(tag), &[matchers], scan.range, context.budget)
}

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
