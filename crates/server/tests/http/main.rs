//! The server over real sockets: every endpoint with good and bad input.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod admin;
mod harness;
mod hostile;
mod queries;
mod status;
mod writes;
