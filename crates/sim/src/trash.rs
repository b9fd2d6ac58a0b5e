//! The trash: what expired is restored now and then, and then the oracle expects its rows again.

use std::collections::BTreeMap;
use std::path::Path;

use store::{RestoredTrash, TrashReport, restore_trash, trash_of};

use crate::world::{DATA, SHORT, World, options};

/// What the trash held after the last operation.
pub(crate) struct Trash {
    /// Last timestamps of parts, by their numbers.
    parts: BTreeMap<u64, i64>,
    /// Rows before this time may be gone for good.
    gone_before_ns: i64,
}

impl Trash {
    /// Takes it that rows before a time may be gone for good.
    pub(crate) fn may_lack(&mut self, before_ns: i64) {
        self.gone_before_ns = self.gone_before_ns.max(before_ns);
    }
}

impl Default for Trash {
    fn default() -> Self {
        Self { parts: BTreeMap::new(), gone_before_ns: i64::MIN }
    }
}

impl World {
    fn list_trash(&self) -> Result<Vec<TrashReport>, String> {
        trash_of(&self.platform(), Path::new(DATA)).map_err(|error| format!("listing the trash: {error}"))
    }

    /// Takes note of what left the trash for good in the last operation.
    pub(crate) fn watch_trash(&mut self) -> Result<(), String> {
        let listed = self.list_trash()?;
        let parts: BTreeMap<u64, i64> = listed.iter().map(|part| (part.id, part.range.end_ns)).collect();
        let emptied = self.trash.parts.iter().filter(|(id, _)| !parts.contains_key(id));
        let emptied = emptied.map(|(_, end_ns)| end_ns.saturating_add(1)).max().unwrap_or(i64::MIN);
        // Here a part may go as soon as it is in the trash.
        let keeps_nothing = options(self.seed).trash_age_ms_max == 0 || self.full_for > 0;
        let expired =
            self.oracles.get(SHORT).filter(|_| keeps_nothing).map_or(i64::MIN, |oracle| oracle.gone_before_ns);
        self.trash.gone_before_ns = self.trash.gone_before_ns.max(emptied).max(expired);
        self.trash.parts = parts;
        Ok(())
    }

    /// Closes the store, restores one part or all from the trash, and opens the store again.
    pub(crate) fn restore_from_trash(&mut self) -> Result<(), String> {
        let listed = self.list_trash()?;
        if listed.is_empty() || self.full_for > 0 {
            return Ok(());
        }
        let is_all = self.below(3) > 0;
        let ids: Vec<u64> = match listed.get(self.below(listed.len() as u64) as usize) {
            Some(part) if !is_all => vec![part.id],
            _ => Vec::new(),
        };
        // For ever, or as long as the database keeps its rows.
        let retention_ns = (self.below(4) > 0).then_some(0);
        self.close();
        let restored = restore_trash(&self.platform(), Path::new(DATA), &ids, retention_ns);
        let restored = restored.map_err(|error| format!("restoring from the trash: {error}"))?;
        self.report.restored += restored.parts;
        let chosen: Vec<&TrashReport> = listed.iter().filter(|part| ids.is_empty() || ids.contains(&part.id)).collect();
        self.expect_restored(&chosen, &restored, retention_ns, is_all)?;
        self.trash.parts = self.list_trash()?.iter().map(|part| (part.id, part.range.end_ns)).collect();
        self.open()?;
        self.compare_everything()
    }

    fn expect_restored(
        &mut self,
        chosen: &[&TrashReport],
        restored: &RestoredTrash,
        retention_ns: Option<i64>,
        is_all: bool,
    ) -> Result<(), String> {
        if restored.parts as usize + restored.refused.len() != chosen.len() {
            return Err(format!("{} parts were to be restored: {restored:?}", chosen.len()));
        }
        let is_refused = |part: &TrashReport| {
            let name = format!("part {} ", part.id);
            restored.refused.iter().any(|reason| reason.starts_with(&name))
        };
        let first_ns = chosen.iter().filter(|part| !is_refused(part)).map(|part| part.range.start_ns).min();
        let (Some(first_ns), Some(oracle)) = (first_ns, self.oracles.get_mut(SHORT)) else {
            return Ok(());
        };
        let expired_before_ns = oracle.gone_before_ns;
        oracle.floor_ns = oracle.floor_ns.min(first_ns);
        oracle.retention_ns = retention_ns.unwrap_or(oracle.retention_ns);
        if is_all && restored.refused.is_empty() {
            // All that expired is there again, but for what the trash did not have any more.
            oracle.gone_before_ns = self.trash.gone_before_ns;
            self.report.restored_samples +=
                oracle.samples_between(first_ns.max(oracle.gone_before_ns), expired_before_ns);
        }
        Ok(())
    }
}
