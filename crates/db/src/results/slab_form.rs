//! Kept steps and bins as slabs hold them: points of series by time.

use std::collections::BTreeMap;
use std::sync::Arc;

use cache::{FieldPoints, Points, Span, ValueType, Values};
use model::Labels;
use promql::{PartialRange, StepInfo};
use query::{Cell, Frame, FrameColumn};

use super::Portions;
use super::flash::Unit;

/// The field that steps have, and cells of bins, one for each type.
const VALUE: &str = "value";
/// Cells that are unsigned integers, which slabs do not know.
const UNSIGNED: &str = "unsigned";
/// Cells that are null.
const NULL: &str = "null";

/// A span of a portion in the form of slabs; `None` for portions that stay in memory.
pub(super) fn answer_of(portion: &Portions, span: Span) -> Option<cache::Answer> {
    match portion {
        Portions::Steps(stretch) => answer_of_steps(stretch, span),
        Portions::Bins(frames) => answer_of_bins(frames, span),
        Portions::Whole(_) => None,
    }
}

/// The portion that [`answer_of`] wrote; `None` if the answer is not of its form.
pub(super) fn portion_of(answer: &cache::Answer, unit: Unit) -> Option<Portions> {
    match unit {
        Unit::Steps => steps_of(answer).map(Portions::Steps),
        Unit::Bins { .. } => bins_of(answer).map(Portions::Bins),
    }
}

/// A stretch's steps in a span. `None` if infos go with some of them.
fn answer_of_steps(stretch: &PartialRange, span: Span) -> Option<cache::Answer> {
    let overlaps = |info: &StepInfo| info.steps.iter().any(|(first, last)| *first < span.end && *last >= span.start);
    if stretch.infos.values().any(overlaps) {
        return None;
    }
    let mut series: Vec<Arc<str>> = Vec::new();
    let mut all: Vec<(i64, u32, f64)> = Vec::new();
    for (labels, values) in &stretch.series {
        let first = values.partition_point(|(time_ms, _)| *time_ms < span.start);
        let end = values.partition_point(|(time_ms, _)| *time_ms < span.end);
        let inside = values.get(first..end).filter(|inside| !inside.is_empty());
        let number = u32::try_from(series.len()).ok()?;
        all.extend(inside.unwrap_or_default().iter().map(|(time_ms, value)| (*time_ms, number, *value)));
        series.extend(inside.map(|_| Arc::from(text_of(labels))));
    }
    all.sort_by_key(|(time_ms, number, _)| (*time_ms, *number));
    let points = Points {
        timestamps: all.iter().map(|(time_ms, ..)| *time_ms).collect(),
        series: all.iter().map(|(_, number, _)| *number).collect(),
        values: Values::F64(all.iter().map(|(.., value)| *value).collect()),
    };
    // The field is there even without points: a key has the same fields always.
    Some(cache::Answer { series, fields: vec![FieldPoints { name: Arc::from(VALUE), points }] })
}

fn steps_of(answer: &cache::Answer) -> Option<PartialRange> {
    let mut values: Vec<Vec<(i64, f64)>> = vec![Vec::new(); answer.series.len()];
    for field in &answer.fields {
        let Values::F64(column) = &field.points.values else { return None };
        let times = field.points.timestamps.iter().zip(&field.points.series);
        for ((time_ms, number), value) in times.zip(column) {
            values.get_mut(*number as usize)?.push((*time_ms, *value));
        }
    }
    let mut series = Vec::with_capacity(values.len());
    for (text, mut values) in answer.series.iter().zip(values).filter(|(_, values)| !values.is_empty()) {
        if !values.is_sorted_by_key(|(time_ms, _)| *time_ms) {
            values.sort_by_key(|(time_ms, _)| *time_ms);
        }
        series.push((labels_of(text)?, values));
    }
    series.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some(PartialRange { series, ..PartialRange::default() })
}

/// Columns of bins, each as a series, by what their cells are; nulls are cells, too. `None` of bins without columns.
fn answer_of_bins(frames: &[Frame], span: Span) -> Option<cache::Answer> {
    let mut series: Vec<Arc<str>> = Vec::new();
    let mut fields: BTreeMap<(&str, ValueType), Points> = BTreeMap::new();
    // One is there always: a key has the same fields as far as can be told.
    fields.insert((VALUE, ValueType::F64), Points::new(ValueType::F64));
    for frame in frames {
        let first = frame.timestamps_ns.partition_point(|time_ns| *time_ns < span.start);
        let end = frame.timestamps_ns.partition_point(|time_ns| *time_ns < span.end);
        let times = frame.timestamps_ns.get(first..end).filter(|times| !times.is_empty());
        if frame.columns.is_empty() {
            return None;
        }
        for (place, column) in frame.columns.iter().enumerate().filter(|_| times.is_some()) {
            let number = u32::try_from(series.len()).ok()?;
            series.push(name_of(place, &column.name, &frame.labels).into());
            for (row, time_ns) in (first..end).zip(times.unwrap_or_default()) {
                push_cell(&mut fields, column.cell(row), (*time_ns, number));
            }
        }
    }
    let field = |((name, _), points): ((&str, ValueType), Points)| FieldPoints { name: Arc::from(name), points };
    Some(cache::Answer { series, fields: fields.into_iter().map(field).collect() })
}

fn push_cell(fields: &mut BTreeMap<(&str, ValueType), Points>, cell: Cell<'_>, (time_ns, number): (i64, u32)) {
    let (name, value_type) = match cell {
        Cell::Null => (NULL, ValueType::Bool),
        Cell::F64(_) => (VALUE, ValueType::F64),
        Cell::I64(_) => (VALUE, ValueType::I64),
        Cell::U64(_) => (UNSIGNED, ValueType::I64),
        Cell::Bool(_) => (VALUE, ValueType::Bool),
        Cell::Text(_) => (VALUE, ValueType::Text),
    };
    let points = fields.entry((name, value_type)).or_insert_with(|| Points::new(value_type));
    points.timestamps.push(time_ns);
    points.series.push(number);
    match (&mut points.values, cell) {
        (Values::F64(values), Cell::F64(value)) => values.push(value),
        (Values::I64(values), Cell::I64(value)) => values.push(value),
        (Values::I64(values), Cell::U64(value)) => values.push(value as i64),
        (Values::Bool(values), Cell::Bool(value)) => values.push(value),
        (Values::Bool(values), _) => values.push(false),
        (Values::Text(values), Cell::Text(text)) => values.push(Arc::from(text)),
        _ => {}
    }
}

/// Cells of a column, by time.
type Cells<'a> = Vec<(i64, Cell<'a>)>;

/// Cells of each series of an answer.
fn cells_of(answer: &cache::Answer) -> Option<Vec<Cells<'_>>> {
    let mut cells: Vec<Cells<'_>> = vec![Vec::new(); answer.series.len()];
    for FieldPoints { name, points } in &answer.fields {
        for (place, (time_ns, number)) in points.timestamps.iter().zip(&points.series).enumerate() {
            let cell = match &points.values {
                Values::Bool(_) if &**name == NULL => Cell::Null,
                Values::F64(values) => Cell::F64(*values.get(place)?),
                Values::I64(values) if &**name == UNSIGNED => Cell::U64(*values.get(place)? as u64),
                Values::I64(values) => Cell::I64(*values.get(place)?),
                Values::Bool(values) => Cell::Bool(*values.get(place)?),
                Values::Text(values) => Cell::Text(values.get(place)?),
            };
            cells.get_mut(*number as usize)?.push((*time_ns, cell));
        }
    }
    for cells in &mut cells {
        if !cells.is_sorted_by_key(|(time_ns, _)| *time_ns) {
            cells.sort_by_key(|(time_ns, _)| *time_ns);
        }
    }
    Some(cells)
}

fn bins_of(answer: &cache::Answer) -> Option<Vec<Frame>> {
    let mut frames: BTreeMap<&str, BTreeMap<usize, (&str, Cells<'_>)>> = BTreeMap::new();
    for (name, cells) in answer.series.iter().zip(cells_of(answer)?).filter(|(_, cells)| !cells.is_empty()) {
        let (place, rest) = part_of(name)?;
        let (column, labels) = part_of(rest)?;
        frames.entry(labels).or_default().insert(place.parse().ok()?, (column, cells));
    }
    let mut found = Vec::with_capacity(frames.len());
    for (labels, columns) in frames {
        let timestamps_ns: Vec<i64> = columns.values().next()?.1.iter().map(|(time_ns, _)| *time_ns).collect();
        let column = |(place, (name, cells)): (usize, &(&str, Cells<'_>))| {
            let is_whole = columns.contains_key(&place) && cells.iter().map(|(time_ns, _)| time_ns).eq(&timestamps_ns);
            let cells: Vec<Cell<'_>> = cells.iter().map(|(_, cell)| *cell).collect();
            FrameColumn::of_cells(name, &cells).ok().filter(|_| is_whole)
        };
        let columns = columns.values().enumerate().map(column).collect::<Option<_>>()?;
        found.push(Frame::new(labels_of(labels)?, timestamps_ns, columns));
    }
    found.sort_by(|a, b| a.labels.cmp(&b.labels));
    Some(found)
}

/// A column's place, its name and its series' labels.
fn name_of(place: usize, column: &str, labels: &Labels) -> String {
    let mut text = String::new();
    push_part(&mut text, &place.to_string());
    push_part(&mut text, column);
    labels.iter().flat_map(|(name, value)| [name, value]).for_each(|part| push_part(&mut text, part));
    text
}

/// Labels as a series' name.
fn text_of(labels: &Labels) -> String {
    let mut text = String::new();
    labels.iter().flat_map(|(name, value)| [name, value]).for_each(|part| push_part(&mut text, part));
    text
}

/// A text behind its length and a colon.
fn push_part(text: &mut String, part: &str) {
    text.push_str(&part.len().to_string());
    text.push(':');
    text.push_str(part);
}

/// The first text, and what is behind it.
fn part_of(text: &str) -> Option<(&str, &str)> {
    let (length, rest) = text.split_once(':')?;
    rest.split_at_checked(length.parse().ok()?)
}

fn labels_of(mut text: &str) -> Option<Labels> {
    let mut pairs = Vec::new();
    while !text.is_empty() {
        let (name, rest) = part_of(text)?;
        let (value, rest) = part_of(rest)?;
        pairs.push((name, value));
        text = rest;
    }
    Labels::from_pairs(pairs).ok()
}

#[cfg(test)]
mod tests {
    use promql::PartialRangeSlice;
    use proptest::prelude::*;

    use super::*;

    fn bits(stretch: &PartialRange) -> Vec<(Labels, Vec<(i64, u64)>)> {
        let plain = |values: &[(i64, f64)]| values.iter().map(|(time, value)| (*time, value.to_bits())).collect();
        stretch.series.iter().map(|(labels, values)| (labels.clone(), plain(values))).collect()
    }

    proptest! {
        #[test]
        fn steps_come_back_as_they_were(
            series in prop::collection::btree_map(
                prop::collection::btree_map("[a-z:0-9]{0,4}", "\\PC{1,6}", 0..4),
                prop::collection::btree_map(-50i64..50, any::<u64>(), 1..20),
                0..6,
            ),
            (start, end) in (-60i64..60, -60i64..60),
        ) {
            let mut stretch = PartialRange::default();
            for (labels, values) in &series {
                let values = values.iter().map(|(time, bits)| (*time, f64::from_bits(*bits))).collect();
                stretch.series.push((Labels::from_pairs(labels).unwrap(), values));
            }
            stretch.series.sort_by(|(a, _), (b, _)| a.cmp(b));
            let span = Span::new(start, end.max(start + 1));
            let back = steps_of(&answer_of_steps(&stretch, span).unwrap()).unwrap();
            let expected = PartialRange::join(&[PartialRangeSlice {
                range: &stretch,
                first_ms: span.start,
                last_ms: span.end - 1,
            }]);
            prop_assert_eq!(bits(&back), bits(&expected));
        }

        #[test]
        fn bins_come_back_as_they_were(
            series in prop::collection::btree_map(
                prop::collection::btree_map("[a-z:0-9]{0,4}", "\\PC{1,6}", 0..4),
                (prop::collection::btree_map(-50i64..50, prop::collection::vec(cell(), 3), 1..20), prop::collection::vec(0usize..5, 3)),
                0..6,
            ),
            (start, end) in (-60i64..60, -60i64..60),
        ) {
            let mut frames = Vec::new();
            for (labels, (rows, kinds)) in &series {
                let column = |place: usize| {
                    let cells = rows.values().map(|row| plain_cell(row[place].as_ref(), kinds[place]));
                    FrameColumn::of_cells(&format!("{place}: x"), &cells.collect::<Vec<_>>()).unwrap()
                };
                let labels = Labels::from_pairs(labels).unwrap();
                frames.push(Frame::new(labels, rows.keys().copied().collect(), (0..3).map(column).collect()));
            }
            let span = Span::new(start, end.max(start + 1));
            let back = bins_of(&answer_of_bins(&frames, span).unwrap()).unwrap();
            let expected = Frame::join(&[(&frames, model::TimeRange::new(span.start, span.end - 1))]).unwrap();
            prop_assert_eq!(format!("{back:?}"), format!("{expected:?}"));
        }
    }

    fn cell() -> impl Strategy<Value = Option<(u64, String)>> {
        prop::option::weighted(0.8, (any::<u64>(), "\\PC{0,5}"))
    }

    fn plain_cell(of: Option<&(u64, String)>, kind: usize) -> Cell<'_> {
        let Some((bits, text)) = of else { return Cell::Null };
        match kind {
            0 => Cell::F64(f64::from_bits(*bits)),
            1 => Cell::I64(*bits as i64),
            2 => Cell::U64(*bits),
            3 => Cell::Bool(*bits % 2 == 0),
            _ => Cell::Text(text),
        }
    }
}
