//! `stats` of queries: what an answer took, as Prometheus tells it.

use db::CacheUse;
use promql::SampleCounts;
use serde_json::{Value, json};

use crate::http::parameters::Parameters;

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statistics {
    /// Sums.
    Sums,
    /// Sums, though asked for by a word that Prometheus gives up.
    OldSums,
    /// Sums, and each step's share of them.
    Steps,
}

/// What a query that has been evaluated took.
pub(crate) struct Ran {
    pub(crate) used: CacheUse,
    /// When the answer was there.
    pub(crate) ended_ns: i64,
    /// The most samples that were held at once.
    pub(crate) peak: u64,
    /// Samples that the expression touches, if they were asked for.
    pub(crate) counts: Option<SampleCounts>,
}

impl Statistics {
    pub(crate) fn from_parameters(parameters: &Parameters) -> Option<Self> {
        match parameters.get("stats")? {
            "" => None,
            "true" => Some(Self::Sums),
            "all" => Some(Self::Steps),
            _ => Some(Self::OldSums),
        }
    }

    pub(crate) fn warning(self) -> Option<String> {
        let text =
            "values of the parameter \"stats\" other than \"true\" and \"all\" are deprecated; use \"true\" or \"all\"";
        (self == Self::OldSums).then(|| text.to_owned())
    }

    /// What stands behind a result: waiting and evaluation in seconds, samples, and how many steps were kept before.
    pub(crate) fn written(self, [asked_ns, started_ns]: [i64; 2], (start_ms, step_ms): (i64, i64), ran: Ran) -> String {
        let seconds = |from_ns: i64, to_ns: i64| to_ns.saturating_sub(from_ns).max(0) as f64 / 1e9;
        let (queue_s, evaluation_s) = (seconds(asked_ns, started_ns), seconds(started_ns, ran.ended_ns));
        let counts = ran.counts.unwrap_or_default();
        let sum = |counts: &[u64]| counts.iter().sum::<u64>();
        let mut samples = json!({
            "totalQueryableSamples": sum(&counts.queryable),
            "samplesRead": sum(&counts.read),
            "peakSamples": ran.peak,
        });
        if self == Self::Steps {
            samples["totalQueryableSamplesPerStep"] = by_step(&counts.queryable, start_ms, step_ms);
            samples["samplesReadPerStep"] = by_step(&counts.read, start_ms, step_ms);
        }
        let stats = json!({
            "timings": {
                "evalTotalTime": evaluation_s,
                "resultSortTime": 0.0,
                "queryPreparationTime": 0.0,
                "innerEvalTime": evaluation_s,
                "execQueueTime": queue_s,
                "execTotalTime": queue_s + evaluation_s,
            },
            "samples": samples,
            "resultCache": {
                "steps": ran.used.steps,
                "fromMemory": ran.used.from_memory,
                "fromFlash": ran.used.from_flash,
            },
        });
        format!(r#","stats":{stats}}}"#)
    }
}

/// Each step's time in seconds with its count.
fn by_step(counts: &[u64], start_ms: i64, step_ms: i64) -> Value {
    let time_s = |step: usize| start_ms.saturating_add(step_ms.saturating_mul(step as i64)) as f64 / 1000.0;
    counts.iter().enumerate().map(|(step, count)| json!([time_s(step), count])).collect()
}
