//! Whether a data folder is what was written: every checksum of every file, read and never written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platform::{Files, Mapped, Platform};

use crate::flush::segment::{GroupsFile, copies, damaged_segment, open_groups, read_catalog};
use crate::log::frame::Frame;
use crate::log::reader::{Finding, Scan, SegmentBytes};
use crate::log::{LOG_SEGMENT_BYTES_MAX, note, record, segment_path as log_path};
use crate::manifest::twin;
use crate::manifest::{EpochFileInfo, State};
use crate::part::epochs;
use crate::part::{Part, PartData, PartInfo};
use crate::tier::parts::{ObjectTierOptions, part_key, prefix, tail_path};
use crate::tier::{Tier, TierOptions};
use crate::upkeep::damage::Damage;
use crate::upkeep::inspect::{list, read_manifest, unnamed};
use crate::upkeep::progress::{Meter, Progress};
use crate::upkeep::recover::{needed_segments_of, scan_start};
use crate::write::exemplars::{self, EXEMPLARS_SHARD};
use crate::write::producers::{self, PRODUCERS_SHARD};
use crate::{StoreError, part_path};

/// Bytes of blocks that checking objects keeps in memory: each is read once.
const OBJECT_MEMORY_BYTES: u64 = 8 << 20;

/// What checking found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Files read: parts count once each, also where several share a file.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Chunks of parts that were decoded.
    pub chunks: u64,
    /// Records of the log that count.
    pub log_records: u64,
    /// Parts that are in an object store that was not given, and so were not read.
    pub objects_skipped: u64,
    /// Unacknowledged records that a crash tore: no damage.
    pub log_torn: Vec<String>,
    /// Files that nothing names.
    pub unnamed: Vec<String>,
    /// Damage: the first place of each file.
    pub damages: Vec<Damage>,
}

/// Where the folder is, and what was found so far.
struct Check<'a> {
    files: &'a dyn Files,
    directory: &'a Path,
    tier: Option<Arc<Tier>>,
    meter: Meter<'a>,
    report: CheckReport,
}

/// Reads every byte of a data folder and checks it, and the objects of its tier if one is given. Changes nothing, and may be asked
/// about a folder that is open elsewhere: what the manifest names is immutable, and a file that goes meanwhile is no damage.
pub fn check(
    platform: &Platform,
    directory: &Path,
    objects: Option<&ObjectTierOptions>,
    tell: &mut dyn FnMut(&Progress),
) -> Result<CheckReport, StoreError> {
    let files = &*platform.files;
    let state = match read_manifest(files, directory) {
        Ok(state) => state,
        Err(error @ StoreError::Corrupt { .. }) => {
            let mut report = CheckReport { files: 1, ..CheckReport::default() };
            report.damages.extend(damage(&error));
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let tier = objects.map(|options| open_tier(platform, options, state.objects_incarnation())).transpose()?;
    let meter = Meter::new(state.parts_with_trash().map(|part| part.bytes).sum(), tell);
    let mut check = Check { files, directory, tier, meter, report: CheckReport { files: 1, ..CheckReport::default() } };
    check.manifest()?;
    for (id, shard) in &state.segments {
        check.index(*id, *shard)?;
    }
    for (number, info) in &state.epoch_files {
        check.epochs(*number, *info)?;
    }
    check.log(&state)?;
    check.partitions(&state);
    for part in state.parts_with_trash() {
        check.part(&state, part)?;
    }
    check.report.bytes = check.meter.bytes();
    check.report.unnamed = unnamed(files, directory, &read_manifest(files, directory)?)?;
    Ok(check.report)
}

fn open_tier(platform: &Platform, options: &ObjectTierOptions, identity: u64) -> Result<Arc<Tier>, StoreError> {
    let objects = platform.objects.open(&options.url, &options.objects).map_err(StoreError::Objects)?;
    let settings = TierOptions { identity, memory_bytes: OBJECT_MEMORY_BYTES, flash: None, ..TierOptions::default() };
    Tier::open(platform.clone(), objects, settings).map(Arc::new).map_err(StoreError::Objects)
}

/// What an error says about a file; `None` where it says nothing about the file's content.
fn damage(error: &StoreError) -> Option<Damage> {
    match error {
        StoreError::Corrupt { file, offset, message } => {
            Some(Damage { file: file.display().to_string(), offset: *offset, message: message.clone() })
        }
        _ => None,
    }
}

fn is_missing(error: &StoreError) -> bool {
    use platform::objects::ObjectErrorKind;
    match error {
        StoreError::Io { error, .. } => error.kind() == std::io::ErrorKind::NotFound,
        StoreError::Objects(error) => error.kind == ObjectErrorKind::Missing,
        _ => false,
    }
}

impl Check<'_> {
    /// Notes what a look at a file gave. A file that is not there any more is damage only if the manifest still names it.
    fn note(
        &mut self,
        path: &Path,
        looked: Result<u64, StoreError>,
        is_named: impl FnOnce(&State) -> bool,
    ) -> Result<(), StoreError> {
        self.report.files += 1;
        match looked {
            Ok(bytes) => self.meter.add(bytes),
            Err(error) if is_missing(&error) => {
                if is_named(&read_manifest(self.files, self.directory)?) {
                    let message = "expected a file that the manifest names, found none".to_owned();
                    self.report.damages.push(Damage { file: path.display().to_string(), offset: 0, message });
                }
            }
            Err(error) => match damage(&error) {
                Some(damage) => self.report.damages.push(damage),
                None => return Err(error),
            },
        }
        Ok(())
    }

    /// Returns whether both copies of the manifest are what was written. They are read while they may be written: what is said twice counts.
    fn manifest(&mut self) -> Result<(), StoreError> {
        let damage = || Ok::<_, StoreError>(twin::read(self.files, self.directory)?.and_then(|found| found.damage));
        let found = damage()?;
        if found.is_some() && found == damage()? {
            self.report.damages.extend(found);
        }
        Ok(())
    }

    fn epochs(&mut self, number: u64, info: EpochFileInfo) -> Result<(), StoreError> {
        let looked = epochs::open::check_file(self.files, self.directory, number, info);
        let path = epochs::file::path_of(self.directory, number);
        self.note(&path, looked, |state| state.epoch_files.contains_key(&number))
    }

    /// Returns whether the manifest agrees with itself: rows are inside their partitions, partitions of level 2 do not overlap.
    fn partitions(&mut self, state: &State) {
        let file = self.directory.join("MANIFEST").display().to_string();
        let mut found = Vec::new();
        let mut object_tier: Vec<&PartInfo> = Vec::new();
        for part in state.parts.values() {
            let (partition, range) = (part.partition, part.range);
            if part.rows > 0 && !(partition.contains(range.start_ns) && partition.contains(range.end_ns)) {
                found.push(format!("part {}: expected rows in {partition:?}, found {range:?}", part.id));
            }
            if part.level == 2 && !part.is_patch() {
                object_tier.push(part);
            }
        }
        object_tier.sort_unstable_by_key(|part| (part.shard, part.class, part.partition.start_ns));
        for pair in object_tier.windows(2) {
            if let [a, b] = pair
                && (a.shard, a.class) == (b.shard, b.class)
                && a.partition.end_ns >= b.partition.start_ns
            {
                let (first, second) = (a.partition, b.partition);
                let parts = format!("parts {} and {}", a.id, b.id);
                found.push(format!("{parts}: expected apart from each other, found {first:?} and {second:?}"));
            }
        }
        let damage = |message| Damage { file: file.clone(), offset: 0, message };
        self.report.damages.extend(found.into_iter().map(damage));
    }

    /// Both copies of an index segment. A twin that is missing is no damage: folders of older versions have none, and one is made when the
    /// folder is opened.
    fn index(&mut self, id: u64, owner: Option<u32>) -> Result<(), StoreError> {
        let [path, twin] = copies(self.directory, id);
        self.meter.begin(path.display().to_string());
        let looked = self.segment(&path, id, owner);
        self.note(&path, looked, |state| state.segments.contains_key(&id))?;
        match self.segment(&twin, id, owner) {
            Err(error) if is_missing(&error) => Ok(()),
            looked => self.note(&twin, looked, |_| false),
        }
    }

    fn segment(&self, path: &Path, id: u64, owner: Option<u32>) -> Result<u64, StoreError> {
        match owner {
            Some(EXEMPLARS_SHARD) => drop(exemplars::load(self.files, path, usize::MAX)?),
            Some(PRODUCERS_SHARD) => drop(producers::load(self.files, path)?),
            None => drop(read_catalog(self.files, path)?),
            Some(_) => {
                if let GroupsFile::Segment(segment) = open_groups(self.files, path, id, None)? {
                    segment.verify().map_err(|error| damaged_segment(path, error))?;
                    return Ok(segment.file_bytes());
                }
            }
        }
        crate::upkeep::inspect::size_of(self.files, path)
    }

    fn part(&mut self, state: &State, info: &PartInfo) -> Result<(), StoreError> {
        if info.locations.local {
            let path = part_path(self.directory, info.file);
            self.meter.begin(path.display().to_string());
            let data = PartData::open_local(self.files, path.clone(), info);
            let looked = data.and_then(|data| self.verify(data, *info));
            self.note(&path, looked, |state| state.parts.get(&info.id).is_some_and(|part| part.locations.local))?;
        }
        if !info.locations.object {
            return Ok(());
        }
        let Some(tier) = self.tier.clone() else {
            self.report.objects_skipped += 1;
            return Ok(());
        };
        let key = part_key(&prefix(state.objects_incarnation()), info.id);
        self.meter.begin(key.clone());
        let data = PartData::object(tier.clone(), key.clone(), info.bytes, None);
        let looked = data.fetch_tail().and_then(|tail| {
            if !info.locations.local {
                self.compare_tail(info, &tail)?;
            }
            let tail: Mapped = Arc::new(tail);
            self.verify(PartData::object(tier, key.clone(), info.bytes, Some(tail)), *info)
        });
        self.note(Path::new(&key), looked, |state| state.parts.contains_key(&info.id))
    }

    /// The local copy of a part's index, which is read instead of the object's.
    fn compare_tail(&self, info: &PartInfo, tail: &[u8]) -> Result<(), StoreError> {
        let path = tail_path(self.directory, info.id);
        match platform::read_file(self.files, &path, info.bytes) {
            // Fetched again at the next opening.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::io("read", &path)(error)),
            Ok(local) if local == tail => Ok(()),
            Ok(local) => {
                let same = local.iter().zip(tail).take_while(|(local, object)| local == object).count();
                Err(StoreError::corrupt(
                    &path,
                    same as u64,
                    "expected the index of the part's object, found other bytes",
                ))
            }
        }
    }

    fn verify(&mut self, data: PartData, info: PartInfo) -> Result<u64, StoreError> {
        self.report.chunks += Part::open(data, info)?.verify()?;
        Ok(info.bytes)
    }

    /// Reads the log as a crash's recovery would. What looks damaged in a folder that is being written may have been read in
    /// the moment in which it was written: it is read again.
    fn log(&mut self, state: &State) -> Result<(), StoreError> {
        self.meter.begin(self.directory.join("log").display().to_string());
        let mut found = scan_log(self.files, self.directory, state)?;
        if !found.damages.is_empty() {
            found = scan_log(self.files, self.directory, &read_manifest(self.files, self.directory)?)?;
        }
        self.meter.add(found.bytes);
        self.report.files += found.files;
        self.report.log_records += found.log_records;
        self.report.log_torn.extend(found.log_torn);
        self.report.damages.extend(found.damages);
        Ok(())
    }
}

fn scan_log(files: &dyn Files, directory: &Path, state: &State) -> Result<CheckReport, StoreError> {
    let directory = directory.join("log");
    let mut report = CheckReport::default();
    // Before the segments: what it says is in them.
    let note = note::read(files, &directory)?;
    let mut scan = Scan::new(scan_start(state, state.epoch, note));
    let (numbers, missing) = needed_segments_of(state, state.edition > 0, note, &list(files, &directory)?);
    for number in numbers {
        let path: PathBuf = log_path(&directory, number);
        if missing.contains(&number) {
            scan.missing_segment(number, &path, state.log_ends.contains_key(&number));
            continue;
        }
        let bytes = match platform::read_file(files, &path, LOG_SEGMENT_BYTES_MAX) {
            // Given up since it was listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.map_err(StoreError::io("read log segment", &path))?,
        };
        let segment = SegmentBytes { number, path: &path, bytes: &bytes, end: state.log_ends.get(&number).copied() };
        let mut unreadable = None;
        let visit = |frame: Frame<'_>| {
            report.log_records += 1;
            if let Err(error) = record::decode(frame.kind, frame.payload) {
                unreadable.get_or_insert_with(|| format!("record {}: {}", frame.sequence, error.what));
            }
            Ok::<(), StoreError>(())
        };
        scan.segment(&segment, visit)?;
        report.files += 1;
        report.bytes += bytes.len() as u64;
        let file = path.display().to_string();
        report.damages.extend(unreadable.map(|message| Damage { file, offset: 0, message }));
    }
    for finding in scan.into_findings() {
        match &finding {
            Finding::TornTail { .. } => report.log_torn.push(finding.to_string()),
            Finding::DamagedRecord { file, offset, .. } => {
                report.damages.push(Damage { file: file.clone(), offset: *offset, message: finding.to_string() });
            }
        }
    }
    Ok(report)
}
