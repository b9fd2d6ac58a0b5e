//! `SAMPLE BY`: groups by time.

use model::TimeRange;
use query::plan::FillWith;
use query::time::{self, CalendarBins};
use query::{Interval, RowLimit, SqlType, Value};
use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{self, BinaryOperator, Expr, Ident, Select, SetExpr, Statement};

use super::fill::Gaps;
use crate::error::{SqlError, invalid};
use crate::expression::{Bound, FilledRange, Grouped, Key, Typed, calendar_bins, filled_range, sample_bin, width};
use crate::run::Run;
use crate::scope::{Role, Scope, TIME};
use crate::syntax::parse::{Align, Sample, parse};

/// `SAMPLE BY`, bound.
pub(super) struct Sampling {
    pub(super) fill: Vec<Option<FillWith>>,
    /// Where gaps are filled beyond the rows that there are. Where it is not said, its end is before its start.
    range: TimeRange,
}

/// Makes the bin of time the first key of the groups.
pub(super) fn start(
    sample: &Sample,
    scope: &Scope,
    first_ns: Option<i64>,
    grouped: &mut Grouped,
) -> Result<Sampling, SqlError> {
    let width = width(&Value::text(sample.width.as_str()))?;
    let Some(place) = scope.columns.iter().position(|column| column.role == Role::Time) else {
        return invalid("SAMPLE BY is of rows with a column of time");
    };
    let (mut from_epoch_ns, mut zone) = (0, "UTC");
    match &sample.align {
        Align::FirstObservation => from_epoch_ns = first_ns.unwrap_or_default(),
        Align::Calendar { time_zone, offset } => {
            zone = time_zone.as_deref().unwrap_or(zone);
            if let Some(offset) = offset {
                from_epoch_ns = offset_ns(offset)?;
            }
        }
    }
    let bound = |text: &String| match time::parse(text) {
        Some(ns) => Ok(ns),
        None => invalid(format!("FROM and TO of SAMPLE BY are times, not '{text}'")),
    };
    let (from_ns, to_ns) = (sample.from.as_ref().map(bound).transpose()?, sample.to.as_ref().map(bound).transpose()?);
    if let Some(from_ns) = from_ns {
        from_epoch_ns = from_ns;
    }
    let range = TimeRange {
        start_ns: from_ns.unwrap_or(i64::MAX),
        end_ns: to_ns.map_or(i64::MIN, |to_ns| to_ns.saturating_sub(1)),
    };
    let bin = sample_bin(width, Bound::Column(place), from_epoch_ns, zone);
    grouped.keys.push(Key {
        text: "SAMPLE BY".to_owned(),
        column: Some(place),
        typed: Typed { expression: bin, sql_type: SqlType::Timestamp },
    });
    Ok(Sampling { fill: sample.fill.clone(), range })
}

/// The condition of a SELECT, and that rows are between FROM and TO of its SAMPLE BY.
pub(super) fn selection(select: &Select, sample: Option<&Sample>) -> Option<Expr> {
    let compared = |op: BinaryOperator, bound: &String| Expr::BinaryOp {
        left: Box::new(Expr::Identifier(Ident::new(TIME))),
        op,
        right: Box::new(Expr::Value(ast::Value::SingleQuotedString(bound.clone()).into())),
    };
    let from = sample.and_then(|sample| sample.from.as_ref()).map(|from| compared(BinaryOperator::GtEq, from));
    let to = sample.and_then(|sample| sample.to.as_ref()).map(|to| compared(BinaryOperator::Lt, to));
    let conditions = select.selection.clone().into_iter().chain(from).chain(to);
    conditions.reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    })
}

impl Run<'_> {
    /// The time of a SELECT's first row, for bins that begin there.
    pub(super) fn first_time(&mut self, select: &Select, sample: &Sample) -> Result<Option<i64>, SqlError> {
        if sample.align != Align::FirstObservation {
            return Ok(None);
        }
        let shown = parse(&format!("SELECT min(\"{TIME}\")"))?;
        let Some(Statement::Query(query)) = shown.statements.first() else { return Ok(None) };
        let SetExpr::Select(minimum) = &*query.body else { return Ok(None) };
        let selection = selection(select, Some(sample));
        // Without the place of the SELECT that has the SAMPLE BY.
        let select_token = AttachedToken::empty();
        let first = Select { select_token, from: select.from.clone(), selection, ..(**minimum).clone() };
        let found = self.select(&first, &[], RowLimit::default())?.relation();
        Ok(found.rows.first().and_then(|row| row.first()).and_then(Value::time_ns))
    }

    /// How gaps between groups are filled, if they are.
    pub(super) fn gaps(
        &mut self,
        sample: Option<Sampling>,
        grouped: &Grouped,
        condition: Option<&Typed>,
        scope: &Scope,
    ) -> Result<Option<Gaps>, SqlError> {
        let calls = grouped.calls.len();
        if let Some(sample) = sample {
            let none = sample.fill.iter().all(Option::is_none);
            if none {
                return Ok(None);
            }
            let fills = match sample.fill.as_slice() {
                [one] => vec![one.unwrap_or(FillWith::Null); calls],
                each if each.len() == calls => each.iter().map(|fill| fill.unwrap_or(FillWith::Null)).collect(),
                each => {
                    return invalid(format!(
                        "FILL has {} values for {calls} aggregates: one for each, or one for all",
                        each.len()
                    ));
                }
            };
            let Some(bins) = self.bins(grouped.keys.first())? else { return Ok(None) };
            return Ok(Some(Gaps { key: 0, bins, fills, range: Some(sample.range) }));
        }
        let mut range_of_call = None;
        let mut key = 0;
        for (index, found) in grouped.keys.iter().enumerate() {
            if let Some(range) = filled_range(&found.typed.expression, &self.environment)? {
                (range_of_call, key) = (Some(range), index);
                break;
            }
        }
        let Some(FilledRange { start_ns, finish_ns }) = range_of_call else { return Ok(None) };
        let Some(bins) = self.bins(grouped.keys.get(key))? else {
            return invalid("time_bucket_gapfill takes a constant width, origin, offset and time zone");
        };
        let fills = (0..calls).map(|call| grouped.fills.get(&call).copied().unwrap_or(FillWith::Null)).collect();
        let range = condition.map(|condition| {
            let mut scan = query::plan::Scan::of_table("");
            super::lower(condition.expression.clone(), &mut scan, scope);
            scan.range
        });
        let mut range = range.unwrap_or(TimeRange::ALL);
        range.start_ns = start_ns.unwrap_or(range.start_ns);
        range.end_ns = finish_ns.map_or(range.end_ns, |finish_ns| finish_ns.saturating_sub(1));
        let range = Some(range).filter(|range| range.start_ns != i64::MIN && range.end_ns != i64::MAX);
        Ok(Some(Gaps { key, bins, fills, range }))
    }

    fn bins(&self, key: Option<&Key>) -> Result<Option<CalendarBins>, SqlError> {
        match key {
            Some(key) => calendar_bins(&key.typed.expression, &self.environment),
            None => Ok(None),
        }
    }
}

/// `00:30` or `-02:00`, as QuestDB writes offsets.
fn offset_ns(text: &str) -> Result<i64, SqlError> {
    match time::parse_interval(text).map(Interval::with_even_days) {
        Some(Interval { months: 0, days: _, ns }) => Ok(ns),
        _ => invalid(format!("an offset is hours and minutes such as '00:30', not '{text}'")),
    }
}
