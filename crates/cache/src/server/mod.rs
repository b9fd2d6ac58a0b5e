//! The cache as a small server: memcached's text protocol, extended by spans of time, and HTTP, on one port. Ordinary items are kept
//! in memory, answers with their spans in the [`Cache`].
//!
//! A thread serves a connection, as many as there may be (`connections`); one more compacts.

mod connections;
pub(crate) mod fuzz;
mod http;
mod items;
mod leases;
mod memcached;
mod secure;
mod session;
mod wire;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustls::ServerConfig;
use tracing_mutex::parkinglot::Mutex;

pub use secure::{Token, tls};

use crate::{Cache, Layered};
use connections::{Bodies, Connection, Connections};
use items::Items;
use leases::Leases;
use wire::Wire;

/// Bounds of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Connections at a time. For one more the one that was silent for longest is closed; if all are busy it is refused.
    pub connections_max: usize,
    /// Bytes of one body.
    pub body_bytes_max: usize,
    /// Bytes of ordinary items, which are kept in memory.
    pub items_bytes_max: usize,
    /// Bytes of answers that are kept in memory, in front of flash.
    pub memory_bytes_max: usize,
    /// Bytes of the bodies and long replies of all connections, with what is made of them.
    pub bodies_bytes_max: usize,
    /// How long a connection may be silent between two requests.
    pub idle_timeout_ms: u64,
    /// How long a request may take to come, once it has begun.
    pub request_timeout_ms: u64,
    /// How long a client may take nothing of a reply.
    pub write_timeout_ms: u64,
    /// How long a request may wait for the answer that another client fetches.
    pub wait_ms_max: u64,
    /// How long a connection may take to shake hands, and to sign in where it has to.
    pub sign_in_timeout_ms: u64,
    /// TLS; `None`: none is spoken.
    pub tls: Option<Arc<ServerConfig>>,
    /// What clients sign in with; `None`: none has to.
    pub token: Option<Token>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            connections_max: 512,
            body_bytes_max: 64 << 20,
            items_bytes_max: 64 << 20,
            memory_bytes_max: 64 << 20,
            bodies_bytes_max: 256 << 20,
            idle_timeout_ms: 600_000,
            request_timeout_ms: 60_000,
            write_timeout_ms: 30_000,
            wait_ms_max: 60_000,
            sign_in_timeout_ms: 10_000,
            tls: None,
            token: None,
        }
    }
}

/// What connections share.
struct Service {
    cache: Arc<Cache>,
    /// The cache, with memory in front.
    answers: Layered,
    options: ServerOptions,
    items: Mutex<Items>,
    leases: Leases,
    connections: Connections,
    bodies: Bodies,
    waits: AtomicU64,
    is_over: AtomicBool,
}

impl Service {
    fn new(cache: Arc<Cache>, options: ServerOptions) -> Self {
        Self {
            answers: Layered::new(options.memory_bytes_max, Some(cache.clone())),
            cache,
            items: Mutex::new(Items::new(options.items_bytes_max)),
            options,
            leases: Leases::default(),
            connections: Connections::default(),
            bodies: Bodies::default(),
            waits: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }
}

/// A running server; [`Server::stop`] ends it.
pub struct Server {
    service: Arc<Service>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Serves the connections of a listener, in threads of its own.
    pub fn start(cache: Arc<Cache>, listener: TcpListener, options: ServerOptions) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let service = Arc::new(Service::new(cache, options));
        let threads = vec![
            spawn("cache-accept", &service, {
                let service = service.clone();
                move |_| accept(&service, &listener)
            })?,
            spawn("cache-compact", &service, maintain)?,
        ];
        Ok(Self { service, address, threads })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections and writes what is not on flash yet. Connections that are open end with the process.
    pub fn stop(self) -> io::Result<()> {
        self.service.is_over.store(true, Ordering::SeqCst);
        self.service.cache.shared.counters.wake();
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
        for thread in self.threads {
            // One that panicked has told so already.
            let _ = thread.join();
        }
        self.service.cache.flush()
    }
}

fn spawn(
    name: &str,
    service: &Arc<Service>,
    work: impl FnOnce(&Service) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let service = service.clone();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&service))
}

fn accept(service: &Arc<Service>, listener: &TcpListener) {
    for stream in listener.incoming() {
        if service.is_over.load(Ordering::SeqCst) {
            return;
        }
        // A connection that broke while it was accepted has no client any more.
        let Ok(stream) = stream else { continue };
        if !service.connections.take(service.options.connections_max) {
            connections::refuse(service, stream);
            continue;
        }
        let served = spawn("cache-connection", service, move |service| match Connection::new(service, stream) {
            // The other side is gone, or was silent for too long: there is no one left to answer.
            Ok(mut connection) => {
                if connection.shake_hands().is_ok() {
                    drop(session::serve(service, &mut Wire::new(connection)));
                }
            }
            Err(_) => service.connections.give_back(),
        });
        if served.is_err() {
            service.connections.give_back();
        }
    }
}

fn maintain(service: &Service) {
    while !service.is_over.load(Ordering::SeqCst) {
        service.cache.wait_for_work(1000);
        // What cannot be compacted stays as it is; requests that meet the same trouble with the file tell of it.
        while service.cache.maintain().unwrap_or(false) && !service.is_over.load(Ordering::SeqCst) {}
    }
}

#[cfg(test)]
mod tests;
