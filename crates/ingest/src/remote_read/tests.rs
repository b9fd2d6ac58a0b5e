//! Requests as Prometheus's client writes them, and answers read again.

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
