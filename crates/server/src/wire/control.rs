//! A connection of the control plane: requests one after another, each answered by tokens.

use std::sync::Arc;
use std::time::Duration;

use access::grant::Right;
use access::oidc::token::TOKEN_BYTES_MAX;
use access::rate::Counted;
use db::{GroupsToRegister, SeriesGate, StoreError, Token};
use model::DEFAULT_DATABASE;
use tokio::io::AsyncWriteExt;
use wire::WireError;
use wire::control::{self, Answer, Registered, Registration, Request};
use wire::frame::{MessageBuffer, Plane};

use super::Planes;
use super::socket::{self, End};
use crate::error::ApiError;
use crate::listen::socket::{Peer, Socket};
use crate::scheduler::tenants::limits::limits_series;
use crate::sign_in::{Caller, forbidden, unauthorized};
use crate::state::State;

/// Bytes that labels and what is made of them take for each byte of a message.
const REGISTRATION_FACTOR: usize = 8;

/// Bytes of a request's beginning that are looked at before its sender is known: a token lies there, also the longest one of a provider.
const BEGINNING_BYTES: usize = TOKEN_BYTES_MAX + (1 << 10);

/// Serves until the client goes, breaks the protocol, or the server stops.
pub(super) async fn serve(planes: &Arc<Planes>, mut stream: Socket, peer: Peer) {
    let settings = planes.settings();
    let patience = Duration::from_millis(settings.body_timeout_ms);
    let mut stop = planes.stop.clone();
    let ended = tokio::select! {
        ended = requests(planes, (&mut stream, &peer), patience) => ended,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    if let Err(End::Broken(error)) = ended {
        let answer = Answer { id: 0, incarnation: planes.db().incarnation(), registered: Err(error.0) };
        let mut bytes = Vec::new();
        if control::encode_answer(&answer, &mut bytes).is_ok() {
            let _ = socket::send(&mut stream, &bytes, patience).await;
        }
        let _ = stream.shutdown().await;
        socket::linger(stream).await;
    }
}

async fn requests(planes: &Arc<Planes>, (stream, peer): (&mut Socket, &Peer), patience: Duration) -> Result<(), End> {
    let settings = planes.settings();
    let [head, idle] = [settings.head_timeout_ms, settings.idle_timeout_ms].map(Duration::from_millis);
    socket::preface(Plane::Control, stream, head).await?;
    let mut is_known = !planes.state.sign_in.is_required;
    loop {
        let silence = if is_known { idle } else { head };
        let bytes = socket::header(stream, settings.message_bytes_max, silence).await?;
        let (mut buffer, mut share) = (MessageBuffer::default(), planes.state.bodies.share(&planes.state.own_tenant()));
        let mut filled = 0;
        if !is_known && bytes > BEGINNING_BYTES {
            filled = BEGINNING_BYTES;
            socket::message(stream, 0..filled, (&mut buffer, &mut share), head).await?;
            beginner(&planes.state, buffer.bytes(), peer).map_err(|error| End::Broken(WireError(error.message)))?;
        }
        socket::message(stream, filled..bytes, (&mut buffer, &mut share), patience).await?;
        // Labels are copied out of the message, and looked at one after the other: not on a network thread.
        let peer = peer.clone();
        let work = move |state: &State| {
            share.grow_patiently(REGISTRATION_FACTOR * bytes).map_err(|error| WireError(error.message))?;
            let request = control::decode_request(buffer.bytes())?;
            drop(buffer);
            let caller = state.token_caller(&request.token, &peer);
            let is_known = caller.is_ok();
            let registered = caller.and_then(|caller| register(state, &request, &caller));
            Ok::<_, WireError>((request.id, registered.map_err(|error| error.message), is_known))
        };
        let (id, registered, knows) = match planes.state.work(work).await {
            Ok(done) => done?,
            Err(_) => (0, Err("the server could not finish this request".to_owned()), is_known),
        };
        is_known |= knows;
        let answer = Answer { id, incarnation: planes.db().incarnation(), registered };
        let mut out = Vec::new();
        control::encode_answer(&answer, &mut out)?;
        socket::send(stream, &out, patience).await?;
    }
}

/// Who the client is that has sent the beginning of a request. One whose token does not lie there has not failed: it has put labels before it.
fn beginner(state: &State, beginning: &[u8], peer: &Peer) -> Result<Caller, ApiError> {
    let Some(token) = control::token_in_beginning(beginning) else {
        let unknown =
            || unauthorized("the token does not lie in the beginning of the request: send it first, or less at once");
        return state.connected_caller(peer).ok_or_else(unknown);
    };
    state.token_caller(token, peer)
}

fn register(state: &State, request: &Request, caller: &Caller) -> Result<Registered, ApiError> {
    let database = if request.database.is_empty() { DEFAULT_DATABASE } else { &request.database };
    let to = state.destination(database, &caller.scope)?;
    if !to.scope.matchers(Right::Write, database).is_empty() {
        return Err(forbidden(
            "an account whose right to write is narrowed by labels cannot register series".to_owned(),
        ));
    }
    let refused = |error: StoreError| ApiError::bad_data(error.to_string());
    let tenant = state.tenant(database, &to.scope);
    state.take(&to.scope, &tenant, (Counted::Requests, 1))?;
    let gate = |count| state.take_new_series(&to.scope, &tenant, count);
    let gate: Option<SeriesGate<'_>> = if limits_series(&to.scope, &tenant) { Some(&gate) } else { None };
    let db = &state.db;
    let bits = |tokens: Vec<Token>| tokens.into_iter().map(Token::to_bits).collect();
    match &request.what {
        Registration::Series(series) => {
            let series: Vec<_> = series.iter().map(|(metric, labels)| (metric.as_str(), labels.clone())).collect();
            let tokens = db.register_series_gated(database, &series, gate).map_err(refused)?;
            Ok(Registered { tokens: bits(tokens), ..Registered::default() })
        }
        Registration::Groups { measurement, members, groups } => {
            if members.is_empty() {
                return Err(ApiError::bad_data("groups without members"));
            }
            let groups = GroupsToRegister { measurement, groups, members };
            let (tokens, layout) = db.register_groups_gated(database, &groups, gate).map_err(refused)?;
            let (measurement, slots) = (layout.measurement(), layout.slots().collect());
            Ok(Registered { tokens: bits(tokens), measurement, slots })
        }
    }
}
