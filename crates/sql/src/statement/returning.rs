//! `INSERT … RETURNING …`

use query::{SqlType, Value};
use sqlparser::ast::SelectItem;

use super::insert::Target;
use crate::error::SqlError;
use crate::pending::Kind;
use crate::relation::Relation;
use crate::run::Run;
use crate::scope::{Role, Scope, ScopeColumn};

impl Run<'_> {
    /// The rows that were written, as RETURNING shows them.
    pub(super) fn returning(
        &mut self,
        items: &[SelectItem],
        target: &Target,
        rows: Vec<Vec<Value>>,
    ) -> Result<Relation, SqlError> {
        let mut scope = match &target.schema {
            Some(schema) => self.scope(schema, &target.table),
            None => Scope::default(),
        };
        // A column of the scope for each of the target; new ones follow those of the table.
        let mut indexes = Vec::with_capacity(target.columns.len());
        for (index, (name, kind)) in target.columns.iter().zip(&target.kinds).enumerate() {
            let is_same = |column: &ScopeColumn| match kind {
                Kind::Time => column.role == Role::Time,
                _ => column.name == *name,
            };
            let found = scope.columns.iter().position(is_same);
            indexes.push(found.unwrap_or(scope.columns.len()));
            if found.is_none() {
                scope.columns.push(new_column(target, index, &rows));
            }
        }
        let width = scope.columns.len();
        let row = |row: Vec<Value>| {
            let mut shown = vec![Value::Null; width];
            for (index, value) in indexes.iter().zip(row) {
                if let Some(cell) = shown.get_mut(*index) {
                    *cell = value;
                }
            }
            shown
        };
        self.projected(items, &scope, rows.into_iter().map(row).collect())
    }
}

fn new_column(target: &Target, index: usize, rows: &[Vec<Value>]) -> ScopeColumn {
    let is_time = target.kinds.get(index) == Some(&Kind::Time);
    let values = rows.iter().filter_map(|row| row.get(index));
    let sql_type = values.fold(SqlType::Unknown, |known, value| known.unified(value.sql_type()));
    ScopeColumn {
        qualifier: Some(target.table.clone()),
        name: target.columns.get(index).cloned().unwrap_or_default(),
        sql_type: if is_time { SqlType::Timestamp } else { sql_type },
        role: if is_time { Role::Time } else { Role::Other },
        is_hidden: false,
        shown_at: usize::MAX,
        needs_table: false,
    }
}
