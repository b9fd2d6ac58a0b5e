//! `LATEST ON time PARTITION BY tags`: the newest row of each.

use std::collections::HashMap;

use query::plan::{Expression, Plan};
use sqlparser::ast::Expr;

use super::filter::Filter;
use super::from::Table;
use crate::error::SqlError;
use crate::expression::Typed;
use crate::run::Run;
use crate::scope::{Role, Scope};
use crate::value::{SqlType, Value};

impl Run<'_> {
    /// The newest of the rows for which a condition holds, for each value of some columns.
    pub(super) fn latest(
        &mut self,
        table: &Table,
        scope: &Scope,
        condition: Option<Typed>,
        by: &[Expr],
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let mut keys = Vec::with_capacity(by.len());
        for by in by {
            keys.push(self.bind(scope, by)?.expression);
        }
        let is_tag = |key: &crate::expression::Bound| matches!(key, crate::expression::Bound::Column(place) if scope.columns.get(*place).is_some_and(|column| column.role == Role::Tag));
        let mut scan = table.scan();
        let filter = condition.map(|condition| Filter::of(condition.expression, &mut scan, scope)).unwrap_or_default();
        let newest_is_enough = keys.iter().all(is_tag) && filter.is_of_series();
        let plan = if newest_is_enough {
            let input = Box::new(filter.plan(scan));
            let input = Box::new(Plan::Order { input, by: Expression::Time, descending: true });
            Plan::Limit { input, rows: 1, skip: 0 }
        } else {
            filter.plan(scan)
        };
        let frames = self.plan(plan)?;
        let mut rows = self.rows_of_frames(&frames, &table.schema)?;
        for condition in filter.rest {
            rows = self.filtered(rows, Some(&Typed { expression: condition, sql_type: SqlType::Bool }))?;
        }
        // They are in order of time: of each key the last one stays.
        let mut newest: HashMap<Vec<Value>, usize> = HashMap::new();
        for (place, row) in rows.iter().enumerate() {
            let key: Vec<Value> = keys.iter().map(|key| key.value(row, &self.environment)).collect::<Result<_, _>>()?;
            newest.insert(key, place);
        }
        let kept: std::collections::HashSet<usize> = newest.into_values().collect();
        let rows = rows.into_iter().enumerate().filter(|(place, _)| kept.contains(place));
        Ok(rows.map(|(_, row)| row).collect())
    }
}
