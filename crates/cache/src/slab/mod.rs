//! A slab: self-contained, written once, read often; points of one field for a set of keys.
//!
//! * [`header`]: what is in it · [`block`]: the points · [`builder`]: makes one

pub(crate) mod block;
pub(crate) mod builder;
pub(crate) mod header;

use codec::Reader;

pub(crate) use builder::{Built, SlabBuilder, Strand, Unit};
pub(crate) use header::{CachedInterval, Head, Header, Marker, Placed, Record};

/// Reads bytes as every part of a slab.
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut page = header::MAGIC.to_vec();
    page.extend_from_slice(bytes);
    page.resize(page.len().max(header::HEAD_BYTES), 0);
    let checksum = crc32c::crc32c(page.get(..header::HEAD_BYTES - 4).unwrap_or_default());
    page.splice(header::HEAD_BYTES - 4..header::HEAD_BYTES, checksum.to_le_bytes());
    if let Ok(head) = Head::decode(&page) {
        assert_eq!(Head::decode(&head.encode()).as_ref(), Ok(&head), "a head reads as it was written");
    }
    let _ = Header::decode(&page);
    let _ = header::read_record_unchecked(&mut Reader::new(bytes));
    let _ = header::read_series(bytes);
    for number in 0..4 {
        if let Some(value_type) = crate::ValueType::from_number(number) {
            let _ = block::decode(bytes, value_type);
        }
    }
}

#[cfg(test)]
mod tests;
