//! The scrub of what acknowledged rows hang on before they are in parts: the manifest and the log. Both are whole in memory, and are written
//! anew from there.

use crate::log::note::Note;
use crate::log::reader::{Finding, Scan, ScanStart, SegmentBytes};
use crate::log::{LOG_SEGMENT_BYTES_MAX, LiveSegment, segment_path};
use crate::upkeep::damage::Damage;
use crate::upkeep::scrub::is_damage;
use crate::{Store, StoreError};

impl Store {
    /// Reads both copies of the manifest. If one is not what was written, both are written anew.
    pub(super) fn scrub_manifest(&self) -> Result<(), StoreError> {
        let mut manifest = self.manifest.lock();
        let Some(damage) = manifest.damage(&*self.platform.files)? else {
            return Ok(());
        };
        self.upkeep.health.report_damage(damage.clone());
        self.log.check()?;
        let rewritten = manifest.rewrite(&*self.platform.files);
        if self.note_rewritten(rewritten)? {
            self.upkeep.health.repaired(&damage.file, 0..u64::MAX);
        }
        Ok(())
    }

    /// Reads a segment of the log as far as its records are acknowledged. Where some cannot be read any more, all heads are flushed: then their
    /// rows are in parts, and the segment is not needed any more.
    pub(super) fn scrub_log_segment(&self, number: u32) -> Result<(), StoreError> {
        let live = || self.log.segments().into_iter().find(|segment| segment.number == number);
        let Some(segment) = live() else {
            return Ok(());
        };
        match self.log_damage(&segment)? {
            // A segment that was released meanwhile may have been written over.
            Some(damage) if live().is_some() => {
                self.upkeep.health.report_damage(damage);
                self.flush_all()
            }
            _ => Ok(()),
        }
    }

    fn log_damage(&self, segment: &LiveSegment) -> Result<Option<Damage>, StoreError> {
        let path = segment_path(&self.options.directory.join("log"), segment.number);
        let file = path.display().to_string();
        let read = platform::read_file(&*self.platform.files, &path, LOG_SEGMENT_BYTES_MAX);
        let bytes = match read.map_err(StoreError::io("read log segment", &path)) {
            Err(error) if is_damage(&error) => {
                return Ok(Some(Damage { file, offset: 0, message: error.to_string() }));
            }
            read => read?,
        };
        let (end, gaps) = {
            let manifest = self.manifest.lock();
            (manifest.state.log_ends.get(&segment.number).copied(), manifest.state.log_gaps.clone())
        };
        let (newest_first, durable) = segment.sequences;
        let note = Note { durable, newest: segment.number, newest_first, ..Note::default() };
        let mut scan = Scan::new(ScanStart { last_run: end.is_none().then_some(note), ..ScanStart::default() });
        let segment = SegmentBytes { number: segment.number, path: &path, bytes: &bytes, end };
        scan.segment(&segment, |_| Ok::<(), StoreError>(()))?;
        let damage = scan.into_findings().into_iter().find_map(|finding| match finding {
            // Records that were being written while the file was read are not meant.
            Finding::DamagedRecord { segment, offset, sequences: (first, last), .. }
                if first <= durable && !gaps.contains(&(segment, offset)) =>
            {
                let message =
                    format!("records {first} to {last} cannot be read any more; their rows are being flushed");
                Some(Damage { file: file.clone(), offset, message })
            }
            _ => None,
        });
        Ok(damage)
    }
}
