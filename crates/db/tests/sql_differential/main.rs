//! The same random statements over the same random data for Thalweg's SQL and for `DuckDB`, and whether the answers agree.
//!
//! `THALWEG_STATEMENTS` and `THALWEG_SEED` say how many and which: `cargo xtask differential sql` sets them. Skipped where Python has no
//! package `duckdb`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod data;
mod generate;
#[path = "../scratch/mod.rs"]
mod scratch;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use data::{Random, START_NS};
use generate::{Generator, Statement};
use query::Budget;
use sql::{ClientContext, Value};
use thalweg_db::Db;

/// Statements of a run that nobody sized.
const STATEMENTS: u64 = 300;
/// Differences that are told in full.
const TOLD_MAX: usize = 20;
/// How far two numbers may lie apart, as a share of the larger: sums are added up in another order.
const TOLERANCE: f64 = 1e-9;

/// A cell as both sides write it: a letter for its kind, and its text.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Null,
    Number(f64),
    Other(String),
}

type Rows = Vec<Vec<Cell>>;

/// The peer as a process that answers line by line.
struct Peer {
    child: Child,
    statements: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql_differential/duckdb.py");
        let mut python = Command::new("python3");
        // The script's folder holds a file of the package's name.
        python.args(["-P"]).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let (statements, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, statements, answers }
    }

    fn ask(&mut self, statement: &str) -> Result<Rows, String> {
        writeln!(self.statements, "{statement}").unwrap();
        self.statements.flush().unwrap();
        let mut rows = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the peer ended at {statement}");
            let line = line.trim_end_matches('\n');
            match line.strip_prefix('!') {
                Some(error) => return Err(error.to_owned()),
                None if line == "." => return Ok(rows),
                None => rows.push(line.split('\u{1f}').map(their_cell).collect()),
            }
        }
    }
}

fn their_cell(text: &str) -> Cell {
    match text.split_at(1) {
        ("0", _) => Cell::Null,
        ("n", number) => Cell::Number(number.parse().unwrap()),
        _ => Cell::Other(text.to_owned()),
    }
}

fn our_cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Null,
        Value::Bool(value) => Cell::Other(format!("b{}", if *value { "t" } else { "f" })),
        Value::Timestamp(ns) | Value::LocalTimestamp(ns) | Value::Date(ns) => {
            Cell::Other(format!("t{}", ns.div_euclid(1000)))
        }
        Value::Int(number) => Cell::Number(*number as f64),
        Value::Float(number) => Cell::Number(*number),
        other => Cell::Other(format!("s{other}")),
    }
}

fn ask(db: &Db, text: &str) -> Result<Rows, String> {
    let parsed = sql::parse(text).map_err(|error| error.to_string())?;
    let session = ClientContext::new("default", START_NS + 86_400_000_000_000);
    let answer = db.sql(&parsed, 0, &session, &Arc::new(Budget::new(50_000_000))).map_err(|error| error.to_string())?;
    let relation = answer.relation().ok_or("no rows")?;
    Ok(relation.rows.iter().map(|row| row.iter().map(our_cell).collect()).collect())
}

fn same(ours: &Cell, theirs: &Cell) -> bool {
    match (ours, theirs) {
        (Cell::Number(ours), Cell::Number(theirs)) => {
            ours.to_bits() == theirs.to_bits()
                || (ours.is_nan() && theirs.is_nan())
                || (ours - theirs).abs() <= TOLERANCE * ours.abs().max(1.0)
        }
        _ => ours == theirs,
    }
}

/// Rows without an order of their own, in one that both sides share.
fn sorted(mut rows: Rows) -> Rows {
    let key = |row: &Vec<Cell>| -> Vec<String> {
        let cell = |cell: &Cell| match cell {
            Cell::Null => String::new(),
            Cell::Number(number) => format!("{:020.6}", number + 0.0),
            Cell::Other(text) => text.clone(),
        };
        row.iter().map(cell).collect()
    };
    rows.sort_by_cached_key(key);
    rows
}

/// Why two answers differ, if they do.
fn difference(ours: Result<Rows, String>, theirs: Rows, is_ordered: bool) -> Option<String> {
    let ours = match ours {
        Ok(ours) => ours,
        Err(error) => return Some(format!("we refuse: {error}")),
    };
    if ours.len() != theirs.len() {
        return Some(format!("{} rows against {}: {:?} {:?}", ours.len(), theirs.len(), ours.first(), theirs.first()));
    }
    let (ours, theirs) = if is_ordered { (ours, theirs) } else { (sorted(ours), sorted(theirs)) };
    let differs = |(ours, theirs): &(&Vec<Cell>, &Vec<Cell>)| {
        ours.len() != theirs.len() || !ours.iter().zip(theirs.iter()).all(|(ours, theirs)| same(ours, theirs))
    };
    let (row, (ours, theirs)) = ours.iter().zip(&theirs).enumerate().find(|(_, pair)| differs(pair))?;
    Some(format!("row {row}: {ours:?}\n      against {theirs:?}"))
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn answers_are_those_of_duckdb() {
    let has_package = Command::new("python3").args(["-c", "import duckdb"]).output();
    if !has_package.is_ok_and(|output| output.status.success()) {
        let is_required = std::env::var_os("THALWEG_PYTHON_TEST").is_some_and(|value| value == "required");
        assert!(!is_required, "python3 with duckdb is missing: pip install duckdb");
        eprintln!("skipped: python3 with duckdb is missing");
        return;
    }
    let (seed, count) = (number("THALWEG_SEED", 1), number("THALWEG_STATEMENTS", STATEMENTS));
    let (db, _folder) = scratch::open("sql-duckdb");
    let mut peer = Peer::start();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let tables = data::tables(&mut random);
    let (_, errors) = db.write_lines("default", tables.lines.as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    for statement in &tables.statements {
        peer.ask(statement).unwrap();
    }
    let (mut told, mut answered, mut refused) = (Vec::new(), 0u64, Vec::new());
    for place in 0..count {
        if place == count / 2 {
            // From now on out of parts and their summaries.
            db.compact_all().unwrap();
        }
        let statement: Statement = Generator { random: &mut random }.statement();
        match peer.ask(&statement.for_peer()) {
            Ok(theirs) => {
                answered += 1;
                if let Some(why) = difference(ask(&db, &statement.text), theirs, statement.is_ordered) {
                    told.push(format!("{}\n      {why}", statement.text));
                }
            }
            Err(error) => refused.push(format!("{}\n      {error}", statement.text)),
        }
    }
    eprintln!(
        "{answered} statements of seed {seed} answered by both or by DuckDB alone; {} refused by it",
        refused.len()
    );
    refused.iter().take(3).for_each(|refused| eprintln!("refused: {refused}"));
    let shown = told.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>().join("\n");
    assert!(told.is_empty(), "{} of {answered} statements of seed {seed} differ:\n{shown}", told.len());
    assert!(answered > count * 9 / 10, "the peer refuses too much: {} of {count}", refused.len());
}

/// The built-in layer and DataFusion on the same statements: where both answer, they answer the same.
#[cfg(feature = "sql-datafusion")]
#[test]
fn answers_of_both_layers_are_the_same() {
    let (seed, count) = (number("THALWEG_SEED", 1), number("THALWEG_STATEMENTS", STATEMENTS));
    let (db, _folder) = scratch::open("sql-layers");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let tables = data::tables(&mut random);
    let (_, errors) = db.write_lines("default", tables.lines.as_bytes()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    let (mut told, mut answered, mut refused) = (Vec::new(), 0u64, Vec::new());
    for place in 0..count {
        if place == count / 2 {
            db.compact_all().unwrap();
        }
        let statement: Statement = Generator { random: &mut random }.statement();
        let Ok(parsed) = sql::parse(&statement.text) else { continue };
        let session = ClientContext::new("default", START_NS + 86_400_000_000_000);
        match db.sql_beyond(&parsed, 0, &session, &Arc::new(Budget::new(50_000_000))) {
            Ok(relation) => {
                answered += 1;
                let beyond = relation.rows.iter().map(|row| row.iter().map(our_cell).collect()).collect();
                if let Some(why) = difference(ask(&db, &statement.text), beyond, statement.is_ordered) {
                    told.push(format!("{}\n      {why}", statement.text));
                }
            }
            Err(error) => refused.push(format!("{}\n      {error}", statement.text)),
        }
    }
    eprintln!(
        "{answered} statements of seed {seed} answered by both layers; {} by the built-in one alone",
        refused.len()
    );
    refused.iter().take(5).for_each(|refused| eprintln!("refused: {refused}"));
    let shown = told.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>().join("\n");
    assert!(told.is_empty(), "{} of {answered} statements of seed {seed} differ:\n{shown}", told.len());
    assert!(answered > count / 2, "DataFusion refuses too much: {} of {count}", refused.len());
}
