//! What a folder should hold and does not: found before anything is written, and refused unless an operator accepts it.

use std::path::Path;
use std::sync::Arc;

use model::TimeRange;
use platform::Files;

use super::reused::Reused;
use super::{Opened, Recovery};
use crate::log::reader::Finding;
use crate::log::times::{RecordTimes, range_of};
use crate::manifest::{Edit, Manifest, State};
use crate::part::{Part, PartInfo, PartLocations};
use crate::tier::parts::ObjectTier;
use crate::upkeep::health::Health;
use crate::{Loss, StoreError, open_part, part_path};

/// The parts that the manifest names.
pub(super) struct OpenedParts {
    /// By shard.
    pub(super) parts: Vec<Vec<Arc<Part>>>,
    /// Those whose local files cannot be used.
    pub(super) set_aside: Vec<PartInfo>,
    pub(super) losses: Vec<Loss>,
}

/// Where parts are.
pub(super) struct Folder<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) directory: &'a Path,
    pub(super) object_tier: Option<&'a ObjectTier>,
    pub(super) health: &'a Arc<Health>,
    /// Parts and segments that are open already.
    pub(super) reused: &'a Reused,
}

/// Returns whether a file is missing or damaged. What the operating system refuses now (open files, memory) it may give later: nothing is
/// given up for that.
fn is_gone(error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt { .. } => true,
        StoreError::Io { error, .. } => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// Opens all parts. One whose local file cannot be used is read from the object store, if it is there too; else it is lost.
pub(super) fn open_parts(
    folder: &Folder<'_>,
    state: &mut State,
    recovery: &mut Recovery,
) -> Result<OpenedParts, StoreError> {
    let open = |info: PartInfo| match folder.reused.part(&info) {
        Some(part) => Ok(part),
        None => open_part(folder.files, folder.directory, folder.object_tier, folder.health, info),
    };
    let mut parts: Vec<Vec<Arc<Part>>> = vec![Vec::new(); state.shards as usize];
    let (mut set_aside, mut losses, mut edits) = (Vec::new(), Vec::new(), Vec::new());
    for info in state.parts.values() {
        let opened = match open(*info) {
            Err(error) if is_gone(&error) => {
                set_aside.push(*info);
                let remote = PartInfo { locations: PartLocations { local: false, object: true }, ..*info };
                let again = folder.object_tier.filter(|_| info.locations.object).map(|_| open(remote));
                match again {
                    Some(Ok(part)) => {
                        recovery.parts_fetched.push(error.to_string());
                        edits.push(Edit::Moved { id: info.id, locations: remote.locations });
                        part
                    }
                    // The object store cannot be reached now: that says nothing about the part.
                    Some(Err(StoreError::Objects(error))) => return Err(StoreError::Objects(error)),
                    _ => {
                        recovery.parts_set_aside.push(error.to_string());
                        losses.push(loss_of(folder.directory, info, &error));
                        edits.push(Edit::RemovePart(info.id));
                        continue;
                    }
                }
            }
            opened => opened?,
        };
        if let Some(parts) = parts.get_mut(info.shard as usize) {
            parts.push(opened);
        }
    }
    edits.iter().for_each(|edit| state.apply(edit));
    Ok(OpenedParts { parts, set_aside, losses })
}

fn loss_of(directory: &Path, info: &PartInfo, error: &StoreError) -> Loss {
    let file = part_path(directory, info.file).display().to_string();
    let what = match error {
        StoreError::Corrupt { offset, message, .. } => format!("damaged at offset {offset}: {message}"),
        _ => "the file is missing".to_owned(),
    };
    Loss { file, message: format!("{what}; {} rows in part {}", info.rows, info.id), range: info.range }
}

impl Opened {
    /// Adds what the log is missing, as far as no operator has accepted it before. Rows whose groups are not known are lost with the records
    /// that named them.
    pub(super) fn note_log_losses(&mut self, times: &[RecordTimes], of_unknown_rows: TimeRange) {
        for finding in &self.recovery.log_findings {
            let Finding::DamagedRecord { file, segment, offset, sequences, is_missing, is_lost: true } = finding else {
                continue;
            };
            if self.state.log_gaps.contains(&(*segment, *offset)) {
                continue;
            }
            let what =
                if *is_missing { "the file is missing".to_owned() } else { format!("damaged at offset {offset}") };
            let message = format!("{what}; log records {} to {}", sequences.0, sequences.1);
            let range = range_of(times, *sequences).map_or(TimeRange::ALL, |range| range.union(of_unknown_rows));
            let loss = Loss { file: file.clone(), message, range };
            self.losses.push((loss, Some((*segment, *offset))));
        }
    }

    /// Refuses a folder with losses, unless they are accepted. Nothing was written so far.
    pub(super) fn decide(&mut self) -> Result<(), StoreError> {
        if self.losses.is_empty() {
            return Ok(());
        }
        if !self.options.accept_loss {
            let losses = self.losses.iter().map(|(loss, _)| loss.clone()).collect();
            return Err(StoreError::Lossy { directory: self.options.directory.clone(), losses });
        }
        for (loss, gap) in &self.losses {
            self.state.apply(&Edit::AddLoss(loss.clone()));
            if let Some((segment, offset)) = gap {
                self.state.apply(&Edit::LogGap { segment: *segment, offset: *offset });
            }
            self.recovery.losses_accepted.push(loss.clone());
        }
        // The manifest may be an older one.
        self.state.begin_life();
        Ok(())
    }

    /// Writes what was found to the manifest, then gives files that cannot be used other names.
    pub(super) fn write_manifest(&mut self) -> Result<Manifest, StoreError> {
        let files = &*self.platform.files;
        let manifest = Manifest::write(files, &self.options.directory, self.state.clone())?;
        for info in &self.set_aside {
            let path = part_path(&self.options.directory, info.file);
            // It is not read any more: what it held is in the object store, or a loss.
            let end = info.offset.saturating_add(info.bytes).saturating_add(1);
            self.health.repaired(&path.display().to_string(), info.offset..end);
            let is_shared = manifest.state.parts.values().any(|other| other.locations.local && other.file == info.file);
            // A missing file cannot be renamed; it is reported all the same. One that holds other parts too stays.
            if !is_shared {
                let _ = files.rename(&path, &path.with_extension("damaged"));
            }
        }
        Ok(manifest)
    }
}
