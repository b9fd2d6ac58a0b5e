//! The bytes of Redis's serialization protocol (RESP2 and RESP3, <https://redis.io/docs/latest/develop/reference/protocol-spec/>).

mod reply;
mod request;

pub use reply::ReplyWriter;
pub use request::{Limits, Parser, ProtocolError, Request};
