//! A load in order of time with and without views, and rows of it that come a day late.

use query::ViewUse;

use super::paced_db::PacedDb;
use super::{NS_PER_S, ViewsFlags};
use crate::measure::process::thread_cpu_seconds;
use crate::storage::location::Folder;
use crate::storage::report::Case;
use crate::workload::generate::{Generator, START_NS, UseCase};
use crate::workload::hosts::cpu_fields;
use crate::workload::walk::Chance;

pub(super) const WITH_VIEWS: &str = "with views";
const WITHOUT_VIEWS: &str = "without views";

/// The views, and how wide their windows are.
const VIEWS: [(&str, &str); 2] = [("cpu_minute", "1 minute"), ("cpu_hour", "1 hour")];

const DAY_S: i64 = 86_400;

/// Rows of a request that come late.
const LATE_REQUEST_ROWS: u64 = 5_000;

fn steps(flags: &ViewsFlags) -> i64 {
    i64::from(flags.hours) * 3600 / i64::from(flags.interval_s)
}

fn data(flags: &ViewsFlags) -> Generator {
    Generator::new(UseCase::CpuOnly, flags.hosts as usize, flags.interval_s, flags.seed)
}

fn open(flags: &ViewsFlags, folder: &Folder, name: &str) -> Result<PacedDb, String> {
    PacedDb::open(folder.case(name), flags, flags.interval_s, flags.hosts)
}

/// The load by itself.
pub(super) fn without_views(flags: &ViewsFlags, folder: &Folder) -> Result<Case, String> {
    let mut world = open(flags, folder, WITHOUT_VIEWS)?;
    let used = world.load(&mut data(flags), steps(flags), WITHOUT_VIEWS)?;
    world.close()?;
    folder.clear(WITHOUT_VIEWS);
    let mut case = Case::new(WITHOUT_VIEWS);
    case.count("values", used.values)
        .add("cpu_seconds", used.cpu_s)
        .add("values_per_cpu_second", used.values as f64 / used.cpu_s);
    Ok(case)
}

/// The load with views that are kept right meanwhile.
pub(super) fn with_views(flags: &ViewsFlags, folder: &Folder, bare: Option<&Case>) -> Result<(Case, PacedDb), String> {
    let mut world = open(flags, folder, WITH_VIEWS)?;
    let steps = steps(flags);
    let mut generator = data(flags);
    // A view is made of a table's columns.
    let first = world.load(&mut generator, 1, WITH_VIEWS)?;
    let columns: Vec<String> =
        cpu_fields().map(|field| format!("avg({field}) AS {field}_avg, max({field}) AS {field}_max")).collect();
    for (view, width) in VIEWS {
        let bins = format!("time_bucket('{width}', time) AS bucket, hostname, {}, count(*) AS n", columns.join(", "));
        let made = format!("CREATE MATERIALIZED VIEW {view} AS SELECT {bins} FROM cpu GROUP BY bucket, hostname");
        world.ask(&made, ViewUse::All)?;
    }
    let used = world.load(&mut generator, steps, WITH_VIEWS)?;
    world.end_windows(START_NS + steps * i64::from(flags.interval_s) * NS_PER_S)?;
    let view_rows = check(&world)?;
    let values = first.values + used.values;
    let (cpu_s, refresh_cpu_s) = (first.cpu_s + used.cpu_s, first.refresh_cpu_s + used.refresh_cpu_s);
    let mut case = Case::new(WITH_VIEWS);
    case.count("values", values)
        .add("cpu_seconds", cpu_s)
        .add("values_per_cpu_second", values as f64 / cpu_s)
        .add("view_rows", view_rows)
        .add("refresh_cpu_seconds", refresh_cpu_s);
    if let Some(bare_s) = bare.map(|bare| bare.get("cpu_seconds")) {
        case.add("refresh_share_percent", 100.0 * refresh_cpu_s / bare_s)
            .add("whole_share_percent", 100.0 * (cpu_s - bare_s) / bare_s);
    }
    Ok((case, world))
}

/// Checks that all rows are in the stored windows of each view; returns how many rows these have.
fn check(world: &PacedDb) -> Result<f64, String> {
    let rows = world.number("SELECT count(*) FROM cpu", ViewUse::Named)?;
    let mut view_rows = 0.0;
    for (view, _) in VIEWS {
        let counted = world.number(&format!("SELECT sum(n) FROM {view}"), ViewUse::Stored)?;
        if counted.to_bits() != rows.to_bits() {
            return Err(format!("the stored windows of {view} are of {counted} rows, the table has {rows}"));
        }
        view_rows += world.number(&format!("SELECT count(*) FROM {view}"), ViewUse::Stored)?;
    }
    Ok(view_rows)
}

/// Which rows of a day come late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    /// Some of every host.
    Scattered,
    /// All of some hosts.
    OfHosts,
}

/// Rows of a day come late, in two ways.
pub(super) fn late(flags: &ViewsFlags, world: &mut PacedDb) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for late in [Late::Scattered, Late::OfHosts] {
        let percent = flags.late_percent;
        let name = match late {
            Late::Scattered => format!("{percent} % of a day's rows late"),
            Late::OfHosts => format!("a day of {percent} % of the hosts late"),
        };
        cases.push(measure_late(flags, world, late, name)?);
    }
    Ok(cases)
}

fn measure_late(flags: &ViewsFlags, world: &mut PacedDb, late: Late, name: String) -> Result<Case, String> {
    let (begun_s, refreshed_s) = (thread_cpu_seconds(), world.refresh_cpu_s);
    let (rows, made_s) = write_late(flags, world, late)?;
    let write_cpu_s = thread_cpu_seconds() - begun_s - made_s - (world.refresh_cpu_s - refreshed_s);
    world.settle()?;
    let right_cpu_s = world.refresh_cpu_s - refreshed_s;
    check(world)?;
    let refreshed_s = world.refresh_cpu_s;
    for (view, _) in VIEWS {
        world.ask(&format!("REFRESH MATERIALIZED VIEW {view} FULL"), ViewUse::All)?;
    }
    world.settle()?;
    let again_cpu_s = world.refresh_cpu_s - refreshed_s;
    check(world)?;
    let mut case = Case::new(name);
    case.count("late_rows", rows)
        .add("late_write_cpu_seconds", write_cpu_s)
        .add("right_cpu_seconds", right_cpu_s)
        .add("again_cpu_seconds", again_cpu_s)
        .add("right_of_again_percent", 100.0 * right_cpu_s / again_cpu_s);
    Ok(case)
}

/// Writes the late rows: those of the day before the last one, between the rows that were there. Returns how many, and the CPU seconds of making them.
fn write_late(flags: &ViewsFlags, world: &mut PacedDb, late: Late) -> Result<(u64, f64), String> {
    let interval_ns = i64::from(flags.interval_s) * NS_PER_S;
    let all_s = i64::from(flags.hours) * 3600;
    let day_s = DAY_S.min(all_s / 2);
    // What is written in between overwrites nothing.
    let between_ns = if late == Late::Scattered { interval_ns / 2 } else { interval_ns / 4 };
    let shift_ns = (all_s - 2 * day_s) * NS_PER_S + between_ns;
    let (mut generator, mut chance) = (data(flags), Chance::new(flags.seed));
    let (mut text, mut request, mut waiting, mut rows, mut made_s) = (String::new(), String::new(), 0, 0, 0.0);
    loop {
        let making_s = thread_cpu_seconds();
        let made = generator.fill(&mut text, LATE_REQUEST_ROWS, day_s / i64::from(flags.interval_s));
        for line in text.lines().filter(|line| is_late(flags, late, line, &mut chance)) {
            waiting += u64::from(push_moved(line, shift_ns, &mut request));
        }
        made_s += thread_cpu_seconds() - making_s;
        if waiting >= LATE_REQUEST_ROWS || made == 0 && waiting > 0 {
            world.write(&request, waiting)?;
            rows += waiting;
            (request, waiting) = (String::new(), 0);
        }
        if made == 0 {
            return Ok((rows, made_s));
        }
    }
}

fn is_late(flags: &ViewsFlags, late: Late, line: &str, chance: &mut Chance) -> bool {
    match late {
        Late::Scattered => chance.below(100) < flags.late_percent,
        Late::OfHosts => {
            let host = line.split(['=', ',']).nth(2).and_then(|host| host.strip_prefix("host_"));
            let number: u64 = host.and_then(|number| number.parse().ok()).unwrap_or(u64::MAX);
            number.saturating_mul(100) < u64::from(flags.late_percent) * u64::from(flags.hosts)
        }
    }
}

/// Appends a line with a later time; false if it has none.
fn push_moved(line: &str, shift_ns: i64, out: &mut String) -> bool {
    use std::fmt::Write;
    let Some((row, time)) = line.rsplit_once(' ') else { return false };
    let Ok(time_ns) = time.parse::<i64>() else { return false };
    // Writing into a string does not fail.
    let _ = writeln!(out, "{row} {}", time_ns + shift_ns);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_lines_have_their_time_moved() {
        let mut out = String::new();
        assert!(push_moved("cpu,hostname=host_1 usage_user=5i 100", 7, &mut out));
        assert!(!push_moved("cpu,hostname=host_1 usage_user=5i soon", 7, &mut out));
        assert_eq!(out, "cpu,hostname=host_1 usage_user=5i 107\n");
    }
}
