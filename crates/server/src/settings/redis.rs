//! Settings of Redis's protocol.

use super::Listener;

/// Settings of Redis's protocol.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// Where it is served; `None`: nowhere.
    pub listener: Option<Listener>,
    /// The database that clients begin with; others have their number after this name.
    pub database: String,
    /// How long a client may be silent.
    pub idle_timeout_ms: u64,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self { listener: None, database: "redis".to_owned(), idle_timeout_ms: 600_000 }
    }
}
