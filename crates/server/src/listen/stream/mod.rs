//! Listeners of lines: connections and datagrams whose bytes are cut at line ends, parsed and stored.
//!
//! * `tcp.rs`: connections. What was read is on disk before more is read, so that a client that sends faster than lines can be stored
//!   is held back by TCP itself. A connection has a buffer only while it has bytes to store.
//! * `udp.rs`: datagrams, through a bounded queue.
//! * `http.rs`: requests of HTTP, which are turned away.
//! * `protocols.rs`: what the lines are, and what becomes of bad ones.

mod http;
mod protocols;
mod tcp;
mod udp;

pub(crate) use protocols::LineProtocol;
pub(crate) use tcp::Lines;
pub(crate) use udp::serve_udp;
