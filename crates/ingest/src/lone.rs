//! Rows of lone series: what most protocols bring. One field, a float; every row names its own series.

use model::{Block, Field, GroupKey, VALUE_FIELD, ValueType};

/// The rows of a request so far.
pub(crate) struct LoneRows {
    block: Block,
    rows_max: usize,
}

impl LoneRows {
    pub(crate) fn new(rows_max: usize) -> Self {
        let value = Field { name: VALUE_FIELD.to_owned(), value_type: ValueType::F64 };
        Self { block: Block { fields: vec![value], ..Block::default() }, rows_max }
    }

    pub(crate) fn rows(&self) -> usize {
        self.block.timestamps_ns.len()
    }

    /// Why there can be no further row, if there cannot.
    #[inline]
    pub(crate) fn check_room(&self) -> Result<(), String> {
        if self.rows() < self.rows_max {
            return Ok(());
        }
        Err(format!("the request has more than {} rows (rows_max); split it", self.rows_max))
    }

    #[inline]
    pub(crate) fn push(&mut self, key: GroupKey, timestamp_ns: i64, value: f64, line: u32) {
        self.block.keys.push(key);
        self.push_keyless(timestamp_ns, value, line);
    }

    /// Adds a row whose key follows by [`LoneRows::push_keys`].
    #[inline]
    pub(crate) fn push_keyless(&mut self, timestamp_ns: i64, value: f64, line: u32) {
        self.block.timestamps_ns.push(timestamp_ns);
        self.block.lines.push(line);
        self.block.cells.push(value.to_bits());
    }

    /// Gives this key to the rows that have none yet.
    pub(crate) fn push_keys(&mut self, key: GroupKey) {
        self.block.keys.resize(self.block.timestamps_ns.len(), key);
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

    /// The rows as a block; `None` if there are none.
    pub(crate) fn into_block(self) -> Option<Block> {
        (self.block.rows() > 0).then_some(self.block)
    }
}
