//! EXPLAIN: what a query does, and what that takes, instead of its answer.

use std::fmt::Write;

use db::{Analysis, CacheUse};
use query::{CachedBinReads, Origin, Reads, StepReport};

use crate::error::ApiError;
use crate::http::json;
use crate::http::parameters::Parameters;

/// What the answer is to hold, as the parameter `explain` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Explain {
    /// Rows.
    No,
    /// The plan, without running it.
    Plan,
    /// The plan and what running it took, without rows.
    Analyze,
}

impl Explain {
    pub(crate) fn from_parameters(parameters: &Parameters) -> Result<Self, ApiError> {
        match parameters.get("explain") {
            None | Some("false" | "0") => Ok(Self::No),
            Some("true" | "1" | "plan") => Ok(Self::Plan),
            Some("analyze") => Ok(Self::Analyze),
            Some(_) => Err(ApiError::invalid_parameter("explain", "it is plan or analyze")),
        }
    }
}

/// `{"plan":"…"}`
pub(crate) fn planned(plan: &str) -> String {
    format!(r#"{{"plan":{}}}"#, json::text(plan))
}

/// `{"plan":"…","steps":[{"step":"scan","series":1,"rows":2,"elapsed_ns":3},…],"reads":{"groups":1,…,"from":{"head":{…},…}}}`
pub(crate) fn analyzed(plan: &str, steps: &[StepReport], reads: &Reads) -> String {
    let step = |step: &StepReport| {
        let StepReport { step, series, rows, elapsed_ns } = step;
        format!(r#"{{"step":"{step}","series":{series},"rows":{rows},"elapsed_ns":{elapsed_ns}}}"#)
    };
    let steps: Vec<String> = steps.iter().map(step).collect();
    let Reads { groups, samples, nodes, window_rows, window_chunks, origins, cached_bins } = reads;
    // Of plans alone.
    let CachedBinReads { rows, from_memory, from_flash } = cached_bins;
    let bins = match rows {
        0 => String::new(),
        _ => format!(r#","bins":{{"rows":{rows},"from_memory":{from_memory},"from_flash":{from_flash}}}"#),
    };
    let origin = |(name, Origin { chunks, rows, bytes }): (&str, Origin)| {
        format!(r#""{name}":{{"chunks":{chunks},"rows":{rows},"bytes":{bytes}}}"#)
    };
    format!(
        r#"{{"plan":{},"steps":[{}],"reads":{{"groups":{groups},"samples":{samples},"nodes":{nodes},"window_rows":{window_rows},"window_chunks":{window_chunks}{bins},"from":{{{}}}}}}}"#,
        json::text(plan),
        steps.join(","),
        origins.named().map(origin).join(",")
    )
}

/// The report of an analysed query of PromQL, with how many of its steps came from the result cache.
pub(crate) fn analysis(Analysis { plan, answer: _, cache, steps, reads }: &Analysis) -> String {
    let mut out = analyzed(plan, steps, reads);
    let CacheUse { steps, from_memory, from_flash } = cache;
    out.pop();
    let _ =
        write!(out, r#","result_cache":{{"steps":{steps},"from_memory":{from_memory},"from_flash":{from_flash}}}}}"#);
    out
}
