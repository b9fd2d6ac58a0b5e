//! Settings of connections that send lines.

/// Settings of connections that send lines.
#[derive(Debug, Clone)]
pub struct StreamSettings {
    /// How long a connection of a line listener may be silent.
    pub idle_timeout_ms: u64,
    /// How long a client may take to finish a line.
    pub line_timeout_ms: u64,
    /// Bytes that a connection of a line listener has on their way at the same time.
    pub bytes_max: usize,
    /// Connections of line listeners that are served at the same time; others wait for their turn.
    pub busy_max: usize,
    /// Bytes of unfinished lines that are kept for all connections together.
    pub rest_bytes_max: usize,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            idle_timeout_ms: 600_000,
            line_timeout_ms: 30_000,
            bytes_max: 1 << 20,
            busy_max: 64,
            rest_bytes_max: 64 << 20,
        }
    }
}
