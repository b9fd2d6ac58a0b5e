//! Scripts over databases in memory. Expectations are data: `tests/pipelines/*.txt` hold scripts and what they give, worked by hand from the definitions in Flux's
//! documentation.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;
use query::testing::MemoryDatabases;
use query::{Budget, QueryError, Stop};
use thalweg_flux::{Annotation, Dialect, PIPELINE_FUNCTIONS, Query, RequestContext};

const SECOND_NS: i64 = 1_000_000_000;
/// 2021-01-01T00:00:00Z.
const START_NS: i64 = 1_609_459_200 * SECOND_NS;

/// Two hosts, a row every ten seconds for a minute, one of them with a gap; a counter that restarts, states, and a whole number.
fn fixture(db: &MemoryDatabases) {
    let mut lines = String::new();
    for step in 0..6i64 {
        let time_ns = START_NS + step * 10 * SECOND_NS;
        writeln!(lines, "cpu,host=a,dc=x usage={},n={}i {time_ns}", step as f64 * 1.5, step * 2).unwrap();
        if step % 3 != 1 {
            writeln!(lines, "cpu,host=b usage={} {time_ns}", 10 - step).unwrap();
        }
        let total = if step < 4 { step * 5 } else { step - 3 };
        writeln!(lines, "net,if=eth0 bytes={total}i {time_ns}").unwrap();
        writeln!(lines, "door,id=1 state=\"{}\",open={} {time_ns}", ["shut", "open"][step as usize % 2], step % 2 == 1)
            .unwrap();
    }
    let (_, errors) = db.write_lines("b", lines.as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
}

fn run(db: &MemoryDatabases, script: &str, dialect: &Dialect) -> String {
    let budget = Budget::new(1_000_000);
    let context = RequestContext { now_ns: START_NS + 60 * SECOND_NS, ..RequestContext::default() };
    let query = match Query::parse(script) {
        Ok(query) => query,
        Err(error) => return format!("{error}\n"),
    };
    match query.run(&db.session(&budget), &context) {
        Ok(results) => results.csv(dialect).replace("\r\n", "\n"),
        Err(error) => format!("{error}\n"),
    }
}

/// A script up to `----`, what it gives up to a line `====`. `UPDATE_EXPECTED=1` writes what is given now: to be read before it is believed.
#[test]
fn scripts_give_what_the_documentation_says() {
    let db = MemoryDatabases::new().unwrap();
    fixture(&db);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pipelines");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let update = std::env::var_os("UPDATE_EXPECTED").is_some();
        let mut written = String::new();
        for case in text.split("====\n").filter(|case| !case.trim().is_empty()) {
            let (script, expected) = case.split_once("----\n").unwrap_or((case, ""));
            let found = run(&db, script, &Dialect::default());
            if !update {
                assert_eq!(found, expected, "{}: {script}", path.display());
            }
            write!(written, "{script}----\n{found}====\n").unwrap();
        }
        if update {
            std::fs::write(&path, written).unwrap();
        }
    }
}

#[test]
fn annotations_say_types_and_groups() {
    let db = MemoryDatabases::new().unwrap();
    fixture(&db);
    let dialect = Dialect {
        annotations: vec![Annotation::Datatype, Annotation::Group, Annotation::Default],
        ..Dialect::default()
    };
    let script = "from(bucket: \"b\") |> range(start: -1m) |> filter(fn: (r) => r._measurement == \"door\") |> last() |> yield(name: \"x\")";
    let times = "2021-01-01T00:00:00Z,2021-01-01T00:01:00Z,2021-01-01T00:00:50Z";
    let expected = format!(
        "#datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,dateTime:RFC3339,string,string,string,string\n\
         #group,false,false,true,true,false,false,true,true,true\n\
         #default,x,,,,,,,,\n\
         ,result,table,_start,_stop,_time,_value,_field,_measurement,id\n\
         ,,0,{times},open,state,door,1\n\n\
         #datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,dateTime:RFC3339,boolean,string,string,string\n\
         #group,false,false,true,true,false,false,true,true,true\n\
         #default,x,,,,,,,,\n\
         ,result,table,_start,_stop,_time,_value,_field,_measurement,id\n\
         ,,1,{times},true,open,door,1\n"
    );
    assert_eq!(run(&db, script, &dialect), expected);
}

/// Aggregates that the plan makes are those that are made of rows in memory.
#[test]
fn the_plan_and_the_tables_agree() {
    let db = MemoryDatabases::new().unwrap();
    fixture(&db);
    let from = "from(bucket: \"b\") |> range(start: -57s, stop: -3s) |> filter(fn: (r) => r._measurement == \"cpu\")";
    for function in ["mean", "sum", "count", "min", "max", "first", "last", "stddev", "spread", "median"] {
        for create in ["true", "false"] {
            for source in ["_stop", "_start"] {
                let aggregate = format!(
                    "aggregateWindow(every: 20s, fn: {function}, createEmpty: {create}, timeSrc: \"{source}\")"
                );
                let in_plan = run(&db, &format!("{from} |> {aggregate}"), &Dialect::default());
                // A limit that leaves all rows reads them.
                let in_memory = run(&db, &format!("{from} |> limit(n: 1000) |> {aggregate}"), &Dialect::default());
                let sorted = |text: &str| {
                    let mut rows: Vec<String> =
                        text.lines().map(|line| line.splitn(4, ',').last().unwrap_or_default().to_owned()).collect();
                    rows.sort();
                    rows
                };
                assert_eq!(sorted(&in_plan), sorted(&in_memory), "{aggregate}");
                assert!(in_plan.lines().count() > 3, "{in_plan}");
            }
        }
        let whole = run(
            &db,
            &format!("{from} |> {function}() |> keep(columns: [\"_value\", \"host\", \"_field\"])"),
            &Dialect::default(),
        );
        let of_rows = run(
            &db,
            &format!("{from} |> limit(n: 1000) |> {function}() |> keep(columns: [\"_value\", \"host\", \"_field\"])"),
            &Dialect::default(),
        );
        assert_eq!(whole, of_rows, "{function}");
    }
}

#[test]
fn rows_that_are_held_are_taken_out_of_the_budget() {
    let db = MemoryDatabases::new().unwrap();
    fixture(&db);
    let query =
        Query::parse("from(bucket: \"b\") |> range(start: -1m) |> aggregateWindow(every: 1ms, fn: mean)").unwrap();
    let context = RequestContext { now_ns: START_NS + 60 * SECOND_NS, ..RequestContext::default() };
    let budget = Budget::new(10_000);
    let refused = query.run(&db.session(&budget), &context).unwrap_err();
    assert_eq!(refused, QueryError::TooManySamples { limit: 10_000 });
}

/// The error that a script ends with, if it may hold so many samples.
fn refusal(db: &MemoryDatabases, script: &str, samples_max: u64) -> Option<QueryError> {
    let budget = Budget::new(samples_max);
    let context = RequestContext { now_ns: START_NS + 60 * SECOND_NS, ..RequestContext::default() };
    Query::parse(script).unwrap().run(&db.session(&budget), &context).err()
}

#[test]
fn what_grows_is_taken_out_of_the_budget_as_it_grows() {
    let db = MemoryDatabases::new().unwrap();
    fixture(&db);
    let from =
        "from(bucket: \"b\") |> range(start: -1m) |> filter(fn: (r) => r.host == \"a\" and r._field == \"usage\")";
    let items = ["1"; 1000].join(", ");
    let assigned: Vec<String> = (0..20).map(|number| format!("a{number} = f()\n")).collect();
    let assigned = assigned.concat();
    let long = "x".repeat(10_000);
    let scripts = [
        (40, format!("{from} |> pivot(rowKey: [\"_time\"], columnKey: [\"_time\"], valueColumn: \"_value\")")),
        (1000, format!("{from} |> map(fn: (r) => ({{r with long: \"{long}\"}}))")),
        (10_000, format!("f = () => [{items}]\n{assigned}{from}")),
    ];
    for (samples_max, script) in &scripts {
        assert_eq!(refusal(&db, from, *samples_max), None);
        assert_eq!(refusal(&db, script, *samples_max), Some(QueryError::TooManySamples { limit: *samples_max }));
        assert_eq!(refusal(&db, script, 100_000), None);
    }
}

#[test]
fn a_query_that_is_stopped_ends_between_statements_and_while_its_answer_is_written() {
    let db = MemoryDatabases::new().unwrap();
    fixture(&db);
    let budget = Budget::new(1_000_000);
    let context = RequestContext { now_ns: START_NS + 60 * SECOND_NS, ..RequestContext::default() };
    let query = Query::parse("x = 1\nfrom(bucket: \"b\") |> range(start: -1m)").unwrap();
    let results = query.run(&db.session(&budget), &context).unwrap();
    let dialect = Dialect::default();
    assert_eq!(results.csv_within(&dialect, &budget), Ok(results.csv(&dialect)));
    budget.stop(Stop::Timeout);
    assert_eq!(results.csv_within(&dialect, &budget), Err(QueryError::Stopped(Stop::Timeout)));
    let assignments = Query::parse("x = 1").unwrap();
    assert_eq!(assignments.run(&db.session(&budget), &context).unwrap_err(), QueryError::Stopped(Stop::Timeout));
}

proptest! {
    #[test]
    fn hostile_texts_are_errors(words in proptest::collection::vec(prop_oneof![
        Just("from(bucket: \"b\")".to_owned()), Just("|>".to_owned()), Just("range(start: -1h)".to_owned()), Just("(r) =>".to_owned()),
        Just("r._value".to_owned()), Just("(".to_owned()), Just(")".to_owned()), Just("{".to_owned()), Just("not".to_owned()), Just("- ".to_owned()),
        Just("==".to_owned()), Just("\"x\"".to_owned()), Just("1mo".to_owned()), Just("filter(fn: (r) => r.host == \"a\")".to_owned()),
        proptest::sample::select(PIPELINE_FUNCTIONS.to_vec()).prop_map(|name| format!("|> {name}(n: 1)")), ".{0,4}".prop_map(|text| text),
    ], 0..30)) {
        let db = MemoryDatabases::new().unwrap();
        let budget = Budget::new(1000);
        if let Ok(query) = Query::parse(&words.join(" ")) {
            let _ = query.run(&db.session(&budget), &RequestContext::default());
        }
    }

    #[test]
    fn deep_texts_are_errors(piece in proptest::sample::select(vec!["(", "[", "{a:", "not ", "-", "if true then ", "a.", "f(x:", "1+", "a|>f()", "x or ", "(r) => "]), count in 0usize..5000) {
        let _ = Query::parse(&piece.repeat(count));
    }
}
