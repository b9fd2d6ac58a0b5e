//! Hostile containers.

use std::io;

use super::directory::ContainerDirectory;
use super::layout::{
    BLOCK_BYTES, ContainerHead, ContainerZone, HEAD_BLOCKS, decode_checkpoint, encode_checkpoint, fix_head, fix_record,
};
use super::load::load;
use super::space::BlockSpace;
use crate::File;

/// Blocks of the journals.
const JOURNAL_BLOCKS: u32 = 4;

/// Bytes as a file that is only read.
struct ReadBytes(Vec<u8>);

impl File for ReadBytes {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = start.checked_add(buffer.len()).and_then(|end| self.0.get(start..end));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_all_at(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}

/// A container around pieces of an input (each u16 length and bytes): the first is a checkpoint, the others are payloads of the journal's
/// records. All checksums are right. `blocks` follow for files.
fn around(pieces: &[&[u8]], blocks: u64) -> Vec<u8> {
    let checkpoint = pieces.first().copied().unwrap_or_default();
    let checkpoint_blocks = (checkpoint.len() as u32).div_ceil(BLOCK_BYTES as u32).max(1);
    let zone = |start: u64| ContainerZone { start, checkpoint_blocks, journal_blocks: JOURNAL_BLOCKS };
    let active = zone(HEAD_BLOCKS);
    let spare = zone(active.run().end());
    let head = ContainerHead {
        generation: 1,
        sequence: 0,
        active,
        spare,
        checkpoint_bytes: checkpoint.len() as u64,
        checkpoint_sum: crc32c::crc32c(checkpoint),
    };
    let mut bytes = vec![0; ((spare.run().end() + blocks) * BLOCK_BYTES) as usize];
    put(&mut bytes, 0, &head.encode());
    put(&mut bytes, active.checkpoints()[0], checkpoint);
    let mut block = 0;
    for (payload, sequence) in pieces.iter().skip(1).zip(1..) {
        let mut record = b"THWGEDIT".to_vec();
        record.resize(32, 0);
        put(&mut record, 24, &(payload.len() as u32).to_le_bytes());
        record.extend_from_slice(payload);
        fix_record(&mut record, 1, sequence);
        let blocks = (record.len() as u32).div_ceil(BLOCK_BYTES as u32);
        if block + blocks > JOURNAL_BLOCKS {
            break;
        }
        put(&mut bytes, active.journals(block)[1], &record);
        block += blocks;
    }
    bytes
}

fn put(bytes: &mut [u8], offset: u64, piece: &[u8]) {
    if let Some(place) = bytes.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..piece.len())) {
        place.copy_from_slice(piece);
    }
}

/// Reads bytes as a head, and as a container's directory and the changes of it, each with checksums that are right; uses what it finds: the
/// entry for fuzzing.
///
/// # Panics
///
/// If what it finds contradicts itself: that is what a fuzzer looks for.
pub fn fuzz(input: &[u8]) {
    let mut head = input.to_vec();
    fix_head(&mut head);
    if let Ok(head) = ContainerHead::decode(&head) {
        let zones = [head.active.run(), head.spare.run()];
        assert!(zones.iter().all(|run| run.start >= HEAD_BLOCKS) && !zones[0].overlaps(&zones[1]), "zones are apart");
    }
    // As it is, too.
    let _ = load(&ReadBytes(input.to_vec()));
    let Some((blocks, mut rest)) = input.split_first() else { return };
    let mut pieces = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (piece, after) = after.split_at(length);
        pieces.push(piece);
        rest = after;
    }
    let bytes = around(&pieces, u64::from(*blocks));
    let size = bytes.len() as u64;
    let Ok(loaded) = load(&ReadBytes(bytes)) else { return };
    check(&loaded.directory, size);
    assert!(
        loaded.used.windows(2).all(|pair| !matches!(pair, [one, other] if one.overlaps(other))),
        "blocks are had once"
    );
    let mut space = BlockSpace::beside(&loaded.used, size / BLOCK_BYTES);
    let taken = space.take(1, 3, None);
    assert!(!loaded.used.iter().any(|run| run.overlaps(&taken)), "what is taken was free");
}

fn check(directory: &ContainerDirectory, size: u64) {
    let again = decode_checkpoint(&encode_checkpoint(directory), 0);
    assert_eq!(again.as_ref(), Ok(directory), "what was read can be written");
    for (name, id) in &directory.names {
        let entry = directory.files.get(id);
        assert!(entry.is_some_and(|entry| entry.name == *name), "names and files belong together");
        let ends_max = entry.and_then(|entry| entry.ends().max()).unwrap_or(0);
        assert!(ends_max <= size, "no file ends after the container");
    }
    assert_eq!(directory.files.len(), directory.names.len(), "each file has one name");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::directory::{BlockRun, ContainerEntry};
    use super::*;

    fn directory() -> ContainerDirectory {
        let mut directory = ContainerDirectory { next_id: 9, ..ContainerDirectory::default() };
        let run = BlockRun { start: 24, blocks: 2 };
        directory.add(3, ContainerEntry { name: "log/1.log".to_owned(), bytes: 5000, runs: vec![run] }).unwrap();
        directory.add(4, ContainerEntry { name: "MANIFEST".to_owned(), ..ContainerEntry::default() }).unwrap();
        directory
    }

    fn input(pieces: &[&[u8]]) -> Vec<u8> {
        let mut input = vec![8];
        for piece in pieces {
            input.extend_from_slice(&(piece.len() as u16).to_le_bytes());
            input.extend_from_slice(piece);
        }
        input
    }

    /// What the entry for fuzzing puts together is a container.
    #[test]
    fn a_container_around_a_checkpoint_is_read() {
        let checkpoint = encode_checkpoint(&directory());
        let loaded = load(&ReadBytes(around(&[&checkpoint], 8))).unwrap();
        assert_eq!(loaded.directory, directory());
        fuzz(&input(&[&checkpoint]));
    }

    proptest! {
        #[test]
        fn a_changed_checkpoint_is_an_error_or_can_be(at in 0_usize..200, byte: u8, cut in 0_usize..200) {
            let mut checkpoint = encode_checkpoint(&directory());
            let length = checkpoint.len();
            checkpoint[at % length] = byte;
            checkpoint.truncate(length.saturating_sub(cut.saturating_sub(150)));
            fuzz(&input(&[&checkpoint, &[byte; 40]]));
        }
    }
}
