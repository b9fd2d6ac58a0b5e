//! SQL over HTTP ([`http`]) and over Postgres's protocol ([`postgres`]).

pub(crate) mod http;
pub(crate) mod postgres;
mod text;
