//! The copy of the manifest in the store: replaced only by a writer that knows what it replaces.

use platform::objects::{Content, ObjectError, ObjectErrorKind, PutCondition, Version};

use super::Tier;

/// How often a copy is read again because it was replaced meanwhile.
const READS_MAX: usize = 4;

/// A copy of the manifest as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestCopy {
    /// Its content.
    pub bytes: Vec<u8>,
    /// To be given to [`Tier::put_manifest`] to replace just this one.
    pub version: Version,
}

/// What became of a copy of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestPut {
    /// It is there, at this version.
    Written(Version),
    /// Another writer has written since: this is what is there now, if anything is. The caller must not write.
    Fenced(Option<ManifestCopy>),
}

impl Tier {
    /// Replaces the copy if it is still at the version expected (`None`: if there is none). The bytes must tell writers
    /// apart, as a manifest's incarnation and epoch do: a copy that holds just these bytes counts as this one, since the
    /// answer to an earlier attempt may have been lost. After [`ObjectErrorKind::Busy`] call again with the same bytes
    /// and version. Needs a store that [honours conditions](super::TierProbe::conditional_put).
    pub fn put_manifest(
        &self,
        key: &str,
        bytes: &[u8],
        expected: Option<&Version>,
    ) -> Result<ManifestPut, ObjectError> {
        let condition = expected.map_or(PutCondition::IfAbsent, |version| PutCondition::IfMatch(version.clone()));
        let error = match self.objects.put(key, Content::Bytes(bytes), &condition) {
            Ok(version) => return Ok(ManifestPut::Written(version)),
            Err(error) => error,
        };
        if matches!(error.kind, ObjectErrorKind::Denied | ObjectErrorKind::Config) {
            return Err(error);
        }
        match self.load_manifest(key, (bytes.len() as u64).saturating_mul(16).max(1 << 20))? {
            Some(copy) if copy.bytes == bytes => Ok(ManifestPut::Written(copy.version)),
            // The put itself failed, for a reason that the caller has to know.
            _ if error.kind != ObjectErrorKind::Conflict => Err(error),
            found if found.as_ref().map(|copy| &copy.version) == expected => {
                // No other writer wrote, yet ours is not there either; the store was busy with another's that failed.
                Err(ObjectError { kind: ObjectErrorKind::Busy, ..error })
            }
            found => Ok(ManifestPut::Fenced(found)),
        }
    }

    /// The copy and its version; `None` if there is none.
    pub fn load_manifest(&self, key: &str, size_bytes_max: u64) -> Result<Option<ManifestCopy>, ObjectError> {
        let mut info = match self.objects.head(key) {
            Err(error) if error.kind == ObjectErrorKind::Missing => return self.no_manifest(),
            info => info?,
        };
        for _ in 0..READS_MAX {
            if info.size_bytes > size_bytes_max {
                let message = format!("it has {} bytes, at most {size_bytes_max} are expected", info.size_bytes);
                return Err(self.error(ObjectErrorKind::Other, "read", key, message));
            }
            let whole = 0..info.size_bytes;
            let read = match info.size_bytes {
                0 => Ok(Vec::new()),
                _ => self.objects.read(key, std::slice::from_ref(&whole)).map(|contents| contents.concat()),
            };
            let after = match self.objects.head(key) {
                Err(error) if error.kind == ObjectErrorKind::Missing => return Ok(None),
                after => after?,
            };
            if after == info {
                return Ok(Some(ManifestCopy { bytes: read?, version: info.version }));
            }
            info = after;
        }
        Err(self.error(ObjectErrorKind::Busy, "read", key, "it was replaced each time it was read"))
    }

    /// "Not there" is acted upon by making a new one, so it must not come from a bucket that is not there.
    fn no_manifest(&self) -> Result<Option<ManifestCopy>, ObjectError> {
        self.objects.list("", None, 1).map(|_| None)
    }
}
