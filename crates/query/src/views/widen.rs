//! Columns that are added to a view, and what is computed of these alone.

use std::collections::BTreeSet;

use model::ValueType;

use super::validate::is_partial;
use super::{View, ViewDefinition, as_of, mapped};
use crate::QueryError;
use crate::plan::{Expression, Grouping, Plan};

impl ViewDefinition {
    /// Returns whether another definition has columns that this one does not have, or has with another type.
    pub fn lacks_columns_of(&self, other: &Self) -> bool {
        other.fields.iter().any(|field| !self.fields.contains(field))
    }

    /// This view with the columns besides that another definition has, and their names: of the same windows, groups and rows.
    ///
    /// # Errors
    /// If the definitions differ in more than that.
    pub fn widened(&self, wider: &Self) -> Result<(Self, Vec<String>), QueryError> {
        let differs = |what: &str| {
            Err(QueryError::Invalid(format!(
                "the view {:?} with the column would have other {what} than it has: make another view",
                self.name
            )))
        };
        let (Some(own), Some(wide)) = (self.grouping(), wider.grouping()) else { return differs("groups") };
        if self.windows != wider.windows || self.time_name != wider.time_name {
            return differs("windows");
        }
        let without_aggregates = |grouping: &Grouping| Grouping { aggregates: Vec::new(), ..grouping.clone() };
        if without_aggregates(own) != without_aggregates(wide) {
            return differs("groups");
        }
        if rows_of(&self.plan) != rows_of(&wider.plan) {
            return differs("rows, by the rights of the account that adds it or by what its table has become,");
        }
        let of_wider = |name: &str| wider.columns().iter().find(|(known, _)| known == name).map(|(_, of)| of);
        let is_other = |(name, of): &&(String, Expression)| match of_wider(name) {
            Some(wide) => wide != of,
            // What it keeps besides may be one of the columns now.
            None => !is_partial(name),
        };
        if let Some((name, _)) = self.columns().iter().find(is_other) {
            return differs(&format!("values of {name:?}"));
        }
        let mut widened = self.clone();
        let is_new = |name: &str| !self.fields.iter().any(|(known, _)| known == name);
        let fields: Vec<(String, ValueType)> = wider.fields.iter().filter(|(name, _)| is_new(name)).cloned().collect();
        let names = fields.iter().map(|(name, _)| name.clone()).collect();
        let columns = wider.columns().iter().filter(|(name, _)| is_new(name)).cloned();
        let columns = self.columns().iter().cloned().chain(columns).collect();
        let mut plan = wider.plan.clone();
        as_of::add_columns(&mut plan, &self.plan);
        mapped::add_columns(&mut plan, &self.plan);
        let aggregates = own.aggregates.iter().filter(|call| !wide.aggregates.contains(call)).cloned();
        let mut aggregates: Vec<_> = wide.aggregates.iter().cloned().chain(aggregates).collect();
        if let Plan::Map { input, columns: of_plan } = &mut plan {
            *of_plan = columns;
            if let Some(grouping) = grouping_of_mut(input) {
                std::mem::swap(&mut grouping.aggregates, &mut aggregates);
            }
        }
        widened.plan = plan;
        widened.fields.extend(fields);
        wider.statement.clone_into(&mut widened.statement);
        Ok((widened, names))
    }
}

impl View {
    /// The view with some of its columns alone, and the aggregates that these take.
    #[must_use]
    pub fn of_columns(&self, names: &[String]) -> Self {
        let mut view = self.clone();
        view.definition.fields.retain(|(name, _)| names.contains(name));
        let Plan::Map { input, columns } = &mut view.definition.plan else { return view };
        columns.retain(|(name, _)| names.contains(name));
        let (mut used, mut is_known) = (BTreeSet::new(), true);
        let mut of = |expression: &Expression| {
            is_known &= expression.each_column(&mut |column| {
                used.insert(column.to_owned());
            });
        };
        columns.iter().for_each(|(_, expression)| of(expression));
        let mut plan = &**input;
        while let Plan::Where { input, condition } = plan {
            of(condition);
            plan = input;
        }
        if let Some(grouping) = grouping_of_mut(input).filter(|_| is_known) {
            grouping.aggregates.retain(|call| used.contains(&call.column_name()));
        }
        view
    }
}

/// What tells the rows of groups, and which groups stay: without the columns that are read for it.
fn rows_of(plan: &Plan) -> Option<(String, Vec<String>)> {
    let mut conditions = Vec::new();
    let mut plan = match plan {
        Plan::Map { input, .. } => (**input).clone(),
        _ => return None,
    };
    while let Plan::Where { input, condition } = plan {
        conditions.push(format!("{condition:?}"));
        plan = *input;
    }
    let Plan::GroupBy { input, .. } = plan else { return None };
    let mut rows = mapped::without_columns(*input);
    forget_fields(&mut rows);
    Some((format!("{rows:?}"), conditions))
}

fn forget_fields(plan: &mut Plan) {
    match plan {
        Plan::Scan(scan) => scan.table.iter_mut().for_each(|table| table.fields.clear()),
        Plan::Where { input, .. } => forget_fields(input),
        Plan::Labelled(labelled) => forget_fields(&mut labelled.input),
        Plan::AsOf(as_of) => {
            as_of.columns.clear();
            forget_fields(&mut as_of.input);
        }
        _ => {}
    }
}

fn grouping_of_mut(plan: &mut Plan) -> Option<&mut Grouping> {
    match plan {
        Plan::GroupBy { grouping, .. } => Some(grouping),
        Plan::Where { input, .. } => grouping_of_mut(input),
        _ => None,
    }
}
