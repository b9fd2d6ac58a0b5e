//! Numbers of tables in the catalog and their names: `'cpu'::regclass`.

use std::sync::Arc;

use query::{SqlType, Value};
use sqlparser::ast::Expr;

use super::{Binder, Bound, Grouped, Typed};
use crate::error::SqlError;

impl Binder<'_> {
    /// `'cpu'::regclass`: the number of a table.
    pub(super) fn table_number(&mut self, name: &Expr, grouped: Option<&mut Grouped>) -> Result<Typed, SqlError> {
        let typed = self.expression(name, grouped)?;
        let Bound::Constant(Value::Text(text)) = &typed.expression else { return Ok(typed) };
        let number = match text.parse::<i64>() {
            Ok(number) => number,
            Err(_) => self.subqueries.table_number(text)?,
        };
        Ok(Typed::constant(Value::Int(number)))
    }

    /// `c.oid::regclass::text`: the name of a table.
    pub(super) fn table_name(&mut self, number: &Expr, grouped: Option<&mut Grouped>) -> Result<Typed, SqlError> {
        let number = self.table_number(number, grouped)?.expression;
        let answers = Arc::new(self.subqueries.table_names()?);
        Ok(Typed { expression: Bound::Lookup { keys: vec![number], answers }, sql_type: SqlType::Text })
    }
}
