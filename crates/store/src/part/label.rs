//! What a part says of itself, so that it can be told where it belongs when no manifest does: its place in the folder, when it was made,
//! which parts it replaces, and in a file's first part what the manifest said then of everything but parts.

use codec::{DecodeError, Reader, varint};

use super::{BlockHandle, HEADER_BYTES, PartData, PartInfo};
use crate::StoreError;

/// Bytes of a label: more is damage.
const LABEL_BYTES_MAX: u32 = 1 << 26;

/// When a file was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MadeAt {
    /// Of the folder.
    pub(crate) incarnation: u64,
    /// The folder's opening.
    pub(crate) epoch: u64,
    /// The manifest's last record before the part.
    pub(crate) edition: u64,
}

/// What a part says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartLabel {
    pub(crate) made_at: MadeAt,
    /// As it was known before the first row: without rows, chunks, times and bytes.
    pub(crate) info: PartInfo,
    /// Parts whose rows it has, alone or with others that replace the same.
    pub(crate) replaces: Vec<u64>,
    /// Edits that make up the manifest's state without parts; empty but in a file's first part.
    pub(crate) folder: Vec<u8>,
}

impl PartLabel {
    /// What stands after a part's header.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.made_at.incarnation, self.made_at.epoch, self.made_at.edition] {
            varint::push(&mut out, number);
        }
        self.info.encode(&mut out);
        varint::push(&mut out, self.replaces.len() as u64);
        self.replaces.iter().for_each(|id| varint::push(&mut out, *id));
        varint::push(&mut out, self.folder.len() as u64);
        out.extend_from_slice(&self.folder);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (payload, checksum) =
            bytes.split_last_chunk::<4>().ok_or(DecodeError { offset: 0, what: "a label is cut short" })?;
        if crc32c::crc32c(payload) != u32::from_le_bytes(*checksum) {
            return Err(DecodeError { offset: 0, what: "checksum of a part's label does not match" });
        }
        let mut reader = Reader::new(payload);
        let made_at = MadeAt { incarnation: reader.varint()?, epoch: reader.varint()?, edition: reader.varint()? };
        let info = PartInfo::decode(&mut reader)?;
        let count = reader.length(reader.rest().len())?;
        let replaces = (0..count).map(|_| reader.varint()).collect::<Result<_, _>>()?;
        let length = reader.length(reader.rest().len())?;
        Ok(Self { made_at, info, replaces, folder: reader.bytes(length)?.to_vec() })
    }

    /// The label of a part; `None` if it was made without.
    pub(crate) fn read(data: &PartData) -> Result<Option<Self>, StoreError> {
        // More than the header: that of an object is otherwise not read.
        let start = data.read(&[BlockHandle { offset: 0, bytes: HEADER_BYTES as u32 + 1 }])?.pop().unwrap_or_default();
        let length = start.get(12..16).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
        if length == 0 {
            return Ok(None);
        }
        if length > LABEL_BYTES_MAX || u64::from(length) > data.bytes()?.saturating_sub(HEADER_BYTES as u64) {
            return Err(data.corrupt(12, "a label is too long"));
        }
        let handle = BlockHandle { offset: HEADER_BYTES as u64, bytes: length };
        let bytes = data.read(&[handle])?.pop().unwrap_or_default();
        let label =
            Self::decode(&bytes).map_err(|error| data.corrupt(handle.offset + error.offset as u64, error.what))?;
        Ok(Some(label))
    }
}

#[cfg(test)]
mod tests {
    use model::TimeRange;

    use super::*;

    #[test]
    fn a_label_comes_back_and_any_flipped_bit_is_seen() {
        let label = PartLabel {
            made_at: MadeAt { incarnation: 7, epoch: 3, edition: 900 },
            info: PartInfo { patch_of: 4, fold_ns: 60, ..PartInfo::empty(5, 1, 2, 3, TimeRange::new(-5, 100)) },
            replaces: vec![1, 4],
            folder: vec![1, 2, 3],
        };
        let bytes = label.encode();
        assert_eq!(PartLabel::decode(&bytes), Ok(label));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(PartLabel::decode(&damaged).is_err(), "bit {bit}");
        }
    }
}
