//! Small named documents of the layers above: accounts, later views and cursors. They are in the manifest, so that they are as durable as
//! what is there and part of every backup.

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

    /// Stores a document, in place of one of its kind and name. It is on disk when this returns.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if it or all documents together are too large; otherwise as every change of the manifest.
    pub fn put_document(&self, kind: &str, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.len() > DOCUMENT_BYTES_MAX || kind.len() > NAME_BYTES_MAX || name.len() > NAME_BYTES_MAX {
            let message = format!("a document has at most {DOCUMENT_BYTES_MAX} bytes, and its name {NAME_BYTES_MAX}");
            return Err(StoreError::Invalid(message));
        }
        let total: usize = {
            let manifest = self.manifest.lock();
            let others = manifest.state.documents.iter().filter(|((k, n), _)| k != kind || n != name);
            others.map(|((kind, name), bytes)| kind.len() + name.len() + bytes.len()).sum()
        };
        if total + kind.len() + name.len() + bytes.len() > DOCUMENTS_BYTES_MAX {
            let message = format!(
                "all accounts and other documents together have at most {DOCUMENTS_BYTES_MAX} bytes: remove some"
            );
            return Err(StoreError::Invalid(message));
        }
        self.commit_edits(&[Edit::PutDocument { kind: kind.to_owned(), name: name.to_owned(), bytes: bytes.into() }])
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
