//! Paths of files to measurements and labels.
//!
//! A pattern is the text of a path with names in braces: `{host}/{plugin}[-{instance}]/{measurement}.rrd`. A name stands for characters
//! other than `/`, a name with a star (`{path*}`) for any; what is in brackets may be missing. `{measurement}` is the measurement, every
//! other name a label. A path that no pattern matches is of the measurement `rrd`, with the label `path`.

use std::fmt::Write;

use model::Labels;
use regex::Regex;

use crate::RrdError;

/// The name that is no label.
const MEASUREMENT: &str = "measurement";
/// The measurement of files whose pattern names none.
const DEFAULT_MEASUREMENT: &str = "rrd";
/// The label of paths that no pattern matches.
const PATH: &str = "path";
/// The ending that paths have beside the label.
const ENDING: &str = ".rrd";
/// The label that tells an archive's series from the file's own.
pub(crate) const ARCHIVE_LABEL: &str = "rrd_archive";

/// A measurement and labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The measurement.
    pub measurement: String,
    /// The labels.
    pub labels: Labels,
}

/// A pattern.
#[derive(Debug, Clone)]
struct Pattern {
    expression: Regex,
    names: Vec<String>,
}

/// Patterns, of which the first that matches counts.
#[derive(Debug, Clone, Default)]
pub struct Patterns(Vec<Pattern>);

impl Patterns {
    /// Reads patterns.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, RrdError> {
        texts.into_iter().map(Pattern::parse).collect::<Result<Vec<Pattern>, RrdError>>().map(Self)
    }

    /// The identity of a path.
    pub fn identity(&self, path: &str) -> Identity {
        self.0.iter().find_map(|pattern| pattern.identity(path)).unwrap_or_else(|| default_identity(path))
    }
}

/// The identity of a path that no pattern matches.
pub(crate) fn default_identity(path: &str) -> Identity {
    let stem = path.strip_suffix(ENDING).filter(|stem| !stem.is_empty()).unwrap_or(path);
    Identity { measurement: DEFAULT_MEASUREMENT.to_owned(), labels: Labels::from_sorted([(PATH, stem)]) }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, RrdError> {
        let wrong = |reason: &str| RrdError::Invalid(format!("the pattern {text:?}: {reason}"));
        let (mut expression, mut names, mut rest, mut depth) = (String::from("^"), Vec::new(), text, 0_u32);
        while let Some(first) = rest.chars().next() {
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            match first {
                '{' => {
                    let (name, after) = rest.split_once('}').ok_or_else(|| wrong("a brace does not end"))?;
                    rest = after;
                    let (name, any) = name.strip_suffix('*').map_or((name, "[^/]"), |name| (name, "."));
                    check_name(name, &names).map_err(|reason| wrong(&reason))?;
                    // Writing to a string cannot fail.
                    let _ = write!(expression, "(?P<{name}>{any}+?)");
                    names.push(name.to_owned());
                }
                '[' => {
                    depth += 1;
                    expression.push_str("(?:");
                }
                ']' => {
                    depth = depth.checked_sub(1).ok_or_else(|| wrong("a bracket ends that did not begin"))?;
                    expression.push_str(")?");
                }
                _ => expression.push_str(&regex::escape(first.encode_utf8(&mut [0; 4]))),
            }
        }
        if depth > 0 {
            return Err(wrong("a bracket does not end"));
        }
        if names.is_empty() {
            return Err(wrong("it has no {name}: all files would be one series"));
        }
        expression.push('$');
        let expression = Regex::new(&expression).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { expression, names })
    }

    fn identity(&self, path: &str) -> Option<Identity> {
        let captures = self.expression.captures(path)?;
        let text = |name: &str| captures.name(name).map(|text| text.as_str());
        let measurement = text(MEASUREMENT).unwrap_or(DEFAULT_MEASUREMENT).to_owned();
        let labels = self.names.iter().filter(|name| *name != MEASUREMENT);
        let labels = labels.filter_map(|name| Some((name.as_str(), text(name)?)));
        Some(Identity { measurement, labels: Labels::from_pairs(labels).ok()? })
    }
}

fn check_name(name: &str, before: &[String]) -> Result<(), String> {
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_name =
        name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit()) && name.bytes().next().is_some_and(is_start);
    if !is_name || name.starts_with("__") || name == ARCHIVE_LABEL {
        return Err(format!("{name:?} cannot be the name of a label"));
    }
    if before.iter().any(|other| other == name) {
        return Err(format!("{name:?} is there twice"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(pattern: &str, path: &str) -> (String, String) {
        let identity = Patterns::parse([pattern]).unwrap().identity(path);
        let labels: Vec<String> = identity.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (identity.measurement, labels.join(","))
    }

    #[test]
    fn paths_become_measurements_and_labels() {
        let collectd = "{host}/{plugin}[-{plugin_instance}]/{measurement}[-{type_instance}].rrd";
        for (pattern, path, measurement, labels) in [
            (collectd, "web1/cpu-0/cpu-user.rrd", "cpu", "host=web1,plugin=cpu,plugin_instance=0,type_instance=user"),
            (collectd, "web1/load/load.rrd", "load", "host=web1,plugin=load"),
            (collectd, "web1/df-var-log/used.rrd", "used", "host=web1,plugin=df,plugin_instance=var-log"),
            (collectd, "deeper/web1/load/load.rrd", "rrd", "path=deeper/web1/load/load"),
            ("{site*}/{host}/{measurement}.rrd", "a/b/c/d.rrd", "d", "host=c,site=a/b"),
            ("{path*}.rrd", "x.rrd", "rrd", "path=x"),
        ] {
            assert_eq!(identity(pattern, path), (measurement.to_owned(), labels.to_owned()), "{pattern} {path}");
        }
    }

    #[test]
    fn bad_patterns_are_refused() {
        for bad in ["a.rrd", "{a", "{a}{a}", "{1}", "{}", "[{a}", "{a}]", "{__name__}", "{rrd_archive}", "{a b}"] {
            assert!(Patterns::parse([bad]).is_err(), "{bad}");
        }
    }
}
