//! Merging files of epochs: records of one epoch become one, and small files a large one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::block::{self};
use super::file::{EpochFile, path_of};
use super::record::{FILE_HEADER_BYTES, FileContent, FileHeader, ValuesRecord};
use super::regular::{BlockReader, EpochRecord, Records, Regular, add_record, all_records, retain_records};
use crate::manifest::{EpochEdit, EpochFileInfo};
use crate::{Store, StoreError};

/// Neighbouring files that are merged at once, at most, and their bytes.
const FILES_MAX: usize = 16;
const BYTES_MAX: u64 = 256 << 20;

/// Small files that are neighbours before they are merged.
const SMALL_FILES_MIN: usize = 8;
const SMALL_BYTES: u64 = 32 << 20;

/// Records of an epoch on average, in eighths, from which on a file is merged.
const RECORDS_PER_EPOCH_EIGHTHS: u64 = 10;

/// A file that nothing is appended to, as it is decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    number: u64,
    bytes: u64,
    records: u64,
    epochs: u64,
    /// The first and the last epoch.
    span: (i64, i64),
    /// The first record's; files are ordered by it.
    sequence: u64,
}

impl Candidate {
    const fn is_divided(&self) -> bool {
        self.records * 8 > self.epochs * RECORDS_PER_EPOCH_EIGHTHS
    }
}

/// The epochs from the first to the last of some files.
fn span_of(run: &[Candidate], next: &Candidate) -> i64 {
    let first = run.iter().map(|candidate| candidate.span.0).fold(next.span.0, i64::min);
    let last = run.iter().map(|candidate| candidate.span.1).fold(next.span.1, i64::max);
    last.saturating_sub(first)
}

/// Which files to merge, in the order of what they hold; none if nothing is to be gained. They are neighbours: what was written between them
/// would count as older than all of them. Retention takes whole files, so that one spans no more than so many epochs.
fn plan(mut candidates: Vec<Candidate>, span_max: i64) -> Vec<u64> {
    candidates.sort_by_key(|candidate| candidate.sequence);
    if let Some(divided) = candidates.iter().find(|candidate| candidate.is_divided()) {
        return vec![divided.number];
    }
    let mut run: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        let bytes: u64 = run.iter().map(|candidate| candidate.bytes).sum();
        let is_long = span_of(&run, &candidate) > span_max;
        if candidate.bytes > SMALL_BYTES || bytes + candidate.bytes > BYTES_MAX || run.len() >= FILES_MAX || is_long {
            if run.len() >= SMALL_FILES_MIN {
                break;
            }
            run.clear();
        }
        if candidate.bytes <= SMALL_BYTES {
            run.push(candidate);
        }
    }
    let is_worth_it = run.len() >= SMALL_FILES_MIN;
    if is_worth_it { run.iter().map(|candidate| candidate.number).collect() } else { Vec::new() }
}

fn candidates(records: &Records, ended: &BTreeMap<u64, u64>) -> Vec<Candidate> {
    let mut found: BTreeMap<u64, (Candidate, BTreeSet<i64>)> = BTreeMap::new();
    for record in all_records(records) {
        let number = record.file.header.number;
        let Some(bytes) = ended.get(&number) else { continue };
        let epoch = record.header.epoch;
        let new = Candidate { number, bytes: *bytes, records: 0, epochs: 0, span: (epoch, epoch), sequence: u64::MAX };
        let (candidate, epochs) = found.entry(number).or_insert((new, BTreeSet::new()));
        candidate.records += 1;
        candidate.sequence = candidate.sequence.min(record.header.sequence);
        candidate.span = (candidate.span.0.min(epoch), candidate.span.1.max(epoch));
        epochs.insert(epoch);
    }
    let counted =
        |(candidate, epochs): (Candidate, BTreeSet<i64>)| Candidate { epochs: epochs.len() as u64, ..candidate };
    found.into_values().map(counted).collect()
}

impl Store {
    /// Merges files of one regular database, if some are worth it. Returns whether any were.
    pub(crate) fn merge_epochs(&self) -> Result<bool, StoreError> {
        let databases: Vec<Arc<Regular>> = self.regular.read().values().cloned().collect();
        for regular in databases {
            let _work = regular.work.lock();
            let of_database =
                |info: &EpochFileInfo| (info.content == FileContent::Values).then_some(info.end).flatten();
            let ended: BTreeMap<u64, u64> = {
                let manifest = self.manifest.lock();
                let files = manifest.state.epoch_files_of(regular.database);
                files.filter_map(|(number, info)| Some((number, of_database(&info)?))).collect()
            };
            let span_max = self.span_max(&regular);
            let chosen = plan(candidates(&regular.records.read(), &ended), span_max);
            if !chosen.is_empty() {
                self.merge_epoch_files(&regular, &chosen)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn merge_epoch_files(&self, regular: &Regular, chosen: &[u64]) -> Result<(), StoreError> {
        let is_chosen = |record: &EpochRecord| chosen.contains(&record.file.header.number);
        let mut sources: Records = BTreeMap::new();
        for record in all_records(&regular.records.read()).filter(|record| is_chosen(record)) {
            add_record(&mut sources, record.clone());
        }
        let number = self.manifest.lock().take_id();
        let header = FileHeader { number, database: regular.database, content: FileContent::Values };
        let merged = write_merged(self, regular, header, &sources);
        let (records, end) = merged.inspect_err(|_| self.remove_file(&path_of(&self.options.directory, number)))?;
        let info =
            EpochFileInfo { database: regular.database, content: FileContent::Values, end: Some(end), reached: 0 };
        let mut edits = vec![EpochEdit::Add { number, info }];
        edits.extend(chosen.iter().map(|number| EpochEdit::Remove { number: *number }));
        self.commit_epoch_edits(edits)?;
        let mut known = regular.records.write();
        let changed = Arc::make_mut(&mut known);
        // Readers see both at once: the lock is held.
        retain_records(changed, |record| !is_chosen(record));
        records.into_iter().for_each(|record| add_record(changed, record));
        drop(known);
        chosen.iter().for_each(|number| self.remove_file(&path_of(&self.options.directory, *number)));
        Ok(())
    }
}

/// Writes each epoch as one record; the records, and where the file ends.
fn write_merged(
    store: &Store,
    regular: &Regular,
    header: FileHeader,
    sources: &Records,
) -> Result<(Vec<EpochRecord>, u64), StoreError> {
    let definition = regular.definition();
    let file = Arc::new(EpochFile::create(&*store.platform.files, &store.options.directory, header)?);
    let mut reader = BlockReader::new(definition);
    let (mut records, mut end) = (Vec::with_capacity(sources.len()), FILE_HEADER_BYTES as u64);
    for (epoch, of_epoch) in sources {
        let mut made = ValuesRecord::new(*epoch);
        reader.each(of_epoch, &mut |number, values| {
            let (slots, bits) = values.cells();
            made.push(number, bits.len(), |out| block::encode(definition.kind, &slots, &bits, out));
            Ok(())
        })?;
        if made.is_empty() {
            continue;
        }
        let sequence = of_epoch.iter().map(|record| record.header.sequence).max().unwrap_or(0);
        let made = made.finish(sequence, file.position(end)).map_err(|what| StoreError::Invalid(what.to_owned()))?;
        file.file.write_all_at(&made.bytes, end).map_err(StoreError::io("write", &file.path))?;
        records.push(EpochRecord { file: file.clone(), offset: end, header: made.header });
        end += made.header.record_bytes();
    }
    file.file.sync_data().map_err(StoreError::io("sync", &file.path))?;
    Ok((records, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divided_epochs_come_first_then_runs_of_small_files() {
        let file = |number: u64| Candidate {
            number,
            bytes: 1000,
            records: 10,
            epochs: 10,
            span: (number as i64 * 10, number as i64 * 10 + 9),
            sequence: number,
        };
        let plan = |candidates| plan(candidates, i64::MAX);
        let all = |numbers: std::ops::Range<u64>| numbers.map(file).collect::<Vec<_>>();
        assert_eq!(plan(all(0..7)), [0; 0]);
        assert_eq!(plan(all(0..8)), (0..8).collect::<Vec<_>>());
        assert_eq!(plan(all(0..40)), (0..16).collect::<Vec<_>>());
        assert_eq!(super::plan(all(0..40), 50), [0; 0], "retention takes whole files");
        let mut divided = all(0..9);
        divided[5].records = 20;
        assert_eq!(plan(divided), [5]);
        let mut large = all(0..12);
        large[3].bytes = SMALL_BYTES + 1;
        assert_eq!(plan(large), (4..12).collect::<Vec<_>>());
        let mut unsorted = all(0..8);
        unsorted[0].sequence = 100;
        assert_eq!(plan(unsorted), [1, 2, 3, 4, 5, 6, 7, 0]);
    }
}
