//! Arrays, as far as clients' questions about the catalog need them: texts as Postgres writes arrays, `{a,"b c",NULL}`.

use query::{SqlType, Value};

use super::text_limit::{TEXT_BYTES_MAX, bounded, too_long};
use super::{Function, strict};
use crate::error::invalid;

/// `array[n]`
pub(super) static ELEMENT: Function = strict("element", (2, 2), SqlType::Text, |arguments, _| {
    let items = arguments.first().map(items).unwrap_or_default();
    let Some(Value::Int(number)) = arguments.get(1) else { return invalid("an array's elements have whole numbers") };
    let place = number.checked_sub(1).and_then(|place| usize::try_from(place).ok());
    Ok(place.and_then(|place| items.into_iter().nth(place)).unwrap_or(Value::Null))
});

/// `element = ANY (array)`
pub(super) static CONTAINS: Function = strict("ANY", (2, 2), SqlType::Bool, |arguments, _| {
    let [array, element] = arguments else { return Ok(Value::Null) };
    let equals = |item: &Value| element.compare(item) == Some(std::cmp::Ordering::Equal);
    Ok(Value::Bool(items(array).iter().any(equals)))
});

/// `ARRAY[…]`
pub(super) static ARRAY: Function = Function {
    name: "ARRAY",
    takes: (0, usize::MAX),
    is_strict: false,
    returns: super::Returns::Fixed(SqlType::Text),
    call: |arguments, _| bounded(array(arguments).to_string()),
};

pub(super) static FUNCTIONS: [Function; 8] = [
    strict("current_schemas", (1, 1), SqlType::Text, |arguments, _| {
        let schemas =
            if matches!(arguments.first(), Some(Value::Bool(true))) { "{pg_catalog,public}" } else { "{public}" };
        Ok(Value::text(schemas))
    }),
    strict("string_to_array", (2, 2), SqlType::Text, |arguments, _| {
        let (text, by) = (text(arguments, 0), text(arguments, 1));
        let parts: Vec<&str> = if by.is_empty() { vec![&text] } else { text.split(&by).collect() };
        Ok(array(&parts.into_iter().map(Value::text).collect::<Vec<_>>()))
    }),
    strict("array_to_string", (2, 3), SqlType::Text, |arguments, _| {
        let items = arguments.first().map(items).unwrap_or_default();
        let shown: Vec<String> = items.iter().filter(|item| !item.is_null()).map(ToString::to_string).collect();
        let between = text(arguments, 1);
        // Counted before it is made: many elements and a long text between them are much more than both.
        if shown.len().saturating_mul(between.len()) > TEXT_BYTES_MAX {
            return too_long();
        }
        bounded(shown.join(&between))
    }),
    strict("array_length", (2, 2), SqlType::Int, |arguments, _| Ok(length(arguments))),
    strict("array_upper", (2, 2), SqlType::Int, |arguments, _| Ok(length(arguments))),
    strict("array_lower", (2, 2), SqlType::Int, |arguments, _| {
        Ok(if length(arguments).is_null() { Value::Null } else { Value::Int(1) })
    }),
    strict("quote_ident", (1, 1), SqlType::Text, |arguments, _| {
        let name = text(arguments, 0);
        let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
            && name.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_');
        Ok(Value::text(if is_plain { name } else { format!("\"{}\"", name.replace('"', "\"\"")) }))
    }),
    strict("parse_ident", (1, 2), SqlType::Text, |arguments, _| {
        let parts = identifier(&text(arguments, 0));
        let Some(parts) = parts else {
            return invalid(format!("string is not a valid identifier: \"{}\"", text(arguments, 0)));
        };
        Ok(array(&parts.into_iter().map(Value::text).collect::<Vec<_>>()))
    }),
];

fn text(arguments: &[Value], place: usize) -> String {
    arguments.get(place).map(ToString::to_string).unwrap_or_default()
}

/// Values as an array, as Postgres writes it.
pub fn array(items: &[Value]) -> Value {
    let items: Vec<String> = items.iter().map(item).collect();
    Value::text(format!("{{{}}}", items.join(",")))
}

fn item(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Text(text)
            if text.is_empty()
                || text.contains(|one: char| matches!(one, '"' | '\\' | ',' | '{' | '}') || one.is_whitespace())
                || text.eq_ignore_ascii_case("null") =>
        {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        other => other.to_string(),
    }
}

/// The elements of an array, as texts.
pub(crate) fn items(array: &Value) -> Vec<Value> {
    let text = array.to_string();
    let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        return vec![array.clone()];
    };
    let (mut items, mut item, mut quoted, mut was_quoted) = (Vec::new(), String::new(), false, false);
    let mut finish = |item: &mut String, was_quoted: &mut bool| {
        let text = std::mem::take(item);
        let is_null = !std::mem::take(was_quoted) && text.eq_ignore_ascii_case("null");
        items.push(if is_null { Value::Null } else { Value::text(text) });
    };
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => (quoted, was_quoted) = (!quoted, true),
            '\\' => item.extend(characters.next()),
            ',' if !quoted => finish(&mut item, &mut was_quoted),
            other => item.push(other),
        }
    }
    if !inner.is_empty() {
        finish(&mut item, &mut was_quoted);
    }
    items
}

/// How many elements there are; null for none.
fn length(arguments: &[Value]) -> Value {
    match arguments.first().map(items).unwrap_or_default().len() {
        0 => Value::Null,
        count => Value::Int(count as i64),
    }
}

/// The parts of a name with dots; those in double quotes as they are, others in small letters.
fn identifier(text: &str) -> Option<Vec<String>> {
    let (mut parts, mut part, mut quoted, mut was_quoted) = (Vec::new(), String::new(), false, false);
    let mut characters = text.trim().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => part.push('"'),
            '"' => (quoted, was_quoted) = (!quoted, true),
            '.' if !quoted => {
                parts.push(std::mem::take(&mut part));
                was_quoted = false;
            }
            other if quoted => part.push(other),
            other if was_quoted || other.is_whitespace() => return None,
            other => part.extend(other.to_lowercase()),
        }
    }
    parts.push(part);
    (!quoted && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_as_they_are_written() {
        let cases: [(&str, &[Option<&str>]); 5] = [
            ("{}", &[]),
            ("{a,b}", &[Some("a"), Some("b")]),
            ("{\"a b\",NULL,\"NULL\",\"\"}", &[Some("a b"), None, Some("NULL"), Some("")]),
            ("{\"x,\\\"y\\\\\"}", &[Some("x,\"y\\")]),
            ("{\"$user\"}", &[Some("$user")]),
        ];
        for (text, expected) in cases {
            let expected: Vec<Value> = expected.iter().map(|item| item.map_or(Value::Null, Value::text)).collect();
            assert_eq!(items(&Value::text(text)), expected, "{text}");
            assert_eq!(items(&array(&expected)), expected, "{text}");
        }
    }

    #[test]
    fn names_are_taken_apart() {
        let parts = |parts: &[&str]| Some(parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
        for (text, expected) in [
            ("Cpu", parts(&["cpu"])),
            ("public.\"My \"\"Table\"", parts(&["public", "My \"Table"])),
            ("a..b", None),
            ("\"a", None),
            ("a b", None),
        ] {
            assert_eq!(identifier(text), expected, "{text}");
        }
    }
}
