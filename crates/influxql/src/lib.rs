//! InfluxQL as InfluxDB 1.8 has it: text to statements to values.

mod syntax;

pub use syntax::{Parameter, TEXT_BYTES_MAX};
