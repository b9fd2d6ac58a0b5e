//! Expressions of computed sources as `.rrd` has them: twenty nodes of an operator's number and a short integer at most.

use super::{RrdError, Source};

/// Operators by their numbers; those without a name stand for numbers, sources and the end.
const OPERATORS: [&str; 70] = [
    "",
    "",
    "INF",
    "PREV",
    "NEGINF",
    "UNKN",
    "NOW",
    "TIME",
    "+",
    "%",
    "-",
    "*",
    "/",
    "SIN",
    "DUP",
    "EXC",
    "POP",
    "COS",
    "LOG",
    "EXP",
    "LT",
    "LE",
    "GT",
    "GE",
    "EQ",
    "IF",
    "MIN",
    "MAX",
    "LIMIT",
    "FLOOR",
    "CEIL",
    "UN",
    "",
    "LTIME",
    "NE",
    "ISINF",
    "",
    "COUNT",
    "ATAN",
    "SQRT",
    "SORT",
    "REV",
    "TREND",
    "TRENDNAN",
    "ATAN2",
    "RAD2DEG",
    "DEG2RAD",
    "PREDICT",
    "PREDICTSIGMA",
    "AVG",
    "ABS",
    "ADDNAN",
    "MINNAN",
    "MAXNAN",
    "MEDIAN",
    "PREDICTPERC",
    "DEPTH",
    "COPY",
    "ROLL",
    "INDEX",
    "STEPWIDTH",
    "NEWDAY",
    "NEWWEEK",
    "NEWMONTH",
    "NEWYEAR",
    "SMIN",
    "SMAX",
    "STDEV",
    "PERCENT",
    "POW",
];
const NUMBER: u8 = 0;
const VARIABLE: u8 = 1;
const END: u8 = 32;
/// Nodes of an expression, the end among them.
const NODES_MAX: usize = 20;

/// The text of an expression.
pub(super) fn unpack(parameters: &[u64; 10], sources: &[Source]) -> Result<String, String> {
    let mut items: Vec<String> = Vec::new();
    for node in parameters.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]) {
        let [operator, _, low, high] = node.to_le_bytes();
        let value = i16::from_le_bytes([low, high]);
        items.push(match operator {
            END => return Ok(items.join(",")),
            NUMBER => value.to_string(),
            VARIABLE => {
                let source = usize::try_from(value).ok().and_then(|number| sources.get(number));
                source
                    .ok_or(format!("its expression names source {value}, which does not come before it"))?
                    .name
                    .clone()
            }
            _ => match OPERATORS.get(usize::from(operator)) {
                Some(name) if !name.is_empty() => (*name).to_owned(),
                _ => return Err(format!("its expression has the unknown operator {operator}")),
            },
        });
    }
    Err("its expression has no end".to_owned())
}

/// An expression as nodes.
pub(super) fn pack(text: &str, sources: &[Source]) -> Result<[u64; 10], RrdError> {
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.len() >= NODES_MAX {
        let message = format!("the expression {text:?} has {} items; a file takes {}", items.len(), NODES_MAX - 1);
        return Err(RrdError::Invalid(message));
    }
    let mut bytes = Vec::with_capacity(80);
    for item in items {
        let (operator, value) = node(item, sources).ok_or_else(|| {
            RrdError::Invalid(format!("{item:?} in the expression {text:?} cannot be put into a file"))
        })?;
        let [low, high] = value.to_le_bytes();
        bytes.extend_from_slice(&[operator, 0, low, high]);
    }
    bytes.extend_from_slice(&[END, 0, 0, 0]);
    bytes.resize(80, 0);
    let mut words = [0; 10];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    }
    Ok(words)
}

fn node(item: &str, sources: &[Source]) -> Option<(u8, i16)> {
    if let Some(number) = sources.iter().position(|source| source.name == item) {
        return Some((VARIABLE, i16::try_from(number).ok()?));
    }
    if let Some(operator) = OPERATORS.iter().position(|name| !name.is_empty() && *name == item) {
        return Some((operator as u8, 0));
    }
    item.parse().ok().map(|number| (NUMBER, number))
}
