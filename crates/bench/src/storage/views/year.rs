//! A year by hour, and as one row, through a view and over the table.

use std::time::Instant;

use query::ViewUse;

use super::paced_db::PacedDb;
use super::{NS_PER_S, ViewsFlags};
use crate::measure::process::thread_cpu_seconds;
use crate::storage::location::Folder;
use crate::storage::quantile;
use crate::storage::report::Case;
use crate::workload::generate::{Generator, START_NS, UseCase};

const NAME: &str = "year";

/// A query of the year: its name, the labels that it groups by, and the view of these.
const QUERIES: [(&str, &str, &str); 2] =
    [("by hour and host", ", hostname", "cpu_hour_host"), ("by hour", "", "cpu_hour_all")];

/// Cases: each query through its view and over the table.
pub(super) fn run(flags: &ViewsFlags, folder: &Folder) -> Result<Vec<Case>, String> {
    let mut world = PacedDb::open(folder.case(NAME), flags, flags.year_interval_s, flags.year_hosts)?;
    let steps = i64::from(flags.year_days) * 86_400 / i64::from(flags.year_interval_s);
    let mut data = Generator::new(UseCase::CpuOnly, flags.year_hosts as usize, flags.year_interval_s, flags.seed);
    world.load(&mut data, steps, NAME)?;
    let end_ns = START_NS + steps * i64::from(flags.year_interval_s) * NS_PER_S;
    let mut cases = Vec::new();
    for (query, labels, view) in QUERIES {
        let bins =
            format!("time_bucket('1 hour', time) AS bucket{labels}, max(usage_user) AS high, avg(usage_user) AS mean");
        let made =
            format!("CREATE MATERIALIZED VIEW {view} AS SELECT {bins}, count(*) AS n FROM cpu GROUP BY bucket{labels}");
        let filled_s = world.refresh_cpu_s;
        world.ask(&made, ViewUse::All)?;
        world.end_windows(end_ns)?;
        let fill_cpu_s = world.refresh_cpu_s - filled_s;
        let order = format!("ORDER BY bucket{labels}");
        let of_view = format!("SELECT bucket{labels}, high, mean FROM {view} {order}");
        let of_table = format!("SELECT {bins} FROM cpu GROUP BY bucket{labels} {order}");
        let mut through = measure(flags, &world, &of_view, ViewUse::All, format!("{query}, view"))?;
        through.add("fill_cpu_seconds", fill_cpu_s);
        let mut over = measure(flags, &world, &of_table, ViewUse::Named, format!("{query}, table"))?;
        let ratio = over.get("query_ms") / through.get("query_ms");
        over.add("of_view_ratio", ratio);
        if through.get("query_rows").to_bits() != over.get("query_rows").to_bits() {
            return Err(format!("{of_view} and {of_table} have different numbers of rows"));
        }
        cases.extend([through, over]);
    }
    cases.extend(in_one_row(flags, &mut world, end_ns)?);
    world.close()?;
    folder.clear(NAME);
    Ok(cases)
}

/// Deviation and mean of all rows, which a view gives by what it stores of each hour.
fn in_one_row(flags: &ViewsFlags, world: &mut PacedDb, end_ns: i64) -> Result<[Case; 2], String> {
    let shown = "stddev(usage_user) AS dev, avg(usage_user) AS mean, count(*) AS n FROM cpu";
    world.ask(
        &format!(
            "CREATE MATERIALIZED VIEW cpu_deviations AS SELECT time_bucket('1 hour', time) AS bucket, {shown} GROUP BY 1"
        ),
        ViewUse::All,
    )?;
    world.end_windows(end_ns)?;
    let text = format!("SELECT {shown}");
    let through = measure(flags, world, &text, ViewUse::All, "one row, view".to_owned())?;
    let mut over = measure(flags, world, &text, ViewUse::Named, "one row, table".to_owned())?;
    let ratio = over.get("query_ms") / through.get("query_ms");
    over.add("of_view_ratio", ratio);
    Ok([through, over])
}

fn measure(flags: &ViewsFlags, world: &PacedDb, text: &str, view_use: ViewUse, name: String) -> Result<Case, String> {
    let (mut elapsed_ms, mut cpu_ms, mut rows) = (Vec::new(), Vec::new(), 0);
    for _ in 0..flags.queries {
        let (begun, begun_s) = (Instant::now(), thread_cpu_seconds());
        rows = world.ask(text, view_use)?.len();
        elapsed_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        cpu_ms.push((thread_cpu_seconds() - begun_s) * 1e3);
    }
    let mut case = Case::new(name);
    case.count("query_rows", rows as u64)
        .add("query_ms", quantile(&mut elapsed_ms, 0.5))
        .add("query_cpu_ms", quantile(&mut cpu_ms, 0.5));
    Ok(case)
}
