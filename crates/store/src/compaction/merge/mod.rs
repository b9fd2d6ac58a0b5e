//! Carrying out merges: parts go in, key by key, and parts of other partitions come out.

mod adopt;
mod copy;
mod nodes;
mod outputs;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use index::RoaringBitmap;

use crate::compaction::{self, CompactionJob, CompactionState, Urgency};
use crate::head::shard::{Rest, Shard};
use crate::journal::ChangeKind;
use crate::manifest::Edit;
use crate::part::{KeyCursor, Part, PartInfo, PartKey};
use crate::retention::deletes::Delete;
use crate::tier::parts::tail_path;
use crate::write::sealed::unseal;
use crate::{Store, StoreError};

use outputs::Outputs;
use rows::Sources;

/// How long after a flush merges no longer wait for more rows.
const IDLE_NS: u64 = 10 * 60 * 1_000_000_000;

/// With so many times the flushes that a partition of level 0 may have parts of, merges do not keep to their rate.
const BEHIND_TIMES: usize = 2;

impl Store {
    /// Carries out the most urgent merge of a shard, if one is due, or if `is_forced` one that would wait for more. Whether it did.
    pub(crate) fn merge_if_due(&self, shard: &Shard, is_forced: bool) -> Result<bool, StoreError> {
        let mut rest = shard.work.lock();
        let urgency = match self.is_idle(shard, &mut rest) {
            _ if is_forced => Urgency::Forced,
            true => Urgency::Idle,
            false => Urgency::Waiting,
        };
        let Some((class, job)) = self.plan(shard, urgency) else {
            return Ok(false);
        };
        let _hurry = (is_forced || self.is_behind(shard)).then(|| self.throttle.hurry());
        let is_done = self.run(shard, class, &job)?;
        if is_done {
            self.counters.merged(job.reason);
        }
        Ok(is_done)
    }

    /// Returns whether flushes bring more than merges take away at the rate that they have.
    fn is_behind(&self, shard: &Shard) -> bool {
        let (parts, _) = shard.parts_and_deletes();
        let of_level0 = parts.iter().filter(|part| part.info.level == 0);
        let flushes = of_level0.map(|part| part.info.file).collect::<BTreeSet<_>>().len();
        flushes > BEHIND_TIMES * self.options.level0_parts_max
    }

    /// Returns whether the last flush of a shard is some time ago.
    fn is_idle(&self, shard: &Shard, rest: &mut Rest) -> bool {
        let (parts, _) = shard.parts_and_deletes();
        let newest = parts.iter().map(|part| part.info.sequences.1).max().unwrap_or(0);
        let now_ns = self.platform.clock.monotonic_ns();
        if rest.sequence != newest || rest.since_ns == 0 {
            *rest = Rest { sequence: newest, since_ns: now_ns.max(1) };
        }
        now_ns.saturating_sub(rest.since_ns) >= IDLE_NS
    }

    /// The most urgent merge among a shard's retention classes.
    fn plan(&self, shard: &Shard, urgency: Urgency) -> Option<(u32, CompactionJob)> {
        let (parts, deletes) = shard.parts_and_deletes();
        let mut classes: BTreeMap<u32, Vec<PartInfo>> = BTreeMap::new();
        for part in parts.iter() {
            classes.entry(part.info.class).or_default().push(part.info);
        }
        let masked: BTreeSet<u64> = parts
            .iter()
            .filter(|part| deletes.iter().any(|delete| delete.masks(part)))
            .map(|part| part.info.id)
            .collect();
        let (lengths, now_ns) = (self.lengths(), self.trusted_now_ns());
        classes.into_iter().find_map(|(class, parts)| {
            let state = CompactionState { parts: &parts, lengths, now_ns, masked: &masked, urgency };
            Some((class, compaction::plan(&state, &self.merge_policy(class))?))
        })
    }

    /// Writes the outputs, commits them in place of the inputs, and removes the inputs' files. Returns whether it did: a fold waits for rows
    /// that are not in its inputs yet.
    fn run(&self, shard: &Shard, class: u32, job: &CompactionJob) -> Result<bool, StoreError> {
        let (parts, deletes) = shard.parts_and_deletes();
        let inputs: Vec<Arc<Part>> = parts.iter().filter(|part| job.inputs.contains(&part.info.id)).cloned().collect();
        // A fold, or late rows that came for one: samples go.
        let folds = inputs.iter().any(|part| part.info.fold_ns < job.fold_ns);
        if folds && !self.seal_unheld(shard, class, job, &inputs)? {
            return Ok(false);
        }
        let written = match self.adopted(&inputs, &deletes, job) {
            Some(adopted) => vec![adopted],
            None => self.write_merged(shard, class, job, &inputs, &deletes)?,
        };
        let opened = written.iter().map(|info| self.open_part(*info)).collect::<Result<Vec<_>, _>>()?;
        let mut edits: Vec<Edit> = written.into_iter().map(Edit::AddPart).collect();
        edits.extend(job.inputs.iter().map(|id| Edit::RemovePart(*id)));
        let groups = inputs.iter().fold(RoaringBitmap::new(), |groups, part| groups | &part.groups);
        let left = opened.iter().fold(groups, |groups, part| groups - &part.groups);
        let withdrawn = folds.then(|| self.withdraw_journal()).transpose()?;
        let replaced = self.replace_parts(shard, &edits, &inputs, opened);
        if folds {
            // Even if it failed: readers may see the new parts by then.
            self.journal.replaced(ChangeKind::Folded, shard.number, &inputs);
            unseal(shard, &inputs);
        }
        drop(withdrawn);
        replaced?;
        // All rows of these were deleted.
        if !left.is_empty() {
            self.purge_groups(shard, left)?;
        }
        Ok(true)
    }

    /// As [`Store::seal`]; not what views hold by now, which may be more than when the merge was planned.
    fn seal_unheld(
        &self,
        shard: &Shard,
        class: u32,
        job: &CompactionJob,
        inputs: &[Arc<Part>],
    ) -> Result<bool, StoreError> {
        let is_sealed = self.seal(shard, class, inputs)?;
        let is_held = self.is_held_from_folding(class, job, inputs.iter().map(|part| &part.info));
        if is_held {
            unseal(shard, inputs);
        }
        Ok(is_sealed && !is_held)
    }

    /// The only input as the output, where nothing has to be written.
    fn adopted(&self, inputs: &[Arc<Part>], deletes: &[Delete], job: &CompactionJob) -> Option<PartInfo> {
        let [part] = inputs else { return None };
        // A part of version 1 has no summaries where later ones have.
        if !part.has_summaries() || deletes.iter().any(|delete| delete.masks(part)) {
            return None;
        }
        let adopted = adopt::adopt(&part.info, part.groups.len(), job, self.options.node_rows_min)?;
        let deletes_through = deletes.last().map_or(0, |last| last.sequence);
        // A number of its own, as what is written has: age among patches follows from it.
        Some(PartInfo { id: self.manifest.lock().take_id(), deletes_through, ..adopted })
    }

    /// Writes the outputs of a merge.
    fn write_merged(
        &self,
        shard: &Shard,
        class: u32,
        job: &CompactionJob,
        inputs: &[Arc<Part>],
        deletes: &[Delete],
    ) -> Result<Vec<PartInfo>, StoreError> {
        let deletes_through = deletes.last().map_or(0, |last| last.sequence);
        let unfolded = if job.fold_ns > 0 { self.unfolded_groups(shard)? } else { RoaringBitmap::new() };
        let mut outputs = Outputs::new(self, (shard.number, class), job, (deletes_through, unfolded));
        let written = write_outputs(inputs, deletes, &mut outputs);
        // What was written goes at once: on a full disk it would keep the next attempt from succeeding.
        let written = written.inspect_err(|_| outputs.abandon())?;
        self.sync_folder("parts")?;
        self.counters.wrote_parts(&written);
        Ok(written)
    }

    /// Commits edits that put some parts in place of others, then shows them to readers and removes files that no part is in
    /// any more.
    pub(crate) fn replace_parts(
        &self,
        shard: &Shard,
        edits: &[Edit],
        removed: &[Arc<Part>],
        added: Vec<Arc<Part>>,
    ) -> Result<(), StoreError> {
        self.commit_edits(edits)?;
        let gone: BTreeSet<u64> = removed.iter().map(|part| part.info.id).collect();
        {
            let mut state = shard.state.lock();
            let kept = state.parts.iter().filter(|part| !gone.contains(&part.info.id)).cloned();
            let mut parts: Vec<Arc<Part>> = kept.chain(added).collect();
            parts.sort_unstable_by_key(|part| compaction::age_order(&part.info));
            state.parts = Arc::new(parts);
        }
        self.remove_part_files(shard, removed);
        self.drop_idle_deletes(shard)
    }

    /// Removes files and objects of parts that are no more, unless other parts are in the same file.
    pub(crate) fn remove_part_files(&self, shard: &Shard, removed: &[Arc<Part>]) {
        let kept_files: BTreeSet<u64> = {
            let state = shard.state.lock();
            let trash = shard.trash.lock();
            state.parts.iter().chain(trash.iter().map(|trashed| &trashed.part)).map(|part| part.info.file).collect()
        };
        for part in removed {
            self.forget_damage(&part.info);
            self.counters.bytes_replaced.fetch_add(part.info.bytes, Ordering::Relaxed);
            if !part.info.locations.local {
                self.remove_file(&tail_path(&self.options.directory, part.info.id));
            } else if !kept_files.contains(&part.info.file) {
                self.remove_file(&self.part_path(part.info.file));
            }
        }
        self.forget_objects(removed);
    }
}

/// Goes over the inputs as often as there are more outputs than may be written at once.
fn write_outputs(
    inputs: &[Arc<Part>],
    deletes: &[Delete],
    outputs: &mut Outputs<'_>,
) -> Result<Vec<PartInfo>, StoreError> {
    let mut written = Vec::new();
    loop {
        let mut cursors: Vec<KeyCursor> = inputs.iter().cloned().map(KeyCursor::new).collect();
        while let Some(key) = smallest_key(&mut cursors)? {
            let mut sources = Sources::default();
            for cursor in &mut cursors {
                if cursor.peek()? == Some(key)
                    && let Some(entry) = cursor.take()?
                {
                    sources.read(cursor, &entry, deletes)?;
                }
            }
            outputs.push(key, &sources.join(&key, deletes, outputs.job())?)?;
        }
        let (infos, is_complete) = outputs.finish()?;
        written.extend(infos);
        if is_complete {
            return Ok(written);
        }
    }
}

fn smallest_key(cursors: &mut [KeyCursor]) -> Result<Option<PartKey>, StoreError> {
    let mut smallest: Option<PartKey> = None;
    for cursor in cursors {
        if let Some(key) = cursor.peek()? {
            smallest = Some(smallest.map_or(key, |smallest| smallest.min(key)));
        }
    }
    Ok(smallest)
}
