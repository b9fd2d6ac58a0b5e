//! Answers of each language as series.

use std::collections::BTreeMap;
use std::sync::Arc;

use db::RangeQuery;
use model::Labels;
use plot::chart::{Point, Series};
use promql::ResultValue;
use query::{Budget, Cell, QueryError};
use rrd::time::Times;
use sql::ClientContext;

use super::error::GraphError;
use super::request::{GraphRequest, Language};
use super::table::{Table, extent, named, too_many_series};
use crate::error::ApiError;
use crate::http::query::STEPS_MAX;
use crate::state::State;

const NS_PER_MS: i64 = 1_000_000;
const NS_PER_S: i64 = 1_000_000_000;
/// A range around a single moment.
const MINUTE_NS: i64 = 60 * NS_PER_S;

/// The series of an answer, and its range.
pub(super) struct GraphAnswer {
    pub(super) series: Vec<Series>,
    /// First and last moment.
    pub(super) range_ns: (i64, i64),
    /// The time between points that follow one another.
    pub(super) step_ns: Option<i64>,
    pub(super) warnings: Vec<String>,
    pub(super) infos: Vec<String>,
}

/// Runs the query.
pub(super) fn find(state: &State, asked: &GraphRequest, budget: &Arc<Budget>) -> Result<GraphAnswer, GraphError> {
    match asked.language {
        Language::PromQl => promql(state, asked, budget),
        Language::Sql => tables(asked, budget, sql(state, asked, budget)?, Vec::new()),
        Language::InfluxQl => {
            let (tables_found, messages) = influxql(state, asked, budget)?;
            tables(asked, budget, tables_found, messages)
        }
        Language::Plan => plan(state, asked, budget),
        Language::Rrd => rrdtool(state, asked, budget),
    }
}

fn promql(state: &State, asked: &GraphRequest, budget: &Arc<Budget>) -> Result<GraphAnswer, GraphError> {
    let (start_ms, end_ms, step_ms) = asked.range_ms()?;
    if end_ms.saturating_sub(start_ms) / step_ms > STEPS_MAX {
        return Err(ApiError::invalid_parameter("step", format!("the range has more than {STEPS_MAX} steps")).into());
    }
    let query = RangeQuery {
        text: asked.text.clone(),
        start_ms,
        end_ms,
        step_ms,
        lookback_ms: None,
        name_removal: None,
        may_cache: asked.may_cache,
        budget: budget.clone(),
    };
    let answer = state.db.range(&asked.database, &query)?;
    let mut warnings = answer.warnings;
    let ResultValue::Matrix(matrix) = answer.value else {
        return Err(QueryError::Invalid("the expression is a text, which cannot be drawn".to_owned()).into());
    };
    let mut series = Vec::with_capacity(matrix.len());
    let mut histograms = 0;
    for (labels, points) in matrix {
        budget.check()?;
        if points.floats.is_empty() {
            histograms += usize::from(!points.histograms.is_empty());
            continue;
        }
        let points = points.floats.into_iter();
        let points = points.map(|(time_ms, value)| Point { time_ns: time_ms.saturating_mul(NS_PER_MS), value });
        series.push(Series { name: name(&labels), labels: pairs(&labels), points: points.collect() });
    }
    if histograms > 0 {
        warnings.push(format!("{histograms} native histograms are not drawn: use histogram_quantile()"));
    }
    too_many_series(series.len())?;
    let range_ns = (start_ms.saturating_mul(NS_PER_MS), end_ms.saturating_mul(NS_PER_MS));
    Ok(GraphAnswer {
        series,
        range_ns,
        step_ns: Some(step_ms.saturating_mul(NS_PER_MS)),
        warnings,
        infos: answer.infos,
    })
}

/// `metric{label="value", …}`
fn name(labels: &Labels) -> String {
    let metric = labels.iter().find(|(name, _)| *name == "__name__").map_or("", |(_, value)| value);
    let rest: Vec<(&str, &str)> = labels.iter().filter(|(name, _)| *name != "__name__").collect();
    named(metric, &rest)
}

fn pairs(labels: &Labels) -> Vec<(String, String)> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn refused(what: impl Into<String>) -> GraphError {
    ApiError::invalid_parameter("query", what.into()).into()
}

fn sql(state: &State, asked: &GraphRequest, budget: &Arc<Budget>) -> Result<Vec<Table>, GraphError> {
    let parsed = sql::parse(&asked.text)?;
    if let Some(change) = parsed.first_change() {
        return Err(refused(format!("a graph only reads, and {change} changes things")));
    }
    if parsed.statements.len() != 1 {
        return Err(refused("a graph is of one statement"));
    }
    let client = ClientContext::new(asked.database.clone(), asked.now_ns);
    let relation = state.db.sql(&parsed, 0, &client, budget)?.relation();
    let relation = relation.ok_or_else(|| refused("the statement gives no rows"))?;
    let columns = relation.columns.into_iter().map(|column| column.name).collect();
    Ok(vec![Table { name: String::new(), tags: Vec::new(), columns, rows: relation.rows }])
}

fn influxql(state: &State, asked: &GraphRequest, budget: &Budget) -> Result<(Vec<Table>, Vec<String>), GraphError> {
    let query = influxql::Query::parse(&asked.text, &BTreeMap::new())?;
    if let Some(change) = query.first_change() {
        return Err(refused(format!("a graph only reads, and {change} changes things")));
    }
    let request = influxql::RequestContext { database: Some(&asked.database), read_only: true };
    let (mut tables, mut messages) = (Vec::new(), Vec::new());
    for number in 0..query.len() {
        if query.account_statement(number).is_some() || query.subscription_statement(number).is_some() {
            return Err(refused("a statement about users or subscriptions has nothing to draw"));
        }
        let answer = state.db.run_influxql(&query, number, &request, budget)?;
        messages.extend(answer.messages);
        for series in answer.series {
            let (columns, rows) = (series.columns.to_vec(), series.rows.values().into_owned());
            budget.take(rows.len() * columns.len())?;
            tables.push(Table { name: series.name, tags: series.tags, columns, rows });
        }
    }
    Ok((tables, messages))
}

/// Tables as series, with the range of the request, or that of their rows.
fn tables(
    asked: &GraphRequest,
    budget: &Budget,
    tables: Vec<Table>,
    warnings: Vec<String>,
) -> Result<GraphAnswer, GraphError> {
    let mut series = Vec::new();
    for table in tables {
        series.extend(table.into_series(budget)?);
        too_many_series(series.len())?;
    }
    let range_ns = range_of(asked, &series)?;
    Ok(GraphAnswer { series, range_ns, step_ns: None, warnings, infos: Vec::new() })
}

/// The range of the request; what it does not say is as far as points reach.
fn range_of(asked: &GraphRequest, series: &[Series]) -> Result<(i64, i64), GraphError> {
    let found = extent(series);
    let ns = |time_ms: i64| time_ms.saturating_mul(NS_PER_MS);
    let start_ns = asked.start_ms.map(ns).or(found.map(|(first_ns, _)| first_ns));
    let end_ns = asked.end_ms.map(ns).or(found.map(|(_, last_ns)| last_ns));
    let (start_ns, end_ns) = match (start_ns, end_ns) {
        (Some(start_ns), Some(end_ns)) => (start_ns, end_ns),
        _ => {
            let (from_ms, to_ms, _) = asked.range_ms()?;
            (start_ns.unwrap_or(ns(from_ms)), end_ns.unwrap_or(ns(to_ms)))
        }
    };
    // Around a single moment.
    let is_one = start_ns >= end_ns;
    Ok(if is_one {
        (start_ns.saturating_sub(MINUTE_NS), start_ns.saturating_add(MINUTE_NS))
    } else {
        (start_ns, end_ns)
    })
}

fn plan(state: &State, asked: &GraphRequest, budget: &Budget) -> Result<GraphAnswer, GraphError> {
    let plan = state.db.parse_plan(&asked.text)?;
    let frames = state.db.run_plan(&asked.database, &plan, budget)?.frames;
    let mut series = Vec::new();
    for frame in frames {
        let columns = frame.columns.iter().filter(|column| !matches!(column.cells.values, query::Values::Text(_)));
        let is_alone = frame.columns.len() == 1;
        for column in columns {
            budget.take(frame.rows())?;
            let points = frame.timestamps_ns.iter().enumerate();
            let mut points: Vec<Point> =
                points.map(|(row, time_ns)| Point { time_ns: *time_ns, value: number_of(column.cell(row)) }).collect();
            points.sort_by_key(|point| point.time_ns);
            let mut labels = pairs(&frame.labels);
            let mut shown = name(&frame.labels);
            if !is_alone {
                labels.push(("column".to_owned(), column.name.to_string()));
                shown = format!("{}: {shown}", column.name);
            }
            series.push(Series { name: shown, labels, points });
        }
        too_many_series(series.len())?;
    }
    let range_ns = range_of(asked, &series)?;
    Ok(GraphAnswer { series, range_ns, step_ns: None, warnings: Vec::new(), infos: Vec::new() })
}

fn number_of(cell: Cell<'_>) -> f64 {
    match cell {
        Cell::F64(value) => value,
        Cell::I64(value) => value as f64,
        Cell::U64(value) => value as f64,
        Cell::Bool(value) => f64::from(u8::from(value)),
        Cell::Null | Cell::Text(_) => f64::NAN,
    }
}

fn rrdtool(state: &State, asked: &GraphRequest, budget: &Budget) -> Result<GraphAnswer, GraphError> {
    let (start_ms, end_ms, _) = asked.range_ms()?;
    let times = Times { start_s: start_ms.div_euclid(1000), end_s: end_ms.div_euclid(1000) };
    let lines: Vec<&str> = match asked.arguments.as_slice() {
        [] => asked.text.lines().map(str::trim).filter(|line| !line.is_empty()).collect(),
        arguments => arguments.iter().map(String::as_str).collect(),
    };
    let step_s = asked.step_ns.map_or(0, |step_ns| (step_ns / NS_PER_S).max(1));
    let scope = budget.scope();
    let exported = crate::http::rrd::exported((state, &asked.database, &scope), &lines, (times, step_s), budget)?;
    let count = exported.legends.len().max(1);
    too_many_series(exported.legends.len())?;
    budget.take(exported.values.len())?;
    let mut series = Vec::with_capacity(exported.legends.len());
    for (column, legend) in exported.legends.iter().enumerate() {
        // A row has the time at which it ends.
        let times = (1..).map(|row| exported.start_s.saturating_add(exported.step_s.saturating_mul(row)));
        let values = exported.values.iter().skip(column).step_by(count);
        let points =
            times.zip(values).map(|(time_s, value)| Point { time_ns: time_s.saturating_mul(NS_PER_S), value: *value });
        let name = legend.trim().to_owned();
        series.push(Series { labels: vec![("legend".to_owned(), name.clone())], name, points: points.collect() });
    }
    let range_ns = (times.start_s.saturating_mul(NS_PER_S), times.end_s.saturating_mul(NS_PER_S));
    let width_ns = exported.step_s.saturating_mul(NS_PER_S);
    Ok(GraphAnswer { series, range_ns, step_ns: Some(width_ns), warnings: Vec::new(), infos: Vec::new() })
}
