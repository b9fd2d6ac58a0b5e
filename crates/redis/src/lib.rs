//! Redis's protocol and the commands of `RedisTimeSeries` over a database. No sockets: the server hands over bytes and sends what comes back.
//!
//! A key is a series of the table `ts` with the label `key` and its own labels, and a value: `ts{key="temp:1",room="a"}` in PromQL,
//! `SELECT time, value FROM ts WHERE key = 'temp:1'` in SQL. What a series has not (retention, duplicate policy, rules) is a document of
//! the database ([`series`]).
//!
//! * [`protocol`]: requests from bytes (RESP2, RESP3, inline), replies to bytes
//! * [`series`]: the keys of a database, their settings, samples and compaction rules
//! * [`commands`]: what clients may ask for: parsing arguments, running, replying
//! * [`aggregate`]: buckets of samples, and groups of series · [`fuzzing`]: entries of the fuzz targets

pub mod aggregate;
pub mod commands;
#[doc(hidden)]
pub mod fuzzing;
pub mod protocol;
pub mod series;

pub use commands::{Access, CommandError, Flow, Limits, NewSeriesGate, Ran, Right, Service, Session, Waiting};
