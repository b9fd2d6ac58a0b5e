//! Where a part's bytes come from.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platform::{File, Files, Mapped, OpenMode};

use super::reader::tail_bytes;
use super::{BlockHandle, FOOTER_BYTES, HEADER_BYTES, HEADER_MAGIC, PartInfo, VERSION};
use crate::StoreError;
use crate::tier::Tier;
use crate::upkeep::damage::Damage;
use crate::upkeep::health::Health;

/// A part's bytes.
pub(crate) enum PartData {
    /// A range of a file of the data folder.
    Local {
        /// The file's path, for messages.
        path: PathBuf,
        /// The file.
        file: Arc<dyn File>,
        /// Where in it the part begins.
        base: u64,
        /// The file's bytes, mapped, where its index is worth it.
        map: Option<Mapped>,
        /// Where damage is reported, if the folder is open.
        health: Option<Arc<Health>>,
    },
    /// An object.
    Object {
        tier: Arc<Tier>,
        /// Its key, for messages a path.
        key: PathBuf,
        bytes: u64,
        /// The part's last bytes, from its index on: they are kept locally, in a file of their own.
        tail: Option<Mapped>,
        /// As for a local file.
        health: Option<Arc<Health>>,
    },
}

/// Bytes that stay where they are: in memory, or in a mapped file.
pub(crate) enum ResidentBytes {
    Owned(Vec<u8>),
    Mapped(Mapped, Range<usize>),
}

impl ResidentBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            // Zeros in place of a page that could not be read are no bytes of the file.
            Self::Mapped(map, _) if !map.is_readable() => &[],
            Self::Mapped(map, range) => map.bytes().get(range.clone()).unwrap_or_default(),
        }
    }

    /// Bytes of memory that they take for themselves.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Owned(bytes) => bytes.len(),
            Self::Mapped(..) => 0,
        }
    }
}

/// Fewer ranges of local files are read without a look at whether they are in memory: that costs as much as to read one that is.
const LOCAL_WARM_MIN: usize = 4;

/// Bytes of a part from which on its file is mapped: the index of a small one is simply read.
const MAPPED_BYTES_MIN: u64 = 1 << 20;

impl PartData {
    /// Opens a part's local file.
    pub(crate) fn open_local(files: &dyn Files, path: PathBuf, info: &PartInfo) -> Result<Self, StoreError> {
        let file = files.open(&path, OpenMode::Read).map_err(StoreError::io("open part", &path))?;
        let size = file.size_bytes().map_err(StoreError::io("open part", &path))?;
        if info.offset.checked_add(info.bytes).is_none_or(|end| end > size) {
            let message = format!("expected {} bytes at offset {}, the file has {size}", info.bytes, info.offset);
            return Err(StoreError::corrupt(&path, size, message));
        }
        let is_large = info.bytes >= MAPPED_BYTES_MIN;
        let map = is_large.then(|| files.map(&path)).transpose().map_err(StoreError::io("map part", &path))?;
        Ok(Self::Local { path, file, base: info.offset, map, health: None })
    }

    /// A range of the part that is kept as long as the part is open: mapped where that is possible.
    pub(crate) fn resident(&self, handle: BlockHandle) -> Result<ResidentBytes, StoreError> {
        let length = handle.bytes as usize;
        let mapped = match self {
            Self::Local { map, .. } => map.as_ref().map(|map| (map, self.offset(handle.offset))),
            Self::Object { bytes, tail, .. } => tail.as_ref().and_then(|tail| {
                let tail_offset = bytes.checked_sub(tail.bytes().len() as u64)?;
                Some((tail, handle.offset.checked_sub(tail_offset)?))
            }),
        };
        if let Some((map, offset)) = mapped
            && let Ok(from) = usize::try_from(offset)
            && map.bytes().len() >= from.saturating_add(length)
        {
            return Ok(ResidentBytes::Mapped(map.clone(), from..from + length));
        }
        Ok(ResidentBytes::Owned(self.read(&[handle])?.pop().unwrap_or_default()))
    }

    /// A part in the object store, whose tail is known.
    pub(crate) fn object(tier: Arc<Tier>, key: String, bytes: u64, tail: Option<Mapped>) -> Self {
        Self::Object { tier, key: PathBuf::from(key), bytes, tail, health: None }
    }

    /// Has damage that is met from here on reported.
    pub(crate) fn reported_to(mut self, to: &Arc<Health>) -> Self {
        match &mut self {
            Self::Local { health, .. } | Self::Object { health, .. } => *health = Some(to.clone()),
        }
        self
    }

    /// Reads a part's last bytes, from its index on.
    pub(crate) fn fetch_tail(&self) -> Result<Vec<u8>, StoreError> {
        let size = self.bytes()?;
        let footer_offset = size.checked_sub(FOOTER_BYTES as u64).filter(|offset| *offset >= HEADER_BYTES as u64);
        let footer_offset = footer_offset.ok_or_else(|| self.corrupt(size, "a part is cut short"))?;
        let footer = self.read(&[BlockHandle { offset: footer_offset, bytes: FOOTER_BYTES as u32 }])?;
        let tail = footer.first().map(|footer| tail_bytes(footer)).transpose();
        let tail = tail.map_err(|error| self.corrupt(footer_offset, error.what))?.unwrap_or(0);
        let offset = footer_offset.checked_sub(tail).filter(|offset| *offset >= HEADER_BYTES as u64);
        let offset = offset.ok_or_else(|| self.corrupt(footer_offset, "index and footer do not fit together"))?;
        let bytes = u32::try_from(size - offset).map_err(|_| self.corrupt(footer_offset, "an index beyond 4 GiB"))?;
        Ok(self.read(&[BlockHandle { offset, bytes }])?.pop().unwrap_or_default())
    }

    pub(super) fn bytes(&self) -> Result<u64, StoreError> {
        match self {
            Self::Local { path, file, base, .. } => {
                let size = file.size_bytes().map_err(StoreError::io("read part", path))?;
                Ok(size.saturating_sub(*base))
            }
            Self::Object { bytes, .. } => Ok(*bytes),
        }
    }

    /// What to call it in messages.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Local { path, .. } => path,
            Self::Object { key, .. } => key,
        }
    }

    /// Returns whether they are in a file of the data folder.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local { .. })
    }

    /// Where an offset of the part is in what [`PartData::path`] names.
    pub(crate) fn offset(&self, offset: u64) -> u64 {
        match self {
            Self::Local { base, .. } => base.saturating_add(offset),
            Self::Object { .. } => offset,
        }
    }

    /// Reads ranges of the part, each whole.
    pub(crate) fn read(&self, handles: &[BlockHandle]) -> Result<Vec<Vec<u8>>, StoreError> {
        match self {
            Self::Local { path, file, .. } => {
                let read = |handle: &BlockHandle| {
                    let mut bytes = vec![0; handle.bytes as usize];
                    // The error's text is made only if there is one: this is done for every chunk.
                    file.read_exact_at(&mut bytes, self.offset(handle.offset))
                        .map_err(|error| StoreError::io("read part", path)(error))?;
                    Ok(bytes)
                };
                handles.iter().map(read).collect()
            }
            Self::Object { tier, key, bytes, tail, .. } => {
                let mut found: Vec<Option<Vec<u8>>> =
                    handles.iter().map(|handle| local_bytes(handle, *bytes, tail.as_ref())).collect();
                let missing = handles.iter().zip(&found).filter(|(_, found)| found.is_none());
                let ranges: Vec<Range<u64>> =
                    missing.map(|(handle, _)| handle.offset..handle.offset + u64::from(handle.bytes)).collect();
                let mut read = if ranges.is_empty() {
                    Vec::new().into_iter()
                } else {
                    let key = key.to_string_lossy();
                    tier.read(&key, *bytes, &ranges).map_err(StoreError::Objects)?.into_iter()
                };
                Ok(found.iter_mut().map(|found| found.take().or_else(|| read.next()).unwrap_or_default()).collect())
            }
        }
    }

    /// A range of a local file that is mapped: nothing is copied, and nothing asked of the system if it is in memory.
    pub(crate) fn mapped(&self, handle: BlockHandle) -> Option<&[u8]> {
        let Self::Local { map: Some(map), base, .. } = self else { return None };
        if !map.is_readable() {
            return None;
        }
        let from = usize::try_from(base.checked_add(handle.offset)?).ok()?;
        map.bytes().get(from..from.checked_add(handle.bytes as usize)?)
    }

    /// The object that a range must be fetched from, its size, and where in it; `None` if the range lies here.
    fn remote(&self, handle: &BlockHandle) -> Option<(&Arc<Tier>, &str, u64, Range<u64>)> {
        let Self::Object { tier, key, bytes, tail, .. } = self else { return None };
        let is_here = local_bytes(handle, *bytes, tail.as_ref()).is_some();
        let range = handle.offset..handle.offset.checked_add(u64::from(handle.bytes))?;
        (!is_here).then_some((tier, key.to_str()?, *bytes, range))
    }

    /// Has ranges of several parts fetched all at once: a read of each finds its own then, instead of waiting for one request after another. Of
    /// local files the system is told, as far as they are not in memory.
    pub(crate) fn warm<'a>(wanted: impl Iterator<Item = (&'a Self, BlockHandle)> + Clone) {
        let mut remote = Vec::new();
        let mut of_tier = None;
        for (data, handle) in wanted.clone() {
            if let Some((tier, key, bytes, range)) = data.remote(&handle) {
                of_tier = Some(tier);
                remote.push((key, bytes, range));
            }
        }
        if let Some(tier) = of_tier {
            tier.warm(&remote);
        }
        Self::warm_local(wanted.filter_map(|(data, handle)| match data {
            Self::Local { file, .. } => Some((&**file, data.offset(handle.offset), handle.bytes)),
            Self::Object { .. } => None,
        }));
    }

    /// Tells the system of ranges of files, if there are several and they are not in memory.
    fn warm_local<'a>(ranges: impl Iterator<Item = (&'a dyn File, u64, u32)> + Clone) {
        if ranges.clone().take(LOCAL_WARM_MIN).count() < LOCAL_WARM_MIN {
            return;
        }
        // Mostly all are in memory, or none: two tell.
        let is_cold = |(file, offset, _): (&dyn File, u64, u32)| !file.is_cached(offset);
        if ranges.clone().next().is_some_and(is_cold) || ranges.clone().last().is_some_and(is_cold) {
            ranges.for_each(|(file, offset, bytes)| file.will_need(offset, u64::from(bytes)));
        }
    }

    /// An error that says what is damaged, and where.
    pub(crate) fn corrupt(&self, offset: u64, message: impl Into<String>) -> StoreError {
        let (path, offset, message) = (self.path(), self.offset(offset), message.into());
        let (Self::Local { health, .. } | Self::Object { health, .. }) = self;
        if let Some(health) = health {
            health.report_damage(Damage { file: path.display().to_string(), offset, message: message.clone() });
        }
        StoreError::corrupt(path, offset, message)
    }
}

/// What of a part in the object store needs no request: its header, which is always the same, and its tail.
fn local_bytes(handle: &BlockHandle, part_bytes: u64, tail: Option<&Mapped>) -> Option<Vec<u8>> {
    let tail = tail?.bytes();
    if handle.offset == 0 && handle.bytes as usize == HEADER_BYTES {
        let mut header = HEADER_MAGIC.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.resize(HEADER_BYTES, 0);
        return Some(header);
    }
    let tail_offset = part_bytes.checked_sub(tail.len() as u64)?;
    let from = usize::try_from(handle.offset.checked_sub(tail_offset)?).ok()?;
    tail.get(from..from + handle.bytes as usize).map(<[u8]>::to_vec)
}
