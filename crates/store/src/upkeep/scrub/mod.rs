//! Reads everything on the local disk once in a period, so that damage is found while there is another copy to repair it from.
//!
//! A pass is spread over its whole period: files come one at a time, each when its share of the period has passed, and never faster than a rate.
//! A damaged part that is in the object store too is fetched again; of an index segment the twin is copied; the manifest and the log are
//! written anew from memory ([`vital`]); everything else is reported.

mod vital;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platform::OpenMode;
use tracing_mutex::parkinglot::Mutex;

use crate::flush::segment::copies;
use crate::head::shard::Shard;
use crate::manifest::twin;
use crate::part::{BlockHandle, Part, PartData, PartInfo, PartLocations};
use crate::tier::parts::tail_path;
use crate::{Store, StoreError};

/// Bytes of an object that are fetched at once.
const STEP_BYTES: u64 = 4 << 20;

/// Where the scrub is.
#[derive(Default)]
pub(crate) struct Scrub {
    pass: Mutex<Pass>,
}

/// One reading of everything.
#[derive(Default)]
struct Pass {
    /// Items that are left, last first.
    due: Vec<Item>,
    /// On the monotonic clock; 0: none has begun.
    started_ns: u64,
    bytes_all: u64,
    bytes_done: u64,
}

/// A file, or a part of one, that is read at once.
#[derive(Clone, Copy)]
struct Item {
    what: What,
    bytes: u64,
}

#[derive(Clone, Copy)]
enum What {
    Part { shard: u32, id: u64 },
    Trashed { shard: u32, id: u64 },
    Segment(u64),
    LogSegment(u32),
    Manifest,
}

/// How fast a scrub goes.
#[derive(Clone, Copy)]
struct Pace {
    period_ns: u64,
    bytes_per_second_max: u64,
}

impl Pace {
    /// When so many bytes of all may have been read.
    fn due_ns(&self, started_ns: u64, done: u64, all: u64) -> u64 {
        let share = |of: u64, part: u64, whole: u64| {
            u64::try_from(u128::from(of) * u128::from(part) / u128::from(whole.max(1))).unwrap_or(u64::MAX)
        };
        let spread_ns = share(self.period_ns, done, all);
        let at_rate_ns = share(1_000_000_000, done, self.bytes_per_second_max);
        started_ns.saturating_add(spread_ns.max(at_rate_ns))
    }
}

impl Store {
    /// Reads the next thing that is due. `true` if there may be more at once.
    pub fn scrub(&self) -> Result<bool, StoreError> {
        let pace = Pace {
            period_ns: self.options.scrub_period_ms.saturating_mul(1_000_000),
            bytes_per_second_max: self.options.scrub_bytes_per_second_max,
        };
        if pace.period_ns == 0 {
            return Ok(false);
        }
        let Some(item) = self.next_item(pace) else {
            return Ok(false);
        };
        match item.what {
            What::Segment(id) => self.scrub_segment(id),
            What::LogSegment(number) => self.scrub_log_segment(number)?,
            What::Manifest => self.scrub_manifest()?,
            What::Part { shard, id } => {
                if let Some(shard) = self.shards.get(shard as usize) {
                    self.scrub_part(shard, id)?;
                }
            }
            What::Trashed { shard, id } => {
                if let Some(shard) = self.shards.get(shard as usize) {
                    self.scrub_trashed(shard, id)?;
                }
            }
        }
        Ok(true)
    }

    /// The next item whose time has come; a new pass begins where one has ended and its period is over.
    fn next_item(&self, pace: Pace) -> Option<Item> {
        let now_ns = self.platform.clock.monotonic_ns().max(1);
        let mut pass = self.upkeep.scrub.pass.lock();
        if pass.due.is_empty() {
            let is_over = pass.started_ns == 0
                || now_ns >= pace.due_ns(pass.started_ns, pass.bytes_all.max(1), pass.bytes_all.max(1));
            if !is_over {
                return None;
            }
            let due = self.everything();
            let bytes_all = due.iter().map(|item| item.bytes).sum();
            *pass = Pass { due, started_ns: now_ns, bytes_all, bytes_done: 0 };
        }
        if now_ns < pace.due_ns(pass.started_ns, pass.bytes_done, pass.bytes_all) {
            return None;
        }
        let item = pass.due.pop()?;
        pass.bytes_done += item.bytes;
        Some(item)
    }

    /// All files that the manifest names and that are here, in the order opposite to that in which they are read: first what is vital, then
    /// newer parts before older ones, and the trash last.
    fn everything(&self) -> Vec<Item> {
        let (mut trashed, mut due) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            let number = shard.number;
            let of_trash =
                |info: PartInfo| Item { what: What::Trashed { shard: number, id: info.id }, bytes: info.bytes };
            let of_part = |info: PartInfo| Item { what: What::Part { shard: number, id: info.id }, bytes: info.bytes };
            let is_local = |info: &PartInfo| info.locations.local;
            let trash: Vec<PartInfo> = shard.trash.lock().iter().map(|trashed| trashed.part.info).collect();
            trashed.extend(trash.into_iter().filter(is_local).map(of_trash));
            let (parts, _) = shard.parts_and_deletes();
            due.extend(parts.iter().map(|part| part.info).filter(is_local).map(of_part));
        }
        let mut all = trashed;
        all.append(&mut due);
        let size = |path: &Path| crate::upkeep::inspect::size_of(&*self.platform.files, path).unwrap_or(0);
        let size_of_all = |paths: [PathBuf; 2]| paths.iter().map(|path| size(path)).sum();
        let segments: Vec<u64> = self.manifest.lock().state.segments.keys().copied().collect();
        all.extend(
            segments
                .into_iter()
                .map(|id| Item { what: What::Segment(id), bytes: size_of_all(copies(&self.options.directory, id)) }),
        );
        let log = self.log.segments().into_iter().rev();
        all.extend(log.map(|segment| Item { what: What::LogSegment(segment.number), bytes: segment.bytes }));
        let manifests = twin::NAMES.map(|name| self.options.directory.join(name));
        all.push(Item { what: What::Manifest, bytes: size_of_all(manifests) });
        all
    }

    /// Reads both copies of an index segment; a damaged one is written anew by the next merge's turn.
    fn scrub_segment(&self, id: u64) {
        let is_named = || self.manifest.lock().state.segments.contains_key(&id);
        for path in copies(&self.options.directory, id) {
            if let Err(error) = self.upkeep.index_copies.verify(id, &path)
                && is_named()
            {
                self.upkeep.index_copies.repair_later(id, &path, &error);
            }
        }
    }

    fn scrub_part(&self, shard: &Shard, id: u64) -> Result<(), StoreError> {
        let (parts, _) = shard.parts_and_deletes();
        let Some(part) = parts.iter().find(|part| part.info.id == id && part.info.locations.local) else {
            return Ok(());
        };
        match self.verify_local(&part.info) {
            Err(error) if shard.has_part(id) && is_damage(&error) => {
                if part.info.locations.object {
                    return self.fetch_again(shard, part);
                }
                self.report_part(&part.info, &error);
                Ok(())
            }
            // Merged meanwhile, or nothing that reading again would help.
            Err(error) if shard.has_part(id) => Err(error),
            _ => Ok(()),
        }
    }

    /// Damage to a part in the trash is only reported: its rows are read again if an operator restores it.
    fn scrub_trashed(&self, shard: &Shard, id: u64) -> Result<(), StoreError> {
        let in_trash = || shard.trash.lock().iter().map(|trashed| trashed.part.info).find(|info| info.id == id);
        let Some(info) = in_trash() else {
            return Ok(());
        };
        match self.verify_local(&info) {
            Err(error) if in_trash().is_some() && is_damage(&error) => {
                self.report_part(&info, &error);
                Ok(())
            }
            Err(error) if in_trash().is_some() => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads a part's file afresh: what is open already may be in memory.
    fn verify_local(&self, info: &PartInfo) -> Result<(), StoreError> {
        let data = PartData::open_local(&*self.platform.files, self.part_path(info.file), info)?;
        Part::open(data.reported_to(&self.upkeep.health), *info)?.verify().map(drop)
    }

    fn report_part(&self, info: &PartInfo, error: &StoreError) {
        let file = self.part_path(info.file).display().to_string();
        // Damage inside was reported by its reader; a file that is missing or cannot be read was not.
        if !matches!(error, StoreError::Corrupt { .. }) {
            let damage = crate::upkeep::damage::Damage { file, offset: info.offset, message: error.to_string() };
            self.upkeep.health.report_damage(damage);
        }
    }

    /// Replaces a damaged local copy by the object's bytes, once these are known to be whole; the damaged file is set aside.
    fn fetch_again(&self, shard: &Shard, part: &Arc<Part>) -> Result<(), StoreError> {
        let Some(object_tier) = &self.object_tier else {
            return Ok(());
        };
        let (files, info) = (&*self.platform.files, part.info);
        let moved = PartInfo { locations: PartLocations { local: false, object: true }, ..info };
        let object = object_tier.open_part(files, &self.options.directory, &moved)?;
        let object = Part::open(object.reported_to(&self.upkeep.health), moved)?;
        object.verify()?;
        let path = self.part_path(info.file);
        let is_shared =
            shard.parts_and_deletes().0.iter().any(|other| other.info.file == info.file && other.info.id != info.id);
        if is_shared || info.offset != 0 {
            // The file holds other parts, too: this one is read from the object store from here on.
            self.move_part(shard, info.id, moved.locations)?;
            self.forget_damage(&info);
            return Ok(());
        }
        let temporary = path.with_extension("tmp");
        self.fetch(object.data(), info.bytes, &temporary).inspect_err(|_| drop(files.remove(&temporary)))?;
        let rename = |from: &Path, to: &Path| files.rename(from, to).map_err(StoreError::io("rename to", to));
        match rename(&path, &path.with_extension("damaged")) {
            Err(StoreError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        rename(&temporary, &path)?;
        self.sync_folder("parts")?;
        let is_there = self.move_part(shard, info.id, PartLocations { local: true, object: true })?;
        self.remove_file(&tail_path(&self.options.directory, info.id));
        self.forget_damage(&info);
        if is_there {
            self.counters.parts_fetched_again.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        } else {
            // Merged meanwhile: nothing names the file.
            self.remove_file(&path);
        }
        Ok(())
    }

    fn fetch(&self, object: &PartData, bytes: u64, path: &Path) -> Result<(), StoreError> {
        let files = &*self.platform.files;
        // Left by an attempt that a crash ended.
        let _ = files.remove(path);
        let file = files.open(path, OpenMode::CreateNew).map_err(StoreError::io("create", path))?;
        let mut offset = 0;
        while offset < bytes {
            let step = (bytes - offset).min(STEP_BYTES);
            for read in object.read(&[BlockHandle { offset, bytes: step as u32 }])? {
                file.write_all_at(&read, offset).map_err(StoreError::io("write", path))?;
            }
            offset += step;
        }
        file.sync_data().map_err(StoreError::io("sync", path))
    }
}

/// Returns whether an error says that the file itself is not what was written.
fn is_damage(error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt { .. } => true,
        StoreError::Io { error, .. } => {
            use std::io::ErrorKind::{NotFound, UnexpectedEof};
            const EIO: i32 = 5;
            [NotFound, UnexpectedEof].contains(&error.kind()) || error.raw_os_error() == Some(EIO)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_spread_over_its_period_and_keeps_to_the_rate() {
        let week = Pace { period_ns: 700, bytes_per_second_max: 1_000_000_000 };
        assert_eq!([0, 50, 100].map(|done| week.due_ns(10, done, 100)), [10, 360, 710]);
        let slow = Pace { period_ns: 700, bytes_per_second_max: 10_000_000 };
        assert_eq!(slow.due_ns(10, 50, 100), 10 + 5_000);
    }
}
