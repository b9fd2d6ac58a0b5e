//! Writing epochs: names become indexes, values become one record, which is on disk when the write returns.

use std::collections::HashSet;
use std::sync::Arc;

use model::{EpochColumn, EpochNames};

use super::block::{self, BLOCK_SLOTS};
use super::definition::{EpochKind, EpochValue};
use super::file::EpochFile;
use super::names::{self, CHANGES_MAX, Changes, NAME_BYTES_MAX};
use super::record::{FILE_HEADER_BYTES, FileContent, FileHeader, FinishedRecord, ValuesRecord};
use super::regular::{Active, BlockReader, EpochRecord, Regular, Writer, add_record};
use crate::manifest::{EpochEdit, EpochFileInfo};
use crate::retention::policy::length_text;
use crate::upkeep::health::time_text;
use crate::write::admission::{SeriesGate, SeriesTarget};
use crate::{Store, StoreError};

/// Bytes of a file of epochs from which on another one is begun.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A file spans no more than one part in so many of the time that its database keeps.
const SPANS_PER_RETENTION: i64 = 8;

/// Bytes that a value takes while it is written, beside its own: its index, its name's place.
const CELL_BYTES: u64 = 32;

/// The bits of values in a database of a kind, if all fit: integers become floats, floats that are whole become integers.
fn to_bits(column: &EpochColumn, kind: EpochKind) -> Result<Vec<i64>, StoreError> {
    match (kind, column) {
        (EpochKind::Int, EpochColumn::Int(values)) => Ok(values.clone()),
        (EpochKind::Float, EpochColumn::Float(values)) => {
            Ok(values.iter().map(|value| value.to_bits() as i64).collect())
        }
        (EpochKind::Float, EpochColumn::Int(values)) => {
            Ok(values.iter().map(|value| (*value as f64).to_bits() as i64).collect())
        }
        (EpochKind::Int, EpochColumn::Float(values)) => values.iter().map(|value| whole(*value)).collect(),
    }
}

/// A float as the integer that it is.
fn whole(value: f64) -> Result<i64, StoreError> {
    let is_whole = value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0;
    is_whole.then_some(value as i64).ok_or_else(|| {
        StoreError::Invalid(format!("the values of this database are integers (value = int), and {value} is none"))
    })
}

/// Values of one epoch to write.
#[derive(Debug, Clone, Copy)]
pub struct EpochBatch<'a> {
    /// A time in the epoch.
    pub time_ns: i64,
    /// Names of series; those that are not valid in the epoch become so, from it on.
    pub names: &'a EpochNames,
    /// A value for each name. Of a name that comes twice the later one counts.
    pub values: &'a EpochColumn,
}

/// What writing an epoch did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochWritten {
    /// The epoch's time.
    pub time_ns: i64,
    /// Values written.
    pub written: u64,
    /// Names that became valid.
    pub added: u64,
    /// Values that were there already, and the same.
    pub unchanged: u64,
    /// Values that were refused, since other ones are there.
    pub refused: u64,
    /// The reason, with the first name of those.
    pub refusal: Option<String>,
}

/// Indexes that ascend, and the bits of their values.
#[derive(Default)]
struct Cells {
    indexes: Vec<u32>,
    bits: Vec<i64>,
}

impl Cells {
    /// Sorts by index; of one that comes twice the later value counts.
    fn ordered(indexes: Vec<u32>, bits: Vec<i64>) -> Self {
        if indexes.is_sorted_by(|a, b| a < b) {
            return Self { indexes, bits };
        }
        let mut cells: Vec<(u32, i64)> = indexes.into_iter().zip(bits).collect();
        cells.sort_by_key(|(index, _)| *index);
        let mut ordered = Self::default();
        for (index, bits) in cells {
            match ordered.bits.last_mut() {
                Some(last) if ordered.indexes.last() == Some(&index) => *last = bits,
                _ => {
                    ordered.indexes.push(index);
                    ordered.bits.push(bits);
                }
            }
        }
        ordered
    }

    /// Indexes and bits of one block after another.
    fn blocks(&self) -> impl Iterator<Item = (u32, &[u32], &[i64])> {
        let block_of = |index: u32| index / BLOCK_SLOTS as u32;
        let mut rest = self.bits.as_slice();
        self.indexes.chunk_by(move |a, b| block_of(*a) == block_of(*b)).map(move |indexes| {
            let (bits, after) = rest.split_at_checked(indexes.len()).unwrap_or_default();
            rest = after;
            (indexes.first().map_or(0, |index| block_of(*index)), indexes, bits)
        })
    }
}

/// The place of an index in its block.
pub(crate) const fn slot_of(index: u32) -> usize {
    index as usize % BLOCK_SLOTS
}

impl Store {
    /// Writes values of an epoch of a regular database; they are on disk when this returns. What is there of other series stays.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the database is not regular, or the time, a name or a value cannot be taken; then nothing is written.
    pub fn write_epoch(&self, database: &str, batch: &EpochBatch<'_>) -> Result<EpochWritten, StoreError> {
        self.write_epoch_gated(database, batch, None)
    }

    /// As [`Store::write_epoch`]; names that become valid are new series, and have to pass the gate, too.
    ///
    /// # Errors
    /// As [`Store::write_epoch`], and if new series are refused; then nothing is written.
    pub fn write_epoch_gated(
        &self,
        database: &str,
        batch: &EpochBatch<'_>,
        gate: Option<SeriesGate<'_>>,
    ) -> Result<EpochWritten, StoreError> {
        self.log.check()?;
        let regular = self.regular_database(database)?;
        let definition = regular.definition();
        let epoch = self.check_epoch(database, &regular, batch)?;
        let memory = self.memory.requests().tenant();
        let bytes = batch.names.len() as u64 * CELL_BYTES;
        if !memory.take(bytes, 0) {
            return Err(out_of_memory(batch.names.len()));
        }
        let bits = to_bits(batch.values, definition.kind);
        let written = bits.and_then(|bits| self.write_cells(&regular, (epoch, gate), batch.names, bits));
        memory.give_back(bytes);
        Ok(EpochWritten { time_ns: definition.time_of(epoch), ..written? })
    }

    /// The epoch of a batch, if it can be written.
    fn check_epoch(&self, database: &str, regular: &Regular, batch: &EpochBatch<'_>) -> Result<i64, StoreError> {
        let definition = regular.definition();
        if batch.names.len() != batch.values.len() {
            let (names, values) = (batch.names.len(), batch.values.len());
            return Err(StoreError::Invalid(format!("{names} names and {values} values: each name has one")));
        }
        let unusable = |name: &&str| name.is_empty() || name.len() > NAME_BYTES_MAX;
        if let Some(name) = batch.names.iter().find(unusable) {
            let bytes = name.len();
            return Err(StoreError::Invalid(format!("a name has 1 to {NAME_BYTES_MAX} bytes, and one has {bytes}")));
        }
        if batch.time_ns < definition.start_ns {
            let [time, start] = [batch.time_ns, definition.start_ns].map(time_text);
            return Err(StoreError::Invalid(format!("{time} is before the start of the database {database}, {start}")));
        }
        let epoch = definition.epoch_at(batch.time_ns);
        let policy = self.policy(database).unwrap_or_default();
        if definition.time_of(epoch) < self.oldest_retained_ns(regular.database) {
            return Err(StoreError::Invalid(format!(
                "the epoch {} is older than what the database {database} keeps ({})",
                time_text(definition.time_of(epoch)),
                length_text(policy.retention_ns)
            )));
        }
        Ok(epoch)
    }

    fn write_cells(
        &self,
        regular: &Regular,
        (epoch, gate): (i64, Option<SeriesGate<'_>>),
        names: &EpochNames,
        bits: Vec<i64>,
    ) -> Result<EpochWritten, StoreError> {
        let mut writer = regular.writer.lock();
        check_not_dropped(&writer)?;
        let found = regular.names.read().resolve(names.iter(), epoch);
        let mut written = EpochWritten::default();
        let indexes = if found.iter().all(Option::is_some) {
            found.into_iter().flatten().collect()
        } else {
            written.added = self.add_missing(regular, &mut writer, (epoch, gate), (names, &found))?;
            let indexes = regular.names.read().resolve(names.iter(), epoch);
            indexes.into_iter().map(Option::unwrap_or_default).collect()
        };
        let mut cells = Cells::ordered(indexes, bits);
        if !regular.definition().may_overwrite {
            cells = without_existing(regular, epoch, cells, &mut written)?;
        }
        written.written = cells.indexes.len() as u64;
        if written.written > 0 {
            self.append_values(regular, &mut writer, epoch, &cells)?;
        }
        Ok(written)
    }

    /// Makes names valid that are not, if new series may come in; returns how many.
    fn add_missing(
        &self,
        regular: &Regular,
        writer: &mut Writer,
        (epoch, gate): (i64, Option<SeriesGate<'_>>),
        (names, found): (&EpochNames, &[Option<u32>]),
    ) -> Result<u64, StoreError> {
        let mut seen = HashSet::new();
        let missing = names.iter().zip(found).filter(|(_, index)| index.is_none()).map(|(name, _)| name);
        let missing: Vec<&str> = missing.filter(|name| seen.insert(*name)).collect();
        let (known, new) = {
            let table = regular.names.read();
            // A name that becomes valid again, or earlier, is no new one.
            let new = missing.iter().filter(|name| table.number(name).is_none()).count();
            (table.names() as u64, new as u64)
        };
        if new > 0 {
            let admitted = self.admit_names(SeriesTarget { database: regular.database, gate }, known, new);
            admitted.map_err(|refusal| StoreError::Invalid(refusal.reason))?;
        }
        let planned = regular.names.read().plan_additions(&missing, epoch);
        self.append_names(regular, writer, &planned)?;
        Ok(missing.len() as u64)
    }

    /// Makes changes of names durable and applies them.
    fn append_names(&self, regular: &Regular, writer: &mut Writer, planned: &Changes<'_>) -> Result<(), StoreError> {
        let mut rest = planned.texts.as_slice();
        let mut known = regular.names.read().names();
        for changes in planned.changes.chunks(CHANGES_MAX) {
            let beyond = changes.iter().map(|change| change.name as usize + 1).max().unwrap_or(0);
            let new = beyond.saturating_sub(known).min(rest.len());
            let (texts, after) = rest.split_at(new);
            (rest, known) = (after, known + new);
            let mut body = Vec::new();
            names::encode_changes(changes, texts, &mut body);
            writer.sequence += 1;
            let sequence = writer.sequence;
            let active = self.active(regular, &mut writer.names, FileContent::Names)?;
            let record = FinishedRecord::of_names(changes.len(), &body, sequence, active.file.position(active.end));
            self.append_to_file(active, &record)?;
            let applied = names::apply_changes(Arc::make_mut(&mut regular.names.write()), changes, texts);
            applied.map_err(|what| active.file.corrupt(active.end, what))?;
        }
        Ok(())
    }

    fn append_values(
        &self,
        regular: &Regular,
        writer: &mut Writer,
        epoch: i64,
        cells: &Cells,
    ) -> Result<(), StoreError> {
        let definition = regular.definition();
        let mut record = ValuesRecord::new(epoch);
        let mut slots: Vec<u16> = Vec::with_capacity(BLOCK_SLOTS);
        for (block, indexes, bits) in cells.blocks() {
            slots.clear();
            slots.extend(indexes.iter().map(|index| slot_of(*index) as u16));
            record.push(block, bits.len(), |out| block::encode(definition.kind, &slots, bits, out));
        }
        writer.sequence += 1;
        let sequence = writer.sequence;
        let is_over = |active: &Active| self.is_over(regular, active, epoch);
        if writer.values.as_ref().is_some_and(is_over) {
            self.end_file(&mut writer.values)?;
        }
        let active = self.active(regular, &mut writer.values, FileContent::Values)?;
        let record = record.finish(sequence, active.file.position(active.end));
        let record = record.map_err(|what| StoreError::Invalid(what.to_owned()))?;
        let offset = active.end;
        self.append_to_file(active, &record)?;
        active.note_epoch(epoch);
        let record = EpochRecord { file: active.file.clone(), offset, header: record.header };
        add_record(Arc::make_mut(&mut regular.records.write()), record);
        Ok(())
    }

    /// Returns whether an epoch is better written to another file.
    fn is_over(&self, regular: &Regular, active: &Active, epoch: i64) -> bool {
        let (first, last) = active.epochs.unwrap_or((epoch, epoch));
        let span = last.max(epoch).saturating_sub(first.min(epoch));
        active.end > FILE_BYTES_MAX || span > self.span_max(regular)
    }

    /// How many epochs may be from the first to the last in a file, so that retention finds files to take.
    pub(super) fn span_max(&self, regular: &Regular) -> i64 {
        match self.policy_of(regular.database).retention_ns {
            0 => i64::MAX,
            retention_ns => regular.definition().epoch_at(retention_ns / SPANS_PER_RETENTION),
        }
    }

    /// The file that records are appended to; begun if there is none.
    fn active<'w>(
        &self,
        regular: &Regular,
        active: &'w mut Option<Active>,
        content: FileContent,
    ) -> Result<&'w mut Active, StoreError> {
        if active.is_none() {
            let number = self.manifest.lock().take_id();
            let header = FileHeader { number, database: regular.database, content };
            let file = EpochFile::create(&*self.platform.files, &self.options.directory, header)?;
            let info = EpochFileInfo { database: regular.database, content, end: None, reached: 0 };
            self.commit_epoch_edits(vec![EpochEdit::Add { number, info }])?;
            *active = Some(Active { is_writable: true, ..Active::new(Arc::new(file), FILE_HEADER_BYTES as u64) });
        }
        active.as_mut().ok_or_else(|| StoreError::Invalid("no file of epochs was begun".to_owned()))
    }

    /// Nothing is appended to a file any more.
    pub(crate) fn end_file(&self, active: &mut Option<Active>) -> Result<(), StoreError> {
        if let Some(Active { file, end, .. }) = active.as_ref() {
            self.commit_epoch_edits(vec![EpochEdit::End { number: file.header.number, end: *end }])?;
        }
        *active = None;
        Ok(())
    }

    /// Appends a record; it is on disk when this returns. After a failed sync nothing more is written.
    fn append_to_file(&self, active: &mut Active, record: &FinishedRecord) -> Result<(), StoreError> {
        let Active { file, end, is_writable, .. } = active;
        if !*is_writable {
            let (files, directory) = (&*self.platform.files, &self.options.directory);
            *file = Arc::new(EpochFile::open_to_append(files, directory, file.header)?);
            *is_writable = true;
        }
        // On a full disk what was written of it is written over.
        file.file.write_all_at(&record.bytes, *end).map_err(StoreError::io("write", &file.path))?;
        let synced = file.file.sync_data().map_err(StoreError::io("sync", &file.path));
        synced.inspect_err(|error| self.log.poison(&error.to_string()))?;
        *end += record.header.record_bytes();
        Ok(())
    }

    /// Ends names of a regular database before the epoch of a time: their past stays. Returns how many.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if one of them is not valid in that epoch; then all stay as they are.
    pub fn remove_names(&self, database: &str, names: &EpochNames, time_ns: i64) -> Result<u64, StoreError> {
        self.log.check()?;
        let regular = self.regular_database(database)?;
        let epoch = regular.definition().epoch_at(time_ns);
        let mut writer = regular.writer.lock();
        check_not_dropped(&writer)?;
        let last = regular.extent().map_or(i64::MIN, |(_, last)| last);
        let mut seen = HashSet::new();
        let distinct: Vec<&str> = names.iter().filter(|name| seen.insert(*name)).collect();
        let planned = regular.names.read().plan_removals(&distinct, epoch, last).map_err(|name| {
            let time = time_text(regular.definition().time_of(epoch));
            StoreError::Invalid(format!(
                "{name:?} is not valid at {time} in the database {database}: nothing to remove"
            ))
        })?;
        self.append_names(&regular, &mut writer, &planned)?;
        Ok(distinct.len() as u64)
    }
}

fn check_not_dropped(writer: &Writer) -> Result<(), StoreError> {
    if writer.is_dropped {
        return Err(StoreError::Invalid("the database was dropped meanwhile".to_owned()));
    }
    Ok(())
}

/// Leaves what is not there yet.
fn without_existing(
    regular: &Regular,
    epoch: i64,
    cells: Cells,
    written: &mut EpochWritten,
) -> Result<Cells, StoreError> {
    let definition = regular.definition();
    let Some((_, records)) = regular.records_in(epoch..=epoch).pop() else { return Ok(cells) };
    let mut reader = BlockReader::new(definition);
    let mut left = Cells::default();
    let mut first = None;
    for (block, indexes, bits) in cells.blocks() {
        reader.read(&records, block)?;
        for (index, bits) in indexes.iter().zip(bits) {
            match reader.block.get(slot_of(*index)) {
                None => {
                    left.indexes.push(*index);
                    left.bits.push(*bits);
                }
                Some(known) if known == *bits => written.unchanged += 1,
                Some(known) => {
                    written.refused += 1;
                    first = first.or(Some((*index, known)));
                }
            }
        }
    }
    written.refusal =
        first.map(|(index, known)| refusal(regular, epoch, index, EpochValue::from_bits(definition.kind, known)));
    Ok(left)
}

/// Why a value is not written.
fn refusal(regular: &Regular, epoch: i64, index: u32, known: EpochValue) -> String {
    let names = regular.names.read();
    let entry = names.entries().iter().find(|entry| entry.index == index && entry.is_valid_at(epoch));
    let name = entry.map_or_else(String::new, |entry| names.text(entry.name).to_owned());
    let time = time_text(regular.definition().time_of(epoch));
    format!(
        "{name:?} has the value {} in the epoch {time} already, and the database refuses to write it again (overwrite = refuse)",
        value_text(known)
    )
}

pub(crate) fn value_text(value: EpochValue) -> String {
    match value {
        EpochValue::Int(value) => value.to_string(),
        EpochValue::Float(value) => value.to_string(),
    }
}

fn out_of_memory(values: usize) -> StoreError {
    let error = std::io::Error::new(
        std::io::ErrorKind::OutOfMemory,
        "all requests together take what memory they may (memory_bytes_max): try again later, or write the epoch in several requests",
    );
    StoreError::Io { action: format!("write {values} values of an epoch"), error }
}
