//! Types as Postgres's clients know them.

use query::{SqlType, Value};

use super::rows::{relation, text, with_same};
use crate::relation::Relation;

/// Types with the numbers that Postgres's clients know them by.
pub(crate) const TYPES: [(i64, &str, &str, SqlType); 10] = [
    (16, "bool", "boolean", SqlType::Bool),
    (20, "int8", "bigint", SqlType::Int),
    (23, "int4", "integer", SqlType::Int4),
    (25, "text", "text", SqlType::Text),
    (701, "float8", "double precision", SqlType::Float),
    (1043, "varchar", "character varying", SqlType::Unknown),
    (1082, "date", "date", SqlType::Date),
    (1114, "timestamp", "timestamp without time zone", SqlType::LocalTimestamp),
    (1184, "timestamptz", "timestamp with time zone", SqlType::Timestamp),
    (1186, "interval", "interval", SqlType::Interval),
];
/// The numbers of arrays and of the types of their elements.
pub(crate) const ARRAYS: [(i64, i64); 9] = [
    (1000, 16),
    (1016, 20),
    (1007, 23),
    (1009, 25),
    (1022, 701),
    (1182, 1082),
    (1115, 1114),
    (1185, 1184),
    (1187, 1186),
];
/// The number of the type of names, which no value has; clients ask for its length.
const NAME: i64 = 19;
/// The bytes of types whose values all have as many.
const LENGTHS: [(i64, i64); 9] =
    [(16, 1), (NAME, 64), (20, 8), (23, 4), (701, 8), (1082, 4), (1114, 8), (1184, 8), (1186, 16)];
/// The number of the function that reads arrays, by which clients tell types that are arrays.
pub(crate) const ARRAY_IN: i64 = 750;
/// The name of a type by its number.
pub(crate) fn type_name(number: i64) -> &'static str {
    TYPES.iter().find(|(known, ..)| *known == number).map_or("text", |(_, _, name, _)| name)
}

/// The two names of a type by its number.
pub(crate) fn type_by_number(number: i64) -> Option<(&'static str, &'static str)> {
    TYPES.iter().find(|(known, ..)| *known == number).map(|(_, short, long, _)| (*short, *long))
}

/// The number of a type.
pub fn type_number(sql_type: SqlType) -> i64 {
    TYPES
        .iter()
        .find(|(.., known)| *known == sql_type && sql_type != SqlType::Unknown)
        .map_or(25, |(number, ..)| *number)
}

/// The types that values have.
pub(crate) fn pg_type() -> Relation {
    use SqlType::{Int, Text};
    let no = || Value::Int(0);
    let columns = [
        ("oid", Int),
        ("typname", Text),
        ("typnamespace", Int),
        ("typtype", Text),
        ("typelem", Int),
        ("typrelid", Int),
        ("typbasetype", Int),
        ("typcategory", Text),
        ("typarray", Int),
        ("typdelim", Text),
        ("typcollation", Int),
        ("typinput", Int),
        ("typlen", Int),
    ];
    let row = |number: i64, name: &str, element: i64| {
        let array = ARRAYS.iter().find(|(_, of)| *of == number).map_or(0, |(array, _)| *array);
        let category = if element == 0 { "U" } else { "A" };
        let mut row = vec![Value::Int(number), text(name), Value::Int(11), text("b"), Value::Int(element), no(), no()];
        row.extend([text(category), Value::Int(array), text(","), no()]);
        let length = LENGTHS.iter().find(|(known, _)| *known == number).map_or(-1, |(_, length)| *length);
        row.extend([Value::Int(if element == 0 { 0 } else { ARRAY_IN }), Value::Int(length)]);
        row
    };
    let arrays = ARRAYS.iter().filter_map(|(array, element)| {
        let (short, _) = type_by_number(*element)?;
        Some(row(*array, &format!("_{short}"), *element))
    });
    let rows = TYPES
        .iter()
        .map(|(number, name, ..)| row(*number, name, 0))
        .chain([row(NAME, "name", 0)])
        .chain(arrays)
        .collect();
    let further = [
        ("typowner", Value::Int(10)),
        ("typtypmod", Value::Int(-1)),
        ("typnotnull", Value::Bool(false)),
        ("typisdefined", Value::Bool(true)),
        ("typndims", Value::Int(0)),
        ("typdefault", Value::Null),
        ("typacl", Value::Null),
    ];
    with_same(relation(&columns, rows), &further)
}
