//! A connection of the data plane: greeted, then *parked* while it is silent, *awake* (`awake.rs`) while it is not.

use std::sync::Arc;
use std::time::Duration;

use access::grant::Right;
use access::secret;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use wire::data::{self, Answer, Hello, Message, Reason, Refused, Request, Welcome};
use wire::frame::{MessageBuffer, Plane};

use super::awake;
use super::socket::{self, End};
use super::{PERMIT_BYTES, Planes};
use crate::error::ApiError;
use crate::listen::socket::{Peer, Socket};
use crate::sign_in::{Client, forbidden};

/// Why a client may not send rows.
pub(super) const NEEDS_WRITE: &str = "the data plane needs the right to write a database, such as write:metrics";

/// The state of a connection between two batches.
pub(super) struct Session {
    pub(super) client: Client,
    /// The client's name for itself, or 0.
    pub(super) producer: u64,
    /// Bytes of frames that it may have sent since its greeting.
    pub(super) credit: u64,
    /// Bytes that it has sent.
    pub(super) received: u64,
    /// The number of its last batch on this connection.
    pub(super) last_sequence: Option<u64>,
    /// The databases that its last batch wrote.
    pub(super) databases: Vec<String>,
}

/// A connection without a reader: no thread, no buffer, nothing under way.
pub(super) struct Parked {
    pub(super) stream: Socket,
    pub(super) session: Session,
}

/// What ends a silence.
enum Stirred {
    Bytes,
    Gone,
    Stop,
}

/// Serves until the client goes, breaks the protocol, or the server stops.
pub(super) async fn serve(planes: &Arc<Planes>, mut stream: Socket, peer: Peer) {
    // What happens once or now and then is boxed: a parked connection does not hold the room that it takes.
    let (producer, client) = match Box::pin(greet(planes, &mut stream, &peer)).await {
        Ok(greeted) => greeted,
        Err(None) => return,
        Err(Some(refused)) => return Box::pin(refuse(planes, stream, refused)).await,
    };
    let credit = planes.settings().in_flight_bytes_max as u64;
    let session = Session { client, producer, credit, received: 0, last_sequence: None, databases: Vec::new() };
    let mut parked = Parked { stream, session };
    let idle = Duration::from_millis(planes.settings().idle_timeout_ms);
    let mut patience = idle;
    loop {
        match parked.stirs(planes, patience).await {
            Stirred::Bytes => {}
            Stirred::Gone => return,
            Stirred::Stop => {
                let (reason, message) = stopping();
                let refused = Refused { reason, message, incarnation: planes.db().incarnation() };
                return Box::pin(refuse(planes, parked.stream, refused)).await;
            }
        }
        match Box::pin(awake::serve(planes, parked)).await {
            Some(again) => parked = again,
            None => return,
        }
        // It has been silent for a while already.
        patience = idle.saturating_sub(planes.quiet_after());
    }
}

impl Parked {
    async fn stirs(&mut self, planes: &Planes, patience: Duration) -> Stirred {
        let _counted = planes.state.metrics.park();
        let mut stop = planes.stop.clone();
        tokio::select! {
            says_more = timeout(patience, self.stream.says_more()) => match says_more {
                Ok(true) => Stirred::Bytes,
                _ => Stirred::Gone,
            },
            _ = stop.wait_for(|stop| *stop) => Stirred::Stop,
        }
    }
}

/// Why a client is notice to come again.
pub(super) fn stopping() -> (Reason, String) {
    (Reason::Unavailable, "the server stops".to_owned())
}

/// Says the last thing to a client.
async fn refuse(planes: &Planes, mut stream: Socket, refused: Refused) {
    let patience = Duration::from_millis(planes.settings().body_timeout_ms);
    let _ = tell(&mut stream, &Answer::Refused(refused), patience).await;
    let _ = stream.shutdown().await;
    socket::linger(stream).await;
}

/// The number under which a client's batches are told from those that come again: of each account for itself, so that no account can have
/// another's batches taken for duplicates.
fn producer_of(planes: &Planes, hello: &Hello, peer: &Peer) -> Result<(u64, Client), ApiError> {
    let caller = planes.state.token_caller(&hello.token, peer)?;
    if !caller.scope.may_anywhere(Right::Write) {
        return Err(forbidden(NEEDS_WRITE.to_owned()));
    }
    let client = planes.state.sign_in.client(&caller);
    if hello.producer == 0 || caller.scope.name.is_empty() {
        return Ok((hello.producer, client));
    }
    let hash = secret::token_hash(&format!("{} {}", hello.producer, caller.scope.name));
    Ok((hash.first_chunk().map_or(0, |first| u64::from_le_bytes(*first)).max(1), client))
}

/// Preface and greeting: the client, and the number of its batches; an error with a message is notice to it.
async fn greet(planes: &Planes, stream: &mut Socket, peer: &Peer) -> Result<(u64, Client), Option<Refused>> {
    let (settings, incarnation) = (planes.settings(), planes.db().incarnation());
    let patience = Duration::from_millis(settings.head_timeout_ms);
    let refuse = |reason, message| Some(Refused { reason, message, incarnation });
    let ended = |end| match end {
        End::Gone => None,
        End::Broken(error) => refuse(Reason::Malformed, error.0),
    };
    let read = async {
        socket::preface(Plane::Data, stream, patience).await?;
        let bytes = socket::header(stream, settings.message_bytes_max.min(PERMIT_BYTES), patience).await?;
        let mut buffer = MessageBuffer::default();
        socket::fill(stream, buffer.resize(bytes), patience).await?;
        Ok::<_, End>(buffer)
    };
    let buffer = read.await.map_err(ended)?;
    let message = Message::new(buffer.bytes()).map_err(|error| refuse(Reason::Malformed, error.0))?;
    let hello = match message.request() {
        Ok(Request::Hello(hello)) => hello,
        Ok(Request::Batch(_)) => {
            return Err(refuse(Reason::Malformed, "a batch before the greeting".to_owned()));
        }
        Err(error) => return Err(refuse(Reason::Malformed, error.0)),
    };
    let greeted = producer_of(planes, &hello, peer);
    let (producer, client) = greeted.map_err(|error| refuse(Reason::Malformed, error.message))?;
    if hello.incarnation != 0 && hello.incarnation != incarnation {
        let message = "these tokens are from another data folder: register again".to_owned();
        return Err(refuse(Reason::Incarnation, message));
    }
    let last = if producer == 0 { None } else { planes.db().last_sent(producer) };
    let welcome = Welcome {
        incarnation,
        last_sequence: last.unwrap_or(0),
        knows_producer: last.is_some(),
        credit_bytes: settings.in_flight_bytes_max as u64,
        message_bytes_max: settings.message_bytes_max as u32,
    };
    tell(stream, &Answer::Welcome(welcome), patience).await.map_err(|_| None)?;
    Ok((producer, client))
}

pub(super) async fn tell(to: &mut (impl AsyncWrite + Unpin), answer: &Answer, patience: Duration) -> Result<(), End> {
    let mut bytes = Vec::new();
    data::encode_answer(answer, &mut bytes)?;
    socket::send(to, &bytes, patience).await
}
