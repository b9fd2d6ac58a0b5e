//! `LATEST ON time PARTITION BY tags`: the newest row of each.

use std::collections::{HashMap, HashSet};

use query::{ResultRows, SqlType, Value};
use sqlparser::ast::Expr;

use super::Rows;
use super::filter::lower;
use super::from::Table;
use crate::error::{SqlError, invalid};
use crate::expression::{Bound, Typed};
use crate::run::Run;
use crate::scope::{Role, Scope, ScopeColumn};
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
            rows => Ok(Rows::Made(self.last_by(rows.made(), &keys)?)),
        }
    }

    /// The newest of rows that are no table's, for each value of some columns.
    pub(super) fn latest_of_rows(
        &mut self,
        mut rows: Vec<Vec<Value>>,
        scope: &Scope,
        by: &[Expr],
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let keys = by.iter().map(|by| Ok(self.bind(scope, by)?.expression)).collect::<Result<Vec<_>, SqlError>>()?;
        let is_time = |column: &ScopeColumn| matches!(column.sql_type, SqlType::Timestamp | SqlType::LocalTimestamp);
        let time = scope.columns.iter().position(|column| column.role == Role::Time);
        let Some(time) = time.or_else(|| scope.columns.iter().position(is_time)) else {
            return invalid("LATEST ON is of rows with a column of time");
        };
        rows.sort_by_key(|row| row.get(time).and_then(Value::time_ns));
        self.last_by(rows, &keys)
    }

    /// Of rows in order of time the last one of each value of some keys.
    fn last_by(&self, rows: Vec<Vec<Value>>, keys: &[Bound]) -> Result<Vec<Vec<Value>>, SqlError> {
        let mut newest: HashMap<Vec<Value>, usize> = HashMap::new();
        for (place, row) in rows.iter().enumerate() {
            let key = keys.iter().map(|key| key.value(row, &self.environment));
            newest.insert(key.collect::<Result<_, _>>()?, place);
        }
        let kept: HashSet<usize> = newest.into_values().collect();
        let rows = rows.into_iter().enumerate().filter(|(place, _)| kept.contains(place));
        Ok(rows.map(|(_, row)| row).collect())
    }
}
