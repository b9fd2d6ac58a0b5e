//! Aggregations over series.
//!
//! ```text
//! rows, one at a time       ──► stream ──► accumulators (a group's steps) ──► accumulate (one value of many)
//! all rows of a group       ──► aggregations: quantile, count_values, limitk; topk
//! all rows, labels later    ──► by_number ──► topk
//! samples of all series     ──► samples: quantiles, distinct values, buckets, variance, the last one
//! sketches of all series    ──► sketches: quantiles, numbers of distinct values
//! ```
//!
//! * `grouping`: the group of a series, relabelled first or as it is

mod accumulate;
mod accumulators;
mod aggregations;
mod by_number;
mod grouping;
mod samples;
mod sketches;
mod stream;
pub(crate) mod topk;
