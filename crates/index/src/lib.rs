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
//! immutable segments have in common, `search` the matchers over it.
//!
//! The crate opens no files: it writes to whatever takes bytes, and reads what is mapped for it.
//!
//! * `catalog`: databases, measurements, fields by name · `entry`: what the log and segments hold of something new · `error`: errors
//! * `groups`: a shard's groups · `mutable`: the segment in memory · `segment`: those on disk, and which of them are merged
//! * `source`: what all segments offer · `search`, `matcher`: matchers over it · `labels`: groups with their labels again, some of these, names and values · `cardinality`: counts
//! * `identity`: hashes of labels · `ids`: sets of groups · `slots`: sets of fields · `text`: interned texts

mod cardinality;
mod catalog;
mod entry;
mod error;
mod groups;
mod identity;
mod ids;
mod labels;
mod matcher;
mod mutable;
mod search;
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

/// Reads bytes as a segment, and everything in it: the entry for fuzzing. The first two bytes say how many of the others are its
/// directory; magic and checksum are put around them, so that what is behind the directory is reached.
pub fn fuzz_segment(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let directory = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (body, directory) = rest.split_at(rest.len() - directory);
    if let Ok(segment) = Segment::open(0, std::sync::Arc::new(segment::enclosed(body, directory))) {
        segment.trust();
        fuzz_segment_opened(segment);
    }
}

/// Uses a segment that may be damaged in every way there is: the entry for fuzzing.
pub fn fuzz_segment_opened(segment: Segment) {
    let _ = segment.verify();
    let seed = segment.seed();
    let Ok(mut groups) = Groups::open(vec![segment], seed) else {
        return;
    };
    let ids: Vec<GroupId> = (0..groups.next_id().min(100)).collect();
    for id in &ids {
        let _ = (groups.get(*id), groups.slots(*id));
    }
    let everything = [MetricColumns { measurement: 0, slots: vec![0, 1, 2], decided: Vec::new() }];
    for (op, value) in [(model::MatchOp::Equal, "a"), (model::MatchOp::Regex, "a.*|.b"), (model::MatchOp::NotEqual, "")]
    {
        let matchers = CompiledMatcher::new(&model::Matcher::new("x", op, value));
        let _ = groups.select(0, &everything, &matchers.into_iter().collect::<Vec<_>>());
    }
    let chosen: RoaringBitmap = ids.iter().copied().collect();
    let mut texts = TextSet::default();
    let _ = groups.add_label_names(0, &chosen, &mut texts);
    let _ = groups.add_label_values((0, "x"), &chosen, &mut texts, &mut |_| true);
    let _ = cardinality(&[&groups], 0, 10, &|_| true);
    let _ = groups.register(0, 0, &Labels::empty(), &[0]);
    groups.remove(&chosen);
    let _ = groups.freeze().map(|frozen| frozen.write(&mut Vec::new()));
    let _ = groups.merge_due().map(|job| job.write(&mut Vec::new()));
}
