//! Groups by labels that a small table says.

use std::collections::BTreeMap;
use std::sync::Arc;

use index::{CompiledMatcher, compile};
use model::{Cell, Labels, Matcher};

use super::binned::Binned;
use super::group::Gathered;
use super::mapped::has_every_row;
use super::{Context, MappedRows, Run, execute, filtered_scan};
use crate::plan::{Grouping, Labelled, Plan, Selector};
use crate::result::label_rows::LabelRows;
use crate::{Frame, QueryError};

/// What a table says of labels, as the query read it first.
pub(crate) fn label_rows(labelled: &Labelled, context: &Context<'_>) -> Result<Arc<LabelRows>, QueryError> {
    let text = labelled.table_text();
    if let Some(known) = context.budget.label_rows(&text) {
        return Ok(known);
    }
    let mut scan = labelled.table.clone();
    if let Some(table) = &mut scan.table {
        table.fields = labelled.labels.iter().map(|(_, column)| column.clone()).collect();
    }
    let held = context.budget.samples();
    // Of a table that is too large no series is read whole.
    let first = Plan::Limit { input: Box::new(Plan::Scan(scan)), rows: LabelRows::ROWS_MAX + 1, skip: 0 };
    let frames = execute(&first, context)?.frames;
    let rows: Vec<Vec<KeyLabels>> =
        frames.iter().map(|frame| rows_of(frame, labelled)).collect::<Result<_, QueryError>>()?;
    let read = LabelRows::new(rows.into_iter().flatten());
    context.budget.give_back(context.budget.samples().saturating_sub(held) as usize);
    let Some(read) = read.map(Arc::new) else {
        return Err(QueryError::Invalid(format!(
            "the joined table {:?} has more than {} rows, or more than {} MiB of keys and labels, which is the most: join a smaller table, or \
             write the labels as tags of the rows",
            labelled.table_name(),
            LabelRows::ROWS_MAX,
            LabelRows::BYTES_MAX >> 20
        )));
    };
    context.budget.keep_label_rows(text, &read)?;
    Ok(read)
}

/// A row's key, and its labels.
type KeyLabels = (Vec<String>, Vec<String>);

/// The keys and labels of a frame's rows that have a key.
fn rows_of(frame: &Frame, labelled: &Labelled) -> Result<Vec<KeyLabels>, QueryError> {
    let tag = |name: &str| frame.labels.get(name).filter(|value| !value.is_empty());
    let key: Option<Vec<String>> = labelled.on.iter().map(|(_, name)| tag(name).map(str::to_owned)).collect();
    let Some(key) = key else { return Ok(Vec::new()) };
    let label = |column: &str, row: usize| {
        if let Some(value) = tag(column) {
            return Ok(value.to_owned());
        }
        match frame.column(column).map_or(Cell::Null, |column| column.cell(row)) {
            Cell::Null => Ok(String::new()),
            Cell::Text(text) => Ok(text.to_owned()),
            other => Err(not_a_label(labelled.table_name(), column, &other)),
        }
    };
    let row = |row: usize| {
        let labels = labelled.labels.iter().map(|(_, column)| label(column, row));
        Ok((key.clone(), labels.collect::<Result<_, QueryError>>()?))
    };
    (0..frame.rows()).map(row).collect()
}

/// Refuses a value that is no text as a label.
pub(super) fn not_a_label(table: &str, column: &str, cell: &Cell<'_>) -> QueryError {
    QueryError::Execution(format!(
        "the column {column:?} of the table {table:?} holds a {}: labels are tags and texts",
        cell.kind()
    ))
}

/// How series get labels of one table.
struct Labelling<'a> {
    labelled: &'a Labelled,
    rows: Arc<LabelRows>,
    matchers: Vec<CompiledMatcher>,
}

impl<'a> Labelling<'a> {
    fn new(labelled: &'a Labelled, context: &Context<'_>) -> Result<Self, QueryError> {
        let matchers: Vec<Matcher> = labelled.selectors.iter().map(Selector::matcher).collect();
        Ok(Self { labelled, rows: label_rows(labelled, context)?, matchers: compile(&matchers)? })
    }

    /// The labels of a series with what the table adds, each with how many rows say so; nothing if the table has no row for it.
    fn labels_of(&self, labels: &Labels) -> Vec<(Labels, usize)> {
        let of_key = |(name, _): &(String, String)| labels.get(name).filter(|value| !value.is_empty());
        let key: Option<Vec<String>> = self.labelled.on.iter().map(|pair| of_key(pair).map(str::to_owned)).collect();
        let found: Vec<(&[String], usize)> =
            key.as_ref().map(|key| self.rows.labels_of(key).collect()).unwrap_or_default();
        let own = labels.retain(|name| !self.labelled.adds(name));
        let with = |values: &[String]| {
            let added = self.labelled.labels.iter().zip(values).filter(|(_, value)| !value.is_empty());
            added.fold(own.clone(), |labels, ((name, _), value)| labels.with(name, value))
        };
        let mut all: Vec<(Labels, usize)> = found.into_iter().map(|(values, count)| (with(values), count)).collect();
        if all.is_empty() && self.labelled.keeps_all {
            all.push((own, 1));
        }
        all.retain(|(labels, _)| self.is_selected(labels));
        all
    }

    fn is_selected(&self, labels: &Labels) -> bool {
        let selectors = self.labelled.selectors.iter().zip(&self.matchers);
        selectors
            .into_iter()
            .all(|(Selector { name, .. }, matcher)| matcher.matches(labels.get(name).unwrap_or_default()))
    }
}

/// How series get labels of several tables, one after the other.
struct Labellings<'a> {
    steps: Vec<Labelling<'a>>,
    /// The labels by which rows are grouped.
    by: &'a [String],
}

impl<'a> Labellings<'a> {
    fn new(steps: &[&'a Labelled], by: &'a [String], context: &Context<'_>) -> Result<Self, QueryError> {
        if steps.len() > Labelled::TABLES_MAX {
            return Err(QueryError::Invalid(format!(
                "{} tables say labels of the same rows, and {} is the most: write the labels of the others as tags of the rows",
                steps.len(),
                Labelled::TABLES_MAX
            )));
        }
        let steps = steps.iter().map(|step| Labelling::new(step, context)).collect::<Result<_, QueryError>>()?;
        Ok(Self { steps, by })
    }

    /// The labels of the rows that groups and tables need.
    fn own_labels(&self) -> Vec<String> {
        let is_added_before =
            |label: &String, place: usize| self.steps.iter().take(place).any(|of| of.labelled.adds(label));
        let mut own: Vec<String> =
            self.by.iter().filter(|label| !is_added_before(label, self.steps.len())).cloned().collect();
        for (place, step) in self.steps.iter().enumerate() {
            for (label, _) in &step.labelled.on {
                if !is_added_before(label, place) && !own.contains(label) {
                    own.push(label.clone());
                }
            }
        }
        own
    }

    /// The labels of a series with what the tables add, each with how many of their rows say so.
    fn labels_of(&self, labels: &Labels) -> Result<BTreeMap<Labels, usize>, QueryError> {
        let mut all = BTreeMap::from([(labels.clone(), 1)]);
        for (place, step) in self.steps.iter().enumerate() {
            let is_used = |label: &str| {
                let is_key = |of: &Labelling<'_>| of.labelled.on.iter().any(|(name, _)| name == label);
                self.by.iter().any(|name| name == label) || self.steps.iter().skip(place + 1).any(is_key)
            };
            let (mut following, mut rows) = (BTreeMap::new(), 0);
            for (labels, count) in &all {
                for (labels, rows_of_step) in step.labels_of(labels) {
                    // Neither factor is above the number of rows that are possible.
                    rows += count * rows_of_step;
                    if rows > LabelRows::ROWS_MAX {
                        return Err(too_many_rows(step.labelled, &labels));
                    }
                    *following.entry(labels.retain(is_used)).or_insert(0) += count * rows_of_step;
                }
            }
            all = following;
        }
        Ok(all)
    }
}

fn too_many_rows(labelled: &Labelled, labels: &Labels) -> QueryError {
    QueryError::Invalid(format!(
        "a row of the series {labels} finds more than {} rows of joined tables together, up to the table {:?}: delete rows of these tables that \
         say the same",
        LabelRows::ROWS_MAX,
        labelled.table_name()
    ))
}

impl Run<'_> {
    /// Groups rows by labels of which tables say some. Rows for which these have several rows count once for each.
    pub(super) fn group_labelled(
        &mut self,
        labelled: &Labelled,
        grouping: &Grouping,
    ) -> Result<Vec<Frame>, QueryError> {
        let Some(by) = &grouping.by else {
            return Err(QueryError::Invalid("rows with labels of a table are grouped by labels".to_owned()));
        };
        let steps = labelled.steps();
        let labellings = Labellings::new(&steps, by, self.context)?;
        let inner = Grouping { by: Some(labellings.own_labels()), ..grouping.clone() };
        let rows = steps.first().map_or(&labelled.input, |first| &first.input);
        let binned = self.bins_of(rows, &inner)?;
        let budget = self.context.budget;
        let mut gathered = Gathered::new(grouping, budget);
        for series in binned {
            budget.check()?;
            let held = series.held_samples();
            for (labels, count) in labellings.labels_of(&series.labels)? {
                for _ in 0..count {
                    budget.take(held)?;
                    gathered.add(series.with_labels(labels.clone()));
                }
            }
            budget.give_back(held);
        }
        self.finish(gathered.into_binned(), grouping)
    }

    /// The bins of rows, for each group.
    fn bins_of(&mut self, input: &Plan, grouping: &Grouping) -> Result<Vec<Binned>, QueryError> {
        if let Plan::Scan(scan) = input {
            return self.scan_bins(scan, grouping);
        }
        if let Some((scan, condition)) = filtered_scan(input) {
            return self.filtered_bins(scan, condition, grouping);
        }
        if let Some(mapped) = MappedRows::new(input) {
            return self.mapped_bins(&mapped, grouping);
        }
        let frames = self.plan(input)?;
        self.frame_bins(frames, grouping, has_every_row(input))
    }
}
