//! The protocols of line listeners.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use access::grant::{Grant, Right, Rights};
use access::rate::{Counted, Quota};
use access::scope::Scope;
use ingest::line::{self, Precision};
use ingest::{Protocol, graphite, opentsdb};
use rrd::protocol::Session;

use crate::error::ApiError;
use crate::http::body::{Share, body_error};
use crate::http::rrd::host::RrdHost;
use crate::http::write::influx::line_options;
use crate::listen::socket::{Peer, Transport};
use crate::scheduler::tenants::Tenant;
use crate::sign_in::{Client, Destination};
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
    /// The commands of rrdcached, each of which is answered.
    Rrdcached,
}

/// What came of some lines.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// What the client is told.
    pub(crate) reply: Vec<u8>,
    /// Why the connection ends now, if it does.
    pub(crate) close: Option<Close>,
    /// The memory of the reply, until it is sent.
    pub(crate) memory: Option<Share>,
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
            Self::Rrdcached => "rrdcached",
        }
    }

    /// Who a client is by its certificate or its address alone; `None` if it has to sign in.
    pub(crate) fn client_of(self, state: &State, peer: &Peer) -> Option<Client> {
        if let Some(entry) = state.sign_in.certified(peer, state.db.now_ns()) {
            return Some(Client::Account(entry));
        }
        let address = peer.address.ip();
        // The mode of the socket's file says who may connect.
        let is_let_in = !state.sign_in.is_required
            || peer.transport == Transport::UnixSocket
            || state.settings.line_sources.iter().any(|network| network.contains(address));
        is_let_in.then(|| Client::Known(self.scope(state)))
    }

    /// What clients may write who need not sign in: the protocol's own database.
    pub(crate) fn scope(self, state: &State) -> Arc<Scope> {
        if !state.sign_in.is_required {
            return Scope::open();
        }
        let rights = match self {
            // Its clients read what they wrote, and make files anew.
            Self::Rrdcached => Rights::from_rights(&Right::ALL),
            _ => Rights::from_rights(&[Right::Write, Right::Create]),
        };
        let grants = vec![Grant::on(self.database(state), rights)];
        Arc::new(Scope { name: self.name().into(), is_server_admin: false, grants, quota: Quota::default() })
    }

    /// The database that its rows go to.
    fn database(self, state: &State) -> &str {
        match self {
            Self::Line => &state.settings.line_database,
            Self::Graphite => &state.settings.graphite_database,
            Self::Opentsdb => &state.settings.opentsdb_database,
            Self::Rrdcached => &state.settings.web.rrd.database,
        }
    }

    /// The tenant of its rows.
    pub(crate) fn tenant(self, state: &State, scope: &Scope) -> Arc<Tenant> {
        state.tenant(self.database(state), scope)
    }

    /// Stores whole lines, with what their sender may write; returns when they are on disk. An error: none of them could be.
    pub(crate) fn serve(
        self,
        state: &State,
        lines: &[u8],
        (scope, session): (&Arc<Scope>, &Mutex<Session>),
    ) -> Result<Served, ApiError> {
        if self == Self::Rrdcached {
            return Ok(serve_rrdcached(state, lines, scope, session));
        }
        let to = state.destination(self.database(state), scope)?;
        match self {
            Self::Line => serve_line(state, lines, &to),
            Self::Graphite => serve_graphite(state, lines, &to),
            Self::Opentsdb => serve_opentsdb(state, lines, &to),
            Self::Rrdcached => Ok(Served::default()),
        }
    }
}

/// Counts a piece of lines among what may be asked for.
pub(crate) fn count_lines(state: &State, asker: (&Scope, &Tenant), bytes: usize) -> Result<(), ApiError> {
    let (scope, tenant) = asker;
    state.take(scope, tenant, (Counted::Requests, 1))?;
    state.take(scope, tenant, (Counted::Bytes, bytes as u64))
}

fn serve_line(state: &State, lines: &[u8], to: &Destination) -> Result<Served, ApiError> {
    let options = line_options(state, to, Precision::Nanosecond)?;
    let parsed = line::parse(lines, &options).map_err(|error| body_error(&error))?;
    let outcome = state.store("line", to, parsed)?;
    let close = (outcome.dropped > 0).then(|| Close::BadLine(outcome.quote_lines(lines).message()));
    Ok(Served { close, ..Served::default() })
}

fn serve_graphite(state: &State, lines: &[u8], to: &Destination) -> Result<Served, ApiError> {
    let options = graphite::Options {
        hasher: state.hasher(Protocol::Graphite, to)?,
        now_ns: state.db.now_ns(),
        limits: state.db.limits(),
    };
    let parsed = graphite::parse(lines, &options).map_err(|error| body_error(&error))?;
    let outcome = state.store("graphite", to, parsed)?;
    if outcome.dropped > 0 {
        state.tell(|| format!("graphite: {}", outcome.quote_lines(lines).message()));
    }
    Ok(Served::default())
}

fn serve_opentsdb(state: &State, lines: &[u8], to: &Destination) -> Result<Served, ApiError> {
    let hasher = state.hasher(Protocol::Opentsdb, to)?;
    let options = opentsdb::Options { hasher, limits: state.db.limits() };
    let (parsed, commands) = opentsdb::parse_telnet(lines, &options).map_err(|error| body_error(&error))?;
    let outcome = state.store("opentsdb", to, parsed)?;
    let mut reply = String::new();
    for _ in 0..commands.questions {
        // Writing to a string cannot fail.
        let _ = writeln!(reply, "thalweg {} speaks OpenTSDB's put", env!("CARGO_PKG_VERSION"));
    }
    for reason in outcome.reasons.iter().take(REPLIES_MAX) {
        let _ = writeln!(reply, "put: illegal argument: {}", reason.text);
    }
    Ok(Served { reply: reply.into_bytes(), close: commands.exit.then_some(Close::Asked), memory: None })
}

/// Commands are answered even if what they name cannot be stored or read.
fn serve_rrdcached(state: &State, lines: &[u8], scope: &Arc<Scope>, session: &Mutex<Session>) -> Served {
    let host = RrdHost::new(state, &state.settings.web.rrd.database, scope);
    let reply = session.lock().unwrap_or_else(PoisonError::into_inner).serve(lines, &host);
    Served { reply: reply.bytes, close: reply.ends.then_some(Close::Asked), memory: Some(host.take_share()) }
}
