//! The value of an expression in a row.

use query::Value;
use regex::{Regex, RegexBuilder};

use super::{Bound, Environment, LookupAnswers, Pattern, cast};
use crate::error::{SqlError, invalid};

/// Bytes that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Returns whether a condition holds: null does not.
pub(crate) fn holds(condition: &Bound, row: &[Value], environment: &Environment) -> Result<bool, SqlError> {
    Ok(condition.truth(row, environment)? == Some(true))
}

/// The value that a query gave for a row's keys.
fn looked_up(answers: &LookupAnswers, keys: &[Value]) -> Result<Value, SqlError> {
    match answers.get(keys) {
        None => Ok(Value::Null),
        Some(Some(value)) => Ok(value.clone()),
        Some(None) => invalid("more than one row returned by a subquery used as an expression"),
    }
}

impl Bound {
    /// The value in a row.
    pub(crate) fn value(&self, row: &[Value], environment: &Environment) -> Result<Value, SqlError> {
        Ok(match self {
            Self::Constant(value) => value.clone(),
            Self::Column(place) => row.get(*place).cloned().unwrap_or(Value::Null),
            Self::Call(function, operands) => {
                let arguments: Vec<Value> =
                    operands.iter().map(|operand| operand.value(row, environment)).collect::<Result<_, _>>()?;
                if function.is_strict && arguments.iter().any(Value::is_null) {
                    return Ok(Value::Null);
                }
                (function.call)(&arguments, environment)?
            }
            Self::And(..) | Self::Or(..) | Self::Not(_) | Self::Matches { .. } => {
                self.truth(row, environment)?.map_or(Value::Null, Value::Bool)
            }
            Self::Case { branches, otherwise } => {
                for (when, then) in branches {
                    if holds(when, row, environment)? {
                        return then.value(row, environment);
                    }
                }
                match otherwise {
                    Some(otherwise) => otherwise.value(row, environment)?,
                    None => Value::Null,
                }
            }
            Self::In { operand, list, is_negated } => {
                let value = operand.value(row, environment)?;
                is_in(&value, list, row, environment)?.map_or(Value::Null, |found| Value::Bool(found != *is_negated))
            }
            Self::Lookup { keys, answers } => {
                let keys: Vec<Value> = keys.iter().map(|key| key.value(row, environment)).collect::<Result<_, _>>()?;
                looked_up(answers, &keys)?
            }
            Self::Cast(operand, to) => cast(operand.value(row, environment)?, *to, environment)?,
        })
    }

    /// The value as a condition: `None` for null.
    fn truth(&self, row: &[Value], environment: &Environment) -> Result<Option<bool>, SqlError> {
        match self {
            Self::And(operands) => all_or_one(operands, false, row, environment),
            Self::Or(operands) => all_or_one(operands, true, row, environment),
            Self::Not(operand) => Ok(operand.truth(row, environment)?.map(|value| !value)),
            Self::Matches { text, pattern, is_negated } => {
                let text = match text.value(row, environment)? {
                    Value::Null => return Ok(None),
                    Value::Text(text) => text,
                    other => other.to_string().into(),
                };
                let found = match pattern {
                    Pattern::Compiled(regex) => regex.is_match(&text),
                    Pattern::Computed { pattern, is_like, ignores_case } => match pattern.value(row, environment)? {
                        Value::Null => return Ok(None),
                        pattern => compile(&pattern.to_string(), *is_like, *ignores_case)?.is_match(&text),
                    },
                };
                Ok(Some(found != *is_negated))
            }
            _ => match self.value(row, environment)? {
                Value::Bool(value) => Ok(Some(value)),
                Value::Null => Ok(None),
                Value::Text(text) => match query::value::parse_bool(&text) {
                    Some(value) => Ok(Some(value)),
                    None => invalid(format!("invalid input syntax for type boolean: \"{text}\"")),
                },
                other => invalid(format!("a condition is of type boolean, not {}", other.sql_type().name())),
            },
        }
    }
}

/// `OR` is true if one is (`AND` false if one is not), null if that depends on a null.
fn all_or_one(
    operands: &[Bound],
    decides: bool,
    row: &[Value],
    environment: &Environment,
) -> Result<Option<bool>, SqlError> {
    let mut unknown = false;
    for operand in operands {
        match operand.truth(row, environment)? {
            Some(value) if value == decides => return Ok(Some(decides)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { None } else { Some(!decides) })
}

fn is_in(value: &Value, list: &[Bound], row: &[Value], environment: &Environment) -> Result<Option<bool>, SqlError> {
    if value.is_null() {
        return Ok(None);
    }
    let mut has_null = false;
    for item in list {
        let item = item.value(row, environment)?;
        has_null |= item.is_null();
        if !item.is_null() && value.compare(&item) == Some(std::cmp::Ordering::Equal) {
            return Ok(Some(true));
        }
    }
    Ok(if has_null { None } else { Some(false) })
}

/// A pattern of `~`, or of `LIKE`.
pub(super) fn compile(pattern: &str, is_like: bool, ignores_case: bool) -> Result<Regex, SqlError> {
    let text = if is_like { like_pattern(pattern) } else { pattern.to_owned() };
    // In the text itself, so that the lowering of conditions sees it.
    let text = if ignores_case { format!("(?i){text}") } else { text };
    RegexBuilder::new(&text)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| SqlError::Invalid(format!("invalid regular expression \"{pattern}\": {error}")))
}

/// A pattern of `LIKE` as a regular expression of whole texts: `%` is any text, `_` any character, a backslash takes the next
/// literally.
fn like_pattern(pattern: &str) -> String {
    let mut text = String::from("(?s)^");
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '%' => text.push_str(".*"),
            '_' => text.push('.'),
            '\\' => text.push_str(&regex::escape(&characters.next().unwrap_or('\\').to_string())),
            other => text.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    text.push('$');
    text
}
