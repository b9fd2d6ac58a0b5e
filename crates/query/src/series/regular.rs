//! A regular database as a source: each of its names is a series of the measurement that has the database's name, with the tag `name`, the field
//! `value`, and in tables the field `status`.

use std::sync::Arc;

use index::{CompiledMatcher, compile};
use model::{Column, Folds, Labels, METRIC_NAME, Matcher, TimeRange, ValueType, Values};
use store::{
    EpochCell, EpochKind, EpochRow, EpochRows, EpochValue, NameKind, NameRows, NameValidity, NamesRead,
    RegularDefinition, Store, TableSchema,
};

use super::selection::{reach, whole_database};
use crate::plan::{Scan, Selector};
use crate::result::frame::VALUE;
use crate::session::TopNames;
use crate::{Budget, Frame, FrameColumn, QueryError, Selection, Series};

const NS_PER_MS: i64 = 1_000_000;

/// The tag that holds a series' name.
pub const NAME_TAG: &str = "name";

/// The field that says whether a cell has a value, is missing, or its series undefined.
const STATUS: &str = "status";

/// Cells of all names together that are read at once.
const CELLS_AT_ONCE: u64 = 1 << 20;

/// Bytes that comparing series takes for each name.
const TOP_BYTES: u64 = 32;

/// Names whose validity is looked up at once.
const NAMES_AT_ONCE: usize = 4096;

/// Bytes of a name while it is read, beside its text.
const NAME_BYTES: u64 = 64;

/// A regular database, for one query.
#[derive(Clone, Copy)]
pub struct RegularSource<'a> {
    store: &'a Store,
    database: &'a str,
    definition: RegularDefinition,
}

impl<'a> RegularSource<'a> {
    /// The source of a database, if that is regular.
    pub fn of_database(store: &'a Store, database: &'a str) -> Option<Self> {
        store.regular(database).map(|definition| Self { store, database, definition })
    }

    /// Its only table.
    pub(crate) fn table(&self) -> TableSchema {
        let value_type = match self.definition.kind {
            EpochKind::Int => ValueType::I64,
            EpochKind::Float => ValueType::F64,
        };
        let fields = vec![(VALUE.to_owned(), value_type), (STATUS.to_owned(), ValueType::String)];
        TableSchema { name: self.database.to_owned(), tags: vec![NAME_TAG.to_owned()], fields, layout: None }
    }

    /// The numbers and texts of names that satisfy all matchers and are valid at some time of a range, in order of the texts.
    pub(crate) fn names(
        &self,
        matchers: &[Matcher],
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<Vec<(u32, String)>, QueryError> {
        let compiled = compile(matchers)?;
        let (database, matchers) = reach(self.database, &compiled, budget)?;
        let (of_name, others): (Vec<&CompiledMatcher>, Vec<_>) =
            matchers.iter().partition(|matcher| matcher.name() == NAME_TAG);
        let label = |name: &str| if name == METRIC_NAME { self.database } else { "" };
        if database != self.database || !others.iter().all(|matcher| matcher.matches(label(matcher.name()))) {
            return Ok(Vec::new());
        }
        budget.check()?;
        let holds = |name: &str| of_name.iter().all(|matcher| matcher.matches(name));
        let found = self.store.name_numbers(self.database, range, &holds)?;
        budget.hold_bytes(found.iter().map(|(_, name)| name.len() as u64 + NAME_BYTES).sum())?;
        Ok(found)
    }

    /// Which names that satisfy all matchers are valid when, by name and time.
    pub fn validity(&self, matchers: &[Matcher], budget: &Budget) -> Result<Vec<NameValidity>, QueryError> {
        let names = self.names(matchers, &TimeRange::ALL, budget)?;
        let numbers: Vec<u32> = names.into_iter().map(|(number, _)| number).collect();
        let mut found = Vec::new();
        for some in numbers.chunks(NAMES_AT_ONCE) {
            budget.check()?;
            let validity = self.store.name_validity(self.database, some)?;
            budget.hold_bytes(validity.iter().map(|validity| validity.name.len() as u64 + NAME_BYTES).sum())?;
            found.extend(validity);
        }
        Ok(found)
    }

    /// Series that satisfy all matchers, in all epochs of a range; charged to the budget.
    pub fn rows(&self, matchers: &[Matcher], range: &TimeRange, budget: &Budget) -> Result<Vec<NameRows>, QueryError> {
        let names = self.names(matchers, &TimeRange::ALL, budget)?;
        let mut found = Vec::with_capacity(names.len());
        self.read(names, (range, EpochRows::All), budget, &mut |rows| {
            budget.take(rows.times_ns.len())?;
            found.push(rows);
            Ok(())
        })?;
        Ok(found)
    }

    /// What all series have in the epoch of a time; charged to the budget.
    pub fn epoch(&self, time_ns: i64, budget: &Budget) -> Result<EpochRow, QueryError> {
        let database = whole_database(self.database, budget)?;
        budget.hold_bytes(self.store.name_count(database)? as u64 * (NAME_BYTES + TOP_BYTES))?;
        Ok(self.store.read_epoch(database, time_ns)?)
    }

    /// The names with the largest values.
    pub fn top(&self, request: &TopNames, budget: &Budget) -> Result<Vec<(String, EpochValue)>, QueryError> {
        let database = whole_database(self.database, budget)?;
        // A sum, and whether there is one, for each name.
        let bytes = self.store.name_count(self.database)? as u64 * TOP_BYTES;
        budget.hold_bytes(bytes)?;
        let found = self.store.top_names(database, &request.range, request.by, request.count);
        Ok(found?)
    }

    /// Labels of a series; with the metric's name as PromQL has them, without it as tables do.
    pub(crate) fn labels(&self, name: &str, has_metric: bool) -> Labels {
        let labels = Labels::empty().with(NAME_TAG, name);
        if has_metric { labels.with(METRIC_NAME, self.database) } else { labels }
    }

    /// Reads series some at a time, and makes something of each.
    fn read(
        &self,
        names: Vec<(u32, String)>,
        (range, rows): (&TimeRange, EpochRows),
        budget: &Budget,
        each: &mut dyn FnMut(NameRows) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let Some((_, epochs)) = self.store.epoch_rows(self.database, range)? else { return Ok(()) };
        let mut numbers: Vec<u32> = names.into_iter().map(|(number, _)| number).collect();
        // As their values lie.
        numbers.sort_unstable();
        let at_once = (CELLS_AT_ONCE / epochs.max(1)).max(1) as usize;
        for names in numbers.chunks(at_once) {
            budget.check()?;
            let cells = epochs.saturating_mul(names.len() as u64).min(usize::MAX as u64) as usize;
            budget.take(cells)?;
            let read = self.store.read_names(self.database, &NamesRead { names, range: *range, rows });
            budget.give_back(cells);
            read?.into_iter().filter(|rows| !rows.times_ns.is_empty()).try_for_each(&mut *each)?;
        }
        Ok(())
    }

    /// Visits what a scan gives, series by series; each is charged to the budget before.
    pub(crate) fn each_frame(
        &self,
        scan: &Scan,
        budget: &Budget,
        visit: &mut dyn FnMut(Frame) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        if !scan.tokens.is_empty() {
            let message = "the series of a regular database are selected by name, not by token";
            return Err(QueryError::Invalid(message.to_owned()));
        }
        let names = self.scanned_names(scan, budget)?;
        let has = |field: &str| {
            scan.table
                .as_ref()
                .is_some_and(|table| table.fields.is_empty() || table.fields.iter().any(|known| known == field))
        };
        let wanted = WantedColumns {
            has_metric: scan.table.is_none(),
            value: scan.table.is_none() || has(VALUE),
            status: has(STATUS),
        };
        let rows = if scan.is_of_every_row() { EpochRows::Life } else { EpochRows::Values };
        self.read(names, (&scan.range, rows), budget, &mut |rows| {
            let frame = self.frame(rows, wanted);
            budget.take(frame.samples())?;
            visit(frame)
        })
    }

    /// The names that a scan selects.
    pub(crate) fn scanned_names(&self, scan: &Scan, budget: &Budget) -> Result<Vec<(u32, String)>, QueryError> {
        if scan.table.as_ref().is_some_and(|table| table.name != self.database) {
            return Ok(Vec::new());
        }
        let matchers: Vec<Matcher> = scan.selectors.iter().map(Selector::matcher).collect();
        self.names(&matchers, &scan.range, budget)
    }

    fn frame(&self, rows: NameRows, wanted: WantedColumns) -> Frame {
        let NameRows { name, times_ns, cells } = rows;
        let mut columns = Vec::with_capacity(2);
        if wanted.value {
            columns.push(FrameColumn { name: VALUE.into(), cells: self.values(&cells) });
        }
        if wanted.status {
            let status = Values::Text(cells.iter().map(|cell| cell.status().to_owned()).collect());
            let cells = Column { values: status, validity: None, folds: Folds::NONE };
            columns.push(FrameColumn { name: STATUS.into(), cells });
        }
        Frame::new(self.labels(&name, wanted.has_metric), times_ns, columns)
    }

    fn values(&self, cells: &[EpochCell]) -> Column {
        let value = |cell: &EpochCell| match cell {
            EpochCell::Value(value) => Some(*value),
            EpochCell::Undefined | EpochCell::Missing => None,
        };
        let is_valid: Vec<bool> = cells.iter().map(|cell| value(cell).is_some()).collect();
        let values = match self.definition.kind {
            EpochKind::Int => {
                let int = |cell: &EpochCell| match value(cell) {
                    Some(EpochValue::Int(value)) => value,
                    _ => 0,
                };
                Values::I64(cells.iter().map(int).collect())
            }
            EpochKind::Float => {
                Values::F64(cells.iter().map(|cell| value(cell).map_or(0.0, EpochValue::to_f64)).collect())
            }
        };
        let validity = if is_valid.iter().all(|valid| *valid) { None } else { Some(is_valid) };
        Column { values, validity, folds: Folds::NONE }
    }

    /// The series of a selection, in order of labels; charged to the budget.
    pub(crate) fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<Series>, QueryError> {
        let range = selection.nanoseconds();
        let names = self.names(selection.matchers, &range, budget)?;
        let mut found = Vec::new();
        self.read(names, (&range, EpochRows::Values), budget, &mut |rows| {
            budget.take(rows.times_ns.len())?;
            let value = |cell: &EpochCell| match cell {
                EpochCell::Value(value) => value.to_f64(),
                EpochCell::Undefined | EpochCell::Missing => f64::NAN,
            };
            let timestamps_ms = rows.times_ns.iter().map(|time_ns| time_ns.div_euclid(NS_PER_MS)).collect();
            found.push(Series {
                labels: self.labels(&rows.name, true),
                timestamps_ms: Arc::new(timestamps_ms),
                values: rows.cells.iter().map(value).collect(),
                ..Series::empty()
            });
            Ok(())
        })?;
        found.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(found)
    }

    /// Labels of the series that satisfy all matchers and are valid in a range.
    pub(crate) fn series(
        &self,
        matchers: &[Matcher],
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<Vec<Labels>, QueryError> {
        let names = self.names(matchers, range, budget)?;
        Ok(names.into_iter().map(|(_, name)| self.labels(&name, true)).collect())
    }

    /// Names of labels, or values of one.
    pub(crate) fn label_texts(
        &self,
        kind: NameKind<'_>,
        matchers: &[Matcher],
        (range, has_metric): (&TimeRange, bool),
        budget: &Budget,
    ) -> Result<Vec<String>, QueryError> {
        let names = self.names(matchers, range, budget)?;
        Ok(match kind {
            _ if names.is_empty() => Vec::new(),
            NameKind::Labels if has_metric => vec![METRIC_NAME.to_owned(), NAME_TAG.to_owned()],
            NameKind::Labels => vec![NAME_TAG.to_owned()],
            NameKind::Values(NAME_TAG) => names.into_iter().map(|(_, name)| name).collect(),
            NameKind::Values(METRIC_NAME) if has_metric => vec![self.database.to_owned()],
            NameKind::Values(_) => Vec::new(),
        })
    }
}

/// The columns of a frame.
#[derive(Clone, Copy)]
struct WantedColumns {
    has_metric: bool,
    value: bool,
    status: bool,
}
