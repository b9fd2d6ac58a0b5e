//! Rows on their way in: what every protocol's parser makes and `store` takes.
//!
//! ```text
//! Batch ── one request, one database
//!  ├─ body, arena        text that spans point into (keys, strings)
//!  ├─ blocks ── rows with the same fields, in order of arrival
//!  │   ├─ measurement    of all rows, or None: every group brings its own (lone series)
//!  │   ├─ fields         name and type of each column
//!  │   └─ keys, timestamps_ns, lines: one per row; cells: row-major, fields.len() per row
//!  ├─ histograms         what histogram cells count in
//!  ├─ exemplars, start_timestamps
//!  └─ metadata           help, unit and kind of metrics
//! ```

use crate::{Labels, NativeHistogram, SeriesExemplar, StartTimestamp, ValueType};

/// A piece of a batch's text. Offsets below the body's length lie in the body, the others in the arena behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    /// The span as a string cell.
    pub const fn to_cell(self) -> u64 {
        (self.start as u64) << 32 | self.len as u64
    }

    /// The span that a string cell holds.
    pub const fn from_cell(cell: u64) -> Self {
        Self { start: (cell >> 32) as u32, len: cell as u32 }
    }
}

/// The name of a row's group: a keyed 128-bit hash of the key's raw bytes (and of the protocol that spelled them so),
/// and where those bytes are. The bytes are read only when the hash is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupKey {
    /// Keyed hash of the raw bytes; the same group may have several, one per spelling.
    pub hash: u128,
    /// The raw bytes.
    pub text: Span,
}

/// The meaning of a raw key, once it is parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupIdentity {
    /// Measurement, or metric name of a lone series.
    pub measurement: String,
    /// The group's labels, without the metric name.
    pub labels: Labels,
}

/// Parses a raw key; the error is for the user. A plain function, so that `store` needs to know no protocol.
pub type KeyDecoder = fn(&[u8]) -> Result<GroupIdentity, String>;

/// Name and type of a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// The field's name.
    pub name: String,
    /// The type of its values.
    pub value_type: ValueType,
}

/// Rows with the same fields, in order of arrival. The vectors are parallel; `cells` has `fields.len()` items per row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Block {
    /// The measurement of all rows; `None` when every group brings its own (lone series: one field, [`crate::VALUE_FIELD`]
    /// of floats or [`crate::HISTOGRAM_FIELD`] of histograms).
    pub measurement: Option<String>,
    /// The columns. No name twice, never empty.
    pub fields: Vec<Field>,
    /// The group of each row.
    pub keys: Vec<GroupKey>,
    /// The timestamp of each row, nanoseconds since the Unix epoch.
    pub timestamps_ns: Vec<i64>,
    /// The line (or item) of the request that each row came from, counted from 1: for error messages.
    pub lines: Vec<u32>,
    /// The values, row by row; see [`crate::ValueType`] for what a word holds.
    pub cells: Vec<u64>,
}

impl Block {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.timestamps_ns.len()
    }

    /// The cells of one row; empty if there is no such row.
    pub fn row(&self, row: usize) -> &[u64] {
        let width = self.fields.len();
        self.cells.get(row * width..(row + 1) * width).unwrap_or_default()
    }
}

/// The kind of a metric, as Prometheus names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum MetricKind {
    /// Not said.
    #[default]
    Unknown = 0,
    /// Only goes up, or starts again.
    Counter = 1,
    /// Goes up and down.
    Gauge = 2,
    /// Buckets, sum and count.
    Histogram = 3,
    /// Buckets of a gauge.
    GaugeHistogram = 4,
    /// Quantiles, sum and count.
    Summary = 5,
    /// Constant 1 with labels that inform.
    Info = 6,
    /// One of several states.
    StateSet = 7,
}

impl MetricKind {
    /// All kinds; the position of each is its number.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Counter,
        Self::Gauge,
        Self::Histogram,
        Self::GaugeHistogram,
        Self::Summary,
        Self::Info,
        Self::StateSet,
    ];

    /// The name in Prometheus's metadata API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
        }
    }
}

/// The metadata of a metric family in a scrape or a remote write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricMetadata {
    /// Name of the metric family.
    pub family: String,
    /// Its kind.
    pub kind: MetricKind,
    /// Help text; may be empty.
    pub help: String,
    /// Unit; may be empty.
    pub unit: String,
}

/// Rows on their way in; see the module's picture.
#[derive(Debug, Clone)]
pub struct Batch<'body> {
    /// The request's body, in which most spans lie. Less than 2 GiB.
    body: &'body [u8],
    /// Text that does not stand in the body as it is needed (unescaped strings, labels that were put together).
    arena: Vec<u8>,
    /// How to read the raw keys.
    pub key_decoder: KeyDecoder,
    /// Rows, by their fields.
    pub blocks: Vec<Block>,
    /// Native histograms; the cell of one is its place here.
    pub histograms: Vec<NativeHistogram>,
    /// Exemplars of lone series.
    pub exemplars: Vec<SeriesExemplar>,
    /// Since when lone series count.
    pub start_timestamps: Vec<StartTimestamp>,
    /// The metadata of metric families in the request.
    pub metadata: Vec<MetricMetadata>,
}

impl<'body> Batch<'body> {
    /// A batch without rows.
    pub fn new(body: &'body [u8], key_decoder: KeyDecoder) -> Self {
        Self::with_arena(body, Vec::new(), key_decoder)
    }

    /// A batch without rows, with text behind the body already.
    pub fn with_arena(body: &'body [u8], arena: Vec<u8>, key_decoder: KeyDecoder) -> Self {
        Self {
            body,
            arena,
            key_decoder,
            blocks: Vec::new(),
            histograms: Vec::new(),
            exemplars: Vec::new(),
            start_timestamps: Vec::new(),
            metadata: Vec::new(),
        }
    }

    /// The bytes of a span; empty if it lies outside.
    pub fn text(&self, span: Span) -> &[u8] {
        let (start, len) = (span.start as usize, span.len as usize);
        let (text, start) = match start.checked_sub(self.body.len()) {
            None => (self.body, start),
            Some(start) => (self.arena.as_slice(), start),
        };
        text.get(start..start + len).unwrap_or_default()
    }

    /// Puts text behind the body and says where it is.
    pub fn push_text(&mut self, text: &[u8]) -> Span {
        let start = (self.body.len() + self.arena.len()) as u32;
        self.arena.extend_from_slice(text);
        Span { start, len: text.len() as u32 }
    }

    /// Takes in a histogram and gives the cell that stands for it.
    pub fn push_histogram(&mut self, histogram: NativeHistogram) -> u64 {
        self.histograms.push(histogram);
        self.histograms.len() as u64 - 1
    }

    /// How many rows there are in all blocks.
    pub fn rows(&self) -> usize {
        self.blocks.iter().map(Block::rows).sum()
    }

    /// How many values there are in all blocks.
    pub fn values(&self) -> usize {
        self.blocks.iter().map(|block| block.cells.len()).sum()
    }
}
