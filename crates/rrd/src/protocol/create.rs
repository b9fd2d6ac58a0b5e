//! Arguments of `CREATE` and `TUNE`.

use crate::RrdError;
use crate::catalog::{Limit, SourceChange};
use crate::file::{Definition, Moment};
use crate::number;

/// Seconds of a step that is not named.
const STEP_S: u64 = 300;
/// The earliest time that a file may begin, in seconds.
const EARLIEST_S: i64 = 3_600 * 24 * 365 * 10;
/// The latest.
const LATEST_S: i64 = 1 << 40;
/// How long before now a file begins whose beginning is not named, in seconds.
const BEFORE_NOW_S: i64 = 10;

/// A file to make.
pub(super) struct Creation {
    pub(super) definition: Definition,
    pub(super) begin: Moment,
    pub(super) replaces: bool,
}

/// Reads the arguments of `CREATE` after the path.
pub(super) fn creation(arguments: &[String], now: Moment) -> Result<Creation, RrdError> {
    let (mut step_s, mut begin_s, mut replaces) = (STEP_S, now.seconds - BEFORE_NOW_S, true);
    let (mut definitions, mut rest) = (Vec::new(), arguments.iter());
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().map(String::as_str).unwrap_or_default();
        match argument.as_str() {
            "-O" => replaces = false,
            "-s" => {
                let text = value();
                step_s = number::duration(text, 1).map_err(|error| RrdError::Invalid(format!("step size: {error}")))?;
            }
            "-b" => {
                let text = value();
                begin_s = text
                    .parse()
                    .map_err(|_| RrdError::Invalid(format!("start time: {text:?} is no time in seconds")))?;
            }
            "-r" | "-t" => {
                return Err(RrdError::invalid("making a file of other files (--source, --template) is not supported"));
            }
            text if text.starts_with("DS:") || text.starts_with("RRA:") => definitions.push(text),
            text => return Err(RrdError::Invalid(format!("CREATE does not know {text:?}"))),
        }
    }
    if !(EARLIEST_S..=LATEST_S).contains(&begin_s) {
        return Err(RrdError::invalid("The first entry must be after 1980."));
    }
    Ok(Creation {
        definition: Definition::parse(step_s, &definitions)?,
        begin: Moment::from_seconds(begin_s),
        replaces,
    })
}

/// Reads the arguments of `TUNE` after the path.
pub(super) fn changes(arguments: &[String]) -> Result<Vec<SourceChange>, RrdError> {
    let (mut changes, mut rest) = (Vec::new(), arguments.iter());
    while let Some(option) = rest.next() {
        let (option, value) = match option.split_once('=') {
            Some((option, value)) => (option, value),
            None => (option.as_str(), rest.next().map(String::as_str).unwrap_or_default()),
        };
        let (source, value) =
            value.split_once(':').ok_or_else(|| RrdError::Invalid(format!("{option} {value:?}: it is ds:value")))?;
        let limit = || match value {
            "U" => Ok(f64::NAN),
            _ => number::parse(value).ok_or_else(|| RrdError::Invalid(format!("{value:?} is no number, and not U"))),
        };
        let limit = match option {
            "-h" | "--heartbeat" => Limit::Heartbeat(number::duration(value, 1).map_err(RrdError::Invalid)?),
            "-i" | "--minimum" => Limit::Min(limit()?),
            "-a" | "--maximum" => Limit::Max(limit()?),
            _ => return Err(RrdError::Invalid(format!("TUNE changes -h, -i and -a; {option:?} is not supported"))),
        };
        changes.push(SourceChange { source: source.to_owned(), limit });
    }
    if changes.is_empty() {
        return Err(RrdError::invalid("TUNE needs something to change: -h, -i or -a"));
    }
    Ok(changes)
}
