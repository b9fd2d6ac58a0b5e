//! Bounded decompression of bodies: gzip, deflate and zstd as HTTP's `Content-Encoding` names them, and snappy blocks.
//!
//! Two bounds hold, whichever is reached first: bytes, and bytes per byte sent. The second stops a small body from making
//! the server work for a large one; short answers to it stay allowed ([`UNPACKED_BYTES_FREE`]).

use std::io::{self, Read};

use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::BodyError;

/// What a body may unpack to whatever its size.
pub const UNPACKED_BYTES_FREE: usize = 1 << 20;

/// Packed bytes beyond those read so far that count when a ratio is judged: what follows may be less packed.
const AHEAD_BYTES: usize = 4 << 10;

/// Bytes that a zstd frame may look back; it is what a decoder must allocate.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Not at all.
    Identity,
    /// RFC 1952, any number of members.
    Gzip,
    /// RFC 1950 as HTTP defines it, or RFC 1951 as some clients send it.
    Deflate,
    /// RFC 8878, any number of frames.
    Zstd,
    /// One snappy block.
    Snappy,
}

impl Encoding {
    /// The names of all encodings, for messages.
    pub const NAMES: &'static str = "gzip, deflate, zstd, snappy or none";

    /// The encoding of this name in a `Content-Encoding`; nothing is the identity.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "zstd" => Some(Self::Zstd),
            "snappy" => Some(Self::Snappy),
            _ => None,
        }
    }
}

/// What a byte of a snappy block can stand for, at most: three bytes are a copy of 64.
const SNAPPY_RATIO_MAX: usize = 22;

/// Bounds on what a body unpacks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Bytes, unpacked.
    pub size_bytes_max: usize,
    /// Bytes unpacked for each byte sent, beyond [`UNPACKED_BYTES_FREE`].
    pub ratio_max: usize,
}

impl UnpackLimits {
    /// The bound on a body of so many bytes, and what it is about.
    fn unpacked_bytes_max(self, packed_bytes: usize) -> (usize, &'static str) {
        let by_ratio = packed_bytes.saturating_mul(self.ratio_max).max(UNPACKED_BYTES_FREE);
        if by_ratio < self.size_bytes_max {
            (by_ratio, "the body, unpacked, is too large for its packed size (unpacked_ratio_max)")
        } else {
            (self.size_bytes_max, "the body, unpacked (unpacked_bytes_max)")
        }
    }
}

/// Unpacks a body, refusing one that unpacks to more than the limits allow. A body that is not packed comes back as it
/// is.
pub fn decompress(encoding: Encoding, body: Vec<u8>, limits: UnpackLimits) -> Result<Vec<u8>, BodyError> {
    if encoding == Encoding::Identity {
        return Ok(body);
    }
    let mut unpacked = Vec::new();
    decompress_into(encoding, &body, limits, &mut unpacked)?;
    Ok(unpacked)
}

/// Unpacks into a buffer that may have been used before: what is in it is overwritten. After an error its content means
/// nothing.
pub fn decompress_into(
    encoding: Encoding,
    body: &[u8],
    limits: UnpackLimits,
    unpacked: &mut Vec<u8>,
) -> Result<(), BodyError> {
    decompress_within(encoding, body, limits, unpacked, &mut |_| true)
}

/// As [`decompress_into`], for callers that bound what they hold: `reserve` is asked for the bytes of the buffer before it grows, again and
/// again, and ends the unpacking by saying no ([`BodyError::NoMemory`]).
pub fn decompress_within(
    encoding: Encoding,
    body: &[u8],
    limits: UnpackLimits,
    unpacked: &mut Vec<u8>,
    reserve: &mut dyn FnMut(usize) -> bool,
) -> Result<(), BodyError> {
    let mut room = Room { unpacked, reserve };
    match encoding {
        Encoding::Identity => {
            room.unpacked.clear();
            room.grow(body.len())?;
            room.unpacked.extend_from_slice(body);
            Ok(())
        }
        Encoding::Snappy => room.unpack_snappy(body, limits),
        Encoding::Gzip | Encoding::Deflate | Encoding::Zstd => room.drain(Unpacker::new(encoding, body, limits)?),
    }
}

/// Whether a deflate body has the header of RFC 1950: method 8, and a number that 31 divides.
fn is_zlib(body: &[u8]) -> bool {
    matches!(body, [first, second, ..] if first & 15 == 8 && u16::from_be_bytes([*first, *second]).is_multiple_of(31))
}

/// A packed body that is unpacked as far as it is read. A bomb is known by what its first bytes stand for, long before it has unpacked to
/// what its whole length would allow.
pub struct Unpacker<'a> {
    decoder: Decoder<'a>,
    name: &'static str,
    packed_bytes: usize,
    unpacked_bytes: usize,
    size_bytes_max: usize,
    limit: &'static str,
    ratio_max: usize,
}

/// The decoders are large, some have tables.
enum Decoder<'a> {
    Gzip(Box<MultiGzDecoder<&'a [u8]>>),
    Zlib(Box<ZlibDecoder<&'a [u8]>>),
    Deflate(Box<DeflateDecoder<&'a [u8]>>),
    Zstd(Box<ZstdFrames<'a>>),
}

impl<'a> Unpacker<'a> {
    /// For encodings that can be unpacked piece by piece: gzip, deflate, zstd.
    pub fn new(encoding: Encoding, body: &'a [u8], limits: UnpackLimits) -> Result<Self, BodyError> {
        let (name, decoder) = match encoding {
            Encoding::Gzip => ("gzip", Decoder::Gzip(Box::new(MultiGzDecoder::new(body)))),
            Encoding::Deflate if is_zlib(body) => ("deflate", Decoder::Zlib(Box::new(ZlibDecoder::new(body)))),
            Encoding::Deflate => ("deflate", Decoder::Deflate(Box::new(DeflateDecoder::new(body)))),
            Encoding::Zstd if body.is_empty() => {
                return Err(BodyError::Malformed("not a zstd body: it is empty".to_owned()));
            }
            Encoding::Zstd => ("zstd", Decoder::Zstd(Box::new(ZstdFrames::new(body)))),
            Encoding::Identity | Encoding::Snappy => {
                return Err(BodyError::Malformed("the body cannot be unpacked piece by piece".to_owned()));
            }
        };
        let (size_bytes_max, limit) = limits.unpacked_bytes_max(body.len());
        let (packed_bytes, ratio_max) = (body.len(), limits.ratio_max);
        Ok(Self { decoder, name, packed_bytes, unpacked_bytes: 0, size_bytes_max, limit, ratio_max })
    }

    /// Bytes of the body as it was sent.
    pub const fn packed_bytes(&self) -> usize {
        self.packed_bytes
    }

    /// Appends up to so many bytes; fewer only at the end of the body.
    pub fn read(&mut self, bytes_max: usize, unpacked: &mut Vec<u8>) -> Result<usize, BodyError> {
        // One byte more than allowed tells "just fits" from "too large".
        let bytes_max = bytes_max.min(self.size_bytes_max - self.unpacked_bytes + 1) as u64;
        let read = match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.by_ref().take(bytes_max).read_to_end(unpacked),
            Decoder::Zlib(decoder) => decoder.by_ref().take(bytes_max).read_to_end(unpacked),
            Decoder::Deflate(decoder) => decoder.by_ref().take(bytes_max).read_to_end(unpacked),
            Decoder::Zstd(frames) => frames.by_ref().take(bytes_max).read_to_end(unpacked),
        };
        let read = read.map_err(|error| BodyError::Malformed(format!("not a {} body: {error}", self.name)))?;
        self.unpacked_bytes += read;
        let packed_bytes = self.packed_bytes.min(self.read_bytes() + AHEAD_BYTES);
        let by_ratio = packed_bytes.saturating_mul(self.ratio_max).saturating_add(UNPACKED_BYTES_FREE);
        if self.unpacked_bytes > self.size_bytes_max || self.unpacked_bytes > by_ratio {
            return Err(BodyError::TooLarge { size_bytes_max: self.size_bytes_max as u64, limit: self.limit });
        }
        Ok(read)
    }

    /// Packed bytes that were read so far.
    fn read_bytes(&self) -> usize {
        let left = match &self.decoder {
            Decoder::Gzip(decoder) => decoder.get_ref().len(),
            Decoder::Zlib(decoder) => decoder.get_ref().len(),
            Decoder::Deflate(decoder) => decoder.get_ref().len(),
            Decoder::Zstd(frames) => frames.rest.len(),
        };
        self.packed_bytes - left
    }
}

/// Frames of zstd, one after another.
struct ZstdFrames<'a> {
    rest: &'a [u8],
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<'a> ZstdFrames<'a> {
    fn new(body: &'a [u8]) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self { rest: body, decoder, is_in_frame: false }
    }
}

impl Read for ZstdFrames<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_in_frame {
                while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                    let block = self.decoder.decode_blocks(&mut self.rest, BlockDecodingStrategy::UptoBlocks(1));
                    block.map_err(io::Error::other)?;
                }
                if self.decoder.can_collect() > 0 {
                    return self.decoder.read(buffer);
                }
                self.is_in_frame = false;
            }
            if self.rest.is_empty() {
                return Ok(0);
            }
            match self.decoder.init(&mut self.rest) {
                Ok(()) => self.is_in_frame = true,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    self.rest = self.rest.get(length as usize..).unwrap_or_default();
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

/// Bytes by which a buffer grows at once.
const STEP_BYTES: usize = 1 << 20;

/// A buffer, and who is asked before it grows.
struct Room<'r> {
    unpacked: &'r mut Vec<u8>,
    reserve: &'r mut dyn FnMut(usize) -> bool,
}

impl Room<'_> {
    /// Makes room for so many more bytes, once they are granted.
    fn grow(&mut self, bytes: usize) -> Result<(), BodyError> {
        let missing = (self.unpacked.len() + bytes).saturating_sub(self.unpacked.capacity());
        if missing > 0 && !(self.reserve)(missing) {
            return Err(BodyError::NoMemory);
        }
        self.unpacked.reserve_exact(bytes);
        Ok(())
    }

    /// Unpacks in steps, each into room that was granted.
    fn drain(&mut self, mut unpacker: Unpacker<'_>) -> Result<(), BodyError> {
        self.unpacked.clear();
        // Text shrinks five to ten times. A hint only: a small body that claims nothing cannot make us reserve much.
        self.grow(unpacker.packed_bytes.saturating_mul(6).min(unpacker.size_bytes_max).min(STEP_BYTES))?;
        loop {
            let left = unpacker.size_bytes_max - unpacker.unpacked_bytes + 1;
            if self.unpacked.len() == self.unpacked.capacity() {
                self.grow(STEP_BYTES.min(left))?;
            }
            let room = (self.unpacked.capacity() - self.unpacked.len()).min(left).min(STEP_BYTES);
            if unpacker.read(room, self.unpacked)? < room {
                return Ok(());
            }
        }
    }

    fn unpack_snappy(&mut self, body: &[u8], limits: UnpackLimits) -> Result<(), BodyError> {
        let not_snappy = |error| BodyError::Malformed(format!("not a snappy block: {error}"));
        let bytes = snap::raw::decompress_len(body).map_err(not_snappy)?;
        let (size_bytes_max, limit) = limits.unpacked_bytes_max(body.len());
        if bytes > size_bytes_max {
            return Err(BodyError::TooLarge { size_bytes_max: size_bytes_max as u64, limit });
        }
        // Room is made for what a block says of itself, so it must be something that its bytes can stand for.
        if bytes > body.len().saturating_mul(SNAPPY_RATIO_MAX) {
            return Err(BodyError::Malformed(
                "not a snappy block: it says that it is larger than it can be".to_owned(),
            ));
        }
        self.grow(bytes.saturating_sub(self.unpacked.len()))?;
        // What was there before need not be zeroed: every byte is written, or the body is refused.
        self.unpacked.resize(bytes, 0);
        let written = snap::raw::Decoder::new().decompress(body, self.unpacked).map_err(not_snappy)?;
        self.unpacked.truncate(written);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    const NO_RATIO: usize = usize::MAX;

    fn pack(encoding: Encoding, text: &[u8]) -> Vec<u8> {
        match encoding {
            Encoding::Identity => text.to_vec(),
            Encoding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            Encoding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            Encoding::Zstd => compress_to_vec(text, CompressionLevel::Fastest),
            Encoding::Snappy => snap::raw::Encoder::new().compress_vec(text).unwrap(),
        }
    }

    fn unpack(encoding: Encoding, body: &[u8], size_bytes_max: usize, ratio_max: usize) -> Result<Vec<u8>, BodyError> {
        decompress(encoding, body.to_vec(), UnpackLimits { size_bytes_max, ratio_max })
    }

    #[test]
    fn a_bomb_is_known_by_its_first_bytes() {
        let limits = UnpackLimits { size_bytes_max: 256 << 20, ratio_max: 100 };
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let mut bomb = pack(encoding, &vec![0; 128 << 20]);
            // What follows would allow much more.
            bomb.extend_from_slice(&vec![0; 1 << 20]);
            let mut unpacked = Vec::new();
            let error = decompress_into(encoding, &bomb, limits, &mut unpacked).unwrap_err();
            assert!(matches!(error, BodyError::TooLarge { .. }), "{encoding:?} {error}");
            assert!(unpacked.len() < 64 << 20, "{encoding:?} {}", unpacked.len());
        }
    }

    #[test]
    fn unpacks_within_the_bound_and_no_further() {
        let text = vec![b'x'; 10_000];
        for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd, Encoding::Snappy] {
            let packed = pack(encoding, &text);
            assert_eq!(unpack(encoding, &packed, 10_000, NO_RATIO).unwrap(), text, "{encoding:?}");
            let error = unpack(encoding, &packed, 9_999, NO_RATIO).unwrap_err();
            assert!(matches!(error, BodyError::TooLarge { size_bytes_max: 9_999, .. }), "{encoding:?}: {error}");
            for bad in [&b"plain"[..], &packed[..packed.len() / 2]] {
                let answer = unpack(encoding, bad, 100_000, NO_RATIO);
                assert!(matches!(answer, Err(BodyError::Malformed(_))), "{encoding:?} {bad:?}");
            }
        }
    }

    #[test]
    fn no_room_is_made_for_what_a_snappy_block_cannot_hold() {
        let text = vec![b'x'; 1 << 20];
        let packed = pack(Encoding::Snappy, &text);
        assert!(unpack(Encoding::Snappy, &packed, 1 << 20, NO_RATIO).is_ok());
        // 256 MiB, says the length before nothing at all.
        let mut buffer = Vec::new();
        let limits = UnpackLimits { size_bytes_max: 1 << 30, ratio_max: NO_RATIO };
        let claimed = [0x80, 0x80, 0x80, 0x80, 0x01, 0];
        assert!(matches!(
            decompress_into(Encoding::Snappy, &claimed, limits, &mut buffer),
            Err(BodyError::Malformed(_))
        ));
        assert_eq!(buffer.capacity(), 0);
    }

    #[test]
    fn nothing_is_unpacked_into_memory_that_was_not_granted() {
        let text = vec![b'x'; 5 << 20];
        for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd, Encoding::Snappy] {
            let packed = pack(encoding, &text);
            let limits = UnpackLimits { size_bytes_max: 1 << 30, ratio_max: NO_RATIO };
            let (mut buffer, mut granted) = (Vec::new(), 0);
            let mut reserve = |bytes: usize| {
                granted += bytes;
                granted <= 3 << 20
            };
            let refused = decompress_within(encoding, &packed, limits, &mut buffer, &mut reserve);
            assert!(matches!(refused, Err(BodyError::NoMemory)), "{encoding:?}: {refused:?}");
            assert!(buffer.capacity() <= 3 << 20, "{encoding:?}: {}", buffer.capacity());
            granted = 0;
            buffer = Vec::new();
            decompress_within(encoding, &packed, limits, &mut buffer, &mut |bytes| {
                granted += bytes;
                true
            })
            .unwrap();
            assert!(buffer == text && buffer.capacity() <= granted, "{encoding:?}: {granted}");
        }
    }

    #[test]
    fn members_and_frames_follow_one_another() {
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let packed = [pack(encoding, b"a"), pack(encoding, b"b")].concat();
            assert_eq!(unpack(encoding, &packed, 2, NO_RATIO).unwrap(), b"ab");
            assert!(unpack(encoding, &packed, 1, NO_RATIO).is_err());
        }
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &pack(Encoding::Zstd, b"a")].concat();
        assert_eq!(unpack(Encoding::Zstd, &skipped, 10, NO_RATIO).unwrap(), b"a");
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(b"headless").unwrap();
        assert_eq!(unpack(Encoding::Deflate, &raw.finish().unwrap(), 10, NO_RATIO).unwrap(), b"headless");
    }

    #[test]
    fn a_bomb_is_refused_by_its_ratio() {
        let text = vec![0; 8 << 20];
        for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd] {
            let packed = pack(encoding, &text);
            let error = unpack(encoding, &packed, 1 << 30, 20).unwrap_err();
            assert!(error.to_string().contains("unpacked_ratio_max"), "{encoding:?} {error}");
        }
        let small = vec![0; UNPACKED_BYTES_FREE];
        assert_eq!(unpack(Encoding::Gzip, &pack(Encoding::Gzip, &small), 1 << 30, 1).unwrap(), small);
        // A frame that claims a window of a terabyte gets none.
        let greedy = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf0, 1, 0, 0];
        assert!(unpack(Encoding::Zstd, &greedy, 1 << 30, NO_RATIO).is_err());
    }

    proptest! {
        #[test]
        fn noise_breaks_nothing(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd, Encoding::Snappy] {
                let _ = unpack(encoding, &body, 1 << 16, 100);
                // Past the header, too.
                let mut packed = pack(encoding, &body);
                let place = packed.len() / 2;
                packed[place] ^= 1;
                let _ = unpack(encoding, &packed, 1 << 16, 100);
            }
        }
    }
}
