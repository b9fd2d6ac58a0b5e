//! The binary protocol's two listeners: the control plane gives tokens, the data plane takes rows by token. What is said:
//! `docs/formats/wire.md`; its bytes: `ingest::wire`.
//!
//! ```text
//! data plane, for each connection that is awake:            for all connections:
//!   reader (task) ── jobs ─→ turns (threads: log, heads) ─── applied ─→ committer (thread: one sync for all)
//!   writer (task) ←───────────────────────── acknowledged ──────────────────┘
//! ```
//!
//! A connection that is silent is parked: a socket, a few numbers, and nothing of the above.
//!
//! * [`control`]: registering · [`data`]: a connection of the data plane · [`awake`]: one that is not silent
//! * [`turn`]: its turns on one of few threads · [`apply`]: a batch into the database
//! * [`commit`]: making durable what many connections appended · [`socket`]: frames within limits of size and time

mod apply;
mod awake;
mod commit;
mod control;
mod data;
mod socket;
mod turn;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use db::Db;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use wire::frame::Plane;

use crate::listen::ACCEPT_PAUSE;
use crate::listen::connection_limit::ConnectionLimit;
use crate::state::{ServerSettings, State};
use commit::Committer;
pub(crate) use socket::linger;
use turn::Threads;

/// Bytes that one permit for memory stands for.
const PERMIT_BYTES: usize = 1024;

/// What all connections share.
pub(crate) struct Planes {
    state: Arc<State>,
    committer: Committer,
    /// What batches are applied on.
    threads: Threads,
    /// Memory for messages of the data plane that are read and not applied, in units of [`PERMIT_BYTES`].
    memory: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

impl Planes {
    pub(crate) fn new(state: Arc<State>, stop: watch::Receiver<bool>) -> Arc<Self> {
        let settings = &state.settings;
        // A quarter of what all requests may hold, and always one message.
        let share_bytes = usize::try_from(state.db.request_memory().bytes_max / 4).unwrap_or(usize::MAX);
        let bytes_max = settings.ingest_memory_bytes_max.min(share_bytes).max(settings.message_bytes_max);
        let permits = bytes_max / PERMIT_BYTES + 1;
        Arc::new(Self {
            committer: Committer::start(state.db.clone()),
            threads: Threads::new(settings.wire_threads_max),
            memory: Arc::new(Semaphore::new(permits.min(u32::MAX as usize))),
            stop,
            state,
        })
    }

    fn settings(&self) -> &ServerSettings {
        &self.state.settings
    }

    fn db(&self) -> &Arc<Db> {
        &self.state.db
    }

    /// After how long a silence a connection gives up its thread and its buffers.
    fn quiet_after(&self) -> Duration {
        let settings = self.settings();
        Duration::from_millis(settings.park_after_ms.min(settings.idle_timeout_ms))
    }

    /// Accepts until the stop, then waits until all connections have been answered.
    pub(crate) async fn accept(self: Arc<Self>, plane: Plane, listener: TcpListener, alive: mpsc::Sender<()>) {
        let room = ConnectionLimit::new(self.settings().connections_max);
        let mut connections = JoinSet::new();
        let mut stop = self.stop.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Some(permit) = room.take(|| false).await else {
                self.state.metrics.refuse_connection();
                continue;
            };
            // Acknowledgements are small and complete: waiting to fill a packet only delays them.
            let _ = stream.set_nodelay(true);
            let planes = self.clone();
            planes.state.metrics.connections.fetch_add(1, Ordering::Relaxed);
            connections.spawn(async move {
                match plane {
                    Plane::Control => control::serve(&planes, stream).await,
                    Plane::Data => data::serve(&planes, stream).await,
                }
                planes.state.metrics.connections.fetch_sub(1, Ordering::Relaxed);
                drop(permit);
            });
            while connections.try_join_next().is_some() {}
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
        drop(alive);
    }
}
