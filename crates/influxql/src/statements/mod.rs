//! Statements: each kind in its file, run one after the other.

pub(crate) mod answer;
mod continuous;
pub(crate) mod execute;
mod explain;
pub(crate) mod flat;
mod into;
mod manage;
pub(crate) mod pattern_query;
pub(crate) mod request;
mod show;
