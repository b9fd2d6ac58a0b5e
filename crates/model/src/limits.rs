//! Bounds on what a body may hold.

/// Bounds on lines, names and lists. A line that breaks one is left out and reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest line of a text protocol, line ends inside strings included.
    pub line_bytes_max: usize,
    /// Most tags of a line, or labels of a series.
    pub tags_max: usize,
    /// Most fields of a line.
    pub fields_max: usize,
    /// Longest name of a measurement, metric, tag or field.
    pub name_bytes_max: usize,
    /// Longest key of a group: measurement and tags as spelled, or the labels of a series as sent.
    pub key_bytes_max: usize,
    /// Bytes of all keys of a request that do not stand in its body as they are needed. Protocols that refer to names by
    /// number can spell a long key in a few bytes.
    pub keys_bytes_max: usize,
    /// Most sets of fields in one body, each spelled in its own way; every one costs memory beyond its text.
    pub layouts_max: usize,
    /// Most rows of one body. Protocols can spell a row in a few bytes that takes ten times as many in memory.
    pub rows_max: usize,
    /// Most native histograms of one body.
    pub histograms_max: usize,
    /// Most exemplars of one body; further ones are left out.
    pub exemplars_max: usize,
    /// Most metric families described in one body.
    pub metadata_max: usize,
    /// How many bad lines are reported in full; the others are counted.
    pub errors_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line_bytes_max: 1 << 20,
            tags_max: 128,
            fields_max: 4096,
            name_bytes_max: 1024,
            key_bytes_max: u16::MAX as usize,
            keys_bytes_max: 256 << 20,
            layouts_max: 1 << 16,
            rows_max: 1 << 22,
            histograms_max: 1 << 18,
            exemplars_max: 1 << 16,
            metadata_max: 1 << 17,
            errors_max: 100,
        }
    }
}
