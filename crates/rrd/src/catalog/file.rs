//! A file in the database.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::{ImportedRows, NewFile};
use crate::RrdError;
use crate::file::{Consolidation, Definition, Moment};
use crate::pattern::Identity;

/// A file in the database.
#[derive(Debug)]
pub struct File {
    /// Its path.
    pub path: String,
    /// The database that it is in.
    pub database: String,
    /// That database's number, which no other one gets.
    pub(crate) database_number: u32,
    /// Its measurement and labels.
    pub identity: Identity,
    /// Its sources and archives.
    pub definition: Arc<Definition>,
    /// When its updates begin: what is older was imported.
    pub base: Moment,
    pub(crate) import: Option<ImportedRows>,
    /// The last update, once it was looked up.
    pub(super) last_update: Mutex<Option<Moment>>,
    /// Set by `SUSPEND`.
    pub is_suspended: AtomicBool,
}

impl File {
    pub(super) fn new(new: NewFile<'_>, database_number: u32) -> Self {
        Self {
            path: new.path.to_owned(),
            database: new.database.to_owned(),
            database_number,
            identity: new.identity,
            definition: new.definition,
            base: new.base,
            import: new.import,
            last_update: Mutex::new(None),
            is_suspended: AtomicBool::new(false),
        }
    }

    /// The field of a source's raw readings.
    pub(super) fn field(&self, source: usize) -> String {
        let source = self.definition.sources.get(source);
        source.map_or_else(String::new, |source| format!("{}{}", source.name, source.kind.field_suffix()))
    }

    /// The value of the label of an archive's series.
    pub(super) fn archive_label(&self, number: usize) -> Result<String, RrdError> {
        let archives = &self.definition.archives;
        let archive = archives.get(number).ok_or_else(|| RrdError::invalid("no such archive"))?;
        let width_s = archive.points * self.definition.step_s;
        let is_alike = |other: &&crate::file::ArchiveDefinition| {
            other.function == archive.function && other.points == archive.points
        };
        let before = archives.iter().take(number).filter(is_alike).count();
        let again = if before == 0 { String::new() } else { format!("_{}", before + 1) };
        Ok(format!("{}_{width_s}s{again}", archive.function.name()))
    }
}

/// The archive whose rows become the file's own series: the finest of means, or the finest.
pub(super) fn primary_archive(definition: &Definition) -> Option<usize> {
    let archives = || definition.archives.iter().enumerate();
    let means = archives().filter(|(_, archive)| archive.function == Consolidation::Average);
    let finest = means.min_by_key(|(_, archive)| archive.points);
    finest.or_else(|| archives().min_by_key(|(_, archive)| archive.points)).map(|(number, _)| number)
}
