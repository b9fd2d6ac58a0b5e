use proptest::prelude::*;

use super::*;

/// Bytes of the column by effort, after it came back whole and in pieces.
fn check(values: &[i64]) -> [usize; 2] {
    [Effort::Fast, Effort::Small].map(|effort| {
        let mut out = Vec::new();
        encode_with(values, effort, &mut out);
        let mut back = vec![9];
        let mut reader = Reader::new(&out);
        decode(&mut reader, values.len(), &mut back).unwrap();
        assert_eq!(&back[1..], values);
        assert!(reader.is_empty());
        for range in [0..1, 3..values.len() / 2, values.len() / 2..values.len(), 0..values.len() + 5] {
            let mut reader = Reader::new(&out);
            let mut back = Vec::new();
            decode_range(&mut reader, values.len(), range.clone(), &mut back).unwrap();
            assert!(reader.is_empty());
            let range = range.start.min(values.len())..range.end.min(values.len());
            assert_eq!(back, values.get(range).unwrap_or_default());
        }
        out.len()
    })
}

/// Even numbers below `end` that look like chance.
fn chance(count: usize, end: u64) -> Vec<i64> {
    let mut state = 42u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % end) as i64
    };
    (0..count).map(|_| next()).collect()
}

proptest! {
    #[test]
    fn any_values(values in proptest::collection::vec(any::<i64>(), 0..700)) {
        check(&values);
    }

    #[test]
    fn extremes(values in proptest::collection::vec(prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), -3..3i64], 0..300)) {
        check(&values);
    }

    #[test]
    fn walks(
        start in -1_000_000i64..1_000_000,
        steps in proptest::collection::vec(prop_oneof![30 => -20i64..20, 1 => -100_000i64..100_000], 0..700),
        factor in 1i64..1_000_000,
        drift in -50i64..50,
    ) {
        let mut at = start;
        let values: Vec<i64> = steps.iter().map(|step| { at += (step + drift) * factor; at }).collect();
        check(&values);
    }

    #[test]
    fn hostile_bytes_are_an_error_or_values(tag in 0u8..14, bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0usize..700) {
        let bytes = [&[tag], bytes.as_slice()].concat();
        let mut values = Vec::new();
        let _ = decode(&mut Reader::new(&bytes), count, &mut values);
        prop_assert!(values.len() <= count);
        values.clear();
        let _ = decode_range(&mut Reader::new(&bytes), count, 3..count / 2, &mut values);
        prop_assert!(values.len() <= count);
    }
}

#[test]
fn constant_and_steady_columns_cost_a_few_bytes() {
    let steady: Vec<i64> = (0..1000).map(|n| 1_700_000_000_000_000_000 + n * 10_000_000_000).collect();
    assert!(check(&steady)[0] <= 16);
    assert!(check(&[7; 1000])[0] <= 2);
    assert!(check(&[i64::MIN, i64::MAX, 0, i64::MIN])[0] <= 55);
}

#[test]
fn timestamps_near_a_grid_cost_their_jitter_only() {
    let grid = |jitter: &[i64], unit: i64, gap: i64| -> Vec<i64> {
        let at = |(n, jitter): (usize, &i64)| {
            1_700_000_000_000_000_000 + (n as i64 * 10_000_000_000) + jitter * unit + if n > 2500 { gap } else { 0 }
        };
        jitter.iter().enumerate().map(at).collect()
    };
    for gap in [0, 3_600_000_000_000] {
        let [fast, small] = check(&grid(&chance(4096, 11), 1_000_000, gap));
        assert!(fast < 4096 * 42 / 80 + if gap == 0 { 0 } else { 300 }, "eleven places are 4 bits: {fast}");
        assert!(small < 4096 * 36 / 80 || gap > 0, "and 3.46 by entropy, unless there are two grids: {small}");
    }
    let [fast, small] = check(&grid(&chance(4096, 10_000_000), 1, 0));
    assert!(fast < 4096 * 245 / 80 && small < 4096 * 245 / 80, "ten million places are 23.3 bits: {fast} {small}");
}

#[test]
fn pages_lose_their_factor() {
    let pages: Vec<i64> = chance(4096, 1000).iter().map(|page| (1 << 34) + page * 4096).collect();
    assert!(check(&pages)[0] < 4096 * 105 / 80, "a thousand places are 10 bits");
}

#[test]
fn a_reset_widens_nothing() {
    let counter = |reset: usize| -> Vec<i64> {
        let mut at = 5_000_000_000;
        let step = |(n, step): (usize, i64)| {
            at = if n == reset { 0 } else { at + 1000 + step };
            at
        };
        chance(4096, 64).into_iter().enumerate().map(step).collect()
    };
    let without = check(&counter(usize::MAX));
    let with = check(&counter(1000));
    assert!(with[0] <= without[0] + 16 && with[1] <= without[1] + 40, "{without:?} {with:?}");
}
