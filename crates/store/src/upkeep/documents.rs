//! Small named documents of the layers above: accounts, later views and cursors. They are in the manifest, so that they are as durable as
//! what is there and part of every backup.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::Edit;
use crate::{Store, StoreError};

/// Bytes that a document may have.
pub const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// Bytes that all documents may have: the manifest is written anew with all of them.
const DOCUMENTS_BYTES_MAX: usize = 8 << 20;

/// Bytes that a kind or a name may have.
const NAME_BYTES_MAX: usize = 512;

impl Store {
    /// The documents of a kind, by name.
    pub fn documents(&self, kind: &str) -> Vec<(String, Arc<[u8]>)> {
        let manifest = self.manifest.lock();
        let of_kind = manifest.state.documents.iter().filter(|((found, _), _)| found == kind);
        of_kind.map(|((_, name), bytes)| (name.clone(), bytes.clone())).collect()
    }

    pub(crate) fn has_document(&self, kind: &str, name: &str) -> bool {
        self.manifest.lock().state.documents.contains_key(&(kind.to_owned(), name.to_owned()))
    }

    /// Stores a document, in place of one of its kind and name. It is on disk when this returns.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if it or all documents together are too large; otherwise as every change of the manifest.
    pub fn put_document(&self, kind: &str, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.change_documents(kind, &BTreeMap::from([(name.to_owned(), Some(bytes.into()))]))
    }

    /// Stores documents of a kind, by name, in place of those that there are, and removes those without bytes: all of it or nothing. It
    /// is on disk when this returns.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if one of them or all documents together are too large; otherwise as every change of the manifest.
    pub fn change_documents(
        &self,
        kind: &str,
        changes: &BTreeMap<String, Option<Arc<[u8]>>>,
    ) -> Result<(), StoreError> {
        let size = |name: &String, bytes: &Arc<[u8]>| kind.len() + name.len() + bytes.len();
        let stored = || changes.iter().filter_map(|(name, bytes)| Some((name, bytes.as_ref()?)));
        let is_too_large = |(name, bytes): (&String, &Arc<[u8]>)| {
            bytes.len() > DOCUMENT_BYTES_MAX || kind.len() > NAME_BYTES_MAX || name.len() > NAME_BYTES_MAX
        };
        if stored().any(is_too_large) {
            let message = format!("a document has at most {DOCUMENT_BYTES_MAX} bytes, and its name {NAME_BYTES_MAX}");
            return Err(StoreError::Invalid(message));
        }
        let (others, known): (usize, BTreeSet<String>) = {
            let manifest = self.manifest.lock();
            let documents = &manifest.state.documents;
            let is_other = |(k, n): &(String, String)| k != kind || !changes.contains_key(n);
            let others = documents.iter().filter(|(key, _)| is_other(key));
            let others = others.map(|((kind, name), bytes)| kind.len() + name.len() + bytes.len()).sum();
            let known = documents.keys().filter(|key| !is_other(key)).map(|(_, name)| name.clone());
            (others, known.collect())
        };
        let total = others + stored().map(|(name, bytes)| size(name, bytes)).sum::<usize>();
        // Removing is always possible.
        if stored().next().is_some() && total > DOCUMENTS_BYTES_MAX {
            let message = format!(
                "all accounts and other documents together have at most {DOCUMENTS_BYTES_MAX} bytes: remove some"
            );
            return Err(StoreError::Invalid(message));
        }
        let edits: Vec<Edit> = changes
            .iter()
            .filter_map(|(name, bytes)| {
                let (kind, name) = (kind.to_owned(), name.clone());
                match bytes {
                    Some(bytes) => Some(Edit::PutDocument { kind, name, bytes: bytes.clone() }),
                    None => known.contains(&name).then_some(Edit::RemoveDocument { kind, name }),
                }
            })
            .collect();
        if edits.is_empty() { Ok(()) } else { self.commit_edits(&edits) }
    }

    /// Removes a document; returns whether there was one.
    ///
    /// # Errors
    /// As every change of the manifest.
    pub fn remove_document(&self, kind: &str, name: &str) -> Result<bool, StoreError> {
        let key = (kind.to_owned(), name.to_owned());
        if !self.manifest.lock().state.documents.contains_key(&key) {
            return Ok(false);
        }
        let (kind, name) = key;
        self.commit_edits(&[Edit::RemoveDocument { kind, name }])?;
        Ok(true)
    }
}
