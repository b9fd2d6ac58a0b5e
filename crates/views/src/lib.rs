//! What follows the writes of a database: triggers with their hooks, subscriptions, and live streams, each over a cursor of the log; and the
//! refresher that keeps materialised views right.
//!
//! * `refresh`: materialised views: which windows changed, computing them, the thread that does it

mod refresh;

pub use refresh::{RefreshLimits, RefreshThread, Refresher};
