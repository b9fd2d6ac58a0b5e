//! Functions of templates: Go's own and Prometheus's.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use scrape::config::units;

use super::humanize;
use super::printf::{quote, sprintf};
use super::value::{TextMap, Value};

/// The label by which a query's text results are given to `strvalue`.
pub(super) const TEXT_LABEL: &str = "__value__";

/// Bytes of a regular expression, compiled.
const REGEX_BYTES_MAX: usize = 1 << 20;

const NAMES: [&str; 56] = [
    "and",
    "or",
    "not",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "len",
    "index",
    "slice",
    "print",
    "printf",
    "println",
    "call",
    "html",
    "js",
    "urlquery",
    "query",
    "first",
    "label",
    "value",
    "strvalue",
    "sortByLabel",
    "safeHtml",
    "humanize",
    "humanize1024",
    "humanizeDuration",
    "humanizePercentage",
    "humanizeTimestamp",
    "toTime",
    "toDuration",
    "now",
    "title",
    "toUpper",
    "toLower",
    "stripPort",
    "stripDomain",
    "match",
    "reReplaceAll",
    "graphLink",
    "tableLink",
    "parseDuration",
    "urlQueryEscape",
    "args",
    "tmpl",
    "externalURL",
    "pathPrefix",
    // Of vmalert's templates.
    "parseDurationTime",
    "quotesEscape",
    "jsonEscape",
    "htmlEscape",
    "crlfEscape",
    "pathEscape",
    "queryEscape",
];

/// The function of this name.
pub(super) fn name(name: &str) -> Option<&'static str> {
    NAMES.into_iter().find(|known| *known == name)
}

/// Calls a function that needs nothing but its arguments.
pub(super) fn call(name: &str, arguments: &[Value]) -> Result<Value, String> {
    if let Some(found) = go(name, arguments)? {
        return Ok(found);
    }
    if let Some(found) = of_samples(name, arguments)? {
        return Ok(found);
    }
    if let Some(found) = of_numbers(name, arguments)? {
        return Ok(found);
    }
    if let Some(found) = of_texts(name, arguments)? {
        return Ok(found);
    }
    let types: Vec<&str> = arguments.iter().map(Value::type_name).collect();
    Err(format!("wrong number or types of arguments: ({})", types.join(", ")))
}

/// Functions of Go's package.
fn go(name: &str, arguments: &[Value]) -> Result<Option<Value>, String> {
    let text = |text: String| Ok(Some(Value::text(text)));
    match (name, arguments) {
        ("not", [value]) => Ok(Some(Value::Bool(!value.is_true()))),
        ("eq", [first, others @ ..]) if !others.is_empty() => {
            for other in others {
                if first.equals(other)? {
                    return Ok(Some(Value::Bool(true)));
                }
            }
            Ok(Some(Value::Bool(false)))
        }
        ("ne", [a, b]) => Ok(Some(Value::Bool(!a.equals(b)?))),
        ("lt", [Value::Float(a), Value::Float(b)]) => Ok(Some(Value::Bool(a < b))),
        ("le", [Value::Float(a), Value::Float(b)]) => Ok(Some(Value::Bool(a <= b))),
        ("gt", [Value::Float(a), Value::Float(b)]) => Ok(Some(Value::Bool(a > b))),
        ("ge", [Value::Float(a), Value::Float(b)]) => Ok(Some(Value::Bool(a >= b))),
        ("lt", [a, b]) => Ok(Some(Value::Bool(a.compare(b)?.is_lt()))),
        ("le", [a, b]) => Ok(Some(Value::Bool(a.compare(b)?.is_le()))),
        ("gt", [a, b]) => Ok(Some(Value::Bool(a.compare(b)?.is_gt()))),
        ("ge", [a, b]) => Ok(Some(Value::Bool(a.compare(b)?.is_ge()))),
        ("len", [value]) => length(value).map(|length| Some(Value::Int(length as i64))),
        ("index", [value, keys @ ..]) => keys.iter().try_fold(value.clone(), |value, key| index(&value, key)).map(Some),
        ("slice", [value, bounds @ ..]) if bounds.len() <= 2 => slice(value, bounds).map(Some),
        ("print", _) => text(print(arguments)),
        ("println", _) => {
            let texts: Vec<String> = arguments.iter().map(print_one).collect();
            text(texts.join(" ") + "\n")
        }
        ("printf", [Value::Text(format), values @ ..]) => text(sprintf(format, values)),
        ("call", [_, ..]) => Err("non-function of type".to_owned()),
        ("html" | "htmlEscape", _) => text(escape_html(&print(arguments))),
        ("js", _) => text(escape_js(&print(arguments))),
        ("urlquery", _) => text(escape_query(&print(arguments))),
        _ => Ok(None),
    }
}

fn print_one(value: &Value) -> String {
    if matches!(value, Value::Nil) { "<nil>".to_owned() } else { value.print() }
}

/// Spaces stand between values that are no texts.
fn print(arguments: &[Value]) -> String {
    let mut out = String::new();
    let mut was_text = true;
    for (at, value) in arguments.iter().enumerate() {
        let is_text = matches!(value, Value::Text(_));
        if at > 0 && !is_text && !was_text {
            out.push(' ');
        }
        out.push_str(&print_one(value));
        was_text = is_text;
    }
    out
}

fn length(value: &Value) -> Result<usize, String> {
    match value {
        Value::Text(text) => Ok(text.len()),
        Value::List(items) => Ok(items.len()),
        Value::Labels(map) => Ok(map.len()),
        Value::Map(map) => Ok(map.len()),
        other => Err(format!("len of type {}", other.type_name())),
    }
}

fn position(key: &Value) -> Result<usize, String> {
    match key {
        Value::Int(at) => usize::try_from(*at).map_err(|_| format!("index out of range: {at}")),
        other => Err(format!("cannot index slice/array with type {}", other.type_name())),
    }
}

fn index(value: &Value, key: &Value) -> Result<Value, String> {
    match (value, key) {
        (Value::Labels(map), Value::Text(name)) => Ok(Value::text(map.get(name.as_ref()).map_or("", String::as_str))),
        (Value::Map(map), Value::Text(name)) => Ok(map.get(name.as_ref()).cloned().unwrap_or(Value::Nil)),
        (Value::List(items), key) => {
            let at = position(key)?;
            items.get(at).cloned().ok_or_else(|| format!("index out of range: {at}"))
        }
        (Value::Text(text), key) => {
            let at = position(key)?;
            let byte = text.as_bytes().get(at).ok_or_else(|| format!("index out of range: {at}"))?;
            Ok(Value::Int(i64::from(*byte)))
        }
        (Value::Nil, _) => Err("index of untyped nil".to_owned()),
        (other, _) => Err(format!("can't index item of type {}", other.type_name())),
    }
}

fn slice(value: &Value, bounds: &[Value]) -> Result<Value, String> {
    let bounds: Vec<usize> = bounds.iter().map(position).collect::<Result<_, _>>()?;
    let length = length(value).map_err(|_| format!("can't slice item of type {}", value.type_name()))?;
    let (from, to) = (bounds.first().copied().unwrap_or(0), bounds.get(1).copied().unwrap_or(length));
    let failed = || format!("index out of range: {}", to.max(from));
    match value {
        Value::Text(text) => {
            let bytes = text.as_bytes().get(from..to).ok_or_else(failed)?;
            Ok(Value::text(String::from_utf8_lossy(bytes)))
        }
        Value::List(items) => Ok(Value::List(Arc::new(items.get(from..to).ok_or_else(failed)?.to_vec()))),
        other => Err(format!("can't slice item of type {}", other.type_name())),
    }
}

/// Functions of results of queries.
fn of_samples(name: &str, arguments: &[Value]) -> Result<Option<Value>, String> {
    let label = |labels: &TextMap, name: &str| Value::text(labels.get(name).map_or("", String::as_str));
    Ok(Some(match (name, arguments) {
        ("first", [Value::List(items)]) => items.first().cloned().ok_or("first() called on vector with no elements")?,
        ("label", [Value::Text(name), Value::Sample(labels, _)]) => label(labels, name),
        ("value", [Value::Sample(_, value)]) => Value::Float(*value),
        ("strvalue", [Value::Sample(labels, _)]) => label(labels, TEXT_LABEL),
        ("sortByLabel", [Value::Text(name), Value::List(items)]) => {
            let mut sorted = items.as_ref().clone();
            let key = |item: &Value| match item {
                Value::Sample(labels, _) => labels.get(name.as_ref()).cloned().unwrap_or_default(),
                _ => String::new(),
            };
            sorted.sort_by_cached_key(key);
            Value::List(Arc::new(sorted))
        }
        ("args", values) => {
            let named = values.iter().enumerate().map(|(at, value)| (format!("arg{at}"), value.clone()));
            Value::Map(Arc::new(named.collect()))
        }
        _ => return Ok(None),
    }))
}

/// Functions of numbers, and of texts that are some.
fn of_numbers(name: &str, arguments: &[Value]) -> Result<Option<Value>, String> {
    let (name, [value]) = (name, arguments) else { return Ok(None) };
    let text = |shown: String| Ok(Some(Value::text(shown)));
    match name {
        "humanize" => text(humanize::decimal(number(value)?)),
        "humanize1024" => text(humanize::binary(number(value)?)),
        "humanizeDuration" => text(humanize::duration(number(value)?)),
        "humanizePercentage" => text(super::printf::float(number(value)? * 100.0, 'g', Some(4)) + "%"),
        "humanizeTimestamp" => {
            let seconds = number(value)?;
            match moment(seconds) {
                Ok(Value::Time(time_ms)) => text(super::value::print_time(time_ms)),
                _ => text(super::printf::float(seconds, 'g', Some(4))),
            }
        }
        "toTime" => moment(number(value)?).map(Some),
        "toDuration" => {
            let nanoseconds = number(value)? * 1e9;
            if nanoseconds.is_nan() || nanoseconds.abs() > i64::MAX as f64 {
                return Err(format!(
                    "{} cannot be represented as a nanoseconds duration since it overflows int64",
                    value.print()
                ));
            }
            Ok(Some(Value::Duration(nanoseconds as i64)))
        }
        "parseDuration" | "parseDurationTime" => {
            let Value::Text(text) = value else { return Ok(None) };
            let duration_ms = match text.strip_prefix('-') {
                Some(positive) => units::duration_ms(positive).map(|ms| -(ms as f64)),
                None => units::duration_ms(text).map(|ms| ms as f64),
            }?;
            Ok(Some(match name {
                "parseDuration" => Value::Float(duration_ms / 1000.0),
                _ => Value::Duration((duration_ms * 1e6) as i64),
            }))
        }
        _ => Ok(None),
    }
}

fn number(value: &Value) -> Result<f64, String> {
    match value {
        Value::Float(value) => Ok(*value),
        Value::Int(value) => Ok(*value as f64),
        Value::Duration(nanoseconds) => Ok(*nanoseconds as f64 / 1e9),
        Value::Text(text) => {
            text.parse().map_err(|_| format!("strconv.ParseFloat: parsing {}: invalid syntax", quote(text)))
        }
        other => Err(format!("can't convert {} to float", other.type_name())),
    }
}

fn moment(seconds: f64) -> Result<Value, String> {
    let time_ms = seconds * 1000.0;
    if time_ms.is_nan() || time_ms.abs() > i64::MAX as f64 / 1e6 {
        return Err(format!("{seconds} cannot be represented as a nanoseconds timestamp since it overflows int64"));
    }
    Ok(Value::Time(time_ms.round() as i64))
}

/// Functions of texts.
fn of_texts(name: &str, arguments: &[Value]) -> Result<Option<Value>, String> {
    let texts: Option<Vec<&str>> = arguments
        .iter()
        .map(|value| match value {
            Value::Text(text) => Some(text.as_ref()),
            _ => None,
        })
        .collect();
    let Some(texts) = texts else { return Ok(None) };
    Ok(Some(Value::text(match (name, texts.as_slice()) {
        ("safeHtml", [text]) => (*text).to_owned(),
        ("title", [text]) => title(text),
        ("toUpper", [text]) => text.to_uppercase(),
        ("toLower", [text]) => text.to_lowercase(),
        ("stripPort", [text]) => split_host_port(text).map_or(*text, |(host, _)| host).to_owned(),
        ("stripDomain", [text]) => strip_domain(text),
        ("match", [pattern, text]) => return Ok(Some(Value::Bool(regex(pattern)?.is_match(text)))),
        ("reReplaceAll", [pattern, replacement, text]) => regex(pattern)?.replace_all(text, *replacement).into_owned(),
        ("graphLink", [expr]) => link(expr, 0),
        ("tableLink", [expr]) => link(expr, 1),
        ("urlQueryEscape" | "queryEscape", [text]) => escape_query(text),
        ("pathEscape", [text]) => escape_query(text).replace('+', "%20"),
        ("jsonEscape", [text]) => serde_json::Value::from(*text).to_string(),
        ("quotesEscape", [text]) => {
            let quoted = serde_json::Value::from(*text).to_string();
            quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
        }
        ("crlfEscape", [text]) => text.replace('\n', "\\n").replace('\r', "\\r"),
        _ => return Ok(None),
    })))
}

fn regex(pattern: &str) -> Result<regex::Regex, String> {
    let built = regex::RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).build();
    built.map_err(|error| format!("error parsing regexp: {error}"))
}

fn title(text: &str) -> String {
    let mut is_inside = false;
    let mut out = String::new();
    for symbol in text.chars() {
        if is_inside {
            out.push(symbol);
        } else {
            out.extend(symbol.to_uppercase());
        }
        is_inside = symbol.is_alphanumeric() || matches!(symbol, '_' | '\'');
    }
    out
}

/// Host and port, as Go splits them; an IPv6 address loses its brackets.
fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(rest) => Some((rest.strip_suffix(']')?, port)),
        None if host.contains([':', '[', ']']) => None,
        None => Some((host, port)),
    }
}

fn strip_domain(text: &str) -> String {
    let (host, port) = split_host_port(text).unwrap_or((text, ""));
    if host.parse::<IpAddr>().is_ok() {
        return text.to_owned();
    }
    let name = host.split('.').next().unwrap_or_default();
    if port.is_empty() { name.to_owned() } else { format!("{name}:{port}") }
}

/// The path of an address, without a slash at its end.
pub(super) fn path_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("");
    path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/').to_owned()
}

/// The path by which an expression is shown: as a graph, or as a table.
pub(crate) fn link(expr: &str, tab: u8) -> String {
    format!("/graph?g0.expr={}&g0.tab={tab}", escape_query(expr))
}

fn escape_query(text: &str) -> String {
    // Go leaves tildes as they are and escapes stars.
    let escaped: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    escaped.replace("%7E", "~").replace('*', "%2A")
}

fn escape_html(text: &str) -> String {
    let mut out = String::new();
    for symbol in text.chars() {
        match symbol {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '\0' => out.push('\u{fffd}'),
            _ => out.push(symbol),
        }
    }
    out
}

fn escape_js(text: &str) -> String {
    let mut out = String::new();
    for symbol in text.chars() {
        match symbol {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            _ if symbol.is_control() || "<>&=".contains(symbol) => {
                let _ = write!(out, "\\u{:04X}", u32::from(symbol));
            }
            _ => out.push(symbol),
        }
    }
    out
}
