//! Labels to groups.
//!
//! * [`Catalog`]: one per data folder; databases, measurements, fields with their types, what metrics say of themselves.
//! * [`Groups`]: one per shard; a mutable segment of the index in memory and immutable ones ([`Segment`]) given as bytes.
//! * [`CompiledMatcher`]: a matcher ready to be tried.
//! * [`cardinality()`]: what makes a database large.
//! * [`CatalogEntry`], [`GroupEntry`]: what is said when something new appears, as log records hold it.
//!
//! The life of a group, file by file: `groups` (registered, found again, selected) · `mutable` (in memory) ·
//! `segment/writer` (frozen; merged, as `segment/levels` decides) · `segment/reader` (searched). `source` is what mutable and
//! immutable segments have in common, `matcher/search` the matchers over it.
//!
//! The crate opens no files: it writes to whatever takes bytes, and reads what is mapped for it.
//!
//! * `catalog`: databases, measurements, fields by name · `entry`: what the log and segments hold of something new · `error`: errors · `fuzzing`: entries for fuzzers
//! * `groups`: a shard's groups · `mutable`: the segment in memory · `segment`: those on disk, and which of them are merged
//! * `source`: what all segments offer · `matcher`: matchers, and selecting by them · `labels`: groups with their labels again, some of these, names and values · `cardinality`: counts
//! * `identity`: hashes of labels · `ids`: sets of groups · `slots`: sets of fields · `text`: interned texts

mod cardinality;
mod catalog;
mod entry;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod groups;
mod identity;
mod ids;
mod labels;
mod matcher;
mod mutable;
mod segment;
mod slots;
mod source;
mod text;

use model::Labels;

pub use cardinality::{Cardinality, NameCardinality, cardinality};
pub use catalog::{Catalog, CatalogError, FieldInfo, MetricColumns, UnsavedCatalog};
pub use entry::{CatalogEntry, GroupEntry, decode_entries, encode_entries, push_labels, take_labels};
pub use error::IndexError;
pub use groups::{FrozenGroups, Group, Groups, MergeJob, Selected};
pub use labels::names::TextSet;
pub use labels::project::{ProjectedReader, Projection};
pub use labels::reader::GroupReader;
pub use matcher::{CompiledMatcher, MatcherError, compile};
pub use roaring::RoaringBitmap;
pub use segment::copies::{SegmentBytes, SegmentCopy, SegmentTwin};
pub use segment::levels::{SegmentSize, segments_to_merge};
pub use segment::reader::Segment;
pub use slots::SlotSet;

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
