//! `row_number() OVER (PARTITION BY … ORDER BY …)`: clients number the columns of tables with it.

use std::collections::HashMap;

use query::{SqlType, Value};
use sqlparser::ast::{Expr, Function, Select, SelectItem, WindowSpec, WindowType};

use crate::error::{SqlError, unsupported};
use crate::expression::Bound;
use crate::run::Run;
use crate::scope::{Role, Scope, ScopeColumn};
use crate::select::order::{Order, sort};

/// The hidden column with the values of a call.
pub(crate) fn column_name(call: &Function) -> String {
    format!("#{call}")
}

/// The calls of window functions that a SELECT shows.
pub(super) fn window_calls(select: &Select) -> Vec<&Function> {
    let call = |item| match item {
        &SelectItem::UnnamedExpr(Expr::Function(ref call))
        | &SelectItem::ExprWithAlias { expr: Expr::Function(ref call), .. } => Some(call),
        _ => None,
    };
    select.projection.iter().filter_map(call).filter(|call| call.over.is_some()).collect()
}

impl Run<'_> {
    /// Adds a hidden column for each call to rows and their scope.
    pub(super) fn windows(
        &mut self,
        calls: &[&Function],
        mut rows: Vec<Vec<Value>>,
        scope: &mut Scope,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        self.charge(rows.len() * calls.len())?;
        for call in calls {
            let name = call.name.to_string().to_lowercase();
            let Some(WindowType::WindowSpec(window)) = &call.over else { return unsupported("named windows") };
            if name.rsplit('.').next() != Some("row_number") || window.window_frame.is_some() {
                return unsupported(format!("the window function {name}(…) OVER"));
            }
            rows = self.numbered(window, rows, scope)?;
            scope.columns.push(ScopeColumn {
                qualifier: None,
                name: column_name(call),
                sql_type: SqlType::Int,
                role: Role::Other,
                is_hidden: true,
                shown_at: 0,
                needs_table: false,
            });
        }
        Ok(rows)
    }

    /// Rows, each with its number in its partition as its last value. They come in the order of the numbers.
    fn numbered(
        &mut self,
        window: &WindowSpec,
        rows: Vec<Vec<Value>>,
        scope: &Scope,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let mut keys = Vec::with_capacity(window.partition_by.len());
        for expression in &window.partition_by {
            keys.push(self.bind(scope, expression)?.expression);
        }
        let mut orders = Vec::with_capacity(window.order_by.len());
        for by in &window.order_by {
            orders.push(Order::new(self.bind(scope, &by.expr)?.expression, &by.options));
        }
        let mut rows = sort(rows, &orders, &self.environment, &|samples| self.charge(samples))?;
        let mut counts: HashMap<Vec<Value>, i64> = HashMap::new();
        for row in &mut rows {
            let key = keys.iter().map(|key: &Bound| key.value(row, &self.environment)).collect::<Result<_, _>>()?;
            let count = counts.entry(key).or_default();
            *count += 1;
            row.push(Value::Int(*count));
        }
        Ok(rows)
    }
}
