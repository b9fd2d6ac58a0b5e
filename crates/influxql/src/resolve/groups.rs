//! Groups of tables that a condition on tags chooses, for `SHOW` and `DELETE`.

use query::plan::{Scan, Selector, TableColumns};
use query::{QueryError, Session, TableGroup, Value};

use crate::resolve::code::condition_code;
use crate::resolve::condition::SplitCondition;
use crate::resolve::lower;
use crate::resolve::names::Schema;
use crate::resolve::selection::{Code, Reference};
use crate::syntax::ast::Expr;
use crate::value::{DataType, InfluxValue};

/// Groups of one table.
pub(crate) struct TableSelection {
    pub(crate) name: String,
    pub(crate) schema: Schema,
    /// The part of the condition that selects series.
    pub(crate) selectors: Vec<Selector>,
    /// True if the condition says more than the selectors.
    pub(crate) filtered: bool,
    pub(crate) groups: Vec<TableGroup>,
}

/// The groups of tables that a condition chooses; tables without any are left out.
pub(crate) fn choose(
    session: &dyn Session,
    database: &str,
    tables: &[String],
    condition: &SplitCondition,
) -> Result<Vec<TableSelection>, QueryError> {
    let mut all = Vec::new();
    for name in tables {
        let Some(table) = session.table(database, name)? else { continue };
        let schema = Schema::from_table(&table);
        let columns = Some(TableColumns { name: name.clone(), fields: Vec::new(), every_row: false });
        let mut scan = Scan { table: columns, selectors: Vec::new(), tokens: Vec::new(), range: condition.range() };
        let rest = lower::lower_tags(condition.rest.as_ref(), &schema, &mut scan);
        let mut groups = session.groups(database, &scan)?;
        let filtered = rest.is_some();
        if let Some(rest) = rest {
            filter(&mut groups, &rest, &schema)?;
        }
        if !groups.is_empty() {
            groups.sort_by(|a, b| a.tags.iter().cmp(b.tags.iter()));
            all.push(TableSelection { name: name.clone(), schema, selectors: scan.selectors, filtered, groups });
        }
    }
    Ok(all)
}

fn filter(groups: &mut Vec<TableGroup>, condition: &Expr, schema: &Schema) -> Result<(), QueryError> {
    let mut references = Vec::new();
    let code = condition_code(condition, &mut references, schema).map_err(QueryError::Invalid)?;
    groups.retain(|group| holds(&code, &references, group));
    Ok(())
}

/// Returns whether a condition holds for a group's tags. What it says of fields is not known, and does not hold.
fn holds(code: &Code, references: &[Reference], group: &TableGroup) -> bool {
    let value = |place: usize| match references.get(place) {
        Some(reference) if reference.data_type == DataType::Tag => {
            Value::from(group.tags.get(&reference.name).unwrap_or_default())
        }
        _ => Value::Null,
    };
    code.value(&|_| Value::Null, &value, true).is_true()
}
