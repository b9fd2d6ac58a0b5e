//! Groups that the plan can make, mostly from summaries: by tags and by bins of time.

use query::plan::{Aggregate, AggregateCall, AggregateInput, Grouping, Plan, Scan};
use query::{Column, Frame, FrameColumn, ResultRows, RowColumn, RowShape, Value, Values};

use super::bin_runs::KeyBins;
use super::filter::lower;
use super::from::Table;
use super::group::of_nothing;
use super::plan_aggregates::{PlanAggregates, row_conditions};
use super::{Rows, RowsWanted};
use crate::error::SqlError;
use crate::expression::{Bound, Grouped, Typed, time_bins};
use crate::run::Run;
use crate::scope::{Role, Scope};

/// The kind of a key in the plan.
pub(super) enum PlanKey {
    Tag(String),
    Bin,
}

impl Run<'_> {
    /// Groups made by the plan; `None` if it cannot make them.
    pub(super) fn group_in_plan(
        &mut self,
        table: &Table,
        scope: &Scope,
        condition: Option<&Typed>,
        grouped: &Grouped,
        wanted: RowsWanted,
    ) -> Result<Option<Rows>, SqlError> {
        let mut scan = table.scan();
        let mut filter =
            condition.map(|condition| lower(condition.expression.clone(), &mut scan, scope)).unwrap_or_default();
        let Ok(conditions) = row_conditions(&filter.rest, (scope, &table.schema)) else {
            return Ok(None);
        };
        filter.conditions.extend(conditions);
        let Ok(PlanAggregates { mut calls, computed }) = PlanAggregates::new(grouped, scope, &table.schema) else {
            return Ok(None);
        };
        let Some((keys, bins)) = plan_keys(grouped, scope, &self.environment) else { return Ok(None) };
        if calls.is_empty() && keys.is_empty() {
            return Ok(None);
        }
        if calls.is_empty() {
            // Groups are those that have rows, however many.
            calls.push(AggregateCall { aggregate: Aggregate::Count, input: AggregateInput::Time });
        }
        let by: Vec<String> =
            keys.iter().filter_map(|key| if let PlanKey::Tag(tag) = key { Some(tag.clone()) } else { None }).collect();
        let mut distinct: Vec<AggregateCall> = Vec::new();
        calls.iter().for_each(|call| {
            if !distinct.contains(call) {
                distinct.push(call.clone());
            }
        });
        if grouped.keys.is_empty() && !distinct.iter().any(is_of_rows) && computed.is_empty() {
            // There is one group whatever rows there are.
            scan.table.iter_mut().for_each(|table| table.every_row = false);
        }
        let Some(runs) = self.bin_runs(&scan, bins)? else { return Ok(None) };
        if runs.len() > 1 && distinct.iter().any(|call| call.aggregate == Aggregate::Increase) {
            // From one run of bins to the next nothing would be gained.
            return Ok(None);
        }
        let is_cut = matches!((keys.as_slice(), runs.as_slice()), ([PlanKey::Bin], [_]));
        let mut frames = Vec::new();
        for (range, bins) in runs {
            let (width_ns, offset_ns) = bins.unzip();
            let (offset_ns, aggregates) = (offset_ns.unwrap_or_default(), distinct.clone());
            let undated = width_ns.is_none();
            let grouping = Grouping { width_ns, offset_ns, aggregates, by: Some(by.clone()), undated };
            let rows = computed.rows(filter.plan(Scan { range, ..scan.clone() }), &calls);
            let plan = Plan::GroupBy { input: Box::new(rows), grouping };
            frames.extend(self.plan(if is_cut { cut(plan, wanted) } else { plan })?);
        }
        let count: usize = frames.iter().map(Frame::rows).sum();
        self.charge(count * (keys.len() + calls.len()))?;
        if !grouped.keys.is_empty() && calls.iter().all(is_as_computed) {
            return Ok(Some(Rows::Read(as_computed(frames, &keys, &calls))));
        }
        let mut rows = rows_of_groups(&frames, &keys, &calls);
        if rows.is_empty() && grouped.keys.is_empty() {
            rows.push(of_nothing(grouped));
        }
        Ok(Some(Rows::Made(rows)))
    }
}

/// Returns whether values are what the plan keeps, as it is.
fn is_as_computed(call: &AggregateCall) -> bool {
    call.input != AggregateInput::Time || call.aggregate == Aggregate::Count
}

/// Rows of groups as the plan has them.
fn as_computed(mut frames: Vec<Frame>, keys: &[PlanKey], calls: &[AggregateCall]) -> ResultRows {
    let names: Vec<String> = calls.iter().map(AggregateCall::column_name).collect();
    let is_count =
        |name: &str| calls.iter().zip(&names).any(|(call, column)| call.aggregate.is_count() && column == name);
    for frame in &mut frames {
        let rows = frame.rows();
        frame
            .columns
            .iter_mut()
            .filter(|column| is_count(&column.name))
            .for_each(|column| count_all(&mut column.cells, rows));
    }
    let tag = |key: &PlanKey| if let PlanKey::Tag(tag) = key { Some(tag.clone()) } else { None };
    let tags: Vec<String> = keys.iter().filter_map(tag).collect();
    let mut next_tag = 0..;
    let key = |key: &PlanKey| match key {
        PlanKey::Bin => RowColumn::Time,
        PlanKey::Tag(_) => RowColumn::Tag(next_tag.next().unwrap_or_default()),
    };
    let columns = keys.iter().map(key).chain((0..calls.len()).map(RowColumn::Field)).collect();
    let rows = ResultRows::new(frames, RowShape { tags, fields: names, columns });
    if keys.iter().any(|key| matches!(key, PlanKey::Bin)) { rows.in_time_order() } else { rows }
}

/// Returns whether an aggregate is of rows, whatever they hold.
const fn is_of_rows(call: &AggregateCall) -> bool {
    matches!(call.input, AggregateInput::Time | AggregateInput::Tag(_))
}

/// There are none where there is no value.
fn count_all(column: &mut Column, rows: usize) {
    let Some(validity) = column.validity.take() else { return };
    match &mut column.values {
        Values::I64(counts) => {
            counts.iter_mut().zip(validity).filter(|(_, is_valid)| !is_valid).for_each(|(count, _)| *count = 0);
        }
        // A column without any value has no type.
        other => *other = Values::I64(vec![0; rows]),
    }
}

fn rows_of_groups(frames: &[Frame], keys: &[PlanKey], calls: &[AggregateCall]) -> Vec<Vec<Value>> {
    let count: usize = frames.iter().map(Frame::rows).sum();
    let groups: Vec<GroupRows<'_>> = frames.iter().map(|frame| GroupRows::new(frame, keys, calls)).collect();
    let bin = keys.iter().position(|key| matches!(key, PlanKey::Bin));
    let row = |(_, group, place): (i64, usize, usize)| Some(groups.get(group)?.row(place, bin, calls));
    let mut order: Vec<(i64, usize, usize)> = Vec::with_capacity(count);
    for (group, frame) in frames.iter().enumerate() {
        order.extend(frame.timestamps_ns.iter().enumerate().map(|(place, time_ns)| (*time_ns, group, place)));
    }
    if bin.is_some() {
        order.sort_by_key(|(time_ns, ..)| *time_ns);
    }
    order.into_iter().filter_map(row).collect()
}

/// The columns and keys of the rows of a group.
struct GroupRows<'a> {
    frame: &'a Frame,
    columns: Vec<Option<&'a FrameColumn>>,
    /// The values of the keys; that of the time is put in.
    keys: Vec<Value>,
}

impl<'a> GroupRows<'a> {
    fn new(frame: &'a Frame, keys: &[PlanKey], calls: &[AggregateCall]) -> Self {
        let key = |key: &PlanKey| match key {
            PlanKey::Tag(tag) => {
                frame.labels.get(tag).filter(|value| !value.is_empty()).map_or(Value::Null, Value::text)
            }
            PlanKey::Bin => Value::Null,
        };
        let columns = calls.iter().map(|call| frame.column(&call.column_name())).collect();
        Self { frame, columns, keys: keys.iter().map(key).collect() }
    }

    fn row(&self, place: usize, bin: Option<usize>, calls: &[AggregateCall]) -> Vec<Value> {
        let mut row = Vec::with_capacity(self.keys.len() + calls.len());
        row.extend_from_slice(&self.keys);
        if let (Some(key), Some(time_ns)) = (bin.and_then(|bin| row.get_mut(bin)), self.frame.timestamps_ns.get(place))
        {
            *key = Value::Timestamp(*time_ns);
        }
        row.extend(self.columns.iter().zip(calls).map(|(column, call)| {
            let value = column.map_or(Value::Null, |column| Value::from(column.cell(place)).signed());
            match (&call.input, value) {
                (AggregateInput::Time, Value::Int(ns)) if call.aggregate != Aggregate::Count => Value::Timestamp(ns),
                (_, Value::Null) if call.aggregate.is_count() => Value::Int(0),
                (_, value) => value,
            }
        }));
        row
    }
}

/// Bins of time, as many as are wanted.
fn cut(plan: Plan, wanted: RowsWanted) -> Plan {
    match wanted {
        RowsWanted::All => plan,
        RowsWanted::Some(rows) => Plan::Limit { input: Box::new(plan), rows, skip: 0 },
        RowsWanted::Newest(rows) => Plan::Last { input: Box::new(plan), rows },
    }
}

/// The keys, and the bins of the one that is of time.
pub(super) fn plan_keys<'a>(
    grouped: &'a Grouped,
    scope: &Scope,
    environment: &crate::expression::Environment,
) -> Option<(Vec<PlanKey>, Option<KeyBins<'a>>)> {
    let (mut keys, mut bins) = (Vec::new(), None);
    for key in &grouped.keys {
        match &key.typed.expression {
            Bound::Column(place) => {
                let column = scope.columns.get(*place).filter(|column| column.role == Role::Tag)?;
                keys.push(PlanKey::Tag(column.name.clone()));
            }
            other => {
                if bins.is_some() {
                    return None;
                }
                bins = Some(KeyBins { expression: other, bins: time_bins(other, scope, environment)? });
                keys.push(PlanKey::Bin);
            }
        }
    }
    Some((keys, bins))
}
