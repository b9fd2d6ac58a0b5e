//! The keys of a database: their settings, labels and rules, what is known of their newest samples.
//!
//! * [`settings`]: what a key has beside its samples, and its document
//! * [`catalog`]: all keys of a database in memory, by name and by label
//! * [`filter`]: the conditions of `FILTER`
//! * [`rows`]: reading and writing samples and documents in the database

pub mod catalog;
pub mod filter;
pub mod rows;
pub mod settings;

/// The table of samples.
pub const TABLE: &str = "ts";

/// The table of the keys' documents.
pub const KEYS_TABLE: &str = "ts_keys";

/// The label of a sample's key.
pub const KEY_LABEL: &str = "key";
