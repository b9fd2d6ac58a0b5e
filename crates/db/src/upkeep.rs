//! Upkeep of an open database: backups, compaction, policies, deletes.

use std::path::{Path, PathBuf};

use model::{METRIC_NAME, MatchOp, Matcher, TimeRange, ValueType};
use platform::container::ContainerShape;
use platform::objects::{ObjectOptions, is_inside};
use platform::{PathKind, Platform, container};
use query::views::{SourceDelete, ViewCatalog};
use store::{BackupReport, CompactReport, DatabasePolicy, Deleted, Progress, PruneReport, StoreError};

use crate::Db;

/// A database in one file that is being made: it has another name until it is whole.
pub struct NewOneFile {
    below: Platform,
    path: PathBuf,
    /// The platform on which the paths below `unfinished` are the inside of the file.
    pub platform: Platform,
    /// The file's path until it is whole.
    pub unfinished: PathBuf,
}

impl NewOneFile {
    /// Begins one. Refused if there is something of that name already; what an earlier attempt left unfinished is removed.
    pub fn begin(platform: &Platform, path: &Path) -> Result<Self, StoreError> {
        let files = &*platform.files;
        let failed = |error| StoreError::Io { action: format!("look at {}", path.display()), error };
        if files.kind(path).map_err(failed)?.is_some() {
            return Err(StoreError::Invalid(format!("{} exists: name a new file", path.display())));
        }
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        if files.kind(&unfinished).map_err(failed)? == Some(PathKind::File) {
            files
                .remove(&unfinished)
                .map_err(|error| StoreError::Io { action: format!("remove {}", unfinished.display()), error })?;
        }
        let inside = platform.with_one_file(&unfinished, ContainerShape::default());
        Ok(Self { below: platform.clone(), path: path.to_owned(), platform: inside, unfinished })
    }

    /// Gives the file its name, if filling it succeeded; else removes it.
    pub fn finish<T>(self, filled: Result<T, StoreError>) -> Result<T, StoreError> {
        let files = &*self.below.files;
        let named = filled.and_then(|filled| {
            let failed = |error| StoreError::Io { action: format!("rename to {}", self.path.display()), error };
            if files.kind(&self.path).map_err(failed)?.is_some() {
                return Err(StoreError::Invalid(format!("{} exists meanwhile", self.path.display())));
            }
            files.rename(&self.unfinished, &self.path).map_err(failed)?;
            files.sync_directory(self.path.parent().unwrap_or(Path::new(""))).map_err(failed)?;
            Ok(filled)
        });
        named.inspect_err(|_| drop(files.remove(&self.unfinished)))
    }
}

impl Db {
    /// Copies what the folder holds now to an address (a folder, `s3://bucket/prefix`, …) that may hold earlier backups; with `keep`,
    /// removes all but the newest so many afterwards. Reads and writes go on; two backups at a time take turns. An address that is a new file of
    /// a database in one file ([`platform::container`]) gets a whole copy, which can be opened as it is.
    pub fn backup(
        &self,
        url: &str,
        objects: &ObjectOptions,
        keep: Option<usize>,
        tell: &mut dyn FnMut(&Progress),
    ) -> Result<(BackupReport, Option<PruneReport>), StoreError> {
        let _turn = self.backing_up.lock();
        self.check_target(url)?;
        if let Some(path) = self.one_file(url)? {
            if keep.is_some() {
                return Err(StoreError::Invalid(
                    "a copy in one file stands for itself: there are no older ones to keep".to_owned(),
                ));
            }
            return Ok((self.copy_into(&path, tell)?, None));
        }
        let target = self.platform.objects.open(url, objects).map_err(StoreError::Objects)?;
        let report = self.store.backup(&*target, tell)?;
        let pruned = keep.map(|keep| store::prune(&*target, keep)).transpose()?;
        Ok((report, pruned))
    }

    /// As Prometheus's snapshots: a backup in `snapshots` of the folder itself (beside a database in one file), which is no part of what it backs up.
    pub fn snapshot(&self, tell: &mut dyn FnMut(&Progress)) -> Result<BackupReport, StoreError> {
        if self.is_read_only {
            return Err(StoreError::ReadOnly);
        }
        let _turn = self.backing_up.lock();
        let target = self.platform.objects.open(&self.snapshots.to_string_lossy(), &ObjectOptions::default());
        self.store.backup(&*target.map_err(StoreError::Objects)?, tell)
    }

    /// The path of a target that is one file.
    fn one_file(&self, url: &str) -> Result<Option<PathBuf>, StoreError> {
        let path = Path::new(url.strip_prefix("file://").unwrap_or(url));
        let is_local = !url.contains("://") || url.starts_with("file://");
        let failed = |error| StoreError::Io { action: format!("look at {}", path.display()), error };
        let is_one = is_local && container::is_one_file(&*self.platform.files, path).map_err(failed)?;
        Ok(is_one.then(|| path.to_owned()))
    }

    /// Writes a copy of it all into a new file. It has its name once it is whole.
    fn copy_into(&self, path: &Path, tell: &mut dyn FnMut(&Progress)) -> Result<BackupReport, StoreError> {
        let new = NewOneFile::begin(&self.platform, path)?;
        let copied = self.store.copy_to(&new.platform, &new.unfinished, tell);
        let report = new.finish(copied)?;
        Ok(BackupReport { name: path.display().to_string(), ..report })
    }

    /// A backup inside of what it backs up would go with it, and be taken for files of the folder.
    fn check_target(&self, url: &str) -> Result<(), StoreError> {
        let own = self.store.directory().display().to_string();
        let objects = self.store.objects_url();
        let Some(outer) = [Some(own.as_str()), objects].into_iter().flatten().find(|outer| is_inside(url, outer))
        else {
            return Ok(());
        };
        Err(StoreError::Invalid(format!(
            "the backup target {url} is inside of {outer}, which is backed up; name a target outside of it"
        )))
    }

    /// Flushes, merges until no merge is due, and gives back the room of deleted rows.
    pub fn compact(&self, tell: &mut dyn FnMut(&Progress)) -> Result<CompactReport, StoreError> {
        self.store.compact(tell)
    }

    /// Forgets the losses that answers warn of: an operator has seen them. How many there were.
    pub fn acknowledge_losses(&self) -> Result<usize, StoreError> {
        self.store.acknowledge_losses()
    }

    /// How a database keeps its data; `None` if there is none of that name.
    pub fn policy(&self, database: &str) -> Option<DatabasePolicy> {
        self.store.policy(database)
    }

    /// Returns whether there is a database of a name.
    pub fn has_database(&self, database: &str) -> bool {
        self.store.has_database(database)
    }

    /// Says how a database keeps its data; made if it does not exist. Refused where its views cannot be kept right by that.
    pub fn set_policy(&self, database: &str, policy: &DatabasePolicy) -> Result<(), StoreError> {
        self.views.change_policy(database, policy)
    }

    /// Deletes the samples in a range of all series that satisfy one of the sets of matchers. They are gone when this returns.
    pub fn delete(
        &self,
        database: &str,
        matcher_sets: &[Vec<Matcher>],
        range: &TimeRange,
    ) -> Result<Deleted, StoreError> {
        let compiled = matcher_sets.iter().map(|matchers| index::compile(matchers)).collect::<Result<Vec<_>, _>>();
        let compiled = compiled.map_err(|error| StoreError::Invalid(error.to_string()))?;
        let announce = |table: Option<&str>| {
            let delete = SourceDelete { database, table, range: *range };
            self.views.before_delete(&delete).map_err(|error| StoreError::Invalid(error.to_string()))
        };
        let table = self.table_of(database, matcher_sets)?;
        let hold = announce(table.as_deref())?;
        let deleted = self.store.delete_sets(database, &compiled, range);
        // Another table may have got a metric of the name since it was looked up: then views of that one learn of the delete now.
        let hold_of_all =
            if table.is_some() && self.table_of(database, matcher_sets)? != table { announce(None)? } else { None };
        drop((hold, hold_of_all));
        deleted
    }

    /// The table that has all series that satisfy one of the sets of matchers, if each set names a metric of it that no other table has. `None` also for a
    /// table that a view writes: its windows have to be computed again, too.
    fn table_of(&self, database: &str, matcher_sets: &[Vec<Matcher>]) -> Result<Option<String>, StoreError> {
        let mut table = None;
        for matchers in matcher_sets {
            let is_name = |matcher: &&Matcher| matcher.name == METRIC_NAME && matcher.op == MatchOp::Equal;
            let Some(name) = matchers.iter().find(is_name) else { return Ok(None) };
            let Some(field) = self.store.field_of_metric(database, &name.value)? else { return Ok(None) };
            if table.as_ref().is_some_and(|table| *table != field.table) {
                return Ok(None);
            }
            table = Some(field.table);
        }
        Ok(table.filter(|table| !self.views.is_target(database, table)))
    }

    /// Deletes the rows before a time of a table whose tags satisfy one of the sets of matchers: they are past keeping. Unlike after
    /// [`Db::delete`], views and results of rules that were made of them stay. Nothing after the trusted time goes, nor what a view still has to
    /// read. Returns the time before which rows are gone: it may be earlier than the one that was asked for.
    pub fn trim_series(
        &self,
        (database, table): (&str, &str),
        matcher_sets: &[Vec<Matcher>],
        before_ns: i64,
    ) -> Result<i64, StoreError> {
        self.trim_tables(database, &[(table, matcher_sets)], before_ns)
    }

    /// As [`Db::trim_series`], of several tables by one delete.
    pub fn trim_tables(
        &self,
        database: &str,
        tables: &[(&str, &[Vec<Matcher>])],
        before_ns: i64,
    ) -> Result<i64, StoreError> {
        let compiled = |(table, sets): &(&str, &[Vec<Matcher>])| {
            let sets = sets.iter().map(|matchers| index::compile(matchers)).collect::<Result<Vec<_>, _>>();
            Ok((table.to_string(), sets.map_err(|error| StoreError::Invalid(error.to_string()))?))
        };
        let compiled = tables.iter().map(compiled).collect::<Result<Vec<_>, StoreError>>()?;
        let tables: Vec<_> = compiled.iter().map(|(table, sets)| (table.as_str(), sets.as_slice())).collect();
        self.views.trim_series(database, &tables, before_ns)
    }

    /// The tables of a database some of whose series [`Db::trim_series`] took, with the time before which they are gone.
    pub fn trimmed_tables(&self, database: &str) -> Vec<(String, i64)> {
        self.store.trimmed_tables(database)
    }

    /// The names of the fields that a table has or had, those of histograms among them.
    pub fn known_fields(&self, database: &str, table: &str) -> Vec<String> {
        self.store.known_fields(database, table)
    }

    /// The types of the fields of a name that a table has or had: groups may have it with different ones.
    pub fn known_field_types(&self, database: &str, table: &str, field: &str) -> Vec<ValueType> {
        self.store.known_field_types(database, table, field)
    }

    /// Returns whether fields of a table have labels of their own: rows that [`Db::trim_series`] takes have all fields of a group.
    pub fn has_labelled_fields(&self, database: &str, table: &str) -> bool {
        self.store.has_labelled_fields(database, table)
    }
}
