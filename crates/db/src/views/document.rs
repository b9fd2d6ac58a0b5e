//! Views as documents of the manifest; `docs/formats/views.md` describes them.

use model::{MatchOp, Matcher, TimeRange, ValueType};
use query::views::{
    Dialect, PendingColumns, PendingRange, RefreshPolicy, StoredQuery, TaskRecord, ViewDefinition, ViewOptions,
    ViewOutput, ViewState, WindowWidth,
};
use query::{Interval, Plan};
use serde_json::{Map, Value, json};

const VERSION: i64 = 1;

/// The version of a definition whose rows go elsewhere than those of views did before, or which is a task.
const VERSION_OF_OUTPUT: i64 = 2;

/// How the names and groups of a view of plain SQL are read.
const POSTGRES: &str = "postgres";
const QUESTDB: &str = "questdb";

/// The names of types in documents.
const TYPES: [(&str, ValueType); 5] = [
    ("f64", ValueType::F64),
    ("i64", ValueType::I64),
    ("u64", ValueType::U64),
    ("bool", ValueType::Bool),
    ("string", ValueType::String),
];

/// The operators of matchers in documents.
const OPERATORS: [(&str, MatchOp); 4] =
    [("=", MatchOp::Equal), ("!=", MatchOp::NotEqual), ("=~", MatchOp::Regex), ("!~", MatchOp::NotRegex)];

/// A definition as a document.
pub(super) fn encode(definition: &ViewDefinition) -> Vec<u8> {
    let WindowWidth { width, origin_ns, zone } = &definition.windows;
    let type_name =
        |value_type: ValueType| TYPES.iter().find(|(_, known)| *known == value_type).map_or("f64", |(name, _)| name);
    let fields: Vec<Value> =
        definition.fields.iter().map(|(name, value_type)| json!([name, type_name(*value_type)])).collect();
    let is_elsewhere =
        definition.output != ViewOutput::default() || definition.task.is_some() || definition.is_by_all_tags();
    let mut document = json!({
        "version": if is_elsewhere { VERSION_OF_OUTPUT } else { VERSION },
        "name": definition.name,
        "database": definition.database,
        "target": definition.target,
        "time_name": definition.time_name,
        "plan": definition.plan.to_string(),
        "months": width.months,
        "days": width.days,
        "width_ns": width.ns,
        "origin_ns": origin_ns,
        "zone": zone,
        "fields": fields,
        "options": encode_options(&definition.options),
        "maker": definition.maker,
        "statement": definition.statement,
        "dialect": definition.dialect.name(),
    });
    if is_elsewhere {
        let ViewOutput { database, is_at_end, without } = &definition.output;
        document["output"] = json!({ "database": database, "is_at_end": is_at_end, "without": without });
    }
    if let Some(task) = &definition.task {
        document["task"] = json!({
            "description": task.description,
            "created_ns": task.created_ns,
            "updated_ns": task.updated_ns,
            "every_ns": match task.schedule { RefreshPolicy::Every(ns) => Some(ns), _ => None },
            "is_inactive": task.is_inactive,
        });
    }
    document.to_string().into_bytes()
}

fn encode_options(options: &ViewOptions) -> Value {
    let mut encoded = Map::new();
    encoded.insert("materialized_only".to_owned(), json!(options.materialized_only));
    match options.refresh {
        RefreshPolicy::Immediate => {}
        RefreshPolicy::Every(ns) => drop(encoded.insert("refresh_every_ns".to_owned(), json!(ns))),
        RefreshPolicy::Manual => drop(encoded.insert("refresh".to_owned(), json!("manual"))),
    }
    if let Some(lag_ns) = options.lag_ns {
        encoded.insert("lag_ns".to_owned(), json!(lag_ns));
    }
    Value::Object(encoded)
}

/// A definition from a document; the error says what is wrong with it.
pub(super) fn decode(bytes: &[u8]) -> Result<ViewDefinition, String> {
    let document: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let version = whole(&document, "version")?;
    if ![VERSION, VERSION_OF_OUTPUT].contains(&version) {
        return Err("it was written by a newer version".to_owned());
    }
    let plan: Plan = query::parse(&text(&document, "plan")?, 0).map_err(|error| error.to_string())?;
    let narrow = |name: &str| i32::try_from(whole(&document, name)?).map_err(|error| format!("{name}: {error}"));
    let width = Interval { months: narrow("months")?, days: narrow("days")?, ns: whole(&document, "width_ns")? };
    let dialect = text(&document, "dialect")?;
    let dialect = Dialect::NAMED.iter().find(|(name, _)| **name == *dialect).map(|(_, dialect)| *dialect);
    let definition = ViewDefinition {
        name: text(&document, "name")?,
        database: text(&document, "database")?,
        target: text(&document, "target")?,
        time_name: text(&document, "time_name")?,
        plan,
        windows: WindowWidth { width, origin_ns: whole(&document, "origin_ns")?, zone: text(&document, "zone")? },
        fields: decode_fields(&document)?,
        options: decode_options(document.get("options").unwrap_or(&Value::Null)),
        maker: text(&document, "maker")?,
        statement: text(&document, "statement")?,
        dialect: dialect.ok_or("its dialect is not known")?,
        output: if version == VERSION { ViewOutput::default() } else { decode_output(&document)? },
        task: document.get("task").map(decode_task).transpose()?,
    };
    definition.check().map_err(|error| error.to_string())?;
    Ok(definition)
}

/// Refuses a definition that would not be read from its document as it is.
pub(super) fn check(definition: &ViewDefinition) -> Result<(), String> {
    let document = encode(definition);
    let is_kept = encode(&decode(&document)?) == document;
    if is_kept { Ok(()) } else { Err("its document would be read as another".to_owned()) }
}

/// The table that holds the windows of a view whose document cannot be read, as far as it says so.
pub(super) fn target_of(bytes: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    let dialect = text(&document, "dialect").ok()?;
    let writes_tables = |(name, known): &(&str, Dialect)| *name == dialect && known.writes_tables();
    text(&document, "target").ok().filter(|_| !Dialect::NAMED.iter().any(writes_tables))
}

/// Where rows go; without it they would go to the database of the source.
fn decode_output(document: &Value) -> Result<ViewOutput, String> {
    let output = document.get("output").ok_or("it does not say where its rows go")?;
    let database = output.get("database").filter(|database| !database.is_null());
    let database = database.map(|name| name.as_str().map(str::to_owned).ok_or("its database is no text"));
    let without = output.get("without").and_then(Value::as_array);
    let name = |name: &Value| name.as_str().map(str::to_owned);
    let without = without.and_then(|names| names.iter().map(name).collect::<Option<Vec<_>>>());
    Ok(ViewOutput {
        database: database.transpose()?,
        is_at_end: output.get("is_at_end").and_then(Value::as_bool).ok_or("it does not say where its rows stand")?,
        without: without.ok_or("its labels that are left out are no list of names")?,
    })
}

fn decode_task(task: &Value) -> Result<TaskRecord, String> {
    let every_ns = task.get("every_ns").and_then(Value::as_i64);
    Ok(TaskRecord {
        description: task.get("description").and_then(Value::as_str).map(str::to_owned),
        created_ns: whole(task, "created_ns")?,
        updated_ns: whole(task, "updated_ns")?,
        schedule: every_ns.map_or(RefreshPolicy::Immediate, RefreshPolicy::Every),
        is_inactive: task.get("is_inactive").and_then(Value::as_bool).ok_or("it does not say whether it is active")?,
    })
}

fn decode_fields(document: &Value) -> Result<Vec<(String, ValueType)>, String> {
    let field = |field: &Value| {
        let (name, type_name) = (field.get(0)?.as_str()?, field.get(1)?.as_str()?);
        let (_, value_type) = TYPES.iter().find(|(known, _)| *known == type_name)?;
        Some((name.to_owned(), *value_type))
    };
    let fields = document.get("fields").and_then(Value::as_array);
    let fields = fields.and_then(|fields| fields.iter().map(field).collect::<Option<Vec<_>>>());
    fields.ok_or_else(|| "its fields are no list of names and types".to_owned())
}

fn decode_options(options: &Value) -> ViewOptions {
    let number = |name: &str| options.get(name).and_then(Value::as_i64);
    let is_manual = options.get("refresh").and_then(Value::as_str) == Some("manual");
    let every = number("refresh_every_ns").map_or(RefreshPolicy::Immediate, RefreshPolicy::Every);
    ViewOptions {
        materialized_only: options.get("materialized_only").and_then(Value::as_bool).unwrap_or_default(),
        refresh: if is_manual { RefreshPolicy::Manual } else { every },
        lag_ns: number("lag_ns"),
    }
}

/// A state as a document.
pub(super) fn encode_state(state: &ViewState) -> Vec<u8> {
    let pending = |pending: &PendingRange| json!([pending.range.start_ns, pending.range.end_ns, pending.is_fill]);
    let pending: Vec<Value> = state.pending.iter().map(pending).collect();
    let mut document =
        json!({ "version": VERSION, "watermark_ns": state.watermark_ns, "pending": pending, "expiry_noted": true });
    if state.frozen_ns > i64::MIN {
        document["frozen_ns"] = json!(state.frozen_ns);
    }
    if state.expired_ns > i64::MIN {
        document["expired_ns"] = json!(state.expired_ns);
    }
    if let Some(labels) = &state.labels {
        document["labels"] = json!(labels);
    }
    if !state.new_columns.is_empty() {
        let columns = |columns: &PendingColumns| {
            let range = |range: &TimeRange| json!([range.start_ns, range.end_ns]);
            json!([columns.names, columns.ranges.iter().map(range).collect::<Vec<Value>>()])
        };
        document["new_columns"] = state.new_columns.iter().map(columns).collect();
    }
    document.to_string().into_bytes()
}

/// A state from a document; `None` if it cannot be read: then everything is to be computed again.
pub(super) fn decode_state(bytes: &[u8]) -> Option<ViewState> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    let pending = |pending: &Value| {
        let (start_ns, end_ns) = (pending.get(0)?.as_i64()?, pending.get(1)?.as_i64()?);
        Some(PendingRange { range: TimeRange::new(start_ns, end_ns), is_fill: pending.get(2)?.as_bool()? })
    };
    let pending = document.get("pending")?.as_array()?.iter().map(pending).collect::<Option<Vec<_>>>()?;
    let is_known = document.get("version")?.as_i64() == Some(VERSION);
    // Only there if something is gone.
    let frozen_ns = document.get("frozen_ns").map_or(Some(i64::MIN), Value::as_i64)?;
    let expired_ns = document.get("expired_ns").map_or(Some(i64::MIN), Value::as_i64)?;
    let watermark_ns = document.get("watermark_ns")?.as_i64()?;
    let labels = document.get("labels").map(|labels| labels.as_str().map(str::to_owned));
    // Labels that cannot be read are those of no table: everything is computed again.
    let labels = labels.map(Option::unwrap_or_default);
    let new_columns = document.get("new_columns").map_or(Some(Vec::new()), decode_new_columns)?;
    Some(ViewState { watermark_ns, pending, new_columns, frozen_ns, expired_ns, labels }).filter(|_| is_known)
}

fn decode_new_columns(columns: &Value) -> Option<Vec<PendingColumns>> {
    let range = |range: &Value| Some(TimeRange::new(range.get(0)?.as_i64()?, range.get(1)?.as_i64()?));
    let of_names = |columns: &Value| {
        let names = columns.get(0)?.as_array()?.iter();
        let names = names.map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()?;
        let ranges = columns.get(1)?.as_array()?.iter().map(range).collect::<Option<Vec<TimeRange>>>()?;
        Some(PendingColumns { names, ranges })
    };
    columns.as_array()?.iter().map(of_names).collect()
}

/// Returns whether a state's document was written when what a TTL takes was noted before it went.
pub(super) fn is_expiry_noted(bytes: &[u8]) -> bool {
    serde_json::from_slice(bytes).is_ok_and(|document: Value| document["expiry_noted"] == true)
}

/// A view of plain SQL as a document.
pub(super) fn encode_query(query: &StoredQuery) -> Vec<u8> {
    let operator = |op: MatchOp| OPERATORS.iter().find(|(_, known)| *known == op).map_or("=", |(text, _)| text);
    let matcher = |matcher: &Matcher| json!([matcher.name, operator(matcher.op), matcher.value]);
    json!({
        "version": VERSION,
        "name": query.name,
        "database": query.database,
        "statement": query.statement,
        "manner": if query.is_questdb { QUESTDB } else { POSTGRES },
        "maker": query.maker,
        "matchers": query.matchers.iter().map(matcher).collect::<Vec<Value>>(),
    })
    .to_string()
    .into_bytes()
}

/// A view of plain SQL from a document; the error says what is wrong with it.
pub(super) fn decode_query(bytes: &[u8]) -> Result<StoredQuery, String> {
    let document: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if whole(&document, "version")? != VERSION {
        return Err("it was written by a newer version".to_owned());
    }
    let matcher = |matcher: &Value| {
        let part = |place: usize| matcher.get(place)?.as_str();
        let (_, op) = OPERATORS.iter().find(|(known, _)| Some(*known) == part(1))?;
        Some(Matcher::new(part(0)?, *op, part(2)?))
    };
    let matchers = document.get("matchers").and_then(Value::as_array);
    // Without them it would show more than its maker may read.
    let matchers = matchers.and_then(|matchers| matchers.iter().map(matcher).collect::<Option<Vec<_>>>());
    let query = StoredQuery {
        name: text(&document, "name")?,
        database: text(&document, "database")?,
        statement: text(&document, "statement")?,
        is_questdb: match text(&document, "manner")?.as_str() {
            QUESTDB => true,
            POSTGRES => false,
            other => return Err(format!("its names are read as {other:?} has them, which is not known")),
        },
        maker: text(&document, "maker")?,
        matchers: matchers.ok_or("its matchers are no list of names, operators and values")?,
    };
    query.check().map_err(|error| error.to_string())?;
    Ok(query)
}

fn text(document: &Value, name: &str) -> Result<String, String> {
    let found = document.get(name).and_then(Value::as_str);
    found.map(str::to_owned).ok_or_else(|| format!("it has no text {name}"))
}

fn whole(document: &Value, name: &str) -> Result<i64, String> {
    document.get(name).and_then(Value::as_i64).ok_or_else(|| format!("it has no whole number {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_of_plain_sql_survive_and_lose_no_condition() {
        let query = StoredQuery {
            name: "v\"1".to_owned(),
            database: "d".to_owned(),
            statement: "CREATE VIEW v AS SELECT 'é'".to_owned(),
            is_questdb: true,
            maker: "ann".to_owned(),
            matchers: vec![Matcher::new("env", MatchOp::NotRegex, "a|\"b\"")],
        };
        let bytes = encode_query(&query);
        assert_eq!(decode_query(&bytes), Ok(query.clone()));
        let text = String::from_utf8(bytes).unwrap();
        for (from, to) in
            [("matchers", "matcher"), ("!~", "~"), ("questdb", "mysql"), ("\"version\":1", "\"version\":2")]
        {
            assert!(text.contains(from), "{text}");
            assert!(decode_query(text.replace(from, to).as_bytes()).is_err(), "{from}");
        }
        let long = StoredQuery { name: "x".repeat(300), ..query };
        assert!(decode_query(&encode_query(&long)).is_err());
    }

    #[test]
    fn definitions_and_states_survive() {
        let plan = query::parse(
            "(->> (rows-of \"cpu\") (tag \"os\" \"a\\\"b\") (where (> #usage 1)) (groupby 1m '((sum \"usage\") (count #TS)) (by '(\"host\"))) \
             (map \"s\" (column \"sum usage\") \"n\" (coalesce (column \"count #TS\") 0)))",
            0,
        );
        let definition = ViewDefinition {
            name: "v".to_owned(),
            database: "d".to_owned(),
            target: "v".to_owned(),
            time_name: "bucket".to_owned(),
            plan: plan.unwrap(),
            windows: WindowWidth { width: Interval::of_ns(60_000_000_000), origin_ns: -5, zone: "UTC".to_owned() },
            fields: vec![("s".to_owned(), ValueType::F64), ("n".to_owned(), ValueType::I64)],
            options: ViewOptions { refresh: RefreshPolicy::Every(7), lag_ns: Some(3), ..ViewOptions::default() },
            maker: "ann".to_owned(),
            statement: "CREATE …".to_owned(),
            dialect: Dialect::Timescale,
            output: ViewOutput::default(),
            task: None,
        };
        assert_eq!(decode(&encode(&definition)), Ok(definition.clone()));
        let damaged = String::from_utf8(encode(&definition)).unwrap().replace("groupby", "group");
        assert!(decode(damaged.as_bytes()).is_err());
        assert_eq!(target_of(damaged.as_bytes()).as_deref(), Some("v"));
        assert_eq!(check(&definition), Ok(()));
        let by_all = "(->> (rows-of \"cpu\") (groupby 1m '((sum \"usage\"))) (map \"s\" (column \"sum usage\")))";
        let task = ViewDefinition {
            target: "down".to_owned(),
            plan: query::parse(by_all, 0).unwrap(),
            output: ViewOutput { database: Some("year".to_owned()), is_at_end: true, without: vec!["host".to_owned()] },
            task: Some(TaskRecord {
                description: Some("é".to_owned()),
                created_ns: 5,
                updated_ns: 6,
                schedule: RefreshPolicy::Every(7),
                is_inactive: true,
            }),
            dialect: Dialect::Flux,
            ..definition.clone()
        };
        let encoded = encode(&task);
        assert_eq!(decode(&encoded), Ok(task.clone()));
        assert_eq!(target_of(&encoded), None, "its table is not the view's");
        let text = String::from_utf8(encoded).unwrap();
        for (from, to) in [("\"output\"", "\"out\""), ("flux", "sql"), ("\"version\":2", "\"version\":3")] {
            assert!(text.contains(from) && decode(text.replace(from, to).as_bytes()).is_err(), "{from}");
        }
        let nowhere = WindowWidth { zone: "Nowhere/Town".to_owned(), ..definition.windows.clone() };
        assert!(check(&ViewDefinition { windows: nowhere, ..definition.clone() }).is_err());
        let mut state = ViewState { watermark_ns: 100, ..ViewState::default() };
        state.add(PendingRange { range: TimeRange::new(i64::MIN, 50), is_fill: true });
        state.add(PendingRange { range: TimeRange::new(60, 500), is_fill: false });
        assert_eq!(state.pending.len(), 2);
        assert_eq!(decode_state(&encode_state(&state)), Some(state.clone()));
        state.frozen_ns = -5;
        state.labels = Some("0a".to_owned());
        state.add_columns(vec!["peak".to_owned()]);
        assert_eq!(decode_state(&encode_state(&state)), Some(state));
        assert_eq!(decode_state(b"{}"), None);
    }
}
