//! The protocols of line listeners.

use std::fmt::Write;

use ingest::line::{self, Precision};
use ingest::{Protocol, graphite, opentsdb};

use crate::error::ApiError;
use crate::http::body::body_error;
use crate::http::write::influx::line_options;
use crate::state::State;

/// How many bad lines an answer quotes.
const REPLIES_MAX: usize = 100;

/// A protocol of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineProtocol {
    /// Line protocol, times in nanoseconds. As in QuestDB a connection ends with the first bad line: it has no other way to
    /// tell its client.
    Line,
    /// Graphite's plaintext: bad lines are left out and counted, as carbon does.
    Graphite,
    /// OpenTSDB's telnet commands: bad lines are answered.
    Opentsdb,
}

/// What came of some lines.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// What the client is told.
    pub(crate) reply: Vec<u8>,
    /// Why the connection ends now, if it does.
    pub(crate) close: Option<Close>,
}

/// Why a connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Close {
    /// The client wants it so.
    Asked,
    /// It sent a line that is wrong. Holds why.
    BadLine(String),
}

impl LineProtocol {
    /// The name in metrics and notices.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Graphite => "graphite",
            Self::Opentsdb => "opentsdb",
        }
    }

    /// Stores whole lines; returns when they are on disk. An error: none of them could be.
    pub(crate) fn serve(self, state: &State, lines: &[u8]) -> Result<Served, ApiError> {
        match self {
            Self::Line => serve_line(state, lines),
            Self::Graphite => serve_graphite(state, lines),
            Self::Opentsdb => serve_opentsdb(state, lines),
        }
    }
}

fn serve_line(state: &State, lines: &[u8]) -> Result<Served, ApiError> {
    let database = &state.settings.line_database;
    let options = line_options(state, database, Precision::Nanosecond)?;
    let parsed = line::parse(lines, &options).map_err(|error| body_error(&error))?;
    let outcome = state.store("line", database, parsed)?;
    let close = (outcome.dropped > 0).then(|| Close::BadLine(outcome.quote_lines(lines).message()));
    Ok(Served { close, ..Served::default() })
}

fn serve_graphite(state: &State, lines: &[u8]) -> Result<Served, ApiError> {
    let database = &state.settings.graphite_database;
    let options = graphite::Options {
        hasher: state.hasher(Protocol::Graphite, database)?,
        now_ns: state.db.now_ns(),
        limits: state.db.limits(),
    };
    let parsed = graphite::parse(lines, &options).map_err(|error| body_error(&error))?;
    let outcome = state.store("graphite", database, parsed)?;
    if outcome.dropped > 0 {
        state.tell(|| format!("graphite: {}", outcome.quote_lines(lines).message()));
    }
    Ok(Served::default())
}

fn serve_opentsdb(state: &State, lines: &[u8]) -> Result<Served, ApiError> {
    let database = &state.settings.opentsdb_database;
    let hasher = state.hasher(Protocol::Opentsdb, database)?;
    let options = opentsdb::Options { hasher, limits: state.db.limits() };
    let (parsed, commands) = opentsdb::parse_telnet(lines, &options).map_err(|error| body_error(&error))?;
    let outcome = state.store("opentsdb", database, parsed)?;
    let mut reply = String::new();
    for _ in 0..commands.questions {
        // Writing to a string cannot fail.
        let _ = writeln!(reply, "thalweg {} speaks OpenTSDB's put", env!("CARGO_PKG_VERSION"));
    }
    for reason in outcome.reasons.iter().take(REPLIES_MAX) {
        let _ = writeln!(reply, "put: illegal argument: {}", reason.text);
    }
    Ok(Served { reply: reply.into_bytes(), close: commands.exit.then_some(Close::Asked) })
}
