//! A connection of Postgres's protocol, message by message.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use pgwire::api::{ClientInfo, DefaultClient, PgWireConnectionState};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::response::{GssEncResponse, SslResponse};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage, SslNegotiationMetaMessage};
use pgwire::tokio::server::{PgWireMessageServerCodec, process_error, process_message};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::codec::Framed;

use super::gate::Gate;
use super::postgres::{Connection, Statements};
use super::sign_in::Startup;
use crate::wire::linger;

type Messages = Framed<Gate, PgWireMessageServerCodec<Statements>>;

/// Bytes of the decoder's buffer that a silent connection keeps.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Wishes for encryption that are turned down before a client has to go on without.
const WISHES_MAX: usize = 2;

/// What a statement takes, read, for each byte of its text.
const PARSED_BYTES: usize = 16;

/// What a name takes at least.
const NAMED_BYTES: usize = 256;

/// What a session keeps: prepared statements and portals, by kind and name, with their bytes.
#[derive(Debug, Default)]
struct StatementSizes {
    sizes_bytes: HashMap<(u8, String), usize>,
    bytes: usize,
}

impl StatementSizes {
    /// Takes note of what a message makes or closes. Whether it fits.
    fn note(&mut self, message: &PgWireFrontendMessage, bytes_max: usize) -> bool {
        let named = |kind, name: &Option<String>| (kind, name.clone().unwrap_or_default());
        let (key, bytes) = match message {
            PgWireFrontendMessage::Parse(parse) => {
                (named(b'S', &parse.name), PARSED_BYTES * parse.query.len() + 4 * parse.type_oids.len() + 1)
            }
            PgWireFrontendMessage::Bind(bind) => {
                let values: usize = bind.parameters.iter().flatten().map(Bytes::len).sum();
                let items = bind.parameters.len() + bind.result_column_format_codes.len();
                (named(b'P', &bind.portal_name), values + size_of::<Bytes>() * items + 1)
            }
            PgWireFrontendMessage::Close(close) => (named(close.target_type, &close.name), 0),
            // A portal without a name ends with its query.
            PgWireFrontendMessage::Sync(_) => ((b'P', String::new()), 0),
            _ => return true,
        };
        self.bytes -= self.sizes_bytes.remove(&key).unwrap_or(0);
        if bytes == 0 {
            return true;
        }
        let bytes = bytes + key.1.len() + NAMED_BYTES;
        if self.bytes + bytes > bytes_max {
            return false;
        }
        self.bytes += bytes;
        self.sizes_bytes.insert(key, bytes);
        true
    }
}

/// Serves a client until it leaves, breaks the protocol, or is too slow.
pub(super) async fn serve(connection: Arc<Connection>, socket: TcpStream) -> io::Result<()> {
    let client = DefaultClient::new(socket.peer_addr()?, false);
    socket.set_nodelay(true)?;
    let gate = Gate::new(socket, connection.state.clone());
    let mut messages = Framed::new(gate, PgWireMessageServerCodec::new(client));
    let patience = Duration::from_millis(connection.state.settings.head_timeout_ms);
    let Ok(begun) = timeout(patience, begin(&mut messages)).await else { return Ok(()) };
    let mut next = begun?;
    let startup = Startup::new(connection.clone());
    let mut kept = StatementSizes::default();
    while let Some(message) = next {
        if !kept.note(&message, connection.state.settings.postgres_message_bytes_max) {
            let most = connection.state.settings.postgres_message_bytes_max;
            let message = format!(
                "prepared statements and portals of this session take more than {most} bytes (postgres_message_bytes_max): \
                 close some"
            );
            process_error(&mut messages, super::postgres::failed("53400", message), true).await?;
        } else if !answer((&connection, &startup), &mut messages, message).await? {
            return Ok(());
        }
        next = self::next(&mut messages).await?;
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

/// The first message of a session; wishes for encryption before it are turned down.
async fn begin(messages: &mut Messages) -> io::Result<Option<PgWireFrontendMessage>> {
    for _ in 0..=WISHES_MAX {
        let refused = match next(messages).await? {
            Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(_))) => {
                PgWireBackendMessage::SslResponse(SslResponse::Refuse)
            }
            Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::PostgresGss(_))) => {
                PgWireBackendMessage::GssEncResponse(GssEncResponse::Refuse)
            }
            Some(PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::None)) => {
                messages.set_state(PgWireConnectionState::AwaitingStartup);
                return next(messages).await;
            }
            _ => return Ok(None),
        };
        messages.send(refused).await?;
    }
    Ok(None)
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
    let is_cancelling = matches!(message, PgWireFrontendMessage::CancelRequest(_));
    let handler = || connection.clone();
    let canceller = Arc::new(connection.canceller());
    let done = process_message(message, messages, startup.clone(), handler(), handler(), handler(), canceller).await;
    let Err(error) = done else { return Ok(!is_cancelling) };
    let is_fatal = error.is_fatal();
    process_error(messages, error, waits_for_sync).await?;
    Ok(!is_fatal && !is_cancelling)
}

#[cfg(test)]
mod tests {
    use pgwire::messages::extendedquery::{Bind, Close, Parse, Sync};

    use super::*;

    fn parse(name: &str, bytes: usize) -> PgWireFrontendMessage {
        PgWireFrontendMessage::Parse(Parse::new(Some(name.to_owned()), "x".repeat(bytes), Vec::new()))
    }

    fn bind(name: Option<&str>, bytes: usize) -> PgWireFrontendMessage {
        let values = vec![Some(vec![0; bytes].into())];
        PgWireFrontendMessage::Bind(Bind::new(name.map(str::to_owned), None, Vec::new(), values, Vec::new()))
    }

    #[test]
    fn what_a_session_keeps_is_bounded() {
        let mut kept = StatementSizes::default();
        let most = 10_000;
        assert!(kept.note(&parse("a", 300), most));
        assert!(!kept.note(&parse("b", 300), most), "together they are too large");
        assert!(kept.note(&parse("a", 310), most), "one that is made again takes its own place");
        assert!(kept.note(&bind(None, 4000), most));
        assert!(!kept.note(&bind(Some("p"), 4000), most));
        assert!(kept.note(&PgWireFrontendMessage::Sync(Sync::new()), most));
        assert!(kept.note(&bind(Some("p"), 4000), most), "the other went with the sync");
        assert!(kept.note(&PgWireFrontendMessage::Sync(Sync::new()), most));
        assert!(!kept.note(&bind(Some("q"), 4000), most), "one with a name did not");
        for (kind, name) in [(b'P', "p"), (b'S', "a"), (b'S', "unknown")] {
            assert!(kept.note(&PgWireFrontendMessage::Close(Close::new(kind, Some(name.to_owned()))), most));
        }
        assert_eq!((kept.bytes, kept.sizes_bytes.len()), (0, 0));
        let fitting = (0..1000).take_while(|number| kept.note(&parse(&number.to_string(), 1), most)).count();
        assert!((10..50).contains(&fitting), "{fitting} small ones");
    }
}
