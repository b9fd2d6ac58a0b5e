//! Aggregations over series.
//!
//! ```text
//! rows, one at a time       ──► stream ──► accumulators (a group's steps) ──► accumulate (one value of many)
//! all rows of a group       ──► aggregations: quantile, count_values, limitk; topk
//! all rows, labels later    ──► by_number ──► topk
//! samples of all series     ──► samples: quantiles, distinct values, buckets
//! sketches of all series    ──► sketches: quantiles, numbers of distinct values
//! ```

mod accumulate;
mod accumulators;
mod aggregations;
mod by_number;
mod samples;
mod sketches;
mod stream;
pub(crate) mod topk;
