//! Rows of two plans side by side: series by labels, rows by time.

use std::collections::HashMap;

use model::{Cell, Labels, METRIC_NAME};

use crate::plan::{Join, JoinKind};
use crate::result::frame::{Frame, FrameColumn, VALUE};
use crate::{Budget, QueryError};

/// Joins each series of the left with the one of the right that agrees in labels.
pub(super) fn join(
    left: Vec<Frame>,
    right: Vec<Frame>,
    join: &Join,
    budget: &Budget,
) -> Result<Vec<Frame>, QueryError> {
    let mut partners: HashMap<Labels, Frame> = HashMap::with_capacity(right.len());
    for frame in right {
        let key = key(&frame.labels, join.on.as_deref());
        if let Some(other) = partners.insert(key.clone(), frame.in_time_order()) {
            return Err(QueryError::Execution(format!(
                "several series of the join's right side have the labels {key:?}: {:?} is one of them; name more labels in (on …)",
                other.labels
            )));
        }
    }
    let right_columns: Vec<String> = partners
        .values()
        .next()
        .map(|frame| frame.columns.iter().map(|column| column.name.to_string()).collect())
        .unwrap_or_default();
    let mut joined = Vec::with_capacity(left.len());
    for frame in left {
        budget.check()?;
        let frame = frame.in_time_order();
        let partner = partners.get(&key(&frame.labels, join.on.as_deref()));
        if partner.is_none() && join.kind == JoinKind::Inner {
            budget.give_back(frame.samples());
            continue;
        }
        let before = frame.samples();
        let frame = side_by_side(&frame, partner, &right_columns, join)?;
        budget.take(frame.samples())?;
        budget.give_back(before);
        if frame.rows() > 0 {
            joined.push(frame);
        }
    }
    Ok(joined)
}

fn key(labels: &Labels, on: Option<&[String]>) -> Labels {
    labels.retain(|name| match on {
        Some(on) => on.iter().any(|wanted| wanted == name),
        None => name != METRIC_NAME,
    })
}

fn side_by_side(
    left: &Frame,
    right: Option<&Frame>,
    right_columns: &[String],
    join: &Join,
) -> Result<Frame, QueryError> {
    let pairs = pairs(&left.timestamps_ns, right.map_or(&[], |right| &right.timestamps_ns), join);
    let rows: Vec<usize> = pairs.iter().map(|(row, _)| *row).collect();
    let mut joined = left.pick(&rows);
    joined.labels = joined.labels.retain(|name| name != METRIC_NAME);
    if let [only] = joined.columns.as_mut_slice()
        && *only.name == *VALUE
    {
        only.name = "left".into();
    }
    for (place, name) in right_columns.iter().enumerate() {
        let column = right.and_then(|right| right.columns.get(place));
        let cell = |(_, partner): &(usize, Option<usize>)| match (column, partner) {
            (Some(column), Some(row)) => column.cell(*row),
            _ => Cell::Null,
        };
        let cells: Vec<Cell<'_>> = pairs.iter().map(cell).collect();
        let taken = joined.column(name).is_some();
        let name = if right_columns.len() == 1 && name == VALUE {
            "right".to_owned()
        } else if taken {
            format!("right_{name}")
        } else {
            name.clone()
        };
        joined.columns.push(FrameColumn::of_cells(&name, &cells).map_err(QueryError::Execution)?);
    }
    Ok(joined)
}

/// Rows of the left with their partners.
fn pairs(left: &[i64], right: &[i64], join: &Join) -> Vec<(usize, Option<usize>)> {
    let partner = |time_ns: i64| {
        let behind = right.partition_point(|other| *other <= time_ns);
        let newest = behind.checked_sub(1)?;
        let age_ns = time_ns.checked_sub(*right.get(newest)?)?;
        let fits = match join.kind {
            JoinKind::Inner | JoinKind::Left => age_ns == 0,
            JoinKind::AsOf => join.within_ns.is_none_or(|within_ns| age_ns <= within_ns),
        };
        fits.then_some(newest)
    };
    let all = left.iter().enumerate().map(|(row, time_ns)| (row, partner(*time_ns)));
    all.filter(|(_, partner)| partner.is_some() || join.kind != JoinKind::Inner).collect()
}
