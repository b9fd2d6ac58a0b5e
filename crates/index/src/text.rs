//! Texts one behind another, each behind its length; addressed by where they begin.

use codec::{Reader, varint};

/// Holds texts in one allocation.
#[derive(Debug, Default)]
pub(crate) struct TextArena {
    bytes: Vec<u8>,
}

impl TextArena {
    pub(crate) fn push(&mut self, text: &str) -> u32 {
        let at = self.bytes.len() as u32;
        reserve_lean(&mut self.bytes, text.len() + 5);
        varint::push_text(&mut self.bytes, text);
        at
    }

    pub(crate) fn get(&self, at: u32) -> &str {
        Reader::new(self.bytes.get(at as usize..).unwrap_or_default()).text().unwrap_or("")
    }

    /// The bytes of the text, for comparisons: texts are looked at again and again, and need not be found to be text each time.
    pub(crate) fn bytes_at(&self, at: u32) -> &[u8] {
        let mut reader = Reader::new(self.bytes.get(at as usize..).unwrap_or_default());
        let length = reader.length(reader.rest().len());
        length.and_then(|length| reader.bytes(length)).unwrap_or_default()
    }

    /// Bytes of the texts so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Makes room by an eighth instead of by doubling: large vectors are moved by the page table, not copied.
pub(crate) fn reserve_lean<T>(vector: &mut Vec<T>, more: usize) {
    if vector.capacity() - vector.len() < more {
        vector.reserve_exact(more.max(vector.len() / 8).max(16));
    }
}

pub(crate) fn push_lean<T>(vector: &mut Vec<T>, value: T) {
    if vector.len() == vector.capacity() {
        vector.reserve_exact((vector.len() / 8).max(1));
    }
    vector.push(value);
}
