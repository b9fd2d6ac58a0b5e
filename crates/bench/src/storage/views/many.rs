//! Passes over many views of which few have changes.

use std::fmt::Write;
use std::ops::Range;

use query::ViewUse;

use super::paced_db::PacedDb;
use super::{NS_PER_S, ViewsFlags};
use crate::storage::location::{Folder, bar};
use crate::storage::report::Case;
use crate::workload::generate::START_NS;

/// The views that rows come for.
const CHANGED: u32 = 10;

/// Passes of each kind.
const PASSES: u32 = 200;

/// Tables whose first rows come in one request.
const REQUEST_TABLES: u32 = 1_000;

pub(super) fn run(flags: &ViewsFlags, folder: &Folder) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for views in [CHANGED, flags.views] {
        let name = format!("{views} views");
        let mut world = PacedDb::open(folder.case(&name), flags, 1, 1)?;
        make(&mut world, views)?;
        let mut case = Case::new(name.clone());
        case.count("views", u64::from(views))
            .add("unchanged_pass_cpu_ms", 1e3 * passes(&mut world, 0)?)
            .add("changed_pass_cpu_ms", 1e3 * passes(&mut world, CHANGED)?);
        cases.push(case);
        world.close()?;
        folder.clear(&name);
    }
    Ok(cases)
}

/// Makes tables, each with a view of hours.
fn make(world: &mut PacedDb, views: u32) -> Result<(), String> {
    for first in (0..views).step_by(REQUEST_TABLES as usize) {
        write(world, first..views.min(first + REQUEST_TABLES), START_NS)?;
    }
    let progress = bar(u64::from(views), "making views");
    for view in 0..views {
        let made = format!(
            "CREATE MATERIALIZED VIEW v{view} AS SELECT time_bucket('1 hour', time) AS bucket, max(value) AS peak FROM t{view} GROUP BY 1"
        );
        world.ask(&made, ViewUse::All)?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    world.settle()
}

/// Writes a row of each of some tables.
fn write(world: &mut PacedDb, tables: Range<u32>, time_ns: i64) -> Result<(), String> {
    let mut lines = String::new();
    for table in tables.clone() {
        // Writing into a string does not fail.
        let _ = writeln!(lines, "t{table} value=1 {time_ns}");
    }
    if lines.is_empty() { Ok(()) } else { world.write(&lines, u64::from(tables.end - tables.start)) }
}

/// CPU seconds of a pass, rows having come for so many views before each.
fn passes(world: &mut PacedDb, changed: u32) -> Result<f64, String> {
    let begun_s = world.refresh_cpu_s;
    for pass in 0..PASSES {
        let time_ns = START_NS + i64::from(pass) * NS_PER_S / 100;
        write(world, 0..changed, time_ns)?;
        world.settle()?;
    }
    Ok((world.refresh_cpu_s - begun_s) / f64::from(PASSES))
}
