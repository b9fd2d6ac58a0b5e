//! Results of queries on a flash file, by the query's key and the time range: TSCache (Liu, Yang, Wang, Chen: TSCache: An Efficient
//! Flash-based Caching Scheme for Time-series Data Workloads, PVLDB 14(13), 2021), and what measuring added to it.
//!
//! [`Cache`] is the whole of it: [`Cache::set`] keeps an [`Answer`] for a [`Span`], [`Cache::get`] gives all of a span, its head or
//! tail, or nothing. What is in a slab and why a slab is never wrong: `docs/formats/slab.md`.
//!
//! A result goes into a bucket for each field, a full bucket into slabs, each written once to a slot of the flash file. A lookup answers only if intervals
//! that were read, checked and found not deleted cover every field: a crash or a bad slab is a miss, never a wrong answer.
//!
//! * `engine`: the cache itself, a file for each of set, get, delete, sealing, compaction, recovery · `resolve`: which interval answers for an instant
//! * `open_slab`: points that wait for flash · `slab`: bytes of a slab · `flash`: the file, its pages in memory, threads that read
//! * `index`: which key has what, and where · `policy`: which slab goes next
//! * `front`: results in memory, before flash · `key`, `span`, `points`: keys, sets of intervals, results
//! * `formats`: results as bytes for clients · `server`: memcached's protocol and HTTP · `fuzzing`: entries for fuzzers

mod engine;
mod flash;
mod formats;
mod front;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod key;
mod open_slab;
mod points;
pub mod policy;
mod resolve;
pub mod server;
mod slab;
mod span;

pub use engine::{Cache, CachedPart, Lookup, Options, Request, SetError, Stats};
pub use flash::FILE_MAGIC;
pub use formats::{columns, json};
pub use front::{CacheEntry, Front, FrontStats, Layered, Portion};
pub use key::Key;
pub use points::{Answer, FieldPoints, Points, ValueType, Values};
pub use policy::PolicyKind;
pub use span::Span;
