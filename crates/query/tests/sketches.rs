//! Sketches: they are about right, those of parts are those of all, and their texts stay as they are.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "tests")]

use proptest::prelude::*;
use thalweg_query::sketch::{Buckets, DistinctSketch, Histogram, QuantileSketch};

#[test]
fn a_quantile_is_wrong_by_a_hundredth_at_most() {
    let numbers: Vec<f64> = (1..=10_000).map(|number| f64::from(number).powf(1.7) - 3_000.0).collect();
    let sketch = QuantileSketch::of_numbers(&numbers);
    let mut sorted = numbers;
    sorted.sort_unstable_by(f64::total_cmp);
    for share in [0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0] {
        let expected = sorted[(share * 9_999.0) as usize];
        let found = sketch.quantile(share).unwrap();
        assert!((found - expected).abs() <= expected.abs() * 0.0101, "{share}: {found} {expected}");
    }
    assert_eq!(QuantileSketch::default().quantile(0.5), None);
}

#[test]
fn what_is_unusual_has_its_place() {
    let sketch =
        QuantileSketch::of_numbers(&[f64::NAN, f64::INFINITY, 5e-324, 0.0, -0.0, f64::MAX, f64::NEG_INFINITY, -1.0]);
    let at = |rank: f64| sketch.quantile(rank / 7.0 + 0.001).unwrap();
    assert_eq!(at(0.0), f64::NEG_INFINITY);
    assert!((at(1.0) + 1.0).abs() < 0.02);
    assert_eq!([at(2.0), at(3.0)], [0.0, 0.0]);
    assert!(at(4.0) > 0.0 && at(5.0) > 1e307 && at(5.0).is_finite());
    assert_eq!(at(6.0), f64::INFINITY);
    assert!(sketch.quantile(1.0).unwrap().is_nan());
}

/// The text that version 1 writes: files have it.
#[test]
fn the_text_of_quantiles_stays_as_it_is() {
    let sketch = QuantileSketch::of_numbers(&[1.0, 1.0, 100.0, -2.5, 0.0, f64::INFINITY]);
    assert_eq!(sketch.encode(), include_str!("golden/quantiles.txt").trim_end());
    assert_eq!(QuantileSketch::decode(&sketch.encode()), Ok(sketch));
    for text in [
        "",
        "q1",
        "q2|0||0||0|0",
        "q1|0||0||0|0|",
        "q1|00||0||0|0",
        "q1|0||0|1:0|0|0",
        "q1|0||0|1:1,0:1|0|0",
        "q1|0||0|1:1,5000:1|0|0",
        "q1|0||0|50000:1|0|0",
        "q1|0||99999999999999999|1:1|0|0",
        "q1|0||0|+1:1|0|0",
        "q1|0||0|9223372036854775807:1,5:1|0|0",
    ] {
        assert!(QuantileSketch::decode(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn quantiles_of_parts_are_those_of_all(numbers in prop::collection::vec(prop_oneof![any::<f64>(), (-100.0..100.0), Just(0.0)], 0..200), cut in 0usize..200) {
        let (left, right) = numbers.split_at(cut.min(numbers.len()));
        let mut merged = QuantileSketch::of_numbers(right);
        merged.merge(&QuantileSketch::of_numbers(left));
        let all = QuantileSketch::of_numbers(&numbers);
        prop_assert_eq!(&merged, &all);
        prop_assert_eq!(QuantileSketch::decode(&all.encode()), Ok(all));
    }

    #[test]
    fn any_text_is_a_sketch_or_refused(text in "q[12]\\|[0-9]{0,3}\\|[-0-9:,]{0,12}\\|[0-9]{0,2}\\|[-0-9:,]{0,12}\\|[0-9]\\|[0-9]") {
        if let Ok(sketch) = QuantileSketch::decode(&text) {
            prop_assert_eq!(sketch.encode(), text);
        }
    }
}

#[test]
fn values_are_counted_about_right() {
    for count in [0u32, 1, 10, 1_000, 5_000, 20_000, 200_000] {
        let mut sketch = DistinctSketch::default();
        for number in 0..count {
            sketch.add_text(&format!("user {number}"));
            sketch.add_text(&format!("user {}", number / 2));
        }
        let (found, expected) = (sketch.estimate() as f64, f64::from(count));
        assert!((found - expected).abs() <= expected * 0.05, "{count}: {found}");
    }
    assert_eq!(DistinctSketch::of_numbers(&[0.0, -0.0, f64::NAN, -f64::NAN, 1.0]).estimate(), 3);
}

/// The texts that version 1 writes: files have them.
#[test]
fn the_text_of_distinct_values_stays_as_it_is() {
    let mut sketch = DistinctSketch::of_numbers(&[1.0, 2.5]);
    sketch.add_text("host_1");
    let golden = include_str!("golden/distinct.txt");
    assert_eq!(sketch.encode(), golden.lines().next().unwrap());
    for number in 0..1_000 {
        sketch.add_number(f64::from(number));
    }
    assert_eq!(sketch.encode(), golden.lines().nth(1).unwrap());
    assert_eq!(DistinctSketch::decode(&sketch.encode()), Ok(sketch));
    for text in [
        "",
        "d1",
        "d2|",
        "d1|000",
        "d1s|1:0",
        "d1s|4096:1",
        "d1s|1:54",
        "d1s|2:1,1:1",
        "d1s|1:1,",
        "d1s|01:1",
        "d1s|1:01",
        "d1s|+1:1",
        "d1s|1:+1",
        "d1s|:1",
        "d1s|1:",
        "d1s|,",
        "d1s|1:257",
        "d1s|1:1,1:2",
    ] {
        assert!(DistinctSketch::decode(text).is_err(), "{text}");
    }
    let all = format!("d1|{}", "e".repeat(4_096));
    assert!(DistinctSketch::decode(&all).is_ok());
    assert!(DistinctSketch::decode(&all.replace('e', "f")).is_err());
    assert!(DistinctSketch::decode(&format!("d1|{}", "0".repeat(4_096))).is_err(), "few are named");
    let named = |count: usize| (0..count).map(|register| format!("{register}:1")).collect::<Vec<_>>().join(",");
    assert!(DistinctSketch::decode(&format!("d1s|{}", named(512))).is_ok());
    assert!(DistinctSketch::decode(&format!("d1s|{}", named(513))).is_err(), "many are not named");
}

proptest! {
    #[test]
    fn distinct_values_of_parts_are_those_of_all(numbers in prop::collection::vec(any::<f64>(), 0..1_500), cut in 0usize..1_500) {
        let (left, right) = numbers.split_at(cut.min(numbers.len()));
        let mut merged = DistinctSketch::of_numbers(right);
        merged.merge(&DistinctSketch::of_numbers(left));
        let all = DistinctSketch::of_numbers(&numbers);
        prop_assert_eq!(&merged, &all);
        let mut of_texts = DistinctSketch::default();
        for part in [left, right] {
            prop_assert_eq!(of_texts.merge_text(&DistinctSketch::of_numbers(part).encode()), Ok(()));
        }
        prop_assert_eq!(&of_texts, &all);
        prop_assert_eq!(DistinctSketch::decode(&all.encode()), Ok(all));
    }

    #[test]
    fn any_text_is_a_sketch_of_distinct_values_or_refused(text in "d1s\\|([0-9]{1,4}:[0-9]{1,2},){0,3}[0-9]{1,3}:[1-9]") {
        if let Ok(sketch) = DistinctSketch::decode(&text) {
            prop_assert_eq!(sketch.encode(), text);
        }
    }
}

/// Postgres's `width_bucket` of the same numbers, and of its documentation: `width_bucket(5.35, 0.024, 10.06, 5)` is 3.
#[test]
fn a_number_is_in_the_bucket_that_postgres_says() {
    for ((low, high, count), number, expected) in [
        ((0.024, 10.06, 5), 5.35, 3),
        ((0.0, 100.0, 10), -0.1, 0),
        ((0.0, 100.0, 10), 0.0, 1),
        ((0.0, 100.0, 10), 9.999, 1),
        ((0.0, 100.0, 10), 10.0, 2),
        ((0.0, 100.0, 10), 99.999, 10),
        ((0.0, 100.0, 10), 100.0, 11),
        ((-1e308, 1e308, 4), 0.0, 3),
        ((0.0, 1.0, 3), 1.0 - f64::EPSILON / 2.0, 3),
        ((0.0, 1.0, 3), f64::NEG_INFINITY, 0),
        ((0.0, 1.0, 3), f64::INFINITY, 4),
        ((0.0, 1.0, 3), f64::NAN, 4),
    ] {
        let histogram = Histogram::of_numbers(Buckets::new(low, high, count).unwrap(), &[number]).encode().unwrap();
        let counts: Vec<&str> = histogram.trim_matches(['{', '}']).split(',').collect();
        assert_eq!(counts.len() as i64, count + 2, "{histogram}");
        assert_eq!(counts.iter().position(|count| *count == "1"), Some(expected), "{number}: {histogram}");
    }
    for (low, high, count) in
        [(1.0, 1.0, 3), (2.0, 1.0, 3), (f64::NAN, 1.0, 3), (0.0, f64::INFINITY, 3), (0.0, 1.0, 0), (0.0, 1.0, 1_001)]
    {
        assert!(Buckets::new(low, high, count).is_err(), "{low} {high} {count}");
    }
}

#[test]
fn the_text_of_a_histogram_stays_as_it_is() {
    let buckets = Buckets::new(-5.0, 5.0, 4).unwrap();
    let mut histogram = Histogram::of_numbers(buckets, &[-6.0, -5.0, 0.0, 0.1, 2.5, 4.9, 5.0, f64::NAN]);
    assert_eq!(histogram.encode().as_deref(), Ok(include_str!("golden/histogram.txt").trim_end()));
    for text in [
        "",
        "{",
        "{}",
        "{1}",
        "{1,2}",
        "{1,2,}",
        "{1,2,x}",
        "{01,2,3}",
        "{+1,2,3}",
        "{1, 2,3}",
        "{1,2,3",
        "{-1,2,3}",
        "{281474976710656,1,0}",
    ] {
        assert!(Histogram::decode(text).is_err(), "{text}");
    }
    let of = |count: usize| format!("{{{}}}", vec!["0"; count].join(","));
    assert!(Histogram::decode(&of(1_002)).is_ok() && Histogram::decode(&of(1_003)).is_err());
    let error = histogram.add_all(&Histogram::decode("{1,2,3}").unwrap()).unwrap_err();
    assert!(error.contains("different numbers of buckets"), "{error}");
    assert_eq!(histogram.encode(), Err(error));
}

proptest! {
    #[test]
    fn histograms_of_parts_are_those_of_all(numbers in prop::collection::vec(prop_oneof![any::<f64>(), (-3.0..12.0)], 0..200), cut in 0usize..200, count in 1i64..12) {
        let buckets = Buckets::new(-1.5, 9.0, count).unwrap();
        let (left, right) = numbers.split_at(cut.min(numbers.len()));
        let all = Histogram::of_numbers(buckets, &numbers);
        let text = all.encode().unwrap();
        let mut merged = Histogram::of_numbers(buckets, right);
        prop_assert_eq!(merged.add_all(&Histogram::of_numbers(buckets, left)), Ok(()));
        prop_assert_eq!(&merged, &all);
        prop_assert_eq!(Histogram::decode(&text), Ok(all));
    }

    #[test]
    fn any_text_is_a_histogram_or_refused(text in "\\{[0-9,]{0,12}\\}") {
        if let Ok(histogram) = Histogram::decode(&text) {
            prop_assert_eq!(histogram.encode(), Ok(text));
        }
    }
}
