//! What `rrdtool create` says of a file, and its form as a document.

use serde_json::{Map, Value as Json, json};

use super::{
    Archive, ArchiveDefinition, Consolidation, FORECASTS, Moment, Reading, RowState, Rrd, Source, SourceKind,
    SourceState, check_definition,
};
use crate::number;
use crate::rpn::Program;
use crate::{RrdError, rpn};

/// Sources, archives, and the step that they share.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The version of the format.
    pub version: u8,
    /// Seconds of a primary data point.
    pub step_s: u64,
    /// Data sources.
    pub sources: Vec<Source>,
    /// Archives.
    pub archives: Vec<ArchiveDefinition>,
}

impl Definition {
    /// That of a file.
    pub fn of_file(rrd: &Rrd) -> Self {
        let archives = rrd.archives.iter().map(|archive| archive.definition).collect();
        Self { version: rrd.version, step_s: rrd.step_s, sources: rrd.sources.clone(), archives }
    }

    /// Reads the arguments of `rrdtool create` that begin with `DS:` and `RRA:`.
    pub fn parse(step_s: u64, arguments: &[&str]) -> Result<Self, RrdError> {
        let mut definition = Self { version: 3, step_s, sources: Vec::new(), archives: Vec::new() };
        for argument in arguments {
            let wrong = |reason: String| RrdError::Invalid(format!("{argument}: {reason}"));
            if let Some(text) = argument.strip_prefix("DS:") {
                let source = parse_source(text, &definition.sources).map_err(wrong)?;
                if matches!(source.kind, SourceKind::DCounter | SourceKind::DDerive) {
                    definition.version = 5;
                }
                definition.sources.push(source);
            } else if let Some(text) = argument.strip_prefix("RRA:") {
                definition.archives.push(parse_archive(text, step_s).map_err(wrong)?);
            } else {
                return Err(wrong("it is neither DS:… nor RRA:…".to_owned()));
            }
        }
        check_definition(step_s, &definition.sources, &definition.archives)?;
        Ok(definition)
    }

    /// A file whose last update is at a time, without data.
    pub fn empty_file(&self, last_update: Moment) -> Rrd {
        let mut rrd = self.empty_states(last_update, &self.archives);
        for archive in &mut rrd.archives {
            archive.values = vec![f64::NAN; archive.definition.rows as usize * self.sources.len()];
        }
        rrd
    }

    /// Like [`Self::empty_file`], with other archives, which have no room for rows: those that updates complete go to their sink alone.
    pub fn empty_states(&self, last_update: Moment, archives: &[ArchiveDefinition]) -> Rrd {
        let step_s = self.step_s as i64;
        let unknown_s = last_update.seconds.rem_euclid(step_s);
        let state = SourceState { last: Reading::Unknown, unknown_s: unknown_s as u64, value: f64::NAN };
        let mut files = Vec::with_capacity(archives.len());
        for definition in archives {
            let mut archive = Archive::empty(*definition, self.sources.len());
            let width_s = step_s * definition.points as i64;
            let points = (last_update.seconds - unknown_s).rem_euclid(width_s) / step_s;
            archive.states.iter_mut().for_each(|state: &mut RowState| state.unknown_points = points as u64);
            files.push(archive);
        }
        Rrd {
            version: self.version,
            step_s: self.step_s,
            last_update,
            sources: self.sources.clone(),
            states: vec![state; self.sources.len()],
            archives: files,
        }
    }

    /// The longest heartbeat of its sources.
    pub fn heartbeat_s_max(&self) -> u64 {
        self.sources.iter().map(|source| source.heartbeat_s).max().unwrap_or_default()
    }

    /// As a document.
    pub fn to_json(&self) -> Json {
        let limit = |value: f64| if value.is_finite() { json!(value) } else { Json::Null };
        let sources = self.sources.iter().map(|source| {
            json!([
                source.name,
                source.kind.name(),
                source.heartbeat_s,
                limit(source.min),
                limit(source.max),
                source.expression
            ])
        });
        let archives = self
            .archives
            .iter()
            .map(|archive| json!([archive.function.name(), archive.points, archive.rows, archive.xff]));
        let mut document = Map::new();
        document.insert("version".to_owned(), json!(self.version));
        document.insert("step".to_owned(), json!(self.step_s));
        document.insert("ds".to_owned(), sources.collect());
        document.insert("rra".to_owned(), archives.collect());
        Json::Object(document)
    }

    /// From its document.
    pub fn from_json(document: &Json) -> Result<Self, RrdError> {
        let damaged = || RrdError::invalid("the document of an RRD file's definition is damaged");
        let number = |value: &Json| value.as_u64().ok_or_else(damaged);
        let text = |value: &Json| value.as_str().map(str::to_owned).ok_or_else(damaged);
        let limit = |value: &Json| value.as_f64().unwrap_or(f64::NAN);
        let items = |name: &str| document.get(name).and_then(Json::as_array).ok_or_else(damaged);
        let mut definition = Self {
            version: number(&document["version"])? as u8,
            step_s: number(&document["step"])?,
            sources: Vec::new(),
            archives: Vec::new(),
        };
        for source in items("ds")? {
            let kind = SourceKind::from_name(&text(&source[1])?).ok_or_else(damaged)?;
            definition.sources.push(Source {
                name: text(&source[0])?,
                kind,
                heartbeat_s: number(&source[2])?,
                min: limit(&source[3]),
                max: limit(&source[4]),
                expression: text(&source[5])?,
            });
        }
        for archive in items("rra")? {
            definition.archives.push(ArchiveDefinition {
                function: Consolidation::from_name(&text(&archive[0])?).ok_or_else(damaged)?,
                points: number(&archive[1])?,
                rows: number(&archive[2])?,
                xff: limit(&archive[3]),
            });
        }
        check_definition(definition.step_s, &definition.sources, &definition.archives)?;
        Ok(definition)
    }
}

/// Reads `name:TYPE:heartbeat:min:max` or `name:COMPUTE:expression`.
fn parse_source(text: &str, before: &[Source]) -> Result<Source, String> {
    let mut parts = text.splitn(3, ':');
    let (name, kind) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let rest = parts.next().ok_or("invalid DS format: it is DS:name:TYPE:heartbeat:min:max")?;
    let kind = SourceKind::from_name(kind).ok_or_else(|| format!("invalid DS type specified ({kind})"))?;
    if name.contains('=') {
        return Err("sources that are mapped to those of another file are not supported".to_owned());
    }
    let name = name.to_owned();
    if kind == SourceKind::Compute {
        let names: Vec<&str> = before.iter().map(|source| source.name.as_str()).collect();
        Program::parse(rest, &|name| names.iter().position(|known| *known == name).map(rpn::Operand::Series))?;
        return Ok(Source { name, kind, heartbeat_s: 0, min: f64::NAN, max: f64::NAN, expression: rest.to_owned() });
    }
    let numbers: Vec<&str> = rest.split(':').collect();
    let [heartbeat, min, max] = numbers.as_slice() else {
        return Err("failed to extract heartbeat:min:max".to_owned());
    };
    let limit = |text: &str| match text {
        "U" => Ok(f64::NAN),
        _ => number::parse(text).ok_or_else(|| format!("the limit {text:?} is no number, and not U")),
    };
    let (heartbeat_s, min, max) = (number::duration(heartbeat, 1)?, limit(min)?, limit(max)?);
    if min >= max {
        return Err("min must be less than max in DS definition".to_owned());
    }
    Ok(Source { name, kind, heartbeat_s, min, max, expression: String::new() })
}

/// Reads `CF:xff:steps:rows`.
fn parse_archive(text: &str, step_s: u64) -> Result<ArchiveDefinition, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let name = parts.first().copied().unwrap_or_default();
    if FORECASTS.contains(&name) {
        return Err(format!("archives of forecasts ({name}) are not supported"));
    }
    let function =
        Consolidation::from_name(name).ok_or_else(|| format!("Unrecognized consolidation function {name}"))?;
    let [_, xff, points, rows] = parts.as_slice() else {
        return Err("it is RRA:CF:xff:steps:rows".to_owned());
    };
    let xff =
        number::parse(xff).filter(|xff| (0.0..1.0).contains(xff)).ok_or("Invalid xff: must be between 0 and 1")?;
    let points = number::duration(points, step_s).map_err(|error| format!("Invalid step {points}: {error}"))?;
    let width_s = step_s.checked_mul(points).ok_or("a row is too long")?;
    let rows = number::duration(rows, width_s).map_err(|error| format!("Invalid row count {rows}: {error}"))?;
    Ok(ArchiveDefinition { function, points, rows, xff })
}
