//! What is wrong with an open folder, for operators: checks that fail or warn at present, damage that was met, and data that is lost.
//!
//! Whatever notices a fault says so here, once; `/health`, the log and the counters read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use model::TimeRange;
use tracing_mutex::parkinglot::Mutex;

use crate::check::Damage;

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
    /// What is wrong and what to do.
    pub message: String,
}

/// Rows that the folder should hold and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The file that is missing or damaged.
    pub file: String,
    /// What is wrong with it.
    pub message: String,
    /// Where the rows were in time, as far as it is known.
    pub range: TimeRange,
}

/// The faults of one open folder.
#[derive(Default)]
pub struct Health {
    checks: Mutex<BTreeMap<&'static str, HealthCheck>>,
    damages: Mutex<Damages>,
    damages_total: AtomicU64,
    losses: Mutex<Vec<Loss>>,
}

#[derive(Default)]
struct Damages {
    /// File and offset of each block that was met: each is reported once.
    known: BTreeSet<(String, u64)>,
    listed: Vec<Damage>,
    /// Those that no caller has taken yet.
    unreported: Vec<Damage>,
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
        if damages.known.contains(&block) {
            return;
        }
        self.damages_total.fetch_add(1, Ordering::Relaxed);
        let message = format!("{} at offset {}: {}", damage.file, damage.offset, damage.message);
        if damages.listed.len() < LISTED_MAX {
            damages.known.insert(block);
            damages.listed.push(damage.clone());
            damages.unreported.push(damage);
        }
        drop(damages);
        self.set("damage", Some((CheckStatus::Warn, message)));
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
    pub fn set_losses(&self, losses: Vec<Loss>) {
        let message = losses.first().map(|first| {
            let more = if losses.len() > 1 { format!(" (and {} more)", losses.len() - 1) } else { String::new() };
            (CheckStatus::Warn, format!("{}: {}{more}", first.file, first.message))
        });
        *self.losses.lock() = losses;
        self.set("loss", message);
    }

    /// What is lost and not yet acknowledged: answers whose range it touches carry a warning.
    pub fn losses(&self) -> Vec<Loss> {
        self.losses.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(health.checks().iter().map(|check| check.name).collect::<Vec<_>>(), ["damage"]);
        health.set("damage", None);
        assert_eq!(health.checks(), []);
    }
}
