//! The settings of a key in a command: `RETENTION`, `ENCODING`, `CHUNK_SIZE`, `DUPLICATE_POLICY`, `IGNORE`, `LABELS`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::CommandError;
use super::arguments::Arguments;
use crate::series::KEY_LABEL;
use crate::series::settings::{DuplicatePolicy, Ignore, Settings};

/// Settings as a command names them; what it does not name is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Options {
    retention_ms: Option<i64>,
    duplicate_policy: Option<DuplicatePolicy>,
    /// `ON_DUPLICATE`: for this sample alone.
    pub(super) on_duplicate: Option<DuplicatePolicy>,
    chunk_bytes: Option<i64>,
    is_uncompressed: Option<bool>,
    ignore: Option<Ignore>,
    labels: Option<BTreeMap<Arc<str>, Arc<str>>>,
    /// `TIMESTAMP`: of an increment.
    pub(super) timestamp: Option<TimeArgument>,
}

/// A time as clients write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeArgument {
    /// `*`
    Now,
    /// Milliseconds since the Unix epoch.
    Ms(i64),
}

impl TimeArgument {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, CommandError> {
        if bytes == b"*" {
            return Ok(Self::Now);
        }
        let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok());
        let number = number.filter(|number| *number >= 0);
        number.map(Self::Ms).ok_or(CommandError::series("TSDB: invalid timestamp"))
    }

    pub(super) const fn ms(self, now_ms: i64) -> i64 {
        match self {
            Self::Now => now_ms,
            Self::Ms(time_ms) => time_ms,
        }
    }
}

/// A value of a sample.
pub(super) fn value(bytes: &[u8]) -> Result<f64, CommandError> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('_'));
    text.and_then(|text| text.parse().ok()).ok_or(CommandError::series("TSDB: invalid value"))
}

const WRONG_CHUNK: CommandError =
    CommandError::series("TSDB: CHUNK_SIZE value must be a multiple of 8 in the range [48 .. 1048576]");

impl Options {
    /// Reads options up to the end. LABELS takes all that is after it.
    pub(super) fn parse(arguments: &mut Arguments<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        while arguments.len() > 0 {
            if arguments.take("LABELS") {
                options.labels = Some(labels(arguments)?);
            } else {
                options.parse_one(arguments)?;
            }
        }
        Ok(options)
    }

    fn parse_one(&mut self, arguments: &mut Arguments<'_>) -> Result<(), CommandError> {
        let policy = |arguments: &mut Arguments<'_>, error| {
            let name = arguments.text()?;
            DuplicatePolicy::from_name(name).ok_or(CommandError::series(error)).map(Some)
        };
        if arguments.take("RETENTION") {
            let retention_ms: i64 = arguments.number("TSDB: Couldn't parse RETENTION")?;
            if retention_ms < 0 {
                return Err(CommandError::series("TSDB: Couldn't parse RETENTION"));
            }
            self.retention_ms = Some(retention_ms);
        } else if arguments.take("CHUNK_SIZE") {
            let bytes: i64 = arguments.number("TSDB: Couldn't parse CHUNK_SIZE")?;
            if bytes % 8 != 0 || !(48..=1 << 20).contains(&bytes) {
                return Err(WRONG_CHUNK);
            }
            self.chunk_bytes = Some(bytes);
        } else if arguments.take("ENCODING") {
            self.is_uncompressed = Some(match arguments.text()?.to_ascii_uppercase().as_str() {
                "COMPRESSED" => false,
                "UNCOMPRESSED" => true,
                _ => return Err(CommandError::series("TSDB: Couldn't parse ENCODING")),
            });
        } else if arguments.take("UNCOMPRESSED") {
            self.is_uncompressed = Some(true);
        } else if arguments.take("DUPLICATE_POLICY") {
            self.duplicate_policy = policy(arguments, "TSDB: Unknown DUPLICATE_POLICY")?;
        } else if arguments.take("ON_DUPLICATE") {
            self.on_duplicate = policy(arguments, "TSDB: Unknown ON_DUPLICATE policy")?;
        } else if arguments.take("IGNORE") {
            const ERROR: &str = "TSDB: Couldn't parse IGNORE";
            let (time_ms, value): (i64, f64) = (arguments.number(ERROR)?, arguments.number(ERROR)?);
            if time_ms < 0 || !value.is_finite() || value < 0.0 {
                return Err(CommandError::series(ERROR));
            }
            self.ignore = Some(Ignore { time_ms, value });
        } else if arguments.take("TIMESTAMP") {
            self.timestamp = Some(TimeArgument::parse(arguments.next().ok_or(CommandError::Syntax)?)?);
        } else {
            let name = arguments.text()?;
            return Err(CommandError::other(format!("TSDB: unknown argument {name:?}")));
        }
        Ok(())
    }

    /// The settings of a key that is made.
    pub(super) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        self.apply(&mut settings);
        settings
    }

    /// Changes what is named.
    pub(super) fn apply(&self, settings: &mut Settings) {
        settings.retention_ms = self.retention_ms.unwrap_or(settings.retention_ms);
        settings.duplicate_policy = self.duplicate_policy.or(settings.duplicate_policy);
        settings.chunk_bytes = self.chunk_bytes.or(settings.chunk_bytes);
        settings.is_uncompressed = self.is_uncompressed.unwrap_or(settings.is_uncompressed);
        settings.ignore = self.ignore.unwrap_or(settings.ignore);
        if let Some(labels) = &self.labels {
            settings.labels.clone_from(labels);
        }
    }
}

/// Names and values up to the end. A value that is empty is none.
fn labels(arguments: &mut Arguments<'_>) -> Result<BTreeMap<Arc<str>, Arc<str>>, CommandError> {
    const ERROR: CommandError = CommandError::series("TSDB: Couldn't parse LABELS");
    let mut labels = BTreeMap::new();
    while arguments.len() > 0 {
        let name = arguments.text()?;
        let value = if arguments.len() == 0 { return Err(ERROR) } else { arguments.text()? };
        if name.is_empty() {
            return Err(ERROR);
        }
        if name == KEY_LABEL || name.starts_with("__") {
            return Err(CommandError::other(format!(
                "TSDB: a label cannot be called {name:?} here: {KEY_LABEL:?} is the label of the key, and others with __ are the database's"
            )));
        }
        if !value.is_empty() && labels.insert(name.into(), value.into()).is_some() {
            return Err(CommandError::other(format!("TSDB: the label {name:?} is given twice")));
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        let mut ranges = Vec::new();
        let mut at = 0;
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            ranges.push(at..at + word.len());
            at += word.len() + 1;
        }
        Options::parse(&mut Arguments::new(text.as_bytes(), &ranges)).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_in_any_order() {
        let text = "retention 5 CHUNK_SIZE 128 ENCODING uncompressed DUPLICATE_POLICY min IGNORE 5 1.5 LABELS a b c d";
        let settings = parse(text).unwrap().settings();
        assert_eq!((settings.retention_ms, settings.chunk_bytes, settings.is_uncompressed), (5, Some(128), true));
        assert_eq!(settings.duplicate_policy, Some(DuplicatePolicy::Min));
        assert_eq!(settings.ignore, Ignore { time_ms: 5, value: 1.5 });
        assert_eq!(settings.labels.len(), 2);
        assert_eq!(parse("").unwrap().settings(), Settings::default());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let cases = [
            ("RETENTION x", "TSDB: Couldn't parse RETENTION"),
            ("RETENTION -1", "TSDB: Couldn't parse RETENTION"),
            ("CHUNK_SIZE 50", "TSDB: CHUNK_SIZE value must be a multiple of 8 in the range [48 .. 1048576]"),
            ("ENCODING x", "TSDB: Couldn't parse ENCODING"),
            ("DUPLICATE_POLICY x", "TSDB: Unknown DUPLICATE_POLICY"),
            ("LABELS a", "TSDB: Couldn't parse LABELS"),
            ("LABELS a b a c", "TSDB: the label \"a\" is given twice"),
            ("OTHER", "TSDB: unknown argument \"OTHER\""),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
        assert!(parse("LABELS key x").unwrap_err().contains("the label of the key"));
    }

    #[test]
    fn times_and_values_are_read() {
        assert_eq!(TimeArgument::parse(b"*"), Ok(TimeArgument::Now));
        assert_eq!(TimeArgument::parse(b"15"), Ok(TimeArgument::Ms(15)));
        assert!(["-1", "x", "1.5", ""].iter().all(|text| TimeArgument::parse(text.as_bytes()).is_err()));
        assert_eq!(value(b"1e3"), Ok(1000.0));
        assert!(value(b"NaN").unwrap().is_nan());
        assert!(["", "x", "1_0"].iter().all(|text| value(text.as_bytes()).is_err()));
    }
}
