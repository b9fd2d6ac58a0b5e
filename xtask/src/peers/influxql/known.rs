//! Differences that are on purpose: `docs/guide/influxql.md` lists each with its reason. A difference counts as one of these only if it
//! has the shape of it, so that another mistake in the same statement is still seen.

use serde_json::Value;

use super::compare::{rows, same, series};

/// Of several series' values of one time `first` and `last` give the largest here.
pub(super) const LARGEST_OF_ONE_TIME: &str = "first and last of several values of one time";
/// Which of several values that come as often `mode` gives.
pub(super) const AS_OFTEN: &str = "mode of several values that come as often";
/// Which series `SLIMIT` counts.
pub(super) const SERIES_COUNTED: &str = "SLIMIT counts series that have rows";

/// The known difference that these answers have, if each cell that differs has one.
pub(super) fn reason(statement: &str, ours: &Value, theirs: &Value) -> Option<&'static str> {
    let (ours, theirs) = (series(ours), series(theirs));
    let is_alike = |(a, b): (&&Value, &&Value)| {
        ["name", "tags", "columns"].iter().all(|part| a.get(part) == b.get(part)) && rows(a).len() == rows(b).len()
    };
    if ours.len() != theirs.len() || !ours.iter().zip(&theirs).all(is_alike) {
        return None;
    }
    let mut found = None;
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let columns: Vec<&str> =
            ours.get("columns")?.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
        for (ours, theirs) in rows(ours).iter().zip(&rows(theirs)) {
            if !same(ours, theirs) {
                found = Some(of_row(statement, &columns, ours.as_array()?, theirs.as_array()?)?);
            }
        }
    }
    found
}

fn of_row(statement: &str, columns: &[&str], ours: &[Value], theirs: &[Value]) -> Option<&'static str> {
    let cells = columns.iter().zip(ours.iter().zip(theirs));
    let differing: Vec<(&str, &Value, &Value)> =
        cells.filter(|(_, (a, b))| !same(a, b)).map(|(column, (a, b))| (*column, a, b)).collect();
    if differing.iter().all(|(column, ..)| column.starts_with("mode")) {
        return Some(AS_OFTEN);
    }
    // What stands beside the selector comes from the row that it chose.
    let (_, chosen, other) = differing.iter().find(|(column, ..)| *column == "first" || *column == "last")?;
    let is_larger = match (chosen.as_f64(), other.as_f64()) {
        (Some(chosen), Some(other)) => chosen > other,
        _ => chosen.as_str()? > other.as_str()?,
    };
    let has_time = differing.iter().any(|(column, ..)| *column == "time");
    let is_selected = ["first(", "last("].iter().any(|name| statement.contains(name));
    (is_larger && is_selected && !has_time).then_some(LARGEST_OF_ONE_TIME)
}

/// The statement without its limit of series, if it has one.
pub(super) fn without_series_limit(statement: &str) -> Option<&str> {
    statement.split_once(" SLIMIT ").map(|(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(columns: &str, row: &str) -> Value {
        let text = format!(r#"{{"results":[{{"series":[{{"name":"m","columns":{columns},"values":[{row}]}}]}}]}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn only_what_has_the_shape_of_a_known_difference_is_one() {
        for (statement, columns, ours, theirs, expected) in [
            ("SELECT first(a) FROM m", r#"["time","first"]"#, "[1,5]", "[1,4]", Some(LARGEST_OF_ONE_TIME)),
            ("SELECT first(a) FROM m", r#"["time","first"]"#, "[1,4]", "[1,5]", None),
            ("SELECT first(a) FROM m", r#"["time","first"]"#, "[1,5]", "[2,4]", None),
            ("SELECT first(a), b FROM m", r#"["time","first","b"]"#, "[1,5,0]", "[1,4,9]", Some(LARGEST_OF_ONE_TIME)),
            ("SELECT first(a), b FROM m", r#"["time","first","b"]"#, "[1,5,0]", "[1,5,9]", None),
            ("SELECT last(s) FROM m", r#"["time","last"]"#, r#"[1,"b"]"#, r#"[1,"a"]"#, Some(LARGEST_OF_ONE_TIME)),
            ("SELECT max(a), mode(s)", r#"["time","max","mode"]"#, r#"[1,5,"b"]"#, r#"[1,5,"a"]"#, Some(AS_OFTEN)),
            ("SELECT max(a), mode(s)", r#"["time","max","mode"]"#, r#"[1,5,"b"]"#, r#"[1,4,"a"]"#, None),
            ("SELECT max(a) FROM m", r#"["time","max"]"#, "[1,5]", "[1,4]", None),
        ] {
            let found = reason(statement, &answer(columns, ours), &answer(columns, theirs));
            assert_eq!(found, expected, "{statement} {ours} {theirs}");
        }
        assert_eq!(without_series_limit("SELECT a SLIMIT 2 SOFFSET 1"), Some("SELECT a"));
        assert_eq!(without_series_limit("SELECT a LIMIT 2"), None);
    }
}
