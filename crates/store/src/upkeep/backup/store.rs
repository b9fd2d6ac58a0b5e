//! Where things are in a backup's target, and whether they are what was put there.

use std::collections::BTreeMap;
use std::path::Path;

use platform::File;
use platform::objects::{Content, ListedObject, ObjectError, ObjectErrorKind, Objects, PutCondition};

use super::list::{BackupFile, BackupList, FileKind};
use crate::StoreError;

/// Says which backup is the newest.
pub(super) const LATEST: &str = "LATEST";

/// Bytes read or written at once.
pub(super) const STEP_BYTES: u64 = 4 << 20;

/// Bytes that the object of a backup may have.
const LIST_BYTES_MAX: u64 = 1 << 30;
const LATEST_BYTES_MAX: u64 = 1 << 10;
const PAGE_OBJECTS: usize = 1000;
/// Objects that a target may hold.
const OBJECTS_MAX: usize = 1 << 24;

/// A folder's backups in a target.
pub(super) struct Target<'a> {
    pub(super) objects: &'a dyn Objects,
    /// Of the folder's incarnation: its file numbers mean the same bytes for ever.
    prefix: String,
}

impl<'a> Target<'a> {
    pub(super) fn new(objects: &'a dyn Objects, prefix: String) -> Self {
        Self { objects, prefix }
    }

    /// The target of the folder that a backup's key belongs to.
    pub(super) fn of_backup(objects: &'a dyn Objects, key: &str) -> Self {
        Self::new(objects, key.split('/').next().unwrap_or_default().to_owned())
    }

    pub(super) fn key(&self, kind: FileKind, id: u64) -> String {
        match kind {
            FileKind::Part => format!("{}/parts/{id:010}.part", self.prefix),
            FileKind::Segment => format!("{}/index/{id:010}.segment", self.prefix),
            FileKind::Epochs => format!("{}/epochs/{id:010}.epochs", self.prefix),
        }
    }

    pub(super) fn folder(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// Files of the newest backup of this folder that are still there, at full size.
    pub(super) fn known_files(&self) -> Result<BTreeMap<(FileKind, u64), BackupFile>, StoreError> {
        let Some(newest) = self.names()?.pop() else {
            return Ok(BTreeMap::new());
        };
        let list = read_backup(self.objects, &newest)?;
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        for folder in ["parts", "index", "epochs"] {
            let objects = list_all(self.objects, &self.folder(folder))?;
            sizes.extend(objects.into_iter().map(|object| (object.key, object.size_bytes)));
        }
        let is_there = |file: &BackupFile| sizes.get(&self.key(file.kind, file.id)) == Some(&file.bytes);
        Ok(list.files.into_iter().filter(is_there).map(|file| ((file.kind, file.id), file)).collect())
    }

    /// Keys of this folder's backups, oldest first.
    pub(super) fn names(&self) -> Result<Vec<String>, StoreError> {
        let listed = list_all(self.objects, &self.folder("backups"))?;
        Ok(listed.into_iter().map(|object| object.key).collect())
    }

    /// Puts a file there and reads it back; its checksum.
    pub(super) fn copy(&self, key: &str, file: &dyn File, bytes: u64) -> Result<u32, StoreError> {
        let expected = file_checksum(file, bytes).map_err(StoreError::io("read for a backup", Path::new(key)))?;
        self.objects.put(key, Content::File(file), &PutCondition::Always).map_err(StoreError::Objects)?;
        let found = read_whole(self.objects, key, bytes, |_| Ok(()))?;
        check_checksum(self.objects, key, expected, found)?;
        Ok(expected)
    }

    /// Makes the backup one: its list, then the pointer to it. Its name.
    pub(super) fn commit(&self, list: &BackupList) -> Result<String, StoreError> {
        let encoded = list.encode();
        let newest = self.names()?.pop();
        let number = newest.as_deref().and_then(backup_number).unwrap_or(0) + 1;
        let key = self.folder(&format!("backups/{number:08}-{:020}", list.sequence));
        let condition = PutCondition::IfAbsent;
        self.objects.put(&key, Content::Bytes(&encoded), &condition).map_err(StoreError::Objects)?;
        if read_backup(self.objects, &key)? != *list {
            return Err(corrupt(self.objects, &key, 0, "read back, it is not what was put there"));
        }
        let pointer = key.as_bytes();
        self.objects.put(LATEST, Content::Bytes(pointer), &PutCondition::Always).map_err(StoreError::Objects)?;
        Ok(key)
    }
}

/// The running number at the beginning of a backup's name.
fn backup_number(key: &str) -> Option<u64> {
    key.rsplit('/').next()?.split('-').next()?.parse().ok()
}

pub(super) fn corrupt(objects: &dyn Objects, key: &str, offset: u64, message: impl Into<String>) -> StoreError {
    StoreError::corrupt(&Path::new(objects.location()).join(key), offset, message)
}

/// The key of the newest backup.
pub(super) fn latest(objects: &dyn Objects) -> Result<String, StoreError> {
    let bytes = match read_small(objects, LATEST, LATEST_BYTES_MAX) {
        Err(StoreError::Objects(error)) if error.kind == ObjectErrorKind::Missing => {
            let message = format!("there is no backup in {}: it has no object {LATEST}", objects.location());
            return Err(StoreError::Invalid(message));
        }
        read => read?,
    };
    let is_key = |text: &String| platform::objects::check_key(text).is_ok() && text.contains("/backups/");
    let key = String::from_utf8(bytes).ok().filter(is_key);
    key.ok_or_else(|| corrupt(objects, LATEST, 0, "expected the key of a backup; name one with --backup"))
}

/// Reads the object of a backup.
pub(super) fn read_backup(objects: &dyn Objects, key: &str) -> Result<BackupList, StoreError> {
    let bytes = read_small(objects, key, LIST_BYTES_MAX)?;
    BackupList::decode(&bytes).map_err(|error| corrupt(objects, key, error.offset as u64, error.what))
}

/// Reads an object that is small.
pub(super) fn read_small(objects: &dyn Objects, key: &str, bytes_max: u64) -> Result<Vec<u8>, StoreError> {
    let size = objects.head(key).map_err(StoreError::Objects)?.size_bytes;
    if size > bytes_max {
        return Err(corrupt(objects, key, 0, format!("expected at most {bytes_max} bytes, found {size}")));
    }
    let mut bytes = Vec::new();
    read_whole(objects, key, size, |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}

/// Reads an object that must have so many bytes, piece by piece; its checksum.
pub(super) fn read_whole(
    objects: &dyn Objects,
    key: &str,
    bytes: u64,
    mut visit: impl FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<u32, StoreError> {
    let missing = |error: ObjectError| match error.kind {
        ObjectErrorKind::Missing => corrupt(objects, key, 0, format!("expected {bytes} bytes, found no object")),
        _ => StoreError::Objects(error),
    };
    let found = objects.head(key).map_err(missing)?.size_bytes;
    if found != bytes {
        return Err(corrupt(objects, key, found.min(bytes), format!("expected {bytes} bytes, found {found}")));
    }
    let (mut checksum, mut offset) = (0, 0);
    while offset < bytes {
        let end = (offset + STEP_BYTES).min(bytes);
        for piece in objects.read(key, std::slice::from_ref(&(offset..end))).map_err(StoreError::Objects)? {
            checksum = crc32c::crc32c_append(checksum, &piece);
            visit(&piece)?;
        }
        offset = end;
    }
    Ok(checksum)
}

pub(super) fn check_checksum(objects: &dyn Objects, key: &str, expected: u32, found: u32) -> Result<(), StoreError> {
    if expected == found {
        return Ok(());
    }
    Err(corrupt(objects, key, 0, format!("checksum: expected {expected:08x}, found {found:08x}")))
}

/// All objects in a folder.
pub(super) fn list_all(objects: &dyn Objects, folder: &str) -> Result<Vec<ListedObject>, StoreError> {
    let mut found: Vec<ListedObject> = Vec::new();
    loop {
        let after = found.last().map(|object| object.key.clone());
        let page = objects.list(folder, after.as_deref(), PAGE_OBJECTS).map_err(StoreError::Objects)?;
        let is_last = page.len() < PAGE_OBJECTS;
        found.extend(page);
        if is_last {
            return Ok(found);
        }
        if found.len() > OBJECTS_MAX {
            let message = format!("{folder} in {} holds more than {OBJECTS_MAX} objects", objects.location());
            return Err(StoreError::Invalid(message));
        }
    }
}

pub(super) fn file_checksum(file: &dyn File, bytes: u64) -> std::io::Result<u32> {
    let (mut checksum, mut offset) = (0, 0);
    let mut buffer = vec![0; STEP_BYTES.min(bytes) as usize];
    while offset < bytes {
        let step = (bytes - offset).min(STEP_BYTES) as usize;
        file.read_exact_at(&mut buffer[..step], offset)?;
        checksum = crc32c::crc32c_append(checksum, &buffer[..step]);
        offset += step as u64;
    }
    Ok(checksum)
}
