//! `LATEST ON time PARTITION BY tags`: the newest row of each.

use std::collections::{HashMap, HashSet};

use query::{ResultRows, Value};
use sqlparser::ast::Expr;

use super::Rows;
use super::filter::lower;
use super::from::Table;
use crate::error::SqlError;
use crate::expression::{Bound, Typed};
use crate::run::Run;
use crate::scope::{Role, Scope};
use crate::select::table_rows::{shape_of, width_of};

impl Run<'_> {
    /// The newest of the rows for which a condition holds, for each value of some columns.
    pub(super) fn latest(
        &mut self,
        table: &Table,
        scope: &Scope,
        condition: Option<Typed>,
        by: &[Expr],
    ) -> Result<Rows, SqlError> {
        let mut keys = Vec::with_capacity(by.len());
        for by in by {
            keys.push(self.bind(scope, by)?.expression);
        }
        let is_tag = |key: &Bound| {
            let column = key.column().and_then(|place| scope.columns.get(place));
            column.is_some_and(|column| column.role == Role::Tag)
        };
        let mut scan = table.scan();
        let filter = condition.map(|condition| lower(condition.expression, &mut scan, scope)).unwrap_or_default();
        let newest_is_enough = keys.iter().all(is_tag) && filter.is_in_scan();
        let rows = if newest_is_enough {
            let last = self.last_rows(scan)?;
            self.charge(last.rows.len() * width_of(&table.schema))?;
            Rows::Read(ResultRows::of_last(last, shape_of(&table.schema)).in_time_order())
        } else {
            let frames = self.plan(filter.plan(scan))?;
            self.rows_of_frames(frames, &table.schema, filter.rest)?
        };
        // Rows are in order of time: of each key the last one stays.
        match rows {
            Rows::Read(mut read) if keys.iter().all(is_tag) => {
                let columns: Vec<usize> = keys.iter().filter_map(Bound::column).collect();
                read.keep_newest(&columns);
                Ok(Rows::Read(read))
            }
            rows => {
                let rows = rows.made();
                let mut newest: HashMap<Vec<Value>, usize> = HashMap::new();
                for (place, row) in rows.iter().enumerate() {
                    let key = keys.iter().map(|key| key.value(row, &self.environment));
                    newest.insert(key.collect::<Result<_, _>>()?, place);
                }
                let kept: HashSet<usize> = newest.into_values().collect();
                let rows = rows.into_iter().enumerate().filter(|(place, _)| kept.contains(place));
                Ok(Rows::Made(rows.map(|(_, row)| row).collect()))
            }
        }
    }
}
