//! What follows the writes of a database: triggers with their hooks, subscriptions, and live streams, each over a cursor of the log; and the
//! refresher that keeps materialised views right.
//!
//! * `feed`: one reader of a database's log for all that follows it · `series_filter`: which series an account reads · `rows`: rows of tables in records
//! * [`tail`]: live streams
//! * [`delivery`]: jobs that send rows on, their documents and statements · `trigger`: conditions and what is done with their rows · `subscription`:
//!   InfluxDB's · [`hook`]: requests and signatures · `json`: values as text
//! * `refresh`: materialised views: which windows changed, computing them, the thread that does it

pub mod delivery;
mod feed;
pub mod hook;
mod json;
mod refresh;
mod rows;
mod series_filter;
mod subscription;
pub mod tail;
mod trigger;

pub use refresh::{RefreshLimits, RefreshThread, Refresher};
pub use subscription::{ORIGIN_HEADER, origin_text};
