//! Files in the database: their definitions as documents, their readings and rows as series.
//!
//! A file has a measurement and labels (`pattern`). What updates say is stored as it is sent: `DS` for gauges, `DS_counter`, `DS_derive`,
//! `DS_absolute`, `DS_dcounter`, `DS_dderive` for the others, so that the kinds' types do not clash; `rrd_unknown` counts the sources that a
//! row says nothing of. Archives that were imported are rows of series of their own, with the label `rrd_archive`; the finest one
//! of means is the file's own series `DS`, continued into the past by rows of coarser ones, never interpolated.
//!
//! * `file.rs`: a file · `documents.rs`: what is kept of it · `rows.rs`: reading its series · `replay.rs`: rows that updates make of readings
//! * `import.rs`, `export.rs`: whole files · `write.rs`: updates

mod documents;
mod export;
mod file;
mod import;
mod replay;
mod rows;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use db::Db;
use parking_lot::{Mutex, RwLock};
use query::Budget;

use crate::RrdError;
use crate::file::{Definition, Moment};
use crate::pattern::{Identity, Patterns, default_identity};
use documents::Unreadable;

pub use export::export_series;
pub use file::File;
pub use import::{Destination, ImportReport, Limit, SourceChange};
pub use write::{Pending, Refusal, Refused, Writer};

/// Bytes that a path may have.
pub const PATH_BYTES_MAX: usize = 400;

/// Samples that the catalog's own reads may hold.
const OWN_SAMPLES_MAX: u64 = 50_000_000;

/// The files of a database.
#[derive(Debug, Default)]
struct Files {
    by_path: BTreeMap<Arc<str>, Arc<File>>,
    by_identity: HashMap<Identity, Arc<str>>,
    /// Each once.
    definitions: Vec<Arc<Definition>>,
}

/// All files.
pub struct Catalog {
    db: Arc<Db>,
    patterns: Patterns,
    /// By database.
    files: RwLock<HashMap<String, Files>>,
    /// Files are made and removed one after another.
    changing: Mutex<()>,
    updates: AtomicU64,
    flushes: AtomicU64,
    unreadable: RwLock<Vec<Unreadable>>,
}

/// Counts since the server began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Updates that were taken.
    pub updates: u64,
    /// Commands to flush.
    pub flushes: u64,
}

/// A file that is made.
pub(crate) struct NewFile<'a> {
    pub(crate) database: &'a str,
    pub(crate) path: &'a str,
    pub(crate) identity: Identity,
    pub(crate) definition: Arc<Definition>,
    /// When its updates begin.
    pub(crate) base: Moment,
    /// Which archive is the file's own series; `None` if nothing was imported.
    pub(crate) import: Option<ImportedRows>,
}

/// The rows that a file was imported with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImportedRows {
    /// The archive whose rows are the file's own series, if one is.
    pub(crate) primary: Option<usize>,
}

impl Catalog {
    /// Reads the documents of a database.
    pub fn open(db: Arc<Db>, patterns: Patterns) -> Self {
        let found = documents::read_all(&db);
        let mut files: HashMap<String, Files> = HashMap::new();
        for (database, file) in found.files {
            files.entry(database).or_default().add(Arc::new(file));
        }
        Self {
            db,
            patterns,
            files: RwLock::new(files),
            changing: Mutex::new(()),
            updates: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            unreadable: RwLock::new(found.unreadable),
        }
    }

    /// Names of documents that could not be read, and why: their files are not there, and none is made in their place.
    pub fn unreadable(&self) -> Vec<(String, String)> {
        self.unreadable.read().iter().map(|document| (document.name.clone(), document.why.clone())).collect()
    }

    /// Refuses a path whose document could not be read: what it says of the rows would be lost.
    fn check_readable(&self, database: &str, path: &str) -> Result<(), RrdError> {
        let unreadable = self.unreadable.read();
        let Some(document) = unreadable.iter().find(|document| self.is_of(document, database, Some(path))) else {
            return Ok(());
        };
        Err(RrdError::Invalid(format!(
            "the document of {path} in the manifest cannot be read ({}): start the version that wrote it or restore a backup; \
             /api/v1/rrd/remove removes the document, not the rows, which a new file of that path goes on with unless they are deleted",
            document.why
        )))
    }

    /// Returns whether a document is of a database that is still there, and of a path if one is given.
    fn is_of(&self, document: &Unreadable, database: &str, path: Option<&str>) -> bool {
        let of = document.file.as_ref().filter(|(of, ..)| of == database);
        of.is_some_and(|(_, number, of)| {
            path.is_none_or(|path| path == of) && self.db.database_number(database) == Some(*number)
        })
    }

    /// Counts since the server began.
    pub fn counts(&self) -> Counts {
        let [updates, flushes] = [&self.updates, &self.flushes].map(|count| count.load(Ordering::Relaxed));
        Counts { updates, flushes }
    }

    /// Counts a command to flush.
    pub(crate) fn count_flush(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// The patterns that paths are read by.
    pub const fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    /// The database.
    pub const fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// A budget for the catalog's own reads.
    pub(crate) fn own_budget(&self) -> Arc<Budget> {
        self.db.budget(OWN_SAMPLES_MAX)
    }

    /// A file by its path.
    pub fn file(&self, database: &str, path: &str) -> Result<Arc<File>, RrdError> {
        let found = self.files.read().get(database).and_then(|files| files.by_path.get(path).cloned());
        // A database that was dropped took its files with it, even if there is another one of its name.
        let found = found.filter(|file| self.db.database_number(database) == Some(file.database_number));
        match found {
            Some(file) => Ok(file),
            None => {
                Err(self.check_readable(database, path).err().unwrap_or_else(|| RrdError::NotFound(path.to_owned())))
            }
        }
    }

    /// The paths below a folder, sorted; all for an empty one.
    pub fn paths(&self, database: &str, folder: &str) -> Vec<Arc<File>> {
        let number = self.db.database_number(database);
        let files = self.files.read();
        let Some(files) = files.get(database) else { return Vec::new() };
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let below = files.by_path.range(Arc::<str>::from(prefix.as_str())..);
        let below = below.take_while(|(path, _)| path.starts_with(&prefix));
        below.map(|(_, file)| file.clone()).filter(|file| number == Some(file.database_number)).collect()
    }

    /// Makes a file without data. One of its path is replaced if `replaces` says so: its data is deleted.
    pub fn create(
        &self,
        database: &str,
        path: &str,
        definition: Definition,
        (base, replaces): (Moment, bool),
    ) -> Result<Arc<File>, RrdError> {
        let _changing = self.changing.lock();
        let identity = self.patterns.identity(path);
        let definition = self.shared(database, definition);
        let new = NewFile { database, path, identity, definition, base, import: None };
        self.prepare(&new, replaces)?;
        self.add(new)
    }

    /// A definition that files of a database share, if one has it already: trees of files have few of them.
    pub(crate) fn shared(&self, database: &str, definition: Definition) -> Arc<Definition> {
        let files = self.files.read();
        let known = files.get(database).and_then(|files| files.definitions.iter().find(|known| ***known == definition));
        known.cloned().unwrap_or_else(|| Arc::new(definition))
    }

    /// Checks that a file can be made, and deletes the data of the one that it replaces.
    pub(crate) fn prepare(&self, new: &NewFile<'_>, replaces: bool) -> Result<(), RrdError> {
        check_path(new.path)?;
        self.check_readable(new.database, new.path)?;
        let known = self.file(new.database, new.path).ok();
        if known.is_some() && !replaces {
            return Err(RrdError::Invalid(format!("creating '{}': File exists", new.path)));
        }
        if let Some(other) = self.other_of(new) {
            return Err(RrdError::Invalid(format!(
                "{} would have the measurement and labels of {other}: give the patterns a {{name}} for what differs",
                new.path
            )));
        }
        if let Some(path) = self.unreadable_of(new) {
            self.check_readable(new.database, &path)?;
        }
        known.map_or(Ok(()), |file| self.delete_rows(&file))
    }

    /// The path of a file whose document cannot be read, and which may have the measurement and labels of one that is made.
    fn unreadable_of(&self, new: &NewFile<'_>) -> Option<String> {
        let unreadable = self.unreadable.read();
        let of_database = unreadable.iter().filter(|document| self.is_of(document, new.database, None));
        let mut paths = of_database.filter_map(|document| document.file.as_ref().map(|(_, _, path)| path));
        paths
            .find(|path| self.patterns.identity(path) == new.identity || default_identity(path) == new.identity)
            .cloned()
    }

    /// The path of another file that has the measurement and labels of one that is made.
    fn other_of(&self, new: &NewFile<'_>) -> Option<Arc<str>> {
        let path = self.files.read().get(new.database)?.by_identity.get(&new.identity).cloned()?;
        // It may have gone with its database.
        (*path != *new.path && self.file(new.database, &path).is_ok()).then_some(path)
    }

    /// Stores the document of a file that was prepared, and makes it known.
    pub(crate) fn add(&self, new: NewFile<'_>) -> Result<Arc<File>, RrdError> {
        let number = self.db.database_id(new.database).map_err(|error| RrdError::Refused(error.to_string()))?;
        let database = new.database.to_owned();
        let file = Arc::new(File::new(new, number));
        documents::write(&self.db, &file)?;
        self.files.write().entry(database).or_default().add(file.clone());
        Ok(file)
    }

    /// Removes a file with its data; returns whether there was one. Of a file whose document cannot be read the document goes alone: it is not
    /// known which rows are its own.
    pub fn remove(&self, database: &str, path: &str) -> Result<bool, RrdError> {
        let _changing = self.changing.lock();
        if self.check_readable(database, path).is_err() {
            documents::remove(&self.db, database, path)?;
            self.unreadable.write().retain(|document| !self.is_of(document, database, Some(path)));
            return Ok(true);
        }
        let Ok(file) = self.file(database, path) else { return Ok(false) };
        self.delete_rows(&file)?;
        documents::remove(&self.db, database, path)?;
        if let Some(files) = self.files.write().get_mut(database) {
            files.by_path.remove(path);
            files.by_identity.remove(&file.identity);
        }
        Ok(true)
    }
}

impl Files {
    fn add(&mut self, file: Arc<File>) {
        let path: Arc<str> = file.path.as_str().into();
        if let Some(before) = self.by_path.get(&path) {
            self.by_identity.remove(&before.identity);
        }
        self.by_identity.insert(file.identity.clone(), path.clone());
        if !self.definitions.iter().any(|known| Arc::ptr_eq(known, &file.definition)) {
            self.definitions.push(file.definition.clone());
        }
        self.by_path.insert(path, file);
    }
}

/// Checks a path: relative, without parts that lead elsewhere.
pub fn check_path(path: &str) -> Result<(), RrdError> {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if path.len() > PATH_BYTES_MAX || !path.split('/').all(is_plain) {
        let message = format!("the path {path:?}: it has at most {PATH_BYTES_MAX} bytes, and no empty part, . or ..");
        return Err(RrdError::Invalid(message));
    }
    if path.contains(|symbol: char| symbol.is_control() || symbol == '\\') {
        return Err(RrdError::Invalid(format!("the path {path:?}: it has no control characters and no backslash")));
    }
    Ok(())
}
