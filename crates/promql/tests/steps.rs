//! Evaluating a range at once gives what evaluating each of its instants gives, bit for bit.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the lints do not see that helpers of tests are tests")]

mod support;

use std::collections::BTreeMap;

use model::{Labels, STALE_NAN_BITS};
use proptest::prelude::*;
use query::sketch::{DistinctSketch, QuantileSketch};
use query::{Budget, TextSample};
use support::Memory;
use thalweg_promql::{
    Evaluation, EvaluationSettings, Expression, QueryTimes, ResultValue, evaluate_instant, evaluate_range,
};

/// `x` has the labels `a` and `b`, `y` has `a` only, and `s` has sketches. No template can fail.
const TEMPLATES: &[&str] = &[
    "x",
    "x offset 90s",
    "x offset -90s",
    "x @ 400",
    "rate(x[RANGE])",
    "increase(x[RANGE] offset 30s)",
    "delta(x[RANGE])",
    "irate(x[RANGE])",
    "idelta(x[RANGE])",
    "deriv(x[RANGE])",
    "predict_linear(x[RANGE], 600)",
    "predict_linear(x[RANGE] @ 400, 600)",
    "resets(x[RANGE])",
    "changes(x[RANGE])",
    "sum_over_time(x[RANGE])",
    "total_of_period(x[RANGE] offset 10s)",
    "avg_over_time(x[RANGE])",
    "min_over_time(x[RANGE])",
    "max_over_time(x[RANGE])",
    "stddev_over_time(x[RANGE])",
    "mad_over_time(x[RANGE])",
    "quantile_over_time(scalar(y{a=\"0\"}), x[RANGE])",
    "last_over_time(x[RANGE])",
    "absent_over_time(x{a=\"1\"}[RANGE])",
    "absent(x{a=\"1\"})",
    "timestamp(x)",
    "sum(x)",
    "sum by (a) (rate(x[RANGE]))",
    "avg without (b) (x)",
    "stddev by (b) (x)",
    "max(x) - min(x)",
    "count by (a) (x > 50)",
    "quantile by (a) (0.7, x)",
    "topk(2, x)",
    "bottomk by (a) (1, x)",
    "count_values(\"v\", x)",
    "x * 2 > 100",
    "x >= bool scalar(sum(y))",
    "y + 1 > y @ 400",
    "x * on (a) group_left () y",
    "y / on (a) group_right () x",
    "x and on (a) y",
    "x unless on (a) y",
    "y or on (a) x",
    "x or y",
    "sum_over_time(x[RANGE:40s])",
    "max_over_time(sum by (a) (rate(x[RANGE]))[RANGE:] offset 1m)",
    "avg_over_time((x + time())[RANGE:45s] @ 500)",
    "label_replace(x, \"c\", \"$1\", \"a\", \"(.).*\")",
    "hour(x * 10000) + day_of_week(x * 10000)",
    "clamp(x, 20, scalar(y{a=\"1\"}))",
    "histogram_quantile(0.5, label_replace(sum by (a, b) (x), \"le\", \"$1\", \"b\", \"(.*)\"))",
    "vector(time()) - on () group_left () sum(x)",
    "distinct_of_samples by (a) (x[RANGE])",
    "quantiles_of_samples without (b) (\"q\", 0, 0.5, 0.9, x[RANGE] offset 30s)",
    "quantiles_of_samples(\"a\", 0.7, x{a=\"0\"}[RANGE], {b=\"1\"}[RANGE], y[RANGE])",
    "histogram_of_samples by (b) (x[RANGE])",
    "sum by (a) relabelled ({action=\"hashmod\",source_label=\"a\",source_label=\"b\",modulus=\"2\",target_label=\"a\"}) (x)",
    "avg without (b) relabelled ({action=\"drop\",source_label=\"a\",source_label=\"b\",regex=\"0;.*\"}) (rate(x[RANGE]))",
    "sum by (c) relabelled ({source_label=\"a\",target_label=\"c\",regex=\"[01]\"}) (max_over_time(x[RANGE:45s]) or y)",
    "last_of_samples by (b) relabelled ({action=\"labeldrop\",regex=\"b\",if=\"{a=\\\"0\\\"}\"}) (x[RANGE])",
    "stdvar_of_samples without (a) (x[RANGE] offset 30s)",
    "distinct_of_samples((x + time())[RANGE:45s] @ 500)",
    "approx_percentile by (a) (0.7, s{kind=\"q\"}[RANGE] offset 20s)",
    "approx_percentile without (a) (scalar(y{a=\"0\"}), s{kind=\"q\"})",
    "approx_count_distinct(s{kind=\"d\"}[RANGE])",
    "approx_count_distinct by (a) (s{kind=\"d\"})",
    "approx_count_distinct by (a) (s{kind=\"d\"}[RANGE] @ 400)",
];

fn sample() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => (0..1000i32).prop_map(|value| f64::from(value) / 8.0),
        4 => any::<f64>().prop_map(|value| if value.to_bits() == STALE_NAN_BITS { 0.0 } else { value % 1e9 }),
        2 => Just(f64::from_bits(STALE_NAN_BITS)),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
    ]
}

fn samples() -> impl Strategy<Value = Vec<(i64, f64)>> {
    proptest::collection::vec((1..150_000i64, sample()), 0..30).prop_map(|gaps| {
        let times = gaps.into_iter().scan(0, |time_ms, (gap_ms, value)| {
            *time_ms += gap_ms;
            Some((*time_ms, value))
        });
        times.collect()
    })
}

fn memory() -> impl Strategy<Value = Memory> {
    (proptest::collection::vec(samples(), 6), proptest::collection::vec(samples(), 2)).prop_map(|(xs, ys)| {
        let mut memory = Memory::default();
        for (place, samples) in xs.into_iter().enumerate() {
            let labels = [("__name__", "x".to_owned()), ("a", (place % 2).to_string()), ("b", (place / 2).to_string())];
            memory.series.insert(Labels::from_pairs(labels).unwrap(), samples);
        }
        for (place, samples) in ys.into_iter().enumerate() {
            let labels = [("__name__", "y".to_owned()), ("a", place.to_string())];
            memory.series.insert(Labels::from_pairs(labels).unwrap(), samples);
        }
        add_sketches(&mut memory);
        memory
    })
}

/// Sketches of a few numbers each, at times that differ by series.
fn add_sketches(memory: &mut Memory) {
    let floats: Vec<Vec<(i64, f64)>> = memory.series.values().cloned().collect();
    for (place, samples) in floats.into_iter().enumerate() {
        for kind in ["q", "d"] {
            let sketch = |value: f64| match kind {
                "q" => QuantileSketch::of_numbers(&[value, value + 10.0]).encode(),
                _ => DistinctSketch::of_numbers(&[value, value.floor()]).encode(),
            };
            let text = |(time_ms, value): &(i64, f64)| match value.to_bits() {
                STALE_NAN_BITS => (*time_ms, TextSample::Stale),
                _ => (*time_ms, TextSample::Text(sketch(*value))),
            };
            let labels = [("__name__", "s".to_owned()), ("a", (place % 2).to_string()), ("b", place.to_string())];
            let labels = Labels::from_pairs(labels).unwrap().with("kind", kind);
            memory.texts.insert(labels, samples.iter().map(text).collect());
        }
    }
}

type Points = BTreeMap<Labels, Vec<(i64, u64)>>;

/// All NaNs are one: which of two NaNs an addition passes on is up to the compiler.
fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

fn by_instants(expression: &Expression, memory: &Memory, times: &[i64]) -> Points {
    let (settings, budget) = (EvaluationSettings::default(), Budget::new(1_000_000));
    let mut points = Points::new();
    for time_ms in times {
        let answer = evaluate_instant(expression, *time_ms, &Evaluation::new(memory, &settings, &budget)).unwrap();
        match answer.value {
            ResultValue::Vector(samples) => {
                for sample in samples {
                    points.entry(sample.labels).or_default().push((*time_ms, bits(sample.value)));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    points
}

fn at_once(expression: &Expression, memory: &Memory, times: QueryTimes) -> Points {
    let (settings, budget) = (EvaluationSettings::default(), Budget::new(1_000_000));
    let answer = evaluate_range(expression, times, &Evaluation::new(memory, &settings, &budget)).unwrap();
    assert_eq!(budget.samples(), 0);
    match answer.value {
        ResultValue::Matrix(series) => series
            .into_iter()
            .map(|(labels, points)| {
                (labels, points.floats.into_iter().map(|(time, value)| (time, bits(value))).collect())
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_template_yields_something() {
    let mut memory = Memory::default();
    for (name, a, b) in
        [("x", "0", "0"), ("x", "0", "1"), ("x", "2", "0"), ("y", "0", ""), ("y", "1", ""), ("y", "3", "")]
    {
        let labels = Labels::from_pairs([("__name__", name), ("a", a), ("b", b)]).unwrap();
        let samples = (1..100).map(|place| (place * 10_000, (place * place % 97) as f64 + 20.0));
        memory.series.insert(labels, samples.collect());
    }
    add_sketches(&mut memory);
    for template in TEMPLATES {
        let expression = Expression::parse(&template.replace("RANGE", "2m")).unwrap();
        let points = at_once(&expression, &memory, QueryTimes { start_ms: 100_000, end_ms: 900_000, step_ms: 50_000 });
        assert!(points.values().map(Vec::len).sum::<usize>() > 5, "{template}: {points:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn at_once_is_as_one_by_one(
        memory in memory(),
        start_ms in 0..900_000i64,
        step_ms in 1..200_000i64,
        steps in 1..20i64,
        range_s in 1..900u32,
    ) {
        let times: Vec<i64> = (0..steps).map(|step| start_ms + step * step_ms).collect();
        for template in TEMPLATES {
            let text = template.replace("RANGE", &format!("{range_s}s"));
            let expression = Expression::parse(&text).unwrap();
            let expected = by_instants(&expression, &memory, &times);
            let found = at_once(&expression, &memory, QueryTimes { start_ms, end_ms: *times.last().unwrap(), step_ms });
            prop_assert_eq!(found, expected, "{}", text);
        }
    }
}
