//! Reading lines and bodies off a connection, with bounds.

use std::io;

use super::connections::{Peer, Share};

/// Bytes to read at a time.
const READ_BYTES: usize = 16 << 10;
/// Room that is made for a body before any of it has come. It doubles as it fills.
const RESERVED_BYTES_MAX: usize = 64 << 10;

/// A connection and what was read of it already.
pub(super) struct Wire<S> {
    stream: S,
    /// Unused bytes lie between the two offsets.
    buffer: Vec<u8>,
    used: usize,
    read: usize,
}

impl<S: Peer> Wire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new(), used: 0, read: 0 }
    }

    fn rest(&self) -> &[u8] {
        self.buffer.get(self.used..self.read).unwrap_or_default()
    }

    /// The last request is answered.
    pub(super) fn next_request(&mut self) {
        let has_begun = !self.rest().is_empty();
        self.stream.next_request(has_begun);
    }

    /// The client has signed in.
    pub(super) fn note_sign_in(&mut self) {
        self.stream.note_sign_in();
    }

    /// The next line without its end, `None` where the connection ends before one.
    pub(super) fn line(&mut self, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            let rest = self.rest();
            if let Some(end) = rest.iter().skip(searched).position(|byte| *byte == b'\n').map(|end| end + searched) {
                let mut line = rest.get(..end).unwrap_or_default().to_vec();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                self.used += end + 1;
                return Ok(Some(line));
            }
            searched = rest.len();
            if searched > bytes_max {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line that is too long"));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The next so many bytes; an error where the connection ends before, or where the share cannot grow for them.
    pub(super) fn bytes(&mut self, count: usize, share: &mut Share<'_>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            if bytes.len() == bytes.capacity() {
                let room = bytes.len().max(RESERVED_BYTES_MAX).min(count - bytes.len());
                share.grow(room)?;
                bytes.reserve_exact(room);
            }
            let count = count.min(bytes.capacity());
            let rest = self.rest();
            let more = rest.get(..rest.len().min(count - bytes.len())).unwrap_or_default();
            bytes.extend_from_slice(more);
            self.used += more.len();
            if bytes.len() < count && !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(bytes)
    }

    /// Reads bytes and throws them away.
    pub(super) fn skip(&mut self, mut count: usize) -> io::Result<()> {
        while count > 0 {
            let passed = self.rest().len().min(count);
            self.used += passed;
            count -= passed;
            if count > 0 && !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// The next byte.
    pub(super) fn byte(&mut self) -> io::Result<u8> {
        loop {
            if let Some(byte) = self.rest().first().copied() {
                self.used += 1;
                return Ok(byte);
            }
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.used..self.read, 0);
        (self.used, self.read) = (0, self.read - self.used);
        if self.buffer.len() < self.read + READ_BYTES {
            self.buffer.resize(self.read + READ_BYTES, 0);
        }
        let count = self.stream.read(self.buffer.get_mut(self.read..).unwrap_or_default())?;
        self.read += count;
        Ok(count > 0)
    }
}
