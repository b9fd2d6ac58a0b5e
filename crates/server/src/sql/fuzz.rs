//! Postgres's messages as a client may send them, without a socket.

use std::sync::Arc;

use bytes::BytesMut;
use pgwire::api::Type;
use pgwire::api::portal::Portal;
use pgwire::api::stmt::StoredStatement;
use pgwire::messages::{DecodeContext, PgWireFrontendMessage, ProtocolVersion};

use super::frames::Frames;
use super::parameters::parameter;
use super::prepared::Statements;

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
                let _ = parameter(&portal, place, &jiff::tz::TimeZone::UTC);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session: a statement with two parameters, one text and one binary, and what clients do with it.
    const SESSION: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f\0\0\0\x11\0\x03\0\0user\0me\0\0Q\0\0\0\x0dSELECT 1\0\
        P\0\0\0\x1es\0SELECT $1, $2\0\0\x02\0\0\0\x14\0\0\0\x19\
        B\0\0\0\x22\0s\0\0\x02\0\x01\0\0\0\x02\0\0\0\x08\0\0\0\0\0\0\0\x07\0\0\0\x01x\0\0D\0\0\0\x07Ss\0\
        E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04d\0\0\0\x06ab";

    #[test]
    fn no_byte_of_a_session_that_is_another_breaks_it() {
        let mut frames = Frames::new(MESSAGE_BYTES_MAX);
        let mut rest = SESSION;
        while let Ok(Some(length)) = frames.length(rest) {
            frames.check(&rest[..length]).unwrap();
            rest = &rest[length..];
        }
        assert!(rest.is_empty(), "the session is whole: {rest:?}");
        for place in 0..SESSION.len() {
            for byte in [0, 1, 2, 4, 5, 0x20, 0x7f, 0x80, 0xff, SESSION[place] ^ 1, SESSION[place].wrapping_add(1)] {
                let mut bytes = SESSION.to_vec();
                bytes[place] = byte;
                messages(&bytes);
                messages(&bytes[..place]);
            }
        }
    }

    #[test]
    fn no_edits_of_a_session_break_it() {
        let mut state = 7u64;
        let mut random = |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        for _ in 0..20_000 {
            let mut bytes = SESSION.to_vec();
            for _ in 0..=random(5) {
                let (place, from) = (random(bytes.len()), random(bytes.len()));
                match random(3) {
                    0 => bytes[place] = [0, 1, 2, 8, 0x7f, 0xff, b'\'', b'$'][random(8)],
                    1 => drop(bytes.remove(place)),
                    _ => bytes.insert(place, bytes[from]),
                }
            }
            messages(&bytes);
        }
    }
}
