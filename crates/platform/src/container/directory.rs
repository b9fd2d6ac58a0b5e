//! The directory of a container: files by number and by name, and the blocks that they have.

use std::collections::BTreeMap;

use super::layout::{BLOCK_BYTES, BLOCKS_MAX, HEAD_BLOCKS};

/// Bytes of a file's longest name, folders included.
pub(super) const NAME_BYTES_MAX: usize = 1024;

/// Blocks that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockRun {
    pub(super) start: u64,
    pub(super) blocks: u64,
}

impl BlockRun {
    /// The block after the last one.
    pub(super) const fn end(&self) -> u64 {
        self.start.saturating_add(self.blocks)
    }

    pub(super) const fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Where in the container it begins.
    pub(super) const fn offset(&self) -> u64 {
        self.start * BLOCK_BYTES
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES
    }

    fn is_possible(&self) -> bool {
        self.blocks > 0 && u32::try_from(self.blocks).is_ok() && self.start >= HEAD_BLOCKS && self.end() <= BLOCKS_MAX
    }
}

/// Blocks that so many bytes begin.
pub(super) const fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ContainerEntry {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Its blocks, in order.
    pub(super) runs: Vec<BlockRun>,
}

impl ContainerEntry {
    /// The end of its last byte in the container, for each run.
    pub(super) fn ends(&self) -> impl Iterator<Item = u64> {
        let mut left = self.bytes;
        self.runs.iter().map(move |run| {
            let used = left.min(run.bytes());
            left -= used;
            run.offset() + used
        })
    }
}

/// All files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ContainerDirectory {
    /// The number of the next file.
    pub(super) next_id: u64,
    /// By number.
    pub(super) files: BTreeMap<u64, ContainerEntry>,
    pub(super) names: BTreeMap<String, u64>,
}

impl ContainerDirectory {
    /// Adds a file, if there can be such a one.
    pub(super) fn add(&mut self, id: u64, entry: ContainerEntry) -> Result<(), &'static str> {
        self.check_entry(id, &entry)?;
        if self.files.contains_key(&id) || self.names.contains_key(&entry.name) {
            return Err("a file is there twice");
        }
        self.names.insert(entry.name.clone(), id);
        self.files.insert(id, entry);
        Ok(())
    }

    /// Whether a file can be as an entry says.
    pub(super) fn check_entry(&self, id: u64, entry: &ContainerEntry) -> Result<(), &'static str> {
        if id == 0 || id >= self.next_id {
            return Err("a file has a number that was not given out");
        }
        if !entry.runs.iter().all(BlockRun::is_possible) {
            return Err("a file has blocks that cannot be");
        }
        let blocks = entry.runs.iter().map(|run| run.blocks).try_fold(0_u64, u64::checked_add);
        if blocks != Some(blocks_of(entry.bytes)) {
            return Err("a file has more or fewer blocks than its length needs");
        }
        Ok(())
    }

    /// All blocks that files have, in order; an error names two files that have the same.
    pub(super) fn used(&self) -> Result<Vec<BlockRun>, String> {
        let of_entry = |entry: &'_ ContainerEntry| entry.runs.clone();
        let mut used: Vec<(BlockRun, u64)> =
            self.files.iter().flat_map(|(id, entry)| of_entry(entry).into_iter().map(|run| (run, *id))).collect();
        used.sort_unstable();
        for pair in used.windows(2) {
            if let [(run, id), (next, other)] = pair
                && run.overlaps(next)
            {
                let name = |id: &u64| self.files.get(id).map_or("", |entry| entry.name.as_str());
                return Err(format!("the files {} and {} have block {} both", name(id), name(other), next.start));
            }
        }
        Ok(used.into_iter().map(|(run, _)| run).collect())
    }
}

/// A name as files of a container have: pieces between slashes, none of which leads elsewhere.
pub(super) fn check_name(name: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(name).map_err(|_| "a file's name is not UTF-8")?;
    let is_piece = |piece: &str| !piece.is_empty() && piece != "." && piece != ".." && !piece.contains(['\0', '\\']);
    if name.len() > NAME_BYTES_MAX || !text.split('/').all(is_piece) {
        return Err("a file's name is empty, too long or leads elsewhere");
    }
    Ok(text)
}
