//! What an opening finds of regular databases, and defining one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use index::DatabaseId;
use model::TimeRange;
use platform::Files;
use tracing_mutex::parkinglot::RwLock;

use super::definition::RegularDefinition;
use super::file::{EpochFile, path_of};
use super::names::{apply_changes, decode_changes};
use super::record::{FILE_HEADER_BYTES, FileContent, FileHeader, RecordHeader, check_body};
use super::regular::{Active, EpochRecord, Regular, ScannedFile, Writer, add_record, retain_records};
use crate::manifest::{Edit, EpochEdit, EpochFileInfo, State};
use crate::upkeep::reserve::is_full;
use crate::{Loss, Store, StoreError};

/// The regular databases of a folder.
pub(crate) type Databases = BTreeMap<DatabaseId, Arc<Regular>>;

/// What an opening found.
#[derive(Default)]
pub(crate) struct OpenedEpochs {
    pub(crate) databases: Databases,
    pub(crate) losses: Vec<Loss>,
}

/// A database that is being opened.
struct Opening<'a> {
    files: &'a dyn Files,
    directory: &'a Path,
    regular: Arc<Regular>,
    writer: Writer,
    /// Files of an opening before that are read on from where that stopped.
    before: BTreeMap<u64, ScannedFile>,
    losses: Vec<Loss>,
    edits: Vec<EpochEdit>,
}

/// Opens the files of all regular databases. What is torn at the end of one is left out: nothing is appended to that file any more. Damage is a
/// loss: what stands before it counts on. What an opening before found of a database is not read again, as far as it is still there.
pub(crate) fn open(
    files: &dyn Files,
    directory: &Path,
    state: &mut State,
    known: &Databases,
) -> Result<OpenedEpochs, StoreError> {
    let mut opened = OpenedEpochs::default();
    let mut edits = Vec::new();
    for (database, definition) in &state.regular {
        let of_database: BTreeMap<u64, EpochFileInfo> =
            state.epoch_files_of(*database).filter(|(number, _)| !state.epoch_trash.contains_key(number)).collect();
        let regular = || Regular::new(*database, *definition, state.incarnation);
        let new = |regular, before| Opening {
            files,
            directory,
            regular: Arc::new(regular),
            writer: Writer::default(),
            before,
            losses: Vec::new(),
            edits: Vec::new(),
        };
        let resumed = match known.get(database) {
            Some(known) => continued(known, regular(), &of_database, (files, directory)),
            None => None,
        };
        let resumed = resumed.map(|(regular, before)| new(regular, before).run(&of_database)).transpose()?;
        // What went wrong is found out from the beginning.
        let found = match resumed.filter(|found| found.losses.is_empty()) {
            Some(found) => found,
            None => new(regular(), BTreeMap::new()).run(&of_database)?,
        };
        *found.regular.writer.lock() = found.writer;
        opened.losses.extend(found.losses);
        edits.extend(found.edits);
        opened.databases.insert(*database, found.regular);
    }
    edits.into_iter().for_each(|edit| state.apply(&Edit::Epochs(edit)));
    Ok(opened)
}

/// A database with what an opening before found of it, and how far that had read the files which are there now; `None` if it has to be read from the
/// beginning: names follow one another, and a file that is another one or shorter than before tells of other records.
fn continued(
    known: &Regular,
    regular: Regular,
    of_database: &BTreeMap<u64, EpochFileInfo>,
    (files, directory): (&dyn Files, &Path),
) -> Option<(Regular, BTreeMap<u64, ScannedFile>)> {
    let (before, definition) = (known.definition(), regular.definition());
    if (before.interval_ns, before.kind) != (definition.interval_ns, definition.kind) {
        return None;
    }
    let (gone, kept): (BTreeMap<u64, ScannedFile>, BTreeMap<u64, ScannedFile>) =
        known.scanned.lock().clone().into_iter().partition(|(number, _)| !of_database.contains_key(number));
    let is_names = |scanned: &ScannedFile| scanned.file.header.content == FileContent::Names;
    let last_of_names = kept.iter().filter(|(_, scanned)| is_names(scanned)).map(|(number, _)| *number).max();
    let have_names_order = !gone.values().any(is_names)
        && of_database.iter().all(|(number, info)| {
            let is_old = last_of_names.is_some_and(|last| *number <= last);
            info.content != FileContent::Names || !is_old || kept.contains_key(number)
        });
    if !have_names_order {
        return None;
    }
    for (number, scanned) in &kept {
        let end = of_database.get(number).and_then(|info| info.end);
        let has_all = end == Some(scanned.end);
        // Of names only the last file can have more.
        let may_grow = !is_names(scanned) || Some(*number) == last_of_names;
        let is_shorter = end.is_some_and(|end| end < scanned.end);
        // Where it cannot be read, reading it from the beginning says so.
        let goes_on = || scanned.file.goes_on(files, directory, (scanned.end, scanned.last)).unwrap_or(false);
        let is_whole = scanned.file.is_whole(scanned.last).unwrap_or(false);
        if is_shorter || !is_whole || !(has_all || may_grow && goes_on()) {
            return None;
        }
    }
    let mut records = known.records.read().clone();
    if !gone.is_empty() {
        retain_records(Arc::make_mut(&mut records), |record| !gone.contains_key(&record.file.header.number));
    }
    let names = known.names.read().clone();
    let regular = Regular { names: RwLock::new(names), records: RwLock::new(records), ..regular };
    Some((regular, kept))
}

/// The loss of records at the end of a file, if some that were acknowledged are not there.
fn loss_at_end(file: &EpochFile, found: u64, reached: u64) -> Option<Loss> {
    let message =
        format!("its records up to offset {reached} were acknowledged, and those from {found} on are missing;");
    (found < reached).then(|| Loss { file: file.path.display().to_string(), message, range: TimeRange::ALL })
}

/// The loss that a file's damage is; other errors say nothing about the file.
fn loss_of(path: &Path, error: StoreError) -> Result<Loss, StoreError> {
    let message = match error {
        StoreError::Corrupt { offset, message, .. } => format!("damaged at offset {offset}: {message};"),
        StoreError::Io { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
            "the file is missing;".to_owned()
        }
        other => return Err(other),
    };
    Ok(Loss { file: path.display().to_string(), message, range: TimeRange::ALL })
}

impl Opening<'_> {
    /// Takes in all files.
    fn run(mut self, of_database: &BTreeMap<u64, EpochFileInfo>) -> Result<Self, StoreError> {
        // Names first, so that nothing needs to look for them later.
        for content in [FileContent::Names, FileContent::Values] {
            for (number, info) in of_database.iter().filter(|(_, info)| info.content == content) {
                let header = FileHeader { number: *number, database: self.regular.database, content };
                if let Err(error) = self.open_file(header, info) {
                    self.losses.push(loss_of(&path_of(self.directory, *number), error)?);
                    self.edits.push(EpochEdit::Remove { number: *number });
                }
            }
        }
        Ok(self)
    }

    /// Takes in what a file holds. One that is torn is ended.
    fn open_file(&mut self, header: FileHeader, info: &EpochFileInfo) -> Result<(), StoreError> {
        let end = info.end;
        let before = self.before.remove(&header.number);
        if let Some(before) = before.as_ref().filter(|before| end == Some(before.end)) {
            self.regular.scanned.lock().insert(header.number, before.clone());
            return Ok(());
        }
        let (file, from, last) = match before {
            Some(ScannedFile { file, end, last }) => (file, end, last),
            None => (Arc::new(EpochFile::open(self.files, self.directory, header)?), FILE_HEADER_BYTES as u64, None),
        };
        let mut active = Active::new(file.clone(), 0);
        let mut last_sequence = self.writer.sequence;
        let regular = self.regular.clone();
        let scanned = file.scan(from, end, &mut |offset, record| {
            last_sequence = last_sequence.max(record.sequence);
            match header.content {
                FileContent::Names => take_names(&regular, &file, offset, record),
                FileContent::Values => {
                    active.note_epoch(record.epoch);
                    let record = EpochRecord { file: file.clone(), offset, header: *record };
                    add_record(Arc::make_mut(&mut regular.records.write()), record);
                    Ok(())
                }
            }
        })?;
        self.writer.sequence = last_sequence;
        if let Some((offset, what)) = scanned.damage {
            let is_elsewhere = |record: &EpochRecord| !Arc::ptr_eq(&record.file, &file);
            retain_records(Arc::make_mut(&mut regular.records.write()), is_elsewhere);
            return Err(file.corrupt(offset, what));
        }
        let read = ScannedFile { file: file.clone(), end: scanned.end, last: scanned.last.or(last) };
        self.regular.scanned.lock().insert(header.number, read);
        if end.is_some() {
            return Ok(());
        }
        let loss = loss_at_end(&file, scanned.end, info.reached);
        active = Active { end: scanned.end, reached: info.reached, ..active };
        let place = match header.content {
            FileContent::Names => &mut self.writer.names,
            FileContent::Values => &mut self.writer.values,
        };
        // What is written over a torn record must not make another one of its rest.
        let is_ended = scanned.is_torn || place.is_some() || loss.is_some();
        self.losses.extend(loss);
        if is_ended {
            self.edits.push(EpochEdit::End { number: header.number, end: scanned.end });
        } else {
            *place = Some(active);
        }
        Ok(())
    }
}

fn take_names(regular: &Regular, file: &EpochFile, offset: u64, record: &RecordHeader) -> Result<(), StoreError> {
    let body = file.body(offset, record)?;
    check_body(FileContent::Names, record, &body).map_err(|what| file.corrupt(offset, what))?;
    let (changes, texts) = decode_changes(&body).map_err(|error| file.corrupt(offset, error.what))?;
    let applied = apply_changes(Arc::make_mut(&mut regular.names.write()), &changes, &texts);
    applied.map_err(|what| file.corrupt(offset, what))
}

impl Store {
    /// Makes a database regular, or changes what may change of one that is: the value of missing cells, whether values may be written again,
    /// and the start. It is made if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the definition is not valid, the database has other rows, or its interval or type would change.
    pub fn define_regular(&self, database: &str, definition: &RegularDefinition) -> Result<(), StoreError> {
        definition.check().map_err(StoreError::Invalid)?;
        if let Some(regular) = self.find_regular(database) {
            let known = regular.definition();
            if known.interval_ns != definition.interval_ns || known.kind != definition.kind {
                return Err(StoreError::Invalid(format!(
                    "the interval and the type of values of the regular database {database} cannot change: make another one"
                )));
            }
            self.commit_epoch_edits(vec![EpochEdit::Define { database: regular.database, definition: *definition }])?;
            *regular.definition.write() = *definition;
            return Ok(());
        }
        if !self.tables(database)?.is_empty() {
            return Err(StoreError::Invalid(format!(
                "the database {database} has tables, and cannot become regular: make another one"
            )));
        }
        let id = self.database_id(database)?;
        // Makes the database itself durable before the manifest names its number.
        self.flush_all()?;
        let mut databases = self.regular.write();
        if databases.contains_key(&id) {
            drop(databases);
            // Another request made it so meanwhile; it may have epochs by now.
            return self.define_regular(database, definition);
        }
        self.commit_epoch_edits(vec![EpochEdit::Define { database: id, definition: *definition }])?;
        databases.insert(id, Arc::new(Regular::new(id, *definition, self.incarnation())));
        Ok(())
    }

    pub(super) fn commit_epoch_edits(&self, edits: Vec<EpochEdit>) -> Result<(), StoreError> {
        self.commit_edits(&edits.into_iter().map(Edit::Epochs).collect::<Vec<_>>())
    }

    /// Fails if rows are written to a regular database.
    pub(crate) fn check_not_regular(&self, database: DatabaseId) -> Result<(), StoreError> {
        if self.regular.read().contains_key(&database) {
            return Err(StoreError::Invalid(
                "this database is regular: write its epochs with POST /api/v1/epoch, or rows to another database"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Takes away the epochs of a database that is dropped.
    pub(crate) fn drop_regular(&self, database: DatabaseId) -> Result<(), StoreError> {
        let Some(regular) = self.regular.read().get(&database).cloned() else { return Ok(()) };
        let _work = regular.work.lock();
        let mut writer = regular.writer.lock();
        let numbers: Vec<u64> = self.manifest.lock().state.epoch_files_of(database).map(|(number, _)| number).collect();
        let mut edits: Vec<EpochEdit> = numbers.iter().map(|number| EpochEdit::Remove { number: *number }).collect();
        edits.push(EpochEdit::Drop { database });
        self.commit_epoch_edits(edits)?;
        *writer = Writer { is_dropped: true, ..Writer::default() };
        *regular.records.write() = Arc::default();
        drop(writer);
        self.regular.write().remove(&database);
        numbers.iter().for_each(|number| self.remove_file(&path_of(&self.options.directory, *number)));
        Ok(())
    }

    /// Notes down in the manifest how far the files of epochs are on disk, once nothing is appended to them: a crash tears nothing before that, and what
    /// is missing is lost.
    pub(crate) fn note_epochs(&self) -> Result<(), StoreError> {
        let databases: Vec<Arc<Regular>> = self.regular.read().values().cloned().collect();
        for regular in databases {
            // One that is written to is not idle.
            let Some(mut writer) = regular.writer.try_lock() else { continue };
            let Writer { values, names, .. } = &mut *writer;
            let mut unnoted: Vec<&mut Active> = names.iter_mut().chain(values).collect();
            unnoted.retain_mut(|active| active.is_unnoted());
            if unnoted.is_empty() {
                continue;
            }
            match self.commit_epoch_edits(unnoted.iter().map(|active| active.reach()).collect()) {
                Ok(()) => unnoted.iter_mut().for_each(|active| active.reached = active.end),
                // It is tried again as long as there is no room.
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The manifest's state at a moment at which nothing is appended to any file of epochs that it names.
    pub(crate) fn state_with_ended_epochs(&self) -> Result<State, StoreError> {
        let databases: Vec<Arc<Regular>> = self.regular.read().values().cloned().collect();
        let mut writers: Vec<_> = databases.iter().map(|regular| regular.writer.lock()).collect();
        for writer in &mut writers {
            self.end_file(&mut writer.names)?;
            self.end_file(&mut writer.values)?;
        }
        Ok(self.manifest.lock().state.clone())
    }
}

/// Reads all of a file and checks it; its bytes.
pub(crate) fn check_file(
    files: &dyn Files,
    directory: &Path,
    number: u64,
    info: EpochFileInfo,
) -> Result<u64, StoreError> {
    let header = FileHeader { number, database: info.database, content: info.content };
    let file = EpochFile::open(files, directory, header)?;
    let scanned = file.scan(FILE_HEADER_BYTES as u64, info.end, &mut |offset, record| {
        let body = file.body(offset, record)?;
        check_body(info.content, record, &body).map_err(|what| file.corrupt(offset, what))
    })?;
    match scanned.damage {
        Some((offset, what)) => Err(file.corrupt(offset, what)),
        None if info.end.is_none() && scanned.end < info.reached => {
            Err(file.corrupt(scanned.end, "records that were acknowledged are missing"))
        }
        None => Ok(scanned.end),
    }
}

/// Opens all files of epochs that a state names; `None` if one of them has gone since.
pub(crate) fn open_named(
    files: &dyn Files,
    directory: &Path,
    state: &State,
) -> Result<Option<BTreeMap<u64, EpochFile>>, StoreError> {
    let mut opened = BTreeMap::new();
    for (number, EpochFileInfo { database, content, .. }) in &state.epoch_files {
        let header = FileHeader { number: *number, database: *database, content: *content };
        match EpochFile::open(files, directory, header) {
            Err(StoreError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            file => drop(opened.insert(*number, file?)),
        }
    }
    Ok(Some(opened))
}
