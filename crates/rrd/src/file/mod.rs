//! An RRD file in memory: definitions, state and archives; read from and written to `.rrd` and the XML of `rrdtool dump`.
//!
//! * `binary.rs`: `.rrd` · `compute.rs`: expressions in it · `xml_reader.rs`, `xml_writer.rs`: dumps
//! * `definition.rs`: what `rrdtool create` says, and its form as a document

mod binary;
mod compute;
mod definition;
mod xml_reader;
mod xml_writer;

use model::ValueType;

pub(crate) use binary::head_bytes;
pub use binary::{read_binary, write_binary};
pub use definition::Definition;
pub use xml_reader::read_xml;
pub use xml_writer::{write_xml, xml_bytes_max};

use crate::RrdError;

/// Bytes that the rows of a file may have in memory.
pub const ROWS_BYTES_MAX: u64 = 256 << 20;

/// Data sources that a file may have.
pub const SOURCES_MAX: usize = 1_024;

/// Archives that a file may have.
pub const ARCHIVES_MAX: usize = 1_024;

/// Seconds of the last update that a file may name: sums beyond it could overflow.
const LAST_UPDATE_S_MAX: i64 = 1 << 40;

/// Bytes of a data source's name.
const NAME_BYTES_MAX: usize = 19;

/// How readings of a data source become rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// A value as it is.
    Gauge,
    /// A counter of integers that only goes up, and wraps at 32 or 64 bits.
    Counter,
    /// The difference of integers that go up and down.
    Derive,
    /// A counter that each reading resets.
    Absolute,
    /// A counter of floats; one that goes back has been reset.
    DCounter,
    /// The difference of floats.
    DDerive,
    /// Computed from the sources before it.
    Compute,
}

impl SourceKind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Gauge, Self::Counter, Self::Derive, Self::Absolute, Self::DCounter, Self::DDerive, Self::Compute];

    /// RRDtool's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "GAUGE",
            Self::Counter => "COUNTER",
            Self::Derive => "DERIVE",
            Self::Absolute => "ABSOLUTE",
            Self::DCounter => "DCOUNTER",
            Self::DDerive => "DDERIVE",
            Self::Compute => "COMPUTE",
        }
    }

    /// The kind of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What follows a source's name in the field of its raw readings, so that kinds do not share a field.
    pub const fn field_suffix(self) -> &'static str {
        match self {
            Self::Gauge | Self::Compute => "",
            Self::Counter => "_counter",
            Self::Derive => "_derive",
            Self::Absolute => "_absolute",
            Self::DCounter => "_dcounter",
            Self::DDerive => "_dderive",
        }
    }

    /// The type of raw readings.
    pub const fn value_type(self) -> ValueType {
        match self {
            Self::Counter => ValueType::U64,
            Self::Derive => ValueType::I64,
            _ => ValueType::F64,
        }
    }
}

/// What an archive makes of several primary data points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Consolidation {
    /// Their mean.
    Average,
    /// Their least.
    Min,
    /// Their greatest.
    Max,
    /// Their last.
    Last,
}

impl Consolidation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Average, Self::Min, Self::Max, Self::Last];

    /// RRDtool's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Average => "AVERAGE",
            Self::Min => "MIN",
            Self::Max => "MAX",
            Self::Last => "LAST",
        }
    }

    /// The function of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.name() == name)
    }
}

/// Consolidation functions of Holt-Winters forecasting, which are skipped.
pub(crate) const FORECASTS: [&str; 6] =
    ["HWPREDICT", "MHWPREDICT", "SEASONAL", "DEVSEASONAL", "DEVPREDICT", "FAILURES"];

/// A moment, in seconds and microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment {
    /// Whole seconds.
    pub seconds: i64,
    /// Microseconds beside them.
    pub micros: u32,
}

/// Nanoseconds of a second.
const NS_PER_S: i64 = 1_000_000_000;

impl Moment {
    /// A whole second.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { seconds, micros: 0 }
    }

    /// Reads the time of an update: seconds with a fraction, negative ones before now, or `N` for now.
    pub fn parse(text: &str, now: Self) -> Option<Self> {
        if text == "N" {
            return Some(now);
        }
        let seconds = crate::number::parse_rounded(text).filter(|seconds| seconds.abs() < 1e11)?;
        let seconds = if seconds < 0.0 { now.seconds as f64 + f64::from(now.micros) / 1e6 + seconds } else { seconds };
        let whole = seconds.floor();
        Some(Self { seconds: whole as i64, micros: ((seconds - whole) * 1e6) as u32 })
    }

    /// From nanoseconds since the Unix epoch.
    pub const fn from_ns(time_ns: i64) -> Self {
        Self { seconds: time_ns.div_euclid(NS_PER_S), micros: (time_ns.rem_euclid(NS_PER_S) / 1_000) as u32 }
    }

    /// In nanoseconds since the Unix epoch.
    pub const fn to_ns(self) -> i64 {
        self.seconds.saturating_mul(NS_PER_S).saturating_add(self.micros as i64 * 1_000)
    }
}

/// A data source.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// How readings become rates.
    pub kind: SourceKind,
    /// Seconds after which a silent source is unknown.
    pub heartbeat_s: u64,
    /// Rates below are unknown; NaN: none is.
    pub min: f64,
    /// Rates above are unknown; NaN: none is.
    pub max: f64,
    /// The expression of a computed source; empty for others.
    pub expression: String,
}

impl PartialEq for Source {
    /// Two limits that are not there are the same.
    fn eq(&self, other: &Self) -> bool {
        let is_same = |one: f64, other: f64| one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan();
        self.name == other.name
            && (self.kind, self.heartbeat_s) == (other.kind, other.heartbeat_s)
            && is_same(self.min, other.min)
            && is_same(self.max, other.max)
            && self.expression == other.expression
    }
}

/// A reading of a source.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Reading {
    /// None.
    #[default]
    Unknown,
    /// Of a counter.
    Unsigned(u64),
    /// Of a derived integer.
    Signed(i64),
    /// Of all others.
    Number(f64),
}

impl Reading {
    /// Reads one as an update spells it.
    pub fn parse(kind: SourceKind, text: &str) -> Result<Self, RrdError> {
        if text.starts_with('U') {
            return Ok(Self::Unknown);
        }
        let not_integer = |signed: &str| RrdError::Invalid(format!("not a simple {signed} integer: '{text}'"));
        match kind {
            SourceKind::Counter if is_digits(text) => {
                text.parse().map(Self::Unsigned).map_err(|_| RrdError::Invalid(format!("more than 64 bits: '{text}'")))
            }
            SourceKind::Counter => Err(not_integer("unsigned")),
            SourceKind::Derive if is_digits(text.strip_prefix('-').unwrap_or(text)) => {
                text.parse().map(Self::Signed).map_err(|_| RrdError::Invalid(format!("more than 64 bits: '{text}'")))
            }
            SourceKind::Derive => Err(not_integer("signed")),
            _ => match crate::number::parse(text) {
                Some(value) if value.is_nan() => Ok(Self::Unknown),
                Some(value) => Ok(Self::Number(value)),
                None => Err(RrdError::Invalid(format!("Cannot convert '{text}' to float"))),
            },
        }
    }

    /// Reads the last reading that a file has of a source; what cannot be read is unknown.
    pub(crate) fn of_state(kind: SourceKind, text: &str) -> Self {
        let text = text.trim_matches(|symbol: char| symbol == '\0' || symbol.is_whitespace());
        let integer = || text.split('.').next().unwrap_or_default();
        match kind {
            SourceKind::Counter | SourceKind::Derive => Self::parse(kind, integer()).unwrap_or_default(),
            _ => Self::parse(kind, text).unwrap_or_default(),
        }
    }

    /// A number as a reading of a kind; for kinds of integers its whole part.
    pub(crate) fn of_number(kind: SourceKind, value: f64) -> Self {
        match kind {
            _ if value.is_nan() => Self::Unknown,
            SourceKind::Counter if (0.0..1.8e19).contains(&value) => Self::Unsigned(value as u64),
            SourceKind::Derive if value.abs() < 9.2e18 => Self::Signed(value as i64),
            SourceKind::Counter | SourceKind::Derive => Self::Unknown,
            _ => Self::Number(value),
        }
    }

    /// As files and updates spell it.
    pub fn spelled(self) -> String {
        match self {
            Self::Unknown => "U".to_owned(),
            Self::Unsigned(value) => value.to_string(),
            Self::Signed(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
        }
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// What a source's primary data point under way is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceState {
    /// The last reading.
    pub last: Reading,
    /// Seconds of the point that are unknown.
    pub unknown_s: u64,
    /// Rate times seconds so far; NaN: none.
    pub value: f64,
}

/// What a source's row under way in an archive is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct RowState {
    /// So far; NaN: nothing.
    pub value: f64,
    /// Primary data points that are unknown.
    pub unknown_points: u64,
    /// The value of the last row that was completed.
    pub primary: f64,
    /// The value of further rows that were completed at the same time.
    pub secondary: f64,
}

/// An archive's definition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArchiveDefinition {
    /// How primary data points become a row.
    pub function: Consolidation,
    /// Primary data points of a row.
    pub points: u64,
    /// Rows.
    pub rows: u64,
    /// The share of unknown points from which a row is unknown.
    pub xff: f64,
}

/// An archive.
#[derive(Debug, Clone, PartialEq)]
pub struct Archive {
    /// Its definition.
    pub definition: ArchiveDefinition,
    /// The row under way, a state for each source.
    pub states: Vec<RowState>,
    /// Values row by row, in a ring.
    pub values: Vec<f64>,
    /// The index of the newest row.
    pub newest: usize,
}

impl Archive {
    /// One without room for rows.
    pub fn empty(definition: ArchiveDefinition, sources: usize) -> Self {
        let state = RowState { value: f64::NAN, unknown_points: 0, primary: f64::NAN, secondary: f64::NAN };
        let newest = (definition.rows as usize).saturating_sub(1);
        Self { definition, states: vec![state; sources], values: Vec::new(), newest }
    }

    /// The values of a row, by its age in rows: 0 is the newest.
    pub fn row(&self, age: usize) -> Option<&[f64]> {
        let rows = self.definition.rows as usize;
        if age >= rows {
            return None;
        }
        let (sources, row) = (self.states.len(), (self.newest + rows - age) % rows);
        self.values.get(row * sources..(row + 1) * sources)
    }

    /// Appends a row in place of the oldest.
    pub fn push(&mut self, row: &[f64]) {
        let rows = self.definition.rows as usize;
        self.newest = if self.newest + 1 >= rows { 0 } else { self.newest + 1 };
        let start = self.newest * self.states.len();
        if let Some(values) = self.values.get_mut(start..start + row.len()) {
            values.copy_from_slice(row);
        }
    }
}

/// A file.
#[derive(Debug, Clone, PartialEq)]
pub struct Rrd {
    /// The version of the format.
    pub version: u8,
    /// Seconds of a primary data point.
    pub step_s: u64,
    /// The time of the last update.
    pub last_update: Moment,
    /// Data sources.
    pub sources: Vec<Source>,
    /// Their states.
    pub states: Vec<SourceState>,
    /// Archives.
    pub archives: Vec<Archive>,
}

impl Rrd {
    /// Seconds of a row of an archive.
    pub fn width_s(&self, archive: &ArchiveDefinition) -> i64 {
        (self.step_s * archive.points) as i64
    }
}

/// Checks the time of the last update that a file names.
pub(crate) fn check_last_update(time: Moment) -> Result<(), RrdError> {
    if (0..LAST_UPDATE_S_MAX).contains(&time.seconds) && time.micros < 1_000_000 {
        return Ok(());
    }
    let Moment { seconds, micros } = time;
    Err(RrdError::Invalid(format!("the time of the last update, {seconds} s and {micros} µs, is none: it is damaged")))
}

/// A file as it was read, and what of it was left out.
#[derive(Debug)]
pub struct ReadFile {
    /// The file.
    pub rrd: Rrd,
    /// Notes for the user of archives that were left out.
    pub notes: Vec<String>,
}

/// Reads `.rrd` or the XML of `rrdtool dump`, whichever it is.
pub fn read(bytes: &[u8]) -> Result<ReadFile, RrdError> {
    if bytes.starts_with(b"RRD\0") { read_binary(bytes) } else { read_xml(bytes) }
}

/// Checks what every form of a file has to satisfy before room is made for its rows.
pub(crate) fn check_definition(
    step_s: u64,
    sources: &[Source],
    archives: &[ArchiveDefinition],
) -> Result<(), RrdError> {
    let invalid = |message: String| Err(RrdError::Invalid(message));
    if step_s == 0 || i64::try_from(step_s).is_err() {
        return invalid(format!("the step is {step_s} seconds; it is at least 1"));
    }
    if sources.is_empty() || sources.len() > SOURCES_MAX {
        return invalid(format!("{} data sources; a file has 1 to {SOURCES_MAX}", sources.len()));
    }
    if archives.is_empty() || archives.len() > ARCHIVES_MAX {
        return invalid(format!("{} archives; a file has 1 to {ARCHIVES_MAX}", archives.len()));
    }
    for (number, source) in sources.iter().enumerate() {
        let is_name = |symbol: u8| symbol.is_ascii_alphanumeric() || symbol == b'_' || symbol == b'-';
        if source.name.is_empty() || source.name.len() > NAME_BYTES_MAX || !source.name.bytes().all(is_name) {
            let name = &source.name;
            return invalid(format!("data source {name:?}: a name has 1 to {NAME_BYTES_MAX} letters, digits, - and _"));
        }
        if sources.iter().take(number).any(|other| other.name == source.name) {
            return invalid(format!("duplicate data source name {:?}", source.name));
        }
    }
    let mut bytes = 0_u64;
    for archive in archives {
        let cells = archive.rows.checked_mul(sources.len() as u64);
        bytes = bytes.saturating_add(cells.and_then(|cells| cells.checked_mul(8)).unwrap_or(u64::MAX));
        let span_s = archive.points.checked_mul(step_s).and_then(|width_s| width_s.checked_mul(archive.rows));
        if archive.points == 0 || archive.rows == 0 || span_s.is_none_or(|span_s| span_s > i64::MAX as u64 / 4) {
            return invalid(format!("an archive of {} rows of {} points", archive.rows, archive.points));
        }
    }
    if bytes > ROWS_BYTES_MAX {
        return invalid(format!("the archives' rows take {bytes} bytes; at most {ROWS_BYTES_MAX}"));
    }
    Ok(())
}
