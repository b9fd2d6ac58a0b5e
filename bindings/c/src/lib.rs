//! Thalweg in process for C. The header `include/thalweg.h` is made of this crate by `cargo xtask header`; its users read that.
//!
//! Conventions: handles are opaque and have a `…_free`; texts are UTF-8 with a length ([`text::thalweg_str_t`]); calls that can fail return a code and,
//! where `error` is not null, an error with a message; nothing unwinds across the border.
//!
//! * `database`: opening, closing, writing, deleting · `columns`: rows as columns
//! * `epochs`: regular databases · `series`: series by name and their samples · `query`: SQL, PromQL, InfluxQL · `rrd`: files of RRDtool
//! * `error`: codes, messages, and the border itself · `text`: texts of callers

#![allow(unsafe_code, reason = "callers of C hand over addresses; every block says why it may be used")]
#![allow(non_camel_case_types, reason = "types have the names that the header gives them")]
#![allow(clippy::too_many_arguments, reason = "C has no other way to name what a call takes")]
#![allow(clippy::missing_safety_doc, reason = "what callers have to keep to is in the header, in its words")]

pub mod columns;
pub mod database;
pub mod epochs;
pub mod error;
pub mod query;
pub mod rrd;
pub mod series;
pub mod text;
