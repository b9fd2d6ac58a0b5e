//! The binary protocol's two listeners: the control plane gives tokens, the data plane takes rows by token. What is said:
//! `docs/formats/wire.md`; its bytes: `ingest::wire`.
//!
//! ```text
//! data plane, for each connection:                          for all connections:
//!   reader (task) ── jobs ─→ applier (thread: log, heads) ── applied ─→ committer (thread: one sync for all)
//!   writer (task) ←───────────────────────── acknowledged ──────────────────┘
//! ```
//!
//! * [`control`]: registering · [`data`]: a connection of the data plane · [`apply`]: a batch into the database
//! * [`commit`]: making durable what many connections appended · [`socket`]: frames within limits of size and time

mod apply;
mod commit;
mod control;
mod data;
mod socket;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use db::Db;
use ingest::wire::frame::Plane;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::listen::{ACCEPT_PAUSE, ServeError};
use crate::state::{ServerSettings, State};
use commit::Committer;

/// Bytes that one permit for memory stands for.
const PERMIT_BYTES: usize = 1024;

/// Sockets that listen.
pub(crate) struct Listeners {
    control: Option<TcpListener>,
    ingest: Option<TcpListener>,
    pub(crate) control_address: Option<SocketAddr>,
    pub(crate) ingest_address: Option<SocketAddr>,
}

/// What all connections share.
struct Planes {
    state: Arc<State>,
    committer: Committer,
    connections: Arc<Semaphore>,
    /// Memory for messages of the data plane that are read and not applied, in units of [`PERMIT_BYTES`].
    memory: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

impl Planes {
    fn settings(&self) -> &ServerSettings {
        &self.state.settings
    }

    fn db(&self) -> &Arc<Db> {
        &self.state.db
    }
}

/// Listeners that serve.
pub(crate) struct Serving {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Listeners {
    pub(crate) async fn bind(settings: &ServerSettings) -> Result<Self, ServeError> {
        let (control, control_address) = bind(settings.control, "--control").await?;
        let (ingest, ingest_address) = bind(settings.ingest, "--ingest").await?;
        Ok(Self { control, ingest, control_address, ingest_address })
    }

    pub(crate) fn start(self, state: &Arc<State>) -> Serving {
        let (stop, stopped) = watch::channel(false);
        let settings = &state.settings;
        let permits = settings.ingest_memory_bytes_max.max(settings.message_bytes_max) / PERMIT_BYTES + 1;
        let planes = Arc::new(Planes {
            state: state.clone(),
            committer: Committer::start(state.db.clone()),
            connections: Arc::new(Semaphore::new(settings.wire_connections_max.clamp(1, Semaphore::MAX_PERMITS))),
            memory: Arc::new(Semaphore::new(permits.min(u32::MAX as usize))),
            stop: stopped,
        });
        let mut tasks = JoinSet::new();
        for (plane, listener) in [(Plane::Control, self.control), (Plane::Data, self.ingest)] {
            if let Some(listener) = listener {
                tasks.spawn(accept(planes.clone(), plane, listener));
            }
        }
        Serving { stop, tasks }
    }
}

impl Serving {
    /// Takes nothing more, answers what has come, and returns when that is done or the time is over.
    pub(crate) async fn stop(mut self, patience: Duration) {
        // Nobody listens where nothing is served.
        let _ = self.stop.send(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(patience, all).await;
    }
}

async fn bind(
    address: Option<SocketAddr>,
    flag: &'static str,
) -> Result<(Option<TcpListener>, Option<SocketAddr>), ServeError> {
    let Some(address) = address else {
        return Ok((None, None));
    };
    let failed = |error| ServeError::Bind { address, flag, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((Some(listener), Some(bound)))
}

async fn accept(planes: Arc<Planes>, plane: Plane, listener: TcpListener) {
    let mut connections = JoinSet::new();
    let mut stop = planes.stop.clone();
    loop {
        let Ok(permit) = planes.connections.clone().acquire_owned().await else {
            break;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Acknowledgements are small and complete: waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let planes = planes.clone();
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
}
