//! How soon requests were acknowledged, apart by whether a merge of everything was under way.

use serde::Serialize;

use crate::storage::quantile;

/// Buckets of a histogram for each doubling of the latency.
const BUCKETS_A_DOUBLING: f64 = 2.0;

/// A request: when it was due, in seconds since the first was sent, and how long its acknowledgement took from then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Acknowledged {
    pub(crate) due_s: f64,
    pub(crate) latency_ms: f64,
}

/// From when until when something was under way, in the same seconds.
pub(crate) type Stretch = (f64, f64);

/// Latencies of requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Latencies {
    pub(crate) requests: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Requests by the latency that they did not exceed; those of no request are left out.
    pub(crate) histogram: Vec<Bucket>,
}

/// Requests that took no longer than this, and longer than the bucket before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Bucket {
    pub(crate) up_to_ms: f64,
    pub(crate) requests: usize,
}

/// Latencies with and without merging, and how many times slower the slowest hundredth is while everything is merged.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Comparison {
    pub(crate) merging: Latencies,
    pub(crate) otherwise: Latencies,
    pub(crate) p99_ratio: f64,
}

impl Latencies {
    pub(crate) fn from_ms(mut latencies_ms: Vec<f64>) -> Self {
        let mut quantile = |share| quantile(&mut latencies_ms, share);
        let [p50_ms, p99_ms, max_ms] = [quantile(0.5), quantile(0.99), quantile(1.0)];
        Self { requests: latencies_ms.len(), p50_ms, p99_ms, max_ms, histogram: histogram(&latencies_ms) }
    }
}

/// Of latencies in ascending order.
fn histogram(latencies_ms: &[f64]) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    for latency_ms in latencies_ms {
        // Nothing is acknowledged in less than a microsecond.
        let doublings = (latency_ms.max(0.001).log2() * BUCKETS_A_DOUBLING).ceil() / BUCKETS_A_DOUBLING;
        let up_to_ms = doublings.exp2();
        match buckets.last_mut().filter(|last| last.up_to_ms >= up_to_ms) {
            Some(last) => last.requests += 1,
            None => buckets.push(Bucket { up_to_ms, requests: 1 }),
        }
    }
    buckets
}

/// Tells requests apart by whether any of their waiting fell into one of these stretches, which are in order.
pub(crate) fn compare(acknowledged: &[Acknowledged], merges: &[Stretch]) -> Comparison {
    let meets_merge = |request: &&Acknowledged| {
        let until_s = request.due_s + request.latency_ms / 1000.0;
        let first = merges.partition_point(|(_, end_s)| *end_s < request.due_s);
        merges.get(first).is_some_and(|(begin_s, _)| *begin_s <= until_s)
    };
    let (merging, otherwise): (Vec<&Acknowledged>, Vec<_>) = acknowledged.iter().partition(meets_merge);
    let latencies = |of: Vec<&Acknowledged>| Latencies::from_ms(of.iter().map(|request| request.latency_ms).collect());
    let (merging, otherwise) = (latencies(merging), latencies(otherwise));
    Comparison { p99_ratio: merging.p99_ms / otherwise.p99_ms, merging, otherwise }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_what_they_met() {
        let merges = [(1.0, 2.0), (5.0, 6.0)];
        let request = |due_s: f64, latency_ms: f64| Acknowledged { due_s, latency_ms };
        for (due_s, latency_ms, met) in [
            (0.0, 999.0, false),
            (0.0, 1001.0, true),
            (1.5, 1.0, true),
            (1.5, 9000.0, true),
            (2.1, 1.0, false),
            (2.1, 3000.0, true),
            (6.1, 1.0, false),
        ] {
            let compared = compare(&[request(due_s, latency_ms)], &merges);
            assert_eq!((compared.merging.requests == 1, compared.otherwise.requests == 0), (met, met), "{due_s}");
        }
        let all = [request(1.1, 8.0), request(3.0, 2.0), request(1.2, 4.0), request(4.0, 4.0)];
        let compared = compare(&all, &merges);
        assert_eq!((compared.merging.p99_ms, compared.otherwise.p99_ms, compared.p99_ratio), (8.0, 4.0, 2.0));
        assert_eq!(compare(&all, &[]).otherwise, Latencies::from_ms(vec![2.0, 4.0, 4.0, 8.0]));
    }

    #[test]
    fn buckets_hold_every_request_once() {
        let latencies = Latencies::from_ms(vec![3.0, 0.0, 1.0, 1.5, 2.0, 2.0]);
        let buckets: Vec<_> = latencies.histogram.iter().map(|bucket| (bucket.up_to_ms, bucket.requests)).collect();
        assert!(buckets[0].0 >= 0.001 && buckets[0].1 == 1, "{buckets:?}");
        assert_eq!(buckets[1..], [(1.0, 1), (2.0, 3), (4.0, 1)], "{buckets:?}");
        assert_eq!((latencies.requests, latencies.max_ms), (6, 3.0));
        assert!(Latencies::from_ms(Vec::new()).histogram.is_empty());
    }
}
