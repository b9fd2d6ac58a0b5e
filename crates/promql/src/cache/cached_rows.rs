//! Cached rows of range functions. They are replayed in the order in which they came, so that sums over them are bit-identical.
//!
//! ```text
//!  section       steps 0 … 99                      section   steps 100 … 101
//!  series a      ████████████                      a  ██
//!  series b         █████                          c  ██
//! ```
//!
//! At any step the rows of one section alone count, in its order. Sections that touch become one where their orders agree.

use std::collections::HashMap;

use model::Labels;

use crate::eval::rows::{ABSENT, Row, StepSpan, Steps};

/// Rows of floats by sections of steps.
#[derive(Debug, Clone, Default)]
pub struct CachedRows {
    sections: Vec<Section>,
}

/// Steps that follow one another, and all rows with values at any of them, in the order in which they went by.
#[derive(Debug, Clone)]
struct Section {
    steps: Steps,
    rows: Vec<CachedRow>,
}

/// A row with the series that it was made of.
#[derive(Debug, Clone)]
pub(crate) struct CachedRow {
    pub(crate) series: Labels,
    pub(crate) labels: Labels,
    pub(crate) drop_name: bool,
    /// The step of the first value, in its section.
    pub(crate) first: usize,
    /// Those of steps without a value are [`ABSENT`].
    pub(crate) values: Vec<f64>,
}

impl CachedRow {
    /// `None` of one with histograms.
    pub(crate) fn from_row(series: &Labels, row: &Row) -> Option<Self> {
        let values = row.all_floats()?.to_vec();
        let (series, labels) = (series.clone(), row.labels.clone());
        Some(Self { series, labels, drop_name: row.drop_name, first: row.first, values })
    }

    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + self.series.packed_bytes()
            + self.labels.packed_bytes()
            + size_of_val(self.values.as_slice())
    }

    /// The indices of its values at steps from `first` to before `end`.
    fn value_range(&self, first: usize, end: usize) -> std::ops::Range<usize> {
        let own_end = self.first + self.values.len();
        let (from, to) = (first.clamp(self.first, own_end), end.clamp(self.first, own_end));
        from - self.first..to.max(from) - self.first
    }

    /// Its values at steps from one to just before another, counted from the first of them; `None` if there are none.
    fn between(&self, first: usize, end: usize) -> Option<Self> {
        let value_range = self.value_range(first, end);
        let start = self.first + value_range.start;
        let values = self.values.get(value_range).filter(|values| !values.is_empty())?.to_vec();
        let (series, labels) = (self.series.clone(), self.labels.clone());
        Some(Self { series, labels, drop_name: self.drop_name, first: start.saturating_sub(first), values })
    }
}

impl Section {
    fn end_ms(&self) -> i64 {
        self.steps.time_ms(self.steps.count)
    }

    /// The steps with times from one to just before another: the first, and one past the last.
    fn steps_between(&self, start_ms: i64, end_ms: i64) -> (usize, usize) {
        let Steps { start_ms: from_ms, step_ms, count } = self.steps;
        let index = |time_ms: i64| {
            let past_ms = i128::from(time_ms) - i128::from(from_ms);
            let steps = (past_ms + i128::from(step_ms) - 1).div_euclid(i128::from(step_ms));
            usize::try_from(steps.clamp(0, count as i128)).unwrap_or_default()
        };
        let first = index(start_ms);
        (first, index(end_ms).max(first))
    }

    /// Takes in the rows of steps that follow; gives them back if their order is another, or they do not follow.
    fn join(&mut self, later: Self) -> Option<Self> {
        let follows = self.end_ms() == later.steps.start_ms && self.steps.step_ms == later.steps.step_ms;
        let Some(order) = follows.then(|| common_order(&self.rows, &later.rows)).flatten() else { return Some(later) };
        let end = self.steps.count;
        self.steps.count += later.steps.count;
        let mut before: Vec<Option<CachedRow>> = std::mem::take(&mut self.rows).into_iter().map(Some).collect();
        let mut after: Vec<Option<CachedRow>> = later.rows.into_iter().map(Some).collect();
        for (index, later_place) in order {
            let row = index.and_then(|index| before.get_mut(index)?.take());
            let later = later_place.and_then(|index| after.get_mut(index)?.take());
            self.rows.extend(join_rows(row, later, end));
        }
        None
    }
}

/// A row joined with the later one, which begins after so many steps.
fn join_rows(row: Option<CachedRow>, later: Option<CachedRow>, end: usize) -> Option<CachedRow> {
    match (row, later) {
        (Some(mut row), Some(later)) => {
            row.values.resize(end + later.first - row.first, ABSENT);
            row.values.extend_from_slice(&later.values);
            Some(row)
        }
        (None, Some(later)) => Some(CachedRow { first: end + later.first, ..later }),
        (row, None) => row,
    }
}

/// An order of the rows of two sections that keeps the order of both: the indices of each series in either. `None` if there is none.
fn common_order(before: &[CachedRow], after: &[CachedRow]) -> Option<Vec<(Option<usize>, Option<usize>)>> {
    let is_same = |(a, b): (&CachedRow, &CachedRow)| a.series == b.series;
    if before.len() == after.len() && before.iter().zip(after).all(is_same) {
        return Some((0..before.len()).map(|index| (Some(index), Some(index))).collect());
    }
    let positions: HashMap<&Labels, usize> =
        after.iter().enumerate().map(|(index, row)| (&row.series, index)).collect();
    let mut order = Vec::with_capacity(before.len().max(after.len()));
    let mut next = 0;
    for (index, row) in before.iter().enumerate() {
        let Some(later) = positions.get(&row.series) else {
            order.push((Some(index), None));
            continue;
        };
        if *later < next {
            return None;
        }
        order.extend((next..*later).map(|other| (None, Some(other))));
        order.push((Some(index), Some(*later)));
        next = later + 1;
    }
    order.extend((next..after.len()).map(|other| (None, Some(other))));
    Some(order)
}

impl CachedRows {
    /// Rows that went by at these steps.
    pub(crate) fn new(steps: Steps, rows: Vec<CachedRow>) -> Self {
        Self { sections: vec![Section { steps, rows }] }
    }

    /// About as many bytes as they take.
    pub fn size_bytes(&self) -> usize {
        let of_section = |section: &Section| section.rows.iter().map(CachedRow::size_bytes).sum::<usize>();
        self.sections.iter().map(|section| size_of::<Section>() + of_section(section)).sum()
    }

    /// Those of steps from one time to just before another.
    #[must_use]
    pub fn between(&self, span: StepSpan) -> Self {
        let mut sections = Vec::new();
        for section in &self.sections {
            let (first, end) = section.steps_between(span.start_ms, span.end_ms);
            if first < end {
                let steps = Steps { start_ms: section.steps.time_ms(first), count: end - first, ..section.steps };
                let rows = section.rows.iter().filter_map(|row| row.between(first, end)).collect();
                sections.push(Section { steps, rows });
            }
        }
        Self { sections }
    }

    /// Adds those of later steps.
    pub fn append(&mut self, later: &Self) {
        for section in &later.sections {
            let left = match self.sections.last_mut() {
                Some(last) => last.join(section.clone()),
                None => Some(section.clone()),
            };
            self.sections.extend(left);
        }
    }

    /// Hands on the rows of steps from one time to just before another, in order, as rows of other steps of the same grid.
    pub(crate) fn replay<E>(
        &self,
        span: StepSpan,
        steps: Steps,
        mut take: impl FnMut(&CachedRow, Row) -> Result<(), E>,
    ) -> Result<(), E> {
        for section in &self.sections {
            let (first, end) = section.steps_between(span.start_ms, span.end_ms);
            let Ok(offset) = usize::try_from((section.steps.time_ms(first) - steps.start_ms) / steps.step_ms) else {
                continue;
            };
            for row in &section.rows {
                let value_range = row.value_range(first, end);
                let first_step = offset + (row.first + value_range.start).saturating_sub(first);
                let values = row.values.get(value_range).unwrap_or_default();
                if !values.is_empty() {
                    let replayed = Row::from_steps(row.labels.clone(), first_step, values.to_vec());
                    take(row, replayed.with_drop_name(row.drop_name))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Series by number, each with values by the time of their steps.
    type Plain = Vec<(u8, Vec<(i64, u64)>)>;

    fn labels(number: u8) -> Labels {
        Labels::from_pairs([("n", &*format!("{number:03}"))]).unwrap()
    }

    fn rows(steps: Steps, plain: &[(u8, Vec<Option<i16>>)]) -> CachedRows {
        let row = |(number, values): &(u8, Vec<Option<i16>>)| {
            let values = values.iter().take(steps.count).map(|value| value.map_or(ABSENT, f64::from)).collect();
            CachedRow::from_row(&labels(*number), &Row::from_steps(labels(*number), 0, values)).unwrap()
        };
        CachedRows::new(steps, plain.iter().map(row).collect())
    }

    fn replayed(cached: &CachedRows, span: StepSpan, steps: Steps) -> Plain {
        let mut plain = Plain::new();
        let taken: Result<(), ()> = cached.replay(span, steps, |cached, row| {
            let number = cached.series.get("n").unwrap().parse().unwrap();
            plain.push((number, row.floats().map(|(step, value)| (steps.time_ms(step), value.to_bits())).collect()));
            Ok(())
        });
        taken.unwrap();
        plain.retain(|(_, values)| !values.is_empty());
        plain
    }

    /// The rows that were replayed at one step, in order.
    fn rows_at(plain: &Plain, time_ms: i64) -> Vec<(u8, u64)> {
        let value = |values: &Vec<(i64, u64)>| values.iter().find(|(time, _)| *time == time_ms).map(|(_, bits)| *bits);
        plain.iter().filter_map(|(number, values)| Some((*number, value(values)?))).collect()
    }

    /// Series by number, each with values by step.
    type Drawn = Vec<(u8, Vec<Option<i16>>)>;

    fn section() -> impl Strategy<Value = (usize, Drawn)> {
        let values = prop::collection::vec(prop::option::weighted(0.7, any::<i16>()), 5);
        let ordered =
            prop::collection::btree_map(0..9u8, values, 0..6).prop_map(|rows| rows.into_iter().collect::<Vec<_>>());
        // Now and then an order that does not agree with others.
        (1..5usize, ordered, prop::bool::weighted(0.2)).prop_map(|(count, mut rows, turned)| {
            if turned {
                rows.reverse();
            }
            (count, rows)
        })
    }

    proptest! {
        /// However parts are joined and cut, each step has its rows, in their order.
        #[test]
        fn steps_keep_their_rows_and_their_order(
            sections in prop::collection::vec(section(), 1..6),
            cut in (-3..30i64, -3..30i64),
            cuts_before in any::<bool>(),
        ) {
            let mut cached = CachedRows::default();
            let mut expected: Vec<(i64, Vec<(u8, u64)>)> = Vec::new();
            let mut start_ms = 7;
            for (count, plain) in &sections {
                let steps = Steps { start_ms, step_ms: 10, count: *count };
                let new = rows(steps, plain);
                let all = replayed(&new, StepSpan { start_ms: i64::MIN, end_ms: i64::MAX }, steps);
                expected.extend((0..*count).map(|step| (steps.time_ms(step), rows_at(&all, steps.time_ms(step)))));
                cached.append(&new);
                start_ms += 10 * *count as i64;
            }
            let span = StepSpan { start_ms: 7 + cut.0 * 10 - 5, end_ms: 7 + cut.1 * 10 + 5 };
            let all = Steps { start_ms: 7, step_ms: 10, count: expected.len() };
            let cut = if cuts_before { cached.between(span) } else { cached };
            let found = replayed(&cut, span, all);
            for (time_ms, rows) in expected {
                let is_inside = span.start_ms <= time_ms && time_ms < span.end_ms;
                prop_assert_eq!(rows_at(&found, time_ms), if is_inside { rows } else { Vec::new() }, "{}", time_ms);
            }
        }
    }

    #[test]
    fn a_step_that_follows_becomes_part_of_the_section() {
        let steps = |start_ms, count| Steps { start_ms, step_ms: 10, count };
        let row = |number| (number, vec![Some(1)]);
        let mut cached = rows(steps(0, 1), &[row(1), row(3)]);
        cached.append(&rows(steps(10, 1), &[row(1), row(2), row(3)]));
        assert_eq!((cached.sections.len(), cached.sections[0].rows.len()), (1, 3));
        cached.append(&rows(steps(20, 1), &[row(3), row(1)]));
        cached.append(&rows(steps(40, 1), &[row(3), row(1)]));
        assert_eq!(cached.sections.len(), 3);
    }
}
