//! Materialised views: their definitions, the state of what is stored of them, and how a scan of one is read.
//!
//! A view is a plan that groups a table's rows into windows of time. Its windows are stored as rows of a table of the view's name; a scan of
//! that table reads the stored windows that are known to be right and computes the others from the source ([`expand`]), so that it gives what
//! the view's plan gives over the source.
//!
//! * this file: definitions and states · [`catalog`]: the interface to those who keep them · [`ranges`]: sets of time ranges
//! * `stored_query`: views of plain SQL, which are queries that are expanded when they are read
//! * [`stale`]: which stored windows may be wrong · [`expand`]: scans of views in plans · `rewrite`: queries of a source that a view answers ·
//!   `one_bin`: those of them that make one row of each group · `used`: whether what was read of a view is of one piece
//! * `folded`: views that folds of their source leave as they are · `joined`: tables of labels that views join · `as_of`: tables that they join as of a time · `mapped`: aggregates of what is computed from rows ·
//!   `widen`: columns that are added

mod as_of;
mod catalog;
mod expand;
mod folded;
mod joined;
mod mapped;
mod one_bin;
mod ranges;
mod rewrite;
mod stale;
mod stored_query;
mod used;
mod validate;
mod widen;

pub use catalog::{DeleteHold, RefreshRequest, SourceDelete, ViewCatalog, ViewChanges, ViewStatus};
pub(crate) use expand::Expansion;
pub use ranges::{intersect, merged_to, normalized, subtract};
pub use stale::DEPTH_MAX;
pub use stored_query::{NarrowedReads, StoredQuery};
pub(crate) use used::{UseOutcome, UsedView};
pub(crate) use validate::check_column;
pub use validate::{FIELD_PREFIX, OPEN_NS_MAX, WIDTH_NS_MIN, is_partial};

use jiff::tz::TimeZone;
use model::{Matcher, TimeRange, ValueType};

use crate::plan::{Expression, Grouping, Plan, Scan, Selector, ViewPart};
use crate::time::CalendarBins;
use crate::{Interval, QueryError};

/// The width of a view's windows, by the clock of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowWidth {
    /// The width.
    pub width: Interval,
    /// Local time at which one of the windows begins, as if it were UTC.
    pub origin_ns: i64,
    /// The zone by its name.
    pub zone: String,
}

impl WindowWidth {
    /// The length of the longest of the windows, in nanoseconds.
    pub fn length_ns_max(&self) -> i64 {
        const DAY_NS: i64 = 86_400_000_000_000;
        const MONTH_DAYS_MAX: i64 = 31;
        // Where clocks are put back a day has an hour more, and so has any window of that time.
        const SHIFT_NS_MAX: i64 = 3_600_000_000_000;
        let shift_ns = if self.zone == "UTC" { 0 } else { SHIFT_NS_MAX };
        let days = i64::from(self.width.months) * MONTH_DAYS_MAX + i64::from(self.width.days);
        days.saturating_mul(DAY_NS).saturating_add(self.width.ns).saturating_add(shift_ns)
    }

    /// The windows as bins of time.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn bins(&self) -> Result<CalendarBins, QueryError> {
        let zone = match self.zone.as_str() {
            "UTC" => TimeZone::UTC,
            name => TimeZone::get(name).map_err(|_| {
                QueryError::Invalid(format!("there is no time zone {name:?}: write it as Europe/Berlin"))
            })?,
        };
        Ok(CalendarBins::new(self.width, self.origin_ns, zone))
    }
}

/// When a view's stored windows are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RefreshPolicy {
    /// As soon as a window is over, or changes.
    #[default]
    Immediate,
    /// So many nanoseconds after the last time.
    Every(i64),
    /// When a statement says so.
    Manual,
}

/// The settings of a view that can be changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ViewOptions {
    /// True if reading it gives what is stored and nothing else.
    pub materialized_only: bool,
    /// When its windows are computed.
    pub refresh: RefreshPolicy,
    /// How long after its end a window is stored, in nanoseconds; until then it is computed when it is read.
    pub lag_ns: Option<i64>,
}

/// The dialect of a view's statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// `CREATE MATERIALIZED VIEW` without options.
    #[default]
    Sql,
    /// TimescaleDB's continuous aggregates.
    Timescale,
    /// QuestDB's materialised views.
    QuestDb,
    /// InfluxQL's continuous queries: the target is a table like any other.
    InfluxQl,
    /// InfluxDB 2's tasks, whose target is one, too.
    Flux,
}

impl Dialect {
    /// All, by their names in documents and lists.
    pub const NAMED: [(&'static str, Self); 5] = [
        ("sql", Self::Sql),
        ("timescaledb", Self::Timescale),
        ("questdb", Self::QuestDb),
        ("influxql", Self::InfluxQl),
        ("flux", Self::Flux),
    ];

    /// Returns whether the target of its statements is a table like any other, which a scan reads as it is stored.
    pub const fn writes_tables(self) -> bool {
        matches!(self, Self::InfluxQl | Self::Flux)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, named)| *named == self).map_or("", |(name, _)| name)
    }
}

/// Where the rows of a continuous query go, and how they are grouped where its plan does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ViewOutput {
    /// The database of its target; `None`: that of its source.
    pub database: Option<String>,
    /// True if a row stands where its window ends, not where it begins.
    pub is_at_end: bool,
    /// The tags by which rows are not grouped, where the plan groups by all tags that there are.
    pub without: Vec<String>,
}

/// What a task is beside a continuous query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskRecord {
    /// A description by its maker.
    pub description: Option<String>,
    /// When it was made, in nanoseconds since the Unix epoch.
    pub created_ns: i64,
    /// When it was changed last, in nanoseconds since the Unix epoch.
    pub updated_ns: i64,
    /// How often it is refreshed while it is active.
    pub schedule: RefreshPolicy,
    /// True if it is not refreshed by itself.
    pub is_inactive: bool,
}

/// A materialised view.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewDefinition {
    /// Its name.
    pub name: String,
    /// The database of the view and of its source.
    pub database: String,
    /// The table that holds its windows: of the view's name, but for a continuous query.
    pub target: String,
    /// Where its rows go: not as they are by default only of continuous queries.
    pub output: ViewOutput,
    /// The name of the column of its windows' times.
    pub time_name: String,
    /// The computation: columns of groups of a scan of the source ([`ViewDefinition::grouping`]).
    pub plan: Plan,
    /// Its windows, in place of the width that the plan's groups have.
    pub windows: WindowWidth,
    /// Its columns beside labels, and their types.
    pub fields: Vec<(String, ValueType)>,
    /// Settings that can be changed.
    pub options: ViewOptions,
    /// The account that made it.
    pub maker: String,
    /// The statement that made it.
    pub statement: String,
    /// The dialect of that.
    pub dialect: Dialect,
    /// Of a task what else it is.
    pub task: Option<TaskRecord>,
}

impl ViewDefinition {
    /// Returns whether a scan of its target reads the view: not of a continuous query, whose target is a table like any other.
    pub const fn is_exposed(&self) -> bool {
        !self.dialect.writes_tables()
    }

    /// The database of its target.
    pub fn target_database(&self) -> &str {
        self.output.database.as_deref().unwrap_or(&self.database)
    }

    /// Returns whether it groups by all tags that there are, whenever it is computed.
    pub fn is_by_all_tags(&self) -> bool {
        self.grouping().is_some_and(|grouping| grouping.by.is_none())
    }

    /// Returns whether a tag is a label of its rows.
    pub fn is_label(&self, tag: &str) -> bool {
        if self.is_by_all_tags() {
            return !self.output.without.iter().any(|other| other == tag);
        }
        self.labels().iter().any(|label| label == tag)
    }

    /// The scan of its source.
    pub fn scan(&self) -> Option<&Scan> {
        scan_of(&self.plan)
    }

    /// The table that it reads; empty if its plan is no plan of a view.
    pub fn source(&self) -> &str {
        self.scan().and_then(|scan| scan.table.as_ref()).map_or("", |table| table.name.as_str())
    }

    /// How it groups the source's rows.
    pub fn grouping(&self) -> Option<&Grouping> {
        grouping_of(&self.plan)
    }

    /// The labels of its rows; none are told where they are all tags that there are.
    pub fn labels(&self) -> &[String] {
        self.grouping().and_then(|grouping| grouping.by.as_deref()).unwrap_or_default()
    }

    /// The columns that a scan of all of them gives.
    pub fn shown_fields(&self) -> impl Iterator<Item = &(String, ValueType)> {
        self.fields.iter().filter(|(name, _)| !is_partial(name))
    }

    /// The columns, by what they are computed from.
    pub fn columns(&self) -> &[(String, Expression)] {
        match &self.plan {
            Plan::Map { columns, .. } => columns,
            _ => &[],
        }
    }

    /// Narrows the rows that it reads: by the rights of its maker.
    pub fn narrow<'a>(&mut self, matchers: impl Iterator<Item = &'a Matcher>) {
        let selector = |matcher: &Matcher| Selector {
            name: matcher.name.clone(),
            op: matcher.op,
            values: vec![matcher.value.clone()],
        };
        let selectors: Vec<Selector> = matchers.map(selector).collect();
        self.narrow_by(&selectors);
    }

    /// Narrows the rows that it reads to those that selectors choose.
    pub fn narrow_by(&mut self, selectors: &[Selector]) {
        joined::narrow(&mut self.plan, selectors);
    }

    /// How old the rows of a window may be when it is stored, in nanoseconds: as long its source has to keep them, and its target their window.
    pub fn age_ns_max(&self) -> i64 {
        let every_ns = match self.options.refresh {
            RefreshPolicy::Every(every_ns) => every_ns,
            RefreshPolicy::Immediate | RefreshPolicy::Manual => 0,
        };
        let ages = [self.lag_ns(), self.reach_ns(), every_ns];
        ages.into_iter().fold(self.windows.length_ns_max(), i64::saturating_add)
    }

    /// How long before its beginning rows are that a window is made of, in nanoseconds.
    pub fn reach_ns(&self) -> i64 {
        let reads_before = self.grouping().is_some_and(Grouping::reads_bin_before);
        if reads_before { self.windows.length_ns_max() } else { 0 }
    }

    /// How long after its end a window is stored.
    pub fn lag_ns(&self) -> i64 {
        const LAG_NS_MAX: i64 = 60_000_000_000;
        self.options.lag_ns.unwrap_or_else(|| self.windows.width.ns.clamp(0, LAG_NS_MAX))
    }
}

fn scan_of(plan: &Plan) -> Option<&Scan> {
    match plan {
        Plan::Scan(scan) => Some(scan),
        other => scan_of(other.input()?),
    }
}

fn grouping_of(plan: &Plan) -> Option<&Grouping> {
    match plan {
        Plan::GroupBy { grouping, .. } => Some(grouping),
        other => grouping_of(other.input()?),
    }
}

/// A range of windows that are not known to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingRange {
    /// The times of the source's rows.
    pub range: TimeRange,
    /// True if the windows were never computed.
    pub is_fill: bool,
}

/// The state of what is stored of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewState {
    /// Windows from this one on are not stored.
    pub watermark_ns: i64,
    /// Ranges before that are to be computed, oldest first; they may overlap.
    pub pending: Vec<PendingRange>,
    /// Columns that were added later, and where they are to be computed.
    pub new_columns: Vec<PendingColumns>,
    /// A part of the source before this time is gone, or may be: it only grows, whatever retention and TTLs become.
    pub frozen_ns: i64,
    /// Rows of the view itself before this time are gone by the TTL of its table, or may be: it only grows, too.
    pub expired_ns: i64,
    /// What the joined tables said when windows were stored, as [`ViewDefinition::labels_fingerprint`] has it; `None`: none were, or no table is joined.
    pub labels: Option<String>,
}

impl Default for ViewState {
    /// Nothing is stored, and nothing of the source is gone.
    fn default() -> Self {
        Self {
            watermark_ns: i64::MIN,
            pending: Vec::new(),
            new_columns: Vec::new(),
            frozen_ns: i64::MIN,
            expired_ns: i64::MIN,
            labels: None,
        }
    }
}

/// Ranges that a state may have; with more, neighbours become one.
const PENDING_MAX: usize = 256;

/// Sets of columns that a state may have; with more they become one, and are computed together.
const NEW_COLUMNS_MAX: usize = 8;

/// Columns whose windows are to be computed, where the others are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingColumns {
    /// Their names.
    pub names: Vec<String>,
    /// The ranges of windows, oldest first.
    pub ranges: Vec<TimeRange>,
}

impl ViewState {
    /// Adds a range of windows that are to be computed.
    pub fn add(&mut self, added: PendingRange) {
        let end_ns = added.range.end_ns.min(self.watermark_ns.saturating_sub(1));
        if added.range.start_ns > end_ns {
            return;
        }
        self.pending.push(PendingRange { range: TimeRange::new(added.range.start_ns, end_ns), ..added });
        self.settle();
    }

    /// Takes a range out of those that are to be computed.
    pub fn remove(&mut self, done: &TimeRange) {
        let rest = |pending: &PendingRange| {
            let rest = subtract(&[pending.range], &[*done]);
            rest.into_iter().map(|range| PendingRange { range, is_fill: pending.is_fill }).collect::<Vec<_>>()
        };
        self.pending = self.pending.iter().flat_map(rest).collect();
        self.settle();
    }

    /// Returns whether something of it is to be computed.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty() || !self.new_columns.is_empty()
    }

    /// Adds columns that all stored windows lack.
    pub fn add_columns(&mut self, names: Vec<String>) {
        if self.watermark_ns == i64::MIN || names.is_empty() {
            return;
        }
        let stored = TimeRange::new(i64::MIN, self.watermark_ns - 1);
        self.new_columns.push(PendingColumns { names, ranges: vec![stored] });
        if self.new_columns.len() > NEW_COLUMNS_MAX {
            let (names, ranges): (Vec<_>, Vec<_>) =
                self.new_columns.drain(..).map(|columns| (columns.names, columns.ranges)).unzip();
            self.new_columns.push(PendingColumns { names: names.concat(), ranges: normalized(ranges.concat()) });
        }
    }

    /// Takes a range out of those that added columns lack, of the columns that were computed.
    pub fn remove_columns(&mut self, done: &TimeRange, is_computed: impl Fn(&str) -> bool) {
        for columns in &mut self.new_columns {
            if columns.names.iter().all(|name| is_computed(name)) {
                columns.ranges = merged_to(subtract(&columns.ranges, &[*done]), PENDING_MAX / 2);
            }
        }
        self.new_columns.retain(|columns| !columns.ranges.is_empty());
    }

    /// Merges ranges of one kind that overlap, and neighbours if there are too many.
    fn settle(&mut self) {
        let of_kind = |is_fill: bool| {
            let ranges = self.pending.iter().filter(|pending| pending.is_fill == is_fill);
            let ranges = normalized(ranges.map(|pending| pending.range).collect());
            merged_to(ranges, PENDING_MAX / 2).into_iter().map(move |range| PendingRange { range, is_fill })
        };
        let mut settled: Vec<PendingRange> = of_kind(true).chain(of_kind(false)).collect();
        settled.sort_by_key(|pending| pending.range.start_ns);
        self.pending = settled;
    }
}

/// A view as it is at a moment.
#[derive(Debug, Clone)]
pub struct View {
    /// Another number for each view that is made in a process, though it has the name of one that was dropped.
    pub id: u64,
    /// The definition.
    pub definition: ViewDefinition,
    /// Its windows.
    pub bins: CalendarBins,
    /// The state of its stored windows.
    pub state: ViewState,
}

impl View {
    /// The time of the row of a window, given where that begins.
    pub fn row_time(&self, start_ns: i64) -> i64 {
        if self.definition.output.is_at_end && start_ns != i64::MIN { self.bins.next(start_ns) } else { start_ns }
    }

    /// Where the window begins whose row stands at a time; `None` if that is no window's.
    pub fn window_of_row(&self, time_ns: i64) -> Option<i64> {
        if self.bins.start_of(time_ns) != time_ns {
            return None;
        }
        Some(if self.definition.output.is_at_end { self.bins.previous(time_ns) } else { time_ns })
    }

    /// The range of the whole windows that hold a range's times.
    pub fn windows_of(&self, range: &TimeRange) -> TimeRange {
        let start_ns = if range.start_ns == i64::MIN { i64::MIN } else { self.bins.start_of(range.start_ns) };
        TimeRange::new(start_ns, self.end_of(range.end_ns))
    }

    /// The range of the whole windows that are made of rows of a range.
    pub fn windows_reading(&self, range: &TimeRange) -> TimeRange {
        let end_ns = range.end_ns.saturating_add(self.definition.reach_ns());
        self.windows_of(&TimeRange { start_ns: range.start_ns, end_ns })
    }

    /// The last time of the window that holds a time.
    pub fn end_of(&self, time_ns: i64) -> i64 {
        if time_ns == i64::MAX {
            return i64::MAX;
        }
        let next_ns = self.bins.next(self.bins.start_of(time_ns));
        if next_ns == i64::MAX { i64::MAX } else { next_ns - 1 }
    }

    /// The first window that is not to be stored yet, at a time.
    pub fn newest_window(&self, now_ns: i64) -> i64 {
        self.bins.start_of(now_ns.saturating_sub(self.definition.lag_ns()))
    }

    /// The first window that does not begin before a time.
    pub fn first_from(&self, time_ns: i64) -> i64 {
        if time_ns == i64::MIN {
            return i64::MIN;
        }
        let start_ns = self.bins.start_of(time_ns);
        if start_ns < time_ns { self.bins.next(start_ns) } else { start_ns }
    }

    /// The plans that compute the windows of a range of whole windows, and of rows before it maybe others: one, or one for each run of windows of equal length. The range of
    /// windows that differ in length is bounded.
    ///
    /// # Errors
    /// If there are too many runs.
    pub fn computed(&self, range: TimeRange, selectors: &[Selector]) -> Result<Vec<ViewPart>, QueryError> {
        const RUNS_MAX: usize = 2_000;
        let plan = |range: TimeRange, width_ns: i64, offset_ns: i64| {
            let start_ns = range.start_ns.saturating_sub(self.definition.reach_ns());
            let of_source = TimeRange { start_ns, ..range };
            let part = ComputedPart { range: of_source, selectors, width_ns, offset_ns };
            ViewPart { range, plan: part.restrict(&self.definition.plan) }
        };
        if let Some((width_ns, offset_ns)) = self.bins.equal_bins() {
            return Ok(vec![plan(range, width_ns, offset_ns)]);
        }
        let runs = self.bins.equal_runs((range.start_ns, range.end_ns), RUNS_MAX, |_, _| true);
        let Some(runs) = runs else {
            let message = format!("the view {:?} has too many windows in this range: narrow it", self.definition.name);
            return Err(QueryError::Invalid(message));
        };
        let part = |run: &crate::time::EqualBins| {
            let end_ns = run.end_ns().saturating_sub(1);
            plan(TimeRange::new(run.start_ns, end_ns), run.width_ns, run.offset_ns())
        };
        Ok(runs.iter().map(part).collect())
    }
}

/// A part of a view's windows to be computed.
struct ComputedPart<'a> {
    range: TimeRange,
    selectors: &'a [Selector],
    width_ns: i64,
    offset_ns: i64,
}

impl ComputedPart<'_> {
    const fn with_selectors<'a>(&self, selectors: &'a [Selector]) -> ComputedPart<'a> {
        ComputedPart { range: self.range, selectors, width_ns: self.width_ns, offset_ns: self.offset_ns }
    }

    fn restrict(&self, plan: &Plan) -> Plan {
        let of = |input: &Plan| Box::new(self.restrict(input));
        match plan {
            Plan::Scan(scan) => {
                let mut scan = scan.clone();
                scan.range = intersect(&scan.range, &self.range);
                scan.selectors.extend_from_slice(self.selectors);
                Plan::Scan(scan)
            }
            Plan::GroupBy { input, grouping } => {
                let (width_ns, offset_ns) = (Some(self.width_ns), self.offset_ns);
                Plan::GroupBy { input: of(input), grouping: Grouping { width_ns, offset_ns, ..grouping.clone() } }
            }
            Plan::Where { input, condition } => Plan::Where { input: of(input), condition: condition.clone() },
            Plan::Map { input, columns } => Plan::Map { input: of(input), columns: columns.clone() },
            Plan::Labelled(labelled) => {
                // A label that the table says is none of the source's series.
                let is_added = |selector: &Selector| labelled.adds(&selector.name);
                let (added, own): (Vec<Selector>, Vec<Selector>) = self.selectors.iter().cloned().partition(is_added);
                let mut labelled = labelled.clone();
                labelled.input = self.with_selectors(&own).restrict(&labelled.input);
                labelled.selectors.extend(added);
                Plan::Labelled(labelled)
            }
            Plan::AsOf(as_of) => {
                // What is read of the table follows from the rows.
                let is_added = |selector: &Selector| as_of.adds_label(&selector.name);
                let (added, own): (Vec<Selector>, Vec<Selector>) = self.selectors.iter().cloned().partition(is_added);
                let mut as_of = as_of.clone();
                as_of.input = self.with_selectors(&own).restrict(&as_of.input);
                as_of.selectors.extend(added);
                Plan::AsOf(as_of)
            }
            other => other.clone(),
        }
    }
}
