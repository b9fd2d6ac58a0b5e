//! Frames from and to a socket, within limits of size and time.

use std::ops::Range;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use wire::WireError;
use wire::frame::{self, HEADER_BYTES, MessageBuffer, PREFACE_BYTES, Plane};

use crate::http::body::Share;

/// How long a client that broke the protocol has to read why.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes of what such a client still sends that are read and thrown away.
const LINGER_BYTES_MAX: u64 = 64 << 20;

/// Why nothing more comes.
pub(super) enum End {
    /// The client has gone, or was silent too long.
    Gone,
    /// It broke the protocol.
    Broken(WireError),
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        Self::Broken(error)
    }
}

/// Reads what a client sends first.
pub(super) async fn preface(plane: Plane, from: &mut (impl AsyncRead + Unpin), patience: Duration) -> Result<(), End> {
    let mut bytes = [0; PREFACE_BYTES];
    fill(from, &mut bytes, patience).await?;
    Ok(frame::check_preface(plane, bytes)?)
}

/// Waits for the next frame and gives the bytes of its message, which are to be read next.
pub(super) async fn header(
    from: &mut (impl AsyncRead + Unpin),
    message_bytes_max: usize,
    patience: Duration,
) -> Result<usize, End> {
    let mut bytes = [0; HEADER_BYTES];
    fill(from, &mut bytes, patience).await?;
    Ok(frame::message_bytes(bytes, message_bytes_max)?)
}

/// Fills bytes, or gives up.
pub(super) async fn fill(from: &mut (impl AsyncRead + Unpin), bytes: &mut [u8], patience: Duration) -> Result<(), End> {
    match timeout(patience, from.read_exact(bytes)).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(End::Gone),
    }
}

/// Bytes of a message that are made room for before any of it has come.
const UNSENT_BYTES_MAX: usize = 16 << 10;

/// Reads the bytes of a message that are missing: memory is taken as they come, never for what a client only announces.
pub(super) async fn message(
    from: &mut (impl AsyncRead + Unpin),
    missing: Range<usize>,
    (buffer, share): (&mut MessageBuffer, &mut Share),
    patience: Duration,
) -> Result<(), End> {
    let read = async {
        let Range { start: mut filled, end: bytes } = missing;
        while filled < bytes {
            let room = bytes.min((2 * filled).max(UNSENT_BYTES_MAX));
            share.grow(room - filled).map_err(|error| End::Broken(WireError(error.message)))?;
            let into = buffer.grow(room).get_mut(filled..).unwrap_or_default();
            from.read_exact(into).await.map_err(|_| End::Gone)?;
            filled = room;
        }
        Ok(())
    };
    timeout(patience, read).await.unwrap_or(Err(End::Gone))
}

/// Fills what is not filled yet. Given up half-way, it can go on later.
pub(super) async fn fill_on(
    from: &mut (impl AsyncRead + Unpin),
    bytes: &mut [u8],
    filled: &mut usize,
) -> Result<(), End> {
    while let Some(rest) = bytes.get_mut(*filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest).await {
            Ok(count @ 1..) => *filled += count,
            _ => return Err(End::Gone),
        }
    }
    Ok(())
}

/// Sends bytes, or gives up on a client that does not take them.
pub(super) async fn send(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8], patience: Duration) -> Result<(), End> {
    let sending = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    match timeout(patience, sending).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(End::Gone),
    }
}

/// Lets a client read the last message: closing with bytes unread would take it away.
pub(crate) async fn linger(from: impl AsyncRead + Unpin) {
    let mut rest = from.take(LINGER_BYTES_MAX);
    let _ = timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}
