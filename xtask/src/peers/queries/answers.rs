//! Whether two servers answer a query alike.

use serde_json::Value;

use super::super::Peer;
use super::super::influxql::compare;
use super::texts::Language;
use crate::differential::answers;

/// How far apart sums may be, in proportion.
const TOLERANCE: f64 = 1e-9;
const TOLD_CHARS_MAX: usize = 400;

/// How the answers of this project and of another server differ, if they do: in series, rows and values; of SQL in columns, rows and
/// the sum of each column.
pub(super) fn difference(language: Language, ours: &Value, theirs: &Value, peer: Peer) -> Option<String> {
    let told = match language {
        Language::Influxql => compare::difference(ours, theirs),
        Language::Promql => answers::compare(theirs, ours).map(|difference| difference.told(peer.name())),
        Language::Sql => of_tables(ours, theirs),
    };
    told.map(|text| text.chars().take(TOLD_CHARS_MAX).collect())
}

/// How many rows or series an answer has.
pub(super) fn size(language: Language, answer: &Value) -> usize {
    let length = |value: &Value| value.as_array().map_or(0, Vec::len);
    match language {
        Language::Influxql => {
            let series = answer["results"].as_array().into_iter().flatten();
            let series = series.flat_map(|result| result["series"].as_array().into_iter().flatten());
            series.map(|series| length(&series["values"])).sum()
        }
        Language::Promql => {
            let series = answer["data"]["result"].as_array().into_iter().flatten();
            series.map(|series| length(&series["values"])).sum()
        }
        Language::Sql => length(&answer["dataset"]),
    }
}

/// Names of columns and their sums; 0 of those that are no numbers.
fn sums(answer: &Value) -> Vec<(&str, f64)> {
    let rows = || answer["dataset"].as_array().into_iter().flatten();
    let columns = answer["columns"].as_array().into_iter().flatten().enumerate();
    let sum = |place: usize| rows().filter_map(|row| row.get(place)?.as_f64()).sum();
    columns.filter_map(|(place, column)| Some((column["name"].as_str()?, sum(place)))).collect()
}

fn of_tables(ours: &Value, theirs: &Value) -> Option<String> {
    if let Some(error) = [ours, theirs].into_iter().find_map(|answer| answer["error"].as_str()) {
        return Some(error.to_owned());
    }
    let [our_rows, their_rows] = [ours, theirs].map(|answer| size(Language::Sql, answer));
    if our_rows != their_rows {
        return Some(format!("{our_rows} rows, theirs {their_rows}"));
    }
    let (mut ours, mut theirs) = (sums(ours), sums(theirs));
    let names = |sums: &[(&str, f64)]| sums.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
    let is_alike = |(our, their): (&String, &String)| our == their || is_call_of(our, their);
    let (our_names, their_names) = (names(&ours), names(&theirs));
    if our_names.len() != their_names.len() || !our_names.iter().zip(&their_names).all(is_alike) {
        // Columns may stand elsewhere, by the same names.
        [&mut ours, &mut theirs].into_iter().for_each(|sums| sums.sort_by_key(|(name, _)| *name));
        if names(&ours) != names(&theirs) {
            return Some(format!("columns {our_names:?}, theirs {their_names:?}"));
        }
    }
    let mut pairs = ours.iter().zip(&theirs).map(|((name, our), (_, their))| (name, our, their));
    let differs = |(_, our, their): &(&&str, &f64, &f64)| (*our - *their).abs() > TOLERANCE * our.abs().max(1.0);
    pairs.find(differs).map(|(name, our, their)| format!("{name} sums up to {our}, theirs {their}"))
}

/// Whether a column that nobody named is called by its function here, and by the whole call there.
fn is_call_of(ours: &str, theirs: &str) -> bool {
    theirs.strip_prefix(ours).is_some_and(|rest| rest.starts_with('(') && rest.ends_with(')'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_the_same_by_columns_rows_and_sums() {
        let table = |columns: [&str; 2], dataset: &str| -> Value {
            let columns = columns.map(|name| format!(r#"{{"name":"{name}"}}"#)).join(",");
            serde_json::from_str(&format!(r#"{{"columns":[{columns}],"dataset":{dataset}}}"#)).unwrap()
        };
        let ours = table(["t", "v"], r#"[["a",1],["b",2.5]]"#);
        assert_eq!(size(Language::Sql, &ours), 2);
        for (theirs, is_same) in [
            (table(["v", "t"], r#"[[1,"z"],[2.5000000001,"y"]]"#), true),
            (table(["t", "v"], r#"[["a",1],["b",2.6]]"#), false),
            (table(["t", "v"], r#"[["a",3.5]]"#), false),
            (table(["t", "w"], r#"[["a",1],["b",2.5]]"#), false),
            (table(["t", "v(x)"], r#"[["a",1],["b",2.5]]"#), true),
            (table(["t", "v(x)"], r#"[["a",1],["b",2.6]]"#), false),
            (table(["t", "vw(x)"], r#"[["a",1],["b",2.5]]"#), false),
        ] {
            let found = difference(Language::Sql, &ours, &theirs, Peer::Questdb);
            assert_eq!(found.is_none(), is_same, "{theirs} {found:?}");
        }
    }

    #[test]
    fn rows_and_points_are_counted() {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let influxql = read(r#"{"results":[{"series":[{"values":[[1],[2]]},{"values":[[1]]}]},{}]}"#);
        let promql = read(r#"{"data":{"result":[{"values":[[1,"1"],[2,"1"]]}]}}"#);
        assert_eq!((size(Language::Influxql, &influxql), size(Language::Promql, &promql)), (3, 2));
    }
}
