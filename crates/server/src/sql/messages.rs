//! A connection of Postgres's protocol, message by message.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use pgwire::api::{ClientInfo, DefaultClient, PgWireConnectionState};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::{PgWireFrontendMessage, SslNegotiationMetaMessage};
use pgwire::tokio::server::{PgWireMessageServerCodec, process_error, process_message};
use tokio::time::timeout;
use tokio_util::codec::Framed;

use super::errors::fatal;
use super::gate::Gate;
use super::postgres::Connection;
use super::prepared::Statements;
use super::sign_in::Startup;
use crate::listen::socket::{Socket, Transport};
use crate::wire::linger;

type Messages = Framed<Gate, PgWireMessageServerCodec<Statements>>;

/// Bytes of the decoder's buffer that a silent connection keeps.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Serves a client until it leaves, breaks the protocol, or is too slow. Bytes that were read of its first message come first.
pub(super) async fn serve(connection: Arc<Connection>, socket: Socket, ahead: Vec<u8>) -> io::Result<()> {
    let client = DefaultClient::new(connection.peer.address, connection.peer.transport == Transport::Tls);
    let gate = Gate::new(socket, ahead, connection.state.clone());
    let mut messages = Framed::new(gate, PgWireMessageServerCodec::new(client));
    let patience = Duration::from_millis(connection.state.settings.head_timeout_ms);
    let Ok(begun) = timeout(patience, begin(&mut messages)).await else { return Ok(()) };
    let mut next = begun?;
    let startup = Startup::new(connection.clone());
    while let Some(message) = next {
        if !is_starting(messages.state()) && !connection.note_statement(&message) {
            process_error(&mut messages, connection.too_many_statements(), true).await?;
        } else if !answer((&connection, &startup), &mut messages, message).await? {
            return Ok(());
        }
        next = if is_starting(messages.state()) {
            let Ok(next) = timeout(patience, self::next(&mut messages)).await else { return Ok(()) };
            next?
        } else {
            messages.get_mut().note_sign_in(connection.tenant());
            self::next(&mut messages).await?
        };
    }
    match messages.get_ref().refusal().cloned() {
        None => Ok(()),
        Some(refusal) => {
            let error = ErrorInfo::new("FATAL".to_owned(), refusal.code.to_owned(), refusal.message);
            let told = process_error(&mut messages, PgWireError::UserError(Box::new(error)), false);
            let _ = timeout(patience, told).await;
            linger(messages.into_inner().into_stream()).await;
            Ok(())
        }
    }
}

/// The first byte of a Sync.
const SYNC: u8 = b'S';

/// Returns whether the client has not signed in yet.
const fn is_starting(state: PgWireConnectionState) -> bool {
    use PgWireConnectionState::{AuthenticationInProgress, AwaitingSslRequest, AwaitingStartup};
    matches!(state, AwaitingSslRequest | AwaitingStartup | AuthenticationInProgress)
}

/// The first message of a session. What was said of encryption before it has been answered.
async fn begin(messages: &mut Messages) -> io::Result<Option<PgWireFrontendMessage>> {
    match next(messages).await? {
        Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::None)) => {
            messages.set_state(PgWireConnectionState::AwaitingStartup);
            next(messages).await
        }
        _ => Ok(None),
    }
}

/// The next message; `None` at the end, and where one was refused.
async fn next(messages: &mut Messages) -> io::Result<Option<PgWireFrontendMessage>> {
    let buffer = messages.read_buffer_mut();
    if buffer.is_empty() && buffer.capacity() > KEPT_BYTES_MAX {
        *buffer = BytesMut::new();
    }
    match messages.next().await.transpose() {
        Ok(message) => Ok(message),
        Err(_) if messages.get_ref().refusal().is_some() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Does what a message asks for. Whether more may come.
async fn answer(
    (connection, startup): (&Arc<Connection>, &Arc<Startup>),
    messages: &mut Messages,
    message: PgWireFrontendMessage,
) -> io::Result<bool> {
    if matches!(message, PgWireFrontendMessage::Terminate(_)) {
        return Ok(false);
    }
    let waits_for_sync = match messages.state() {
        PgWireConnectionState::CopyInProgress(is_extended) => is_extended,
        _ => message.is_extended_query(),
    };
    let was_starting = is_starting(messages.state());
    if matches!(message, PgWireFrontendMessage::Execute(_)) {
        connection.note_next(messages.read_buffer().first() == Some(&SYNC));
    }
    let is_cancelling = matches!(message, PgWireFrontendMessage::CancelRequest(_));
    let handler = || connection.clone();
    let canceller = Arc::new(connection.canceller());
    let done = process_message(message, messages, startup.clone(), handler(), handler(), handler(), canceller).await;
    let Err(error) = done else { return Ok(!is_cancelling) };
    // After an error queries are taken: never of a client that has not signed in.
    let error = if was_starting { fatal(error) } else { error };
    let is_fatal = error.is_fatal();
    process_error(messages, error, waits_for_sync).await?;
    Ok(!is_fatal && !is_cancelling)
}
