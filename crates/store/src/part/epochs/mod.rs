//! Regular databases: all series of one have their values at the same moments, its epochs.
//!
//! An epoch is a row over indexes, cut into blocks. It does not go through the log: a write is encoded once and is one record of a file
//! that the manifest names, written and synced once.
//!
//! * [`definition`]: interval, start, type of values
//! * [`names`]: which name has which index when
//! * [`block`]: the values of neighbouring indexes · [`record`], [`file`]: how they are on disk
//! * [`regular`]: one regular database: its names, and where its epochs are
//! * [`write`]: writing an epoch, removing names · [`read`]: epochs of names, names of epochs · [`top`]: the largest · [`scan`]: all, as they lie
//! * [`open`]: what an opening finds · [`merge`]: uniting records · [`retention`]: what goes
//!
//! Layout: `docs/formats/epochs.md`.

pub(crate) mod block;
pub(crate) mod definition;
pub(crate) mod file;
pub(crate) mod fuzz;
mod merge;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod regular;
mod retention;
pub(crate) mod scan;
pub(crate) mod top;
pub(crate) mod write;
