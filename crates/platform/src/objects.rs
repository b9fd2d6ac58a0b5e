//! Object storage: immutable objects under keys, in a local folder or a cloud, behind one synchronous seam.
//!
//! The calls block, for up to minutes when a cloud is slow; the cloud implementation drives its own runtime. **Never
//! call them from asynchronous code** but on a thread made for blocking: the runtime's thread would stand still meanwhile.

mod error;
pub(crate) mod folder;
pub(crate) mod opener;

#[cfg(feature = "cloud")]
mod cloud;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub use error::{ObjectError, ObjectErrorKind};
pub use opener::is_inside;

use crate::File;

/// Bytes of the longest key.
pub const KEY_BYTES_MAX: usize = 900;

/// Opens object stores by their address.
pub trait ObjectStores: Send + Sync {
    /// Opens what the address names: `file:///path` or a plain path, `s3://bucket/prefix`, `gs://bucket/prefix`,
    /// `az://container/prefix`; in a simulation `sim://name`. Settings are checked, the store is not asked anything yet.
    fn open(&self, url: &str, options: &ObjectOptions) -> Result<Arc<dyn Objects>, ObjectError>;
}

/// Objects under keys. All calls block, are bounded in time, and may be made by many threads at once.
///
/// A key is one or more parts between `/`; see [`check_key`].
pub trait Objects: Send + Sync {
    /// Where the objects are, for messages; holds no secret.
    fn location(&self) -> &str;

    /// Stores an object whole or not at all. After an error it may or may not be there: the answer may have been lost.
    /// A condition makes the whole upload one request, so the content is bounded by
    /// [`ObjectOptions::conditional_put_bytes_max`]; and a conflict may be with this very put, if it was sent again
    /// because the first answer was lost: read what is there before believing in another writer.
    fn put(&self, key: &str, content: Content<'_>, condition: &PutCondition) -> Result<Version, ObjectError>;

    /// Reads ranges of an object, several at once: all of them in full, in the order asked for, or an error. A range
    /// beyond the object's end is an error. Ranges are not joined: the caller plans them.
    fn read(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, ObjectError>;

    /// Reads a range of each of several objects, as many at once as the store may be asked; what became of each, in the order asked for.
    fn read_each(&self, wanted: &[(&str, Range<u64>)]) -> Vec<Result<Vec<u8>, ObjectError>> {
        let read = |(key, range): &(&str, Range<u64>)| {
            Ok(self.read(key, std::slice::from_ref(range))?.pop().unwrap_or_default())
        };
        wanted.iter().map(read).collect()
    }

    /// Size and version of an object.
    fn head(&self, key: &str) -> Result<ObjectInfo, ObjectError>;

    /// Objects in and below a folder (no `/` at its end; empty for all), sorted by key, behind a key if one is given,
    /// at most so many.
    fn list(&self, folder: &str, after: Option<&str>, objects_max: usize) -> Result<Vec<ListedObject>, ObjectError>;

    /// Removes an object; no error if there is none.
    fn delete(&self, key: &str) -> Result<(), ObjectError>;

    /// Requests to the store since it was opened.
    fn counters(&self) -> ObjectCounters;
}

/// What to store.
#[derive(Clone, Copy)]
pub enum Content<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// An open file, from its start; it must not change meanwhile.
    File(&'a dyn File),
}

impl Content<'_> {
    pub(crate) fn size_bytes(&self) -> std::io::Result<u64> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
            Self::File(file) => file.size_bytes(),
        }
    }

    pub(crate) fn read_at(&self, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let found = start.checked_add(length).and_then(|end| bytes.get(start..end));
                found.map(<[u8]>::to_vec).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
            }
            Self::File(file) => {
                let mut buffer = vec![0; length];
                file.read_exact_at(&mut buffer, offset)?;
                Ok(buffer)
            }
        }
    }
}

impl fmt::Debug for Content<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(formatter, "{} bytes", bytes.len()),
            Self::File(_) => formatter.write_str("a file"),
        }
    }
}

/// When to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutCondition {
    /// In any case, replacing what is there.
    Always,
    /// If there is no such object; else [`ObjectErrorKind::Conflict`].
    IfAbsent,
    /// If the object is still at this version; else, and if it is gone, [`ObjectErrorKind::Conflict`].
    IfMatch(Version),
}

/// One content of an object among those that it had or will have under its key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    /// The entity tag as the store gives it.
    pub(crate) entity_tag: Option<String>,
    /// The generation, in stores that count them.
    pub(crate) generation: Option<String>,
}

/// What a store says about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its size.
    pub size_bytes: u64,
    /// Its version.
    pub version: Version,
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key.
    pub key: String,
    /// Its size.
    pub size_bytes: u64,
}

/// Requests to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectCounters {
    /// Requests sent, those sent again included. A local folder counts calls.
    pub requests: u64,
    /// Of these, requests that failed in a way that may pass, and so were sent again while the bounds allowed it.
    pub requests_failed: u64,
    /// Bytes of objects sent, those sent again included.
    pub sent_bytes: u64,
    /// Bytes of objects received and handed to the caller.
    pub received_bytes: u64,
}

/// How to reach a store, and the bounds of what is asked of it.
#[derive(Clone)]
pub struct ObjectOptions {
    /// Where an S3-compatible server, an Azure emulator or a Google Cloud Storage emulator listens, for example
    /// `http://127.0.0.1:9000`; without it the cloud's own.
    pub endpoint: Option<String>,
    /// Whether the endpoint may be plain HTTP.
    pub allow_http: bool,
    /// The region of an S3 bucket.
    pub region: Option<String>,
    /// Further settings by the names of the environment variables that are read anyway, in lower case, for example
    /// `aws_access_key_id`; they win over the environment.
    pub settings: Vec<(String, String)>,
    /// Bytes of one part of an upload; what is larger is sent in parts. At least 5 MiB for S3.
    pub part_bytes: usize,
    /// Bytes of the largest object that can be put under a condition.
    pub conditional_put_bytes_max: usize,
    /// Requests under way at once, over all callers.
    pub parallel_requests_max: usize,
    /// Time to establish a connection.
    pub connect_timeout_ms: u64,
    /// Time for one request, its body and answer included.
    pub request_timeout_ms: u64,
    /// Time without a byte of the answer, counted from the sending of the request's first byte: a part must be sent in
    /// it.
    pub stall_timeout_ms: u64,
    /// How often a request is sent again after a failure that may pass.
    pub retries_max: usize,
    /// Time since the first sending after which a request is not sent again.
    pub retry_total_ms: u64,
    /// Pause before the first resending; later pauses are random between this and twice the one before.
    pub backoff_first_ms: u64,
    /// The longest pause.
    pub backoff_max_ms: u64,
}

impl Default for ObjectOptions {
    fn default() -> Self {
        Self {
            endpoint: None,
            allow_http: false,
            region: None,
            settings: Vec::new(),
            part_bytes: 8 << 20,
            conditional_put_bytes_max: 64 << 20,
            parallel_requests_max: 16,
            connect_timeout_ms: 5_000,
            request_timeout_ms: 60_000,
            stall_timeout_ms: 30_000,
            retries_max: 8,
            retry_total_ms: 60_000,
            backoff_first_ms: 100,
            backoff_max_ms: 5_000,
        }
    }
}

impl fmt::Debug for ObjectOptions {
    /// Leaves the values of settings out: some are secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.settings.iter().map(|(name, _)| name.as_str()).collect();
        formatter
            .debug_struct("ObjectOptions")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("settings", &names)
            .finish_non_exhaustive()
    }
}

/// Whether a key may be used: parts of letters, digits, `-`, `_` and `.` between `/`, none empty or beginning with `.`,
/// at most [`KEY_BYTES_MAX`] bytes. What every store and file system takes as it is.
pub fn check_key(key: &str) -> Result<(), ObjectError> {
    let allowed = |symbol: char| symbol.is_ascii_alphanumeric() || matches!(symbol, '-' | '_' | '.');
    let part_is_fine = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(allowed);
    if key.len() <= KEY_BYTES_MAX && key.split('/').all(part_is_fine) {
        return Ok(());
    }
    let rule = "keys are parts of letters, digits, '-', '_' and '.' between '/', none empty or beginning with '.'";
    let message = format!("{rule}, at most {KEY_BYTES_MAX} bytes");
    Err(ObjectError::new(ObjectErrorKind::Config, format!("use {key:?} as the key of an object"), message))
}

/// Folders in lists follow the same rule, or are empty.
pub(crate) fn check_folder(folder: &str) -> Result<(), ObjectError> {
    if folder.is_empty() { Ok(()) } else { check_key(folder) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_every_store_takes() {
        let long = "a".repeat(KEY_BYTES_MAX + 1);
        let cases = [
            ("MANIFEST", true),
            ("parts/0000000001.part", true),
            ("", false),
            ("/a", false),
            ("a/", false),
            ("a//b", false),
            ("a/../b", false),
            (".hidden", false),
            ("a b", false),
            ("ü", false),
            (long.as_str(), false),
        ];
        for (key, expected) in cases {
            assert_eq!(check_key(key).is_ok(), expected, "{key}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let settings = vec![("aws_secret_access_key".to_owned(), "hush".to_owned())];
        let text = format!("{:?}", ObjectOptions { settings, ..ObjectOptions::default() });
        assert!(text.contains("aws_secret_access_key") && !text.contains("hush"), "{text}");
    }
}
