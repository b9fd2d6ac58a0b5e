//! Labels to groups.
//!
//! * [`Catalog`]: one per data folder; databases, measurements, fields with their types, what metrics say of themselves.
//! * [`Groups`]: one per shard; the groups' identities and schemas, and the postings that matchers search.
//! * [`CompiledMatcher`]: a matcher ready to be tried.
//! * [`CatalogEntry`], [`GroupEntry`]: what is said when something new appears; the same in log records and in
//!   segments on disk. Catalog and groups are nothing but the sum of their entries.
//!
//! The crate opens no files: it turns entries into bytes and back.

mod catalog;
mod entry;
mod groups;
mod matcher;
mod postings;

use model::Labels;

pub use catalog::{Catalog, CatalogError, FieldInfo, MetricColumns};
pub use entry::{CatalogEntry, GroupEntry, decode_entries, encode_entries};
pub use groups::{Group, Groups, SchemaId};
pub use matcher::{CompiledMatcher, MatcherError, compile};
pub use roaring::RoaringBitmap;

/// Number of a database in a data folder.
pub type DatabaseId = u32;
/// Number of a measurement in a data folder.
pub type MeasurementId = u32;
/// Number of a group in a shard; never used again.
pub type GroupId = u32;
/// Number of a field in its measurement: only ever appended.
pub type Slot = u32;

/// The hash that spreads groups over shards. It must never change: a group's shard follows from it.
pub fn routing_hash(database: DatabaseId, measurement: &str, labels: &Labels) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    hasher.update(&database.to_le_bytes());
    hasher.update(&(measurement.len() as u64).to_le_bytes());
    hasher.update(measurement.as_bytes());
    hasher.update(labels.packed().as_bytes());
    hasher.digest()
}
