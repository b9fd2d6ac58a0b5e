//! Postgres's messages as a client may send them, without a socket.

use std::sync::Arc;

use bytes::BytesMut;
use pgwire::api::Type;
use pgwire::api::portal::Portal;
use pgwire::api::stmt::StoredStatement;
use pgwire::messages::{DecodeContext, PgWireFrontendMessage, ProtocolVersion};

use super::frames::Frames;
use super::postgres::{Statements, parameter};

/// Bytes of a message, so that short inputs can have too long ones.
const MESSAGE_BYTES_MAX: usize = 1000;

/// Reads bytes as the messages of a client: the entry for fuzzing. What passes the check is decoded to its end and no further;
/// statements are parsed, and parameters read.
pub(crate) fn messages(bytes: &[u8]) {
    let mut frames = Frames::new(MESSAGE_BYTES_MAX);
    let (mut rest, mut context) = (bytes, DecodeContext::new(ProtocolVersion::default()));
    context.awaiting_frontend_ssl = false;
    let mut statement: Option<Arc<StoredStatement<Statements>>> = None;
    while let Ok(Some(length)) = frames.length(rest) {
        let Some((message, behind)) = rest.split_at_checked(length) else { return };
        let was_begun = frames.has_started();
        if frames.check(message).is_err() {
            return;
        }
        context.awaiting_frontend_ssl = !was_begun && !frames.has_started();
        context.awaiting_frontend_startup = !was_begun;
        let mut buffer = BytesMut::from(rest);
        let decoded = PgWireFrontendMessage::decode(&mut buffer, &context);
        assert!(decoded.is_err() || buffer.len() == behind.len(), "{decoded:?} left {} bytes", buffer.len());
        if let Ok(Some(decoded)) = decoded {
            read(&decoded, &mut statement);
        }
        rest = behind;
    }
}

fn read(message: &PgWireFrontendMessage, statement: &mut Option<Arc<StoredStatement<Statements>>>) {
    match message {
        PgWireFrontendMessage::Query(query) => {
            let _ = Statements::read(&query.query);
        }
        PgWireFrontendMessage::Parse(parse) => {
            let types = parse.type_oids.iter().map(|number| Type::from_oid(*number)).collect();
            let read = Statements::read(&parse.query).ok();
            *statement = read.map(|read| Arc::new(StoredStatement::new(String::new(), read, types)));
        }
        PgWireFrontendMessage::Bind(bind) => {
            let Some(portal) = statement.clone().and_then(|statement| Portal::try_new(bind, statement).ok()) else {
                return;
            };
            for place in 0..portal.parameter_len() {
                let _ = parameter(&portal, place);
            }
        }
        _ => {}
    }
}
