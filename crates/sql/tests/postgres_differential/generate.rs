//! Random statements of times.

use std::fmt::Write;

/// Both hemispheres, changes of half an hour and at midnight, skipped dates, offsets of quarters of an hour.
const ZONES: [&str; 18] = [
    "UTC",
    "Europe/Paris",
    "Europe/London",
    "Europe/Dublin",
    "America/New_York",
    "America/Los_Angeles",
    "America/St_Johns",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Africa/Cairo",
    "Asia/Tehran",
    "America/Havana",
];
/// Days close to which clocks change somewhere.
const CHANGES: [&str; 10] = [
    "2024-03-10",
    "2024-03-31",
    "2024-04-07",
    "2024-10-06",
    "2024-10-27",
    "2024-11-03",
    "2011-12-30",
    "2018-11-04",
    "2023-04-28",
    "1999-12-31",
];
const UNITS: [&str; 10] = ["second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade", "century"];
const FIELDS: [&str; 14] = [
    "epoch", "second", "minute", "hour", "day", "dow", "isodow", "doy", "week", "isoyear", "month", "quarter", "year",
    "century",
];
const FORMATS: [&str; 6] = [
    "YYYY-MM-DD HH24:MI:SS",
    "FMDay, DD FMMonth YYYY",
    "HH12:MI AM TZ",
    "IYYY-IW-ID DDD Q",
    "HH24:MI OF",
    "Mon DD YYYY MS US",
];

/// A statement of one value, and the zone of its session.
pub(crate) struct Statement {
    pub(crate) zone: &'static str,
    expression: String,
}

impl Statement {
    pub(crate) fn text(&self) -> String {
        format!("SELECT ({})::text", self.expression)
    }
}

pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % most
    }

    fn one_of(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.below(choices.len() as u64) as usize]
    }

    pub(crate) fn statement(&mut self) -> Statement {
        let zone = self.one_of(&ZONES);
        let depth = 1 + self.below(3);
        let expression = match self.below(9) {
            0 | 1 => self.instant(depth),
            2 => self.local(depth),
            3 => self.date(depth),
            4 | 5 => self.length(depth),
            6 => format!("{} {} {}", self.any_time(depth - 1), self.one_of(&["<", "<=", "=", ">"]), self.any_time(0)),
            7 => self.part(depth - 1),
            _ => {
                let at = if self.below(2) == 0 { self.instant(depth - 1) } else { self.local(depth - 1) };
                format!("to_char({at}, '{}')", self.one_of(&FORMATS))
            }
        };
        Statement { zone, expression }
    }

    fn part(&mut self, depth: u64) -> String {
        match self.below(5) {
            0 => format!("{} - {}", self.date(depth), self.date(0)),
            1 => {
                let field = self.one_of(&["epoch", "year", "month", "day", "hour", "minute", "second"]);
                format!("date_part('{field}', {})", self.length(depth))
            }
            2 => format!("date_part('{}', {})", self.one_of(&FIELDS), self.local(depth)),
            _ => format!("date_part('{}', {})", self.one_of(&FIELDS), self.instant(depth)),
        }
    }

    fn any_time(&mut self, depth: u64) -> String {
        match self.below(3) {
            0 => self.instant(depth),
            1 => self.local(depth),
            _ => self.date(depth),
        }
    }

    fn day(&mut self) -> String {
        if self.below(2) == 0 {
            return self.one_of(&CHANGES).to_owned();
        }
        format!("{}-{:02}-{:02}", 1970 + self.below(68), 1 + self.below(12), 1 + self.below(28))
    }

    fn clock(&mut self) -> String {
        let hour = if self.below(2) == 0 { self.below(4) } else { self.below(24) };
        let mut text = format!("{hour:02}:{:02}", self.one_of(&["00", "15", "30", "59", "07"]).parse::<u8>().unwrap());
        if self.below(2) == 0 {
            write!(text, ":{:02}", self.below(60)).unwrap();
            if self.below(3) == 0 {
                write!(text, ".{}", self.one_of(&["5", "123456", "000001", "25"])).unwrap();
            }
        }
        text
    }

    fn instant(&mut self, depth: u64) -> String {
        if depth == 0 {
            let offset = self.one_of(&["", "", "", "+00", "+02", "-03:30", "+0545", " Europe/Paris", " UTC", "Z"]);
            return format!("timestamptz '{} {}{offset}'", self.day(), self.clock());
        }
        let depth = depth - 1;
        match self.below(7) {
            0 => format!("({})::timestamptz", self.local(depth)),
            1 => format!("({})::timestamptz", self.date(depth)),
            2 => format!("(({}) AT TIME ZONE '{}')", self.local(depth), self.one_of(&ZONES)),
            3 => format!("date_trunc('{}', {})", self.one_of(&UNITS), self.instant(depth)),
            4 => format!("date_trunc('{}', {}, '{}')", self.one_of(&UNITS), self.instant(depth), self.one_of(&ZONES)),
            _ => format!("({} {} {})", self.instant(depth), self.one_of(&["+", "-"]), self.length(depth)),
        }
    }

    fn local(&mut self, depth: u64) -> String {
        if depth == 0 {
            return format!("timestamp '{} {}'", self.day(), self.clock());
        }
        let depth = depth - 1;
        match self.below(7) {
            0 => format!("({})::timestamp", self.instant(depth)),
            1 => format!("({})::timestamp", self.date(depth)),
            2 => format!("(({}) AT TIME ZONE '{}')", self.instant(depth), self.one_of(&ZONES)),
            3 => format!("date_trunc('{}', {})", self.one_of(&UNITS), self.local(depth)),
            4 => format!("({} + {})", self.date(depth), self.length(depth)),
            _ => format!("({} {} {})", self.local(depth), self.one_of(&["+", "-"]), self.length(depth)),
        }
    }

    fn date(&mut self, depth: u64) -> String {
        if depth == 0 {
            return format!("date '{}'", self.day());
        }
        let depth = depth - 1;
        match self.below(4) {
            0 => format!("({})::date", self.instant(depth)),
            1 => format!("({})::date", self.local(depth)),
            2 => format!("({} - {})", self.date(depth), self.below(500)),
            _ => format!("({} + {})", self.date(depth), self.below(500)),
        }
    }

    fn length(&mut self, depth: u64) -> String {
        if depth == 0 {
            return self.written_length();
        }
        let depth = depth - 1;
        match self.below(8) {
            0 => format!("({} - {})", self.instant(depth), self.instant(0)),
            1 => format!("({} - {})", self.local(depth), self.local(0)),
            2 => format!("({} * {})", self.length(depth), self.one_of(&["2", "-3", "0.5", "1.25", "0.1"])),
            3 => format!("({} / {})", self.length(depth), self.one_of(&["2", "-4", "0.5", "3", "7"])),
            4 => format!("age({}, {})", self.local(depth), self.local(0)),
            5 => format!("age({}, {})", self.instant(depth), self.instant(0)),
            _ => format!("({} {} {})", self.length(depth), self.one_of(&["+", "-"]), self.length(0)),
        }
    }

    fn written_length(&mut self) -> String {
        let sign = self.one_of(&["", "", "", "-"]);
        let count = self.below(40);
        let text = match self.below(9) {
            0 => format!("{sign}{count} days"),
            1 => format!("{sign}{count} months"),
            2 => format!("{sign}{} years {count} days", self.below(4)),
            3 => format!("{sign}{count} hours"),
            4 => format!("{sign}1 day {sign}{:02}:{:02}:{:02}", self.below(30), self.below(60), self.below(60)),
            5 => format!(
                "{sign}{}.{} {}",
                self.below(9),
                self.one_of(&["5", "25"]),
                self.one_of(&["days", "months", "weeks", "years", "hours"])
            ),
            6 => format!("P{}Y{}M{}DT{}H{}M", self.below(3), self.below(14), count, self.below(30), self.below(70)),
            7 => format!("{}-{}", self.below(5), self.below(12)),
            _ => format!(
                "{} mons {sign}{} days {}:{:02}",
                self.below(20),
                self.below(40),
                self.below(50),
                self.below(60)
            ),
        };
        format!("interval '{text}'")
    }
}
