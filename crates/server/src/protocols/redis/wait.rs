//! A client that waits for samples (`TS.READ … BLOCK`). A timer and its connection are all that it takes.

use std::future::poll_fn;
use std::time::Duration;

use tokio::time::sleep;

use super::{Connection, Port};
use crate::listen::socket::Socket;

/// How often it is looked whether other protocols have written.
const OTHERS_PERIOD: Duration = Duration::from_millis(200);

/// Bytes that a client may send while it waits.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Why a client waits no longer.
pub(super) enum Ended {
    /// Its request is run again.
    Again,
    /// It has left.
    Gone,
    /// It has sent too much meanwhile.
    TooMuch,
}

/// Waits until samples were written that the client may have waited for, until its time is up, or until it leaves.
pub(super) async fn wait(port: &Port, socket: &mut Socket, connection: &mut Connection) -> Ended {
    let db = &port.state.db;
    let clock = db.clock();
    let input_bytes_max = connection.input.len().saturating_add(INPUT_BYTES_MAX);
    loop {
        let Some(waiting) = connection.session.waiting() else { return Ended::Again };
        let left = Duration::from_nanos(waiting.until_ns().saturating_sub(clock.monotonic_ns()));
        tokio::select! {
            () = poll_fn(|context| waiting.poll_written(context)) => return Ended::Again,
            () = sleep(left.min(OTHERS_PERIOD)) => {
                if left <= OTHERS_PERIOD || db.last_sequence() != connection.looked_at {
                    return Ended::Again;
                }
            }
            is_readable = socket.readable() => {
                if is_readable.is_err() || connection.read(socket).is_none() {
                    return Ended::Gone;
                }
                if connection.input.len() > input_bytes_max {
                    return Ended::TooMuch;
                }
            }
        }
    }
}
