use proptest::prelude::*;

use super::*;

/// Bytes of the column by effort, after it came back to the bit.
fn check(values: &[f64]) -> [usize; 2] {
    [Effort::Fast, Effort::Small].map(|effort| {
        let mut out = Vec::new();
        encode_with(values, effort, &mut out);
        let mut back = Vec::new();
        let mut reader = Reader::new(&out);
        decode(&mut reader, values.len(), &mut back).unwrap();
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back), bits(values));
        assert!(reader.is_empty());
        let mut used = Scratch(vec![-7; values.len() / 2]);
        let mut again = Vec::new();
        decode_with(&mut Reader::new(&out), values.len(), &mut used, &mut again).unwrap();
        decode_with(&mut Reader::new(&out), values.len(), &mut used, &mut again).unwrap();
        assert_eq!(bits(&again), bits(&[values, values].concat()));
        out.len()
    })
}

/// Even floats between 0 and 1 that look like chance.
fn chance(count: usize) -> Vec<f64> {
    let mut state = 42u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count).map(|_| next()).collect()
}

proptest! {
    #[test]
    fn any_bits(values in proptest::collection::vec(any::<u64>().prop_map(f64::from_bits), 0..600)) {
        check(&values);
    }

    #[test]
    fn odd_ones(values in proptest::collection::vec(prop_oneof![
        Just(0.0), Just(-0.0), Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(f64::NAN), Just(f64::MIN_POSITIVE),
        Just(f64::from_bits(0x7ff0_0000_0000_0002)), Just(9_007_199_254_740_993.0), Just(9.3e18), Just(-4e18), 0.0..1.0,
    ], 0..600)) {
        check(&values);
    }

    #[test]
    fn decimals_with_odd_ones(cents in proptest::collection::vec(-1_000_000i64..1_000_000, 1..600), odd: f64, power in 0i32..8) {
        let mut values: Vec<f64> = cents.iter().map(|cents| *cents as f64 / 10f64.powi(power)).collect();
        let middle = values.len() / 2;
        values[middle] = odd;
        check(&values);
    }

    #[test]
    fn whole_numbers(numbers in proptest::collection::vec(any::<i64>(), 1..600), shift in 0u32..60) {
        let values: Vec<f64> = numbers.iter().map(|number| (number >> shift) as f64).collect();
        check(&values);
    }

    #[test]
    fn hostile_bytes_are_an_error_or_values(tag in 0u8..6, bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0usize..500) {
        let bytes = [&[tag], bytes.as_slice()].concat();
        let mut values: Vec<f64> = Vec::new();
        let _ = decode(&mut Reader::new(&bytes), count, &mut values);
        prop_assert!(values.len() <= count);
    }
}

#[test]
fn decimals_cost_what_integers_cost() {
    assert_eq!(check(&[f64::NAN; 500])[0], 9);
    let cents: Vec<f64> = (0..1000).map(|n| f64::from(n * 37 % 400) / 100.0).collect();
    assert!(check(&cents)[0] < 1300, "two decimals of 400 values are 9 bits each");
    let pages: Vec<f64> = chance(4096).iter().map(|at| 8e9 + (at * 1000.0).floor() * 4096.0).collect();
    assert!(check(&pages)[0] < 4096 * 105 / 80, "a thousand pages are 10 bits each");
    let huge: Vec<f64> = pages.iter().map(|page| page * 4_294_967_296.0).collect();
    assert!(check(&huge)[0] < 4096 * 105 / 80, "also beyond 2^53");
}

#[test]
fn full_precision_costs_its_mantissa() {
    let mut at = 50.0;
    let walk: Vec<f64> = chance(4096)
        .iter()
        .map(|step| {
            at += step - 0.5;
            at
        })
        .collect();
    let [fast, small] = check(&walk);
    assert!(fast < 4096 * 51 / 8 && small < 4096 * 50 / 8, "{fast} {small}");
    let signs: Vec<f64> = chance(4096).iter().map(|at| 1.0 / (at - 0.5)).collect();
    let [fast, small] = check(&signs);
    assert!(fast < 4096 * 59 / 8 && small < 4096 * 56 / 8, "{fast} {small}");
    let single: Vec<f64> = chance(4096).iter().map(|at| f64::from(*at as f32)).collect();
    assert!(check(&single)[0] < 4096 * 29 / 8);
}
