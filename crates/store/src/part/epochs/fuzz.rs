//! The entry for fuzzing of what files of epochs hold.

use super::block::{self, Block, Scratch};
use super::definition::EpochKind;
use super::names::{NameTable, apply_changes, decode_changes, encode_changes};
use super::record::{
    FILE_HEADER_BYTES, FileContent, FileHeader, Position, RECORD_HEADER_BYTES, RecordHeader, check_body,
};

/// Reads bytes as the header of a file, as a record, as a block of values, and as changes of names.
///
/// # Panics
///
/// If what it finds contradicts itself: that is what a fuzzer looks for.
pub fn fuzz(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<FILE_HEADER_BYTES>() {
        let _ = FileHeader::parse(header);
    }
    if let Some((header, body)) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()
        && let Some(header) = RecordHeader::parse(header, Position { file: 0, offset: 0 })
    {
        let _ = check_body(FileContent::Values, &header, body);
    }
    for kind in [EpochKind::Int, EpochKind::Float] {
        let mut block = Block::empty();
        if block::decode(kind, bytes, &mut Scratch::default(), &mut block).is_ok() {
            let (slots, bits) = block.cells();
            let (mut encoded, mut again) = (Vec::new(), Block::empty());
            block::encode(kind, &slots, &bits, &mut encoded);
            let decoded = block::decode(kind, &encoded, &mut Scratch::default(), &mut again);
            assert!(
                decoded.is_ok() && again.cells() == (slots, bits),
                "what was read is written so that it is read again"
            );
        }
    }
    if let Ok((changes, texts)) = decode_changes(bytes) {
        let (mut encoded, all) = (Vec::new(), texts.iter().map(String::as_str).collect::<Vec<_>>());
        encode_changes(&changes, &all, &mut encoded);
        assert!(decode_changes(&encoded).is_ok_and(|again| again == (changes.clone(), texts.clone())));
        let _ = apply_changes(&mut NameTable::new(0), &changes, &texts);
    }
}
