//! Which files exist and how far they go: the only commit point. A file that it does not name does not exist.
//!
//! `MANIFEST` starts with a snapshot and goes on with edits; each is a record of checksum, length and payload that is
//! taken whole or not at all. At every opening it is written anew. `MANIFEST.twin` says the same ([`crate::manifest::twin`]).
//! Layout: `docs/formats/manifest.md`.

mod commit;
mod epochs;
pub(crate) mod tail;
pub(crate) mod twin;

mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use codec::{DecodeError, Reader, varint};
use model::TimeRange;

use crate::Loss;
use crate::error;
use crate::part::epochs::definition::RegularDefinition;
use crate::part::{PartInfo, PartLocations};
use crate::retention::deletes::Delete;
use crate::retention::policy::DatabasePolicy;

pub(crate) use epochs::{EpochEdit, EpochFileInfo};
pub(crate) use file::Manifest;

const MAGIC: &[u8; 8] = b"THWGMANI";
const VERSION: u32 = 3;

/// Of this version there is no twin, and records have no editions.
const VERSION_TWO: u32 = 2;

/// Of this version records also lie one after another, whatever sectors they begin in.
const VERSION_ONE: u32 = 1;

/// What a disk writes whole or not at all, in bytes. A record begins with eight that tell how long it is: were they in two sectors, half
/// of them could be there after a crash, and it could not be told from damage.
const SECTOR_BYTES: u64 = 512;
const RECORD_HEADER_BYTES: u64 = 8;

const HEADER_BYTES: usize = 16;
/// The largest number that a file may have.
const NUMBER_MAX: u64 = u64::MAX >> 1;

/// A change of what exists.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Edit {
    /// Made with the folder and never changed.
    Identity { incarnation: u64, shards: u32 },
    /// One more with every opening.
    Epoch(u64),
    /// All of a shard's rows up to the sequence id are in parts.
    Flushed { shard: u32, sequence: u64 },
    /// A part exists.
    AddPart(PartInfo),
    /// A part does not exist any more.
    RemovePart(u64),
    /// An index segment exists: of a shard, or of the catalog.
    AddSegment { id: u64, shard: Option<u32> },
    /// An index segment does not exist any more.
    RemoveSegment(u64),
    /// The records of a log segment that count end there; nothing is appended to it any more.
    LogEnded { segment: u32, end: u64 },
    /// Log segments up to this one hold nothing that is needed.
    LogReleased { through: u32 },
    /// Files from this number on are new.
    NextId(u64),
    /// Where a part's bytes are now.
    Moved { id: u64, locations: PartLocations },
    /// Length of partitions on the fast tier, in nanoseconds.
    FastLength(i64),
    /// How a database keeps its data.
    Policy { database: u32, policy: DatabasePolicy },
    /// Rows of a shard are masked.
    AddDelete { shard: u32, delete: Delete },
    /// Nothing of a shard is masked by the delete any more.
    RemoveDelete { shard: u32, sequence: u64 },
    /// Keys of the folder's objects begin with this incarnation, that of the folder that it was rebuilt from.
    ObjectsOf { incarnation: u64 },
    /// The time that retention goes by had come so far.
    TrustedTime(i64),
    /// A part is in the trash since then: its rows are gone, its file is still there.
    Expired { id: u64, at_ns: i64 },
    /// A part is not in the trash any more.
    Emptied { id: u64 },
    /// The record's number: one more than the record's before it.
    Edition(u64),
    /// Rows are lost, and an operator went on without them.
    AddLoss(Loss),
    /// An operator has seen all losses.
    ForgetLosses,
    /// Records are missing in a log segment from an offset on, and an operator went on without them.
    LogGap { segment: u32, offset: u64 },
    /// A named document exists, in place of one of its kind and name.
    PutDocument { kind: String, name: String, bytes: Arc<[u8]> },
    /// A named document does not exist any more.
    RemoveDocument { kind: String, name: String },
    /// Regular databases and their files of epochs.
    Epochs(EpochEdit),
}

/// A part that is past keeping and whose file is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trashed {
    pub(crate) info: PartInfo,
    /// Since when it is in the trash, by the trusted time.
    pub(crate) at_ns: i64,
}

/// What exists.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    pub(crate) incarnation: u64,
    pub(crate) shards: u32,
    pub(crate) epoch: u64,
    pub(crate) flushed: BTreeMap<u32, u64>,
    pub(crate) parts: BTreeMap<u64, PartInfo>,
    pub(crate) segments: BTreeMap<u64, Option<u32>>,
    pub(crate) log_ends: BTreeMap<u32, u64>,
    /// Segments of the log up to this one are given up. Their removal may still be undone by a crash.
    pub(crate) log_released: u32,
    pub(crate) next_id: u64,
    /// 0 until the first change.
    pub(crate) fast_partition_length_ns: i64,
    pub(crate) policies: BTreeMap<u32, DatabasePolicy>,
    /// By shard and sequence id.
    pub(crate) deletes: BTreeMap<(u32, u64), Delete>,
    /// Of a folder that was rebuilt from objects: the incarnation under which those lie.
    pub(crate) objects_of: Option<u64>,
    /// The time that retention goes by; unknown of a folder that only earlier versions had open.
    pub(crate) trusted_ns: Option<i64>,
    /// Parts past their retention whose files are still there, by the part's number.
    pub(crate) trash: BTreeMap<u64, Trashed>,
    /// Number of the last record; 0 in folders of versions that had none.
    pub(crate) edition: u64,
    /// Losses that an operator accepted and has not acknowledged yet.
    pub(crate) losses: Vec<Loss>,
    /// Segments and offsets of the log at which accepted losses begin.
    pub(crate) log_gaps: BTreeSet<(u32, u64)>,
    /// Small documents of the layers above, by kind and name: accounts, say.
    pub(crate) documents: BTreeMap<(String, String), Arc<[u8]>>,
    /// Regular databases.
    pub(crate) regular: BTreeMap<u32, RegularDefinition>,
    /// Files of epochs by their numbers, those in the trash among them.
    pub(crate) epoch_files: BTreeMap<u64, EpochFileInfo>,
    /// Those in the trash, and since when.
    pub(crate) epoch_trash: BTreeMap<u64, i64>,
}

impl State {
    /// The incarnation with which the keys of the folder's objects begin.
    pub(crate) fn objects_incarnation(&self) -> u64 {
        self.objects_of.unwrap_or(self.incarnation)
    }

    /// Parts whose files are there: those that have rows, and those in the trash.
    pub(crate) fn parts_with_trash(&self) -> impl Iterator<Item = &PartInfo> {
        self.parts.values().chain(self.trash.values().map(|trashed| &trashed.info))
    }

    pub(crate) fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::Identity { incarnation, shards } => (self.incarnation, self.shards) = (*incarnation, *shards),
            Edit::Epoch(epoch) => self.epoch = *epoch,
            Edit::Flushed { shard, sequence } => {
                self.flushed.insert(*shard, *sequence);
            }
            Edit::AddPart(info) => {
                self.parts.insert(info.id, *info);
                self.next_id = self.next_id.max(info.id + 1);
            }
            Edit::RemovePart(id) => {
                self.parts.remove(id);
            }
            Edit::AddSegment { id, shard } => {
                self.segments.insert(*id, *shard);
                self.next_id = self.next_id.max(id + 1);
            }
            Edit::RemoveSegment(id) => {
                self.segments.remove(id);
            }
            Edit::LogEnded { segment, end } => {
                self.log_ends.insert(*segment, *end);
            }
            Edit::LogReleased { through } => {
                self.log_ends.retain(|segment, _| segment > through);
                self.log_gaps.retain(|(segment, _)| segment > through);
                self.log_released = self.log_released.max(*through);
            }
            Edit::NextId(next_id) => self.next_id = self.next_id.max(*next_id),
            Edit::Moved { id, locations } => {
                if let Some(part) = self.parts.get_mut(id) {
                    part.locations = *locations;
                }
            }
            Edit::FastLength(fast_partition_length_ns) => self.fast_partition_length_ns = *fast_partition_length_ns,
            Edit::Policy { database, policy } => {
                self.policies.insert(*database, policy.clone());
            }
            Edit::AddDelete { shard, delete } => {
                self.deletes.insert((*shard, delete.sequence), delete.clone());
            }
            Edit::RemoveDelete { shard, sequence } => {
                self.deletes.remove(&(*shard, *sequence));
            }
            Edit::ObjectsOf { incarnation } => self.objects_of = Some(*incarnation),
            Edit::TrustedTime(trusted_ns) => self.trusted_ns = Some(*trusted_ns),
            Edit::Expired { id, at_ns } => {
                let info = self.parts.remove(id);
                self.trash.extend(info.map(|info| (*id, Trashed { info, at_ns: *at_ns })));
            }
            Edit::Emptied { id } => {
                self.trash.remove(id);
            }
            Edit::Edition(edition) => self.edition = *edition,
            Edit::AddLoss(loss) => self.losses.push(loss.clone()),
            Edit::ForgetLosses => self.losses.clear(),
            Edit::LogGap { segment, offset } => {
                self.log_gaps.insert((*segment, *offset));
            }
            Edit::PutDocument { kind, name, bytes } => {
                self.documents.insert((kind.clone(), name.clone()), bytes.clone());
            }
            Edit::RemoveDocument { kind, name } => {
                self.documents.remove(&(kind.clone(), name.clone()));
            }
            Edit::Epochs(edit) => edit.apply(self),
        }
    }

    /// The whole file: header and snapshot.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        push_record(&self.snapshot(), &mut bytes);
        bytes
    }

    fn snapshot(&self) -> Vec<Edit> {
        let mut edits = vec![
            Edit::Identity { incarnation: self.incarnation, shards: self.shards },
            Edit::Epoch(self.epoch),
            Edit::NextId(self.next_id),
            Edit::Edition(self.edition),
        ];
        edits.extend(self.flushed.iter().map(|(shard, sequence)| Edit::Flushed { shard: *shard, sequence: *sequence }));
        edits.extend(self.parts.values().map(|info| Edit::AddPart(*info)));
        edits.extend(self.segments.iter().map(|(id, shard)| Edit::AddSegment { id: *id, shard: *shard }));
        edits.extend(self.log_ends.iter().map(|(segment, end)| Edit::LogEnded { segment: *segment, end: *end }));
        edits.extend(self.objects_of.map(|incarnation| Edit::ObjectsOf { incarnation }));
        if self.log_released > 0 {
            edits.push(Edit::LogReleased { through: self.log_released });
        }
        edits.push(Edit::FastLength(self.fast_partition_length_ns));
        let policy =
            |(database, policy): (&u32, &DatabasePolicy)| Edit::Policy { database: *database, policy: policy.clone() };
        edits.extend(self.policies.iter().map(policy));
        let delete =
            |((shard, _), delete): (&(u32, u64), &Delete)| Edit::AddDelete { shard: *shard, delete: delete.clone() };
        edits.extend(self.deletes.iter().map(delete));
        edits.extend(self.trusted_ns.map(Edit::TrustedTime));
        for (id, trashed) in &self.trash {
            edits.extend([Edit::AddPart(trashed.info), Edit::Expired { id: *id, at_ns: trashed.at_ns }]);
        }
        edits.extend(self.losses.iter().cloned().map(Edit::AddLoss));
        let gap = |(segment, offset): &(u32, u64)| Edit::LogGap { segment: *segment, offset: *offset };
        edits.extend(self.log_gaps.iter().map(gap));
        let document = |((kind, name), bytes): (&(String, String), &Arc<[u8]>)| Edit::PutDocument {
            kind: kind.clone(),
            name: name.clone(),
            bytes: bytes.clone(),
        };
        edits.extend(self.documents.iter().map(document));
        edits.extend(epochs::snapshot(self).map(Edit::Epochs));
        edits
    }
}

/// What a part's label says of the folder, as it will be after some edits: everything but parts, of those their numbers, and where one
/// that a merge adopted lies. Documents are left out: parts are uploaded and handed on, and hashes of secrets must not go with them.
pub(crate) fn folder_label(state: &State, edits: &[Edit]) -> Vec<u8> {
    let mut state = state.clone();
    edits.iter().for_each(|edit| state.apply(edit));
    let ids: Vec<u64> = state.parts.keys().copied().collect();
    state.parts.retain(|id, info| info.level > 0 && *id != info.file);
    state.documents.clear();
    // Files of epochs stay in the folder: parts cannot tell of them.
    state.epoch_files.clear();
    state.epoch_trash.clear();
    let mut payload = Vec::new();
    varint::push(&mut payload, ids.len() as u64);
    ids.iter().for_each(|id| varint::push(&mut payload, *id));
    push_edits(&state.snapshot(), &mut payload);
    payload
}

/// Reads what [`folder_label`] wrote: the state, and the numbers of its parts.
pub(crate) fn read_folder_label(payload: &[u8]) -> Result<(State, BTreeSet<u64>), DecodeError> {
    let mut reader = Reader::new(payload);
    let count = reader.length(payload.len())?;
    let ids = (0..count).map(|_| reader.varint()).collect::<Result<_, _>>()?;
    let mut state = State::default();
    take_edits(reader.rest())?.iter().for_each(|edit| state.apply(edit));
    Ok((state, ids))
}

/// A record for a place in the file, after zeros if its header would lie in two sectors.
fn record_at(place: u64, edits: &[Edit]) -> Vec<u8> {
    let mut record = vec![0; padding_bytes(place) as usize];
    push_record(edits, &mut record);
    record
}

const fn padding_bytes(place: u64) -> u64 {
    let left = SECTOR_BYTES - place % SECTOR_BYTES;
    if left < RECORD_HEADER_BYTES { left } else { 0 }
}

fn push_record(edits: &[Edit], out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    push_edits(edits, &mut payload);
    push_payload(&payload, out);
}

fn push_edits(edits: &[Edit], payload: &mut Vec<u8>) {
    varint::push(payload, edits.len() as u64);
    for edit in edits {
        push_edit(edit, payload);
    }
}

fn push_payload(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
}

/// Reads bytes as a manifest, and as the edits of one of its records, put between checksums that are right: the entry for fuzzing.
///
/// # Panics
///
/// If what it finds contradicts itself: that is what a fuzzer looks for.
pub fn fuzz(bytes: &[u8]) {
    let _ = parse(bytes);
    let mut file = State::default().to_bytes();
    push_payload(bytes, &mut file);
    if let Ok(Parsed { state, .. }) = parse(&file) {
        let again = parse(&state.to_bytes());
        assert!(
            again.is_ok_and(|again| again.state.parts == state.parts),
            "what was read is written so that it is read again"
        );
    }
}

/// What a file says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) state: State,
    /// True if something that is no whole record stands after the last one: a crash or damage cut it.
    pub(crate) is_cut: bool,
    /// True if the version that wrote it also wrote a twin.
    pub(crate) has_twin: bool,
    /// How far it was read.
    pub(crate) mark: tail::Mark,
}

/// The file's version.
fn take_version(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let start = reader.clone();
    if reader.bytes(8)? != MAGIC {
        return Err(DecodeError { offset: 0, what: "expected the magic THWGMANI" });
    }
    let (version, checksum) = (reader.u32()?, reader.u32()?);
    let expected = match version {
        VERSION_ONE | VERSION_TWO => 0,
        _ => crc32c::crc32c(start.rest().get(..12).unwrap_or_default()),
    };
    match version {
        _ if checksum != expected => Err(DecodeError { offset: 8, what: "checksum of the header does not match" }),
        VERSION_ONE | VERSION_TWO | VERSION => Ok(version),
        _ => Err(DecodeError { offset: 8, what: error::NEWER }),
    }
}

/// Reads all records. A last one that is not whole was never acknowledged; one in the middle is damage.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, DecodeError> {
    let mut reader = Reader::new(bytes);
    let version = take_version(&mut reader)?;
    let mut state = State::default();
    let place = (bytes.len() - reader.rest().len()) as u64;
    let read = take_records(reader, place, version, &mut |edits| edits.iter().for_each(|edit| state.apply(edit)))?;
    let Some(last) = read.last else {
        return Err(DecodeError { offset: HEADER_BYTES, what: "the snapshot is missing or damaged" });
    };
    let mark = tail::Mark::new(bytes, (last, read.end), state.edition);
    Ok(Parsed { state, is_cut: read.is_cut, has_twin: version == VERSION, mark })
}

/// How far records were read.
struct ReadRecords {
    /// Where the last one begins.
    last: Option<u64>,
    /// Where it ends.
    end: u64,
    /// As in [`Parsed`].
    is_cut: bool,
}

/// Reads records that begin at a place of the file, up to the first one that is not whole.
fn take_records(
    mut reader: Reader<'_>,
    place: u64,
    version: u32,
    visit: &mut dyn FnMut(Vec<Edit>),
) -> Result<ReadRecords, DecodeError> {
    let bytes = reader.rest().len() as u64;
    let mut read = ReadRecords { last: None, end: place, is_cut: false };
    while !reader.is_empty() {
        let padding = if version == VERSION_ONE { 0 } else { padding_bytes(read.end) };
        // Without it there is nothing after it.
        let _ = reader.bytes(padding as usize);
        let rest = reader.rest();
        let Some(edits) = take_record(&mut reader)? else {
            read.is_cut = rest.iter().any(|byte| *byte != 0);
            break;
        };
        visit(edits);
        read.last = Some(read.end + padding);
        read.end = place + bytes - reader.rest().len() as u64;
    }
    Ok(read)
}

/// A record, or `None` where an unfinished one ends the file.
fn take_record(reader: &mut Reader<'_>) -> Result<Option<Vec<Edit>>, DecodeError> {
    let start = reader.clone();
    let (Ok(checksum), Ok(length)) = (reader.u32(), reader.u32()) else {
        return Ok(None);
    };
    let payload = reader.bytes(length as usize);
    let (Ok(payload), 1..) = (payload, length) else {
        return Ok(None);
    };
    if crc32c::crc32c(payload) != checksum {
        // Behind an unfinished record there is nothing, or room that was reserved for a larger one.
        let is_last = reader.rest().iter().all(|byte| *byte == 0);
        return if is_last { Ok(None) } else { Err(start.error("checksum of an edit does not match")) };
    }
    take_edits(payload).map(Some)
}

fn take_edits(payload: &[u8]) -> Result<Vec<Edit>, DecodeError> {
    let mut payload = Reader::new(payload);
    let count = payload.length(payload.rest().len())?;
    (0..count).map(|_| take_edit(&mut payload)).collect()
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    varint::push(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn take_text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let length = reader.length(reader.rest().len())?;
    Ok(String::from_utf8_lossy(reader.bytes(length)?).into_owned())
}

fn push_edit(edit: &Edit, out: &mut Vec<u8>) {
    let mut numbers = |tag: u8, numbers: &[u64]| {
        out.push(tag);
        numbers.iter().for_each(|number| varint::push(out, *number));
    };
    match edit {
        Edit::Identity { incarnation, shards } => numbers(1, &[*incarnation, u64::from(*shards)]),
        Edit::Epoch(epoch) => numbers(2, &[*epoch]),
        Edit::Flushed { shard, sequence } => numbers(3, &[u64::from(*shard), *sequence]),
        Edit::RemovePart(id) => numbers(5, &[*id]),
        // Zero stands for the catalog.
        Edit::AddSegment { id, shard } => numbers(6, &[*id, shard.map_or(0, |shard| u64::from(shard) + 1)]),
        Edit::LogEnded { segment, end } => numbers(7, &[u64::from(*segment), *end]),
        Edit::LogReleased { through } => numbers(8, &[u64::from(*through)]),
        Edit::NextId(next_id) => numbers(9, &[*next_id]),
        Edit::RemoveSegment(id) => numbers(10, &[*id]),
        Edit::AddPart(info) => {
            out.push(11);
            info.encode(out);
        }
        Edit::Moved { id, locations } => numbers(12, &[*id, u64::from(locations.local), u64::from(locations.object)]),
        Edit::FastLength(fast_partition_length_ns) => numbers(13, &[*fast_partition_length_ns as u64]),
        Edit::Policy { database, policy } => {
            numbers(14, &[u64::from(*database)]);
            policy.encode(out);
        }
        Edit::AddDelete { shard, delete } => {
            numbers(15, &[u64::from(*shard)]);
            delete.encode(out);
        }
        Edit::RemoveDelete { shard, sequence } => numbers(16, &[u64::from(*shard), *sequence]),
        Edit::ObjectsOf { incarnation } => numbers(17, &[*incarnation]),
        Edit::TrustedTime(trusted_ns) => {
            out.push(18);
            varint::push_signed(out, *trusted_ns);
        }
        Edit::Expired { id, at_ns } => {
            numbers(19, &[*id]);
            varint::push_signed(out, *at_ns);
        }
        Edit::Emptied { id } => numbers(20, &[*id]),
        Edit::Edition(edition) => numbers(22, &[*edition]),
        Edit::AddLoss(loss) => {
            out.push(23);
            push_text(&loss.file, out);
            push_text(&loss.message, out);
            varint::push_signed(out, loss.range.start_ns);
            varint::push_signed(out, loss.range.end_ns);
        }
        Edit::ForgetLosses => numbers(24, &[]),
        Edit::LogGap { segment, offset } => numbers(25, &[u64::from(*segment), *offset]),
        Edit::PutDocument { kind, name, bytes } => {
            out.push(30);
            push_text(kind, out);
            push_text(name, out);
            varint::push(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
        Edit::RemoveDocument { kind, name } => {
            out.push(31);
            push_text(kind, out);
            push_text(name, out);
        }
        Edit::Epochs(edit) => edit.encode(out),
    }
}

fn take_edit(reader: &mut Reader<'_>) -> Result<Edit, DecodeError> {
    let tag = reader.byte()?;
    let small = |reader: &mut Reader<'_>| -> Result<u32, DecodeError> {
        u32::try_from(reader.varint()?).map_err(|_| reader.error("number beyond 32 bits"))
    };
    // Numbers of files are counted on from the largest: none may be so large that there is nothing after it.
    let counted = |number: u64, reader: &Reader<'_>| {
        if number <= NUMBER_MAX { Ok(number) } else { Err(reader.error("the number of a file is out of range")) }
    };
    let part = |info: PartInfo, reader: &Reader<'_>| counted(info.id, reader).map(|_| Edit::AddPart(info));
    Ok(match tag {
        1 => Edit::Identity { incarnation: reader.varint()?, shards: small(reader)? },
        2 => Edit::Epoch(reader.varint()?),
        3 => Edit::Flushed { shard: small(reader)?, sequence: reader.varint()? },
        4 => part(PartInfo::decode_version_one(reader)?, reader)?,
        5 => Edit::RemovePart(reader.varint()?),
        6 => Edit::AddSegment { id: counted(reader.varint()?, reader)?, shard: small(reader)?.checked_sub(1) },
        7 => Edit::LogEnded { segment: small(reader)?, end: reader.varint()? },
        8 => Edit::LogReleased { through: small(reader)? },
        9 => Edit::NextId(counted(reader.varint()?, reader)?),
        10 => Edit::RemoveSegment(reader.varint()?),
        11 => part(PartInfo::decode(reader)?, reader)?,
        12 => Edit::Moved {
            id: reader.varint()?,
            locations: PartLocations { local: reader.varint()? != 0, object: reader.varint()? != 0 },
        },
        13 => Edit::FastLength(reader.varint()? as i64),
        14 => Edit::Policy { database: small(reader)?, policy: DatabasePolicy::decode(reader)? },
        15 => Edit::AddDelete { shard: small(reader)?, delete: Delete::decode(reader)? },
        16 => Edit::RemoveDelete { shard: small(reader)?, sequence: reader.varint()? },
        17 => Edit::ObjectsOf { incarnation: reader.varint()? },
        18 => Edit::TrustedTime(reader.varint_signed()?),
        19 => Edit::Expired { id: reader.varint()?, at_ns: reader.varint_signed()? },
        20 => Edit::Emptied { id: reader.varint()? },
        22 => Edit::Edition(counted(reader.varint()?, reader)?),
        23 => Edit::AddLoss(Loss {
            file: take_text(reader)?,
            message: take_text(reader)?,
            range: TimeRange::new(reader.varint_signed()?, reader.varint_signed()?),
        }),
        24 => Edit::ForgetLosses,
        25 => Edit::LogGap { segment: small(reader)?, offset: reader.varint()? },
        30 => {
            let (kind, name) = (take_text(reader)?, take_text(reader)?);
            let length = reader.length(reader.rest().len())?;
            Edit::PutDocument { kind, name, bytes: reader.bytes(length)?.into() }
        }
        31 => Edit::RemoveDocument { kind: take_text(reader)?, name: take_text(reader)? },
        tag @ epochs::TAG_MIN..=epochs::TAG_MAX => Edit::Epochs(EpochEdit::decode(tag, reader)?),
        // Its checksum is right: the program that wrote it knew what it means.
        _ => return Err(reader.error(error::NEWER)),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use platform::sim::Simulation;

    use super::*;

    #[test]
    fn edits_come_back_and_an_unfinished_one_is_dropped() {
        let simulation = Simulation::new(1);
        let files = simulation.platform().files;
        let directory = Path::new("d");
        let state = State { incarnation: 9, shards: 2, ..State::default() };
        let mut manifest = Manifest::write(&*files, directory, state).unwrap();
        let info = PartInfo {
            range: TimeRange::new(-5, 7),
            sequences: (1, 3),
            chunks: 2,
            bytes: 100,
            patch_of: 3,
            ..PartInfo::empty(4, 1, 2, 7, TimeRange::new(-10, 9))
        };
        let delete = Delete {
            sequence: 8,
            database: 0,
            range: TimeRange::new(0, 5),
            groups: [1, 9].into_iter().collect(),
            columns: vec![(3, vec![0, 2])],
        };
        let policy = DatabasePolicy { retention_ns: 5, folds: vec![(60, 5)], ..DatabasePolicy::default() };
        let edits = [
            Edit::AddPart(info),
            Edit::Flushed { shard: 1, sequence: 3 },
            Edit::AddSegment { id: 5, shard: None },
            Edit::AddSegment { id: 6, shard: Some(1) },
            Edit::LogEnded { segment: 2, end: 80 },
            Edit::Epoch(2),
            Edit::Moved { id: 4, locations: PartLocations { local: false, object: true } },
            Edit::FastLength(60),
            Edit::Policy { database: 2, policy },
            Edit::AddDelete { shard: 1, delete },
            Edit::TrustedTime(-7),
            Edit::AddPart(PartInfo::empty(7, 1, 2, 7, TimeRange::new(-10, 9))),
            Edit::AddPart(PartInfo::empty(8, 1, 2, 7, TimeRange::new(-10, 9))),
            Edit::Expired { id: 7, at_ns: -3 },
            Edit::Expired { id: 8, at_ns: -3 },
            Edit::Emptied { id: 8 },
        ];
        manifest.commit(&edits).unwrap();
        assert_eq!(Manifest::read(&*files, directory).unwrap().unwrap(), manifest.state);
        assert_eq!((manifest.state.trash.len(), manifest.state.trash[&7].at_ns), (1, -3));
        assert_eq!(parse(&manifest.state.to_bytes()).unwrap().state, manifest.state, "as a snapshot too");
        let bytes = simulation.read(&directory.join("MANIFEST")).unwrap();
        for cut in HEADER_BYTES + 20..bytes.len() {
            assert!(parse(&bytes[..cut]).is_ok_and(|parsed| parsed.state.parts.is_empty()), "cut at {cut}");
        }
        let snapshot_bit = HEADER_BYTES + 9;
        let mut damaged = bytes;
        damaged[snapshot_bit] ^= 1;
        assert!(parse(&damaged).is_err(), "damage in the middle is an error");
    }

    #[test]
    fn what_a_newer_version_wrote_is_no_damage() {
        let simulation = Simulation::new(1);
        let files = simulation.platform().files;
        let mut newer = State::default().to_bytes();
        newer[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        let checksum = crc32c::crc32c(&newer[..12]);
        newer[12..16].copy_from_slice(&checksum.to_le_bytes());
        let mut unknown_edit = State::default().to_bytes();
        push_payload(&[1, 0xfe], &mut unknown_edit);
        for (place, bytes) in [newer, unknown_edit].into_iter().enumerate() {
            let directory = std::path::PathBuf::from(format!("d{place}"));
            platform::write_file(&*files, &directory.join("MANIFEST"), &bytes).unwrap();
            let error = Manifest::read(&*files, &directory).unwrap_err();
            assert!(matches!(error, crate::StoreError::Newer { .. }), "{error}");
            assert!(error.to_string().contains("written by a newer version of Thalweg"), "{error}");
        }
    }

    #[test]
    fn numbers_that_nothing_comes_after_are_damage() {
        let part = |id| Edit::AddPart(PartInfo::empty(id, 0, 0, 0, TimeRange::ALL));
        for edit in [part(u64::MAX), Edit::AddSegment { id: u64::MAX, shard: None }, Edit::NextId(u64::MAX)] {
            let mut file = State::default().to_bytes();
            push_record(std::slice::from_ref(&edit), &mut file);
            assert!(parse(&file).is_err(), "{edit:?}");
        }
        let mut file = State::default().to_bytes();
        push_record(&[part(NUMBER_MAX)], &mut file);
        assert_eq!(parse(&file).map(|parsed| parsed.state.next_id), Ok(NUMBER_MAX + 1));
    }

    /// Whichever of the last record's sectors are on disk, the file is read, and nothing but that record is missing.
    #[test]
    fn sectors_of_an_unfinished_record_may_be_missing() {
        let mut bytes = State::default().to_bytes();
        let mut padded = 0;
        for epoch in 1..120 {
            let begun = bytes.len();
            // Longer and longer ones, so that they end anywhere in a sector.
            let mut edits = vec![Edit::Epoch(epoch)];
            edits.extend((0..epoch).map(|id| Edit::RemovePart(id << 20)));
            bytes.extend(record_at(begun as u64, &edits));
            padded += usize::from(padding_bytes(begun as u64) > 0);
            let sectors: Vec<usize> = (begun / 512..bytes.len().div_ceil(512)).collect();
            for missing in 0..1_u32 << sectors.len().min(4) {
                let mut found = bytes.clone();
                let is_missing = |(place, _): &(usize, &usize)| missing >> place.min(&3) & 1 == 1;
                for (_, sector) in sectors.iter().enumerate().filter(is_missing) {
                    found[(sector * 512).max(begun)..((sector + 1) * 512).min(bytes.len())].fill(0);
                }
                let state = parse(&found).unwrap().state;
                let expected = if found == bytes { epoch } else { epoch - 1 };
                assert_eq!(state.epoch, expected, "{missing:b} of {sectors:?}");
            }
            // Room that was reserved and not used.
            assert_eq!(parse(&[&bytes[..], &[0; 600]].concat()).unwrap().state.epoch, epoch);
        }
        assert!(padded > 0);
    }
}
