//! SQL over HTTP ([`http`]) and over Postgres's protocol ([`postgres`]).

mod copy;
pub(crate) mod http;
pub(crate) mod postgres;
mod text;
