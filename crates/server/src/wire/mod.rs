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
//! * [`written`]: what is counted of messages

mod apply;
mod awake;
mod commit;
mod control;
mod data;
mod socket;
mod turn;
mod written;

use std::sync::Arc;
use std::time::Duration;

use db::Db;
use tokio::sync::{Semaphore, watch};
use wire::frame::Plane;

use crate::listen::accept::Serve;
use crate::listen::socket::{Peer, Socket};
use crate::settings::ServerSettings;
use crate::state::State;
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
}

/// The port of a plane.
pub(crate) struct PlanePort {
    pub(crate) planes: Arc<Planes>,
    pub(crate) plane: Plane,
}

impl Serve for PlanePort {
    async fn serve(self: Arc<Self>, stream: Socket, peer: Peer, _stop: watch::Receiver<bool>) {
        match self.plane {
            Plane::Control => control::serve(&self.planes, stream, peer).await,
            Plane::Data => data::serve(&self.planes, stream, peer).await,
        }
    }
}
