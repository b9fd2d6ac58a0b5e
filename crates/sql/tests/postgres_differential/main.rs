//! The same random statements of zones, dates and lengths of time for this SQL and for `PostgreSQL`, and whether the answers agree.
//!
//! `THALWEG_STATEMENTS` and `THALWEG_SEED` say how many and which: `cargo xtask differential postgres` sets them. Skipped where `PostgreSQL` is not
//! installed, unless `THALWEG_POSTGRES_TEST` is `required`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod generate;
mod server;

use std::fmt::Write as _;

use generate::{Generator, Statement};
use query::Budget;
use query::testing::MemoryDatabases;
use server::Server;
use thalweg_sql::{self as sql, ClientContext};

/// Statements of a run that nobody sized.
const STATEMENTS: usize = 500;
/// Differences that are told in full.
const TOLD_MAX: usize = 25;

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// Our answer; `None` for an error.
fn ours(db: &MemoryDatabases, statement: &Statement) -> Option<String> {
    let settings = std::collections::BTreeMap::from([("timezone".to_owned(), statement.zone.to_owned())]);
    let client = ClientContext { time_zone: sql::session_zone(&settings), ..ClientContext::new("default", 0) };
    let budget = Budget::new(1_000_000);
    let parsed = sql::parse(&statement.text()).ok()?;
    let answer = sql::run(&parsed, 0, &db.session(&budget), &client).ok()?;
    let value = answer.relation()?.rows.pop()?.pop()?;
    Some(value.to_string())
}

#[test]
fn zones_dates_and_intervals_are_those_of_postgres() {
    let Some(server) = Server::start() else {
        assert!(std::env::var("THALWEG_POSTGRES_TEST").as_deref() != Ok("required"), "PostgreSQL is not installed");
        eprintln!("skipped: PostgreSQL is not installed");
        return;
    };
    let mut generator = Generator::new(number("THALWEG_SEED", 1) as u64);
    let statements: Vec<Statement> =
        (0..number("THALWEG_STATEMENTS", STATEMENTS)).map(|_| generator.statement()).collect();
    let expected = server.answers(&statements);
    assert_eq!(expected.len(), statements.len());
    let db = MemoryDatabases::new().unwrap();
    let (mut told, mut count) = (String::new(), 0);
    for (statement, expected) in statements.iter().zip(&expected) {
        let found = ours(&db, statement);
        if found != *expected {
            count += 1;
            if count <= TOLD_MAX {
                let (zone, text) = (statement.zone, statement.text());
                writeln!(told, "{zone}: {text}\n    PostgreSQL {expected:?}, here {found:?}").unwrap();
            }
        }
    }
    let answered = expected.iter().filter(|answer| answer.is_some()).count();
    eprintln!("{} statements, {answered} of them with an answer: {count} differ", statements.len());
    assert!(answered * 10 > statements.len() * 9, "most statements have an answer");
    assert!(count == 0, "{count} of {} differ:\n{told}", statements.len());
}
