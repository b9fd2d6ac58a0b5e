//! Parts of earlier versions, which have no labels: where they belong follows from what the index says of their series.
//!
//! A part's footer and index tell its times, sequence ids and series. Its shard is the one whose index has all of these series. It becomes a part
//! of level 0, which may overlap others, with a number by the age of its rows. What no file but the manifest told is gone: retentions and folds,
//! deletes that were not carried out yet, which parts were in the object store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use index::{Catalog, Groups, Segment, routing_hash};
use platform::{Files, Platform};

use super::{Evidence, KnownParts};
use crate::compaction::partition_of;
use crate::flush::segment::{GroupsFile, copies, open_groups, read_catalog};
use crate::log::frame::Frame;
use crate::log::reader::{Scan, ScanStart, SegmentBytes};
use crate::log::{LOG_SEGMENT_BYTES_MAX, record, segment_number, segment_path};
use crate::manifest::State;
use crate::part::{KeyCursor, MadeAt, Part, PartInfo, PartKey, summary};
use crate::retention::policy::DatabasePolicy;
use crate::upkeep::inspect;
use crate::{StoreError, StoreOptions};

/// A part without a label.
pub(super) struct UnlabelledPart {
    pub(super) path: PathBuf,
    /// As far as it is known.
    pub(super) info: PartInfo,
    keys: Vec<PartKey>,
    /// True if summaries stand for samples that are gone: how wide they are only a manifest says.
    is_folded: bool,
}

impl UnlabelledPart {
    /// Reads all of a part.
    pub(super) fn read(path: &Path, part: Part) -> Result<Self, StoreError> {
        part.verify()?;
        let part = Arc::new(part);
        let mut read = Self { path: path.to_owned(), info: part.info, keys: Vec::new(), is_folded: false };
        read.info.rows = 0;
        let mut cursor = KeyCursor::new(part.clone());
        while let Some(entry) = cursor.take()? {
            let decoded = part.read(&entry.chunks, Some(&[]))?;
            let rows: u64 = decoded.iter().map(|(_, rows)| rows.timestamps_ns.len() as u64).sum();
            read.info.rows += rows;
            if let Some(handle) = entry.summary {
                let nodes = summary::decode(&part.read_summary(handle)?, None);
                let nodes = nodes.map_err(|error| part.corrupt(handle.offset, &error))?;
                let samples =
                    |column: &summary::NodeColumn| column.nodes.iter().map(|(_, node)| node.count).sum::<u64>();
                read.is_folded |= nodes.columns.iter().any(|column| samples(column) > rows);
            }
            read.keys.push(entry.key);
        }
        Ok(read)
    }

    /// Returns whether a shard's index has all series of the part.
    fn fits(&self, groups: &Groups) -> bool {
        let is_there =
            |key: &PartKey| groups.family(key.group).is_ok_and(|place| place == Some((key.database, key.measurement)));
        self.keys.iter().all(is_there)
    }
}

/// The state of a folder none of whose parts has a label: the shards of its index segments follow from the labels of their series.
pub(super) fn state_of_index(
    platform: &Platform,
    directory: &Path,
) -> Result<(MadeAt, State, BTreeSet<u64>), StoreError> {
    let files = &*platform.files;
    let index = Index::read(files, directory)?;
    let owners = index.owners(files, directory)?;
    let shards = owners.values().max().map_or(0, |last| last + 1);
    let logged = shards_of_log(files, directory)?;
    if shards == 0 || logged > shards as usize {
        return Err(unknown(
            directory,
            &format!("{shards} shards have an index on disk, and the log has rows of {logged}"),
        ));
    }
    let mut incarnation = [0; 8];
    platform.random.fill(&mut incarnation).map_err(StoreError::io("make an identity for", directory))?;
    let state = State {
        incarnation: u64::from_le_bytes(incarnation),
        shards,
        segments: owners.into_iter().map(|(id, shard)| (id, Some(shard))).collect(),
        fast_partition_length_ns: StoreOptions::new(directory).partition_ns,
        ..State::default()
    };
    Ok((MadeAt::default(), state, BTreeSet::new()))
}

/// Why the folder cannot be put together, and what to do.
pub(super) fn unknown(directory: &Path, what: &str) -> StoreError {
    StoreError::Invalid(format!(
        "the parts of {} were written by earlier versions and do not say where they belong, and {what}: restore a backup (thalweg restore), \
         or with an object store run `thalweg rebuild`",
        directory.display()
    ))
}

/// The segments of groups, and the catalog that names what they have.
struct Index {
    catalog: Catalog,
    /// Those of groups.
    segments: Vec<u64>,
}

impl Index {
    fn read(files: &dyn Files, directory: &Path) -> Result<Self, StoreError> {
        let number = |name: &String| name.strip_suffix(".segment")?.parse::<u64>().ok();
        let ids: BTreeSet<u64> = inspect::list(files, &directory.join("index"))?.iter().filter_map(number).collect();
        let mut index = Self { catalog: Catalog::default(), segments: Vec::new() };
        for id in ids {
            let entries = copies(directory, id).iter().find_map(|path| read_catalog(files, path).ok());
            match entries {
                // What does not follow from entries before it names nothing.
                Some(entries) => entries.iter().for_each(|entry| drop(index.catalog.apply_saved(entry))),
                None if open_segment(files, directory, id).is_some() => index.segments.push(id),
                None => {}
            }
        }
        Ok(index)
    }

    /// The shard of each segment. There are as many shards as segments that begin with a shard's first group; which one a segment is of, the
    /// routing of its series says.
    fn owners(&self, files: &dyn Files, directory: &Path) -> Result<BTreeMap<u64, u32>, StoreError> {
        let groups = |ids: &[u64]| {
            let segments = ids.iter().map(|id| open_segment(files, directory, *id)).collect::<Option<Vec<_>>>()?;
            Groups::open(segments, 0).ok()
        };
        let (mut chains, mut others): (Vec<Vec<u64>>, Vec<u64>) = (Vec::new(), Vec::new());
        for id in &self.segments {
            match groups(&[*id]) {
                Some(_) => chains.push(vec![*id]),
                None => others.push(*id),
            }
        }
        let shards = chains.len() as u64;
        let mut owners = BTreeMap::new();
        for mut chain in chains {
            let first = groups(&chain).and_then(|groups| self.shard_of(&groups, 0, shards));
            let Some(shard) = first.filter(|shard| !owners.values().any(|known| known == shard)) else {
                return Err(unknown(directory, "its index segments belong to no number of shards"));
            };
            while let Some(before) = groups(&chain)
                && let Some(place) = others.iter().position(|id| {
                    let longer = groups(&[chain.as_slice(), &[*id]].concat());
                    longer.is_some_and(|longer| self.shard_of(&longer, before.next_id(), shards) == Some(shard))
                })
            {
                chain.push(others.remove(place));
            }
            owners.extend(chain.into_iter().map(|id| (id, shard)));
        }
        Ok(owners)
    }

    /// The shard that groups from one on are routed to, if it is the same for all.
    fn shard_of(&self, groups: &Groups, first: u32, shards: u64) -> Option<u32> {
        let mut reader = groups.reader();
        let mut shard = None;
        for id in first..groups.next_id() {
            let Some(group) = reader.get(id).ok()? else { continue };
            let name = self.catalog.measurement_name(group.measurement);
            let of_group = (routing_hash(group.database, name, &group.labels) % shards) as u32;
            if *shard.get_or_insert(of_group) != of_group {
                return None;
            }
        }
        shard
    }
}

fn open_segment(files: &dyn Files, directory: &Path, id: u64) -> Option<Segment> {
    let opened = copies(directory, id).iter().find_map(|path| open_groups(files, path, id, None).ok())?;
    match opened {
        GroupsFile::Segment(segment) => Some(*segment),
        GroupsFile::Entries(_) => None,
    }
}

/// One more than the largest shard that the log names.
fn shards_of_log(files: &dyn Files, directory: &Path) -> Result<usize, StoreError> {
    let directory = directory.join("log");
    let mut shards = 0;
    for number in inspect::list(files, &directory)?.iter().filter_map(|name| segment_number(name)) {
        let path = segment_path(&directory, number);
        let bytes = platform::read_file(files, &path, LOG_SEGMENT_BYTES_MAX);
        let bytes = bytes.map_err(StoreError::io("read log segment", &path))?;
        let segment = SegmentBytes { number, path: &path, bytes: &bytes, end: None };
        let visit = |frame: Frame<'_>| {
            match record::decode(frame.kind, frame.payload) {
                Ok(record::Record::Rows(rows, _)) => {
                    shards = rows.iter().map(|rows| rows.shard + 1).fold(shards, usize::max);
                }
                Ok(record::Record::Groups { shard, .. }) => shards = shards.max(shard + 1),
                _ => {}
            }
            Ok::<(), StoreError>(())
        };
        Scan::new(ScanStart::default()).segment(&segment, visit)?;
    }
    Ok(shards)
}

/// Adds the parts without labels that count and fit one shard. Returns what is missing.
pub(super) fn add_parts(
    files: &dyn Files,
    directory: &Path,
    evidence: &mut Evidence,
    state: &mut State,
    known: &KnownParts,
) -> Vec<String> {
    let mut unlabelled = std::mem::take(&mut evidence.unlabelled);
    if unlabelled.is_empty() {
        return Vec::new();
    }
    // Of two parts the one with later rows gets the larger number: what it has counts.
    unlabelled.sort_by_key(|part| (part.info.sequences.1, part.info.file, part.info.offset));
    let shards: Vec<Option<Groups>> =
        (0..state.shards).map(|shard| groups_of(files, directory, shard, state)).collect();
    for part in unlabelled {
        match locate(&part, &shards, state, known) {
            Ok(info) => {
                state.next_id = state.next_id.max(info.id + 1);
                state.parts.insert(info.id, info);
            }
            Err(why) => evidence.left_out.push((part.path, why)),
        }
    }
    // A file that holds a part which counts stays.
    let used: BTreeSet<PathBuf> = state.parts.values().map(|info| crate::part_path(directory, info.file)).collect();
    let mut missing = Vec::new();
    let mut files_left_out = BTreeSet::new();
    for (path, why) in std::mem::take(&mut evidence.left_out) {
        if used.contains(&path) {
            missing.push(format!("a part in {}: {why}", path.display()));
        } else if files_left_out.insert(path.clone()) {
            evidence.left_out.push((path, why));
        }
    }
    if !known.is_labelled {
        let lost = "parts of earlier versions do not tell it";
        missing.push(format!("retentions and folds of databases: {lost}, everything is kept"));
        missing.push(format!("deletes that were not carried out yet: {lost}, their rows are there again"));
        missing.push(format!("parts that are in the object store alone: {lost}"));
    }
    missing
}

fn groups_of(files: &dyn Files, directory: &Path, shard: u32, state: &State) -> Option<Groups> {
    let ids = state.segments.iter().filter(|(_, owner)| **owner == Some(shard)).map(|(id, _)| *id);
    Groups::open(ids.map(|id| open_segment(files, directory, id)).collect::<Option<_>>()?, 0).ok()
}

/// Where a part belongs, or why it is not known.
fn locate(
    part: &UnlabelledPart,
    shards: &[Option<Groups>],
    state: &State,
    known: &KnownParts,
) -> Result<PartInfo, String> {
    let found = part.info;
    let ids = known.is_labelled.then_some(&known.ids);
    let adopted = known.adopted.get(&(found.file, found.offset));
    if let Some(adopted) = adopted.filter(|adopted| known.ids.contains(&adopted.id)) {
        return Ok(*adopted);
    }
    if ids.is_some() && found.offset > 0 {
        return Err("it is not the first of its file, and no label says under which number it counts".to_owned());
    }
    if ids.is_some_and(|ids| !ids.contains(&found.file)) {
        return Err("its rows are in other parts or in the log, as far as parts tell".to_owned());
    }
    if part.is_folded {
        return Err("its samples were folded, and how only a manifest says".to_owned());
    }
    let fitting = (0..).zip(shards).filter(|(_, groups)| groups.as_ref().is_some_and(|groups| part.fits(groups)));
    let fitting: Vec<u32> = fitting.map(|(shard, _)| shard).collect();
    let [shard] = *fitting else {
        return Err(match fitting.len() {
            0 => "no shard's index has its series".to_owned(),
            count => format!("its series are in {count} shards alike, and it does not say of which it is"),
        });
    };
    let above =
        state.parts.values().find(|info| info.shard == shard && info.level > 0 && info.range.overlaps(&found.range));
    if let Some(above) = above {
        return Err(format!("which of its rows and those of part {} are newer is not known", above.id));
    }
    Ok(PartInfo {
        id: if ids.is_some() { found.file } else { state.next_id },
        shard,
        level: 0,
        class: class_of(part, state)?,
        partition: partition(&found, state.fast_partition_length_ns),
        // Deletes of its older rows were carried out when it was merged: else it would not have newer ones.
        deletes_through: found.sequences.1,
        ..found
    })
}

/// The retention class of the databases in a part.
fn class_of(part: &UnlabelledPart, state: &State) -> Result<u32, String> {
    let databases: BTreeSet<u32> = part.keys.iter().map(|key| key.database).collect();
    // What was written first has the smallest.
    let first = |policy: &DatabasePolicy| policy.earlier_classes.first().copied().unwrap_or(policy.class);
    let classes: BTreeSet<u32> =
        databases.iter().map(|database| state.policies.get(database).map_or(0, first)).collect();
    match classes.len() {
        0 | 1 => Ok(classes.first().copied().unwrap_or(0)),
        _ => Err("its databases are kept for different times".to_owned()),
    }
}

/// The smallest partition, of the fast tier's length or a double of it, that has all rows of a part.
fn partition(info: &PartInfo, length_ns: i64) -> model::TimeRange {
    let mut length_ns = length_ns.max(1);
    loop {
        let partition = partition_of(info.range.start_ns, length_ns);
        if partition.contains(info.range.end_ns) {
            return partition;
        }
        match length_ns.checked_mul(2) {
            Some(double_ns) => length_ns = double_ns,
            None => return model::TimeRange::new(partition.start_ns, info.range.end_ns),
        }
    }
}
