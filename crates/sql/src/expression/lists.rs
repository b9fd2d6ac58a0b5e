//! Membership: `IN (…)`, `= ANY (array)`, `<> ALL (array)`.

use query::Value;
use sqlparser::ast::{Expr, Query};

use super::arrays::{CONTAINS, items};
use super::build::{apply, negated, times_alike};
use super::{Binder, Bound, Grouped, ParameterType, Typed, cast};
use crate::error::SqlError;

impl Binder<'_> {
    /// `IN (…)`
    pub(super) fn in_list(
        &mut self,
        expression: &Expr,
        list: &[Expr],
        is_negated: bool,
        mut grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        let operand = self.expression(expression, grouped.as_deref_mut())?;
        let items = list.iter().map(|item| self.expression(item, grouped.as_deref_mut()));
        let items = items.collect::<Result<Vec<Typed>, SqlError>>()?;
        for item in list {
            self.note(item, operand.sql_type);
        }
        if let Some(first) = items.first() {
            self.note(expression, first.sql_type);
        }
        let mut compared: Vec<Typed> = items.into_iter().chain([operand]).collect();
        times_alike(&mut compared, self.environment);
        let Some(operand) = compared.pop() else { return Ok(Typed::boolean(Bound::Constant(Value::Null))) };
        let list = compared.into_iter().map(|item| item.expression).collect();
        Ok(Typed::boolean(Bound::In { operand: Box::new(operand.expression), list, is_negated }))
    }

    /// `= ANY (array)`, or `<> ALL (array)`.
    pub(super) fn in_array(
        &mut self,
        expression: &Expr,
        array: &Expr,
        is_negated: bool,
        mut grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        match array {
            Expr::Nested(nested) => return self.in_array(expression, nested, is_negated, grouped),
            Expr::Array(array) => return self.in_list(expression, &array.elem, is_negated, grouped),
            Expr::Subquery(query) => return self.in_query(expression, query, is_negated, grouped),
            _ => {}
        }
        let operand = self.expression(expression, grouped.as_deref_mut())?;
        self.note_kind(array, ParameterType::array(operand.sql_type));
        let array = self.expression(array, grouped)?;
        if !array.expression.is_constant() {
            let found = apply(&CONTAINS, vec![array, operand])?;
            return Ok(if is_negated { negated(found) } else { found });
        }
        let values = match array.expression.value(&[], self.environment)? {
            Value::Null => return Ok(Typed::boolean(Bound::Constant(Value::Null))),
            array => items(&array),
        };
        let list = values.into_iter().map(|item| Ok(Bound::Constant(cast(item, operand.sql_type, self.environment)?)));
        let list = list.collect::<Result<_, SqlError>>()?;
        Ok(Typed::boolean(Bound::In { operand: Box::new(operand.expression), list, is_negated }))
    }

    /// `IN (SELECT …)`
    pub(super) fn in_query(
        &mut self,
        expression: &Expr,
        query: &Query,
        is_negated: bool,
        grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        let operand = self.expression(expression, grouped)?;
        let relation = self.subqueries.rows(query)?;
        if let Some(column) = relation.columns.first() {
            self.note(expression, column.sql_type);
        }
        let list = relation.rows.into_iter().filter_map(|row| row.into_iter().next()).map(Bound::Constant).collect();
        Ok(Typed::boolean(Bound::In { operand: Box::new(operand.expression), list, is_negated }))
    }
}
