//! The question about types that asyncpg asks before it sends or reads an array: a recursive query of a hundred lines about domains, ranges and
//! composites, of which there are none here. Its answer is made of the table of types.

use query::{SqlType, Value};
use sqlparser::ast::{Query, SetExpr, TableFactor};

use crate::catalog::types::{ARRAYS, type_by_number};
use crate::expression::{ParameterType, Subqueries, items};
use crate::relation::{Column, Relation};
use crate::run::Run;

/// The name of its CTE.
const NAME: &str = "typeinfo_tree";

const COLUMNS: [(&str, SqlType); 14] = [
    ("oid", SqlType::Int),
    ("ns", SqlType::Text),
    ("name", SqlType::Text),
    ("kind", SqlType::Text),
    ("basetype", SqlType::Int),
    ("elemtype", SqlType::Int),
    ("elemdelim", SqlType::Text),
    ("range_subtype", SqlType::Int),
    ("attrtypoids", SqlType::Text),
    ("attrnames", SqlType::Text),
    ("depth", SqlType::Int),
    ("basetype_name", SqlType::Text),
    ("elemtype_name", SqlType::Text),
    ("range_subtype_name", SqlType::Text),
];

/// Returns whether a query is that question.
pub(crate) fn is_type_tree(query: &Query) -> bool {
    let is_named = query.with.as_ref().is_some_and(|with| {
        with.recursive && matches!(with.cte_tables.as_slice(), [cte] if cte.alias.name.value == NAME)
    });
    let SetExpr::Select(select) = &*query.body else { return false };
    let is_read = matches!(select.from.as_slice(), [table] if matches!(&table.relation, TableFactor::Table { name, .. } if name.to_string() == NAME));
    is_named && is_read
}

/// Arrays after the types of their elements.
fn rows(number: i64) -> Vec<Vec<Value>> {
    let row = |number: i64, name: &str, depth: i64| {
        let text = |text: &str| Value::text(text);
        let mut row = vec![Value::Int(number), text("pg_catalog"), text(name), text("b"), Value::Null];
        row.extend(vec![Value::Null; 5]);
        row.push(Value::Int(depth));
        row.extend(vec![Value::Null; 3]);
        row
    };
    let array = ARRAYS.iter().find(|(array, _)| *array == number);
    let element = array.map_or(number, |(_, element)| *element);
    let Some((short, long)) = type_by_number(element) else { return Vec::new() };
    let depth = i64::from(array.is_some());
    let mut rows = vec![row(element, short, depth)];
    if array.is_some() {
        let mut of_array = row(number, &format!("_{short}"), 0);
        for (index, value) in [(5, Value::Int(element)), (6, Value::text(",")), (12, Value::text(long))] {
            if let Some(cell) = of_array.get_mut(index) {
                *cell = value;
            }
        }
        rows.push(of_array);
    }
    rows
}

impl Run<'_> {
    /// The types that the first parameter names, and those of their elements.
    pub(crate) fn type_tree(&mut self) -> Relation {
        self.note_parameter(0, ParameterType::NUMBERS_OF_OBJECTS);
        let numbers = self.parameters.first().map(items).unwrap_or_default();
        let number = |item: &Value| item.number().map(|number| number as i64);
        let rows = numbers.iter().filter_map(number).flat_map(rows).collect();
        Relation { columns: COLUMNS.iter().map(|(name, sql_type)| Column::new(*name, *sql_type)).collect(), rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_follow_their_elements() {
        let numbers = |number| rows(number).iter().map(|row| row.first().cloned().unwrap()).collect::<Vec<_>>();
        assert_eq!(numbers(1016), [Value::Int(20), Value::Int(1016)]);
        assert_eq!(numbers(25), [Value::Int(25)]);
        assert_eq!(numbers(999_999), []);
        assert!(rows(1016).iter().all(|row| row.len() == COLUMNS.len()));
    }
}
