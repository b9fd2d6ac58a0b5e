//! Opening a folder for reading only, also one that another process writes to.
//!
//! The folder is opened as always, over files that take what that writes into memory. What was read belongs together if the manifest is still the
//! same afterwards: files go only after a commit that does not name them. Otherwise, and where a file went meanwhile, it is tried again with the
//! manifest that there is then. Parts and segments stay open, so that reading goes on when the writer has removed them, and a later opening need not
//! read them again.

use std::sync::Arc;

use platform::objects::{ObjectError, ObjectErrorKind, ObjectOptions, ObjectStores, Objects};
use platform::{OverlayFiles, Platform};

use super::reused::Reused;
use crate::log::writer::READ_ONLY;
use crate::manifest::tail::ManifestTail;
use crate::{Store, StoreError, StoreOptions};

/// Openings that are tried while the folder changes.
const ATTEMPTS: u32 = 20;

/// Bytes of a log segment: none is written.
const SEGMENT_BYTES: usize = 1 << 20;

/// Object stores that nothing may be put into.
struct NoObjectStores;

impl ObjectStores for NoObjectStores {
    fn open(&self, url: &str, _: &ObjectOptions) -> Result<Arc<dyn Objects>, ObjectError> {
        Err(ObjectError::new(ObjectErrorKind::Config, format!("open {url}"), "the folder is open for reading only"))
    }
}

impl Store {
    /// Opens a data folder for reading only: as it is now, with everything that was acknowledged. Nothing of it is changed, and another process
    /// may have it open for writing; what that writes from now on is not seen. A folder with parts in an object store is refused.
    pub fn open_read_only(platform: &Platform, options: &StoreOptions) -> Result<Self, StoreError> {
        Self::open_read_only_after(platform, options, None)
    }

    /// As [`Store::open_read_only`], after another opening of the same folder for reading only, whose parts and index segments are not read again
    /// as far as they are still there; of the manifest, of names and epochs what was appended is read. A database in one file is read whole: where
    /// its inner files lie may change.
    pub fn open_read_only_after(
        platform: &Platform,
        options: &StoreOptions,
        previous: Option<&Self>,
    ) -> Result<Self, StoreError> {
        if options.objects.is_some() {
            let message =
                "a folder with an object store cannot be opened for reading only: ask the server that has it open";
            return Err(StoreError::Invalid(message.to_owned()));
        }
        let options = StoreOptions {
            log_segment_bytes: SEGMENT_BYTES,
            log_is_direct: false,
            journal_is_saved: false,
            reserve_bytes: 0,
            scrub_period_ms: 0,
            ..options.clone()
        };
        let directory = options.directory.clone();
        let files = &*platform.files;
        let mut tail = previous.and_then(|previous| previous.manifest_tail.clone());
        let (mut is_continued, mut last_error) = (true, None);
        for _ in 0..ATTEMPTS {
            let overlay = Arc::new(OverlayFiles::new(platform.files.clone()));
            let over = Platform { files: overlay.clone(), objects: Arc::new(NoObjectStores), ..platform.clone() };
            let opened = ManifestTail::read(files, &directory, tail.take()).and_then(|(manifest, read)| {
                let edition = manifest.edition();
                is_continued &= manifest.is_continued;
                let reused = previous.map(Reused::from_store).unwrap_or_default();
                let reused = reused.with_manifest(manifest, is_continued);
                let store = Self::open_once(over, options.clone(), reused);
                let (after, tail_after) = ManifestTail::read(files, &directory, read.clone())?;
                tail = tail_after;
                is_continued &= after.is_continued;
                Ok((Self { manifest_tail: read, ..store? }, after.edition() == edition))
            });
            match opened {
                Ok((store, true)) => {
                    overlay.seal();
                    store.log.poison(READ_ONLY);
                    return Ok(store);
                }
                Ok((_, false)) => last_error = None,
                Err(error @ (StoreError::Invalid(_) | StoreError::Newer { .. })) => return Err(error),
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.unwrap_or_else(|| {
            StoreError::Invalid(format!(
                "{} changed each of {ATTEMPTS} times while it was being opened for reading: try again, or ask its server",
                directory.display()
            ))
        }))
    }
}
