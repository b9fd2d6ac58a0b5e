//! Writing by single protocols: [`wire`], the binary one; [`redis`].

pub(crate) mod redis;
pub(crate) mod wire;
