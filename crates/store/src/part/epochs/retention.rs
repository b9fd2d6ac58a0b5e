//! What goes of regular databases: files all of whose epochs are past keeping go to the trash, and from there in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::file::path_of;
use super::regular::{EpochRecord, Records, Regular, all_records, retain_records};
use crate::manifest::{Edit, EpochEdit};
use crate::{Store, StoreError};

/// The files all of whose epochs are before one.
fn expired(records: &Records, oldest: i64) -> BTreeSet<u64> {
    let mut newest: BTreeMap<u64, i64> = BTreeMap::new();
    for record in all_records(records) {
        let epoch = newest.entry(record.file.header.number).or_insert(record.header.epoch);
        *epoch = (*epoch).max(record.header.epoch);
    }
    newest.into_iter().filter(|(_, newest)| *newest < oldest).map(|(number, _)| number).collect()
}

impl Store {
    /// Puts files into the trash all of whose epochs are past keeping. Returns whether there were any.
    pub(crate) fn drop_expired_epochs(&self) -> Result<bool, StoreError> {
        let now_ns = self.trusted_now_ns();
        let databases: Vec<Arc<Regular>> = self.regular.read().values().cloned().collect();
        let mut dropped = false;
        for regular in databases {
            let oldest_ns = self.retention.oldest_ns(regular.database, &self.policy_of(regular.database), now_ns);
            if oldest_ns == i64::MIN {
                continue;
            }
            let _work = regular.work.lock();
            let mut writer = regular.writer.lock();
            let oldest = regular.definition().epoch_at(oldest_ns.saturating_sub(1)).saturating_add(1);
            let gone = expired(&regular.records.read(), oldest);
            if gone.is_empty() {
                continue;
            }
            if writer.values.as_ref().is_some_and(|active| gone.contains(&active.file.header.number)) {
                self.end_file(&mut writer.values)?;
            }
            let mut edits =
                gone.iter().map(|number| Edit::Epochs(EpochEdit::Expire { number: *number, at_ns: now_ns })).collect();
            self.commit_at_trusted_time(&mut edits)?;
            let is_kept = |record: &EpochRecord| !gone.contains(&record.file.header.number);
            retain_records(Arc::make_mut(&mut regular.records.write()), is_kept);
            dropped = true;
        }
        Ok(dropped)
    }

    /// Removes files that have been in the trash for long enough, or for which the disk has no room. Returns whether there were any.
    pub(crate) fn empty_epoch_trash(&self) -> Result<bool, StoreError> {
        let trash: Vec<(u64, i64)> = {
            let manifest = self.manifest.lock();
            manifest.state.epoch_trash.iter().map(|(number, at_ns)| (*number, *at_ns)).collect()
        };
        if trash.is_empty() {
            return Ok(false);
        }
        let age_ns_max = i64::try_from(self.options.trash_age_ms_max).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let (now_ns, is_short) = (self.trusted_now_ns(), self.is_disk_short());
        let is_due = |at_ns: i64| is_short || now_ns.saturating_sub(at_ns) >= age_ns_max;
        let due: Vec<u64> = trash.into_iter().filter(|(_, at_ns)| is_due(*at_ns)).map(|(number, _)| number).collect();
        if due.is_empty() {
            return Ok(false);
        }
        let edits = due.iter().map(|number| EpochEdit::Remove { number: *number }).collect();
        self.commit_epoch_edits(edits)?;
        due.iter().for_each(|number| self.remove_file(&path_of(&self.options.directory, *number)));
        Ok(true)
    }
}
