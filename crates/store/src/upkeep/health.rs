//! What is wrong with an open folder, for operators: checks that fail or warn at present, damage that was met, and data that is lost.
//!
//! Whatever notices a fault says so here, once; `/health`, the log and the counters read it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use model::TimeRange;
use tracing_mutex::parkinglot::Mutex;

use crate::upkeep::damage::Damage;

/// Damages and losses that are listed; further ones are only counted.
const LISTED_MAX: usize = 1_000;

/// How much a failing check matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckStatus {
    /// The operator should look; the server goes on.
    Warn,
    /// The server cannot do its work; a restart may help.
    Fail,
}

/// A check that does not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// Which one: `clock`, `damage`, `loss`, `objects`, `disk`, …
    pub name: &'static str,
    /// How much it matters.
    pub status: CheckStatus,
    /// The fault, and what to do.
    pub message: String,
}

/// Rows that the folder should hold and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The file that is missing or damaged.
    pub file: String,
    /// The fault of the file.
    pub message: String,
    /// Where the rows were in time, as far as it is known.
    pub range: TimeRange,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {} ", self.file, self.message)?;
        match (self.range.start_ns, self.range.end_ns) {
            (i64::MIN, i64::MAX) => formatter.write_str("(of what time is not known)"),
            (start_ns, end_ns) => write!(formatter, "(from {} to {})", time_text(start_ns), time_text(end_ns)),
        }
    }
}

/// A timestamp as RFC 3339 has it, in whole seconds.
pub(crate) fn time_text(timestamp_ns: i64) -> String {
    let seconds = timestamp_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 1 March of the year 0, in eras of 400 years: Howard Hinnant's `civil_from_days`.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// The faults of one open folder.
#[derive(Default)]
pub struct Health {
    checks: Mutex<BTreeMap<&'static str, HealthCheck>>,
    damages: Mutex<Damages>,
    damages_total: AtomicU64,
    losses: Mutex<Vec<Loss>>,
    /// True if there are any: asked by every query.
    has_losses: AtomicBool,
}

#[derive(Default)]
struct Damages {
    /// Damage that was not repaired yet, by file and offset: each block is reported once.
    standing: BTreeMap<(String, u64), String>,
    listed: Vec<Damage>,
    /// True if there was more than can be listed: of that it is not known whether it was repaired.
    has_more: bool,
    /// Those that no caller has taken yet.
    unreported: Vec<Damage>,
}

impl Damages {
    /// The state of the check `damage`.
    fn check(&self) -> Option<(CheckStatus, String)> {
        let first = self.standing.iter().next();
        let first = first.map(|((file, offset), message)| format!("{file} at offset {offset}: {message}"));
        let more = self.standing.len().saturating_sub(1);
        let message = match (first, self.has_more) {
            (None, false) => return None,
            (None, true) => "more damage was met than is listed: see the log".to_owned(),
            (Some(first), true) => format!("{first} (and more than {more} more)"),
            (Some(first), false) if more > 0 => format!("{first} (and {more} more)"),
            (Some(first), false) => first,
        };
        Some((CheckStatus::Warn, message))
    }
}

impl Health {
    /// Sets or clears the check of that name.
    pub fn set(&self, name: &'static str, failing: Option<(CheckStatus, String)>) {
        let mut checks = self.checks.lock();
        match failing {
            None => checks.remove(name),
            Some((status, message)) => checks.insert(name, HealthCheck { name, status, message }),
        };
    }

    /// The checks that do not pass, by name.
    pub fn checks(&self) -> Vec<HealthCheck> {
        self.checks.lock().values().cloned().collect()
    }

    /// Records damage that a reader met. A block counts once, however often it is read.
    pub fn report_damage(&self, damage: Damage) {
        let mut damages = self.damages.lock();
        let block = (damage.file.clone(), damage.offset);
        if damages.standing.contains_key(&block) {
            return;
        }
        self.damages_total.fetch_add(1, Ordering::Relaxed);
        if damages.listed.len() < LISTED_MAX {
            damages.standing.insert(block, damage.message.clone());
            damages.listed.push(damage.clone());
            damages.unreported.push(damage);
        } else {
            damages.has_more = true;
        }
        self.set("damage", damages.check());
    }

    /// A file is whole again, or gone for good, in a range of offsets: its damage does not stand any more.
    pub(crate) fn repaired(&self, file: &str, offsets: Range<u64>) {
        let mut damages = self.damages.lock();
        let before = damages.standing.len();
        damages.standing.retain(|(damaged, offset), _| damaged != file || !offsets.contains(offset));
        if damages.standing.len() != before {
            self.set("damage", damages.check());
        }
    }

    /// Damage that was met since the folder was opened, the first of it.
    pub fn damages(&self) -> Vec<Damage> {
        self.damages.lock().listed.clone()
    }

    /// How many damaged blocks were met since the folder was opened.
    pub fn damages_total(&self) -> u64 {
        self.damages_total.load(Ordering::Relaxed)
    }

    /// Damage that was met since the last call: for the log, which names each block once.
    pub fn take_unreported(&self) -> Vec<Damage> {
        std::mem::take(&mut self.damages.lock().unreported)
    }

    /// Replaces the list of what is lost and not yet acknowledged by an operator.
    pub(crate) fn set_losses(&self, losses: Vec<Loss>) {
        let message = losses.first().map(|first| {
            let more = if losses.len() > 1 { format!(" (and {} more)", losses.len() - 1) } else { String::new() };
            (CheckStatus::Warn, format!("{}: {}{more}", first.file, first.message))
        });
        self.has_losses.store(!losses.is_empty(), Ordering::Relaxed);
        *self.losses.lock() = losses;
        self.set("loss", message);
    }

    /// Returns whether anything is lost and not yet acknowledged.
    pub fn has_losses(&self) -> bool {
        self.has_losses.load(Ordering::Relaxed)
    }

    /// A warning for an answer about a range of time (`None`: it is not known which), if lost rows may have been in it.
    pub fn loss_warning(&self, range: Option<&TimeRange>) -> Option<String> {
        if !self.has_losses() {
            return None;
        }
        let losses = self.losses();
        let mut hit = losses.iter().filter(|loss| range.is_none_or(|range| range.overlaps(&loss.range)));
        let first = hit.next()?;
        let more = hit.count();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!(
            "rows may be missing from this answer, because data was lost: {first}{more}; see /api/v1/admin/losses"
        ))
    }

    /// Losses that no operator has acknowledged yet: answers whose range they touch carry a warning.
    pub fn losses(&self) -> Vec<Loss> {
        self.losses.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_about_lost_time_are_warned_of() {
        let health = Health::default();
        let range = |start_ns, end_ns| TimeRange::new(start_ns, end_ns);
        assert_eq!(health.loss_warning(None), None);
        let loss = |range| Loss { file: "7.part".to_owned(), message: "the file is missing;".to_owned(), range };
        health.set_losses(vec![loss(range(10, 20))]);
        assert_eq!(health.loss_warning(Some(&range(21, 30))), None);
        for asked in [Some(range(20, 30)), None] {
            assert!(health.loss_warning(asked.as_ref()).is_some_and(|text| text.contains("7.part")));
        }
        health.set_losses(Vec::new());
        assert_eq!(health.loss_warning(None), None);
    }

    #[test]
    fn times_are_told_as_calendars_do() {
        for (timestamp_ns, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_700_000_000_000_000_000, "2023-11-14T22:13:20Z"),
            (1_709_164_800_000_000_000, "2024-02-29T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (i64::MIN, "1677-09-21T00:12:43Z"),
        ] {
            assert_eq!(time_text(timestamp_ns), text);
        }
    }

    #[test]
    fn a_damaged_block_is_reported_once() {
        let health = Health::default();
        let damage = |offset| Damage { file: "a".to_owned(), offset, message: "wrong".to_owned() };
        for offset in [1, 1, 2] {
            health.report_damage(damage(offset));
        }
        assert_eq!(health.damages_total(), 2);
        assert_eq!(health.take_unreported(), [damage(1), damage(2)]);
        assert_eq!(health.take_unreported(), []);
        assert_eq!(health.damages(), [damage(1), damage(2)]);
        let names = || health.checks().iter().map(|check| check.name).collect::<Vec<_>>();
        assert_eq!(names(), ["damage"]);
        // It is over once everything was repaired, and is reported anew after that.
        health.repaired("b", 0..u64::MAX);
        health.repaired("a", 0..2);
        assert_eq!(names(), ["damage"]);
        health.repaired("a", 2..3);
        assert_eq!(health.checks(), []);
        health.report_damage(damage(2));
        assert_eq!((names(), health.damages_total(), health.damages().len()), (vec!["damage"], 3, 3));
    }
}
