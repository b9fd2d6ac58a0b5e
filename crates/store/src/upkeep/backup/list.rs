//! The object of a backup: its files with their checksums, and the manifest.

use codec::{DecodeError, Reader, varint};

const MAGIC: &[u8; 8] = b"THWGBACK";
const VERSION: u32 = 1;
/// Magic, version, checksum.
const HEADER_BYTES: usize = 16;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileKind {
    Part,
    Segment,
    Epochs,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BackupFile {
    pub(super) kind: FileKind,
    pub(super) id: u64,
    pub(super) bytes: u64,
    /// CRC-32C of all its bytes.
    pub(super) checksum: u32,
}

/// A backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BackupList {
    pub(super) created_ns: i64,
    pub(super) sequence: u64,
    pub(super) files: Vec<BackupFile>,
    /// As the file `MANIFEST` of a folder.
    pub(super) manifest: Vec<u8>,
}

impl BackupList {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        varint::push_signed(&mut payload, self.created_ns);
        varint::push(&mut payload, self.sequence);
        varint::push(&mut payload, self.files.len() as u64);
        for file in &self.files {
            payload.push(match file.kind {
                FileKind::Part => 0,
                FileKind::Segment => 1,
                FileKind::Epochs => 2,
            });
            varint::push(&mut payload, file.id);
            varint::push(&mut payload, file.bytes);
            payload.extend_from_slice(&file.checksum.to_le_bytes());
        }
        varint::push(&mut payload, self.manifest.len() as u64);
        payload.extend_from_slice(&self.manifest);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.bytes(8)? != MAGIC {
            return Err(DecodeError { offset: 0, what: "expected the magic THWGBACK" });
        }
        if reader.u32()? != VERSION {
            return Err(DecodeError { offset: 8, what: "expected version 1 of a backup" });
        }
        if reader.u32()? != crc32c::crc32c(reader.rest()) {
            return Err(DecodeError { offset: HEADER_BYTES, what: "checksum of the backup does not match" });
        }
        let (created_ns, sequence) = (reader.varint_signed()?, reader.varint()?);
        let count = reader.length(reader.rest().len())?;
        let files = (0..count).map(|_| take_file(&mut reader)).collect::<Result<_, _>>()?;
        let length = reader.length(reader.rest().len())?;
        let manifest = reader.bytes(length)?.to_vec();
        Ok(Self { created_ns, sequence, files, manifest })
    }
}

/// Reads bytes as the object of a backup, its beginning put before them: the entry for fuzzing.
///
/// # Panics
///
/// If what it finds contradicts itself: that is what a fuzzer looks for.
pub fn fuzz(bytes: &[u8]) {
    let mut object = MAGIC.to_vec();
    object.extend_from_slice(&VERSION.to_le_bytes());
    object.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    object.extend_from_slice(bytes);
    if let Ok(list) = BackupList::decode(&object) {
        assert_eq!(BackupList::decode(&list.encode()), Ok(list));
    }
}

fn take_file(reader: &mut Reader<'_>) -> Result<BackupFile, DecodeError> {
    let kind = match reader.byte()? {
        0 => FileKind::Part,
        1 => FileKind::Segment,
        2 => FileKind::Epochs,
        _ => return Err(reader.error("expected a part, an index segment or a file of epochs")),
    };
    Ok(BackupFile { kind, id: reader.varint()?, bytes: reader.varint()?, checksum: reader.u32()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_and_any_flipped_bit_or_cut_is_seen() {
        let file = |kind, id| BackupFile { kind, id, bytes: 300 * id, checksum: 0xdead_beef };
        let files = vec![file(FileKind::Segment, 1), file(FileKind::Part, 700), file(FileKind::Epochs, 9)];
        let list = BackupList { created_ns: -5, sequence: 900, files, manifest: b"manifest".to_vec() };
        let bytes = list.encode();
        assert_eq!(BackupList::decode(&bytes), Ok(list));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(BackupList::decode(&damaged).is_err(), "bit {bit}");
            assert!(BackupList::decode(&bytes[..bit / 8]).is_err(), "cut at {}", bit / 8);
        }
    }
}
