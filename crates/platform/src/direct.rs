//! Memory for reads and writes that bypass the system's cache.

use std::ops::{Deref, DerefMut};

/// What offsets, lengths and buffers of direct reads and writes are multiples of.
pub const DIRECT_ALIGN_BYTES: usize = 4096;

/// Zeroed bytes whose first one lies at a multiple of [`DIRECT_ALIGN_BYTES`].
// No clone: a copy may lie elsewhere.
#[derive(Debug)]
pub struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// So many zeros.
    pub fn zeroed(len: usize) -> Self {
        let memory = vec![0; len + DIRECT_ALIGN_BYTES];
        let start = memory.as_ptr().align_offset(DIRECT_ALIGN_BYTES).min(DIRECT_ALIGN_BYTES);
        Self { memory, start, len }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenMode, Platform};

    #[test]
    fn direct_files_give_back_what_was_written() {
        let folder = std::env::temp_dir().join(format!("thalweg-direct-{}", std::process::id()));
        let files = Platform::real().files;
        files.create_directory(&folder).unwrap();
        let path = folder.join("file");
        let file = files.open_direct(&path, OpenMode::CreateNew).unwrap();
        let mut written = AlignedBytes::zeroed(2 * DIRECT_ALIGN_BYTES);
        assert_eq!(written.as_ptr() as usize % DIRECT_ALIGN_BYTES, 0);
        written.iter_mut().zip(0u8..=255).for_each(|(byte, number)| *byte = number);
        file.write_all_at(&written, DIRECT_ALIGN_BYTES as u64).unwrap();
        let mut read = AlignedBytes::zeroed(2 * DIRECT_ALIGN_BYTES);
        file.read_exact_at(&mut read, DIRECT_ALIGN_BYTES as u64).unwrap();
        assert_eq!(*read, *written);
        files.remove(&path).unwrap();
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn durable_writes_are_there_for_other_readers() {
        let folder = std::env::temp_dir().join(format!("thalweg-durable-{}", std::process::id()));
        let files = Platform::real().files;
        files.create_directory(&folder).unwrap();
        let path = folder.join("file");
        files.open(&path, OpenMode::CreateNew).unwrap().write_all_at(&[7; 3 * DIRECT_ALIGN_BYTES], 0).unwrap();
        // Whether this file system can do without its cache or not.
        let (file, _) = files.open_durable(&path).unwrap();
        let mut written = AlignedBytes::zeroed(DIRECT_ALIGN_BYTES);
        written.fill(9);
        file.write_durable_at(&written, DIRECT_ALIGN_BYTES as u64).unwrap();
        let expected = [7, 9, 7].map(|byte| [byte; DIRECT_ALIGN_BYTES]).concat();
        assert_eq!(crate::read_file(&*files, &path, 1 << 20).unwrap(), expected);
        files.remove(&path).unwrap();
        std::fs::remove_dir(&folder).unwrap();
    }
}
