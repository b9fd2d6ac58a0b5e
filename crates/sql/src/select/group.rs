//! Rows put into groups.

use std::collections::HashMap;

use query::Value;

use super::folds::FoldedRows;
use super::from::Source;
use super::{Rows, RowsWanted};
use crate::error::{SqlError, invalid};
use crate::expression::{Accumulator, AggregateFunction, Grouped, Key, RowOrigin, Typed};
use crate::run::Run;
use crate::scope::{Role, Scope};
use crate::select::table_rows::values_of;

/// What `counter_increase` is of.
const COUNTED: &str = "counter_increase is of a field of a table, grouped by windows of equal length and by tags, with conditions that compare tags, fields and the time with \
                       constants, and without DISTINCT and FILTER";

impl Run<'_> {
    /// Groups as rows of keys and aggregates, in the order in which they come; bins of time no more than are wanted, if they can be had so.
    pub(super) fn group(
        &mut self,
        source: Source,
        scope: &Scope,
        condition: Option<Typed>,
        grouped: &Grouped,
        wanted: RowsWanted,
    ) -> Result<Rows, SqlError> {
        let rows = match source {
            Source::Rows(_) | Source::Changed(_)
                if grouped.calls.iter().any(|call| call.function == AggregateFunction::CounterIncrease) =>
            {
                return invalid(COUNTED);
            }
            Source::Rows(rows) => Rows::Made(self.filtered(rows, condition.as_ref())?),
            Source::Changed(table) => {
                let rows = self.rows_with_pending(&table.schema, condition.as_ref())?;
                Rows::Made(self.filtered(rows, condition.as_ref())?)
            }
            Source::Table(table) => match self.group_in_plan(&table, scope, condition.as_ref(), grouped, wanted)? {
                Some(rows) => return Ok(rows),
                None if grouped.calls.iter().any(|call| call.function == AggregateFunction::CounterIncrease) => {
                    return invalid(COUNTED);
                }
                None => self.read_table(&table, scope, condition, RowsWanted::All)?,
            },
        };
        let folds = match &rows {
            Rows::Read(read) if read.has_folds() => Some(FoldedRows::new(read, scope, grouped)),
            _ => None,
        };
        if folds.as_ref().is_some_and(FoldedRows::is_inexact) {
            self.session.budget().note_folded()?;
        }
        match &rows {
            Rows::Read(read) => self.group_rows(&values_of(read), scope, grouped, folds.as_ref()),
            Rows::Made(rows) => self.group_rows(rows, scope, grouped, None),
        }
        .map(Rows::Made)
    }

    fn group_rows(
        &mut self,
        rows: &[Vec<Value>],
        scope: &Scope,
        grouped: &Grouped,
        folds: Option<&FoldedRows<'_>>,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let time = scope.columns.iter().position(|column| column.role == Role::Time);
        let series = scope.columns.iter().position(|column| column.name == "#series");
        let environment = self.environment.clone();
        let mut groups: Vec<(Vec<Value>, Vec<Accumulator>)> = Vec::new();
        let mut places: HashMap<Vec<Value>, usize> = HashMap::new();
        for (number, row) in rows.iter().enumerate() {
            if number % 4096 == 0 {
                self.session.budget().check()?;
            }
            let key: Vec<Value> = grouped
                .keys
                .iter()
                .map(|key| key.typed.expression.value(row, &environment))
                .collect::<Result<_, _>>()?;
            if let Some(earlier) = folds.and_then(|folds| folds.earlier(number, row)) {
                let of_earlier = |key: &Key| key.typed.expression.value(&earlier, &environment);
                if grouped.keys.iter().map(of_earlier).collect::<Result<Vec<Value>, _>>()? != key {
                    self.session.budget().note_folded()?;
                }
            }
            let place = match places.get(&key) {
                Some(place) => *place,
                None => {
                    let texts = key.iter().map(Value::text_samples).sum::<usize>();
                    let sketches = grouped.calls.iter().map(|call| call.function.sketch_samples()).sum::<usize>();
                    self.charge(key.len() + grouped.calls.len() + texts + sketches)?;
                    groups.push((key.clone(), vec![Accumulator::default(); grouped.calls.len()]));
                    places.insert(key, groups.len() - 1);
                    groups.len() - 1
                }
            };
            let Some((_, accumulators)) = groups.get_mut(place) else { continue };
            let cell = |column: Option<usize>| column.and_then(|column| row.get(column));
            let mut kept = 0;
            for (index, (accumulator, call)) in accumulators.iter_mut().zip(&grouped.calls).enumerate() {
                if let Some(fold) = folds.and_then(|folds| folds.of_call(number, index))
                    && call.has_value(row, &environment)?
                {
                    accumulator.add_fold(call, &fold);
                    continue;
                }
                let by_time = call.function.is_of_series() || call.function.is_by_time();
                let origin =
                    if by_time { RowOrigin { time: cell(time), series: cell(series) } } else { RowOrigin::default() };
                kept += accumulator.add(call, row, origin, &environment)?;
            }
            if kept > 0 {
                self.charge(kept)?;
            }
        }
        if groups.is_empty() && grouped.keys.is_empty() {
            groups.push((Vec::new(), vec![Accumulator::default(); grouped.calls.len()]));
        }
        let finish = |(mut row, accumulators): (Vec<Value>, Vec<Accumulator>)| {
            row.extend(
                accumulators.into_iter().zip(&grouped.calls).map(|(accumulator, call)| accumulator.finish(call)),
            );
            row
        };
        Ok(groups.into_iter().map(finish).collect())
    }
}

/// The values of aggregates when there are no rows: counts are zero, all else is null.
pub(super) fn of_nothing(grouped: &Grouped) -> Vec<Value> {
    let value = |function: AggregateFunction| match function {
        AggregateFunction::Count | AggregateFunction::ApproxDistinct { .. } => Value::Int(0),
        _ => Value::Null,
    };
    grouped.calls.iter().map(|call| value(call.function)).collect()
}
