//! Functions of values in a row, by name.

use query::{SqlType, Value};

use super::text_limit::{TEXT_BYTES_MAX, bounded, too_long};
use super::{Environment, Function, Returns, arrays, cast, dates, operators, questdb, strict, text_of, times};
use crate::context::Setting;
use crate::error::{SqlError, invalid};

/// Other names of functions.
const ALIASES: [(&str, &str); 9] = [
    ("ceiling", "ceil"),
    ("pow", "power"),
    ("substr", "substring"),
    ("char_length", "length"),
    ("len", "length"),
    ("ifnull", "coalesce"),
    ("datepart", "date_part"),
    ("datetrunc", "date_trunc"),
    ("to_lowercase", "lower"),
];

/// The function of a name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    let all = NUMBERS
        .iter()
        .chain(&TEXTS)
        .chain(&OTHERS)
        .chain(&times::FUNCTIONS)
        .chain(&dates::FUNCTIONS)
        .chain(&arrays::FUNCTIONS)
        .chain(&questdb::FUNCTIONS);
    all.into_iter().find(|function| function.name == name)
}

/// The value of a function of these arguments; `None` if there is no such function.
pub(crate) fn call_by_name(
    name: &str,
    arguments: &[Value],
    environment: &Environment,
) -> Option<Result<Value, SqlError>> {
    let function = find(name).filter(|function| (function.takes.0..=function.takes.1).contains(&arguments.len()))?;
    if function.is_strict && arguments.iter().any(Value::is_null) {
        return Some(Ok(Value::Null));
    }
    Some((function.call)(arguments, environment))
}

const fn number(name: &'static str, call: fn(&[Value], &Environment) -> Result<Value, SqlError>) -> Function {
    strict(name, (1, 1), SqlType::Float, call)
}

/// A function of a thing that this server does not have: it is always empty.
const fn null(name: &'static str, takes: (usize, usize), returns: SqlType) -> Function {
    Function { name, takes, is_strict: false, returns: Returns::Fixed(returns), call: |_, _| Ok(Value::Null) }
}

/// A function of floats.
fn of_float(arguments: &[Value], compute: impl Fn(f64) -> f64) -> Result<Value, SqlError> {
    match arguments.first().map(Value::number) {
        Some(Some(number)) => Ok(Value::Float(compute(number))),
        _ => invalid(format!("a number is wanted, not \"{}\"", arguments.first().unwrap_or(&Value::Null))),
    }
}

/// A function that leaves whole numbers whole.
fn rounded(arguments: &[Value], compute: impl Fn(f64) -> f64) -> Result<Value, SqlError> {
    match arguments.first() {
        Some(Value::Int(value)) => Ok(Value::Int(*value)),
        _ => of_float(arguments, compute),
    }
}

static NUMBERS: [Function; 20] = [
    Function {
        name: "abs",
        takes: (1, 1),
        is_strict: true,
        returns: Returns::Argument(0),
        call: |arguments, _| match arguments.first() {
            Some(Value::Int(value)) => {
                value.checked_abs().map(Value::Int).map_or_else(|| invalid("bigint out of range"), Ok)
            }
            _ => of_float(arguments, f64::abs),
        },
    },
    Function {
        name: "ceil",
        takes: (1, 1),
        is_strict: true,
        returns: Returns::Argument(0),
        call: |arguments, _| rounded(arguments, f64::ceil),
    },
    Function {
        name: "floor",
        takes: (1, 1),
        is_strict: true,
        returns: Returns::Argument(0),
        call: |arguments, _| rounded(arguments, f64::floor),
    },
    Function {
        name: "trunc",
        takes: (1, 1),
        is_strict: true,
        returns: Returns::Argument(0),
        call: |arguments, _| rounded(arguments, f64::trunc),
    },
    Function {
        name: "round",
        takes: (1, 2),
        is_strict: true,
        returns: Returns::Argument(0),
        call: |arguments, _| round(arguments),
    },
    number("sign", |arguments, _| of_float(arguments, |number| if number == 0.0 { 0.0 } else { number.signum() })),
    number("sqrt", |arguments, _| of_float(arguments, f64::sqrt)),
    number("cbrt", |arguments, _| of_float(arguments, f64::cbrt)),
    number("exp", |arguments, _| of_float(arguments, f64::exp)),
    number("ln", |arguments, _| of_float(arguments, f64::ln)),
    number("log10", |arguments, _| of_float(arguments, f64::log10)),
    number("log2", |arguments, _| of_float(arguments, f64::log2)),
    number("sin", |arguments, _| of_float(arguments, f64::sin)),
    number("cos", |arguments, _| of_float(arguments, f64::cos)),
    number("tan", |arguments, _| of_float(arguments, f64::tan)),
    number("degrees", |arguments, _| of_float(arguments, f64::to_degrees)),
    number("radians", |arguments, _| of_float(arguments, f64::to_radians)),
    // Of base 10, or of the base that is the first of two.
    Function {
        name: "log",
        takes: (1, 2),
        is_strict: true,
        returns: Returns::Fixed(SqlType::Float),
        call: |arguments, _| match arguments {
            [base, arguments] => match (base.number(), arguments.number()) {
                (Some(base), Some(arguments)) => Ok(Value::Float(arguments.ln() / base.ln())),
                _ => invalid("log takes numbers"),
            },
            arguments => of_float(arguments, f64::log10),
        },
    },
    Function {
        name: "power",
        takes: (2, 2),
        is_strict: true,
        returns: Returns::Fixed(SqlType::Float),
        call: |arguments, _| match arguments {
            [base, exponent] => match (base.number(), exponent.number()) {
                (Some(base), Some(exponent)) => Ok(Value::Float(base.powf(exponent))),
                _ => invalid("power takes numbers"),
            },
            _ => Ok(Value::Null),
        },
    },
    Function {
        name: "mod",
        takes: (2, 2),
        is_strict: true,
        returns: Returns::Arithmetic,
        call: |arguments, environment| (operators::REMAINDER.call)(arguments, environment),
    },
];

/// Halves away from zero, to so many digits after the point.
fn round(arguments: &[Value]) -> Result<Value, SqlError> {
    match arguments {
        [Value::Int(value)] => Ok(Value::Int(*value)),
        [arguments, digits] => match (arguments.number(), digits) {
            (Some(number), Value::Int(digits)) if digits.unsigned_abs() <= 300 => {
                let scale = 10f64.powi(*digits as i32);
                let scaled = (number * scale).round() / scale;
                Ok(Value::Float(if scaled.is_finite() { scaled } else { number }))
            }
            _ => invalid("round takes a number and how many digits stay"),
        },
        arguments => of_float(arguments, f64::round),
    }
}

/// The text of a value.
fn string(arguments: &[Value], place: usize) -> String {
    arguments.get(place).map(ToString::to_string).unwrap_or_default()
}

fn whole(arguments: &[Value], place: usize) -> Result<i64, SqlError> {
    match arguments.get(place) {
        Some(Value::Int(value)) => Ok(*value),
        Some(other) => match other.number() {
            Some(number) => Ok(number as i64),
            None => invalid(format!("a whole number is wanted, not \"{other}\"")),
        },
        None => Ok(0),
    }
}

fn of_characters(characters: impl Iterator<Item = char>) -> Value {
    Value::text(characters.collect::<String>())
}

static TEXTS: [Function; 18] = [
    strict("lower", (1, 1), SqlType::Text, |arguments, _| Ok(Value::text(string(arguments, 0).to_lowercase()))),
    strict("upper", (1, 1), SqlType::Text, |arguments, _| Ok(Value::text(string(arguments, 0).to_uppercase()))),
    strict("length", (1, 1), SqlType::Int, |arguments, _| Ok(Value::Int(string(arguments, 0).chars().count() as i64))),
    strict("trim", (1, 2), SqlType::Text, |arguments, _| Ok(trimmed(arguments, true, true))),
    strict("btrim", (1, 2), SqlType::Text, |arguments, _| Ok(trimmed(arguments, true, true))),
    strict("ltrim", (1, 2), SqlType::Text, |arguments, _| Ok(trimmed(arguments, true, false))),
    strict("rtrim", (1, 2), SqlType::Text, |arguments, _| Ok(trimmed(arguments, false, true))),
    strict("replace", (3, 3), SqlType::Text, |arguments, _| {
        let (text, from, to) = (string(arguments, 0), string(arguments, 1), string(arguments, 2));
        if from.is_empty() {
            return Ok(Value::text(text));
        }
        // Counted before it is made: a short question could ask for a terabyte.
        let made = text.matches(&from).count().saturating_mul(to.len());
        if made > TEXT_BYTES_MAX {
            return too_long();
        }
        bounded(text.replace(&from, &to))
    }),
    strict("left", (2, 2), SqlType::Text, |arguments, _| {
        let (text, count) = (string(arguments, 0), whole(arguments, 1)?);
        let length = text.chars().count() as i64;
        let taken = if count < 0 { length.saturating_add(count) } else { count };
        Ok(of_characters(text.chars().take(taken.max(0) as usize)))
    }),
    strict("right", (2, 2), SqlType::Text, |arguments, _| {
        let (text, count) = (string(arguments, 0), whole(arguments, 1)?);
        let length = text.chars().count() as i64;
        let skipped = if count < 0 { count.saturating_neg() } else { length.saturating_sub(count) };
        Ok(of_characters(text.chars().skip(skipped.max(0) as usize)))
    }),
    strict("substring", (2, 3), SqlType::Text, |arguments, _| {
        let (text, start) = (string(arguments, 0), whole(arguments, 1)?);
        let end = if arguments.len() == 3 { start.saturating_add(whole(arguments, 2)?.max(0)) } else { i64::MAX };
        let first = start.max(1);
        let count = end.saturating_sub(first).max(0);
        Ok(of_characters(text.chars().skip((first - 1) as usize).take(count as usize)))
    }),
    strict("strpos", (2, 2), SqlType::Int, |arguments, _| {
        let (text, part) = (string(arguments, 0), string(arguments, 1));
        let found = text.find(&part).and_then(|at| text.get(..at));
        Ok(Value::Int(found.map_or(0, |before| before.chars().count() as i64 + 1)))
    }),
    strict("split_part", (3, 3), SqlType::Text, |arguments, _| {
        let (text, by, number) = (string(arguments, 0), string(arguments, 1), whole(arguments, 2)?);
        let parts: Vec<&str> = if by.is_empty() { vec![&text] } else { text.split(&by).collect() };
        let place = if number < 0 { parts.len() as i64 + number } else { number - 1 };
        Ok(Value::text(usize::try_from(place).ok().and_then(|place| parts.get(place)).copied().unwrap_or_default()))
    }),
    strict("starts_with", (2, 2), SqlType::Bool, |arguments, _| {
        Ok(Value::Bool(string(arguments, 0).starts_with(&string(arguments, 1))))
    }),
    strict("ends_with", (2, 2), SqlType::Bool, |arguments, _| {
        Ok(Value::Bool(string(arguments, 0).ends_with(&string(arguments, 1))))
    }),
    strict("reverse", (1, 1), SqlType::Text, |arguments, _| Ok(of_characters(string(arguments, 0).chars().rev()))),
    strict("repeat", (2, 2), SqlType::Text, |arguments, _| {
        let (text, count) = (string(arguments, 0), whole(arguments, 1)?.max(0) as usize);
        if text.len().saturating_mul(count) > TEXT_BYTES_MAX {
            return invalid(format!("repeat makes at most {TEXT_BYTES_MAX} bytes"));
        }
        Ok(Value::text(text.repeat(count)))
    }),
    strict("initcap", (1, 1), SqlType::Text, |arguments, _| {
        let mut starts = true;
        let next = |character: char| {
            let made: String =
                if starts { character.to_uppercase().collect() } else { character.to_lowercase().collect() };
            starts = !character.is_alphanumeric();
            made
        };
        Ok(Value::text(string(arguments, 0).chars().map(next).collect::<String>()))
    }),
];

fn trimmed(arguments: &[Value], at_start: bool, at_end: bool) -> Value {
    let (text, characters) = (string(arguments, 0), arguments.get(1).map(ToString::to_string));
    let is_cut = |character: char| match &characters {
        Some(characters) => characters.contains(character),
        None => character == ' ',
    };
    let mut kept = text.as_str();
    if at_start {
        kept = kept.trim_start_matches(is_cut);
    }
    if at_end {
        kept = kept.trim_end_matches(is_cut);
    }
    Value::text(kept)
}

static OTHERS: [Function; 43] = [
    Function {
        name: "coalesce",
        takes: (1, 100),
        is_strict: false,
        returns: Returns::Unified,
        call: |arguments, _| Ok(arguments.iter().find(|value| !value.is_null()).cloned().unwrap_or(Value::Null)),
    },
    Function {
        name: "nullif",
        takes: (2, 2),
        is_strict: false,
        returns: Returns::Argument(0),
        call: |arguments, _| match arguments {
            [a, b] if a.compare(b) == Some(std::cmp::Ordering::Equal) => Ok(Value::Null),
            [a, ..] => Ok(a.clone()),
            [] => Ok(Value::Null),
        },
    },
    Function {
        name: "greatest",
        takes: (1, 100),
        is_strict: false,
        returns: Returns::Unified,
        call: |arguments, _| Ok(extreme(arguments, true)),
    },
    Function {
        name: "least",
        takes: (1, 100),
        is_strict: false,
        returns: Returns::Unified,
        call: |arguments, _| Ok(extreme(arguments, false)),
    },
    Function {
        name: "concat",
        takes: (0, 100),
        is_strict: false,
        returns: Returns::Fixed(SqlType::Text),
        call: |arguments, environment| bounded(arguments.iter().map(|value| text_of(value, environment)).collect()),
    },
    Function {
        name: "concat_ws",
        takes: (1, 100),
        is_strict: false,
        returns: Returns::Fixed(SqlType::Text),
        call: |arguments, environment| {
            let values = arguments.iter().skip(1).filter(|value| !value.is_null());
            let parts: Vec<String> = values.map(|value| text_of(value, environment)).collect();
            bounded(parts.join(&string(arguments, 0)))
        },
    },
    strict("version", (0, 0), SqlType::Text, |_, _| {
        Ok(Value::text(concat!("PostgreSQL 16.0 (Thalweg ", env!("CARGO_PKG_VERSION"), ")")))
    }),
    strict("current_database", (0, 0), SqlType::Text, |_, environment| Ok(Value::text(&*environment.database))),
    strict("current_catalog", (0, 0), SqlType::Text, |_, environment| Ok(Value::text(&*environment.database))),
    strict("current_schema", (0, 0), SqlType::Text, |_, _| Ok(Value::text("public"))),
    strict("current_user", (0, 0), SqlType::Text, |_, environment| Ok(Value::text(&*environment.user))),
    strict("session_user", (0, 0), SqlType::Text, |_, environment| Ok(Value::text(&*environment.user))),
    strict("user", (0, 0), SqlType::Text, |_, environment| Ok(Value::text(&*environment.user))),
    strict("pg_get_userbyid", (1, 1), SqlType::Text, |_, environment| Ok(Value::text(&*environment.user))),
    strict("pg_table_is_visible", (1, 1), SqlType::Bool, |_, _| Ok(Value::Bool(true))),
    strict("pg_type_is_visible", (1, 1), SqlType::Bool, |_, _| Ok(Value::Bool(true))),
    strict("pg_is_in_recovery", (0, 0), SqlType::Bool, |_, _| Ok(Value::Bool(false))),
    strict("pg_backend_pid", (0, 0), SqlType::Int, |_, _| Ok(Value::Int(1))),
    // What clients ask about comments, defaults and rights: there are none of the former, and all of the latter.
    strict("current_setting", (1, 2), SqlType::Text, |arguments, environment| {
        let name = string(arguments, 0).to_lowercase();
        let value = crate::settings::setting_of(&name, environment);
        Ok(value.map_or(Value::Null, Value::text))
    }),
    strict("set_config", (3, 3), SqlType::Text, |arguments, environment| {
        let mut setting = Setting::from_startup(&string(arguments, 0), &string(arguments, 1))?;
        setting.is_local = matches!(arguments.get(2), Some(Value::Bool(true)));
        let value = setting.value.clone().map_or(Value::Null, Value::text);
        // Where there is no session, settings that mean nothing here are taken nevertheless.
        match &environment.changed_settings {
            Some(changed) => changed.push(setting),
            None if ["timezone", "statement_timeout"].contains(&setting.name.as_str()) => {
                return invalid(format!("set_config changes {} in sessions of Postgres's protocol only", setting.name));
            }
            None => {}
        }
        Ok(value)
    }),
    // Nothing takes such locks.
    null("pg_advisory_unlock_all", (0, 0), SqlType::Text),
    null("obj_description", (1, 2), SqlType::Text),
    null("col_description", (2, 2), SqlType::Text),
    null("shobj_description", (2, 2), SqlType::Text),
    null("to_regtype", (1, 1), SqlType::Int),
    null("to_regclass", (1, 1), SqlType::Int),
    null("pg_get_expr", (2, 3), SqlType::Text),
    null("pg_get_constraintdef", (1, 2), SqlType::Text),
    null("pg_get_indexdef", (1, 3), SqlType::Text),
    null("pg_get_viewdef", (1, 2), SqlType::Text),
    null("pg_get_partkeydef", (1, 1), SqlType::Text),
    null("pg_get_serial_sequence", (2, 2), SqlType::Text),
    null("pg_size_pretty", (1, 1), SqlType::Text),
    null("pg_table_size", (1, 1), SqlType::Int),
    null("pg_relation_size", (1, 2), SqlType::Int),
    null("pg_total_relation_size", (1, 1), SqlType::Int),
    strict("pg_encoding_to_char", (1, 1), SqlType::Text, |_, _| Ok(Value::text("UTF8"))),
    strict("pg_function_is_visible", (1, 1), SqlType::Bool, |_, _| Ok(Value::Bool(true))),
    strict("pg_relation_is_publishable", (1, 1), SqlType::Bool, |_, _| Ok(Value::Bool(false))),
    strict("has_schema_privilege", (2, 3), SqlType::Bool, |_, _| Ok(Value::Bool(true))),
    strict("has_database_privilege", (2, 3), SqlType::Bool, |_, _| Ok(Value::Bool(true))),
    strict("has_table_privilege", (2, 3), SqlType::Bool, |_, _| Ok(Value::Bool(true))),
    strict("format_type", (1, 2), SqlType::Text, |arguments, environment| {
        let name = match arguments.first() {
            Some(Value::Int(number)) => crate::catalog::type_name(*number),
            _ => "text",
        };
        cast(Value::text(name), SqlType::Text, environment)
    }),
];

fn extreme(arguments: &[Value], largest: bool) -> Value {
    let known = arguments.iter().filter(|value| !value.is_null());
    let found = if largest { known.max_by(|a, b| a.order(b)) } else { known.min_by(|a, b| a.order(b)) };
    found.cloned().unwrap_or(Value::Null)
}
