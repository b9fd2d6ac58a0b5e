//! `SHOW`.

use std::collections::{BTreeMap, BTreeSet};

use query::lines::{MEASUREMENT_SPECIAL, TAG_SPECIAL, escaped};
use query::views::Dialect;
use query::{QueryError, Session, TableGroup, Value};

use crate::resolve::condition::{self, SplitCondition};
use crate::resolve::groups::{TableScan, TableSelection, choose};
use crate::resolve::names::{Schema, compile};
use crate::statements::answer::{Answer, Series};
use crate::statements::continuous;
use crate::statements::request::{RequestContext, database, named_tables};
use crate::syntax::ast::{Counted, Limits, Named, Show, ShowTarget, WithKey};
use crate::syntax::duration::go_text;
use crate::time;

/// The length of InfluxDB's shard groups, for columns that clients expect.
const SHARD_GROUP_NS: i64 = 168 * 3_600_000_000_000;

pub(crate) fn show(session: &dyn Session, request: &RequestContext<'_>, show: &Show) -> Result<Answer, QueryError> {
    let series = match show.what {
        ShowTarget::Databases => {
            let rows = session.databases().iter().map(|name| vec![Value::from(name.as_str())]).collect();
            vec![Series::list("databases", &["name"], rows)]
        }
        ShowTarget::Queries => vec![Series::list("", &["qid", "query", "database", "duration", "status"], Vec::new())],
        ShowTarget::Subscriptions => Vec::new(),
        ShowTarget::Stats => stats(session, show.module.as_deref())?,
        ShowTarget::Diagnostics => diagnostics(session, show.module.as_deref()),
        ShowTarget::ContinuousQueries => continuous_queries(session),
        ShowTarget::Shards => {
            let columns = [
                "id",
                "database",
                "retention_policy",
                "shard_group",
                "start_time",
                "end_time",
                "expiry_time",
                "owners",
            ];
            session.databases().iter().map(|name| Series::list(name, &columns, Vec::new())).collect()
        }
        ShowTarget::ShardGroups => {
            let columns = ["id", "database", "retention_policy", "start_time", "end_time", "expiry_time"];
            vec![Series::list("shard groups", &columns, Vec::new())]
        }
        ShowTarget::Policies => policies(session, database(session, request, show.database.as_deref())?),
        _ => of_tables(session, database(session, request, show.database.as_deref())?, show)?,
    };
    Ok(Answer { series, messages: Vec::new() })
}

/// The continuous queries of each database.
fn continuous_queries(session: &dyn Session) -> Vec<Series> {
    let mut all = Vec::new();
    for database in session.databases() {
        // Of a database that the sender may not read it sees the name alone.
        let views = session.views(&database).unwrap_or_default();
        let queries = views.iter().filter(|view| view.definition.dialect == Dialect::InfluxQl);
        // One of several measurements is several views.
        let queries: BTreeMap<String, &str> =
            queries.map(|view| (continuous::name_of(&view.definition), view.definition.statement.as_str())).collect();
        let row = |(name, statement): (String, &str)| vec![Value::from(name.as_str()), Value::from(statement)];
        all.push(Series::list(&database, &["name", "query"], queries.into_iter().map(row).collect()));
    }
    all
}

/// Sizes of each database, as InfluxDB's module `database` has them.
fn stats(session: &dyn Session, module: Option<&str>) -> Result<Vec<Series>, QueryError> {
    if module.is_some_and(|module| module != "database") {
        return Ok(Vec::new());
    }
    let everything = condition::split(None, session.now_ns(), None).map_err(QueryError::Invalid)?;
    let mut all = Vec::new();
    for database in session.databases() {
        let tables = session.tables(&database)?;
        let series: usize =
            choose(session, &database, &tables, &everything)?.iter().map(|table| table.groups.len()).sum();
        let row = vec![Value::Int(tables.len() as i64), Value::Int(series as i64)];
        let tags = vec![("database".to_owned(), database)];
        all.push(Series { tags, ..Series::list("database", &["numMeasurements", "numSeries"], vec![row]) });
    }
    Ok(all)
}

/// What runs, as InfluxDB's modules `build` and `system` say it.
fn diagnostics(session: &dyn Session, module: Option<&str>) -> Vec<Series> {
    let text = |text: &str| Value::from(text);
    let build = vec![text(""), text(""), text(""), text(env!("CARGO_PKG_VERSION"))];
    let now = time::text(session.now_ns(), None);
    let all = vec![
        Series::list("build", &["Branch", "Build Time", "Commit", "Version"], vec![build]),
        Series::list("system", &["currentTime"], vec![vec![text(&now)]]),
    ];
    all.into_iter().filter(|series| module.is_none_or(|module| series.name == module)).collect()
}

/// A database has one policy here, named as InfluxDB names the one that it makes itself.
fn policies(session: &dyn Session, database: &str) -> Vec<Series> {
    let retention_ns = session.retention_ns(database).unwrap_or(0);
    let shard_ns = if retention_ns == 0 { SHARD_GROUP_NS } else { shard_group_ns(retention_ns) };
    let row = vec![
        Value::from("autogen"),
        Value::from(go_text(retention_ns).as_str()),
        Value::from(go_text(shard_ns).as_str()),
        Value::Int(1),
        Value::Bool(true),
    ];
    vec![Series::list("", &["name", "duration", "shardGroupDuration", "replicaN", "default"], vec![row])]
}

fn shard_group_ns(retention_ns: i64) -> i64 {
    const DAY_NS: i64 = 24 * 3_600_000_000_000;
    match retention_ns {
        length_ns if length_ns < 2 * DAY_NS => 3_600_000_000_000,
        length_ns if length_ns <= 180 * DAY_NS => DAY_NS,
        _ => SHARD_GROUP_NS,
    }
}

/// `SHOW` of tables and their groups.
fn of_tables(session: &dyn Session, database: &str, show: &Show) -> Result<Vec<Series>, QueryError> {
    let mut tables = named_tables(session, database, &show.sources)?;
    match &show.with_measurement {
        None => {}
        Some(Named::Exactly(name)) => tables.retain(|table| table == name),
        Some(Named::Pattern(pattern)) => {
            let pattern = compile(pattern).map_err(QueryError::Invalid)?;
            tables.retain(|table| pattern.is_match(table));
        }
    }
    let condition = condition::split(show.condition.as_ref(), session.now_ns(), None).map_err(QueryError::Invalid)?;
    match show.what {
        ShowTarget::Measurements => {
            if condition != (SplitCondition { rest: None, start_ns: None, end_ns: None }) {
                tables =
                    choose(session, database, &tables, &condition)?.into_iter().map(|chosen| chosen.name).collect();
            }
            let rows: Vec<Vec<Value>> = tables.iter().map(|name| vec![Value::from(name.as_str())]).collect();
            Ok(nonempty(vec![Series::list("measurements", &["name"], limited(rows, show.limits))]))
        }
        ShowTarget::FieldKeys => field_keys(session, database, &tables, show.limits),
        ShowTarget::Cardinality { counted, exact } => {
            let chosen = choose(session, database, &tables, &condition)?;
            cardinality(&chosen, counted, exact, show)
        }
        ShowTarget::Series => {
            let chosen = choose(session, database, &tables, &condition)?;
            let keys = chosen.iter().flat_map(|table| table.groups.iter().map(|group| key(&table.name, group)));
            let rows = keys.map(|key| vec![Value::from(key.as_str())]).collect();
            Ok(nonempty(vec![Series::list("", &["key"], limited(rows, show.limits))]))
        }
        ShowTarget::TagKeys => {
            let chosen = choose(session, database, &tables, &condition)?;
            let each = |table: &TableSelection| {
                let names: BTreeSet<&str> =
                    table.groups.iter().flat_map(|group| group.tags.iter().map(|(name, _)| name)).collect();
                let rows = names.into_iter().map(|name| vec![Value::from(name)]).collect();
                Series::list(&table.name, &["tagKey"], limited(rows, show.limits))
            };
            Ok(limited_series(nonempty(chosen.iter().map(each).collect()), show.limits))
        }
        _ => {
            let (mut all, wanted) = (Vec::new(), wanted_keys(show)?);
            for name in &tables {
                let Some(scan) = TableScan::new(session, database, name, &condition)? else { continue };
                let pairs = scan.tag_values(session, database, &wanted)?.into_iter();
                let rows = pairs.map(|(key, value)| vec![Value::from(&*key), Value::from(&*value)]).collect();
                all.push(Series::list(name, &["key", "value"], limited(rows, show.limits)));
            }
            Ok(limited_series(nonempty(all), show.limits))
        }
    }
}

/// The keys that `WITH KEY` asks for.
fn wanted_keys(show: &Show) -> Result<impl Fn(&str) -> bool, QueryError> {
    let pattern = match &show.with_key {
        Some(WithKey::Matches(pattern) | WithKey::MatchesNot(pattern)) => {
            Some(compile(pattern).map_err(QueryError::Invalid)?)
        }
        _ => None,
    };
    let matches = move |name: &str| pattern.as_ref().is_some_and(|pattern| pattern.is_match(name));
    Ok(move |name: &str| match &show.with_key {
        None => true,
        Some(WithKey::In(names)) => names.iter().any(|known| known == name),
        Some(WithKey::Not(other)) => name != other,
        Some(WithKey::Matches(_)) => matches(name),
        Some(WithKey::MatchesNot(_)) => !matches(name),
    })
}

/// Pairs of keys and values that `WITH KEY` asks for.
fn tag_values<'c>(of: &'c TableSelection, show: &Show) -> Result<BTreeSet<(&'c str, &'c str)>, QueryError> {
    let wanted = wanted_keys(show)?;
    let tags = of.groups.iter().flat_map(|group| group.tags.iter());
    Ok(tags.filter(|(name, _)| wanted(name)).collect())
}

fn field_keys(
    session: &dyn Session,
    database: &str,
    tables: &[String],
    limits: Limits,
) -> Result<Vec<Series>, QueryError> {
    let mut all = Vec::new();
    for name in tables {
        let Some(table) = session.table(database, name)? else { continue };
        let fields: BTreeMap<String, &str> =
            Schema::from_table(&table).fields.into_iter().map(|(field, data_type)| (field, data_type.name())).collect();
        let rows = fields.iter().map(|(field, kind)| vec![Value::from(field.as_str()), Value::from(*kind)]).collect();
        all.push(Series::list(name, &["fieldKey", "fieldType"], limited(rows, limits)));
    }
    Ok(limited_series(nonempty(all), limits))
}

fn cardinality(
    chosen: &[TableSelection],
    counted: Counted,
    exact: bool,
    show: &Show,
) -> Result<Vec<Series>, QueryError> {
    let count = |count: usize| vec![vec![Value::Int(count as i64)]];
    let all_series: usize = chosen.iter().map(|table| table.groups.len()).sum();
    match (counted, exact) {
        (Counted::Series, false) => return Ok(vec![Series::list("", &["cardinality estimation"], count(all_series))]),
        (Counted::Measurements, false) => {
            return Ok(vec![Series::list("", &["cardinality estimation"], count(chosen.len()))]);
        }
        (Counted::Measurements, true) => return Ok(vec![Series::list("", &["count"], count(chosen.len()))]),
        _ => {}
    }
    let mut all = Vec::with_capacity(chosen.len());
    for table in chosen {
        let number = match counted {
            Counted::Series | Counted::Measurements => table.groups.len(),
            Counted::TagKeys => table.schema.tags.len(),
            Counted::FieldKeys => table.schema.fields.len(),
            Counted::TagValues => tag_values(table, show)?.len(),
        };
        all.push(Series::list(&table.name, &["count"], count(number)));
    }
    Ok(limited_series(all, show.limits))
}

/// A series as line protocol begins it.
fn key(name: &str, group: &TableGroup) -> String {
    let mut key = escaped(name, &MEASUREMENT_SPECIAL);
    for (tag, value) in group.tags.iter() {
        key.push(',');
        key.push_str(&escaped(tag, &TAG_SPECIAL));
        key.push('=');
        key.push_str(&escaped(value, &TAG_SPECIAL));
    }
    key
}

fn limited<T>(mut rows: Vec<T>, limits: Limits) -> Vec<T> {
    limits.of_rows().apply(&mut rows);
    rows
}

fn limited_series(mut series: Vec<Series>, limits: Limits) -> Vec<Series> {
    limits.of_series().apply(&mut series);
    series
}

fn nonempty(mut series: Vec<Series>) -> Vec<Series> {
    series.retain(|series| !series.rows.is_empty());
    series
}
