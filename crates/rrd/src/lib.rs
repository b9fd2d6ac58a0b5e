//! RRDtool's world over the database: its files, what it makes of updates, how it is asked, and the protocol of rrdcached. No sockets.
//!
//! * [`file`]: files in memory: `.rrd`, the XML of dumps, definitions · [`number`], [`time`]: numbers and times as RRDtool writes them
//! * [`consolidate`]: updates to rows · [`fetch`]: which rows answer · [`rpn`]: expressions · [`xport`]: exports of columns
//! * [`pattern`]: paths to labels · [`catalog`]: files in the database: import, export, updates, reading
//! * [`protocol`]: commands of rrdcached and their answers · `error`: why something could not be done · `fuzzing`: entries for fuzzers

pub mod catalog;
pub mod consolidate;
mod error;
pub mod fetch;
pub mod file;
#[doc(hidden)]
pub mod fuzzing;
pub mod number;
pub mod pattern;
pub mod protocol;
pub mod rpn;
pub mod time;
pub mod xport;

pub use error::RrdError;
