//! Bins of time in many zones against Python's zoneinfo, and their grids against the bins of rows.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use thalweg_query::Interval;
use thalweg_query::time::{self, CalendarBins};

const NS_PER_S: i64 = 1_000_000_000;
const DAY_S: i64 = 86_400;

/// Both hemispheres, changes of half an hour and at midnight, skipped dates, changes of a day.
const ZONES: [&str; 28] = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Adak",
    "America/Asuncion",
    "America/Havana",
    "America/New_York",
    "America/Nuuk",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Asia/Tokyo",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Etc/UTC",
    "Europe/Dublin",
    "Europe/Moscow",
    "Europe/Paris",
    "Pacific/Apia",
    "Pacific/Auckland",
    "Pacific/Chatham",
];

/// Widths from a minute to a year: months, seconds.
const WIDTHS: [(i32, i64); 18] = [
    (0, 60),
    (0, 300),
    (0, 900),
    (0, 1500),
    (0, 1800),
    (0, 3600),
    (0, 5400),
    (0, 2 * 3600),
    (0, 6 * 3600),
    (0, 12 * 3600),
    (0, DAY_S),
    (0, 36 * 3600),
    (0, 3 * DAY_S),
    (0, 7 * DAY_S),
    (1, 0),
    (3, 0),
    (6, 0),
    (12, 0),
];

struct Case {
    zone: &'static str,
    width: (i32, i64),
    origin_s: i64,
    times_s: Vec<i64>,
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as i64
    }
}

/// Rows around changes of the clocks, which most of them are close to.
fn cases() -> Vec<Case> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut cases = Vec::new();
    for zone in ZONES {
        let found = jiff::tz::TimeZone::get(zone).unwrap();
        for width in WIDTHS {
            for _ in 0..2 {
                // 1975 to 2040.
                let from_s = 157_766_400 + random.below(65 * 365 * DAY_S);
                let change = found.following(jiff::Timestamp::from_second(from_s).unwrap()).next();
                let change_s = change.map_or(from_s, |change| change.timestamp().as_second());
                let reach_s = if width.0 > 0 { 400 * DAY_S } else { (width.1 * 4).min(20 * DAY_S) + 7200 };
                let mut times_s: Vec<i64> = (0..40).map(|_| change_s - reach_s + random.below(2 * reach_s)).collect();
                times_s.extend([change_s - 1, change_s, change_s + 1]);
                times_s.sort_unstable();
                let origin_s = match random.below(3) {
                    0 => 0,
                    1 => random.below(24) * 1800,
                    _ => 946_857_600 - random.below(40) * 900,
                };
                cases.push(Case { zone, width, origin_s, times_s });
            }
        }
    }
    cases
}

fn bins(case: &Case) -> CalendarBins {
    let width = Interval { months: case.width.0, days: 0, ns: case.width.1 * NS_PER_S };
    CalendarBins::new(width, case.origin_s * NS_PER_S, time::zone(case.zone).unwrap())
}

/// Bins by zoneinfo; `None` without Python.
fn by_zoneinfo(cases: &[Case]) -> Option<Vec<Vec<i64>>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bins.py");
    let mut command = Command::new("python3");
    let spawned = command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut python) = spawned else {
        eprintln!("left out: there is no python3");
        return None;
    };
    let mut lines = String::new();
    for Case { zone, width: (months, width_s), origin_s, times_s } in cases {
        writeln!(
            lines,
            r#"{{"zone":"{zone}","months":{months},"width":{width_s},"origin":{origin_s},"times":{times_s:?}}}"#
        )
        .unwrap();
    }
    let mut stdin = python.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = python.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let numbers = |line: &str| {
        let line = line.trim_matches(['[', ']']);
        line.split(", ").map(|number| number.parse().unwrap()).collect::<Vec<i64>>()
    };
    Some(String::from_utf8(output.stdout).unwrap().lines().map(numbers).collect())
}

#[test]
fn bins_are_those_of_zoneinfo() {
    let cases = cases();
    let Some(expected) = by_zoneinfo(&cases) else { return };
    assert_eq!(expected.len(), cases.len());
    let mut wrong = Vec::new();
    for (case, expected) in cases.iter().zip(&expected) {
        let bins = bins(case);
        for (time_s, expected) in case.times_s.iter().zip(expected) {
            let found = bins.start_of(time_s * NS_PER_S);
            if found != expected * NS_PER_S {
                wrong.push(format!(
                    "{} {:?} origin {}: {time_s} is in {}, not in {expected}",
                    case.zone,
                    case.width,
                    case.origin_s,
                    found / NS_PER_S
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), cases.len() * 43, &wrong[..wrong.len().min(20)]);
}

#[test]
fn each_row_is_in_one_bin_of_the_grid() {
    for case in cases() {
        let bins = bins(&case);
        let times_ns: Vec<i64> = case.times_s.iter().map(|time_s| time_s * NS_PER_S).collect();
        let (first_ns, last_ns) = (times_ns[0], times_ns[times_ns.len() - 1]);
        let grid: Vec<i64> = bins.starts(first_ns, last_ns).collect();
        let place = format!("{} {:?} origin {}", case.zone, case.width, case.origin_s);
        assert!(grid.is_sorted_by(|a, b| a < b), "{place}");
        let counted: usize =
            grid.iter().map(|start_ns| times_ns.iter().filter(|ns| bins.start_of(**ns) == *start_ns).count()).sum();
        assert_eq!(counted, times_ns.len(), "{place}");
        for start_ns in &grid {
            assert_eq!(bins.start_of(*start_ns), *start_ns, "{place}");
        }
        for pair in grid.windows(2) {
            assert_eq!((bins.next(pair[0]), bins.previous(pair[1])), (pair[1], pair[0]), "{place}");
        }
        assert!(times_ns.iter().all(|ns| bins.start_of(*ns) <= *ns), "{place}");
    }
}

/// Answers of Postgres 15, in seconds since 1970: `date_trunc` of a unit in a zone, and `AT TIME ZONE` in both directions, around changes of the clocks.
#[test]
fn truncation_and_local_times_are_those_of_postgres() {
    let mut cases = 0;
    for line in include_str!("postgres_times.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (kind, zone) = (words[0], time::zone(words[1]).unwrap());
        let (at_ns, expected) = (words[2].parse::<i64>().unwrap() * NS_PER_S, words[3].parse::<i64>().unwrap());
        let found = match kind {
            "to_local" => time::to_local(at_ns, &zone),
            "from_local" => time::from_local(at_ns, &zone),
            unit => time::truncate(unit, at_ns, &zone),
        };
        assert_eq!(found, Some(expected * NS_PER_S), "{line}");
        cases += 1;
    }
    assert!(cases > 500);
}
