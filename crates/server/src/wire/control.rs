//! A connection of the control plane: requests one after another, each answered by tokens.

use std::sync::Arc;
use std::time::Duration;

use access::grant::Right;
use db::{StoreError, Token};
use model::DEFAULT_DATABASE;
use tokio::io::AsyncWriteExt;
use wire::WireError;
use wire::control::{self, Answer, Registered, Registration, Request};
use wire::frame::{MessageBuffer, Plane};

use super::Planes;
use super::socket::{self, End};
use crate::error::ApiError;
use crate::listen::socket::{Peer, Socket};
use crate::sign_in::{Caller, forbidden};
use crate::state::State;

/// Bytes that labels and what is made of them take for each byte of a message.
const REGISTRATION_FACTOR: usize = 8;

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
    let idle = Duration::from_millis(settings.idle_timeout_ms);
    socket::preface(Plane::Control, stream, Duration::from_millis(settings.head_timeout_ms)).await?;
    loop {
        let bytes = socket::header(stream, settings.message_bytes_max, idle).await?;
        let (mut buffer, mut share) = (MessageBuffer::default(), planes.state.bodies.share());
        socket::message(stream, bytes, (&mut buffer, &mut share), patience).await?;
        // Labels are copied out of the message, and looked at one after the other: not on a network thread.
        let peer = peer.clone();
        let work = move |state: &State| {
            share.grow_patiently(REGISTRATION_FACTOR * bytes).map_err(|error| WireError(error.message))?;
            let request = control::decode_request(buffer.bytes())?;
            drop(buffer);
            let caller = state.token_caller(&request.token, &peer);
            let registered = caller.and_then(|caller| register(state, &request, &caller));
            Ok::<_, WireError>((request.id, registered.map_err(|error| error.message)))
        };
        let (id, registered) = match planes.state.work(work).await {
            Ok(done) => done?,
            Err(_) => (0, Err("the server could not finish this request".to_owned())),
        };
        let answer = Answer { id, incarnation: planes.db().incarnation(), registered };
        let mut out = Vec::new();
        control::encode_answer(&answer, &mut out)?;
        socket::send(stream, &out, patience).await?;
    }
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
    let db = &state.db;
    let bits = |tokens: Vec<Token>| tokens.into_iter().map(Token::to_bits).collect();
    match &request.what {
        Registration::Series(series) => {
            let series: Vec<_> = series.iter().map(|(metric, labels)| (metric.as_str(), labels.clone())).collect();
            let tokens = db.register_series(database, &series).map_err(refused)?;
            Ok(Registered { tokens: bits(tokens), ..Registered::default() })
        }
        Registration::Groups { measurement, members, groups } => {
            if members.is_empty() {
                return Err(ApiError::bad_data("groups without members"));
            }
            let registered = db.register_groups(database, measurement, groups, members);
            let (tokens, layout) = registered.map_err(refused)?;
            let (measurement, slots) = (layout.measurement(), layout.slots().collect());
            Ok(Registered { tokens: bits(tokens), measurement, slots })
        }
    }
}
