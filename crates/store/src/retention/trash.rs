//! The trash: parts that are past keeping. The manifest says that they are not read any more; their files stay for a while, so that an
//! operator can have them back. It is no copy: files stay where they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use index::RoaringBitmap;
use model::TimeRange;
use platform::{Files, LockError, Platform};

use crate::compaction::age_order;
use crate::head::shard::TrashedPart;
use crate::manifest::{Edit, Manifest, State, Trashed};
use crate::part::{Part, PartInfo};
use crate::retention::policy::DatabasePolicy;
use crate::tier::parts::ObjectTier;
use crate::upkeep::health::Health;
use crate::upkeep::inspect::{databases, read_manifest};
use crate::{Store, StoreError, open_part};

/// Bytes that are to be free on the disk, at least, for anything to stay in the trash.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// That limit as a share of what the folder's parts take.
const FREE_SHARE: u64 = 10;

/// A part in the trash, as it is decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    id: u64,
    at_ns: i64,
    /// Bytes on this machine's disk.
    local_bytes: u64,
}

/// What the trash may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    now_ns: i64,
    age_ns_max: i64,
    bytes_max: u64,
    /// Bytes that are missing on the disk for it to be not nearly full.
    missing_bytes: u64,
}

impl Bounds {
    /// Which parts are to go: those whose time is over, and the oldest as far as room is needed.
    fn due(&self, entries: &[Entry]) -> BTreeSet<u64> {
        let mut entries = entries.to_vec();
        entries.sort_unstable_by_key(|entry| (entry.at_ns, entry.id));
        let all_bytes: u64 = entries.iter().map(|entry| entry.local_bytes).sum();
        let surplus_bytes = all_bytes.saturating_sub(self.bytes_max).max(self.missing_bytes);
        let mut given_bytes = 0;
        let mut due = BTreeSet::new();
        for entry in &entries {
            let is_old = self.now_ns.saturating_sub(entry.at_ns) >= self.age_ns_max;
            let gives_room = entry.local_bytes > 0 && given_bytes < surplus_bytes;
            if is_old || gives_room {
                given_bytes += entry.local_bytes;
                due.insert(entry.id);
            }
        }
        due
    }
}

/// Bytes that are missing on a disk with so many free for a folder whose parts take so many.
fn missing_bytes(free_bytes: Option<u64>, folder_bytes: u64) -> u64 {
    let wanted = FREE_BYTES_MIN.max(folder_bytes / FREE_SHARE);
    free_bytes.map_or(0, |free_bytes| wanted.saturating_sub(free_bytes))
}

fn entry(trashed: &TrashedPart) -> Entry {
    let info = &trashed.part.info;
    Entry { id: info.id, at_ns: trashed.at_ns, local_bytes: if info.locations.local { info.bytes } else { 0 } }
}

impl Store {
    /// Returns whether the disk has so little room that what is kept for convenience has to go.
    pub(crate) fn is_disk_short(&self) -> bool {
        missing_bytes(self.free_bytes(), self.parts_bytes()) > 0
    }

    /// Removes what has been in the trash for long enough, or what there is no room for. Whether there was any.
    pub(crate) fn empty_trash(&self) -> Result<bool, StoreError> {
        let entries: Vec<Entry> =
            self.shards.iter().flat_map(|shard| shard.trash.lock().iter().map(entry).collect::<Vec<_>>()).collect();
        if entries.is_empty() {
            return Ok(false);
        }
        let age_ns_max = i64::try_from(self.options.trash_age_ms_max).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let bounds = Bounds {
            now_ns: self.trusted_now_ns(),
            age_ns_max,
            bytes_max: self.options.trash_bytes_max,
            missing_bytes: missing_bytes(self.free_bytes(), self.parts_bytes()),
        };
        let due = bounds.due(&entries);
        for shard in &self.shards {
            let _work = shard.work.lock();
            let is_due = |trashed: &TrashedPart| due.contains(&trashed.part.info.id);
            let gone: Vec<Arc<Part>> = shard
                .trash
                .lock()
                .iter()
                .filter(|trashed| is_due(trashed))
                .map(|trashed| trashed.part.clone())
                .collect();
            if gone.is_empty() {
                continue;
            }
            let edits: Vec<Edit> = gone.iter().map(|part| Edit::Emptied { id: part.info.id }).collect();
            self.commit_edits(&edits)?;
            shard.trash.lock().retain(|trashed| !is_due(trashed));
            self.remove_part_files(shard, &gone);
            self.drop_idle_deletes(shard)?;
            self.purge_groups(shard, gone.iter().fold(RoaringBitmap::new(), |groups, part| groups | &part.groups))?;
        }
        Ok(!due.is_empty())
    }

    /// Bytes that are free on the folder's disk, if that is known.
    fn free_bytes(&self) -> Option<u64> {
        self.platform.files.disk_space(&self.options.directory).ok().map(|space| space.free_bytes)
    }

    /// Bytes of parts on this machine's disk, without the trash.
    fn parts_bytes(&self) -> u64 {
        let of_shard = |shard: &crate::head::shard::Shard| {
            let (parts, _) = shard.parts_and_deletes();
            parts.iter().filter(|part| part.info.locations.local).map(|part| part.info.bytes).sum::<u64>()
        };
        self.shards.iter().map(of_shard).sum()
    }
}

/// Opens what is in the trash. What cannot be opened any more is in it no longer.
pub(crate) fn open(
    files: &dyn Files,
    directory: &Path,
    object_tier: Option<&ObjectTier>,
    health: &Arc<Health>,
    state: &mut State,
) -> Result<Vec<TrashedPart>, StoreError> {
    let mut opened = Vec::new();
    for Trashed { info, at_ns } in state.trash.values().copied().collect::<Vec<_>>() {
        match open_part(files, directory, object_tier, health, info) {
            Ok(part) => opened.push(TrashedPart { part, at_ns }),
            Err(StoreError::Corrupt { .. }) => state.apply(&Edit::Emptied { id: info.id }),
            Err(StoreError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => {
                state.apply(&Edit::Emptied { id: info.id });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(opened)
}

/// A part in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrashReport {
    /// Its number, by which it is restored.
    pub id: u64,
    /// The databases whose rows it may hold, as far as index segments on disk name them.
    pub databases: Vec<String>,
    /// First and last timestamp in it.
    pub range: TimeRange,
    /// Rows in it.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
    /// True if they are in the object store alone.
    pub is_remote: bool,
    /// Since when it is in the trash, in nanoseconds since the Unix epoch.
    pub since_ns: i64,
}

/// What restoring did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoredTrash {
    /// Parts that hold rows again.
    pub parts: u64,
    /// Rows in them.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Databases that were given a longer retention.
    pub databases: Vec<String>,
    /// Parts that stay in the trash, and why.
    pub refused: Vec<String>,
}

/// Lists the parts in a folder's trash, oldest first. Changes nothing, and works on a folder that is open elsewhere.
pub fn trash_of(platform: &Platform, directory: &Path) -> Result<Vec<TrashReport>, StoreError> {
    let state = read_manifest(&*platform.files, directory)?;
    let names = databases(&*platform.files, directory, &state);
    let mut reports: Vec<TrashReport> = state
        .trash
        .values()
        .map(|Trashed { info, at_ns }| {
            let of_class = names.iter().filter(|known| known.policy.has_class(info.class));
            TrashReport {
                id: info.id,
                databases: of_class.map(|known| known.database.clone()).collect(),
                range: info.range,
                rows: info.rows,
                bytes: info.bytes,
                is_remote: !info.locations.local,
                since_ns: *at_ns,
            }
        })
        .collect();
    reports.sort_unstable_by_key(|report| (report.since_ns, report.id));
    Ok(reports)
}

/// Puts parts (all, if none is named) back from the trash into a folder that no process has open. What the databases' retention would take
/// again at once is refused, unless a longer one is given; it is then that of these databases.
pub fn restore_trash(
    platform: &Platform,
    directory: &Path,
    ids: &[u64],
    retention_ns: Option<i64>,
) -> Result<RestoredTrash, StoreError> {
    let files = &*platform.files;
    // Looked at first: locking would make a folder where a name is misspelt.
    read_manifest(files, directory)?;
    let lock_path = directory.join("LOCK");
    let _lock = files.lock(&lock_path).map_err(|error| match error {
        LockError::Held { pid } => StoreError::Locked { directory: directory.to_owned(), pid },
        LockError::Io(error) => StoreError::io("lock", &lock_path)(error),
    })?;
    let mut state = read_manifest(files, directory)?;
    if let Some(unknown) = ids.iter().find(|id| !state.trash.contains_key(id)) {
        return Err(StoreError::Invalid(format!(
            "part {unknown} is not in the trash; `thalweg trash list` names what is"
        )));
    }
    let now_ns = state.trusted_ns.map_or(i64::MAX, |trusted_ns| trusted_ns.min(platform.clock.now_ns()));
    let mut chosen: Vec<PartInfo> = state
        .trash
        .values()
        .map(|trashed| trashed.info)
        .filter(|info| ids.is_empty() || ids.contains(&info.id))
        .collect();
    // Of parts that cannot both be there the one with the newer rows comes back.
    chosen.sort_by_key(|info| std::cmp::Reverse(info.sequences.1));
    let mut report = RestoredTrash::default();
    let mut changed = BTreeSet::new();
    for info in &chosen {
        match restore_part(&mut state, info, now_ns, retention_ns) {
            Ok(databases) => {
                changed.extend(databases);
                report.parts += 1;
                report.rows += info.rows;
                report.bytes += info.bytes;
            }
            Err(reason) => report.refused.push(format!("part {} stays in the trash: {reason}", info.id)),
        }
    }
    if report.parts > 0 {
        let names = databases(files, directory, &state);
        let is_changed = |policy: &DatabasePolicy| changed.iter().any(|id| state.policies.get(id) == Some(policy));
        report.databases =
            names.into_iter().filter(|known| is_changed(&known.policy)).map(|known| known.database).collect();
        // Answers that are kept on disk lack the rows.
        let journal = directory.join("JOURNAL");
        match files.remove(&journal) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", &journal)(error));
            }
            _ => {}
        }
        Manifest::write(files, directory, state)?;
    }
    Ok(report)
}

/// Returns whether rows of one part that are newer than some of another's count less than those: parts of lower levels count more, but merges went on
/// without the one that was in the trash.
fn hides_newer_rows(one: &PartInfo, other: &PartInfo) -> bool {
    (one.shard, one.class) == (other.shard, other.class)
        && age_order(one) < age_order(other)
        && one.range.overlaps(&other.range)
        && one.sequences.1 > other.sequences.0
}

/// Puts one part back. The databases whose policy was changed for it.
fn restore_part(
    state: &mut State,
    info: &PartInfo,
    now_ns: i64,
    retention_ns: Option<i64>,
) -> Result<BTreeSet<u32>, String> {
    let is_base = |part: &PartInfo| part.level > 0 && !part.is_patch();
    let place = |part: &PartInfo| (part.shard, part.class, part.level);
    let overlaps =
        |part: &&PartInfo| is_base(part) && place(part) == place(info) && part.partition.overlaps(&info.partition);
    if is_base(info)
        && let Some(other) = state.parts.values().find(overlaps)
    {
        return Err(format!("rows of its time were written since, and are in part {}", other.id));
    }
    let hides = |other: &&PartInfo| hides_newer_rows(other, info) || hides_newer_rows(info, other);
    if let Some(other) = state.parts.values().find(hides) {
        return Err(format!(
            "rows of its time were written since, and are in part {}, over whose its own would count",
            other.id
        ));
    }
    let of_class: BTreeMap<u32, DatabasePolicy> = state
        .policies
        .iter()
        .filter(|(_, policy)| policy.has_class(info.class))
        .map(|(database, policy)| (*database, policy.clone()))
        .collect();
    let mut changed = BTreeMap::new();
    for (database, policy) in of_class {
        let longer_ns = match retention_ns {
            Some(0) => 0,
            Some(given_ns) if policy.retention_ns > 0 => given_ns.max(policy.retention_ns),
            _ => policy.retention_ns,
        };
        let longer = DatabasePolicy { retention_ns: longer_ns, floor_ns: i64::MIN, ..policy.clone() };
        let oldest_ns = longer.oldest_by_age_ns(now_ns);
        if info.partition.end_ns < oldest_ns {
            let age_days = now_ns.saturating_sub(info.range.start_ns) / 86_400_000_000_000 + 1;
            return Err(format!(
                "retention would take its rows again; name one of {age_days} d or more with --retention, or `forever`"
            ));
        }
        let floor_ns = policy.floor_ns.min(info.range.start_ns);
        if longer_ns != policy.retention_ns || floor_ns != policy.floor_ns {
            changed.insert(database, DatabasePolicy { floor_ns, ..longer });
        }
    }
    state.apply(&Edit::Emptied { id: info.id });
    state.apply(&Edit::AddPart(*info));
    let databases = changed.keys().copied().collect();
    state.policies.extend(changed);
    Ok(databases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_replaced_do_not_come_back_over_newer_ones() {
        let part = |id, level, seconds: (i64, i64), sequences| PartInfo {
            range: TimeRange::new(seconds.0, seconds.1),
            sequences,
            ..PartInfo::empty(id, 0, level, 1, TimeRange::new(0, 100))
        };
        let merged = part(186, 1, (0, 90), (53, 84));
        for (other, expected) in [
            (part(28, 0, (40, 50), (37, 50)), true),
            (part(28, 0, (91, 95), (37, 50)), false),
            (part(190, 0, (40, 50), (85, 90)), false),
            (PartInfo { shard: 1, ..part(28, 0, (40, 50), (37, 50)) }, false),
        ] {
            assert_eq!(hides_newer_rows(&merged, &other), expected, "{other:?}");
            assert!(!hides_newer_rows(&other, &merged));
        }
    }

    #[test]
    fn what_is_old_goes_and_then_the_oldest_for_room() {
        let entry = |id, at_ns, local_bytes| Entry { id, at_ns, local_bytes };
        let entries = [entry(1, 50, 10), entry(2, 10, 10), entry(3, 30, 0), entry(4, 40, 10)];
        let bounds = Bounds { now_ns: 100, age_ns_max: 90, bytes_max: u64::MAX, missing_bytes: 0 };
        let check = |bounds: Bounds, expected: &[u64]| {
            assert_eq!(bounds.due(&entries), expected.iter().copied().collect(), "{bounds:?}");
        };
        check(bounds, &[2]);
        check(Bounds { now_ns: 99, ..bounds }, &[]);
        // A clock that was set back.
        check(Bounds { now_ns: -1_000, ..bounds }, &[]);
        check(Bounds { age_ns_max: 0, ..bounds }, &[1, 2, 3, 4]);
        check(Bounds { now_ns: 99, bytes_max: 29, ..bounds }, &[2]);
        check(Bounds { now_ns: 99, bytes_max: 15, ..bounds }, &[2, 4]);
        // What is in the object store alone gives no room.
        check(Bounds { now_ns: 99, bytes_max: 0, ..bounds }, &[1, 2, 4]);
        check(Bounds { now_ns: 99, missing_bytes: 11, ..bounds }, &[2, 4]);
        assert_eq!(missing_bytes(Some(FREE_BYTES_MIN - 3), 0), 3);
        assert_eq!(missing_bytes(Some(5 << 30), 100 << 30), 5 << 30);
        assert_eq!(missing_bytes(None, 100 << 30), 0);
    }
}
