//! The beginning of a connection of Postgres's clients: wishes for encryption before the first message
//! (<https://www.postgresql.org/docs/current/protocol-flow.html>, "SSL Session Encryption"), or TLS from the first byte.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::frames::{CANCEL, KERBEROS, STARTUP_BYTES_MAX, TLS};
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
    /// The bytes that were read of that message.
    pub(super) ahead: Vec<u8>,
}

/// What a client wishes for before its first message.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Tls,
    Kerberos,
}

/// The wish that a code stands for, in a message that has no more than that.
fn wish(code: [u8; 4]) -> Option<Wish> {
    match u32::from_be_bytes(code) {
        TLS => Some(Wish::Tls),
        KERBEROS => Some(Wish::Kerberos),
        _ => None,
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
    let chosen = timeout(patience, ask(&mut socket, tls.is_some())).await;
    match (chosen.map_err(|_| io::ErrorKind::TimedOut)??, socket, tls) {
        (Choice::Tls, Socket::Tcp(stream), Some(tls)) => {
            let (socket, peer) = tls.accept(stream, peer.address, handshake).await?;
            Ok(Begun { socket, peer, ahead: Vec::new() })
        }
        (Choice::Message { is_cancel: false, .. }, mut socket, Some(_)) if peer.is_in_the_clear() => {
            socket.write_all(IN_THE_CLEAR).await?;
            socket.shutdown().await?;
            linger(socket).await;
            Err(io::ErrorKind::PermissionDenied.into())
        }
        (Choice::Message { ahead, .. }, socket, _) => Ok(Begun { socket, peer, ahead }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A client's decision between TLS and none.
enum Choice {
    /// It begins to shake hands.
    Tls,
    /// It goes on without, with these bytes. What cancels a query holds a secret of its session, and older clients send it in the clear.
    Message { ahead: Vec<u8>, is_cancel: bool },
}

async fn ask(socket: &mut Socket, has_tls: bool) -> io::Result<Choice> {
    if has_tls && let Socket::Tcp(stream) = &*socket {
        let mut byte = [0];
        if stream.peek(&mut byte).await? == 1 && byte == [HANDSHAKE] {
            return Ok(Choice::Tls);
        }
    }
    for _ in 0..=WISHES_MAX {
        let (mut length, mut code) = ([0; 4], [0; 4]);
        socket.read_exact(&mut length).await?;
        let bytes = u32::from_be_bytes(length) as usize;
        if !(WISH_BYTES..=STARTUP_BYTES_MAX).contains(&bytes) {
            return Ok(Choice::Message { ahead: length.to_vec(), is_cancel: false });
        }
        socket.read_exact(&mut code).await?;
        match wish(code).filter(|_| bytes == WISH_BYTES) {
            None => {
                let is_cancel = u32::from_be_bytes(code) == CANCEL;
                return Ok(Choice::Message { ahead: [length, code].concat(), is_cancel });
            }
            // Exactly these bytes were read: what else came in the clear is taken for a part of the handshake, and breaks it.
            Some(Wish::Tls) if has_tls => {
                socket.write_all(b"S").await?;
                return Ok(Choice::Tls);
            }
            Some(Wish::Tls | Wish::Kerberos) => socket.write_all(b"N").await?,
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_told_from_messages() {
        assert_eq!(wish(*b"\x04\xd2\x16\x2f"), Some(Wish::Tls));
        assert_eq!(wish(*b"\x04\xd2\x16\x30"), Some(Wish::Kerberos));
        assert_eq!(wish(*b"\0\x03\0\0"), None);
    }

    #[test]
    fn the_refusal_is_whole() {
        let [_, length @ ..] = *IN_THE_CLEAR.first_chunk::<5>().unwrap();
        assert_eq!(u32::from_be_bytes(length) as usize, IN_THE_CLEAR.len() - 1);
    }
}
