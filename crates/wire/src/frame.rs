//! Where a message begins and ends.
//!
//! ```text
//! preface, once, by the client:  7 bytes "THALWEG", 1 byte: C for the control plane, D for the data plane;
//!                                u32 version of the protocol, 4 zeros
//! frame:                         u32 bytes of the message, a multiple of eight; 4 zeros; the message
//! ```

use capnp::Word;

use super::WireError;

/// Version of the protocol.
pub const VERSION: u32 = 1;

/// Bytes before a message.
pub const HEADER_BYTES: usize = 8;

/// Bytes of the preface.
pub const PREFACE_BYTES: usize = 16;

/// The two listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    /// Registers.
    Control,
    /// Takes rows.
    Data,
}

/// The first bytes that a client sends.
pub fn preface(plane: Plane) -> [u8; PREFACE_BYTES] {
    let mut bytes = *b"THALWEGD\0\0\0\0\0\0\0\0";
    if plane == Plane::Control {
        bytes[7] = b'C';
    }
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Returns whether a client speaks this protocol, to this plane.
pub fn check_preface(plane: Plane, bytes: [u8; PREFACE_BYTES]) -> Result<(), WireError> {
    let expected = preface(plane);
    if bytes == expected {
        return Ok(());
    }
    let message = match (bytes[..8] == expected[..8], bytes[..7] == expected[..7]) {
        (true, _) => format!("this server speaks version {VERSION} of the binary protocol"),
        (false, true) => "this is the other plane: registering goes to --control, rows go to --ingest".to_owned(),
        _ => "this port speaks Thalweg's binary protocol; HTTP is elsewhere".to_owned(),
    };
    Err(WireError(message))
}

/// Bytes of the message behind a header; an error if it is longer than it may be.
pub fn message_bytes(header: [u8; HEADER_BYTES], message_bytes_max: usize) -> Result<usize, WireError> {
    let [a, b, c, d, rest @ ..] = header;
    let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
    if rest != [0; 4] || bytes == 0 || !bytes.is_multiple_of(8) {
        return Err(WireError("no frame: a length that is a multiple of eight and four zeros are expected".to_owned()));
    }
    if bytes > message_bytes_max {
        return Err(WireError(format!("a message of {bytes} bytes; at most {message_bytes_max} are taken")));
    }
    Ok(bytes)
}

/// Room for a message, aligned as its columns need it; kept from one message to the next.
#[derive(Default)]
pub struct MessageBuffer {
    words: Vec<Word>,
    bytes: usize,
}

impl MessageBuffer {
    /// Makes room for so many bytes, and gives it to be filled.
    pub fn resize(&mut self, bytes: usize) -> &mut [u8] {
        let needed = bytes.div_ceil(8);
        if self.words.len() < needed {
            self.words = Word::allocate_zeroed_vec(needed);
        }
        self.bytes = bytes;
        let all = Word::words_to_bytes_mut(&mut self.words);
        all.get_mut(..bytes).unwrap_or_default()
    }

    /// As [`MessageBuffer::resize`], but keeps what was filled before.
    pub fn grow(&mut self, bytes: usize) -> &mut [u8] {
        let needed = bytes.div_ceil(8);
        if self.words.len() < needed {
            let mut grown = Word::allocate_zeroed_vec(needed);
            Word::words_to_bytes_mut(&mut grown)
                .iter_mut()
                .zip(Word::words_to_bytes(&self.words))
                .for_each(|(to, from)| *to = *from);
            self.words = grown;
        }
        self.bytes = bytes;
        Word::words_to_bytes_mut(&mut self.words).get_mut(..bytes).unwrap_or_default()
    }

    /// The message.
    pub fn bytes(&self) -> &[u8] {
        Word::words_to_bytes(&self.words).get(..self.bytes).unwrap_or_default()
    }

    /// Bytes that it has room for.
    pub fn capacity_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// A copy of bytes, aligned.
    pub fn copied_from(bytes: &[u8]) -> Self {
        let mut buffer = Self::default();
        buffer.resize(bytes.len()).copy_from_slice(bytes);
        buffer
    }
}

/// Appends a frame with the message that was built.
pub(super) fn push<A: capnp::message::Allocator>(message: &capnp::message::Builder<A>, out: &mut Vec<u8>) {
    let bytes = capnp::serialize::compute_serialized_size_in_words(message) * 8;
    out.reserve(HEADER_BYTES + bytes);
    out.extend_from_slice(&(bytes as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    // Writing into memory does not fail.
    let _ = capnp::serialize::write_message(out, message);
}
