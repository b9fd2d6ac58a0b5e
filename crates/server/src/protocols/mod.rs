//! Protocols of other databases that have a port of their own: [`redis`].

pub(crate) mod redis;
