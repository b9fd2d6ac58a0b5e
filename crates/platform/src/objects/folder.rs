//! Objects as files in a local folder.
//!
//! An acknowledged put is durable: content, then name, are synced. Versions are modification time and size; writers of
//! one folder take its lock for the moment in which an object appears, and never set a time that is not later than the
//! one before, so that no version comes twice.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing_mutex::parkinglot::Mutex;

use super::{
    Content, ListedObject, ObjectCounters, ObjectError, ObjectErrorKind, ObjectInfo, Objects, PutCondition, Version,
    check_folder, check_key,
};

/// Begins with a dot, as no key may.
const LOCK_NAME: &str = ".lock";
/// Unfinished puts begin with it.
const UNFINISHED_PREFIX: &str = ".unfinished-";
/// Unfinished puts as old as this have no owner any more.
const UNFINISHED_AGE_MAX: Duration = Duration::from_hours(24);
const COPY_BYTES: usize = 1 << 20;
/// Folders below folders that a list walks.
const DEPTH_MAX: usize = 32;

pub(crate) struct FolderObjects {
    root: PathBuf,
    location: String,
    /// Held in the moment in which an object appears; the file's lock keeps other processes out.
    appearing: Mutex<File>,
    requests: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl FolderObjects {
    pub(crate) fn open(root: PathBuf) -> Result<Self, ObjectError> {
        let location = root.display().to_string();
        let failed = |error: io::Error| ObjectError::io(format!("use {location} for objects"), &error);
        create_directories(&root).map_err(failed)?;
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join(LOCK_NAME))
            .map_err(failed)?;
        remove_abandoned(&root).map_err(failed)?;
        Ok(Self {
            root,
            location,
            appearing: Mutex::new(lock),
            requests: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
        })
    }

    fn path(&self, key: &str) -> Result<PathBuf, ObjectError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        check_key(key)?;
        Ok(self.root.join(key))
    }

    fn failed(&self, action: &str, key: &str) -> impl Fn(io::Error) -> ObjectError {
        let action = format!("{action} object {key} in {}", self.location);
        move |error| ObjectError::io(action.clone(), &error)
    }

    /// Gives a whole, synced file its key, if the condition holds.
    fn appear(&self, unfinished: &Path, path: &Path, condition: &PutCondition) -> io::Result<Option<Version>> {
        let lock = self.appearing.lock();
        lock.lock()?;
        let appeared = appear_locked(unfinished, path, condition);
        // Released with the file at the latest; an error here changes nothing about what has happened.
        let _ = lock.unlock();
        appeared
    }

    fn copy(&self, content: Content<'_>, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let size = content.size_bytes()?;
        let mut offset = 0;
        while offset < size {
            let length = (size - offset).min(COPY_BYTES as u64) as usize;
            file.write_all(&content.read_at(offset, length)?)?;
            offset += length as u64;
        }
        self.sent_bytes.fetch_add(size, Ordering::Relaxed);
        file.sync_all()
    }

    fn put_file(&self, path: &Path, content: Content<'_>, condition: &PutCondition) -> io::Result<Option<Version>> {
        // Random, since other processes, also on other machines, may store in the same folder.
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let unfinished = self.root.join(format!("{UNFINISHED_PREFIX}{:016x}", u64::from_le_bytes(random)));
        let stored = self.copy(content, &unfinished).and_then(|()| self.appear(&unfinished, path, condition));
        if !matches!(stored, Ok(Some(_))) {
            // What is left is removed when the folder is opened on a later day.
            let _ = fs::remove_file(&unfinished);
        }
        stored
    }
}

/// `None` if the condition does not hold.
fn appear_locked(unfinished: &Path, path: &Path, condition: &PutCondition) -> io::Result<Option<Version>> {
    let current = match fs::metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let holds = match condition {
        PutCondition::Always => true,
        PutCondition::IfAbsent => current.is_none(),
        PutCondition::IfMatch(version) => current.as_ref().is_some_and(|found| version_of(found) == *version),
    };
    if !holds {
        return Ok(None);
    }
    let mut modified = SystemTime::now();
    if let Some(current) = &current {
        modified = modified.max(current.modified()? + Duration::from_micros(1));
    }
    let file = OpenOptions::new().write(true).open(unfinished)?;
    file.set_modified(modified)?;
    file.sync_all()?;
    let version = version_of(&file.metadata()?);
    if current.is_some_and(|current| version_of(&current) == version) {
        return Err(io::Error::other("the file system keeps times too coarsely to tell versions apart"));
    }
    if let Some(parent) = path.parent() {
        create_directories(parent)?;
    }
    fs::rename(unfinished, path)?;
    if let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(Some(version))
}

/// Makes a folder and those above it, each synced into the one above.
fn create_directories(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = match directory.parent() {
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    create_directories(parent)?;
    match fs::create_dir(directory) {
        // If it is no folder, what is done in it next says so.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(parent)?.sync_all()
}

fn version_of(metadata: &fs::Metadata) -> Version {
    let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
    let since_epoch = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Version { entity_tag: Some(format!("{:x}-{:x}", since_epoch.as_nanos(), metadata.len())), generation: None }
}

fn remove_abandoned(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX);
        let age = entry.metadata().and_then(|metadata| metadata.modified()).map(|modified| modified.elapsed());
        if unfinished && matches!(age, Ok(Ok(age)) if age > UNFINISHED_AGE_MAX) {
            // Another process may have removed it in this moment.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

fn walk(root: &Path, folder: &str, depth: usize, found: &mut Vec<ListedObject>) -> io::Result<()> {
    let entries = match fs::read_dir(root.join(folder)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let key = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if check_key(&key).is_err() {
            continue;
        }
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() && depth < DEPTH_MAX => walk(root, &key, depth + 1, found)?,
            Ok(metadata) if metadata.is_file() => found.push(ListedObject { key, size_bytes: metadata.len() }),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl Objects for FolderObjects {
    fn location(&self) -> &str {
        &self.location
    }

    fn put(&self, key: &str, content: Content<'_>, condition: &PutCondition) -> Result<Version, ObjectError> {
        let path = self.path(key)?;
        let failed = self.failed("store", key);
        let stored = self.put_file(&path, content, condition).map_err(|error| match error.kind() {
            // The local file, not an object.
            io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists => failed(io::Error::other(error.to_string())),
            _ => failed(error),
        })?;
        stored.ok_or_else(|| {
            let message = format!("it is not as the condition {condition:?} wants it");
            ObjectError::new(ObjectErrorKind::Conflict, format!("store object {key} in {}", self.location), message)
        })
    }

    fn read(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, ObjectError> {
        let path = self.path(key)?;
        let failed = self.failed("read", key);
        let file = File::open(path).map_err(&failed)?;
        let size = file.metadata().map_err(&failed)?.len();
        let mut contents = Vec::with_capacity(ranges.len());
        for range in ranges {
            if range.start >= range.end || range.end > size {
                let message = format!("bytes {range:?} were asked for, it has {size}");
                return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, message)));
            }
            let mut content = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut content, range.start).map_err(&failed)?;
            self.received_bytes.fetch_add(content.len() as u64, Ordering::Relaxed);
            contents.push(content);
        }
        Ok(contents)
    }

    fn head(&self, key: &str) -> Result<ObjectInfo, ObjectError> {
        let metadata = fs::metadata(self.path(key)?).map_err(self.failed("look at", key))?;
        if metadata.is_file() {
            return Ok(ObjectInfo { size_bytes: metadata.len(), version: version_of(&metadata) });
        }
        Err(self.failed("look at", key)(io::ErrorKind::NotFound.into()))
    }

    fn list(&self, folder: &str, after: Option<&str>, objects_max: usize) -> Result<Vec<ListedObject>, ObjectError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        check_folder(folder)?;
        let mut found = Vec::new();
        walk(&self.root, folder, 0, &mut found).map_err(self.failed("list", folder))?;
        found.retain(|object| after.is_none_or(|after| object.key.as_str() > after));
        found.sort_by(|left, right| left.key.cmp(&right.key));
        found.truncate(objects_max);
        Ok(found)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        let path = self.path(key)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.map_err(self.failed("delete", key))?,
        }
        let parent = path.parent().unwrap_or(&self.root);
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(self.failed("delete", key))
    }

    fn counters(&self) -> ObjectCounters {
        ObjectCounters {
            requests: self.requests.load(Ordering::Relaxed),
            requests_failed: 0,
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
