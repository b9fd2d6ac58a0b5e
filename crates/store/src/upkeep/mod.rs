//! What an operator does with a folder, and what keeps it well: opening, checks, repairs, backups, figures.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod compact;
pub(crate) mod health;
pub(crate) mod inspect;
pub(crate) mod lost_found;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod recover;
pub(crate) mod repair;
pub(crate) mod reserve;
pub(crate) mod scrub;
pub(crate) mod stats;
