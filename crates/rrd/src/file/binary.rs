//! `.rrd` as 64-bit little-endian machines write it, versions 0001 to 0005.
//!
//! A head of 128 bytes, definitions of sources and of archives (120 bytes each), the time of the last update, states of sources (112
//! bytes), states of rows (80 bytes for each source of each archive), the newest row of each archive, then the rows as floats.

use super::compute;
use super::{
    Archive, ArchiveDefinition, Consolidation, FORECASTS, Moment, ReadFile, Reading, RowState, Rrd, Source, SourceKind,
    SourceState, check_definition, check_last_update,
};
use crate::RrdError;

const COOKIE: &[u8; 4] = b"RRD\0";
const FLOAT_COOKIE: f64 = 8.642_135e130;
const HEAD_BYTES: usize = 128;
const DEFINITION_BYTES: usize = 120;
const SOURCE_STATE_BYTES: usize = 112;
const ROW_STATE_BYTES: usize = 80;
const LAST_READING_BYTES: usize = 30;
/// Parameters of a definition or a state.
const PARAMETERS: usize = 10;
/// The parameters of a row's state that every function has.
const VALUE: usize = 0;
const UNKNOWN: usize = 1;
const PRIMARY: usize = 8;
const SECONDARY: usize = 9;

/// Reads bytes one after another.
struct Bytes<'a> {
    rest: &'a [u8],
    read: usize,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], RrdError> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            let message =
                format!("the file ends at byte {}, within its head: it is damaged", self.read + self.rest.len());
            return Err(RrdError::Invalid(message));
        };
        (self.rest, self.read) = (rest, self.read + count);
        Ok(taken)
    }

    fn word(&mut self) -> Result<u64, RrdError> {
        Ok(self.take(8)?.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    fn words(&mut self) -> Result<[u64; PARAMETERS], RrdError> {
        let mut words = [0; PARAMETERS];
        for word in &mut words {
            *word = self.word()?;
        }
        Ok(words)
    }

    /// A text in a field of its own.
    fn text(&mut self, count: usize) -> Result<String, RrdError> {
        let bytes = self.take(count)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(count);
        Ok(String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned())
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<[u8; 8]> {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied()
}

/// The version of a file that is one of this kind of machine.
fn check_head(bytes: &[u8]) -> Result<u8, RrdError> {
    let dump = "run `rrdtool dump FILE.rrd > FILE.xml` on a machine like the one that wrote it, and use the XML";
    if !bytes.starts_with(COOKIE) {
        return Err(RrdError::invalid("it is no RRD file: it does not begin with RRD"));
    }
    let version = bytes.get(4..8).and_then(|text| std::str::from_utf8(text).ok()).and_then(|text| text.parse().ok());
    let Some(version @ 1..=5) = version else {
        return Err(RrdError::Invalid(format!("the version of the file is none of 0001 to 0005: {dump}")));
    };
    let cookie = FLOAT_COOKIE.to_le_bytes();
    if word_at(bytes, 16) == Some(cookie) {
        return Ok(version);
    }
    let reversed = FLOAT_COOKIE.to_be_bytes();
    if [12, 16].iter().any(|at| word_at(bytes, *at) == Some(reversed)) {
        return Err(RrdError::Invalid(format!("the file was written on a big-endian machine: {dump}")));
    }
    if word_at(bytes, 12) == Some(cookie) {
        return Err(RrdError::Invalid(format!("the file was written on a 32-bit machine: {dump}")));
    }
    Err(RrdError::Invalid(format!("the file is of another kind of machine, or damaged: {dump}")))
}

/// An archive's definition as it stands in the file; of the functions of forecasting, only the size counts.
struct StoredArchive {
    function: Result<Consolidation, String>,
    definition: ArchiveDefinition,
}

/// Reads a file.
pub fn read_binary(bytes: &[u8]) -> Result<ReadFile, RrdError> {
    let version = check_head(bytes)?;
    let mut input = Bytes { rest: bytes, read: 0 };
    input.take(24)?;
    let (source_count, archive_count, step_s) = (input.word()?, input.word()?, input.word()?);
    input.take(HEAD_BYTES - 48)?;
    let least = DEFINITION_BYTES as u64;
    if source_count.saturating_add(archive_count).saturating_mul(least) > bytes.len() as u64 {
        let message =
            format!("{source_count} sources and {archive_count} archives do not fit its {} bytes", bytes.len());
        return Err(RrdError::Invalid(message));
    }
    let sources = read_sources(&mut input, source_count as usize)?;
    let mut archives = Vec::with_capacity(archive_count as usize);
    for _ in 0..archive_count {
        archives.push(read_archive(&mut input)?);
    }
    let definitions: Vec<ArchiveDefinition> = archives.iter().map(|archive| archive.definition).collect();
    check_definition(step_s, &sources, &definitions)?;
    let seconds = input.word()? as i64;
    let micros = if version >= 3 { u32::try_from(input.word()?).unwrap_or(u32::MAX) } else { 0 };
    check_last_update(Moment { seconds, micros })?;
    let mut states = Vec::with_capacity(sources.len());
    for source in &sources {
        states.push(read_source_state(&mut input, source.kind)?);
    }
    let mut rrd =
        Rrd { version, step_s, last_update: Moment { seconds, micros }, sources, states, archives: Vec::new() };
    let notes = read_rows(&mut input, &archives, &mut rrd)?;
    if rrd.archives.is_empty() {
        return Err(RrdError::invalid("all its archives are of forecasts, which are not read"));
    }
    Ok(ReadFile { rrd, notes })
}

fn read_sources(input: &mut Bytes<'_>, count: usize) -> Result<Vec<Source>, RrdError> {
    let mut sources: Vec<Source> = Vec::with_capacity(count);
    for number in 0..count {
        let (name, kind) = (input.text(20)?, input.text(20)?);
        let kind = SourceKind::from_name(&kind).ok_or_else(|| {
            RrdError::Invalid(format!("data source {number} ({name}) is of the unknown type {kind:?}"))
        })?;
        let parameters = input.words()?;
        let [heartbeat_s, min, max, ..] = parameters;
        sources.push(if kind == SourceKind::Compute {
            let expression = compute::unpack(&parameters, &sources)
                .map_err(|error| RrdError::Invalid(format!("data source {number} ({name}): {error}")))?;
            Source { name, kind, heartbeat_s: 0, min: f64::NAN, max: f64::NAN, expression }
        } else {
            let (min, max) = (f64::from_bits(min), f64::from_bits(max));
            Source { name, kind, heartbeat_s, min, max, expression: String::new() }
        });
    }
    Ok(sources)
}

fn read_archive(input: &mut Bytes<'_>) -> Result<StoredArchive, RrdError> {
    let name = input.text(20)?;
    input.take(4)?;
    let (rows, points) = (input.word()?, input.word()?);
    let [xff, ..] = input.words()?;
    let function = Consolidation::from_name(&name);
    if function.is_none() && !FORECASTS.contains(&name.as_str()) {
        return Err(RrdError::Invalid(format!("an archive has the unknown consolidation function {name:?}")));
    }
    let kept = function.unwrap_or(Consolidation::Average);
    let definition = ArchiveDefinition { function: kept, points, rows, xff: f64::from_bits(xff) };
    Ok(StoredArchive { function: function.ok_or(name), definition })
}

fn read_source_state(input: &mut Bytes<'_>, kind: SourceKind) -> Result<SourceState, RrdError> {
    let last = Reading::of_state(kind, &input.text(LAST_READING_BYTES)?);
    input.take(SOURCE_STATE_BYTES - LAST_READING_BYTES - 8 * PARAMETERS)?;
    let [unknown_s, value, ..] = input.words()?;
    Ok(SourceState { last, unknown_s, value: f64::from_bits(value) })
}

/// Reads states of rows, positions and rows; returns notes of archives that were left out.
fn read_rows(input: &mut Bytes<'_>, stored: &[StoredArchive], rrd: &mut Rrd) -> Result<Vec<String>, RrdError> {
    let sources = rrd.sources.len();
    let mut states = Vec::with_capacity(stored.len());
    for _ in stored {
        let mut of_archive = Vec::with_capacity(sources);
        for _ in 0..sources {
            let words = input.words()?;
            let float = |index: usize| words.get(index).copied().map_or(f64::NAN, f64::from_bits);
            let unknown_points = words.get(UNKNOWN).copied().unwrap_or_default();
            of_archive.push(RowState {
                value: float(VALUE),
                unknown_points,
                primary: float(PRIMARY),
                secondary: float(SECONDARY),
            });
        }
        states.push(of_archive);
    }
    let newest = stored.iter().map(|_| input.word()).collect::<Result<Vec<u64>, RrdError>>()?;
    let mut notes = Vec::new();
    for ((number, archive), (states, newest)) in stored.iter().enumerate().zip(states.into_iter().zip(newest)) {
        let definition = archive.definition;
        let bytes = input.take(definition.rows as usize * sources * 8)?;
        if newest >= definition.rows {
            let message = format!("archive {number} has {} rows, and its newest is {newest}", definition.rows);
            return Err(RrdError::Invalid(message));
        }
        match &archive.function {
            Err(name) => notes.push(format!("archive {number} ({name}, forecasts) was left out")),
            Ok(_) => {
                let floats = bytes.chunks_exact(8).filter_map(|bytes| bytes.first_chunk());
                let values = floats.map(|bytes| f64::from_le_bytes(*bytes)).collect();
                rrd.archives.push(Archive { definition, states, values, newest: newest as usize });
            }
        }
    }
    Ok(notes)
}

/// Writes a file.
pub fn write_binary(rrd: &Rrd) -> Result<Vec<u8>, RrdError> {
    let version = rrd.version.max(needed_version(rrd));
    let mut out = Vec::new();
    out.extend_from_slice(COOKIE);
    out.extend_from_slice(format!("{version:04}\0").as_bytes());
    out.resize(16, 0);
    out.extend_from_slice(&FLOAT_COOKIE.to_le_bytes());
    for word in [rrd.sources.len() as u64, rrd.archives.len() as u64, rrd.step_s] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.resize(HEAD_BYTES, 0);
    for (number, source) in rrd.sources.iter().enumerate() {
        push_text(&mut out, &source.name, 20);
        push_text(&mut out, source.kind.name(), 20);
        let mut words = [0; PARAMETERS];
        if source.kind == SourceKind::Compute {
            words = compute::pack(&source.expression, rrd.sources.get(..number).unwrap_or_default())?;
        } else {
            [words[0], words[1], words[2]] = [source.heartbeat_s, source.min.to_bits(), source.max.to_bits()];
        }
        push_words(&mut out, &words);
    }
    for archive in &rrd.archives {
        let definition = &archive.definition;
        push_text(&mut out, definition.function.name(), 20);
        out.extend_from_slice(&[0; 4]);
        push_words(&mut out, &[definition.rows, definition.points, definition.xff.to_bits()]);
        push_words(&mut out, &[0; PARAMETERS - 1]);
    }
    push_words(&mut out, &[rrd.last_update.seconds as u64]);
    if version >= 3 {
        push_words(&mut out, &[u64::from(rrd.last_update.micros)]);
    }
    push_states(&mut out, rrd);
    for archive in &rrd.archives {
        out.extend(archive.values.iter().flat_map(|value| value.to_le_bytes()));
    }
    Ok(out)
}

fn push_states(out: &mut Vec<u8>, rrd: &Rrd) {
    for state in &rrd.states {
        push_text(out, &state.last.spelled(), LAST_READING_BYTES);
        out.extend_from_slice(&[0; SOURCE_STATE_BYTES - LAST_READING_BYTES - 8 * PARAMETERS]);
        push_words(out, &[state.unknown_s, state.value.to_bits()]);
        push_words(out, &[0; PARAMETERS - 2]);
    }
    for state in rrd.archives.iter().flat_map(|archive| &archive.states) {
        let mut words = [0; ROW_STATE_BYTES / 8];
        words[VALUE] = state.value.to_bits();
        words[UNKNOWN] = state.unknown_points;
        words[PRIMARY] = state.primary.to_bits();
        words[SECONDARY] = state.secondary.to_bits();
        push_words(out, &words);
    }
    for archive in &rrd.archives {
        push_words(out, &[archive.newest as u64]);
    }
}

/// The least version that has all that a file uses.
fn needed_version(rrd: &Rrd) -> u8 {
    let is_newest = |source: &Source| matches!(source.kind, SourceKind::DCounter | SourceKind::DDerive);
    if rrd.sources.iter().any(is_newest) { 5 } else { 3 }
}

fn push_words(out: &mut Vec<u8>, words: &[u64]) {
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// A text in a field of its own, which ends with a zero.
fn push_text(out: &mut Vec<u8>, text: &str, bytes: usize) {
    let end = out.len() + bytes;
    out.extend(text.bytes().take(bytes - 1));
    out.resize(end, 0);
}

/// Bytes before the first row, as `rrdtool info` tells.
pub(crate) fn head_bytes(rrd: &Rrd) -> usize {
    let (sources, archives) = (rrd.sources.len(), rrd.archives.len());
    let live = if rrd.version >= 3 { 16 } else { 8 };
    HEAD_BYTES
        + (sources + archives) * DEFINITION_BYTES
        + live
        + sources * SOURCE_STATE_BYTES
        + sources * archives * ROW_STATE_BYTES
        + archives * 8
}
