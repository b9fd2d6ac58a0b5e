//! Delta temporality: what request after request adds up to.

use std::fmt::Write;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::batch::render::{HASHER, render};
use crate::{Parsed, Protocol};

const SECOND_NS: i64 = 1_000_000_000;

/// A server's state between requests.
struct Receiver {
    deltas: Deltas,
    settings: Settings,
}

impl Receiver {
    fn new(limits: DeltaLimits) -> Self {
        Self { deltas: Deltas::new(limits), settings: Settings::default() }
    }

    fn take<T>(&self, body: &[u8], now_ns: i64, look: impl FnOnce(Request<'_>) -> T) -> T {
        let (settings, deltas, limits) = (&self.settings, &self.deltas, &Limits::default());
        let options = Options { hasher: HASHER.scope(Protocol::Otlp, 1), settings, deltas, now_ns, limits };
        parse(body, &options).map(look).unwrap()
    }

    /// Rows, what was refused and starts, a line each.
    fn text(&self, metric: &str, now_ns: i64) -> String {
        let json = format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metric}]}}]}}]}}"#);
        self.take(&json_to_protobuf(json.as_bytes()).unwrap(), now_ns, |request| {
            let starts: Vec<i64> = request.batch.start_timestamps.iter().map(|start| start.start_ns).collect();
            let mut text = render(&Parsed { batch: request.batch, errors: request.errors });
            if let Some(start) = starts.first() {
                assert!(starts.iter().all(|one| one == start), "{starts:?}");
                writeln!(text, "from {start}").unwrap();
            }
            text
        })
    }

    #[track_caller]
    fn check(&self, metric: &str, expected: &[&str]) {
        let text = self.text(metric, SECOND_NS);
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{metric}");
    }
}

/// A monotonic sum `n` whose points have these starts, times and values.
fn sum(points: &[(u64, u64, f64)]) -> String {
    let point = |(start, time, value): &(u64, u64, f64)| {
        format!(r#"{{"startTimeUnixNano":{start},"timeUnixNano":{time},"asDouble":{value}}}"#)
    };
    let points: Vec<String> = points.iter().map(point).collect();
    let points = points.join(",");
    format!(r#"{{"name":"n","sum":{{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[{points}]}}}}"#)
}

#[test]
fn sums_add_up_from_the_first_start() {
    let receiver = Receiver::new(DeltaLimits::default());
    receiver.check(&sum(&[(10, 20, 1.5)]), &["1 n_total{} value=1.5 @20", "from 10"]);
    receiver.check(
        &sum(&[(20, 30, 2.0), (30, 40, 4.0)]),
        &["1 n_total{} value=3.5 @30", "2 n_total{} value=7.5 @40", "from 10"],
    );
    // The same again is answered by the same; another one of that time, an older one, one from before the first are not.
    receiver.check(&sum(&[(30, 40, 4.0)]), &["1 n_total{} value=7.5 @40", "from 10"]);
    let refused = |place: u32, start: u32, time: u32| {
        format!(
            "{place} ! a delta from {start} to {time} came after one from 10 to 40 (nanoseconds) of its series was counted"
        )
    };
    receiver.check(
        &sum(&[(30, 40, 5.0), (20, 30, 2.0), (5, 50, 1.0)]),
        &[&refused(1, 30, 40), &refused(2, 20, 30), &refused(3, 5, 50)],
    );
    // A gap is counted and passed over; a start is not needed.
    receiver.check(
        &sum(&[(60, 70, 1.0), (0, 80, 1.0)]),
        &["1 n_total{} value=8.5 @70", "2 n_total{} value=9.5 @80", "from 10"],
    );
    let stats = receiver.deltas.stats();
    assert_eq!((stats.series, stats.gaps_total, stats.out_of_order_total), (1, 1, 3));
    receiver.check(
        r#"{"name":"n","sum":{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[{"timeUnixNano":90,"asDouble":-1},{"timeUnixNano":90,"asDouble":"NaN"}]}}"#,
        &["1 ! a delta of -1 cannot be added up", "2 ! a delta of NaN cannot be added up"],
    );
    // An end is stored, and the next one begins anew.
    receiver.check(
        r#"{"name":"n","sum":{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[{"timeUnixNano":90,"flags":1},{"startTimeUnixNano":95,"timeUnixNano":100,"asInt":2}]}}"#,
        &["1 n_total{} value=NaN @90", "2 n_total{} value=2.0 @100", "from 95"],
    );
}

#[test]
fn sums_that_go_down_add_up_too() {
    let receiver = Receiver::new(DeltaLimits::default());
    let metric = |time: u32, value: i32| {
        format!(
            r#"{{"name":"queue","sum":{{"aggregationTemporality":1,"dataPoints":[{{"timeUnixNano":{time},"asInt":{value}}}]}}}}"#
        )
    };
    receiver.check(&metric(10, 5), &["1 queue{} value=5.0 @10"]);
    receiver.check(&metric(20, -3), &["1 queue{} value=2.0 @20"]);
}

#[test]
fn histograms_add_up_and_begin_anew_with_other_bounds() {
    let receiver = Receiver::new(DeltaLimits::default());
    let metric = |time: u32, counts: &str, bounds: &str, sum: &str| {
        format!(
            r#"{{"name":"d","histogram":{{"aggregationTemporality":1,"dataPoints":[{{"startTimeUnixNano":1,"timeUnixNano":{time},"count":3,{sum}"bucketCounts":{counts},"explicitBounds":{bounds}}}]}}}}"#
        )
    };
    let rows = |time: u32, count: u32, below: u32, bound: &str| {
        [
            format!("1 d_count{{}} value={count}.0 @{time}"),
            format!(r#"1 d_bucket{{le="{bound}"}} value={below}.0 @{time}"#),
            format!(r#"1 d_bucket{{le="+Inf"}} value={count}.0 @{time}"#),
            "from 1".to_owned(),
        ]
    };
    let check = |metric: &str, sum: Option<String>, rows: [String; 4]| {
        let lines: Vec<&str> = sum.iter().chain(&rows).map(String::as_str).collect();
        receiver.check(metric, &lines);
    };
    let with_sum = r#""sum":1.5,"#;
    check(&metric(10, "[1,2]", "[1]", with_sum), Some("1 d_sum{} value=1.5 @10".to_owned()), rows(10, 3, 1, "1"));
    check(&metric(20, "[2,1]", "[1]", with_sum), Some("1 d_sum{} value=3.0 @20".to_owned()), rows(20, 6, 3, "1"));
    check(&metric(30, "[3,0]", "[1]", ""), None, rows(30, 9, 6, "1"));
    check(&metric(40, "[0,3]", "[2]", with_sum), Some("1 d_sum{} value=1.5 @40".to_owned()), rows(40, 3, 0, "2"));
    assert_eq!(receiver.deltas.stats().series, 1);
}

#[test]
fn exponential_histograms_add_up() {
    let receiver = Receiver::new(DeltaLimits::default());
    let found = |time: u32, count: u32, scale: i32, buckets: &str| {
        let json = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"e","exponentialHistogram":{{"aggregationTemporality":1,"dataPoints":[
              {{"startTimeUnixNano":5,"timeUnixNano":{time},"count":{count},"sum":2.5,"scale":{scale},"zeroCount":1,"positive":{buckets}}}]}}}}]}}]}}]}}"#
        );
        receiver.take(&json_to_protobuf(json.as_bytes()).unwrap(), 1, |request| {
            let starts: Vec<i64> = request.batch.start_timestamps.iter().map(|start| start.start_ns).collect();
            let histogram = request.batch.histograms.first().map(|one| {
                let model::histogram::HistogramCounts::Integer(counts) = &one.counts else { panic!("floats") };
                let spans: Vec<(i32, u32)> =
                    one.layout.positive_spans.iter().map(|span| (span.offset, span.length)).collect();
                (one.layout.schema, one.sum, counts.count, counts.zero_count, counts.positive.clone(), spans)
            });
            (starts, histogram, request.errors.total)
        })
    };
    let first = found(10, 3, 3, r#"{"offset":0,"bucketCounts":[2]}"#);
    assert_eq!(first, (vec![5], Some((3, 2.5, 3, 1, vec![2], vec![(1, 1)])), 0));
    let second = found(20, 4, 2, r#"{"offset":1,"bucketCounts":[3]}"#);
    assert_eq!(second, (vec![5], Some((2, 5.0, 7, 2, vec![2, 3], vec![(1, 2)])), 0));
    // One that does not add up is refused before it is counted.
    assert_eq!(found(30, 9, 2, r#"{"offset":1,"bucketCounts":[3]}"#), (vec![], None, 1));
    assert_eq!(found(30, 1, 2, "{}").1.unwrap().2, 8);
}

#[test]
fn what_is_remembered_has_bounds_and_is_forgotten() {
    let limits = DeltaLimits { series_max: 2, stale_ms: 10_000, ..DeltaLimits::default() };
    let receiver = Receiver::new(limits);
    let named = |name: u8, time: u32| {
        sum(&[(0, u64::from(time), 1.0)]).replace(r#""n""#, &format!(r#""{}""#, char::from(name)))
    };
    assert_eq!(receiver.text(&named(b'a', 1), SECOND_NS), "1 a_total{} value=1.0 @1\n");
    assert_eq!(receiver.text(&named(b'b', 1), 5 * SECOND_NS), "1 b_total{} value=1.0 @1\n");
    let full = "1 ! 2 series of deltas are added up already (otlp_delta_series_max)\n";
    assert_eq!(receiver.text(&named(b'c', 1), 10 * SECOND_NS), full);
    assert_eq!(receiver.text(&named(b'a', 2), 10 * SECOND_NS), "1 a_total{} value=2.0 @2\n");
    // `b` was silent for ten seconds.
    assert_eq!(receiver.text(&named(b'c', 1), 15 * SECOND_NS), "1 c_total{} value=1.0 @1\n");
    assert_eq!(receiver.text(&named(b'b', 2), 15 * SECOND_NS), full);
    assert_eq!((receiver.deltas.stats().series, receiver.deltas.stats().stale_total), (2, 1));

    let receiver = Receiver::new(DeltaLimits { size_bytes_max: 1000, ..limits });
    assert!(receiver.text(&named(b'a', 1), SECOND_NS).starts_with("1 a_total"));
    let buckets = (1..200).map(|bound| bound.to_string()).collect::<Vec<_>>().join(",");
    let wide = format!(
        r#"{{"name":"a","histogram":{{"aggregationTemporality":1,"dataPoints":[{{"timeUnixNano":9,"bucketCounts":[0,{buckets}],"explicitBounds":[{buckets}]}}]}}}}"#
    );
    assert!(receiver.text(&wide, SECOND_NS).contains("(otlp_delta_bytes_max)"));
    assert!(receiver.deltas.stats().size_bytes < 1000);
}

proptest! {
    /// Against a map: sums of what was newer than all before it.
    #[test]
    fn points_in_any_order_add_up(points in vec((0usize..3, 1u64..40, 0u32..5), 1..60)) {
        let receiver = Receiver::new(DeltaLimits::default());
        let mut known: [Option<(u64, u32, u32)>; 3] = [None; 3];
        for (series, time, value) in points {
            let metric = sum(&[(0, time, f64::from(value))]).replace(r#""n""#, &format!(r#""n{series}""#));
            let expected = match &mut known[series] {
                Some((newest, last, total)) if *newest == time && *last == value => Some(*total),
                Some((newest, ..)) if *newest >= time => None,
                one => {
                    let total = one.map_or(0, |(_, _, total)| total) + value;
                    *one = Some((time, value, total));
                    Some(total)
                }
            };
            let text = receiver.text(&metric, SECOND_NS);
            match expected {
                Some(total) => prop_assert_eq!(text, format!("1 n{series}_total{{}} value={total}.0 @{time}\n")),
                None => prop_assert!(text.starts_with("1 ! a delta "), "{}", text),
            }
        }
    }
}
