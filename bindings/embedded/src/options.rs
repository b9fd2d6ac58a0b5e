//! Settings of an engine, as JSON.

use db::DbOptions;
use serde_json::Value;

use crate::error::Error;

/// Memory of a database in process: less than a server takes, for the program has its own.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Samples that a query may hold at once.
const QUERY_SAMPLES_MAX: u64 = 50_000_000;
/// The part of the memory that rows may take before they are flushed, and that of cached results.
const HEAD_SHARE: u64 = 8;
const RESULTS_SHARE: u64 = 16;
/// Bytes of memory below which a database does not work.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// The names of all options.
const NAMES: [&str; 8] = [
    "accept_loss",
    "ahead_ms_max",
    "lookback_ms",
    "memory_bytes_max",
    "query_helpers",
    "query_samples_max",
    "read_only",
    "result_cache_memory_bytes_max",
];

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    pub(crate) db: DbOptions,
    pub(crate) query_samples_max: u64,
    pub(crate) is_read_only: bool,
}

impl EngineOptions {
    /// Options of a folder, given as a JSON object; an empty text stands for the defaults. They have the names of the server's settings:
    ///
    /// * `memory_bytes_max`: bytes for rows in memory, queries and caches together (1 GiB; at least 64 MiB)
    /// * `result_cache_memory_bytes_max`: bytes of cached results (a sixteenth of that; 0: none)
    /// * `query_samples_max`: samples that a query may hold at once (50 million)
    /// * `query_helpers`: threads that may help with long queries (one less than there are cores)
    /// * `lookback_ms`: how old a series' newest sample may be to count as its value now in PromQL (5 minutes)
    /// * `ahead_ms_max`: how far rows may be ahead of the clock (32 days)
    /// * `accept_loss`: true to open a folder that has lost rows
    /// * `read_only`: true to open a folder for reading only, also while another process has it open
    pub fn from_json(folder: &str, text: &str) -> Result<Self, Error> {
        let given = match text.trim() {
            "" => serde_json::Map::new(),
            text => match serde_json::from_str(text) {
                Ok(Value::Object(given)) => given,
                Ok(other) => return Err(Error::invalid(format!("options are a JSON object, not {other}"))),
                Err(error) => return Err(Error::invalid(format!("options are no JSON: {error}"))),
            },
        };
        if let Some(unknown) = given.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(Error::invalid(format!("there is no option {unknown:?}; there are {}", NAMES.join(", "))));
        }
        let number = |name: &str, default: u64| match given.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value.as_u64().ok_or_else(|| {
                Error::invalid(format!("the option {name:?} is {value}; it takes a whole number from 0 on"))
            }),
        };
        let mut db = DbOptions::new(folder);
        let memory_bytes_max = number("memory_bytes_max", MEMORY_BYTES_MAX)?;
        if memory_bytes_max < MEMORY_BYTES_MIN {
            let message = format!(
                "the option \"memory_bytes_max\" is {memory_bytes_max}; at least {MEMORY_BYTES_MIN} are needed"
            );
            return Err(Error::invalid(message));
        }
        db.store.memory_bytes_max = memory_bytes_max;
        db.store.head_bytes_max = db.store.head_bytes_max.min(size(memory_bytes_max / HEAD_SHARE));
        let results = number("result_cache_memory_bytes_max", memory_bytes_max / RESULTS_SHARE)?;
        db.result_cache_memory_bytes_max = size(results);
        db.query_helpers = size(number("query_helpers", db.query_helpers as u64)?);
        db.lookback_ms = i64::try_from(number("lookback_ms", db.lookback_ms as u64)?).unwrap_or(i64::MAX);
        db.store.ahead_ms_max = number("ahead_ms_max", db.store.ahead_ms_max)?;
        let flag = |name: &str| match given.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => Err(Error::invalid(format!("the option {name:?} is {other}; it is true or false"))),
        };
        db.store.accept_loss = flag("accept_loss")?;
        let query_samples_max = number("query_samples_max", QUERY_SAMPLES_MAX)?;
        Ok(Self { db, query_samples_max, is_read_only: flag("read_only")? })
    }

    /// For reading only.
    #[must_use]
    pub fn reading_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_the_server_and_no_others() {
        let options = EngineOptions::from_json("x", "").unwrap();
        assert_eq!(options.db.store.memory_bytes_max, MEMORY_BYTES_MAX);
        let text =
            r#"{"memory_bytes_max": 134217728, "query_samples_max": 7, "lookback_ms": 1000, "accept_loss": true}"#;
        let options = EngineOptions::from_json("x", text).unwrap();
        assert_eq!((options.db.store.memory_bytes_max, options.db.store.head_bytes_max), (128 << 20, 16 << 20));
        assert_eq!((options.query_samples_max, options.db.lookback_ms), (7, 1000));
        assert!(options.db.store.accept_loss);
        for (text, expected) in [
            ("[]", "a JSON object"),
            ("{", "no JSON"),
            (r#"{"memory": 1}"#, "there is no option \"memory\"; there are accept_loss, "),
            (r#"{"memory_bytes_max": 1}"#, "at least 67108864"),
            (r#"{"lookback_ms": -1}"#, "\"lookback_ms\" is -1"),
            (r#"{"accept_loss": 1}"#, "it is true or false"),
        ] {
            let error = EngineOptions::from_json("x", text).unwrap_err();
            assert!(error.message.contains(expected), "{text}: {error}");
        }
    }
}
