//! Histograms: native ones as values to compute with, and classic ones as groups of series.
//!
//! `native` is the value; `bounds`, `native_quantile`, `reset`, `sum` and `trim` compute with it, `accumulate` adds up many. `classic` computes
//! quantiles and fractions of either kind. `vm_ranges` has VictoriaMetrics's buckets.

pub(crate) mod accumulate;
mod bounds;
mod classic;
pub(crate) mod native;
pub(crate) mod native_quantile;
mod reset;
pub(crate) mod sum;
mod trim;
pub(crate) mod vm_ranges;
