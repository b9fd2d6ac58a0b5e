//! Reading a file's series.

use std::collections::{BTreeSet, HashMap};

use model::{Cell, METRIC_NAME, MatchOp, Matcher, TimeRange, metric_name};
use query::plan::{Scan, Selector, TableColumns};
use query::{Budget, Frame, FrameColumn, Plan};

use super::{Catalog, File};
use crate::RrdError;
use crate::file::{Moment, Reading, SourceKind};
use crate::pattern::ARCHIVE_LABEL;

/// The field that counts the sources that a row says nothing of.
pub(super) const UNKNOWN_FIELD: &str = "rrd_unknown";
/// The field of the state of a file that was imported.
pub(super) const STATE_FIELD: &str = "rrd_state";

/// An update as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredUpdate {
    pub(super) time: Moment,
    pub(super) readings: Vec<Reading>,
}

/// A read of a file's series.
struct Read<'a> {
    file: &'a File,
    fields: Vec<String>,
    /// The label of an archive's series.
    archive: Option<String>,
    range: TimeRange,
    /// Only the last row.
    is_last: bool,
}

impl Catalog {
    /// Runs a read; `None` if the file has no series of that kind.
    fn read(&self, read: Read<'_>, budget: &Budget) -> Result<Option<Frame>, RrdError> {
        let identity = &read.file.identity;
        let equal = |name: &str, value: &str| Selector {
            name: name.to_owned(),
            op: MatchOp::Equal,
            values: vec![value.to_owned()],
        };
        let mut selectors: Vec<Selector> = identity.labels.iter().map(|(name, value)| equal(name, value)).collect();
        let archive = read.archive.as_deref().unwrap_or_default();
        selectors.push(equal(ARCHIVE_LABEL, archive));
        let table = TableColumns { name: identity.measurement.clone(), fields: read.fields, every_row: true };
        let scan = Scan { table: Some(table), selectors, tokens: Vec::new(), range: read.range };
        let plan =
            if read.is_last { Plan::Last { input: Box::new(Plan::Scan(scan)), rows: 1 } } else { Plan::Scan(scan) };
        let labels = match archive {
            "" => identity.labels.clone(),
            archive => identity.labels.with(ARCHIVE_LABEL, archive),
        };
        let outcome = self.db.run_plan(&read.file.database, &plan, budget)?;
        // Others may have these labels, and more.
        Ok(outcome.frames.into_iter().find(|frame| frame.labels == labels))
    }

    /// The fields of raw readings, with the one of rows without any.
    fn reading_fields(file: &File) -> Vec<String> {
        let sources = file.definition.sources.iter().enumerate();
        let fields = sources.filter(|(_, source)| source.kind != SourceKind::Compute);
        fields.map(|(number, _)| file.field(number)).chain([UNKNOWN_FIELD.to_owned()]).collect()
    }

    /// The updates of a file in a range.
    pub(super) fn updates(
        &self,
        file: &File,
        range: TimeRange,
        budget: &Budget,
    ) -> Result<Vec<StoredUpdate>, RrdError> {
        let read = Read { file, fields: Self::reading_fields(file), archive: None, range, is_last: false };
        let Some(frame) = self.read(read, budget)? else { return Ok(Vec::new()) };
        let updates = stored_updates(file, &frame);
        budget.give_back(frame.timestamps_ns.len() * frame.columns.len().max(1));
        Ok(updates)
    }

    /// The last update of a file in a range.
    pub(super) fn last_in(
        &self,
        file: &File,
        range: TimeRange,
        budget: &Budget,
    ) -> Result<Option<StoredUpdate>, RrdError> {
        let read = Read { file, fields: Self::reading_fields(file), archive: None, range, is_last: true };
        let frame = self.read(read, budget)?;
        Ok(frame.and_then(|frame| stored_updates(file, &frame).into_iter().next()))
    }

    /// When a file was last updated.
    pub fn last_update(&self, file: &File) -> Result<Moment, RrdError> {
        let mut last = file.last_update.lock();
        if let Some(last) = *last {
            return Ok(last);
        }
        let after = TimeRange::new(file.base.to_ns().saturating_add(1), i64::MAX);
        let found = self.last_in(file, after, &self.own_budget())?;
        let found = found.map_or(file.base, |update| update.time);
        *last = Some(found);
        Ok(found)
    }

    /// The values of a file's imported archive by the time of their row, in seconds.
    pub(super) fn imported_rows(
        &self,
        file: &File,
        archive: usize,
        (first_s, last_s): (i64, i64),
        budget: &Budget,
    ) -> Result<HashMap<i64, Vec<f64>>, RrdError> {
        let Some(import) = file.import else { return Ok(HashMap::new()) };
        let is_primary = import.primary == Some(archive);
        let label = if is_primary { None } else { Some(file.archive_label(archive)?) };
        let names: Vec<String> = file.definition.sources.iter().map(|source| source.name.clone()).collect();
        let ns = |seconds: i64| Moment::from_seconds(seconds).to_ns();
        let range = TimeRange::new(ns(first_s), ns(last_s));
        let read = Read { file, fields: names.clone(), archive: label, range, is_last: false };
        let Some(frame) = self.read(read, budget)? else { return Ok(HashMap::new()) };
        let columns: Vec<Option<&FrameColumn>> = names.iter().map(|name| frame.column(name)).collect();
        let mut rows = HashMap::with_capacity(frame.rows());
        for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
            let value = |column: Option<&FrameColumn>| match column.map(|column| column.cell(row)) {
                Some(Cell::F64(value)) => value,
                _ => f64::NAN,
            };
            rows.insert(Moment::from_ns(*time_ns).seconds, columns.iter().map(|column| value(*column)).collect());
        }
        Ok(rows)
    }

    /// The text of the state that a file was imported with.
    pub(super) fn imported_state(&self, file: &File, budget: &Budget) -> Result<Option<String>, RrdError> {
        let base_ns = file.base.to_ns();
        let range = TimeRange::new(base_ns, base_ns);
        let read = Read { file, fields: vec![STATE_FIELD.to_owned()], archive: None, range, is_last: false };
        let frame = self.read(read, budget)?;
        Ok(frame.and_then(|frame| match frame.column(STATE_FIELD)?.cell(0) {
            Cell::Text(text) => Some(text.to_owned()),
            _ => None,
        }))
    }

    /// Deletes all rows of a file.
    pub(super) fn delete_rows(&self, file: &File) -> Result<(), RrdError> {
        let matchers = self.own_series(file)?;
        *file.last_update.lock() = None;
        let deleted = self.db.delete(&file.database, &[matchers], &TimeRange::ALL);
        deleted.map(drop).map_err(|error| RrdError::Refused(error.to_string()))
    }

    /// What the series of a file satisfy, and no others: other files may have its labels and more, or a measurement that begins as its own does.
    fn own_series(&self, file: &File) -> Result<Vec<Matcher>, RrdError> {
        let identity = &file.identity;
        let imported = file.definition.sources.iter().map(|source| source.name.clone());
        let fields = imported.chain(Self::reading_fields(file)).chain([STATE_FIELD.to_owned()]);
        let names = fields.map(|field| regex::escape(&metric_name(&identity.measurement, &field)));
        let names: BTreeSet<String> = names.collect();
        let names = names.into_iter().collect::<Vec<_>>().join("|");
        let mut matchers = vec![Matcher::new(METRIC_NAME, MatchOp::Regex, names)];
        matchers.extend(identity.labels.iter().map(|(name, value)| Matcher::new(name, MatchOp::Equal, value)));
        let found =
            self.db.series(&file.database, std::slice::from_ref(&matchers), TimeRange::ALL, 0, &self.own_budget())?;
        let is_other =
            |name: &&str| ![METRIC_NAME, ARCHIVE_LABEL].contains(name) && identity.labels.get(name).is_none();
        let others: BTreeSet<&str> =
            found.iter().flat_map(|labels| labels.iter().map(|(name, _)| name).filter(is_other)).collect();
        matchers.extend(others.into_iter().map(|name| Matcher::new(name, MatchOp::Equal, "")));
        Ok(matchers)
    }
}

fn stored_updates(file: &File, frame: &Frame) -> Vec<StoredUpdate> {
    let sources = file.definition.sources.iter().enumerate();
    let columns: Vec<Option<&FrameColumn>> = sources
        .map(|(number, source)| match source.kind {
            SourceKind::Compute => None,
            _ => frame.column(&file.field(number)),
        })
        .collect();
    let reading = |column: Option<&FrameColumn>, row: usize| match column.map(|column| column.cell(row)) {
        Some(Cell::U64(value)) => Reading::Unsigned(value),
        Some(Cell::I64(value)) => Reading::Signed(value),
        Some(Cell::F64(value)) => Reading::Number(value),
        _ => Reading::Unknown,
    };
    let marker = frame.column(UNKNOWN_FIELD);
    let mut updates = Vec::with_capacity(frame.rows());
    for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
        let readings: Vec<Reading> = columns.iter().map(|column| reading(*column, row)).collect();
        let is_marked = marker.is_some_and(|column| !matches!(column.cell(row), Cell::Null));
        if is_marked || readings.iter().any(|reading| *reading != Reading::Unknown) {
            updates.push(StoredUpdate { time: Moment::from_ns(*time_ns), readings });
        }
    }
    updates
}
