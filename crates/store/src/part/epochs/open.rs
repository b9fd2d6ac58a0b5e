//! What an opening finds of regular databases, and defining one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use index::DatabaseId;
use model::TimeRange;
use platform::Files;

use super::definition::RegularDefinition;
use super::file::{EpochFile, path_of};
use super::names::{apply_changes, decode_changes};
use super::record::{FileContent, FileHeader, RecordHeader, check_body};
use super::regular::{Active, EpochRecord, Regular, Writer, add_record};
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
}

/// Opens the files of all regular databases. What is torn at the end of one is left out: nothing is appended to that file any more. Damage is a
/// loss: what stands before it counts on.
pub(crate) fn open(files: &dyn Files, directory: &Path, state: &mut State) -> Result<OpenedEpochs, StoreError> {
    let mut opened = OpenedEpochs::default();
    let mut edits = Vec::new();
    for (database, definition) in &state.regular {
        let regular = Arc::new(Regular::new(*database, *definition, state.incarnation));
        let mut opening = Opening { files, directory, regular: regular.clone(), writer: Writer::default() };
        // Names first, so that nothing needs to look for them later.
        for content in [FileContent::Names, FileContent::Values] {
            let is_open = |(number, info): &(&u64, &EpochFileInfo)| {
                info.database == *database && info.content == content && !state.epoch_trash.contains_key(number)
            };
            for (number, info) in state.epoch_files.iter().filter(is_open) {
                let header = FileHeader { number: *number, database: *database, content };
                match opening.open_file(header, info) {
                    Ok(found) => {
                        edits.extend(found.ended);
                        opened.losses.extend(found.lost);
                    }
                    Err(error) => {
                        let loss = loss_of(&path_of(directory, *number), error)?;
                        opened.losses.push(loss);
                        edits.push(EpochEdit::Remove { number: *number });
                    }
                }
            }
        }
        *regular.writer.lock() = opening.writer;
        opened.databases.insert(*database, regular);
    }
    edits.into_iter().for_each(|edit| state.apply(&Edit::Epochs(edit)));
    Ok(opened)
}

/// Notes to make of a file that was opened.
#[derive(Default)]
struct OpenedFile {
    ended: Option<EpochEdit>,
    lost: Option<Loss>,
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
    /// Takes in what a file holds. One that is torn is ended.
    fn open_file(&mut self, header: FileHeader, info: &EpochFileInfo) -> Result<OpenedFile, StoreError> {
        let end = info.end;
        let file = Arc::new(EpochFile::open(self.files, self.directory, header)?);
        let mut active = Active::new(file.clone(), 0);
        let mut last_sequence = self.writer.sequence;
        let regular = self.regular.clone();
        let scanned = file.scan(end, &mut |offset, record| {
            last_sequence = last_sequence.max(record.sequence);
            match header.content {
                FileContent::Names => take_names(&regular, &file, offset, record),
                FileContent::Values => {
                    active.note_epoch(record.epoch);
                    let record = EpochRecord { file: file.clone(), offset, header: *record };
                    add_record(&mut regular.records.write(), record);
                    Ok(())
                }
            }
        })?;
        self.writer.sequence = last_sequence;
        if let Some((offset, what)) = scanned.damage {
            regular.records.write().retain(|_, records| {
                records.retain(|record| !Arc::ptr_eq(&record.file, &file));
                !records.is_empty()
            });
            return Err(file.corrupt(offset, what));
        }
        if end.is_some() {
            return Ok(OpenedFile::default());
        }
        let lost = loss_at_end(&file, scanned.end, info.reached);
        active = Active { end: scanned.end, reached: info.reached, ..active };
        let place = match header.content {
            FileContent::Names => &mut self.writer.names,
            FileContent::Values => &mut self.writer.values,
        };
        // What is written over a torn record must not make another one of its rest.
        let is_ended = scanned.is_torn || place.is_some() || lost.is_some();
        if is_ended {
            return Ok(OpenedFile { ended: Some(EpochEdit::End { number: header.number, end: scanned.end }), lost });
        }
        *place = Some(active);
        Ok(OpenedFile::default())
    }
}

fn take_names(regular: &Regular, file: &EpochFile, offset: u64, record: &RecordHeader) -> Result<(), StoreError> {
    let body = file.body(offset, record)?;
    check_body(FileContent::Names, record, &body).map_err(|what| file.corrupt(offset, what))?;
    let (changes, texts) = decode_changes(&body).map_err(|error| file.corrupt(offset, error.what))?;
    let applied = apply_changes(&mut regular.names.write(), &changes, &texts);
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
        regular.records.write().clear();
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
    let scanned = file.scan(info.end, &mut |offset, record| {
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
