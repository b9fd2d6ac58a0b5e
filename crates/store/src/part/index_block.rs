//! Blocks of a part's index.

use codec::{DecodeError, Reader, varint};
use model::TimeRange;

use super::{HEADER_BYTES, PartKey, VERSION_ONE};

/// Keys of an index block.
pub(crate) const BLOCK_KEYS: usize = 128;

/// Chunks that one key may have in a part: more is damage.
const KEY_CHUNKS_MAX: usize = 1 << 24;

/// Where bytes are, from the start of the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockHandle {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

/// Where a chunk is, and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkRef {
    pub(crate) range: TimeRange,
    /// Smallest sequence id of its rows: orders a group's chunks by age.
    pub(crate) sequence_first: u64,
    pub(crate) handle: BlockHandle,
}

/// A key and what the part has of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KeyEntry {
    pub(crate) key: PartKey,
    /// Oldest first.
    pub(crate) chunks: Vec<ChunkRef>,
    pub(crate) summary: Option<BlockHandle>,
}

/// What numbers of an entry are differences to.
#[derive(Default)]
struct Before {
    key: PartKey,
    start_ns: i64,
    sequence: u64,
}

/// Appends a block: its number of keys, where the first one's bytes are, and the keys. The bytes of all that it names lie one
/// behind another.
pub(super) fn push(entries: &[KeyEntry], out: &mut Vec<u8>) {
    let first = entries.first().and_then(|entry| entry.chunks.first());
    varint::push(out, entries.len() as u64);
    varint::push(out, first.map_or(0, |chunk| chunk.handle.offset));
    let mut before = Before::default();
    for entry in entries {
        push_key(&before.key, &entry.key, out);
        varint::push(out, entry.chunks.len() as u64);
        varint::push(out, entry.summary.map_or(0, |handle| u64::from(handle.bytes)));
        for chunk in &entry.chunks {
            varint::push_signed(out, chunk.range.start_ns.wrapping_sub(before.start_ns));
            varint::push(out, chunk.range.end_ns.wrapping_sub(chunk.range.start_ns) as u64);
            varint::push_signed(out, chunk.sequence_first.wrapping_sub(before.sequence) as i64);
            varint::push(out, u64::from(chunk.handle.bytes));
            (before.start_ns, before.sequence) = (chunk.range.start_ns, chunk.sequence_first);
        }
        before.key = entry.key;
    }
}

/// Appends a key as differences to another.
pub(super) fn push_key(before: &PartKey, key: &PartKey, out: &mut Vec<u8>) {
    let numbers = |key: &PartKey| [key.database, key.measurement, key.group, key.block];
    for (number, before) in numbers(key).into_iter().zip(numbers(before)) {
        varint::push_signed(out, i64::from(number) - i64::from(before));
    }
}

/// Takes a key.
pub(super) fn take_key(before: &PartKey, reader: &mut Reader<'_>) -> Result<PartKey, DecodeError> {
    let mut number = |before: u32| {
        let number = i64::from(before).checked_add(reader.varint_signed()?);
        number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| reader.error("key beyond 32 bits"))
    };
    Ok(PartKey {
        database: number(before.database)?,
        measurement: number(before.measurement)?,
        group: number(before.group)?,
        block: number(before.block)?,
    })
}

/// Takes a block: all its entries, or that of one key.
pub(super) fn take(
    reader: &mut Reader<'_>,
    version: u32,
    wanted: Option<PartKey>,
) -> Result<Vec<KeyEntry>, DecodeError> {
    if version != VERSION_ONE {
        return take_version_two(reader, wanted);
    }
    let mut entries = take_version_one(reader)?;
    entries.retain(|entry| wanted.is_none_or(|wanted| wanted == entry.key));
    Ok(entries)
}

/// Entries that are not wanted are passed over without an allocation, and none after the wanted one is read: a query of many groups
/// spends a good part of its time here.
fn take_version_two(reader: &mut Reader<'_>, wanted: Option<PartKey>) -> Result<Vec<KeyEntry>, DecodeError> {
    let count = reader.length(BLOCK_KEYS)?;
    let mut offset = reader.varint()?;
    let mut before = Before::default();
    let mut entries = Vec::with_capacity(if wanted.is_some() { 1 } else { count });
    for _ in 0..count {
        let key = take_key(&before.key, reader)?;
        if wanted.is_some_and(|wanted| wanted < key) {
            break;
        }
        let is_kept = wanted.is_none_or(|wanted| wanted == key);
        let chunks = reader.length(KEY_CHUNKS_MAX.min(reader.rest().len()))?;
        let summary_bytes = take_size(reader)?;
        let mut entry = KeyEntry { key, chunks: Vec::with_capacity(if is_kept { chunks } else { 0 }), summary: None };
        for _ in 0..chunks {
            let start_ns = before.start_ns.wrapping_add(reader.varint_signed()?);
            let end_ns = start_ns.wrapping_add(reader.varint()? as i64);
            let sequence_first = before.sequence.wrapping_add(reader.varint_signed()? as u64);
            let bytes = take_size(reader)?;
            let handle = BlockHandle { offset, bytes };
            offset = advance(offset, bytes, reader)?;
            if is_kept {
                entry.chunks.push(ChunkRef { range: TimeRange::new(start_ns, end_ns), sequence_first, handle });
            }
            (before.start_ns, before.sequence) = (start_ns, sequence_first);
        }
        entry.summary = (summary_bytes > 0).then_some(BlockHandle { offset, bytes: summary_bytes });
        offset = advance(offset, summary_bytes, reader)?;
        before.key = key;
        if is_kept {
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// Version 1 has an entry for each chunk, with the gap to the one before.
fn take_version_one(reader: &mut Reader<'_>) -> Result<Vec<KeyEntry>, DecodeError> {
    let count = reader.length(BLOCK_KEYS)?;
    let mut before = Before::default();
    let mut end = HEADER_BYTES as u64;
    let mut entries: Vec<KeyEntry> = Vec::new();
    for _ in 0..count {
        let key = take_key(&before.key, reader)?;
        let start_ns = before.start_ns.wrapping_add(reader.varint_signed()?);
        let end_ns = start_ns.wrapping_add(reader.varint()? as i64);
        let sequence_first = before.sequence.wrapping_add(reader.varint_signed()? as u64);
        let gap = reader.varint()?;
        let offset = end.checked_add(gap).ok_or_else(|| reader.error("offset beyond 64 bits"))?;
        let bytes = take_size(reader)?;
        end = advance(offset, bytes, reader)?;
        before = Before { key, start_ns, sequence: sequence_first };
        let chunk =
            ChunkRef { range: TimeRange::new(start_ns, end_ns), sequence_first, handle: BlockHandle { offset, bytes } };
        match entries.last_mut() {
            Some(last) if last.key == key => last.chunks.push(chunk),
            _ => entries.push(KeyEntry { key, chunks: vec![chunk], summary: None }),
        }
    }
    Ok(entries)
}

fn take_size(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    u32::try_from(reader.varint()?).map_err(|_| reader.error("more than 4 GiB"))
}

fn advance(offset: u64, bytes: u32, reader: &Reader<'_>) -> Result<u64, DecodeError> {
    offset.checked_add(u64::from(bytes)).ok_or_else(|| reader.error("offset beyond 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::VERSION;

    #[test]
    fn a_block_comes_back() {
        let chunk = |start_ns, offset, bytes| ChunkRef {
            range: TimeRange::new(start_ns, start_ns + 5),
            sequence_first: 9,
            handle: BlockHandle { offset, bytes },
        };
        let key = PartKey { database: 1, measurement: 2, group: 3, block: 0 };
        let entries = vec![
            KeyEntry {
                key,
                chunks: vec![chunk(-7, 16, 10), chunk(20, 26, 4)],
                summary: Some(BlockHandle { offset: 30, bytes: 8 }),
            },
            KeyEntry { key: PartKey { group: 9, ..key }, chunks: vec![chunk(i64::MIN, 38, 1)], summary: None },
        ];
        let mut bytes = Vec::new();
        push(&entries, &mut bytes);
        assert_eq!(take(&mut Reader::new(&bytes), VERSION, None).unwrap(), entries);
        for entry in &entries {
            let alone = take(&mut Reader::new(&bytes), VERSION, Some(entry.key)).unwrap();
            assert_eq!(alone.as_slice(), std::slice::from_ref(entry));
        }
        for cut in 0..bytes.len() {
            assert!(take(&mut Reader::new(&bytes[..cut]), VERSION, None).is_err());
        }
    }
}
