//! The server over real sockets: every endpoint with good and bad input.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod access;
mod active;
mod admin;
mod api;
mod browsers;
mod certificates;
mod corpus;
mod forwarding;
mod grpc;
mod harness;
mod hostile;
mod influx_v2;
mod influx_v3;
mod influxql;
mod limits;
mod manners;
mod page_session;
mod parking;
mod postgres;
mod postgres_sessions;
mod prefix;
mod protocols;
mod push;
mod queries;
mod questdb;
mod readiness;
mod replicas;
mod scraping;
mod search;
mod sql;
mod status;
mod streams;
mod suite;
mod tls;
mod writes;
