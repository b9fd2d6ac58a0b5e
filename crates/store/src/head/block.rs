//! Some rows of shared ones, one after the other, and what is known of each.

use std::sync::Arc;

use index::GroupId;

use super::packed::{self, RowForm};

/// How many rows share what is known of how new they are at most.
pub(super) const INTERVAL_ROWS: usize = 64;

/// Where a row belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) group: GroupId,
    /// Where the group's row before this one is.
    pub(super) previous: u32,
}

/// Some rows, one after the other.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) form: Arc<RowForm>,
    pub(super) links: Vec<Link>,
    /// One behind the other, of the form.
    pub(super) rows: Vec<u8>,
    /// Largest timestamp of these rows and of all before them.
    pub(super) newest_ns: i64,
    /// The newest timestamp up to the end of each interval of rows but the last.
    pub(super) newest_until_ns: Vec<i64>,
}

impl Block {
    pub(super) fn capacity_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>() + self.rows.capacity() + self.newest_until_ns.capacity() * 8
    }

    /// Returns whether there is room for so many rows and bytes, and not much more: what is pool serves rows of about the same size.
    pub(super) fn has_room_of(&self, rows: usize, bytes: usize) -> bool {
        self.links.capacity() == rows && (bytes..=bytes * 2).contains(&self.rows.capacity())
    }

    /// A row as it is packed, without bounds of its own: empty if there is none.
    pub(super) fn packed(&self, index: usize) -> &[u8] {
        let bytes = self.form.row_bytes();
        self.rows.get(index * bytes..(index + 1) * bytes).unwrap_or_default()
    }

    /// A timestamp beyond which neither a row nor any before it is.
    pub(super) fn newest_until(&self, index: usize) -> i64 {
        self.newest_until_ns.get(index / INTERVAL_ROWS).copied().unwrap_or(self.newest_ns)
    }

    /// A row before which all rows are earlier than a time.
    pub(super) fn first_since(&self, start_ns: i64) -> usize {
        self.newest_until_ns.partition_point(|newest_ns| *newest_ns < start_ns) * INTERVAL_ROWS
    }

    /// The link of a row, and the row as it is packed.
    pub(super) fn row(&self, index: usize) -> Option<(Link, &[u8])> {
        Some((*self.links.get(index)?, self.packed(index)))
    }

    /// Adds a row. If a cell is too large for the form, all rows get a larger one; `rows_max` is how many there will be.
    pub(super) fn push(&mut self, link: Link, timestamp_ns: i64, cells: &[u64], rows_max: usize) {
        if !self.links.is_empty() && self.links.len().is_multiple_of(INTERVAL_ROWS) {
            self.newest_until_ns.push(self.newest_ns);
        }
        self.newest_ns = self.newest_ns.max(timestamp_ns);
        self.links.push(link);
        if self.form.pack(timestamp_ns, cells, &mut self.rows) {
            return;
        }
        let form = self.form.widened(cells);
        // A block that grows as it is filled goes on doing so.
        let grows = self.rows.capacity() < self.form.room_bytes(rows_max);
        let mut wider = Vec::with_capacity(form.room_bytes(if grows { self.links.len() } else { rows_max }));
        let mut words = Vec::new();
        for row in self.rows.chunks_exact(self.form.row_bytes()) {
            words.clear();
            self.form.unpack(row, &mut words);
            form.pack(packed::timestamp_of(row), words.get(1..).unwrap_or_default(), &mut wider);
        }
        form.pack(timestamp_ns, cells, &mut wider);
        (self.form, self.rows) = (Arc::new(form), wider);
    }

    /// Without rows, with room for so many rows and bytes.
    pub(super) fn with_room(form: Arc<RowForm>, (rows, bytes): (usize, usize)) -> Self {
        let (links, newest_until_ns) = (Vec::with_capacity(rows), Vec::with_capacity(rows / INTERVAL_ROWS));
        Self { form, links, rows: Vec::with_capacity(bytes), newest_until_ns, ..Self::default() }
    }

    /// Bytes that its rows take.
    pub(super) const fn bytes(&self) -> usize {
        self.rows.len() + self.links.len() * size_of::<Link>() + self.newest_until_ns.len() * size_of::<i64>()
    }

    pub(super) fn clear(&mut self) {
        self.links.clear();
        self.rows.clear();
        self.newest_until_ns.clear();
    }
}
