//! Data to write: hosts of the Time Series Benchmark Suite, how their values move, and requests made of them.

pub(crate) mod generate;
pub(crate) mod hosts;
pub(crate) mod requests;
pub(crate) mod walk;
