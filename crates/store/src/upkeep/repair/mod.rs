//! A manifest for a folder that has none which can be read, put together from what parts say of themselves.
//!
//! The newest label tells what the manifest said when its part was begun. Parts that it names and that are there count. Of later parts those
//! of flushes count, and those of a merge if one of its inputs is gone: inputs go only once the merge is committed. All else is moved to
//! `lost+found`. Parts of earlier versions have no label: see [`unlabelled`].

mod unlabelled;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use codec::DecodeError;
use index::Groups;
use model::TimeRange;
use platform::{Files, Platform};

use crate::flush::segment::{GroupsFile, copies, open_groups, read_catalog, segment_path};
use crate::log::{note, segment_number};
use crate::manifest::twin;
use crate::manifest::{Manifest, State, read_folder_label};
use crate::part::{self, KeyCursor, MadeAt, Part, PartData, PartInfo, PartLabel};
use crate::upkeep::inspect;
use crate::upkeep::lost_found;
use crate::upkeep::recover;
use crate::write::exemplars::{self, EXEMPLARS_SHARD};
use crate::write::producers::{self, PRODUCERS_SHARD};
use crate::{Loss, StoreError, part_path};
use unlabelled::UnlabelledPart;

/// What repairing did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// True if a copy of the manifest can be read: then nothing is to be done.
    pub is_readable: bool,
    /// The manifest's record that the newest part knew of.
    pub edition: u64,
    /// Parts that count.
    pub parts: u64,
    /// Their rows.
    pub rows: u64,
    /// The newest timestamp in them, in nanoseconds since the Unix epoch.
    pub newest_ns: Option<i64>,
    /// Index segments that count.
    pub segments: u64,
    /// Files that are moved to `lost+found`, with the reason.
    pub left_out: Vec<String>,
    /// Files and settings that were there and are not any more.
    pub missing: Vec<String>,
}

/// A part that was found.
struct FoundPart {
    info: PartInfo,
    made_at: MadeAt,
    replaces: Vec<u64>,
}

/// The parts that the newest label names, if there is one.
struct KnownParts {
    is_labelled: bool,
    ids: BTreeSet<u64>,
    /// Those that a merge adopted as they lie, by file and offset.
    adopted: BTreeMap<(u64, u64), PartInfo>,
}

/// What the folder's files say.
#[derive(Default)]
struct Evidence {
    /// By number.
    parts: BTreeMap<u64, FoundPart>,
    /// What the newest label says: when, the state, the numbers of its parts.
    newest: Option<(MadeAt, State, BTreeSet<u64>)>,
    /// Parts of earlier versions.
    unlabelled: Vec<UnlabelledPart>,
    /// Files that cannot be used, with the reason.
    left_out: Vec<(PathBuf, String)>,
}

/// Puts a manifest together for a folder that has none which can be read; nothing else is lost by it. With `is_dry` it only says what it
/// would do.
pub fn repair(platform: &Platform, directory: &Path, is_dry: bool) -> Result<RepairReport, StoreError> {
    let files = &*platform.files;
    inspect::list(files, &directory.join("parts"))?;
    let _lock = recover::lock(files, directory)?;
    match twin::read(files, directory) {
        Ok(Some(found)) => {
            let edition = found.state.edition;
            return Ok(RepairReport { is_readable: true, edition, ..RepairReport::default() });
        }
        Ok(None) | Err(StoreError::Corrupt { .. }) => {}
        // It may be whole: of a newer version, or what cannot be read now.
        Err(error) => return Err(error),
    }
    let mut evidence = gather(files, directory)?;
    let newest = evidence.newest.take();
    let is_labelled = newest.is_some();
    let (made_at, mut state, ids) = match newest {
        Some(newest) => newest,
        None if evidence.unlabelled.is_empty() => {
            return Err(unlabelled::unknown(directory, "there is no part that can be read"));
        }
        None => unlabelled::state_of_index(platform, directory)?,
    };
    let mut report = RepairReport { edition: made_at.edition, ..RepairReport::default() };
    // Where a merge adopted a part as it lies, the label still has its former number.
    let adopted = std::mem::take(&mut state.parts).into_values().map(|info| ((info.file, info.offset), info)).collect();
    let known = KnownParts { is_labelled, ids, adopted };
    choose_parts(&mut evidence, &mut state, &known, directory, &mut report);
    choose_segments(files, directory, &mut state, &mut evidence, &mut report)?;
    report.missing.extend(unlabelled::add_parts(files, directory, &mut evidence, &mut state, &known));
    fit_log(files, directory, &mut state)?;
    report.parts = state.parts.len() as u64;
    report.rows = state.parts.values().map(|part| part.rows).sum();
    report.newest_ns = state.parts.values().map(|part| part.range.end_ns).max();
    report.segments = state.segments.len() as u64;
    let left_out = |(path, why): &(PathBuf, String)| format!("{}: {why}", path.display());
    report.left_out = evidence.left_out.iter().map(left_out).collect();
    if !is_dry {
        let epoch = state.epoch;
        let kept: Vec<PathBuf> = evidence.left_out.into_iter().map(|(path, _)| path).collect();
        if !kept.is_empty() {
            lost_found::set_aside(files, directory, &kept, epoch, u64::MAX)?;
        }
        doubt(&mut state, directory);
        twin::set_aside(files, directory)?;
        Manifest::write(files, directory, state)?;
    }
    Ok(report)
}

/// Data that stood in no part of this folder is unknown, as are the numbers in use: answers warn of it, and the object store is left as
/// it is, until an operator acknowledges that.
fn doubt(state: &mut State, directory: &Path) {
    let message = "put together by `thalweg repair`: what only the object store has is not in it, and stays there until this is \
                   acknowledged (thalweg losses --acknowledge)";
    let file = directory.join(twin::NAMES[0]).display().to_string();
    state.losses.push(Loss { file, message: message.to_owned(), range: TimeRange::ALL });
    state.begin_life();
}

/// Reads every part file to its end.
fn gather(files: &dyn Files, directory: &Path) -> Result<Evidence, StoreError> {
    let mut evidence = Evidence::default();
    for name in inspect::list(files, &directory.join("parts"))? {
        let Some(file) = name.strip_suffix(".part").and_then(|number| number.parse::<u64>().ok()) else { continue };
        let path = part_path(directory, file);
        match read_file(files, &path, file) {
            Ok(parts) => {
                for part in parts {
                    match part {
                        PartOfFile::Labelled(found, folder) => {
                            evidence.add_label(&found, &folder, &path);
                            evidence.parts.insert(found.info.id, found);
                        }
                        PartOfFile::Unlabelled(part) => evidence.unlabelled.push(part),
                    }
                }
            }
            Err(error @ (StoreError::Corrupt { .. } | StoreError::Invalid(_))) => {
                evidence.left_out.push((path, error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(evidence)
}

impl Evidence {
    fn add_label(&mut self, found: &FoundPart, folder: &[u8], path: &Path) {
        let key = |made_at: &MadeAt| (made_at.epoch, made_at.edition);
        let is_newer = self.newest.as_ref().is_none_or(|(newest, ..)| key(&found.made_at) > key(newest));
        if folder.is_empty() || !is_newer {
            return;
        }
        match read_folder_label(folder) {
            Ok((state, ids)) => self.newest = Some((found.made_at, state, ids)),
            Err(DecodeError { what, .. }) => self.left_out.push((path.to_owned(), format!("its label: {what}"))),
        }
    }
}

/// A part, read and checked.
enum PartOfFile {
    /// With what its label says of the folder.
    Labelled(FoundPart, Vec<u8>),
    Unlabelled(UnlabelledPart),
}

/// The parts of a file.
fn read_file(files: &dyn Files, path: &Path, file: u64) -> Result<Vec<PartOfFile>, StoreError> {
    let mut found = Vec::new();
    for end in part::scan_file(files, path)? {
        let place = PartInfo {
            offset: end.offset,
            bytes: end.bytes,
            range: end.range,
            sequences: end.sequences,
            chunks: end.chunks,
            ..PartInfo::empty(file, 0, 0, 0, end.range)
        };
        let open = || PartData::open_local(files, path.to_owned(), &place);
        let Some(label) = PartLabel::read(&open()?)? else {
            found.push(PartOfFile::Unlabelled(UnlabelledPart::read(path, Part::open(open()?, place)?)?));
            continue;
        };
        let partition = label.info.partition;
        let info = PartInfo { file, partition, rows: rows(Part::open(open()?, place)?)?, ..place };
        let of_label = label.info;
        let info = PartInfo {
            id: of_label.id,
            shard: of_label.shard,
            level: of_label.level,
            class: of_label.class,
            patch_of: of_label.patch_of,
            fold_ns: of_label.fold_ns,
            deletes_through: of_label.deletes_through,
            ..info
        };
        let found_part = FoundPart { info, made_at: label.made_at, replaces: label.replaces };
        found.push(PartOfFile::Labelled(found_part, label.folder));
    }
    Ok(found)
}

/// How many rows a part has.
fn rows(part: Part) -> Result<u64, StoreError> {
    part.verify()?;
    let part = std::sync::Arc::new(part);
    let mut cursor = KeyCursor::new(part.clone());
    let mut rows = 0;
    while let Some(entry) = cursor.take()? {
        for (_, decoded) in part.read(&entry.chunks, Some(&[]))? {
            rows += decoded.timestamps_ns.len() as u64;
        }
    }
    Ok(rows)
}

/// Which parts count.
fn choose_parts(
    evidence: &mut Evidence,
    state: &mut State,
    known: &KnownParts,
    directory: &Path,
    report: &mut RepairReport,
) {
    let KnownParts { ids, adopted, .. } = known;
    let present: BTreeMap<u64, PartInfo> = evidence
        .parts
        .values()
        .map(|found| adopted.get(&(found.info.file, found.info.offset)).copied().unwrap_or(found.info))
        .map(|info| (info.id, info))
        .collect();
    // A merge that nothing knows of was committed if an input of it is gone.
    let of_merges = evidence.parts.values().filter(|found| !found.replaces.is_empty() && !ids.contains(&found.info.id));
    let (mut done, mut replaced) = (BTreeSet::new(), BTreeSet::new());
    for found in of_merges {
        let known = found.replaces.iter().all(|id| ids.contains(id));
        if known && found.replaces.iter().any(|id| !present.contains_key(id)) {
            done.insert(found.info.id);
            replaced.extend(found.replaces.iter().copied());
        }
    }
    let counts = |info: &PartInfo| {
        let is_of_flush = evidence.parts.get(&info.id).is_some_and(|found| found.replaces.is_empty());
        // Flushed after the label was written: its rows were in no part then.
        let is_newer = info.sequences.1 > state.flushed.get(&info.shard).copied().unwrap_or(0);
        !replaced.contains(&info.id) && (ids.contains(&info.id) || done.contains(&info.id) || is_of_flush && is_newer)
    };
    let chosen: BTreeMap<u64, PartInfo> =
        present.iter().filter(|(_, info)| counts(info)).map(|(id, info)| (*id, *info)).collect();
    let used: BTreeSet<u64> = chosen.values().map(|info| info.file).collect();
    let unused: BTreeSet<u64> = present.values().map(|info| info.file).filter(|file| !used.contains(file)).collect();
    let why = "its rows are in other parts or in the log, as far as parts tell";
    evidence.left_out.extend(unused.iter().map(|file| (part_path(directory, *file), why.to_owned())));
    let unlabelled: BTreeSet<u64> = evidence.unlabelled.iter().map(|part| part.info.file).collect();
    let is_there = |id: &u64| {
        let file = adopted.values().find(|info| info.id == *id).map_or(*id, |info| info.file);
        present.contains_key(id) || unlabelled.contains(&file)
    };
    let gone = ids.iter().filter(|id| !is_there(id) && !replaced.contains(id));
    report
        .missing
        .extend(gone.map(|id| format!("part {id}: no file of this folder has it; it may be in the object store")));
    let last = present.keys().chain(&used).chain(&unlabelled).chain(ids).max().copied().unwrap_or(0);
    state.next_id = state.next_id.max(last + 1);
    state.parts = chosen;
}

/// Which index segments count: those that the label names, and those that take the place of missing ones or go on after them.
fn choose_segments(
    files: &dyn Files,
    directory: &Path,
    state: &mut State,
    evidence: &mut Evidence,
    report: &mut RepairReport,
) -> Result<(), StoreError> {
    let number = |name: &String| {
        let number = name.strip_suffix(".segment").or_else(|| name.strip_suffix(".twin"))?;
        number.parse::<u64>().ok()
    };
    let present: BTreeSet<u64> = inspect::list(files, &directory.join("index"))?.iter().filter_map(number).collect();
    state.next_id = state.next_id.max(present.last().map_or(0, |last| last + 1));
    let missing: Vec<u64> = state.segments.keys().filter(|id| !present.contains(id)).copied().collect();
    state.segments.retain(|id, _| present.contains(id));
    let mut unknown: BTreeSet<u64> = present.iter().filter(|id| !state.segments.contains_key(id)).copied().collect();
    for id in unknown.clone() {
        let owner = copies(directory, id).iter().find_map(|path| match read_catalog(files, path) {
            Ok(_) => Some(None),
            Err(_) if exemplars::load(files, path, usize::MAX).is_ok() => Some(Some(EXEMPLARS_SHARD)),
            Err(_) if producers::load(files, path).is_ok() => Some(Some(PRODUCERS_SHARD)),
            Err(_) => None,
        });
        if let Some(owner) = owner {
            state.segments.insert(id, owner);
            unknown.remove(&id);
        }
    }
    for shard in 0..state.shards {
        add_groups(files, directory, shard, state, &mut unknown)?;
    }
    let why = "it belongs to no shard, as far as parts tell";
    evidence.left_out.extend(unknown.iter().map(|id| (segment_path(directory, *id), why.to_owned())));
    report.missing.extend(missing.iter().map(|id| format!("index segment {id}: replaced by another, or lost")));
    Ok(())
}

/// Adds segments to a shard until its groups follow one another, and those that go on after them.
fn add_groups(
    files: &dyn Files,
    directory: &Path,
    shard: u32,
    state: &mut State,
    unknown: &mut BTreeSet<u64>,
) -> Result<(), StoreError> {
    let mut chain: Vec<u64> =
        state.segments.iter().filter(|(_, owner)| **owner == Some(shard)).map(|(id, _)| *id).collect();
    loop {
        let with = |more: &[u64]| [chain.as_slice(), more].concat();
        let singles = unknown.iter().map(|id| vec![*id]);
        let pairs = unknown.iter().flat_map(|a| unknown.iter().filter(move |b| a < *b).map(move |b| vec![*a, *b]));
        let is_whole = follows(files, directory, &chain);
        let mut more = singles.chain(pairs.filter(|_| !is_whole)).filter(|more| follows(files, directory, &with(more)));
        match (more.next(), is_whole) {
            (Some(more), _) => {
                chain = with(&more);
                for id in more {
                    unknown.remove(&id);
                    state.segments.insert(id, Some(shard));
                }
            }
            (None, true) => return Ok(()),
            (None, false) => {
                let path = directory.join("index");
                let message = format!(
                    "the index of shard {shard} is not whole: restore a backup into a new folder (thalweg restore)"
                );
                return Err(StoreError::corrupt(&path, 0, message));
            }
        }
    }
}

/// Returns whether segments make up a shard's index.
fn follows(files: &dyn Files, directory: &Path, ids: &[u64]) -> bool {
    let mut segments = Vec::new();
    for id in ids {
        // One copy is enough.
        let opened = copies(directory, *id).iter().find_map(|path| open_groups(files, path, *id, None).ok());
        match opened {
            Some(GroupsFile::Segment(segment)) => segments.push(*segment),
            Some(GroupsFile::Entries(_)) => {}
            None => return false,
        }
    }
    Groups::open(segments, 0).is_ok()
}

/// What the label did not know of the log: which segments were given up since, and how often the folder was opened.
fn fit_log(files: &dyn Files, directory: &Path, state: &mut State) -> Result<(), StoreError> {
    let directory = directory.join("log");
    let first = inspect::list(files, &directory)?.iter().filter_map(|name| segment_number(name)).min();
    let note = note::read(files, &directory)?;
    let first = first.or(note.map(|note| note.newest.saturating_add(1))).unwrap_or(0);
    state.log_released = state.log_released.max(first.saturating_sub(1));
    let released = state.log_released;
    state.log_ends.retain(|segment, _| *segment > released);
    state.epoch = state.epoch.max(note.map_or(0, |note| note.epoch));
    Ok(())
}
