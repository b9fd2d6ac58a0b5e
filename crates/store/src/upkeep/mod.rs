//! What an operator does with a folder, and what keeps it well: opening, checks, repairs, backups, figures.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod compact;
pub(crate) mod damage;
pub(crate) mod documents;
pub mod fuzzing;
pub(crate) mod health;
pub(crate) mod inspect;
pub(crate) mod lost_found;
pub(crate) mod maintain;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod recover;
pub(crate) mod repair;
pub(crate) mod reserve;
pub(crate) mod scrub;
pub(crate) mod stats;

use std::sync::Arc;

use health::Health;
use recover::Recovery;
use reserve::Reserve;
use scrub::Scrub;

use crate::flush::index_copies::IndexTwins;

/// The condition of an open folder, and what keeps it well.
pub(crate) struct Upkeep {
    recovery: Recovery,
    health: Arc<Health>,
    index_copies: Arc<IndexTwins>,
    scrub: Scrub,
    reserve: Reserve,
}

impl Upkeep {
    pub(crate) fn new(
        recovery: Recovery,
        health: Arc<Health>,
        index_copies: Arc<IndexTwins>,
        reserve: Reserve,
    ) -> Self {
        Self { recovery, health, index_copies, scrub: Scrub::default(), reserve }
    }

    /// What opening the folder found.
    pub(crate) const fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Present faults, for operators.
    pub(crate) const fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The second copies of index segments.
    pub(crate) const fn index_copies(&self) -> &Arc<IndexTwins> {
        &self.index_copies
    }
}
