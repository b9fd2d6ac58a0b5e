//! Which columns of groups are read where every row counts: groups are chosen with all that they have, since rows are there whether or not
//! they hold what is wanted.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use model::{Labels, ValueType};
use store::{SelectedColumn, SelectedGroup};

use crate::plan::{AggregateInput, Expression, Grouping, Scan};

/// The fields that are wanted of a table; `None`: all.
pub(super) type Wanted<'a> = Option<Vec<&'a str>>;

type Columns = Arc<Vec<SelectedColumn>>;

/// For each set of columns those that are read: the wanted ones, or one that shows which rows exist.
#[derive(Default)]
pub(super) struct Narrowing(Vec<(Columns, Columns)>);

impl Narrowing {
    /// Many groups share their columns, so that few are to be narrowed.
    pub(super) fn new(groups: &[SelectedGroup], wanted: &Wanted<'_>) -> Self {
        let mut known: Vec<(Columns, Columns)> = Vec::new();
        let Some(wanted) = wanted else { return Self(known) };
        let mut seen: HashSet<*const Vec<SelectedColumn>> = HashSet::new();
        for group in groups {
            if seen.insert(Arc::as_ptr(&group.columns)) {
                known.push((group.columns.clone(), Arc::new(narrowed(group, wanted))));
            }
        }
        known.sort_by_key(|(all, _)| Arc::as_ptr(all));
        Self(known)
    }

    /// The group with the columns that are read.
    pub(super) fn narrow<'a>(&self, group: &'a SelectedGroup) -> Cow<'a, SelectedGroup> {
        let found = self.0.binary_search_by_key(&Arc::as_ptr(&group.columns), |(all, _)| Arc::as_ptr(all));
        match found.ok().and_then(|place| self.0.get(place)) {
            Some((_, read)) => Cow::Owned(group.with_columns(read.clone())),
            None => Cow::Borrowed(group),
        }
    }
}

/// The wanted columns of each member block, and of each set of labels that columns have of their own. A set without any is read by one of
/// its columns, a number if there is one, which says which rows there are.
fn narrowed(group: &SelectedGroup, wanted: &[&str]) -> Vec<SelectedColumn> {
    let mut read = Vec::new();
    for block in group.clone().by_block() {
        let mut sets: HashMap<&Labels, Vec<usize>> = HashMap::new();
        for (place, column) in block.columns.iter().enumerate() {
            sets.entry(&column.labels).or_default().push(place);
        }
        let at = |place: &usize| block.columns.get(*place);
        let is_wanted = |place: &usize| at(place).is_some_and(|column| wanted.contains(&&*column.field));
        let mut read_columns: Vec<usize> = Vec::new();
        for places in sets.values() {
            let before = read_columns.len();
            read_columns.extend(places.iter().copied().filter(is_wanted));
            if read_columns.len() == before {
                let is_number = |place: &&usize| at(place).is_some_and(|column| is_number(column.value_type));
                read_columns.extend(places.iter().find(is_number).or(places.first()));
            }
        }
        read_columns.sort_unstable();
        read.extend(read_columns.iter().filter_map(at).cloned());
    }
    read
}

pub(super) const fn is_number(value_type: ValueType) -> bool {
    matches!(value_type, ValueType::F64 | ValueType::I64 | ValueType::U64)
}

impl Scan {
    /// The fields that are read where rows are shown.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        let table = self.table.as_ref().filter(|table| table.every_row && !table.fields.is_empty())?;
        Some(table.fields.iter().map(String::as_str).collect())
    }

    /// The fields that a grouping of every row needs, of rows for which a condition holds if there is one.
    pub(super) fn wanted_by<'a>(&'a self, grouping: &'a Grouping, condition: Option<&'a Expression>) -> Wanted<'a> {
        if !self.is_of_every_row() {
            return None;
        }
        let mut wanted = Vec::with_capacity(grouping.aggregates.len());
        for call in &grouping.aggregates {
            match &call.input {
                AggregateInput::Each => return self.wanted(),
                AggregateInput::Column(column) | AggregateInput::Sketches(column) => wanted.push(column.as_str()),
                AggregateInput::Parts(parts) => wanted.extend(parts.names()),
                AggregateInput::Time | AggregateInput::Tag(_) => {}
            }
        }
        let is_all = condition.is_none_or(|condition| condition.each_column(&mut |column| wanted.push(column)));
        if is_all { Some(wanted) } else { self.wanted() }
    }
}
