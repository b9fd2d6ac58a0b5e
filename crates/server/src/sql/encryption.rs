//! The beginning of a connection of Postgres's clients: wishes for encryption before the first message
//! (<https://www.postgresql.org/docs/current/protocol-flow.html>, "SSL Session Encryption"), or TLS from the first byte.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::frames::{KERBEROS, TLS};
use crate::listen::socket::{Peer, Socket};
use crate::listen::tls::{Handshake, Inner, Tls};
use crate::state::State;
use crate::wire::linger;

/// Bytes of a wish: its length and its code.
const WISH_BYTES: usize = 8;

/// Wishes that are answered before a client has to begin.
const WISHES_MAX: usize = 2;

/// How a record of TLS begins that has a handshake: a client that does not ask first.
const HANDSHAKE: u8 = 0x16;

/// The answer to a client without TLS where it has to be: an error message with its length, severity, code and text.
const IN_THE_CLEAR: &[u8] =
    b"E\0\0\0\x63SFATAL\0C28000\0Mthis server takes sessions of other machines by TLS alone: use sslmode=require\0\0";

/// A connection on which the first message is next.
pub(super) struct Begun {
    pub(super) socket: Socket,
    pub(super) peer: Peer,
    /// What was read of that message.
    pub(super) ahead: Vec<u8>,
}

/// What a client says first.
#[derive(Debug, PartialEq, Eq)]
enum First {
    WishForTls,
    WishForKerberos,
    Message,
}

fn first(bytes: [u8; WISH_BYTES]) -> First {
    let [length @ .., _, _, _, _] = bytes;
    let [_, _, _, _, code @ ..] = bytes;
    match (u32::from_be_bytes(length) as usize, u32::from_be_bytes(code)) {
        (WISH_BYTES, TLS) => First::WishForTls,
        (WISH_BYTES, KERBEROS) => First::WishForKerberos,
        _ => First::Message,
    }
}

/// Answers wishes, and shakes hands if TLS is wished for and there is any. A client of another machine that wants none where there is some is
/// refused; one of this machine is not.
pub(super) async fn negotiate(
    state: &State,
    tls: Option<&Arc<Tls>>,
    mut socket: Socket,
    peer: Peer,
) -> io::Result<Begun> {
    let patience = Duration::from_millis(state.settings.head_timeout_ms);
    let handshake = Handshake { inner: Inner::Postgres, patience };
    let asked = timeout(patience, ask(&mut socket, tls.is_some())).await;
    match (asked.map_err(|_| io::ErrorKind::TimedOut)??, socket, tls) {
        (Asked::Tls, Socket::Tcp(stream), Some(tls)) => {
            let (socket, peer) = tls.accept(stream, peer.address, handshake).await?;
            Ok(Begun { socket, peer, ahead: Vec::new() })
        }
        (Asked::Message(_), mut socket, Some(_)) if peer.is_in_the_clear() => {
            socket.write_all(IN_THE_CLEAR).await?;
            socket.shutdown().await?;
            linger(socket).await;
            Err(io::ErrorKind::PermissionDenied.into())
        }
        (Asked::Message(ahead), socket, _) => Ok(Begun { socket, peer, ahead }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// What a client settled for.
enum Asked {
    /// It begins to shake hands.
    Tls,
    /// It goes on without, with these bytes.
    Message(Vec<u8>),
}

async fn ask(socket: &mut Socket, has_tls: bool) -> io::Result<Asked> {
    if has_tls && let Socket::Tcp(stream) = &*socket {
        let mut byte = [0];
        if stream.peek(&mut byte).await? == 1 && byte == [HANDSHAKE] {
            return Ok(Asked::Tls);
        }
    }
    for _ in 0..=WISHES_MAX {
        let mut bytes = [0; WISH_BYTES];
        socket.read_exact(&mut bytes).await?;
        match first(bytes) {
            First::Message => return Ok(Asked::Message(bytes.to_vec())),
            // Exactly these bytes were read: what else came in the clear is taken for a part of the handshake, and breaks it.
            First::WishForTls if has_tls => {
                socket.write_all(b"S").await?;
                return Ok(Asked::Tls);
            }
            First::WishForTls | First::WishForKerberos => socket.write_all(b"N").await?,
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_told_from_messages() {
        assert_eq!(first(*b"\0\0\0\x08\x04\xd2\x16\x2f"), First::WishForTls);
        assert_eq!(first(*b"\0\0\0\x08\x04\xd2\x16\x30"), First::WishForKerberos);
        assert_eq!(first(*b"\0\0\0\x10\x04\xd2\x16\x2e"), First::Message);
        assert_eq!(first(*b"\0\0\0\x2a\0\x03\0\0"), First::Message);
    }

    #[test]
    fn the_refusal_is_whole() {
        let [_, length @ ..] = *IN_THE_CLEAR.first_chunk::<5>().unwrap();
        assert_eq!(u32::from_be_bytes(length) as usize, IN_THE_CLEAR.len() - 1);
    }
}
