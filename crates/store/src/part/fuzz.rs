//! Whole parts for the fuzzer: checksums and places that follow from others are put right, so that it gets after them.

use std::path::PathBuf;
use std::sync::Arc;

use codec::Reader;
use model::TimeRange;
use platform::sim::Simulation;

use super::index_block::{self, KeyEntry};
use super::reader::{KeyCursor, Part, spots};
use crate::cache::index_blocks::IndexBlockCache;

use super::{FOOTER_BYTES, FOOTER_MAGIC, HEADER_BYTES, HEADER_MAGIC, PartData, PartInfo, PartKey, VERSION};

/// Bytes of the footer in front of its own checksum.
const FOOTER_CHECKED_BYTES: usize = FOOTER_BYTES - 12;

/// Opens bytes as the file of a part of the present version and reads everything in it: the entry for fuzzing.
pub fn part_file(bytes: &[u8]) {
    let Some(part) = open(bytes) else { return };
    let _ = (part.verify(), part.tail(), part.find(PartKey::default(), &IndexBlockCache::new(0), |_, _| {}));
    let mut cursor = KeyCursor::new(Arc::new(part));
    while let Ok(Some(entry)) = cursor.take() {
        for chunk in entry.chunks {
            let _ = cursor.read(chunk.handle);
        }
    }
}

fn open(bytes: &[u8]) -> Option<Part> {
    let mut file = bytes.to_vec();
    seal(&mut file)?;
    let files = Simulation::new(1).platform().files;
    let path = PathBuf::from("0000000001.part");
    platform::write_file(&*files, &path, &file).ok()?;
    let info = PartInfo { bytes: file.len() as u64, ..PartInfo::empty(1, 0, 1, 0, TimeRange::ALL) };
    Part::open(PartData::open_local(&*files, path, &info).ok()?, info).ok()
}

/// Puts right what a writer would compute. `None` if there is no room for header and footer.
fn seal(file: &mut [u8]) -> Option<()> {
    file.get_mut(..8)?.copy_from_slice(HEADER_MAGIC);
    file.get_mut(8..12)?.copy_from_slice(&VERSION.to_le_bytes());
    let footer_at = file.len().checked_sub(FOOTER_BYTES).filter(|at| *at >= HEADER_BYTES)?;
    // Sizes that fit are kept as they are: the index lies as far before the footer as they say.
    let size = |file: &[u8], place: usize| {
        file.get(footer_at + place..)?
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .and_then(|size| usize::try_from(size).ok())
    };
    let (index, directory, groups) = (size(file, 8)?, size(file, 16)?, size(file, 24)?);
    let groups_at = footer_at.checked_sub(groups)?;
    let directory_at = groups_at.checked_sub(directory)?;
    let index_at = directory_at.checked_sub(index)?;
    let spots = spots(file.get(directory_at..groups_at)?, index).unwrap_or_default();
    for place in spots.iter().map(|(offset, length)| (index_at + offset, *length)) {
        seal_block(file, place);
    }
    let sum = |file: &[u8], from: usize, to: usize| file.get(from..to).map(|bytes| crc32c::crc32c(bytes).to_le_bytes());
    let (of_directory, of_groups) = (sum(file, directory_at, groups_at)?, sum(file, groups_at, footer_at)?);
    let footer = file.get_mut(footer_at..)?;
    footer.get_mut(..8)?.copy_from_slice(&(index_at as u64).to_le_bytes());
    footer.get_mut(76..80)?.copy_from_slice(&of_directory);
    footer.get_mut(80..84)?.copy_from_slice(&of_groups);
    let of_footer = crc32c::crc32c(footer.get(..FOOTER_CHECKED_BYTES)?).to_le_bytes();
    footer.get_mut(84..88)?.copy_from_slice(&of_footer);
    footer.get_mut(88..96)?.copy_from_slice(FOOTER_MAGIC);
    Some(())
}

/// Puts the checksum of an index block right, and those of what it names.
fn seal_block(file: &mut [u8], (at, length): (usize, usize)) {
    let Some((_, payload)) = file.get(at..at + length).and_then(<[u8]>::split_first_chunk::<4>) else { return };
    let sum = crc32c::crc32c(payload).to_le_bytes();
    let entries: Vec<KeyEntry> = index_block::take(&mut Reader::new(payload), VERSION, None).unwrap_or_default();
    for entry in &entries {
        for place in entry.chunks.iter().map(|chunk| chunk.handle).chain(entry.summary) {
            let Ok(from) = usize::try_from(place.offset) else { continue };
            let named = from.checked_add(place.bytes as usize).filter(|end| *end <= at);
            let Some(named) = named.and_then(|end| file.get_mut(from..end)) else { continue };
            if let Some((body, last)) = named.split_last_chunk_mut::<4>() {
                *last = crc32c::crc32c(body).to_le_bytes();
            }
        }
    }
    if let Some(first) = file.get_mut(at..at + 4) {
        first.copy_from_slice(&sum);
    }
}

#[cfg(test)]
mod tests {
    use codec::varint;

    use super::super::index_block::{BlockHandle, ChunkRef};
    use super::*;

    /// A part of one key with one chunk, which lies where it is said.
    fn part(place: BlockHandle) -> Vec<u8> {
        let chunk = ChunkRef { range: TimeRange::new(0, 1), sequence_first: 1, handle: place };
        let mut block = vec![0; 4];
        index_block::push(&[KeyEntry { chunks: vec![chunk], ..KeyEntry::default() }], &mut block);
        let mut directory = Vec::new();
        varint::push(&mut directory, 1);
        index_block::push_key(&PartKey::default(), &PartKey::default(), &mut directory);
        varint::push(&mut directory, block.len() as u64);
        let mut groups = Vec::new();
        index::RoaringBitmap::from_iter([0]).serialize_into(&mut groups).unwrap();
        let mut file = vec![0; HEADER_BYTES + 8];
        let sizes = [0, block.len() as u64, directory.len() as u64, groups.len() as u64];
        file.extend([block, directory, groups].concat());
        file.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
        file.resize(file.len() + FOOTER_BYTES - 32, 0);
        file
    }

    #[test]
    fn an_index_that_names_bytes_beyond_the_chunks_is_damage() {
        let inside = open(&part(BlockHandle { offset: HEADER_BYTES as u64, bytes: 8 })).unwrap();
        let (index_blocks, mut chunks) = (IndexBlockCache::new(0), 0);
        inside.find(PartKey::default(), &index_blocks, |found, _| chunks += found.len()).unwrap();
        assert_eq!(chunks, 1);
        // Four gigabytes would be made room for.
        let beyond = open(&part(BlockHandle { offset: HEADER_BYTES as u64, bytes: u32::MAX })).unwrap();
        let error = beyond.find(PartKey::default(), &index_blocks, |_, _| {}).unwrap_err().to_string();
        assert!(error.contains("beyond the chunks"), "{error}");
    }

    #[test]
    fn sealing_changes_nothing_of_a_part_that_is_whole() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v2/parts/0000000022.part");
        let mut bytes = std::fs::read(golden).unwrap();
        let before = bytes.clone();
        seal(&mut bytes).unwrap();
        assert_eq!(bytes, before);
    }
}
