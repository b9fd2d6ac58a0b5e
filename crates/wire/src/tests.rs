//! Round trips, and what hostile messages do.

use std::sync::Arc;

use model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, Counts, HistogramCounts, HistogramLayout, NativeHistogram,
};
use model::{Field, Labels, ValueType};
use proptest::prelude::*;

use super::control::{self, Registered, Registration};
use super::data::{self, Ack, Answer, Encoder, Exception, Hello, Message, Outgoing, Reason, Refused, Request, Values};
use super::frame::{self, HEADER_BYTES, MessageBuffer, Plane};
use super::rows::{Rows, Run};

fn message(frame: &[u8]) -> MessageBuffer {
    let bytes = frame::message_bytes(frame[..HEADER_BYTES].try_into().unwrap(), 1 << 26).unwrap();
    assert_eq!(frame.len(), HEADER_BYTES + bytes);
    MessageBuffer::copied_from(&frame[HEADER_BYTES..])
}

/// Everything a batch says, or the first thing wrong with it.
fn read_all(bytes: &[u8]) -> Result<Vec<Rows>, String> {
    let read = || {
        let message = Message::new(bytes)?;
        let mut all = Vec::new();
        if let Request::Batch(batch) = message.request()? {
            for block in batch.blocks() {
                let block = block?;
                for stretch in block.stretches() {
                    let mut rows = Rows::default();
                    block.read(stretch, &mut rows)?;
                    rows.runs(block.types.len());
                    all.push(rows);
                }
            }
        }
        Ok(all)
    };
    read().map_err(|error: super::WireError| error.0)
}

fn mixed() -> Vec<u8> {
    let columns = [
        (Values::F64(&[1.5, 0.0, -2.0]), [0b101].as_slice()),
        (Values::I64(&[-1, 2, 3]), &[]),
        (Values::U64(&[u64::MAX, 5, 6]), &[]),
        (Values::Bool(&[true, false, true]), &[]),
        (Values::String(&["north", "", "süd"]), &[0b110]),
    ];
    let groups = Outgoing {
        measurement: 7,
        slots: &[4, 3, 2, 1, 0],
        tokens: &[11, 12, 13],
        timestamps_ns: &[-5],
        columns: &columns,
    };
    let lone = Outgoing {
        measurement: 0,
        slots: &[],
        tokens: &[9],
        timestamps_ns: &[1, 2],
        columns: &[(Values::F64(&[0.5, 0.25]), &[])],
    };
    let mut out = Vec::new();
    Encoder::default().batch(3, &[groups, lone], &mut out).unwrap();
    out
}

#[test]
fn batches_come_back_as_rows() {
    let frame = mixed();
    let buffer = message(&frame);
    let rows = read_all(buffer.bytes()).unwrap();
    assert_eq!(
        (rows[0].tokens.as_slice(), rows[0].timestamps_ns.as_slice()),
        ([11, 12, 13].as_slice(), [-5; 3].as_slice())
    );
    let first = [1.5f64.to_bits(), u64::MAX, u64::MAX, 1, 5];
    assert_eq!(rows[0].cells[..5], first);
    assert_eq!((rows[0].cells[14], rows[0].text.as_slice()), (5 << 32 | 4, "northsüd".as_bytes()));
    let run = |rows, columns: &[usize]| Run { rows, columns: columns.to_vec() };
    assert_eq!(rows[0].runs(5), [run(0..1, &[0, 1, 2, 3]), run(1..2, &[1, 2, 3, 4]), run(2..3, &[0, 1, 2, 3, 4])]);
    assert_eq!((rows[1].tokens.as_slice(), rows[1].timestamps_ns.as_slice()), ([9, 9].as_slice(), [1, 2].as_slice()));
    assert_eq!(rows[1].present, [false; 0]);
}

/// Two of one layout, one of another: whole numbers, a gauge of fractions, custom bounds.
fn histograms() -> Vec<NativeHistogram> {
    let layout = Arc::new(HistogramLayout {
        schema: 3,
        zero_threshold: 0.25,
        positive_spans: vec![BucketSpan { offset: -2, length: 1 }, BucketSpan { offset: 3, length: 2 }],
        negative_spans: vec![BucketSpan { offset: 7, length: 1 }],
        custom_bounds: Vec::new(),
    });
    let custom = Arc::new(HistogramLayout {
        schema: CUSTOM_BUCKETS_SCHEMA,
        positive_spans: vec![BucketSpan { offset: 0, length: 2 }],
        custom_bounds: vec![1.0, 2.5],
        ..HistogramLayout::default()
    });
    let integers = |count, positive: &[u64], negative: &[u64]| {
        let (positive, negative) = (positive.to_vec(), negative.to_vec());
        HistogramCounts::Integer(Counts { count, zero_count: 1, positive, negative })
    };
    let fractions = Counts { count: 6.5, zero_count: 0.5, positive: vec![1.0, 2.0, 3.0], negative: vec![0.0] };
    let of = |layout: &Arc<HistogramLayout>, counter_reset, sum, counts| NativeHistogram {
        layout: layout.clone(),
        counter_reset,
        sum,
        counts,
    };
    vec![
        of(&layout, CounterReset::Unknown, 4.5, integers(8, &[1, 2, 3], &[1])),
        of(&layout, CounterReset::Gauge, -1.0, HistogramCounts::Float(fractions)),
        of(&custom, CounterReset::Reset, 2.0, integers(4, &[3, 0], &[])),
    ]
}

fn histogram_frame(histograms: &[NativeHistogram], present: &[u8]) -> Vec<u8> {
    let block = Outgoing {
        measurement: 7,
        slots: &[1, 0],
        tokens: &[11],
        timestamps_ns: &(0..histograms.len() as i64).collect::<Vec<_>>(),
        columns: &[(Values::F64(&vec![0.5; histograms.len()]), &[]), (Values::Histogram(histograms), present)],
    };
    let mut out = Vec::new();
    Encoder::default().batch(3, &[block], &mut out).unwrap();
    out
}

#[test]
fn histograms_come_back() {
    let sent = histograms();
    let rows = &read_all(message(&histogram_frame(&sent, &[])).bytes()).unwrap()[0];
    assert_eq!((&rows.histograms, rows.cells[1], rows.cells[3], rows.cells[5]), (&sent, 0, 1, 2));
    assert!(Arc::ptr_eq(&rows.histograms[0].layout, &rows.histograms[1].layout));
    // A row without one may hold anything there.
    let mut broken = sent.clone();
    broken[1].counts = HistogramCounts::Integer(Counts::default());
    let rows = &read_all(message(&histogram_frame(&broken, &[0b101])).bytes()).unwrap()[0];
    assert_eq!(rows.histograms, [sent[0].clone(), sent[2].clone()]);
    let error = read_all(message(&histogram_frame(&broken, &[])).bytes()).unwrap_err();
    assert_eq!(error, "row 1: native histogram: number of bucket counts differs from the spans' buckets");
    broken[1].counts =
        HistogramCounts::Integer(Counts { positive: vec![1, 1, 1], negative: vec![1], ..Counts::default() });
    let error = read_all(message(&histogram_frame(&broken, &[])).bytes()).unwrap_err();
    assert_eq!(error, "row 1: native histogram: 4 observations in buckets, but a count of 0");
}

#[test]
fn an_encoder_leaves_nothing_of_a_batch_in_the_next() {
    let (tokens, values): (Vec<u64>, Vec<f64>) = (0..2000u32).map(|row| (u64::from(row), f64::from(row))).unzip();
    let columns = [(Values::F64(&values), [].as_slice())];
    let large = Outgoing { measurement: 1, slots: &[1], tokens: &tokens, timestamps_ns: &[1], columns: &columns };
    let mut encoder = Encoder::default();
    let mut fresh = Vec::new();
    Encoder::default().batch(5, &[], &mut fresh).unwrap();
    let mut used = Vec::new();
    encoder.batch(4, &[large], &mut used).unwrap();
    let rows = read_all(message(&used).bytes()).unwrap();
    assert_eq!(rows.iter().flat_map(|rows| rows.tokens.clone()).collect::<Vec<_>>(), tokens);
    used.clear();
    encoder.batch(5, &[], &mut used).unwrap();
    assert_eq!(used, fresh);
}

#[test]
fn other_messages_come_back() {
    let labels = Labels::from_pairs([("host", "a"), ("region", "north")]).unwrap();
    let field = Field { name: "usage".to_owned(), value_type: ValueType::Histogram };
    for what in [
        Registration::Series(vec![("up".to_owned(), labels.clone()), ("down".to_owned(), Labels::empty())]),
        Registration::Groups {
            measurement: "cpu".to_owned(),
            members: vec![(field, labels.clone())],
            groups: vec![labels, Labels::empty()],
        },
    ] {
        let request = control::Request { id: 5, database: "d".to_owned(), token: "t".to_owned(), what };
        let mut out = Vec::new();
        control::encode_request(&request, &mut out).unwrap();
        assert_eq!(control::decode_request(message(&out).bytes()), Ok(request));
    }
    for registered in [Err("no".to_owned()), Ok(Registered { tokens: vec![1, 2], measurement: 3, slots: vec![0] })] {
        let answer = control::Answer { id: 1, incarnation: 2, registered };
        let mut out = Vec::new();
        control::encode_answer(&answer, &mut out).unwrap();
        assert_eq!(control::decode_answer(message(&out).bytes()), Ok(answer));
    }
    let exception = Exception { sequence: 4, duplicate: true, error: Some("e".to_owned()), stale_tokens: vec![6] };
    for answer in [
        Answer::Welcome(data::Welcome { last_sequence: 9, knows_producer: true, ..data::Welcome::default() }),
        Answer::Ack(Ack { sequence: 7, credit_bytes: 8, exceptions: vec![exception] }),
        Answer::Refused(Refused { reason: Reason::Unavailable, message: "m".to_owned(), incarnation: 1 }),
    ] {
        let mut out = Vec::new();
        data::encode_answer(&answer, &mut out).unwrap();
        assert_eq!(data::decode_answer(message(&out).bytes()), Ok(answer));
    }
    let mut out = Vec::new();
    let hello = Hello { incarnation: 1, producer: 2, token: "t".to_owned() };
    data::encode_hello(&hello, &mut out);
    let buffer = message(&out);
    assert!(
        matches!(Message::new(buffer.bytes()).unwrap().request().unwrap(), Request::Hello(found) if found == hello)
    );
}

#[test]
fn frames_and_prefaces_that_are_none_are_told() {
    let check = |header: [u8; 8], expected: &str| {
        let error = frame::message_bytes(header, 1024).unwrap_err().0;
        assert!(error.contains(expected), "{error}");
    };
    check([8, 4, 0, 0, 0, 0, 0, 0], "1032 bytes; at most 1024");
    check([255; 8], "no frame");
    check([0; 8], "no frame");
    check([9, 0, 0, 0, 0, 0, 0, 0], "no frame");
    let mut other = frame::preface(Plane::Data);
    assert_eq!(frame::check_preface(Plane::Data, other), Ok(()));
    assert!(frame::check_preface(Plane::Control, other).unwrap_err().0.contains("other plane"));
    other[8] = 9;
    assert!(frame::check_preface(Plane::Data, other).unwrap_err().0.contains("version 1"));
    assert!(frame::check_preface(Plane::Data, *b"GET / HTTP/1.1\r\n").unwrap_err().0.contains("HTTP"));
}

#[test]
fn cut_messages_and_flipped_bits_never_do_more_than_fail() {
    for frame in [mixed(), histogram_frame(&histograms(), &[0b110])] {
        let bytes = &frame[HEADER_BYTES..];
        for end in (0..bytes.len()).step_by(8) {
            assert!(read_all(MessageBuffer::copied_from(&bytes[..end]).bytes()).is_err(), "{end}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _ = read_all(MessageBuffer::copied_from(&damaged).bytes());
        }
    }
}

#[test]
fn few_bytes_cannot_stand_for_many() {
    // One segment whose root is a batch of 2^20 blocks that all are one and the same struct of no size.
    let mut words: Vec<u64> = vec![0, 3 << 48];
    words[0] = 4 << 32;
    words[1] = 1 << 48 | 1 << 32; // root: a struct of one data word and one pointer
    words.push(1); // which: batch
    words.push(1 << 48 | 1 << 32); // batch: one data word, one pointer
    words.push(1); // sequence
    words.push(7 << 32 | 1); // blocks: a list of structs without words
    words[0] = 6 << 32;
    words.push(((1u64 << 29) - 1) << 2); // its tag: 2^29 - 1 items of no size
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let error = read_all(MessageBuffer::copied_from(&bytes).bytes()).unwrap_err();
    assert!(error.contains("limit"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_an_error_or_a_message(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let buffer = MessageBuffer::copied_from(&bytes);
        let _ = read_all(buffer.bytes());
        let _ = control::decode_request(buffer.bytes());
        let _ = control::decode_answer(buffer.bytes());
        let _ = data::decode_answer(buffer.bytes());
    }
}
