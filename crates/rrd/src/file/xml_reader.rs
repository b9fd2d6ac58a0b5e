//! Reads the XML that `rrdtool dump` writes, of any version. Times of rows stand in comments alone: they follow from the last update.

use quick_xml::Reader;
use quick_xml::events::Event;

use super::{
    Archive, ArchiveDefinition, Consolidation, FORECASTS, Moment, ROWS_BYTES_MAX, ReadFile, Reading, RowState, Rrd,
    SOURCES_MAX, Source, SourceKind, SourceState, check_definition, check_last_update,
};
use crate::{RrdError, number};

/// How deep elements may be in one another.
const DEPTH_MAX: usize = 16;

/// A data source as far as it was read.
#[derive(Default)]
struct PartSource {
    name: String,
    kind: String,
    heartbeat_s: u64,
    min: Option<f64>,
    max: Option<f64>,
    expression: String,
    last: String,
    value: Option<f64>,
    unknown_s: u64,
}

/// An archive as far as it was read.
#[derive(Default)]
struct PartArchive {
    function: String,
    points: u64,
    xff: f64,
    states: Vec<RowState>,
    rows: u64,
    values: Vec<f64>,
}

/// A document as far as it was read.
#[derive(Default)]
struct Document {
    version: u8,
    step_s: u64,
    last_update: Moment,
    sources: Vec<PartSource>,
    archives: Vec<PartArchive>,
    cells: u64,
    is_rrd: bool,
}

/// Reads a document.
pub fn read_xml(bytes: &[u8]) -> Result<ReadFile, RrdError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| RrdError::Invalid(format!("neither .rrd nor XML: byte {} is no text", error.valid_up_to())))?;
    let mut reader = Reader::from_str(text);
    let (mut path, mut content, mut document): (Vec<String>, String, Document) = Default::default();
    loop {
        let position = reader.buffer_position();
        let at = |reason: &str| RrdError::Invalid(format!("XML at byte {position}: {reason}"));
        match reader.read_event().map_err(|error| at(&error.to_string()))? {
            Event::Start(element) => {
                if path.len() >= DEPTH_MAX {
                    return Err(at("elements are nested too deep"));
                }
                path.push(String::from_utf8_lossy(element.name().as_ref()).into_owned());
                content.clear();
                document.begin(&path).map_err(|reason| at(&reason))?;
            }
            Event::Text(piece) => {
                content.push_str(&piece.decode().map_err(|error| at(&error.to_string()))?);
            }
            Event::End(_) => {
                document.end(&path, content.trim()).map_err(|reason| at(&reason))?;
                path.pop();
                content.clear();
            }
            Event::GeneralRef(_) => return Err(at("a reference to an entity, which dumps do not have")),
            Event::Eof => break,
            _ => {}
        }
    }
    if !document.is_rrd || !path.is_empty() {
        return Err(RrdError::invalid("neither .rrd nor a whole dump: it has no element <rrd>, or ends within it"));
    }
    document.finish()
}

fn path_text(path: &[String]) -> String {
    path.join("/")
}

impl Document {
    fn begin(&mut self, path: &[String]) -> Result<(), String> {
        match path_text(path).as_str() {
            "rrd" => self.is_rrd = true,
            "rrd/ds" if self.sources.len() >= SOURCES_MAX => return Err("too many data sources".to_owned()),
            "rrd/ds" => self.sources.push(PartSource::default()),
            "rrd/rra" if self.archives.len() >= super::ARCHIVES_MAX => return Err("too many archives".to_owned()),
            "rrd/rra" => self.archives.push(PartArchive::default()),
            "rrd/rra/cdp_prep/ds" => {
                let archive = self.archives.last_mut().ok_or("a state outside of an archive")?;
                if archive.states.len() >= self.sources.len() {
                    return Err("more states than data sources".to_owned());
                }
                let [value, primary, secondary] = [f64::NAN; 3];
                archive.states.push(RowState { value, unknown_points: 0, primary, secondary });
            }
            "rrd/rra/database/row" => {
                let archive = self.archives.last_mut().ok_or("a row outside of an archive")?;
                archive.rows += 1;
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, path: &[String], text: &str) -> Result<(), String> {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        match names.as_slice() {
            ["rrd", "version"] => self.version = whole(text)? as u8,
            ["rrd", "step"] => self.step_s = whole(text)?,
            ["rrd", "lastupdate"] => self.last_update = moment(text)?,
            ["rrd", "ds", name] => {
                self.sources.last_mut().ok_or("an element outside of a data source")?.set(name, text)?;
            }
            ["rrd", "rra", name] | ["rrd", "rra", "params", name] => {
                self.archives.last_mut().ok_or("an element outside of an archive")?.set(name, text)?;
            }
            ["rrd", "rra", "cdp_prep", "ds", name] => {
                let state = self.archives.last_mut().and_then(|archive| archive.states.last_mut());
                set_state(state.ok_or("a state outside of an archive")?, name, text)?;
            }
            ["rrd", "rra", "database", "row", "v"] => {
                self.cells += 1;
                if self.cells * 8 > ROWS_BYTES_MAX {
                    return Err(format!("the rows take more than {ROWS_BYTES_MAX} bytes"));
                }
                let archive = self.archives.last_mut().ok_or("a value outside of an archive")?;
                archive.values.push(float(text)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<ReadFile, RrdError> {
        let mut rrd = Rrd {
            version: self.version.clamp(3, 5),
            step_s: self.step_s,
            last_update: self.last_update,
            sources: Vec::with_capacity(self.sources.len()),
            states: Vec::with_capacity(self.sources.len()),
            archives: Vec::new(),
        };
        for part in self.sources {
            let (source, state) = part.finish()?;
            rrd.sources.push(source);
            rrd.states.push(state);
        }
        let (mut notes, count) = (Vec::new(), rrd.sources.len());
        for (number, part) in self.archives.into_iter().enumerate() {
            if FORECASTS.contains(&part.function.as_str()) {
                notes.push(format!("archive {number} ({}, forecasts) was left out", part.function));
            } else {
                rrd.archives.push(part.finish(number, count)?);
            }
        }
        let definitions: Vec<ArchiveDefinition> = rrd.archives.iter().map(|archive| archive.definition).collect();
        check_definition(rrd.step_s, &rrd.sources, &definitions)?;
        check_last_update(rrd.last_update)?;
        Ok(ReadFile { rrd, notes })
    }
}

impl PartSource {
    fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        match name {
            "name" => text.clone_into(&mut self.name),
            "type" => text.clone_into(&mut self.kind),
            "minimal_heartbeat" => self.heartbeat_s = whole(text)?,
            "min" => self.min = Some(float(text)?),
            "max" => self.max = Some(float(text)?),
            "cdef" => text.clone_into(&mut self.expression),
            "last_ds" => text.clone_into(&mut self.last),
            "value" => self.value = Some(float(text)?),
            "unknown_sec" => self.unknown_s = whole(text)?,
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<(Source, SourceState), RrdError> {
        let kind = SourceKind::from_name(&self.kind).ok_or_else(|| {
            RrdError::Invalid(format!("data source {:?} is of the unknown type {:?}", self.name, self.kind))
        })?;
        let (min, max) = (self.min.unwrap_or(f64::NAN), self.max.unwrap_or(f64::NAN));
        let source =
            Source { name: self.name, kind, heartbeat_s: self.heartbeat_s, min, max, expression: self.expression };
        let last = Reading::of_state(kind, &self.last);
        Ok((source, SourceState { last, unknown_s: self.unknown_s, value: self.value.unwrap_or(f64::NAN) }))
    }
}

impl PartArchive {
    fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        match name {
            "cf" => text.clone_into(&mut self.function),
            "pdp_per_row" => self.points = whole(text)?,
            "xff" => self.xff = float(text)?,
            _ => {}
        }
        Ok(())
    }

    fn finish(self, number: usize, sources: usize) -> Result<Archive, RrdError> {
        let wrong = |reason: String| RrdError::Invalid(format!("archive {number}: {reason}"));
        let function = Consolidation::from_name(&self.function)
            .ok_or_else(|| wrong(format!("the consolidation function {:?} is unknown", self.function)))?;
        if self.values.len() as u64 != self.rows * sources as u64 || self.rows == 0 {
            return Err(wrong(format!("{} rows of {sources} values, but {} values", self.rows, self.values.len())));
        }
        let definition = ArchiveDefinition { function, points: self.points, rows: self.rows, xff: self.xff };
        let empty = Archive::empty(definition, sources);
        let states = if self.states.len() == sources { self.states } else { empty.states };
        Ok(Archive { definition, states, values: self.values, newest: self.rows as usize - 1 })
    }
}

fn set_state(state: &mut RowState, name: &str, text: &str) -> Result<(), String> {
    match name {
        "value" => state.value = float(text)?,
        "unknown_datapoints" => state.unknown_points = whole(text)?,
        "primary_value" => state.primary = float(text)?,
        "secondary_value" => state.secondary = float(text)?,
        _ => {}
    }
    Ok(())
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no whole number"))
}

/// A time in seconds, perhaps with a fraction.
fn moment(text: &str) -> Result<Moment, String> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds = seconds.parse().map_err(|_| format!("{text:?} is no time in seconds"))?;
    let micros = format!("{fraction:0<6}").get(..6).and_then(|digits| digits.parse().ok());
    Ok(Moment { seconds, micros: micros.ok_or_else(|| format!("{text:?} is no time in seconds"))? })
}

fn float(text: &str) -> Result<f64, String> {
    number::parse(text).ok_or_else(|| format!("{text:?} is no number"))
}
