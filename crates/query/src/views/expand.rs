//! Scans of views in plans: stored windows, and those that are computed now; and queries of tables that views answer.

use std::cell::RefCell;
use std::sync::Arc;

use access::grant::Right;
use index::compile;
use model::TimeRange;
use store::End;

use super::rewrite::{SourceQuery, ViewAnswer};
use super::stale::{DEPTH_MAX, stale_ranges};
use super::validate::is_partial;
use super::{UsedView, View, ViewCatalog, ViewChanges, intersect, normalized, subtract};
use crate::execute::is_searched;
use crate::plan::{Expression, Grouping, Labelled, Plan, Scan, Selector, TableColumns, ViewPart, ViewRead, push_down};
use crate::{Budget, LabelRows, QueryError, ViewUse};

/// The first and the last time of a scan's rows; empty if it has none.
pub(crate) type Extent<'a> = &'a dyn Fn(&Scan) -> Result<TimeRange, QueryError>;

/// Puts what views are read as in the place of their scans.
pub(crate) struct Expansion<'a> {
    pub(crate) catalog: &'a dyn ViewCatalog,
    pub(crate) database: &'a str,
    pub(crate) budget: &'a Budget,
    pub(crate) extent: Extent<'a>,
    /// The labels that some of a table's series have.
    pub(crate) tags: &'a dyn Fn(&str) -> Result<Vec<String>, QueryError>,
    /// What a table says of labels.
    pub(crate) label_rows: &'a dyn Fn(&Labelled) -> Result<Arc<LabelRows>, QueryError>,
    /// True if views may answer for their tables.
    pub(crate) may_answer: bool,
    /// The views that were used so far.
    pub(crate) used: RefCell<Vec<UsedView>>,
}

impl Expansion<'_> {
    /// A plan whose scans are all of tables as they are stored.
    pub(crate) fn plan(&self, plan: Plan, depth: usize) -> Result<Plan, QueryError> {
        if self.budget.view_use() == ViewUse::Stored {
            return Ok(plan);
        }
        let of = |input: Box<Plan>| self.plan(*input, depth).map(Box::new);
        Ok(match plan {
            Plan::Scan(scan) => self.scan(scan, depth)?,
            Plan::Where { input, condition } => Plan::Where { input: of(input)?, condition },
            Plan::GroupBy { input, grouping } => match self.by_view(&input, &grouping, depth)? {
                Some(answered) => answered,
                None => Plan::GroupBy { input: of(input)?, grouping },
            },
            Plan::Map { input, columns } => Plan::Map { input: of(input)?, columns },
            Plan::Fill { input, width_ns, with } => Plan::Fill { input: of(input)?, width_ns, with },
            Plan::Order { input, by, descending } => Plan::Order { input: of(input)?, by, descending },
            Plan::Limit { input, rows, skip: 0 } => {
                Plan::Limit { input: Box::new(self.ends(*input, (End::Oldest, rows), depth)?), rows, skip: 0 }
            }
            Plan::Limit { input, rows, skip } => Plan::Limit { input: of(input)?, rows, skip },
            Plan::Last { input, rows } => {
                Plan::Last { input: Box::new(self.ends(*input, (End::Newest, rows), depth)?), rows }
            }
            Plan::Join(mut join) => {
                join.left = self.plan(join.left, depth)?;
                join.right = self.plan(join.right, depth)?;
                Plan::Join(join)
            }
            Plan::Union(plans) => {
                Plan::Union(plans.into_iter().map(|plan| self.plan(plan, depth)).collect::<Result<_, _>>()?)
            }
            Plan::View(read) => Plan::View(read),
            Plan::Labelled(mut labelled) => {
                labelled.input = self.plan(labelled.input, depth)?;
                Plan::Labelled(labelled)
            }
            Plan::AsOf(mut as_of) => {
                self.check_as_of(as_of.table_name())?;
                as_of.input = self.plan(as_of.input, depth)?;
                Plan::AsOf(as_of)
            }
            Plan::Likeness(likeness) => Plan::Likeness(Box::new(likeness.try_map(|plan| self.plan(plan, depth))?)),
        })
    }

    /// Rows of which some at one end are wanted: few bins are looked for from there in the table, of which little is read for it.
    fn ends(&self, rows: Plan, (end, count): (End, usize), depth: usize) -> Result<Plan, QueryError> {
        match rows {
            Plan::GroupBy { input, grouping }
                if is_searched(&input, &grouping, end) && are_few(count, &input, &grouping) =>
            {
                Ok(Plan::GroupBy { input: Box::new(self.plan(*input, depth)?), grouping })
            }
            Plan::Order { input, by: Expression::Time, descending: false } if end == End::Oldest => {
                let input = Box::new(self.ends(*input, (end, count), depth)?);
                Ok(Plan::Order { input, by: Expression::Time, descending: false })
            }
            other => self.plan(other, depth),
        }
    }

    /// A query of a table as a view answers it, where one does and reads less for it.
    fn by_view(&self, input: &Plan, grouping: &Grouping, depth: usize) -> Result<Option<Plan>, QueryError> {
        if depth > 0 || !self.may_answer || self.budget.view_use() != ViewUse::All {
            return Ok(None);
        }
        let Some(query) = SourceQuery::new(input, grouping) else { return Ok(None) };
        let changes = self.catalog.changes(self.database);
        let mut views = self.catalog.views(self.database);
        views.retain(|view| view.definition.source() == query.table());
        if views.is_empty() || self.catalog.view_of_table(self.database, query.table()).is_some() {
            return Ok(None);
        }
        let tags = (self.tags)(query.table())?;
        views.retain(|view| {
            let definition = &view.definition;
            query.is_spared_by(definition, &tags)
                && check_scope(view, self.budget).is_ok()
                // Of a window whose sum has no room the view has another number than the table, or none.
                && self.catalog.status(self.database, &definition.name).error.is_none()
        });
        let narrowest_ns = views.iter().map(|view| view.definition.windows.length_ns_max()).min().unwrap_or(1);
        let found = views.iter().filter_map(|view| {
            let answered = Answered::new(&query, view, self.catalog, changes.as_ref())?;
            Some((answered.cost(&query, view, narrowest_ns), view))
        });
        let Some((_, chosen)) = found.min_by_key(|(cost, _)| *cost) else { return Ok(None) };
        let used = UsedView::new(self.catalog, chosen, false);
        // Before the view's state: a pass that ends in between is told by it.
        let changes = self.catalog.changes(self.database);
        let view = self.catalog.view_of_table(self.database, &chosen.definition.target);
        let Some(view) = view.filter(|view| view.id == chosen.id) else { return Ok(None) };
        let answered = Answered::new(&query, &view, self.catalog, changes.as_ref());
        let Some(answered) = answered else { return Ok(None) };
        self.used.borrow_mut().push(used);
        Ok(Some(answered.plan(&query, &view)))
    }

    fn scan(&self, scan: Scan, depth: usize) -> Result<Plan, QueryError> {
        let view = scan.table.as_ref().and_then(|table| self.catalog.view_of_table(self.database, &table.name));
        let Some(view) = view else { return Ok(Plan::Scan(scan)) };
        if depth > DEPTH_MAX {
            let message = format!("views read views at most {DEPTH_MAX} deep");
            return Err(QueryError::Invalid(message));
        }
        check_scope(&view, self.budget)?;
        self.check_joins(&view)?;
        self.used.borrow_mut().push(UsedView::new(self.catalog, &view, true));
        // Before the view's state: a pass that ends in between is told by it.
        let changes = self.catalog.changes(self.database);
        let Some(view) = self.catalog.view_of_table(self.database, &view.definition.target) else {
            return Err(QueryError::Execution(format!("the view {:?} was dropped meanwhile", view.definition.name)));
        };
        // What is computed from a view needs all of its windows.
        let is_asked = depth == 0 && self.budget.view_use() == ViewUse::All;
        let read = if view.definition.options.materialized_only && is_asked {
            let stored = TimeRange::new(i64::MIN, view.state.watermark_ns.saturating_sub(1));
            let stored = Scan { range: intersect(&scan.range, &stored), ..scan.clone() };
            let rewritten = self.catalog.rewritten(&view).iter().map(|range| view.windows_of(range)).collect();
            self.parts(&view, &stored, &normalized(rewritten), depth)?
        } else {
            // Where a joined table says something else by now, nothing is known of what is stored.
            let changes = if self.has_labels_of_now(&view)? { changes } else { None };
            let fields = wanted_fields(&view, &scan);
            let is_read = |name: &str| fields.iter().any(|field| field == name);
            let stale = stale_ranges(&view, self.catalog, changes.as_ref(), (&is_read, 0));
            self.parts(&view, &scan, &stale, depth)?
        };
        Ok(as_plan(&view, &scan, read))
    }

    /// A view, and those by way of which it reads its table.
    fn with_those_below(&self, view: &Arc<View>) -> Vec<Arc<View>> {
        let mut all = vec![view.clone()];
        while let Some(below) =
            all.last().and_then(|view| self.catalog.view_of_table(self.database, view.definition.source()))
            && all.len() <= DEPTH_MAX
        {
            all.push(below);
        }
        all
    }

    /// Refuses a view as a table that is joined as of a time: of it no window would be computed.
    fn check_as_of(&self, table: &str) -> Result<(), QueryError> {
        if self.catalog.view_of_table(self.database, table).is_none() {
            return Ok(());
        }
        Err(QueryError::Invalid(format!(
            "{table:?} is a materialised view: what is joined as of a time is a table that is written"
        )))
    }

    /// Refuses an account whose rights are narrowed by labels a view with labels of another table, of which it may not be able to read the rows.
    fn check_joins(&self, view: &Arc<View>) -> Result<(), QueryError> {
        let scope = self.budget.scope();
        if scope.matchers(Right::Read, self.database).is_empty() {
            return Ok(());
        }
        let all = self.with_those_below(view);
        let joined: Vec<&str> = all.iter().flat_map(|view| view.definition.joined_tables()).collect();
        match joined.first() {
            None => Ok(()),
            Some(table) => Err(QueryError::Forbidden(format!(
                "the account {} may read what its rights on labels say, and the view {:?} joins the table {table:?}: it is read by accounts that may \
                 read the whole database",
                scope.name, view.definition.name
            ))),
        }
    }

    /// Returns whether what is stored of a view has the labels that joined tables say now.
    fn has_labels_of_now(&self, view: &Arc<View>) -> Result<bool, QueryError> {
        for view in self.with_those_below(view) {
            let now = view.definition.labels_fingerprint(self.label_rows)?;
            if now.is_some() && now != view.state.labels {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The parts of a view's windows, in order of time: those that are not right as they are stored are computed.
    fn parts(&self, view: &View, scan: &Scan, stale: &[TimeRange], depth: usize) -> Result<Vec<ViewPart>, QueryError> {
        let mut parts = Vec::new();
        for range in subtract(&[TimeRange::ALL], stale) {
            let range = intersect(&range, &scan.range);
            if range.start_ns <= range.end_ns {
                parts.push(ViewPart { range, plan: Plan::Scan(stored_scan(view, scan)) });
            }
        }
        if let Some(selectors) = source_selectors(view, scan)? {
            for range in stale {
                self.push_computed(view, scan, *range, (&selectors, depth), &mut parts)?;
            }
        }
        parts.sort_by_key(|part| part.range.start_ns);
        for part in &mut parts {
            if let Plan::Scan(stored) = &mut part.plan {
                stored.range = part.range;
            }
        }
        Ok(parts)
    }

    fn push_computed(
        &self,
        view: &View,
        scan: &Scan,
        stale: TimeRange,
        (selectors, depth): (&[Selector], usize),
        parts: &mut Vec<ViewPart>,
    ) -> Result<(), QueryError> {
        let wanted = intersect(&stale, &scan.range);
        if wanted.start_ns > wanted.end_ns {
            return Ok(());
        }
        let first_ns = view.first_from(wanted.start_ns);
        if first_ns > wanted.end_ns {
            return Ok(());
        }
        let mut of_source = TimeRange::new(first_ns, view.end_of(wanted.end_ns));
        let has_as_of = view.definition.as_ofs().next().is_some();
        if view.bins.equal_bins().is_none() || has_as_of {
            // Windows that differ in length are taken one by one: only those that have rows.
            let Some(source) = view.definition.scan() else { return Ok(()) };
            let all = Scan { range: intersect(&of_source, &source.range), ..source.clone() };
            let extent = (self.extent)(&all)?;
            if extent.start_ns > extent.end_ns {
                return Ok(());
            }
            of_source = intersect(&of_source, &view.windows_of(&extent));
        }
        let pieces = if has_as_of { in_pieces(view, of_source) } else { vec![of_source] };
        for piece in pieces {
            for part in view.computed(piece, selectors)? {
                let plan = self.plan(push_down(only_fields(part.plan, scan)), depth + 1)?;
                parts.push(ViewPart { range: intersect(&wanted, &part.range), plan });
            }
        }
        Ok(())
    }
}

/// A query of a table as a view answers it.
struct Answered {
    answer: ViewAnswer,
    /// The times of bins, or of windows, that are read as they are stored; some.
    stored: Vec<TimeRange>,
    /// The rest of the query's range.
    rest: Vec<TimeRange>,
}

impl Answered {
    /// `None` if the view does not answer it, or has nothing stored of it.
    fn new(
        query: &SourceQuery<'_>,
        view: &View,
        catalog: &dyn ViewCatalog,
        changes: Option<&ViewChanges>,
    ) -> Option<Self> {
        let gone_before_ns = catalog.frozen_before_ns(view).max(view.state.expired_ns);
        let answer = query.answer(view, gone_before_ns)?;
        let is_read = |name: &str| answer.fields().iter().any(|field| field == name);
        let stale = stale_ranges(view, catalog, changes, (&is_read, 0));
        let stored = subtract(&[answer.range], &stale).into_iter().map(|range| query.bins_in(&range));
        let stored = longest(stored.filter(|range| range.start_ns <= range.end_ns).collect());
        let rest = subtract(&[query.times()], &stored);
        (!stored.is_empty()).then_some(Self { answer, stored, rest })
    }

    /// About how many rows are read of each label set, given the narrowest of the windows that could be read: the table has some for each of these.
    fn cost(&self, query: &SourceQuery<'_>, view: &View, narrowest_ns: i64) -> (i128, usize) {
        const ROWS_PER_WINDOW: i128 = 6;
        let length = |ranges: &[TimeRange]| -> i128 {
            ranges.iter().map(|range| i128::from(range.end_ns) - i128::from(range.start_ns)).sum()
        };
        let of_table = length(&self.rest) * ROWS_PER_WINDOW / i128::from(narrowest_ns.max(1));
        let of_view = length(&self.stored) / i128::from(view.definition.windows.length_ns_max().max(1));
        (of_table + of_view, view.definition.labels().len().saturating_sub(query.labels().len()))
    }

    /// The parts that are stored, and those of the table.
    fn plan(&self, query: &SourceQuery<'_>, view: &View) -> Plan {
        if query.is_of_one_bin() {
            return self.answer.of_one_bin((query, view), &self.stored, &self.rest);
        }
        let of_view = |range: &TimeRange| {
            let scan = Scan { range: *range, ..self.answer.scan.clone() };
            ViewPart { range: *range, plan: self.answer.plan(Plan::Scan(scan)) }
        };
        let of_table = |range: &TimeRange| ViewPart { range: *range, plan: query.of_range(range) };
        let mut parts: Vec<ViewPart> = self.stored.iter().map(of_view).chain(self.rest.iter().map(of_table)).collect();
        parts.sort_by_key(|part| part.range.start_ns);
        query.read_of(view, parts)
    }
}

/// The longest of ranges, in order of time: each is a scan of its own, so that short ones between late rows are not worth it.
fn longest(mut ranges: Vec<TimeRange>) -> Vec<TimeRange> {
    const RANGES_MAX: usize = 8;
    if ranges.len() > RANGES_MAX {
        ranges.sort_by_key(|range| std::cmp::Reverse(i128::from(range.end_ns) - i128::from(range.start_ns)));
        ranges.truncate(RANGES_MAX);
        ranges.sort_by_key(|range| range.start_ns);
    }
    ranges
}

/// Returns whether so many bins are few of those that a range has; of one without an end few are a hundred.
fn are_few(count: usize, rows: &Plan, grouping: &Grouping) -> bool {
    const FEW: usize = 100;
    const SHARE: i128 = 16;
    let range = rows.touched_range();
    if range.start_ns == i64::MIN || range.end_ns == i64::MAX {
        return count <= FEW;
    }
    let length_ns = i128::from(range.end_ns) - i128::from(range.start_ns);
    let wanted_ns = i128::from(grouping.width_ns.unwrap_or(0)) * count as i128;
    wanted_ns <= length_ns / SHARE
}

/// Parts of a range of whole windows. Rows that are joined as of a time are held until they are grouped: those of one part at a time.
fn in_pieces(view: &View, range: TimeRange) -> Vec<TimeRange> {
    const PIECES_MAX: i64 = 32;
    const WINDOWS_MIN: i64 = 64;
    let least_ns = view.definition.windows.length_ns_max().saturating_mul(WINDOWS_MIN);
    let length_ns = (range.end_ns.saturating_sub(range.start_ns) / PIECES_MAX).max(least_ns);
    let (mut pieces, mut start_ns) = (Vec::new(), range.start_ns);
    while start_ns <= range.end_ns {
        let end_ns = view.end_of(start_ns.saturating_add(length_ns)).min(range.end_ns);
        pieces.push(TimeRange::new(start_ns, end_ns));
        if end_ns == i64::MAX {
            break;
        }
        start_ns = end_ns + 1;
    }
    pieces
}

/// Refuses an account to whose rights a label belongs that the view's rows do not have: they are of more than it may read.
fn check_scope(view: &View, budget: &Budget) -> Result<(), QueryError> {
    let database = &view.definition.database;
    let scope = budget.scope();
    let labels = view.definition.labels();
    match scope.matchers(Right::Read, database).iter().find(|matcher| !labels.contains(&matcher.name)) {
        None => Ok(()),
        Some(matcher) => Err(QueryError::Forbidden(format!(
            "the account {} may read what its rights on the label {:?} say, which the rows of the view {:?} do not have",
            scope.name, matcher.name, view.definition.name
        ))),
    }
}

/// A scan of what is stored of a view.
fn stored_scan(view: &View, scan: &Scan) -> Scan {
    let every_row = scan.table.as_ref().is_some_and(|table| table.every_row);
    let fields = wanted_fields(view, scan);
    let table = TableColumns { name: view.definition.target.clone(), fields, every_row };
    Scan { table: Some(table), ..scan.clone() }
}

/// The view's columns that a scan reads.
fn wanted_fields(view: &View, scan: &Scan) -> Vec<String> {
    let asked = scan.table.as_ref().map(|table| table.fields.as_slice()).unwrap_or_default();
    let names = view.definition.fields.iter().map(|(name, _)| name);
    let is_wanted = |name: &&String| if asked.is_empty() { !is_partial(name) } else { asked.contains(name) };
    names.filter(is_wanted).cloned().collect()
}

/// The selectors of a view's rows as selectors of its source's; `None` if no row satisfies them.
fn source_selectors(view: &View, scan: &Scan) -> Result<Option<Vec<Selector>>, QueryError> {
    let labels = view.definition.labels();
    let (of_source, of_nothing): (Vec<Selector>, Vec<Selector>) =
        scan.selectors.iter().cloned().partition(|selector| labels.contains(&selector.name));
    let matchers: Vec<model::Matcher> = of_nothing.iter().map(Selector::matcher).collect();
    let is_possible = compile(&matchers)?.iter().all(|matcher| matcher.matches(""));
    Ok(is_possible.then_some(of_source))
}

/// A view's plan with the columns that a scan reads.
fn only_fields(plan: Plan, scan: &Scan) -> Plan {
    let asked = scan.table.as_ref().map(|table| table.fields.as_slice()).unwrap_or_default();
    match plan {
        Plan::Map { input, mut columns } => {
            columns.retain(|(name, _)| if asked.is_empty() { !is_partial(name) } else { asked.contains(name) });
            Plan::Map { input, columns }
        }
        other => other,
    }
}

/// One scan if everything that is read is stored.
fn as_plan(view: &View, scan: &Scan, mut parts: Vec<ViewPart>) -> Plan {
    let is_stored = matches!(parts.as_slice(), [ViewPart { plan: Plan::Scan(stored), .. }]
        if stored.table.as_ref().is_some_and(|table| table.name == view.definition.target));
    match parts.pop() {
        Some(ViewPart { range, plan: Plan::Scan(stored) }) if is_stored => Plan::Scan(Scan { range, ..stored }),
        last => {
            parts.extend(last);
            let every_row = scan.table.as_ref().is_some_and(|table| table.every_row);
            let (name, columns) = (view.definition.name.clone(), wanted_fields(view, scan));
            Plan::View(Box::new(ViewRead { name, columns, parts, every_row }))
        }
    }
}
