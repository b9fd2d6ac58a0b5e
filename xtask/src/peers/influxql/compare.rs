//! Whether two answers say the same.

use serde_json::Value;

/// How far apart floats may be, in proportion: sums depend on the order of their terms.
const TOLERANCE: f64 = 1e-9;
/// Floats are as far apart as if they were at least so large: the data's are, but what is left where they cancel out is not.
const SIZE_MIN: f64 = 1e-3;

/// The error that an answer is, if it is one.
pub(in crate::peers) fn error(answer: &Value) -> Option<&str> {
    let of = |value: &'_ Value| value.get("error").is_some();
    let found = if of(answer) { Some(answer) } else { results(answer).iter().find(|result| of(result)) };
    found?.get("error")?.as_str()
}

/// How two answers differ, if they do. Messages of errors are everyone's own.
pub(in crate::peers) fn difference(ours: &Value, theirs: &Value) -> Option<String> {
    match (error(ours).is_some(), error(theirs).is_some()) {
        (true, true) => return None,
        (false, false) => {}
        _ => return Some(format!("ours:   {}\n  theirs: {}", brief(ours), brief(theirs))),
    }
    let (our_series, their_series) = (series(ours), series(theirs));
    if our_series.len() != their_series.len() {
        return Some(format!(
            "{} series, theirs {}\n  ours:   {}\n  theirs: {}",
            our_series.len(),
            their_series.len(),
            brief(ours),
            brief(theirs)
        ));
    }
    our_series.iter().zip(&their_series).find_map(|(ours, theirs)| of_series(ours, theirs))
}

fn of_series(ours: &Value, theirs: &Value) -> Option<String> {
    for part in ["name", "tags", "columns"] {
        if ours.get(part) != theirs.get(part) {
            return Some(format!("{part}: {:?}, theirs {:?}", ours.get(part), theirs.get(part)));
        }
    }
    let (our_rows, their_rows) = (rows(ours), rows(theirs));
    let of = ours.get("tags").map_or_else(String::new, |tags| format!(" of {tags}"));
    if our_rows.len() != their_rows.len() {
        let first = our_rows.iter().zip(&their_rows).find(|(a, b)| !same(a, b));
        let first = first.map_or_else(String::new, |(a, b)| format!(", first {a} instead of {b}"));
        return Some(format!("{} rows{of}, theirs {}{first}", our_rows.len(), their_rows.len()));
    }
    let differing = our_rows.iter().zip(&their_rows).find(|(ours, theirs)| !same(ours, theirs));
    differing.map(|(ours, theirs)| format!("row{of}: {ours}, theirs {theirs}"))
}

/// Rows, those of one time in an order of their own.
pub(super) fn rows(series: &Value) -> Vec<Value> {
    let mut rows: Vec<Value> = series.get("values").and_then(Value::as_array).cloned().unwrap_or_default();
    let time = |row: &Value| row.get(0).cloned();
    let mut start = 0;
    while start < rows.len() {
        let first = time(&rows[start]);
        let length = rows[start..].iter().take_while(|row| time(row) == first).count();
        rows[start..start + length].sort_by_key(ToString::to_string);
        start += length;
    }
    rows
}

/// Whether two cells, or rows of them, are the same but for rounding.
pub(super) fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| same(ours, theirs))
        }
        (Value::Number(a), Value::Number(b)) if a != b => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(SIZE_MIN),
            _ => false,
        },
        _ => ours == theirs,
    }
}

fn results(answer: &Value) -> &[Value] {
    answer.get("results").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// All series of an answer, of all its statements.
pub(super) fn series(answer: &Value) -> Vec<&Value> {
    results(answer).iter().filter_map(|result| result.get("series")?.as_array()).flatten().collect()
}

fn brief(answer: &Value) -> String {
    answer.to_string().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ours: &str, theirs: &str, same: bool) {
        let answer = |rows: &str| {
            let text =
                format!(r#"{{"results":[{{"series":[{{"name":"m","columns":["time","v"],"values":{rows}}}]}}]}}"#);
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let found = difference(&answer(ours), &answer(theirs));
        assert_eq!(found.is_none(), same, "{ours} {theirs} {found:?}");
    }

    #[test]
    fn answers_may_differ_in_rounding_and_in_the_order_of_one_time() {
        check("[[1,2]]", "[[1,2.0000000000001]]", true);
        check("[[1,2]]", "[[1,2.1]]", false);
        check("[[1,2],[1,3],[2,0]]", "[[1,3],[1,2],[2,0]]", true);
        check("[[1,2],[2,3]]", "[[2,3],[1,2]]", false);
        check("[[1,null]]", "[[1,0]]", false);
        check("[[1,-3.67e-14]]", "[[1,1.07e-14]]", true);
        check("[[1,0.001]]", "[[1,0.00100001]]", false);
    }
}
