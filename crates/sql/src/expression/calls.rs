//! Calls of functions and aggregates.

use query::SqlType;
use query::plan::{Aggregate, FillWith};
use query::sketch::Buckets;
use sqlparser::ast::{
    AccessExpr, DuplicateTreatment, Expr, Function as Call, FunctionArg, FunctionArgExpr, FunctionArguments, Subscript,
};

use super::arrays::ELEMENT;
use super::build::apply;
use super::{AggregateFunction, Binder, Bound, BoundAggregate, Grouped, Typed, functions, parameter_index};
use crate::error::{SqlError, invalid, refused, unsupported};

impl Binder<'_> {
    /// `array[n]`
    pub(super) fn subscript(
        &mut self,
        root: &Expr,
        chain: &[AccessExpr],
        mut grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        let [AccessExpr::Subscript(Subscript::Index { index })] = chain else {
            return unsupported("what is neither a column nor an array's element");
        };
        let root = self.expression(root, grouped.as_deref_mut())?;
        let index = self.expression(index, grouped)?;
        apply(&ELEMENT, vec![root, index])
    }

    pub(super) fn function(&mut self, call: &Call, grouped: Option<&mut Grouped>) -> Result<Typed, SqlError> {
        let name = call.name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
        let name = name.unwrap_or_default();
        if call.over.is_some() {
            // Its values are there, if it is one of those that there are.
            let column = sqlparser::ast::Ident::with_quote('"', crate::select::windows::column_name(call));
            if let (Ok(index), None) = (self.scope.find(None, &column), &grouped) {
                return Ok(Typed { expression: Bound::Column(index), sql_type: SqlType::Int });
            }
            return unsupported(format!("the window function {name}(…) OVER"));
        }
        if let (true, FunctionArguments::Subquery(query)) = (name == "array", &call.args) {
            return self.array_of(query, grouped);
        }
        if is_aggregate(&name) {
            return match grouped {
                Some(grouped) => self.aggregate(call, &name, grouped),
                None => invalid(format!("aggregate functions are not allowed here: {call}")),
            };
        }
        if matches!(name.as_str(), "locf" | "interpolate") {
            let arguments = arguments(call)?;
            let (Some(Some(argument)), Some(grouped)) = (arguments.first(), grouped) else {
                return invalid(format!("{name} takes an aggregate: {name}(avg(value))"));
            };
            let bound = self.expression(argument, Some(grouped))?;
            let Bound::Column(place) = bound.expression else {
                return invalid(format!("{name} takes an aggregate alone: {name}(avg(value))"));
            };
            // A copy of its own: the aggregate may be shown without the filling too.
            let call = place.checked_sub(grouped.keys.len()).and_then(|place| grouped.calls.get(place).cloned());
            let Some(call) = call else { return Ok(bound) };
            grouped.calls.push(call);
            let place = grouped.calls.len() - 1;
            grouped.fills.insert(place, if name == "locf" { FillWith::Previous } else { FillWith::Linear });
            return Ok(call_column(grouped, place));
        }
        let Some(function) = functions::find(&name) else {
            return Err(SqlError::UnknownFunction(format!("function {name} does not exist")));
        };
        if matches!(name.as_str(), "time_bucket" | "time_bucket_gapfill") {
            return self.bucket(call, &name, grouped);
        }
        let Some(arguments) = arguments(call)?.into_iter().collect::<Option<Vec<&Expr>>>() else {
            return invalid(format!("{name} does not take *"));
        };
        self.call(function, &arguments, grouped)
    }

    fn aggregate(&mut self, call: &Call, name: &str, grouped: &mut Grouped) -> Result<Typed, SqlError> {
        // Letters tell texts, and names in double quotes, apart.
        let text = call.to_string();
        if let Some(place) = grouped.known.get(&text) {
            return Ok(call_column(grouped, *place));
        }
        let mut bound = Vec::new();
        for (index, argument) in arguments(call)?.into_iter().enumerate() {
            bound.push(argument.map(|argument| self.expression(argument, None)).transpose()?);
            if let (Some(argument), Some(sql_type)) = (argument, constant_type(name, index)) {
                self.note(argument, sql_type);
            }
        }
        let is_distinct = matches!(&call.args, FunctionArguments::List(list) if list.duplicate_treatment == Some(DuplicateTreatment::Distinct));
        if is_distinct && bound.len() > 2 && of_squares(name).is_some() {
            return invalid(format!(
                "{name}(DISTINCT …) takes one value, not rows that stand for several: leave out DISTINCT"
            ));
        }
        let mut parts = None;
        let filter = call.filter.as_ref().map(|filter| self.expression(filter, None)).transpose()?;
        let (function, argument, by) = if AggregateFunction::is_quantile(name) {
            self.quantile(call, name, bound)?
        } else if name == "histogram" {
            self.histogram(call, bound)?
        } else if let ([Some(_), Some(_), Some(_)], Some(function)) = (bound.as_slice(), of_squares(name)) {
            let mut bound = bound.into_iter().flatten();
            let (count, sum, squares) = (bound.next(), bound.next(), bound.next());
            for of in [&sum, &squares].into_iter().flatten() {
                refuse_type(name, function, of.sql_type)?;
            }
            parts = sum.zip(squares).map(|(sum, squares)| Box::new((sum.expression, squares.expression)));
            (function, count, None)
        } else {
            if bound.len() > 2 {
                return invalid(format!("{name} takes fewer than {} values: {call}", bound.len()));
            }
            let mut bound = bound.into_iter();
            let (first, second) = (bound.next().flatten(), bound.next().flatten());
            let Some(function) = AggregateFunction::find(name) else {
                return Err(SqlError::UnknownFunction(format!("function {name} does not exist")));
            };
            if first.is_none() && function != AggregateFunction::Count {
                return invalid(format!("{name} takes a value"));
            }
            (function, first, second)
        };
        let argument_type = argument.as_ref().map_or(SqlType::Int, |argument| argument.sql_type);
        refuse_type(name, function, argument_type)?;
        grouped.calls.push(BoundAggregate {
            function,
            argument: argument.map(|argument| argument.expression),
            by: by.map(|by| by.expression),
            parts,
            is_distinct,
            filter: filter.map(|filter| filter.expression),
            sql_type: function.returns(argument_type),
        });
        let place = grouped.calls.len() - 1;
        grouped.known.insert(text, place);
        Ok(call_column(grouped, place))
    }

    /// Returns whether an argument is a parameter of a statement that is described alone.
    fn lacks_values(&self, call: &Call) -> Result<bool, SqlError> {
        let is_parameter = |argument: Option<&Expr>| argument.and_then(parameter_index).is_some();
        Ok(self.subqueries.is_described() && arguments(call)?.into_iter().any(is_parameter))
    }

    /// `histogram(x, 0, 100, 10)` of numbers, or `histogram(x)` of histograms.
    fn histogram(
        &mut self,
        call: &Call,
        arguments: Vec<Option<Typed>>,
    ) -> Result<(AggregateFunction, Option<Typed>, Option<Typed>), SqlError> {
        let Some(arguments) = arguments.into_iter().collect::<Option<Vec<Typed>>>() else {
            return invalid(format!("{HISTOGRAM_TAKES}, not *: {call}"));
        };
        let number = |bound: &Typed| {
            let value = bound.expression.is_constant().then(|| bound.expression.value(&[], self.environment));
            value.transpose().map(|value| value.and_then(|value| value.number()))
        };
        let function = match arguments.as_slice() {
            [histograms] if matches!(histograms.sql_type, SqlType::Text | SqlType::Unknown) => {
                AggregateFunction::Histograms
            }
            // Its parameters have no values yet.
            [_, _, _, _] if self.lacks_values(call)? => {
                AggregateFunction::Histogram(Buckets::new(0.0, 1.0, 1).or_else(invalid)?)
            }
            [_, low, high, count] => match (number(low)?, number(high)?, number(count)?) {
                (Some(low), Some(high), Some(count)) if count.fract() == 0.0 => {
                    AggregateFunction::Histogram(Buckets::new(low, high, count as i64).or_else(invalid)?)
                }
                _ => return invalid(format!("{HISTOGRAM_TAKES}; bounds and buckets are constants: {call}")),
            },
            _ => return invalid(format!("{HISTOGRAM_TAKES}: {call}")),
        };
        Ok((function, arguments.into_iter().next(), None))
    }

    /// `quantile(x, 0.9)`, `approx_percentile(0.9, x)` or `percentile_cont(0.9) WITHIN GROUP (ORDER BY x)`
    fn quantile(
        &mut self,
        call: &Call,
        name: &str,
        arguments: Vec<Option<Typed>>,
    ) -> Result<(AggregateFunction, Option<Typed>, Option<Typed>), SqlError> {
        let mut arguments: Vec<Typed> = arguments.into_iter().flatten().collect();
        if let [order] = call.within_group.as_slice() {
            arguments.push(self.expression(&order.expr, None)?);
        }
        let share = arguments.iter().position(|argument| argument.expression.is_constant());
        let (Some(share), 2) = (share, arguments.len()) else {
            return invalid(format!("a quantile takes a value and a share between 0 and 1: {call}"));
        };
        let share = arguments.remove(share).expression.value(&[], self.environment)?.number();
        let share = if self.lacks_values(call)? { share.or(Some(0.5)) } else { share };
        match share.filter(|share| (0.0..=1.0).contains(share)) {
            Some(share) if name.starts_with("approx_") => {
                Ok((AggregateFunction::ApproxQuantile(share), arguments.pop(), None))
            }
            Some(share) => Ok((AggregateFunction::Quantile(share), arguments.pop(), None)),
            None => invalid(format!("the share of a quantile is between 0 and 1: {call}")),
        }
    }
}

/// The aggregate of a name that is made of squared deviations, which rows that stand for several values each have, too.
fn of_squares(name: &str) -> Option<AggregateFunction> {
    let is_of_squares = |function: &AggregateFunction| function.in_plan().is_some_and(Aggregate::is_of_squares);
    AggregateFunction::find(name).filter(is_of_squares)
}

/// How histograms are called.
const HISTOGRAM_TAKES: &str = "histogram takes a number, from where to where, and how many buckets, histogram(usage, 0, 100, 20), or a column of histograms";

/// The type of what an aggregate takes beside its values, where it is a parameter.
fn constant_type(name: &str, index: usize) -> Option<SqlType> {
    match (name, index) {
        ("histogram", 1 | 2) => Some(SqlType::Float),
        ("histogram", 3) => Some(SqlType::Int),
        _ if AggregateFunction::is_quantile(name) => Some(SqlType::Float),
        _ => None,
    }
}

/// Postgres's code for a function that does not exist for the types of its arguments.
const UNDEFINED_FUNCTION: &str = "42883";

/// Refuses an aggregate of numbers for what is no number; not for another engine, which would read texts as numbers.
fn refuse_type(name: &str, function: AggregateFunction, argument: SqlType) -> Result<(), SqlError> {
    let is_refused = match argument {
        SqlType::Text => !function.is_of_sketches(argument),
        SqlType::Bool | SqlType::Timestamp | SqlType::LocalTimestamp | SqlType::Date => true,
        SqlType::Interval => !matches!(function, AggregateFunction::Sum | AggregateFunction::Avg),
        _ => false,
    };
    if is_refused && function.is_of_numbers() {
        return refused(UNDEFINED_FUNCTION, format!("function {name}({}) does not exist", argument.name()));
    }
    Ok(())
}

/// Returns whether a name is one of an aggregate.
pub(crate) fn is_aggregate(name: &str) -> bool {
    AggregateFunction::find(name).is_some() || AggregateFunction::is_quantile(name)
}

fn call_column(grouped: &Grouped, place: usize) -> Typed {
    let sql_type = grouped.calls.get(place).map_or(SqlType::Unknown, |call| call.sql_type);
    // Calls stand after the keys: there are no more keys once the first call is bound.
    Typed { expression: Bound::Column(grouped.keys.len() + place), sql_type }
}

/// Arguments; `None` for `*`.
fn arguments(call: &Call) -> Result<Vec<Option<&Expr>>, SqlError> {
    let list = match &call.args {
        FunctionArguments::None => return Ok(Vec::new()),
        FunctionArguments::Subquery(_) => return unsupported(format!("{call}")),
        FunctionArguments::List(list) => list,
    };
    let argument = |argument: &'_ FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(_) | FunctionArgExpr::Wildcard) => Ok(()),
        _ => unsupported(format!("the argument {argument}")),
    };
    list.args.iter().try_for_each(argument)?;
    let expression = |argument| match argument {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expression)) => Some(expression),
        _ => None,
    };
    Ok(list.args.iter().map(expression).collect())
}
