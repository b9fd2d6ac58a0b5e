//! Local files become objects.

use std::path::Path;

use platform::objects::{Content, ObjectError, ObjectErrorKind, PutCondition};
use platform::{File, OpenMode};

use super::Tier;

const CHECKSUM_BYTES: u64 = 1 << 20;

/// An object that was stored, and found to be what was to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uploaded {
    /// Its size.
    pub size_bytes: u64,
    /// CRC-32C of all its bytes.
    pub checksum: u32,
}

impl Tier {
    /// Stores a file that does not change any more, and makes sure of it: size, and unless
    /// [`read_back`](super::TierOptions::read_back) is off every byte, read again from the store. Only when this has
    /// returned may the file be deleted. After an error the object may be there or not: upload again, or delete it.
    pub fn upload(&self, local: &Path, key: &str) -> Result<Uploaded, ObjectError> {
        let failed = |error: std::io::Error| {
            let action = format!("read {} to store it as object {key} in {}", local.display(), self.location());
            ObjectError::new(ObjectErrorKind::Other, action, error.to_string())
        };
        let file = self.platform.files.open(local, OpenMode::Read).map_err(failed)?;
        let size_bytes = file.size_bytes().map_err(failed)?;
        let checksum = file_checksum(&*file, size_bytes).map_err(failed)?;
        self.objects.put(key, Content::File(&*file), &PutCondition::Always)?;
        let uploaded = Uploaded { size_bytes, checksum };
        self.verify(key, uploaded)?;
        Ok(uploaded)
    }

    /// Returns whether an object is what was uploaded under its key: reads it again from the store, past the cache.
    pub fn verify(&self, key: &str, uploaded: Uploaded) -> Result<(), ObjectError> {
        let different = |message: String| Err(self.error(ObjectErrorKind::Other, "verify", key, message));
        let found_bytes = match self.objects.head(key) {
            Ok(info) => info.size_bytes,
            Err(error) if error.kind == ObjectErrorKind::Missing => {
                return different("it was stored, but is not there".to_owned());
            }
            Err(error) => return Err(error),
        };
        if found_bytes != uploaded.size_bytes {
            return different(format!("expected {} bytes, found {found_bytes}", uploaded.size_bytes));
        }
        if !self.options.read_back {
            return Ok(());
        }
        let step = self.options.request_bytes_max.max(1);
        let (mut checksum, mut offset) = (0, 0);
        while offset < found_bytes {
            let end = (offset + step).min(found_bytes);
            for content in self.objects.read(key, std::slice::from_ref(&(offset..end)))? {
                checksum = crc32c::crc32c_append(checksum, &content);
            }
            offset = end;
        }
        if checksum == uploaded.checksum {
            return Ok(());
        }
        different(format!("expected checksum {:08x}, found {checksum:08x}", uploaded.checksum))
    }
}

fn file_checksum(file: &dyn File, size_bytes: u64) -> std::io::Result<u32> {
    let (mut checksum, mut offset) = (0, 0);
    while offset < size_bytes {
        let mut buffer = vec![0; (size_bytes - offset).min(CHECKSUM_BYTES) as usize];
        file.read_exact_at(&mut buffer, offset)?;
        checksum = crc32c::crc32c_append(checksum, &buffer);
        offset += buffer.len() as u64;
    }
    Ok(checksum)
}
