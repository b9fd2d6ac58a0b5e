//! The five queries of FrogFishDB's evaluation (section 5.3.2), in the plan language: 320 hosts, seven days at 10 s there.

use db::Db;
use model::{Field, Labels, ValueType};

use crate::workload::generate::{Generator, UseCase};

/// Days of data that they need.
pub(super) const DAYS_MIN: u32 = 7;

/// Two of them name 42 minutes of the sixth day.
const RANGE: &str = "(range 1452120960000000000 1452123510000000000)";
const ONE: &str = r#"(metric "cpu_usage_user") (tag "hostname" '("host_0"))"#;

/// Names and texts; the same seed as the data's says what the first host's labels are.
pub(super) fn plans(db: &Db, database: &str, seed: u64) -> Result<Vec<(&'static str, String)>, String> {
    let token = token(db, database, seed)?;
    Ok(vec![
        ("plan-q1-all", format!("(->> {ONE})")),
        ("plan-q2-index-range", format!("(->> (index {token}) {RANGE})")),
        ("plan-q3-where", format!("(->> {ONE} (where (> #V 50)))")),
        ("plan-q4-avg-1h", format!("(->> {ONE} (groupby 1h avg))")),
        ("plan-q5-index-max-15m", format!("(->> (index {token}) {RANGE} (groupby 15m max))")),
    ])
}

/// The number by which the first field of the first host is asked for.
fn token(db: &Db, database: &str, seed: u64) -> Result<u64, String> {
    let mut line = String::new();
    Generator::new(UseCase::CpuOnly, 1, 10, seed).fill(&mut line, 1, 1);
    let tags = line.split(' ').next().unwrap_or_default().split(',').skip(1).filter_map(|tag| tag.split_once('='));
    let labels = Labels::from_pairs(tags).map_err(|error| error.to_string())?;
    let field = Field { name: "usage_user".to_owned(), value_type: ValueType::I64 };
    let registered = db.register_groups(database, "cpu", &[labels], &[(field, Labels::empty())]);
    let (tokens, _) = registered.map_err(|error| error.to_string())?;
    tokens.first().map(|token| token.to_bits()).ok_or_else(|| "the first host has no token".to_owned())
}
