//! Which stored windows rows of the log change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use db::{Db, LogRecord, LogSeries};
use model::{Labels, MatchOp, TimeRange};
use query::plan::Selector;
use query::views::{View, merged_to, normalized};

use super::view_set::{Shape, ViewSet};
use super::windows::WindowBatch;

/// Label sets whose windows are computed apart; with more all are computed together.
const LABEL_SETS_MAX: usize = 32;

/// Batches that dirty windows become, and ranges of windows of all label sets; with more ranges the oldest become one.
const PIECES_MAX: usize = 256;

/// Windows from a row on of a table that is joined as of a time that are computed at once, at most; more are computed piece by piece.
const AT_ONCE_WINDOWS_MAX: i64 = 64;

/// As [`AT_ONCE_WINDOWS_MAX`], after deletes and where the log has a gap, which may be of all times.
const DELETED_WINDOWS_MAX: i64 = 1024;

/// Stored windows of a view that changed.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    /// The windows of label sets, by where they begin.
    of_labels: BTreeMap<Labels, BTreeSet<i64>>,
    count: usize,
    /// Ranges of whole windows of all label sets, in order.
    of_all: Vec<TimeRange>,
    /// The labels of the view that rows of its table tell.
    labels: Vec<String>,
    /// True if rows of a table that is joined as of a time are among what made it dirty.
    has_as_of: bool,
    pub(super) late_samples_refused: u64,
}

impl Dirty {
    pub(super) fn is_empty(&self) -> bool {
        self.of_labels.is_empty() && self.of_all.is_empty()
    }

    fn add(&mut self, view: &View, labels: &Labels, start_ns: i64, count_max: usize) {
        if self.count >= count_max {
            self.forget_labels(view);
        }
        if let Some(windows) = self.of_labels.get_mut(labels) {
            self.count += usize::from(windows.insert(start_ns));
        } else {
            self.of_labels.insert(labels.clone(), BTreeSet::from([start_ns]));
            self.count += 1;
        }
    }

    /// Makes windows of single label sets windows of all.
    fn forget_labels(&mut self, view: &View) {
        self.of_all = merged_to(self.ranges(view), PIECES_MAX);
        self.of_labels.clear();
        self.count = 0;
    }

    /// Adds a range of windows of all label sets.
    fn add_all(&mut self, view: &View, range: TimeRange) {
        self.of_all.push(view.windows_of(&range));
        self.of_all = merged_to(normalized(std::mem::take(&mut self.of_all)), PIECES_MAX);
    }

    /// Adds a range of windows of all label sets that a row changes of a table that is joined as of a time.
    fn add_as_of(&mut self, view: &View, range: TimeRange) {
        if self.of_all.iter().any(|known| known.start_ns <= range.start_ns && range.end_ns <= known.end_ns) {
            return;
        }
        self.has_as_of = true;
        self.add_all(view, range);
    }

    /// The ranges of windows that are dirty, in order.
    pub(super) fn ranges(&self, view: &View) -> Vec<TimeRange> {
        let starts = self.of_labels.values().flatten().map(|start_ns| TimeRange::new(*start_ns, *start_ns));
        normalized(starts.map(|start| view.windows_of(&start)).chain(self.of_all.iter().copied()).collect())
    }

    /// Returns whether rows of the table tell which of the view's rows they are part of.
    fn tells_labels(&self, view: &View) -> bool {
        view.definition.is_by_all_tags() || !self.labels.is_empty()
    }

    /// Batches to compute: of few label sets their windows, otherwise the windows of all; `None` if they are too many for a pass.
    pub(super) fn batches(&self, view: &View) -> Option<Vec<WindowBatch>> {
        let windows_max = if self.has_as_of { AT_ONCE_WINDOWS_MAX } else { DELETED_WINDOWS_MAX };
        let at_once_ns = view.definition.windows.length_ns_max().saturating_mul(windows_max);
        let is_long = |range: &TimeRange| range.end_ns.saturating_sub(range.start_ns) > at_once_ns;
        if self.of_all.iter().any(is_long) {
            return None;
        }
        let whole = |ranges: Vec<TimeRange>| normalized(ranges.iter().map(|range| view.windows_of(range)).collect());
        let mut pieces = Vec::new();
        if self.of_all.is_empty() && self.tells_labels(view) && self.of_labels.len() <= LABEL_SETS_MAX {
            for (labels, starts) in &self.of_labels {
                let ranges = whole(starts.iter().map(|start_ns| TimeRange::new(*start_ns, *start_ns)).collect());
                let selectors = selectors_of(view, &self.labels, labels);
                let piece = |range| WindowBatch { range, selectors: selectors.clone(), is_of_columns: false };
                pieces.extend(ranges.into_iter().map(piece));
            }
        }
        if pieces.is_empty() || pieces.len() > PIECES_MAX {
            let ranges = self.ranges(view).into_iter();
            let piece = |range| WindowBatch { range, selectors: Vec::new(), is_of_columns: false };
            pieces = ranges.map(piece).collect();
        }
        (pieces.len() <= PIECES_MAX).then_some(pieces)
    }
}

/// The selectors of a view's rows of a label set, and of the rows of its source that they are made of.
fn selectors_of(view: &View, names: &[String], labels: &Labels) -> Vec<Selector> {
    let selector = |name: &String| Selector {
        name: name.clone(),
        op: MatchOp::Equal,
        values: vec![labels.get(name).unwrap_or_default().to_owned()],
    };
    if view.definition.is_by_all_tags() {
        // Rows with other labels besides come along, and stay as they are.
        return labels.iter().map(|(name, _)| selector(&name.to_owned())).collect();
    }
    names.iter().map(selector).collect()
}

/// A view, and those by way of which it reads its table.
struct Followed {
    chain: Vec<Arc<View>>,
    /// Windows that begin before are not computed again.
    frozen_ns: i64,
    dirty: Dirty,
    /// The times of rows of windows that are not stored yet.
    later_rows: TimeRange,
}

/// The views that read a series' table.
struct SeriesReaders {
    /// The series, which is held.
    series: Arc<LogSeries>,
    /// The numbers of those that are made of its rows, with the labels of theirs.
    of_source: Vec<(usize, Labels)>,
    /// The numbers of those that join its table as of a time.
    as_of: Vec<usize>,
}

/// A view, and what rows changed of it.
pub(super) type DirtyView = (Arc<View>, Dirty);

/// A row of a table in the log.
#[derive(Clone, Copy)]
struct SourceRow {
    time_ns: i64,
    /// How many samples it has.
    samples: u64,
}

/// The labels of the last of the views that rows of their table tell: not those that another table says.
fn told_labels(chain: &[Arc<View>]) -> Vec<String> {
    let is_joined = |label: &String| chain.iter().any(|view| view.definition.is_joined_label(label));
    let labels = chain.last().map(|view| view.definition.labels()).unwrap_or_default();
    labels.iter().filter(|label| !is_joined(label)).cloned().collect()
}

/// Follows the log for the views of a database.
pub(super) struct Follower<'a> {
    db: &'a Db,
    views: &'a [Arc<View>],
    shape: Arc<Shape>,
    /// Those that rows came for, by their numbers.
    followed: BTreeMap<usize, Followed>,
    count_max: usize,
    /// The readers of each series. The series are held, so that their addresses name them.
    series: HashMap<usize, SeriesReaders>,
}

impl<'a> Follower<'a> {
    pub(super) fn new(db: &'a Db, set: &'a ViewSet, count_max: usize) -> Self {
        let (followed, series) = (BTreeMap::new(), HashMap::new());
        Self { db, views: &set.views, shape: set.shape().clone(), followed, count_max, series }
    }

    /// Begins to follow a view; nothing changes where it is followed.
    fn follow(&mut self, number: usize) {
        let (db, Some(view)) = (self.db, self.views.get(number)) else { return };
        self.followed.entry(number).or_insert_with(|| {
            let (_, chain) = db.views_below(view);
            let dirty = Dirty { labels: told_labels(&chain), ..Dirty::default() };
            let later_rows = TimeRange::EMPTY;
            Followed { chain, frozen_ns: db.view_frozen_before_ns(view), dirty, later_rows }
        });
    }

    fn readers(&mut self, series: &Arc<LogSeries>) -> SeriesReaders {
        let shape = self.shape.clone();
        let [numbers, as_of] = [&shape.by_table, &shape.by_as_of]
            .map(|numbers| numbers.get(&*series.table).map(Vec::as_slice).unwrap_or_default());
        numbers.iter().chain(as_of).for_each(|number| self.follow(*number));
        let followed = numbers.iter().filter_map(|number| Some((*number, self.followed.get(number)?)));
        let of_source = followed.map(|(number, view)| (number, view.labels_of(&series.tags))).collect();
        SeriesReaders { series: series.clone(), of_source, as_of: as_of.to_vec() }
    }

    /// Takes the rows of a record.
    pub(super) fn record(&mut self, record: &LogRecord) {
        for (number, sample) in record.samples.iter().enumerate() {
            let samples = record.samples_of_rows.get(number).map_or(1, |samples| u64::from(*samples));
            let address = Arc::as_ptr(&sample.series) as usize;
            if !self.series.contains_key(&address) {
                let readers = self.readers(&sample.series);
                self.series.insert(address, readers);
            }
            let Some(readers) = self.series.get(&address) else { continue };
            let row = SourceRow { time_ns: sample.timestamp_ns, samples };
            for (number, labels) in &readers.of_source {
                if let Some(view) = self.followed.get_mut(number) {
                    view.take(labels, row, self.count_max);
                }
            }
            for number in &readers.as_of {
                if let Some(view) = self.followed.get_mut(number) {
                    view.take_as_of(&readers.series.table, row);
                }
            }
        }
    }

    /// Takes a range of time of whose rows the log does not tell any more.
    pub(super) fn gap(&mut self, range: &TimeRange) {
        if range.start_ns > range.end_ns {
            return;
        }
        (0..self.views.len()).for_each(|number| self.follow(number));
        for view in self.followed.values_mut() {
            let of_view = view.window_range(range);
            view.later_rows = view.later_rows.union(of_view);
            let stored = view.stored_part(&of_view);
            if let (Some(stored), Some(of)) = (stored, view.chain.last()) {
                view.dirty.add_all(of, stored);
            }
            view.add_as_of(None, range);
        }
    }

    /// The times of rows of windows that are not stored yet, by view.
    pub(super) fn later_rows(&self) -> impl Iterator<Item = (&Arc<View>, &TimeRange)> {
        self.followed.iter().filter_map(|(number, of)| Some((self.views.get(*number)?, &of.later_rows)))
    }

    /// What changed of views that rows came for.
    pub(super) fn finish(self) -> Vec<DirtyView> {
        let views = self.views;
        let of_view = |(number, of): (usize, Followed)| Some((views.get(number)?.clone(), of.dirty));
        self.followed.into_iter().filter_map(of_view).collect()
    }
}

impl Followed {
    /// The labels of the view's row that a series of its table is part of.
    fn labels_of(&self, tags: &Labels) -> Labels {
        let definition = self.chain.last().map(|view| &view.definition);
        if let Some(definition) = definition.filter(|definition| definition.is_by_all_tags()) {
            return tags.retain(|name| definition.is_label(name));
        }
        tags.retain(|name| self.dirty.labels.iter().any(|label| label == name))
    }

    fn watermark_ns(&self) -> i64 {
        self.chain.last().map_or(i64::MIN, |view| view.state.watermark_ns)
    }

    /// Takes a row's time: of its own window, and of those after it that are made of it, too.
    fn take(&mut self, labels: &Labels, row: SourceRow, count_max: usize) {
        let start_ns = self.chain.iter().fold(row.time_ns, |time_ns, view| view.bins.start_of(time_ns));
        if start_ns >= self.watermark_ns() {
            self.later_rows = self.later_rows.union(TimeRange::new(start_ns, start_ns));
        } else if start_ns < self.frozen_ns {
            self.dirty.late_samples_refused += row.samples;
        }
        let mut start_ns = Some(start_ns);
        let reaches = self.chain.iter().any(|view| view.definition.reach_ns() > 0);
        let end_ns =
            if reaches { self.window_range(&TimeRange::new(row.time_ns, row.time_ns)).end_ns } else { i64::MIN };
        let Some(view) = self.chain.last() else { return };
        while let Some(of_ns) = start_ns.filter(|of_ns| *of_ns < view.state.watermark_ns) {
            if of_ns >= self.frozen_ns {
                self.dirty.add(view, labels, of_ns, count_max);
            }
            start_ns = Some(view.bins.next(of_ns)).filter(|next_ns| *next_ns <= end_ns);
        }
    }

    /// Takes a row of a table that is joined as of a time: all windows from its own on may have it.
    fn take_as_of(&mut self, table: &str, row: SourceRow) {
        if row.time_ns >= self.watermark_ns() && self.chain.len() == 1 {
            return;
        }
        let is_refused = self.add_as_of(Some(table), &TimeRange::new(row.time_ns, row.time_ns));
        // Those of its source are counted by their own windows.
        let is_of_source = self.chain.first().is_some_and(|view| view.definition.source() == table);
        self.dirty.late_samples_refused += if is_refused && !is_of_source { row.samples } else { 0 };
    }

    /// Adds the windows that rows of a range change of a table that is joined as of a time, or of any; returns whether some of them are not computed
    /// again.
    fn add_as_of(&mut self, table: Option<&str>, range: &TimeRange) -> bool {
        let mut changed: Option<TimeRange> = None;
        for view in &self.chain {
            changed = changed.map(|range| view.windows_reading(&range));
            if view.definition.as_ofs().any(|as_of| table.is_none_or(|table| table == as_of.table_name())) {
                let own = view.windows_as_of(table, range);
                changed = Some(changed.map_or(own, |changed| changed.union(own)));
            }
        }
        let stored = changed.and_then(|changed| self.stored_part(&changed));
        let (Some(stored), Some(of)) = (stored, self.chain.last()) else { return false };
        let again = TimeRange { start_ns: stored.start_ns.max(self.frozen_ns), ..stored };
        if again.start_ns <= again.end_ns {
            self.dirty.add_as_of(of, again);
        }
        stored.start_ns < self.frozen_ns
    }

    /// The range of the view's windows that hold rows of a range.
    fn window_range(&self, range: &TimeRange) -> TimeRange {
        self.chain.iter().fold(*range, |range, view| view.windows_reading(&range))
    }

    /// The part of a range whose windows are stored.
    fn stored_part(&self, range: &TimeRange) -> Option<TimeRange> {
        let end_ns = range.end_ns.min(self.watermark_ns().saturating_sub(1));
        (range.start_ns <= end_ns).then(|| TimeRange::new(range.start_ns, end_ns))
    }
}

#[cfg(test)]
mod tests {
    use model::ValueType;
    use query::Interval;
    use query::views::{Dialect, ViewDefinition, ViewOptions, ViewOutput, ViewState, WindowWidth};

    use super::*;

    const WIDTH_NS: i64 = 60_000_000_000;

    fn view() -> View {
        let plan = "(->> (rows-of \"t\") (groupby 1m '((sum \"v\")) (by '(\"h\"))) (map \"s\" (column \"sum v\")))";
        let definition = ViewDefinition {
            name: "v".to_owned(),
            database: "d".to_owned(),
            target: "v".to_owned(),
            time_name: "time".to_owned(),
            plan: query::parse(plan, 0).unwrap(),
            windows: WindowWidth { width: Interval::of_ns(WIDTH_NS), origin_ns: 0, zone: "UTC".to_owned() },
            fields: vec![("s".to_owned(), ValueType::F64)],
            options: ViewOptions::default(),
            maker: String::new(),
            statement: String::new(),
            dialect: Dialect::Sql,
            output: ViewOutput::default(),
            task: None,
        };
        let bins = definition.windows.bins().unwrap();
        View { id: 0, definition, bins, state: ViewState::default() }
    }

    fn dirty(view: &View, windows: i64, count_max: usize) -> Dirty {
        let labels = Labels::from_pairs([("h", "a")]).unwrap();
        let mut dirty = Dirty { labels: vec!["h".to_owned()], ..Dirty::default() };
        (0..windows).for_each(|window| dirty.add(view, &labels, 2 * window * WIDTH_NS, count_max));
        dirty
    }

    #[test]
    fn few_windows_are_batches_of_their_label_set() {
        let view = view();
        let batches = dirty(&view, 3, 1_000).batches(&view).unwrap();
        assert_eq!(batches.len(), 3);
        assert!(batches.iter().all(|batch| batch.selectors.len() == 1));
    }

    #[test]
    fn windows_that_are_too_many_for_a_pass_are_ranges() {
        let view = view();
        let many = dirty(&view, 1_000, 10_000);
        assert!(many.batches(&view).is_none());
        assert_eq!(many.ranges(&view).len(), 1_000);
    }

    #[test]
    fn windows_of_all_labels_are_computed_at_once_where_they_are_few() {
        let view = view();
        for (windows, is_at_once) in [(1, true), (DELETED_WINDOWS_MAX, true), (2 * DELETED_WINDOWS_MAX, false)] {
            let mut dirty = Dirty::default();
            dirty.add_all(&view, TimeRange::new(0, windows * WIDTH_NS - 1));
            assert_eq!(dirty.batches(&view).is_some(), is_at_once, "{windows} windows");
        }
        let mut gap = Dirty::default();
        gap.add_all(&view, TimeRange::ALL);
        assert!(gap.batches(&view).is_none());
    }

    #[test]
    fn what_is_known_of_dirty_windows_is_bounded() {
        let view = view();
        let many = dirty(&view, 10_000, 40);
        assert!(many.of_all.len() <= PIECES_MAX && many.count <= 40);
        let ranges = many.ranges(&view);
        let is_dirty = |time_ns: i64| ranges.iter().any(|range| range.contains(time_ns));
        assert!((0..10_000).all(|window| is_dirty(2 * window * WIDTH_NS)));
    }
}
