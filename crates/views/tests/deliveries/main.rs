//! Triggers, subscriptions and live streams in simulated time: receivers that are down, refuse, hang and answer late, restarts and crashes.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests")]

mod backup;
mod streams;
mod subscriptions;
mod triggers;
mod world;
