//! A record's bytes in a segment.
//!
//! ```text
//!  0  u32  CRC-32C of everything after it, padding excluded
//!  4  u32  length of the payload
//!  8  u64  sequence id
//! 16  u64  every record up to this sequence id was durable when this one was made
//! 24  u32  number of the segment: a recycled file still holds an older segment's records
//! 28  u8   kind, then three zeros
//! 32  payload, padded with zeros to a multiple of eight
//! ```

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 32;

/// Where the header has the segment's number.
pub(crate) const SEGMENT_AT: usize = 24;

/// Records start at multiples of this.
pub(crate) const ALIGNMENT_BYTES: usize = 8;

/// A record as it stands in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) sequence: u64,
    pub(crate) durable_through: u64,
    pub(crate) kind: u8,
    pub(crate) payload: &'a [u8],
}

/// The content of a segment at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameLookup<'a> {
    /// A record, and how many bytes it takes.
    Record(Frame<'a>, usize),
    /// Nothing: never written, or left over from before the file was recycled.
    Nothing,
    /// Something that is not whole.
    Damaged,
}

/// Bytes that a record with so long a payload takes.
pub(crate) fn frame_bytes(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(ALIGNMENT_BYTES)
}

/// Appends a record.
pub(crate) fn push(out: &mut Vec<u8>, segment: u32, frame: &Frame<'_>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(frame.payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&frame.sequence.to_le_bytes());
    out.extend_from_slice(&frame.durable_through.to_le_bytes());
    out.extend_from_slice(&segment.to_le_bytes());
    out.extend_from_slice(&[frame.kind, 0, 0, 0]);
    out.extend_from_slice(frame.payload);
    let checksum = crc32c::crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    out.resize(start + frame_bytes(frame.payload.len()), 0);
}

/// What a header says, before anything after it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim<'a> {
    /// That a record begins here.
    Record(Claimed<'a>),
    /// As [`FrameLookup::Nothing`].
    Nothing,
    /// As [`FrameLookup::Damaged`].
    Damaged,
}

/// A record if its checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claimed<'a> {
    pub(crate) frame: Frame<'a>,
    checksum: u32,
}

impl Claimed<'_> {
    /// Bytes after the record's beginning that the checksum is of.
    pub(crate) fn checked(&self) -> std::ops::Range<usize> {
        4..HEADER_BYTES + self.frame.payload.len()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        frame_bytes(self.frame.payload.len())
    }

    /// Returns whether this is the checksum of those bytes.
    pub(crate) fn is(&self, checksum: u32) -> bool {
        self.checksum == checksum
    }
}

/// Reads the header at an offset of a segment.
pub(crate) fn claim(bytes: &[u8], segment: u32) -> Claim<'_> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Claim::Nothing;
    };
    let u32_at = |offset: usize| u32::from_le_bytes([0, 1, 2, 3].map(|place| header[offset + place]));
    let u64_at = |offset: usize| u64::from(u32_at(offset)) | u64::from(u32_at(offset + 4)) << 32;
    if header.iter().all(|byte| *byte == 0) || u32_at(24) < segment {
        return Claim::Nothing;
    }
    match bytes.get(HEADER_BYTES..HEADER_BYTES + u32_at(4) as usize) {
        Some(payload) if u32_at(24) == segment => {
            let frame = Frame { sequence: u64_at(8), durable_through: u64_at(16), kind: header[28], payload };
            Claim::Record(Claimed { frame, checksum: u32_at(0) })
        }
        _ => Claim::Damaged,
    }
}

/// Looks at the bytes from an offset of a segment on.
pub(crate) fn look(bytes: &[u8], segment: u32) -> FrameLookup<'_> {
    match claim(bytes, segment) {
        Claim::Nothing => FrameLookup::Nothing,
        Claim::Record(claimed) if claimed.is(crc32c::crc32c(bytes.get(claimed.checked()).unwrap_or_default())) => {
            FrameLookup::Record(claimed.frame, claimed.bytes())
        }
        Claim::Record(_) | Claim::Damaged => FrameLookup::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame<'static> = Frame { sequence: 7, durable_through: 5, kind: 1, payload: b"some rows" };

    #[test]
    fn a_record_comes_back_and_any_flipped_bit_is_seen() {
        let mut bytes = Vec::new();
        push(&mut bytes, 3, &FRAME);
        assert_eq!(look(&bytes, 3), FrameLookup::Record(FRAME, 48));
        for bit in 0..(HEADER_BYTES + FRAME.payload.len()) * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(look(&damaged, 3), FrameLookup::Record(..)), "bit {bit}");
        }
    }

    #[test]
    fn zeros_and_an_older_life_of_the_file_are_nothing() {
        let mut bytes = Vec::new();
        push(&mut bytes, 3, &FRAME);
        assert_eq!(look(&bytes, 4), FrameLookup::Nothing);
        assert_eq!(look(&[0; 64], 4), FrameLookup::Nothing);
        assert_eq!(look(&bytes[..40], 3), FrameLookup::Damaged);
    }
}
