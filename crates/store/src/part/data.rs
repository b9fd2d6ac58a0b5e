//! Where a part's bytes come from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platform::{File, Files, OpenMode};

use super::{PartInfo, Place};
use crate::StoreError;

/// A part's bytes.
pub(crate) enum PartData {
    /// A stretch of a file of the data folder.
    Local {
        /// The file's path, for messages.
        path: PathBuf,
        /// The file.
        file: Arc<dyn File>,
        /// Where in it the part begins.
        base: u64,
    },
}

impl PartData {
    /// Opens a part's local file.
    pub(crate) fn open_local(files: &dyn Files, path: PathBuf, info: &PartInfo) -> Result<Self, StoreError> {
        let file = files.open(&path, OpenMode::Read).map_err(StoreError::io("open part", &path))?;
        let size = file.size_bytes().map_err(StoreError::io("open part", &path))?;
        if info.offset.checked_add(info.bytes).is_none_or(|end| end > size) {
            let message = format!("expected {} bytes at offset {}, the file has {size}", info.bytes, info.offset);
            return Err(StoreError::corrupt(&path, size, message));
        }
        Ok(Self::Local { path, file, base: info.offset })
    }

    /// What to call it in messages.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Local { path, .. } => path,
        }
    }

    /// Where an offset of the part is in what [`PartData::path`] names.
    pub(crate) fn offset(&self, offset: u64) -> u64 {
        match self {
            Self::Local { base, .. } => base.saturating_add(offset),
        }
    }

    /// Reads stretches of the part.
    pub(crate) fn read(&self, places: &[Place]) -> Result<Vec<Vec<u8>>, StoreError> {
        match self {
            Self::Local { path, file, .. } => {
                let read = |place: &Place| {
                    let mut bytes = vec![0; place.bytes as usize];
                    file.read_exact_at(&mut bytes, self.offset(place.offset))
                        .map_err(StoreError::io("read part", path))?;
                    Ok(bytes)
                };
                places.iter().map(read).collect()
            }
        }
    }

    /// An error that says what is damaged, and where.
    pub(crate) fn corrupt(&self, offset: u64, message: impl Into<String>) -> StoreError {
        StoreError::corrupt(self.path(), self.offset(offset), message)
    }
}
