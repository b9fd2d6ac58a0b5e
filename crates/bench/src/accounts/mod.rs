//! What accounts cost and get: [`access`], tokens and TLS; [`tenants`], two of them on one server.

pub(crate) mod access;
pub(crate) mod tenants;
