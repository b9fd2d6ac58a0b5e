//! Writing: a handler per protocol, one way into the database for all of them.
//!
//! * `influx.rs`: line protocol by InfluxDB's three interfaces · `prometheus.rs`: remote write, text exposition
//! * `questdb.rs`: QuestDB's import of CSV
//! * `push.rs`: the Pushgateway's protocol
//! * `otlp.rs`: OpenTelemetry by HTTP and gRPC · `opentsdb.rs`: `/api/put` · `imports.rs`: lines of JSON, CSV

pub(crate) mod imports;
pub(crate) mod influx;
pub(crate) mod opentsdb;
pub(crate) mod otlp;
pub(crate) mod prometheus;
pub(crate) mod push;
pub(crate) mod questdb;

use std::collections::BTreeMap;

use access::rate::Counted;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use db::{Rejected, SeriesGate, WriteError, WriteReport};
use ingest::{LineError, LineErrors, Parsed, Protocol, ScopedKeyHasher};
use model::RejectionKind;

use crate::error::ApiError;
use crate::error::RETRY_AFTER_S;
use crate::http::text::Quotable;
use crate::scheduler::tenants::limits::limits_series;
use crate::sign_in::Destination;
use crate::state::State;

/// How much of a bad line an answer quotes.
const QUOTED_CHARACTERS_MAX: usize = 200;

/// Why a line was not taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reason {
    /// Counted from 1.
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) kind: RejectionKind,
}

impl From<LineError> for Reason {
    fn from(error: LineError) -> Self {
        Self { line: error.line, text: error.reason, kind: error.kind }
    }
}

impl From<Rejected> for Reason {
    fn from(rejected: Rejected) -> Self {
        Self { line: rejected.line, text: rejected.reason, kind: rejected.kind }
    }
}

/// What became of a request's lines.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) written: u64,
    pub(crate) dropped: u64,
    /// How many of the dropped rows may be taken when they are sent again later.
    pub(crate) for_now: u64,
    /// Why lines were not taken; of the first ones.
    pub(crate) reasons: Vec<Reason>,
    /// Lines that the store refused, of which some have several rows; `None` if not all are known.
    pub(crate) refused: Option<Vec<u32>>,
}

impl Outcome {
    fn new(report: WriteReport, errors: LineErrors) -> Self {
        let all_known = report.rejected.len() as u64 == report.rejected_total;
        let mut lines: Vec<u32> = report.rejected.iter().map(|rejected| rejected.line).collect();
        lines.sort_unstable();
        lines.dedup();
        let refused = report.rejected.into_iter().map(Reason::from);
        let mut reasons: Vec<Reason> = errors.first.into_iter().map(Reason::from).chain(refused).collect();
        reasons.sort();
        Self {
            written: report.rows_written,
            dropped: errors.total + report.rejected_total,
            for_now: report.rejected_for_now,
            reasons,
            refused: all_known.then_some(lines),
        }
    }

    /// The outcome of a request of which nothing was tried.
    pub(crate) fn of_errors(errors: LineErrors) -> Self {
        Self::new(WriteReport::default(), errors)
    }

    /// The status that tells a sender what to do with what was dropped. Where some of it is to be sent again all is: what was taken is the
    /// same then.
    pub(crate) const fn status(&self) -> StatusCode {
        if self.for_now > 0 { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::BAD_REQUEST }
    }

    /// Quotes the lines as InfluxDB does, for its clients look for the words: `unable to parse 'cpu value=': missing field
    /// value (line 2)`. A conflict of types is no fault of the line's spelling, nor is its age.
    pub(crate) fn quote_lines(mut self, body: impl Quotable) -> Self {
        let quoted = quoted(body, &self.reasons);
        for Reason { line, text, kind } in &mut self.reasons {
            *text = match kind {
                RejectionKind::TypeConflict | RejectionKind::BeyondRetention | RejectionKind::Folded => {
                    format!("{text} (line {line})")
                }
                RejectionKind::Unreadable if quoted.get(line).is_some_and(|line| has_binary_value(line)) => {
                    format!(
                        "binary floats and arrays of QuestDB's ILP version 2 are not read: let the client send version 1 (protocol_version=1) (line {line})"
                    )
                }
                RejectionKind::Unreadable | RejectionKind::SeriesRefused => {
                    format!("unable to parse '{}': {text} (line {line})", quoted.get(line).map_or("", String::as_str))
                }
            };
        }
        self
    }

    /// For the reasons of protocols without a form of their own.
    pub(crate) fn number_lines(mut self) -> Self {
        for Reason { line, text, .. } in &mut self.reasons {
            *text = format!("line {line}: {text}");
        }
        self
    }

    /// The reasons, a line each; if something was written, `partial write: … dropped=2` around them.
    pub(crate) fn message(&self) -> String {
        let mut reasons: Vec<&str> = self.reasons.iter().map(|reason| reason.text.as_str()).collect();
        let more = self.dropped.saturating_sub(reasons.len() as u64);
        let more = format!("and {more} more");
        if self.dropped > reasons.len() as u64 {
            reasons.push(&more);
        }
        let reasons = reasons.join("\n");
        if self.written == 0 { reasons } else { format!("partial write: {reasons} dropped={}", self.dropped) }
    }
}

/// Returns whether a line has a float or an array as QuestDB's clients send them in binary form: after `==` and the number of the type.
fn has_binary_value(line: &str) -> bool {
    line.contains("==\u{10}") || line.contains("==\u{e}")
}

/// The beginnings of the lines that reasons are about.
fn quoted(body: impl Quotable, reasons: &[Reason]) -> BTreeMap<u32, String> {
    let mut quoted = BTreeMap::new();
    if !reasons.is_empty() {
        body.quote(reasons.iter().map(|reason| reason.line), |line, text| {
            let text = String::from_utf8_lossy(text.trim_ascii()).chars().take(QUOTED_CHARACTERS_MAX).collect();
            quoted.insert(line, text);
        });
    }
    quoted
}

impl From<WriteError> for ApiError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Invalid(reason) => Self::bad_data(reason),
            WriteError::Refused(message) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message),
        }
    }
}

impl State {
    /// Hashes the keys of a protocol in a database, which is made on first use.
    pub(crate) fn hasher(&self, protocol: Protocol, to: &Destination) -> Result<ScopedKeyHasher<'_>, ApiError> {
        Ok(self.db.key_hasher().scope(protocol, self.db.database_id(&to.database)?))
    }

    /// The way of every protocol's rows into the database: what is too far ahead or not the sender's to write is refused, the rest written,
    /// what was left out counted. Returns when it is on disk.
    pub(crate) fn store(
        &self,
        protocol: &'static str,
        to: &Destination,
        mut parsed: Parsed<'_>,
    ) -> Result<Outcome, ApiError> {
        self.db.refuse_outside(&to.database, &to.scope, &mut parsed)?;
        let Parsed { mut batch, mut errors } = parsed;
        let samples: usize = batch.blocks.iter().map(|block| block.cells.len()).sum();
        let tenant = self.tenant(&to.database, &to.scope);
        self.take(&to.scope, &tenant, (Counted::Samples, samples as u64))?;
        let (limits, ahead_ms_max) = (self.db.limits(), self.settings.ahead_ms_max);
        ingest::admission::refuse_ahead(&mut batch, &mut errors, limits, self.db.latest_now_ns(), ahead_ms_max);
        self.metrics.count_rejected(&errors);
        let gate = |count| self.take_new_series(&to.scope, &tenant, count);
        let gate: Option<SeriesGate<'_>> = if limits_series(&to.scope, &tenant) { Some(&gate) } else { None };
        let report = self.db.write_gated(&to.database, &batch, gate)?;
        ingest::recycle(batch);
        self.account_spares();
        self.metrics.count_rows(protocol, report.rows_written);
        Ok(Outcome::new(report, errors))
    }

    /// Tells the database's accountant what is kept of bodies and columns for the next requests; when memory is short, nothing is.
    fn account_spares(&self) {
        let kept_bytes = self.spares.size_bytes() + self.unpacked_spares.size_bytes() + ingest::kept_bytes();
        if self.db.account_requests(kept_bytes as u64) {
            self.spares.give_back();
            self.unpacked_spares.give_back();
            ingest::give_back();
        }
    }
}

/// 204 if everything was taken, 400 with the reasons if not, 429 if it is to be sent again.
pub(crate) fn plain_answer(outcome: &Result<Outcome, ApiError>) -> Response {
    match outcome {
        Ok(outcome) if outcome.dropped == 0 => StatusCode::NO_CONTENT.into_response(),
        Ok(outcome) if outcome.for_now > 0 => failure(&ApiError::later(outcome.message())),
        Ok(outcome) => ApiError::bad_data(outcome.message()).into_response(),
        Err(error) => failure(error),
    }
}

/// An error for the whole request, with the time to wait if it is to be sent again.
pub(crate) fn failure(error: &ApiError) -> Response {
    error.clone().into_response()
}

/// An answer with the time to wait, if it is to be sent again.
pub(crate) fn with_retry(status: StatusCode, response: Response) -> Response {
    with_retry_after(status, RETRY_AFTER_S, response)
}

/// As [`with_retry`], where the time is known.
pub(crate) fn with_retry_after(status: StatusCode, seconds: HeaderValue, mut response: Response) -> Response {
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}
