//! Sending requests at a pace, and measuring: latencies, CPU time, memory.

pub(crate) mod latency;
pub(crate) mod process;
pub(crate) mod queue;
pub(crate) mod send;
