//! Requests as Prometheus's client writes them, and answers read again.

use std::sync::Arc;

use model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, Counts, HistogramCounts, HistogramLayout};

use super::*;

/// Takes bits, the highest of each byte first.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: u32) -> u64 {
        (0..count).fold(0, |value, _| {
            let bit = self.bytes[self.at / 8] >> (7 - self.at % 8) & 1;
            self.at += 1;
            value << 1 | u64::from(bit)
        })
    }

    fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.take(8);
            value |= (byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    fn difference(&mut self) -> i64 {
        let mut ones = 0;
        while ones < 4 && self.take(1) == 1 {
            ones += 1;
        }
        let width = [0, 14, 17, 20, 64][ones];
        let raw = self.take(width) as i64;
        // The largest positive one of a width has its highest bit.
        if (1..64).contains(&width) && raw > 1 << (width - 1) { raw - (1 << width) } else { raw }
    }
}

/// Reads a chunk as the format's page has it.
fn decode(bytes: &[u8]) -> Vec<(i64, u64)> {
    let mut reader = Reader { bytes, at: 0 };
    let count = reader.take(16);
    let (mut samples, mut time_ms, mut distance_ms, mut value) = (Vec::new(), 0_i64, 0_i64, 0_u64);
    let (mut leading, mut trailing) = (0, 0);
    for place in 0..count {
        if place == 0 {
            let raw = reader.varint();
            (time_ms, value) = ((raw >> 1) as i64 ^ -((raw & 1) as i64), reader.take(64));
            samples.push((time_ms, value));
            continue;
        }
        distance_ms = if place == 1 { reader.varint() as i64 } else { distance_ms.wrapping_add(reader.difference()) };
        time_ms = time_ms.wrapping_add(distance_ms);
        if reader.take(1) == 1 {
            if reader.take(1) == 1 {
                leading = reader.take(5) as u32;
                let length = reader.take(6) as u32;
                trailing = 64 - leading - if length == 0 { 64 } else { length };
            }
            value ^= reader.take(64 - leading - trailing) << trailing;
        }
        samples.push((time_ms, value));
    }
    samples
}

#[test]
fn chunks_have_the_bits_of_the_format() {
    // Two samples, 15 s apart, of the same value.
    let bytes = xor::encode(&[1000, 16_000], &[1.0, 1.0]);
    let head = [&[0, 2, 0xd0, 0x0f][..], &1.0_f64.to_be_bytes(), &[0x98, 0x75, 0]].concat();
    assert_eq!(bytes, head);
}

#[test]
fn chunks_hold_what_was_put_in() {
    let mut state = 7_u64;
    let mut random = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    for round in 0..200 {
        let mut time_ms = random(1 << 31) as i64 - (1 << 30);
        let (mut times, mut values) = (Vec::new(), Vec::new());
        for _ in 0..random(120) {
            time_ms += 1 + random([3, 20_000, 200_000, 2_000_000, 1 << 32][round % 5]) as i64;
            times.push(time_ms);
            values
                .push([0.0, 1.5, f64::NAN, f64::from_bits(random(u64::MAX)), random(1000) as f64][random(5) as usize]);
        }
        // The edges of widths, exactly.
        for difference in [8192, -8191, 8193, -8192, 65_536, -65_535, 524_288, -524_287] {
            let last = times.len().checked_sub(2).map_or(1_000_000, |place| times[place + 1] - times[place]);
            time_ms = times.last().copied().unwrap_or(time_ms) + (last + difference).max(1);
            times.push(time_ms);
            values.push(1.0);
        }
        let expected: Vec<(i64, u64)> =
            times.iter().zip(&values).map(|(time, value)| (*time, value.to_bits())).collect();
        assert_eq!(decode(&xor::encode(&times, &values)), expected);
    }
}

fn request(accepted: &[u8]) -> Vec<u8> {
    let mut query = Vec::new();
    write_varint_field(&mut query, 1, (-5_i64) as u64);
    write_varint_field(&mut query, 2, 100);
    for (number, name, value) in [(0, "__name__", "up"), (3, "job", "a.*")] {
        let mut matcher = Vec::new();
        write_varint_field(&mut matcher, 1, number);
        write_bytes(&mut matcher, 2, name.as_bytes());
        write_bytes(&mut matcher, 3, value.as_bytes());
        write_bytes(&mut query, 3, &matcher);
    }
    // Hints, which are passed over.
    write_bytes(&mut query, 4, &[8, 1]);
    let mut body = Vec::new();
    write_bytes(&mut body, 1, &query);
    if !accepted.is_empty() {
        write_bytes(&mut body, 2, accepted);
    }
    body
}

#[test]
fn requests_are_read() {
    let query = ReadQuery {
        start_ms: -5,
        end_ms: 100,
        matchers: vec![Matcher::new("__name__", MatchOp::Equal, "up"), Matcher::new("job", MatchOp::NotRegex, "a.*")],
    };
    for (accepted, expected) in [
        (&[][..], vec![ResponseType::Samples]),
        (&[1, 0], vec![ResponseType::StreamedChunks, ResponseType::Samples]),
        (&[7], vec![ResponseType::Samples]),
    ] {
        let read = parse(&request(accepted)).unwrap();
        assert_eq!(read, ReadRequest { queries: vec![query.clone()], accepted: expected });
    }
    let body = request(&[0]);
    for end in 1..body.len() {
        // Cut anywhere it is an error or a shorter request, never a crash.
        let _ = parse(&body[..end]);
    }
    assert!(parse(&[0x0a, 0xff]).is_err());
}

#[test]
fn frames_have_length_checksum_and_message() {
    let times: Vec<i64> = (0..250).map(|place| place * 15_000).collect();
    let values: Vec<f64> = (0..250).map(f64::from).collect();
    let labels = [("__name__", "up"), ("job", "a")];
    let series = ReadSeries { labels: &labels, timestamps_ms: &times, values: &values, histograms: &[] };
    let mut out = Vec::new();
    push_frames(&mut out, 3, &series);
    let (length, rest) = (usize::from(out[0] & 0x7f) | usize::from(out[1]) << 7, &out[2..]);
    let (checksum, message) = rest.split_at(4);
    assert_eq!(message.len(), length);
    assert_eq!(checksum, crc32c::crc32c(message).to_be_bytes());
    let mut fields = Walker::new(message, 0..message.len());
    let Some(Value::Bytes(range)) = fields.next_field().unwrap().map(|field| field.value) else { panic!() };
    assert!(matches!(fields.next_field().unwrap().map(|field| field.value), Some(Value::Varint(3))));
    let (mut walker, mut found) = (Walker::new(message, range), Vec::new());
    while let Some(field) = walker.next_field().unwrap() {
        let (2, Value::Bytes(range)) = (field.number, field.value) else { continue };
        let mut chunk = Walker::new(message, range);
        while let Some(field) = chunk.next_field().unwrap() {
            if let (4, Value::Bytes(range)) = (field.number, field.value) {
                found.push(decode(&message[range]));
            }
        }
    }
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [120, 120, 10]);
    let expected: Vec<(i64, u64)> = times.iter().zip(&values).map(|(time, value)| (*time, value.to_bits())).collect();
    assert_eq!(found.concat(), expected);
}

impl Reader<'_> {
    /// The width of a number of histograms' chunks, and the number's bits.
    fn in_width(&mut self) -> (u32, u64) {
        let mut ones = 0;
        while ones < 8 && self.take(1) == 1 {
            ones += 1;
        }
        let width = [0, 3, 6, 9, 12, 18, 25, 56, 64][ones];
        (width, self.take(width))
    }

    fn unsigned(&mut self) -> u64 {
        self.in_width().1
    }

    fn signed(&mut self) -> i64 {
        let (width, raw) = self.in_width();
        if (1..64).contains(&width) && raw > 1 << (width - 1) { raw as i64 - (1 << width) } else { raw as i64 }
    }

    fn spans(&mut self) -> Vec<BucketSpan> {
        let count = self.unsigned();
        let mut span = || BucketSpan { length: self.unsigned() as u32, offset: self.signed() as i32 };
        (0..count).map(|_| span()).collect()
    }

    fn layout(&mut self) -> HistogramLayout {
        let zero_threshold = match self.take(8) {
            0 => 0.0,
            255 => f64::from_bits(self.take(64)),
            power => 0.5 * 2f64.powi(power as i32 - 243),
        };
        let schema = self.signed() as i8;
        let (positive_spans, negative_spans) = (self.spans(), self.spans());
        let bounds = if schema == CUSTOM_BUCKETS_SCHEMA { self.unsigned() } else { 0 };
        let mut bound = || match self.unsigned() {
            0 => f64::from_bits(self.take(64)),
            number => (number - 1) as f64 / 1000.0,
        };
        let custom_bounds = (0..bounds).map(|_| bound()).collect();
        HistogramLayout { schema, zero_threshold, positive_spans, negative_spans, custom_bounds }
    }
}

/// A number of a chunk that goes on with the one before: by its step, or by bits that changed.
#[derive(Default, Clone, Copy)]
struct Before {
    value: i64,
    step: i64,
    leading: u32,
    trailing: u32,
}

impl Before {
    fn steps(&mut self, reader: &mut Reader<'_>) -> i64 {
        self.step = self.step.wrapping_add(reader.signed());
        self.value = self.value.wrapping_add(self.step);
        self.value
    }

    fn changed(&mut self, reader: &mut Reader<'_>) -> f64 {
        if reader.take(1) == 1 {
            if reader.take(1) == 1 {
                self.leading = reader.take(5) as u32;
                let length = reader.take(6) as u32;
                self.trailing = 64 - self.leading - if length == 0 { 64 } else { length };
            }
            self.value ^= (reader.take(64 - self.leading - self.trailing) << self.trailing) as i64;
        }
        f64::from_bits(self.value as u64)
    }
}

/// A histogram's time, sum and all counts.
type Decoded = (i64, u64, Vec<u64>);

/// Reads a chunk of histograms as the format's page has it: what is known of a reset, the layout, and the histograms.
fn decode_histograms(encoding: u64, bytes: &[u8]) -> (u8, HistogramLayout, Vec<Decoded>) {
    let mut reader = Reader { bytes, at: 0 };
    let (count, reset) = (reader.take(16), (reader.take(8) >> 6) as u8);
    let layout = reader.layout();
    let buckets = layout.positive_buckets() + layout.negative_buckets();
    let (mut time, mut sum, mut numbers) = (Before::default(), Before::default(), vec![Before::default(); buckets + 2]);
    let mut found = Vec::new();
    for place in 0..count {
        let mut counts = Vec::new();
        match (place, encoding) {
            (0, _) => time.value = reader.signed(),
            _ => _ = time.steps(&mut reader),
        }
        for (number, before) in numbers.iter_mut().enumerate() {
            if number == 2 {
                take_sum(place, &mut sum, &mut reader);
            }
            counts.push(match (place, encoding) {
                (0, 2) if number < 2 => {
                    before.value = reader.unsigned() as i64;
                    before.value as u64
                }
                (0, 2) => {
                    before.value = reader.signed();
                    before.value as u64
                }
                (_, 2) => before.steps(&mut reader) as u64,
                (0, _) => {
                    before.value = reader.take(64) as i64;
                    before.value as u64
                }
                _ => before.changed(&mut reader).to_bits(),
            });
        }
        if numbers.len() == 2 {
            take_sum(place, &mut sum, &mut reader);
        }
        found.push((time.value, sum.value as u64, counts));
    }
    assert!(bytes.len() * 8 - reader.at < 8);
    (reset, layout, found)
}

fn take_sum(place: u64, sum: &mut Before, reader: &mut Reader<'_>) {
    if place == 0 {
        sum.value = reader.take(64) as i64;
    } else {
        sum.changed(reader);
    }
}

/// What is in a chunk of these, as [`decode_histograms`] finds it.
fn expected(histograms: &[(i64, NativeHistogram)]) -> Vec<(i64, u64, Vec<u64>)> {
    let one = |(time_ms, histogram): &(i64, NativeHistogram)| {
        let differences = |numbers: &[u64]| {
            let before = std::iter::once(&0).chain(numbers);
            numbers.iter().zip(before).map(|(number, before)| number.wrapping_sub(*before)).collect::<Vec<_>>()
        };
        let numbers = match &histogram.counts {
            HistogramCounts::Integer(counts) => {
                let sides = [differences(&counts.positive), differences(&counts.negative)].concat();
                [vec![counts.count, counts.zero_count], sides].concat()
            }
            HistogramCounts::Float(counts) => {
                let sides = counts.positive.iter().chain(&counts.negative);
                [counts.count, counts.zero_count].iter().chain(sides).map(|number| number.to_bits()).collect()
            }
        };
        (*time_ms, histogram.sum.to_bits(), numbers)
    };
    histograms.iter().map(one).collect()
}

fn layout(zero_threshold: f64) -> HistogramLayout {
    HistogramLayout {
        schema: 3,
        zero_threshold,
        positive_spans: vec![BucketSpan { offset: -2, length: 2 }, BucketSpan { offset: 300, length: 1 }],
        negative_spans: vec![BucketSpan { offset: 0, length: 1 }],
        custom_bounds: Vec::new(),
    }
}

fn integers(layout: &Arc<HistogramLayout>, number: u64, sum: f64) -> NativeHistogram {
    let counts =
        Counts { count: number * 7, zero_count: number, positive: vec![number, number * 3, 2], negative: vec![number] };
    let counts = HistogramCounts::Integer(counts);
    NativeHistogram { layout: layout.clone(), counter_reset: CounterReset::Unknown, sum, counts }
}

#[test]
fn chunks_of_histograms_hold_what_was_put_in() {
    let custom = HistogramLayout {
        schema: CUSTOM_BUCKETS_SCHEMA,
        positive_spans: vec![BucketSpan { offset: 0, length: 3 }, BucketSpan { offset: 1, length: 1 }],
        custom_bounds: vec![-0.5, 0.0, 0.001, 0.1, 1.0 / 3.0, 33_554.43, 33_554.431, 1e300],
        ..HistogramLayout::default()
    };
    let layouts = [
        layout(0.0),
        layout(2f64.powi(-128)),
        layout(2f64.powi(-243)),
        layout(1024.0),
        layout(2048.0),
        layout(1e-320),
        custom,
    ];
    let mut state = 11_u64;
    let mut random = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    for round in 0..300 {
        let layout = Arc::new(layouts[round % layouts.len()].clone());
        let is_float = random(2) == 0;
        let (mut time_ms, mut numbers) =
            (random(1 << 40) as i64 - (1 << 39), vec![0u64; layout.positive_buckets() + layout.negative_buckets() + 2]);
        let mut histograms = Vec::new();
        for _ in 0..=random(30) {
            let distance_ms = 1 << random(31);
            time_ms += 1 + random(distance_ms) as i64;
            let rise = 1 << random(30);
            numbers.iter_mut().for_each(|number| *number += random(rise));
            let sides = numbers[2..].split_at(layout.positive_buckets());
            let counts = if is_float {
                let floats = |numbers: &[u64]| numbers.iter().map(|number| *number as f64 / 8.0).collect();
                let [count, zero_count] = [numbers[0], numbers[1]].map(|number| number as f64 / 8.0);
                HistogramCounts::Float(Counts {
                    count,
                    zero_count,
                    positive: floats(sides.0),
                    negative: floats(sides.1),
                })
            } else {
                let (positive, negative) = (sides.0.to_vec(), sides.1.to_vec());
                HistogramCounts::Integer(Counts { count: numbers[0], zero_count: numbers[1], positive, negative })
            };
            let sum = f64::from_bits(random(u64::MAX) << random(30));
            let counter_reset = CounterReset::NoReset;
            histograms.push((time_ms, NativeHistogram { layout: layout.clone(), counter_reset, sum, counts }));
        }
        assert_eq!(histogram::chunk_length(&histograms, 1000), histograms.len());
        let (encoding, bytes) = histogram::encode(&histograms);
        assert_eq!(encoding, if is_float { 3 } else { 2 });
        assert_eq!(decode_histograms(encoding, &bytes), (1, (*layout).clone(), expected(&histograms)));
    }
}

#[test]
fn a_chunk_ends_before_what_its_reader_would_take_for_something_else() {
    let one = Arc::new(layout(0.5));
    let other = Arc::new(layout(0.25));
    let of = |number: u64| integers(&one, number, number as f64);
    let reset = NativeHistogram { counter_reset: CounterReset::Reset, ..of(9) };
    let gauge = |number| NativeHistogram { counter_reset: CounterReset::Gauge, ..of(number) };
    let stale = NativeHistogram { sum: f64::from_bits(model::STALE_NAN_BITS), ..of(1) };
    let floats = NativeHistogram {
        counts: HistogramCounts::Float(Counts {
            count: 99.0,
            zero_count: 99.0,
            positive: vec![99.0; 3],
            negative: vec![99.0],
        }),
        ..of(9)
    };
    for (next, goes_on) in [
        (of(5), true),
        (of(6), true),
        (of(4), false),
        (reset, false),
        (gauge(9), false),
        (stale.clone(), false),
        (floats, false),
        (integers(&other, 9, 9.0), false),
    ] {
        let pair = [(1000, of(5)), (2000, next)];
        assert_eq!(histogram::chunk_length(&pair, 120), 1 + usize::from(goes_on), "{:?}", pair[1]);
    }
    assert_eq!(histogram::chunk_length(&[(1, gauge(5)), (2, gauge(3)), (3, gauge(9))], 120), 3);
    let stale = [(1, stale.clone()), (2, stale)];
    assert_eq!(histogram::chunk_length(&stale, 120), 2);
    let (encoding, bytes) = histogram::encode(&stale);
    let found = decode_histograms(encoding, &bytes);
    assert_eq!(
        found,
        (
            0,
            HistogramLayout::default(),
            vec![(1, model::STALE_NAN_BITS, vec![0, 0]), (2, model::STALE_NAN_BITS, vec![0, 0])]
        )
    );
    assert_eq!(histogram::chunk_length(&[], 120), 0);
}

#[test]
fn floats_and_histograms_take_turns_by_time() {
    let layout = Arc::new(layout(0.5));
    let histograms: Vec<(i64, NativeHistogram)> =
        [15, 16, 40].map(|time_ms| (time_ms, integers(&layout, 1, 1.0))).to_vec();
    let (times, values) = ([10, 11, 20, 30, 50], [1.0; 5]);
    let mut left = ReadSeries { labels: &[], timestamps_ms: &times, values: &values, histograms: &histograms };
    let mut found = Vec::new();
    while let Some(chunk) = left.take_chunk() {
        let (mut walker, mut numbers) = (Walker::new(&chunk, 0..chunk.len()), Vec::new());
        while let Some(field) = walker.next_field().unwrap() {
            if let Value::Varint(number) = field.value {
                numbers.push(number);
            }
        }
        found.push(numbers);
    }
    assert_eq!(found, [[10, 11, 1], [15, 16, 2], [20, 30, 1], [40, 40, 2], [50, 50, 1]]);
}

/// Bytes that Prometheus 3.15 reads as these histograms.
#[test]
fn chunks_of_histograms_have_the_bits_of_the_format() {
    let layout = Arc::new(layout(2f64.powi(-128)));
    let histograms: Vec<(i64, NativeHistogram)> = (1..4)
        .map(|number| (number as i64 * 15_000, integers(&layout, number * number, 1.5 * number as f64)))
        .collect();
    let (encoding, bytes) = histogram::encode(&histograms);
    let expected = "000300749ca568f84b2317c1d4c5e27ff0000000000001195e3f07531959e12fffcf0db79b1d2d626ca9ba90";
    let expected = expected.as_bytes().chunks(2).map(|digits| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16));
    assert_eq!((encoding, bytes), (2, expected.collect::<Result<Vec<u8>, _>>().unwrap()));
}
