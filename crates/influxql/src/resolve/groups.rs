//! Groups of tables that a condition on tags chooses, for `SHOW` and `DELETE`.

use std::collections::BTreeSet;

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
        let Some(scan) = TableScan::new(session, database, name, condition)? else { continue };
        let filtered = scan.rest.is_some();
        let mut groups = scan.groups(session, database)?;
        if !groups.is_empty() {
            groups.sort_by(|a, b| a.tags.iter().cmp(b.tags.iter()));
            let TableScan { schema, scan, .. } = scan;
            all.push(TableSelection { name: name.clone(), schema, selectors: scan.selectors, filtered, groups });
        }
    }
    Ok(all)
}

/// The columns and conditions by which groups of a table are chosen.
pub(crate) struct TableScan {
    schema: Schema,
    scan: Scan,
    /// What the condition says beside the scan's selectors.
    rest: Option<Expr>,
}

impl TableScan {
    /// That of a table; `None` if there is no such table.
    pub(crate) fn new(
        session: &dyn Session,
        database: &str,
        name: &str,
        condition: &SplitCondition,
    ) -> Result<Option<Self>, QueryError> {
        let Some(table) = session.table(database, name)? else { return Ok(None) };
        let schema = Schema::from_table(&table);
        let columns = Some(TableColumns { name: name.to_owned(), fields: Vec::new(), every_row: false });
        let mut scan = Scan { table: columns, selectors: Vec::new(), tokens: Vec::new(), range: condition.range() };
        let rest = lower::lower_tags(condition.rest.as_ref(), &schema, &mut scan);
        Ok(Some(Self { schema, scan, rest }))
    }

    fn groups(&self, session: &dyn Session, database: &str) -> Result<Vec<TableGroup>, QueryError> {
        let mut groups = session.groups(database, &self.scan)?;
        if let Some(rest) = &self.rest {
            filter(&mut groups, rest, &self.schema)?;
        }
        Ok(groups)
    }

    /// Pairs of tags, as far as they are wanted, and the values that they have, sorted: from the index alone where selectors say all that the
    /// condition does.
    pub(crate) fn tag_values(
        &self,
        session: &dyn Session,
        database: &str,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<BTreeSet<(String, String)>, QueryError> {
        let mut pairs = BTreeSet::new();
        if self.rest.is_none() {
            for tag in self.schema.tags.iter().filter(|tag| wanted(tag)) {
                let values = session.tag_values(database, &self.scan, tag)?;
                pairs.extend(values.into_iter().map(|value| (tag.clone(), value)));
            }
            return Ok(pairs);
        }
        for group in self.groups(session, database)? {
            let tags = group.tags.iter().filter(|(tag, _)| wanted(tag));
            pairs.extend(tags.map(|(tag, value)| (tag.to_owned(), value.to_owned())));
        }
        Ok(pairs)
    }
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
