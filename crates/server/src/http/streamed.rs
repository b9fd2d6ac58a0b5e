//! Answers that are sent while they are written: long lists never stand in memory as a whole.
//!
//! A query's thread writes chunks into a bounded channel and waits while it is full; the connection takes them out. A client that leaves
//! drops its end, at which the query stops. An answer of less than a chunk is sent as a whole, with its length.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use query::{Budget, QueryError, Stop};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::ApiError;
use crate::http::json;
use crate::http::query::{AnswerBytes, QueryJob, run_query};
use crate::state::State;

/// Bytes of a chunk, but for its last item.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that wait for the client.
const CHUNKS_MAX: usize = 4;
/// How long a query waits for a slow client before it looks whether it was stopped.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The answer that a query writes.
pub(crate) struct Chunks {
    /// Text that is not sent yet.
    pub(crate) text: String,
    sent_bytes: usize,
    sender: mpsc::Sender<Bytes>,
    budget: Arc<Budget>,
    runtime: Handle,
}

impl Chunks {
    /// Sends what was written so far if it is enough; waits while the client has not taken what came before.
    pub(crate) fn send_if_full(&mut self) -> Result<(), QueryError> {
        if self.text.len() < CHUNK_BYTES {
            return Ok(());
        }
        if self.sent_bytes == 0 {
            self.budget.hold_bytes(((CHUNKS_MAX + 2) * CHUNK_BYTES) as u64)?;
        }
        let permit = loop {
            self.budget.check()?;
            let waiting = async { tokio::time::timeout(LOOK_INTERVAL, self.sender.reserve()).await };
            match self.runtime.block_on(waiting) {
                Ok(Ok(permit)) => break permit,
                Ok(Err(_)) => return Err(QueryError::Stopped(Stop::Cancelled)),
                Err(_) => {}
            }
        };
        let chunk = std::mem::replace(&mut self.text, String::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 8));
        self.sent_bytes += chunk.len();
        permit.send(chunk.into());
        Ok(())
    }
}

/// The end of an answer whose beginning was sent.
struct End {
    text: String,
    sent_bytes: usize,
}

impl AnswerBytes for End {
    fn answer_bytes(&self) -> usize {
        self.sent_bytes + self.text.len()
    }
}

/// Runs a query that writes JSON, and answers with it. An error before the first chunk is the answer; after it the connection is cut.
pub(crate) async fn answer(
    state: &Arc<State>,
    asked: QueryJob,
    budget: Arc<Budget>,
    write: impl FnOnce(&State, &mut Chunks) -> Result<(), QueryError> + Send + 'static,
) -> Result<Response, ApiError> {
    let (sender, mut receiver) = mpsc::channel(CHUNKS_MAX);
    let mut chunks = Chunks { text: json::begin(), sent_bytes: 0, sender, budget, runtime: Handle::current() };
    let work = move |state: &State| {
        write(state, &mut chunks)?;
        Ok((End { text: chunks.text, sent_bytes: chunks.sent_bytes }, ()))
    };
    let state = state.clone();
    let query = tokio::spawn(async move { Ok(run_query(&state, asked, work).await?.0) });
    let mut query = Running(query);
    let Some(first) = receiver.recv().await else {
        let ended = (&mut query.0).await;
        return Ok(json::respond(ended.map_err(|_| ended_early())??.text));
    };
    let body = Body::from_stream(Streamed { first: Some(first), receiver, query: Some(query) });
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

fn ended_early() -> ApiError {
    ApiError::internal("the query's work ended early")
}

/// A query under way; stopped when this is dropped.
struct Running(JoinHandle<Result<End, ApiError>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The chunks of an answer, then its end.
struct Streamed {
    first: Option<Bytes>,
    receiver: mpsc::Receiver<Bytes>,
    query: Option<Running>,
}

impl Stream for Streamed {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some(chunk) = std::task::ready!(self.receiver.poll_recv(context)) {
            return Poll::Ready(Some(Ok(chunk)));
        }
        let Some(query) = &mut self.query else { return Poll::Ready(None) };
        let ended = std::task::ready!(Pin::new(&mut query.0).poll(context));
        self.query = None;
        Poll::Ready(Some(match ended {
            Ok(Ok(end)) => Ok(end.text.into()),
            // Its status is sent already: a client knows by the end that is missing.
            Ok(Err(error)) => Err(std::io::Error::other(error.message)),
            Err(_) => Err(std::io::Error::other(ended_early().message)),
        }))
    }
}
