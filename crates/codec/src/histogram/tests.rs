use proptest::prelude::*;

use super::*;

fn check(values: &[Histogram]) -> [usize; 2] {
    [Effort::Fast, Effort::Small].map(|effort| {
        let mut out = Vec::new();
        encode_with(values, effort, &mut out).unwrap();
        let mut reader = Reader::new(&out);
        let back = decode(&mut reader, values.len()).unwrap();
        // As text, because not a number is not equal to itself.
        assert_eq!(format!("{back:?}"), format!("{values:?}"));
        assert!(reader.is_empty());
        out.len()
    })
}

fn histogram(layout: &Arc<Layout>, is_float: bool, numbers: &[u64], sum: f64, hint: u8) -> Histogram {
    let at = |place: usize| numbers[place % numbers.len()];
    let (positive, negative) = (layout.positive_buckets(), layout.negative_buckets());
    let counts = CountsOf {
        count: at(0),
        zero_count: at(1),
        positive: (0..positive).map(at).collect(),
        negative: (0..negative).map(at).collect(),
    };
    let fractions = |numbers: &[u64]| numbers.iter().map(|number| *number as f64 / 3.0).collect::<Vec<_>>();
    let counts = if is_float {
        Counts::Float(CountsOf {
            count: counts.count as f64,
            zero_count: f64::from_bits(counts.zero_count),
            positive: fractions(&counts.positive),
            negative: fractions(&counts.negative),
        })
    } else {
        Counts::Integer(counts)
    };
    Histogram { layout: Arc::clone(layout), hint, sum, counts }
}

fn layouts() -> impl Strategy<Value = Arc<Layout>> {
    let spans = || proptest::collection::vec((0i32..5, 0u32..4).prop_map(|(offset, length)| (offset, length)), 0..4);
    let exponential =
        (-4i8..=8, 0.0..1.0, spans(), spans()).prop_map(|(schema, zero_threshold, positive_spans, negative_spans)| {
            Layout { schema, zero_threshold, positive_spans, negative_spans, custom_bounds: Vec::new() }
        });
    let custom = (spans(), 0u8..5).prop_map(|(positive_spans, bounds)| Layout {
        schema: -53,
        positive_spans,
        custom_bounds: (0..bounds).map(|bound| f64::from(bound) / 10.0).collect(),
        ..Layout::default()
    });
    prop_oneof![exponential, custom].prop_map(Arc::new)
}

proptest! {
    #[test]
    fn round_trip(
        layouts in proptest::collection::vec(layouts(), 1..4),
        rows in proptest::collection::vec((any::<usize>(), any::<bool>(), proptest::collection::vec(any::<u64>(), 1..5), any::<u64>(), 0u8..4), 0..40),
    ) {
        let row = |(layout, is_float, numbers, sum, hint): &(usize, bool, Vec<u64>, u64, u8)| {
            histogram(&layouts[layout % layouts.len()], *is_float, numbers, f64::from_bits(*sum), *hint)
        };
        let rows: Vec<Histogram> = rows.iter().map(row).collect();
        check(&rows);
        for row in &rows {
            let mut out = Vec::new();
            encode_row(row, &mut out).unwrap();
            prop_assert_eq!(format!("{:?}", decode_row(&mut Reader::new(&out)).unwrap()), format!("{row:?}"));
        }
    }

    #[test]
    fn hostile_bytes_are_an_error_or_values(bytes in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..200), count in 0usize..50) {
        let _ = decode(&mut Reader::new(&[&[0], bytes.as_slice()].concat()), count);
    }
}

#[test]
fn a_layout_that_stays_is_stored_once() {
    let spans = vec![(-10, 40)];
    let layout = Layout { schema: 3, zero_threshold: 1e-128, positive_spans: spans, ..Layout::default() };
    let row = |n: u64| {
        // Shared or not: the same layout is one.
        let layout = Arc::new(layout.clone());
        let numbers: Vec<u64> = (0..40).map(|bucket| n * (bucket % 7) + n * bucket % 3).collect();
        histogram(&layout, false, &numbers, n as f64 * 0.25, 2)
    };
    let rows: Vec<Histogram> = (0..500).map(row).collect();
    let [fast, small] = check(&rows);
    assert!(fast < 500 * 22 && small <= fast, "forty buckets that grow by 0 to 8 are 4 bits each: {fast} {small}");
}

#[test]
fn many_rows_share_columns_of_bounded_length() {
    let layout = Layout { positive_spans: vec![(0, 50)], ..Layout::default() };
    let layout = Arc::new(layout);
    let rows: Vec<Histogram> = (0..3000).map(|n| histogram(&layout, n % 2 == 0, &[n, 2 * n], 0.0, 0)).collect();
    check(&rows);
}

#[test]
fn more_buckets_than_a_column_holds_are_refused() {
    let spans = vec![(0, 1 << 23)];
    let layout = Arc::new(Layout { positive_spans: spans, ..Layout::default() });
    let rows = vec![histogram(&layout, false, &[0], 0.0, 0); 3];
    assert_eq!(encode_with(&rows, Effort::Fast, &mut Vec::new()), Err(EncodeError::TooManyBuckets));
    let mut out = Vec::new();
    encode_layout(&rows[0], Effort::Fast, &mut out);
    let mut bytes = vec![BY_LAYOUT, 1];
    bytes.extend(out);
    for _ in 0..3 {
        integer::encode(&[0; 3], &mut bytes);
    }
    bytes.extend([0; 50]);
    assert_eq!(decode(&mut Reader::new(&bytes), 3).unwrap_err().what, "more buckets than a column may hold");
}
