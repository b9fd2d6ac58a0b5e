//! Bins of time of SQL, InfluxQL and plans: whole bins are kept. Those that the range cuts are made of shorter bins, which are kept as well:
//!
//! ```text
//!  range:            |───────────────────────────────────|
//!  bins:         ├───┼───┼───┼───┼───┼───┼───┼───┼───┼───┼───┤
//!  shorter ones:     ├┼┼┤                            ├┼┤
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use cache::{Key, Span};
use model::{METRIC_NAME, MatchOp, Matcher, TimeRange};
use promql::ReadInterval;
use query::plan::Scan;
use query::{BinsRequest, BinsResponse, ComputeBins, Frame, QueryError};
use store::Store;

use super::flash::Unit;
use super::range::{Part, holes, next_on_grid};
use super::validity::Watch;
use super::{CacheUse, Portions, ResultCache};

/// Every nanosecond stands for itself.
const ITSELF: ReadInterval = ReadInterval { first_ms: 0, last_ms: 0 };

/// Into how many shorter bins one may be cut: the first of them that puts the range's end between two is taken.
const SHORTER: [i64; 5] = [4, 6, 12, 20, 60];

/// Bins behind the one that the range's beginning cuts whose shorter bins are made together with its own: the range will cut them next.
const BINS_AHEAD: i64 = 16;

/// Stretches of shorter bins of one key before those in the middle of the range go.
const SHORTER_MAX: usize = 16;

/// The query that asks, and the moment.
pub(crate) struct Asker<'a> {
    pub(crate) store: &'a Store,
    pub(crate) database: &'a str,
    pub(crate) now_ns: i64,
}

/// The parameters of a lookup of bins.
struct Looking<'a> {
    store: &'a Store,
    watch: Watch<'a>,
    database: u32,
    /// Taken before anything was read.
    snapshot: u64,
    /// The whole bins of the range.
    span: Span,
}

impl ResultCache {
    pub(crate) fn bins(
        &self,
        from: &Asker<'_>,
        asked: &BinsRequest<'_>,
        make: &mut ComputeBins<'_>,
    ) -> Result<BinsResponse, QueryError> {
        let range = asked.scan.range;
        let whole = whole_bins(asked, from.now_ns);
        let (Some(span), Some(database)) = (whole, from.store.database_number(from.database)) else {
            return uncut(asked, make);
        };
        let key = key_of(database, &asked.text);
        if self.flash.is_some() {
            // So that what is made now has a stamp for flash that says no less.
            from.store.mark();
        }
        // Before anything is read: what comes later has a larger number.
        let snapshot = from.store.journal().snapshot();
        let watch = Watch::new(from.store, database, vec![superset(asked.scan)], ITSELF);
        let mut looking = Looking { store: from.store, watch, database, snapshot, span };
        let (mut parts, flash_spans) = self.bins_kept(key, span, asked, &mut looking);
        let holes = holes(&mut parts, span);
        self.count_bins(asked, span, &holes, &flash_spans);
        let mut anew: Vec<(Vec<Frame>, TimeRange)> = Vec::new();
        for range in ranges(&holes, span, range) {
            let bins = bins_in(Span::new(range.start_ns, range.end_ns.saturating_add(1)).intersect(&span), asked);
            let of_shorter = match bins {
                None => self.cut_bin(&mut looking, asked, (range, from.now_ns), make)?,
                Some(_) => None,
            };
            if let Some(frames) = of_shorter {
                anew.push((frames, range));
                continue;
            }
            let frames = make(range, asked.width_ns)?;
            if has_twice(&frames) {
                // Nothing tells the series apart: they cannot be put together.
                return uncut(asked, make);
            }
            if let Some(bins) = bins {
                let portion = Portions::Bins(Frame::join(&[(&frames, range_of(bins))])?);
                self.keep_bins(key, portion, bins, asked, snapshot);
            }
            anew.push((frames, range));
        }
        join(&parts, &flash_spans, &anew, asked)
    }

    /// Keeps bins that were made, in memory and in a while on flash.
    fn keep_bins(
        &self,
        key: Key,
        portion: impl Into<Arc<Portions>>,
        bins: Span,
        asked: &BinsRequest<'_>,
        snapshot: u64,
    ) {
        if asked.budget.is_folded() {
            return;
        }
        self.insert(key, portion, bins, snapshot);
        if let Some(flash) = &self.flash {
            flash.note(key, bins, unit_of(asked));
        }
    }

    /// The cached bins of a span that still hold, and which parts came from flash.
    fn bins_kept(
        &self,
        key: Key,
        span: Span,
        asked: &BinsRequest<'_>,
        looking: &mut Looking<'_>,
    ) -> (Vec<Part>, Vec<Span>) {
        let Looking { store, watch, snapshot, .. } = looking;
        let mut parts = self.bins_in_memory(key, span, asked, watch);
        let mut unchanged = |stretch: Span, since: u64| {
            watch.unchanged_ns(stretch, since).into_iter().filter_map(|part| bins_in(part, asked)).collect()
        };
        let on_flash = self.parts_on_flash((key, span, unit_of(asked)), &parts, (store, *snapshot), &mut unchanged);
        let flash_spans = on_flash.iter().map(|(_, part)| *part).collect();
        parts.extend(on_flash);
        (parts, flash_spans)
    }

    /// The bins of a span that are in memory and still hold.
    fn bins_in_memory(&self, key: Key, span: Span, asked: &BinsRequest<'_>, watch: &mut Watch<'_>) -> Vec<Part> {
        let mut checked = Vec::new();
        let mut parts: Vec<Part> = Vec::new();
        for kept in self.memory.entries(key, span) {
            let unchanged = watch.unchanged_ns(kept.span, kept.stamp);
            let holds: Vec<Span> = unchanged.into_iter().filter_map(|part| bins_in(part, asked)).collect();
            let inside = holds.iter().map(|part| part.intersect(&span)).filter(|part| !part.is_empty());
            parts.extend(inside.map(|part| (kept.answer.clone(), part)));
            checked.push((kept, holds));
        }
        self.memory.renew(key, &checked, watch.through());
        parts
    }

    /// The bin that an end of the range cuts, put together of shorter ones; `None` if it is to be made as a whole.
    fn cut_bin(
        &self,
        looking: &mut Looking<'_>,
        asked: &BinsRequest<'_>,
        (range, now_ns): (TimeRange, i64),
        make: &mut ComputeBins<'_>,
    ) -> Result<Option<Vec<Frame>>, QueryError> {
        let Some((combined, width_ns)) = asked.combined.as_ref().zip(shorter_width(asked, range)) else {
            return Ok(None);
        };
        if range.end_ns >= now_ns {
            return Ok(None);
        }
        let scan = Scan { range, ..asked.scan.clone() };
        let text = format!("{}\nin bins of {width_ns}", asked.text);
        let (offset_ns, budget) = (asked.offset_ns, asked.budget);
        let shorter = BinsRequest { text, scan: &scan, width_ns, offset_ns, combined: None, budget };
        let key = key_of(looking.database, &shorter.text);
        let whole = Span::new(range.start_ns, range.end_ns.saturating_add(1));
        let (mut parts, _) = self.bins_kept(key, whole, &shorter, looking);
        let ahead_end = whole.end.saturating_add(BINS_AHEAD.saturating_mul(asked.width_ns)).min(looking.span.end);
        let known = self.memory.peek(key, Span::new(i64::MIN, i64::MAX)).len();
        for hole in holes(&mut parts, whole) {
            // One that was asked for before slides.
            let is_first = whole.end == looking.span.start && hole.end == whole.end && known > 0;
            let hole = if is_first { Span::new(hole.start, ahead_end) } else { hole };
            let frames = make(range_of(hole), width_ns)?;
            if has_twice(&frames) {
                return Ok(None);
            }
            let portion = Arc::new(Portions::Bins(frames));
            self.keep_bins(key, portion.clone(), hole, &shorter, looking.snapshot);
            parts.push((portion, hole.intersect(&whole)));
        }
        if known > SHORTER_MAX {
            // What the range cut lies within it now.
            let first_end = looking.span.start.saturating_add(BINS_AHEAD.saturating_mul(asked.width_ns));
            self.memory.remove(key, Span::new(first_end.min(looking.span.end), looking.span.end));
        }
        let found = join(&parts, &[], &[], &shorter)?.frames;
        let wider = |frame: &Frame| frame.widened(combined, asked.width_ns, asked.offset_ns);
        found.iter().map(wider).collect::<Result<_, _>>().map(Some)
    }

    fn count_bins(&self, asked: &BinsRequest<'_>, span: Span, holes: &[Span], on_flash: &[Span]) {
        let bins = |span: &Span| (span.end - span.start) as u64 / asked.width_ns as u64;
        let steps = bins(&span);
        let missing: u64 = holes.iter().map(bins).sum();
        let kept = steps.saturating_sub(missing);
        let from_flash = on_flash.iter().map(bins).sum::<u64>().min(kept);
        self.count(CacheUse { steps, from_memory: kept - from_flash, from_flash });
    }
}

/// All bins as they are, nothing kept.
fn uncut(asked: &BinsRequest<'_>, make: &mut ComputeBins<'_>) -> Result<BinsResponse, QueryError> {
    let frames = make(asked.scan.range, asked.width_ns)?;
    Ok(BinsResponse { frames, memory_rows: 0, flash_rows: 0 })
}

/// The form of bins on flash.
const fn unit_of(asked: &BinsRequest<'_>) -> Unit {
    Unit::Bins { width_ns: asked.width_ns, offset_ns: asked.offset_ns }
}

fn key_of(database: u32, text: &str) -> Key {
    Key::of_statement(&format!("{database}\nbins\n{text}"))
}

/// How long bins are that a range is made of which lies within one; `None` if it begins or ends within any of them.
fn shorter_width(asked: &BinsRequest<'_>, range: TimeRange) -> Option<i64> {
    let behind_ns = range.end_ns.checked_add(1)?;
    let is_edge = |time_ns: i64, width_ns: i64| next_on_grid(time_ns, asked.offset_ns, width_ns) == time_ns;
    let widths = SHORTER.iter().filter(|parts| asked.width_ns % **parts == 0).map(|parts| asked.width_ns / parts);
    let mut fitting = widths.filter(|width_ns| is_edge(range.start_ns, *width_ns) && is_edge(behind_ns, *width_ns));
    fitting.next()
}

/// All bins that are in the range as a whole and have begun, or will end at the latest now; `None` if there are none, or too many to say.
fn whole_bins(asked: &BinsRequest<'_>, now_ns: i64) -> Option<Span> {
    let range = asked.scan.range;
    if range.start_ns < i64::MIN / 4 || range.start_ns > range.end_ns || asked.width_ns > i64::MAX / 4 {
        return None;
    }
    bins_in(Span::new(range.start_ns, range.end_ns.saturating_add(1).min(now_ns)), asked)
}

/// The whole bins in a span.
fn bins_in(span: Span, asked: &BinsRequest<'_>) -> Option<Span> {
    let start = next_on_grid(span.start, asked.offset_ns, asked.width_ns);
    let behind = next_on_grid(span.end, asked.offset_ns, asked.width_ns);
    let end = if behind > span.end { behind - asked.width_ns } else { behind };
    (start < end).then(|| Span::new(start, end))
}

/// The ranges to compute: holes, those at the ends together with the cut bins beside them.
fn ranges(holes: &[Span], span: Span, range: TimeRange) -> Vec<TimeRange> {
    let mut ranges: Vec<TimeRange> = holes.iter().map(|hole| range_of(*hole)).collect();
    if range.start_ns < span.start {
        match ranges.first_mut().filter(|first| first.start_ns == span.start) {
            Some(first) => first.start_ns = range.start_ns,
            None => ranges.insert(0, TimeRange::new(range.start_ns, span.start - 1)),
        }
    }
    if range.end_ns >= span.end {
        match ranges.last_mut().filter(|last| last.end_ns == span.end - 1) {
            Some(last) => last.end_ns = range.end_ns,
            None => ranges.push(TimeRange::new(span.end, range.end_ns)),
        }
    }
    ranges
}

fn range_of(span: Span) -> TimeRange {
    TimeRange::new(span.start, span.end - 1)
}

/// Joins cached bins, some of them from flash, and computed ones to one result.
fn join(
    parts: &[Part],
    on_flash: &[Span],
    made: &[(Vec<Frame>, TimeRange)],
    asked: &BinsRequest<'_>,
) -> Result<BinsResponse, QueryError> {
    let mut stretches: Vec<(&[Frame], TimeRange)> = Vec::with_capacity(parts.len() + made.len());
    for (portion, span) in parts {
        if let Portions::Bins(frames) = &**portion {
            stretches.push((frames, range_of(*span)));
        }
    }
    let (mut memory_rows, mut flash_rows) = (0, 0);
    for (frames, range) in &stretches {
        let is_of_flash = on_flash.iter().any(|span| span.contains(&Span::new(range.start_ns, range.end_ns + 1)));
        *(if is_of_flash { &mut flash_rows } else { &mut memory_rows }) += rows_in(frames, *range);
    }
    // A bin that the range cuts begins before it.
    let early = |range: TimeRange| TimeRange::new(range.start_ns.saturating_sub(asked.width_ns - 1), range.end_ns);
    let cut_first = made.iter().map(|(frames, range)| {
        let begins_range = range.start_ns == asked.scan.range.start_ns;
        (frames.as_slice(), if begins_range { early(*range) } else { *range })
    });
    stretches.extend(cut_first);
    stretches.sort_by_key(|(_, range)| range.start_ns);
    Ok(BinsResponse { frames: Frame::join(&stretches)?, memory_rows, flash_rows })
}

fn rows_in(frames: &[Frame], range: TimeRange) -> usize {
    frames.iter().map(|frame| frame.rows_in(&range).len()).sum()
}

fn has_twice(frames: &[Frame]) -> bool {
    let mut seen = HashSet::with_capacity(frames.len());
    !frames.iter().all(|frame| seen.insert(&frame.labels))
}

/// Matchers that every series of a scan satisfies, and maybe others.
fn superset(scan: &Scan) -> Vec<Matcher> {
    let mut matchers = match &scan.table {
        Some(table) => vec![Matcher::new(METRIC_NAME, MatchOp::Regex, metrics_of(&table.name))],
        None => return scan.selectors.iter().map(query::plan::Selector::matcher).collect(),
    };
    // What tables say of absent tags may differ for other comparisons.
    let is_plain = |selector: &&query::plan::Selector| {
        selector.op == MatchOp::Equal && selector.values.len() == 1 && !selector.values.iter().any(String::is_empty)
    };
    matchers.extend(scan.selectors.iter().filter(is_plain).map(query::plan::Selector::matcher));
    matchers
}

/// A pattern of the names that a table's columns have as metrics. Letters that metrics cannot have may become others.
fn metrics_of(table: &str) -> String {
    let is_plain = table.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain { format!("{table}(_.*)?") } else { ".+".to_owned() }
}

#[cfg(test)]
mod tests {
    use query::Budget;

    use super::*;

    fn asked(scan: &Scan) -> BinsRequest<'_> {
        static BUDGET: Budget = Budget::new(0);
        BinsRequest { text: String::new(), scan, width_ns: 10, offset_ns: 3, combined: None, budget: &BUDGET }
    }

    #[test]
    fn whole_bins_are_kept_and_the_rest_is_made() {
        let check = |range: (i64, i64), now_ns: i64, expected: Option<(i64, i64)>| {
            let scan = Scan { range: TimeRange::new(range.0, range.1), ..Scan::of_table("a") };
            let whole = whole_bins(&asked(&scan), now_ns);
            assert_eq!(whole.map(|span| (span.start, span.end)), expected, "{range:?} {now_ns}");
        };
        check((3, 32), 1000, Some((3, 33)));
        check((4, 31), 1000, Some((13, 23)));
        check((4, i64::MAX), 45, Some((13, 43)));
        check((4, 11), 1000, None);
        check((i64::MIN, 100), 1000, None);
    }

    #[test]
    fn cut_bins_are_made_with_the_holes_beside_them() {
        let check = |holes: &[(i64, i64)], expected: &[(i64, i64)]| {
            let holes: Vec<Span> = holes.iter().map(|(start, end)| Span::new(*start, *end)).collect();
            let ranges = ranges(&holes, Span::new(13, 43), TimeRange::new(5, 50));
            let found: Vec<(i64, i64)> = ranges.iter().map(|range| (range.start_ns, range.end_ns)).collect();
            assert_eq!(found, expected);
        };
        check(&[], &[(5, 12), (43, 50)]);
        check(&[(13, 43)], &[(5, 50)]);
        check(&[(13, 23), (33, 43)], &[(5, 22), (33, 50)]);
        check(&[(23, 33)], &[(5, 12), (23, 32), (43, 50)]);
    }

    #[test]
    fn shorter_bins_end_where_the_range_does() {
        let scan = Scan::of_table("a");
        let asked = BinsRequest { width_ns: 60, ..asked(&scan) };
        let check = |range: (i64, i64), expected: Option<i64>| {
            assert_eq!(shorter_width(&asked, TimeRange::new(range.0, range.1)), expected, "{range:?}");
        };
        check((18, 62), Some(15));
        check((63, 92), Some(15));
        check((33, 62), Some(15));
        check((23, 62), Some(10));
        check((58, 62), Some(5));
        check((60, 62), Some(3));
        check((63, 64), Some(1));
        check((63, i64::MAX), None);
    }
}
