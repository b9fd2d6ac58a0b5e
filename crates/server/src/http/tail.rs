//! `/api/v1/tail`: what is written now, as server-sent events.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use access::grant::Right;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use model::Matcher;
use tokio::sync::mpsc;
use views::tail::{TailError, TailRequest};

use crate::error::ApiError;
use crate::http::parameters::Parameters;
use crate::http::request::extract;
use crate::sign_in::Client;
use crate::state::State;

/// The header with which browsers resume a stream.
const LAST_EVENT_ID: &str = "last-event-id";

pub(crate) async fn tail(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let database = parts.parameters.database(&parts.headers);
    parts.caller.require(Right::Read, &database)?;
    if !state.db.has_database(&database) {
        return Err(ApiError::not_found(format!("there is no database {database:?}")));
    }
    let matcher_sets = parts.parameters.matcher_sets()?;
    let since = since(&parts.headers, &parts.parameters)?;
    let client = state.sign_in.client(&parts.caller);
    let request = TailRequest { database: database.clone(), matcher_sets, since };
    let access = Arc::new(Access { state: Arc::downgrade(&state), client, database });
    drop(parts);
    let opened = state.deliveries()?.streams().open(request, Arc::new(move || access.matchers()));
    let receiver = opened.map_err(|error| match error {
        TailError::TooMany { streams_max } => ApiError::later(format!(
            "{streams_max} live streams are open, as many as there may be: try again later, or raise --tail-streams-max"
        )),
        TailError::Invalid(message) => ApiError::bad_data(message),
    })?;
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    // Proxies such as nginx would collect events otherwise.
    let unbuffered = [("x-accel-buffering", "no")];
    Ok((headers, unbuffered, Body::from_stream(Chunks(receiver))).into_response())
}

/// The sequence id after which a stream begins: a browser that resumes knows best.
fn since(headers: &HeaderMap, parameters: &Parameters) -> Result<Option<u64>, ApiError> {
    let header = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let number = |name: &'static str, text: &str| {
        text.parse()
            .map_err(|_| ApiError::invalid_parameter(name, format!("{text:?} is no sequence id: a whole number")))
    };
    match (header, parameters.get("since")) {
        (Some(text), _) => number("Last-Event-ID", text).map(Some),
        (None, Some(text)) => number("since", text).map(Some),
        (None, None) => Ok(None),
    }
}

/// What a stream's client may read, as long as it may.
struct Access {
    state: Weak<State>,
    client: Client,
    database: String,
}

impl Access {
    fn matchers(&self) -> Result<Vec<Matcher>, String> {
        let Some(state) = self.state.upgrade() else { return Err("the server stops".to_owned()) };
        let scope = state.sign_in.scope_now(&self.client, state.db.now_ns());
        let Some(scope) = scope else {
            return Err("the token has expired, or its account was changed: sign in again".to_owned());
        };
        if !scope.may(Right::Read, &self.database) {
            return Err(format!("the account {} may not read the database {} any more", scope.name, self.database));
        }
        Ok(state.db.read_matchers(&scope, &self.database))
    }
}

struct Chunks(mpsc::Receiver<Vec<u8>>);

impl Stream for Chunks {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|chunk| Ok(Bytes::from(chunk))))
    }
}
