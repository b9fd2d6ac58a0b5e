//! Rows of lone series: what most protocols bring. One field, a float or a native histogram; every row names its own series.

use crate::batch::columns::empty_block;
use crate::errors::{LimitName, Reason};
use model::{Block, Field, GroupKey, HISTOGRAM_FIELD, VALUE_FIELD, ValueType};

/// The rows of a request so far.
pub(crate) struct LoneRows {
    block: Block,
    rows_max: usize,
    limit: LimitName,
}

impl LoneRows {
    /// Rows of floats, and how many there may be.
    pub(crate) fn floats(rows_max: usize) -> Self {
        Self::with_field(VALUE_FIELD, ValueType::F64, empty_block(), rows_max, LimitName::Rows)
    }

    /// Rows of native histograms, and how many there may be.
    pub(crate) fn histograms(histograms_max: usize) -> Self {
        // Most requests have none: a block with room would be lost to those that need it.
        Self::with_field(HISTOGRAM_FIELD, ValueType::Histogram, Block::default(), histograms_max, LimitName::Histograms)
    }

    fn with_field(name: &str, value_type: ValueType, empty: Block, rows_max: usize, limit: LimitName) -> Self {
        let field = Field { name: name.to_owned(), value_type };
        Self { block: Block { fields: vec![field], ..empty }, rows_max, limit }
    }

    pub(crate) fn rows(&self) -> usize {
        self.block.timestamps_ns.len()
    }

    /// Why there can be no further row, if there cannot.
    #[inline]
    pub(crate) fn check_room(&self) -> Result<(), Reason> {
        if self.rows() < self.rows_max {
            return Ok(());
        }
        Err(self.limit.exceeded(format_args!("the request has more than {} rows", self.rows_max)))
    }

    #[inline]
    pub(crate) fn push(&mut self, key: GroupKey, timestamp_ns: i64, cell: u64, line: u32) {
        self.block.keys.push(key);
        self.push_keyless(timestamp_ns, cell, line);
    }

    /// Adds a row whose key follows by [`LoneRows::push_keys`].
    #[inline]
    pub(crate) fn push_keyless(&mut self, timestamp_ns: i64, cell: u64, line: u32) {
        self.block.timestamps_ns.push(timestamp_ns);
        self.block.lines.push(line);
        self.block.cells.push(cell);
    }

    /// Returns whether any rows have no key yet.
    #[inline]
    pub(crate) fn has_keyless(&self) -> bool {
        self.block.keys.len() < self.block.timestamps_ns.len()
    }

    /// Gives this key to the rows that have none yet.
    #[inline]
    pub(crate) fn push_keys(&mut self, key: GroupKey) {
        match self.block.timestamps_ns.len() - self.block.keys.len() {
            1 => self.block.keys.push(key),
            _ => self.block.keys.resize(self.block.timestamps_ns.len(), key),
        }
    }

    /// Takes the rows back that have no key yet; how many they were.
    pub(crate) fn drop_keyless(&mut self) -> usize {
        let kept = self.block.keys.len();
        let dropped = self.rows() - kept;
        self.block.timestamps_ns.truncate(kept);
        self.block.lines.truncate(kept);
        self.block.cells.truncate(kept);
        dropped
    }

    pub(crate) fn block_mut(&mut self) -> &mut Block {
        &mut self.block
    }

    /// The rows as a block; `None` if there are none.
    pub(crate) fn into_block(self) -> Option<Block> {
        (self.block.rows() > 0).then_some(self.block)
    }
}
