//! Answers as columns of plain numbers, for clients that hold points so themselves: nothing becomes text on the way. Layout:
//! `docs/formats/cache-protocol.md`.

use std::sync::Arc;

use codec::{DecodeError, Reader, varint};

use crate::points::{Answer, FieldPoints, Points, ValueType, Values};

/// A field has the times and series of the one before it.
const SAME_ROWS: u8 = 1;
/// All points of a field are of the first series.
const FIRST_SERIES: u8 = 2;

/// Memory that an answer may take: few bytes stand for many where fields share rows, and an empty text takes one.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// Of the time and the series of a point.
const ROW_BYTES: usize = 12;

/// Memory of a text beside its bytes.
const TEXT_BYTES: usize = 40;

/// Writes an answer.
pub fn write(answer: &Answer) -> Vec<u8> {
    let mut body = Vec::with_capacity(64 + answer.size_bytes());
    varint::push(&mut body, answer.series.len() as u64);
    answer.series.iter().for_each(|name| varint::push_text(&mut body, name));
    varint::push(&mut body, answer.fields.len() as u64);
    let mut before: Option<&Points> = None;
    for FieldPoints { name, points } in &answer.fields {
        varint::push_text(&mut body, name);
        let is_same = |before: &Points| before.timestamps == points.timestamps && before.series == points.series;
        let has_same_rows = before.is_some_and(is_same);
        let is_one = points.series.iter().all(|number| *number == 0);
        let flags = if has_same_rows { SAME_ROWS } else { 0 } | if is_one { FIRST_SERIES } else { 0 };
        body.extend([points.values.value_type() as u8, flags]);
        if !has_same_rows {
            varint::push(&mut body, points.len() as u64);
            push_words(&mut body, &points.timestamps, i64::to_le_bytes);
            if !is_one {
                push_words(&mut body, &points.series, u32::to_le_bytes);
            }
        }
        push_values(&mut body, &points.values);
        before = Some(points);
    }
    body
}

fn push_values(body: &mut Vec<u8>, values: &Values) {
    match values {
        Values::F64(column) => push_words(body, column, f64::to_le_bytes),
        Values::I64(column) => push_words(body, column, i64::to_le_bytes),
        Values::Bool(column) => body.extend(column.iter().map(|value| u8::from(*value))),
        Values::Text(column) => column.iter().for_each(|text| varint::push_text(body, text)),
    }
}

fn push_words<T: Copy, const N: usize>(body: &mut Vec<u8>, column: &[T], bytes_of: impl Fn(T) -> [u8; N]) {
    let start = body.len();
    body.resize(start + column.len() * N, 0);
    let room = body.get_mut(start..).unwrap_or_default();
    for (room, word) in room.chunks_exact_mut(N).zip(column) {
        room.copy_from_slice(&bytes_of(*word));
    }
}

/// Reads an answer; what is wrong with the bytes otherwise. The cache checks whether points make an answer.
pub fn read(body: &[u8]) -> Result<Answer, String> {
    read_answer(&mut Reader::new(body)).map_err(|error| format!("columns: {error}"))
}

fn read_answer(reader: &mut Reader<'_>) -> Result<Answer, DecodeError> {
    let mut answer = Answer::default();
    let mut left_bytes = ANSWER_BYTES_MAX.saturating_sub(reader.rest().len());
    // Each name takes a byte at least, each field more.
    let count = reader.length(reader.rest().len())?;
    take(reader, &mut left_bytes, count, TEXT_BYTES)?;
    for _ in 0..count {
        answer.series.push(Arc::from(reader.text()?));
    }
    for _ in 0..reader.length(reader.rest().len())? {
        let before = answer.fields.last().map(|field| &field.points);
        let field = read_field(reader, before, &mut left_bytes)?;
        answer.fields.push(field);
    }
    if reader.is_empty() { Ok(answer) } else { Err(reader.error("bytes behind the last field")) }
}

/// Takes the memory of so many things from what is left.
fn take(reader: &Reader<'_>, left_bytes: &mut usize, count: usize, each_bytes: usize) -> Result<(), DecodeError> {
    let rest = count.checked_mul(each_bytes).and_then(|bytes| left_bytes.checked_sub(bytes));
    *left_bytes = rest.ok_or_else(|| reader.error("an answer that takes more than 512 MiB: fetch less at a time"))?;
    Ok(())
}

fn read_field(
    reader: &mut Reader<'_>,
    before: Option<&Points>,
    left_bytes: &mut usize,
) -> Result<FieldPoints, DecodeError> {
    take(reader, left_bytes, 1, size_of::<FieldPoints>() + TEXT_BYTES)?;
    let name = Arc::from(reader.text()?);
    let value_type = ValueType::from_number(reader.byte()?).ok_or_else(|| reader.error("a type that is none"))?;
    let flags = reader.byte()?;
    let (timestamps, series): (Vec<i64>, Vec<u32>) = match before {
        Some(before) if flags & SAME_ROWS != 0 => {
            take(reader, left_bytes, before.len(), ROW_BYTES)?;
            (before.timestamps.clone(), before.series.clone())
        }
        None if flags & SAME_ROWS != 0 => return Err(reader.error("no field before the first one")),
        _ => {
            let count = reader.length(reader.rest().len() / 8)?;
            take(reader, left_bytes, count, ROW_BYTES)?;
            let timestamps = read_words(reader, count, i64::from_le_bytes)?;
            let is_one = flags & FIRST_SERIES != 0;
            (timestamps, if is_one { vec![0; count] } else { read_words(reader, count, u32::from_le_bytes)? })
        }
    };
    let count = timestamps.len();
    take(reader, left_bytes, count, if value_type == ValueType::Text { TEXT_BYTES } else { 8 })?;
    let values = match value_type {
        ValueType::F64 => Values::F64(read_words(reader, count, f64::from_le_bytes)?),
        ValueType::I64 => Values::I64(read_words(reader, count, i64::from_le_bytes)?),
        ValueType::Bool => Values::Bool(reader.bytes(count)?.iter().map(|byte| *byte != 0).collect()),
        ValueType::Text => Values::Text((0..count).map(|_| Ok(Arc::from(reader.text()?))).collect::<Result<_, _>>()?),
    };
    Ok(FieldPoints { name, points: Points { timestamps, series, values } })
}

fn read_words<T, const N: usize>(
    reader: &mut Reader<'_>,
    count: usize,
    of_bytes: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, DecodeError> {
    let bytes = count.checked_mul(N).ok_or_else(|| reader.error("too many points"))?;
    let (words, _) = reader.bytes(bytes)?.as_chunks::<N>();
    Ok(words.iter().map(|word| of_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(count: usize) -> impl Strategy<Value = Values> {
        prop_oneof![
            prop::collection::vec(any::<u64>(), count)
                .prop_map(|bits| Values::F64(bits.into_iter().map(f64::from_bits).collect())),
            prop::collection::vec(any::<i64>(), count).prop_map(Values::I64),
            prop::collection::vec(any::<bool>(), count).prop_map(Values::Bool),
            prop::collection::vec("\\PC{0,4}", count)
                .prop_map(|texts| Values::Text(texts.into_iter().map(Arc::from).collect())),
        ]
    }

    fn points() -> impl Strategy<Value = Points> {
        (0usize..20, 1u32..4).prop_flat_map(|(count, series)| {
            let rows = prop::collection::vec((any::<i64>(), 0..series), count);
            (rows, values(count)).prop_map(|(rows, values)| {
                let (timestamps, series) = rows.into_iter().unzip();
                Points { timestamps, series, values }
            })
        })
    }

    fn answer() -> impl Strategy<Value = Answer> {
        let field = ("[a-z]{0,3}", points(), any::<bool>());
        let fields = prop::collection::vec(field, 0..5);
        (prop::collection::vec("\\PC{0,4}", 0..4), fields).prop_map(|(series, fields)| {
            let mut answer = Answer { series: series.into_iter().map(Arc::from).collect(), fields: Vec::new() };
            for (name, points, again) in fields {
                let name: Arc<str> = name.into();
                answer.fields.push(FieldPoints { name: name.clone(), points: points.clone() });
                answer.fields.extend(again.then_some(FieldPoints { name, points }));
            }
            answer
        })
    }

    /// The answer as text, floats by their bits, so that NaNs are equal.
    fn shown(answer: &Answer) -> String {
        let bits = |field: &FieldPoints| match &field.points.values {
            Values::F64(column) => column.iter().map(|value| value.to_bits()).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        format!("{answer:?} {:?}", answer.fields.iter().map(bits).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn answers_come_back_and_no_shorter_body_is_one(answer in answer(), cut in any::<prop::sample::Index>()) {
            let body = write(&answer);
            prop_assert_eq!(shown(&read(&body).unwrap()), shown(&answer));
            prop_assert!(read(&body[..cut.index(body.len())]).is_err());
            prop_assert!(read(&[&body[..], &[0]].concat()).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(prop_oneof![0u8..9, any::<u8>()], 0..200)) {
            if let Ok(answer) = read(&bytes) {
                for FieldPoints { points, .. } in &answer.fields {
                    prop_assert_eq!((points.series.len(), points.values.len()), (points.len(), points.len()));
                }
            }
        }
    }

    /// A field of a million points, and others that share its rows: a byte a point for thirteen or more in memory.
    #[test]
    fn few_bytes_do_not_stand_for_memory_without_end() {
        const POINTS: usize = 1_000_000;
        let body_of = |fields: usize| {
            let mut body = vec![0];
            varint::push(&mut body, fields as u64);
            for number in 0..fields {
                let is_first = number == 0;
                body.extend([0, ValueType::Bool as u8, if is_first { FIRST_SERIES } else { SAME_ROWS }]);
                if is_first {
                    varint::push(&mut body, POINTS as u64);
                    body.resize(body.len() + POINTS * 8, 0);
                }
                body.resize(body.len() + POINTS, 0);
            }
            body
        };
        assert_eq!(read(&body_of(2)).unwrap().fields.len(), 2);
        let refused = read(&body_of(40)).unwrap_err();
        assert!(refused.contains("more than 512 MiB"), "{refused}");
    }

    #[test]
    fn fields_share_their_rows() {
        let points = Points { timestamps: vec![5, 6], series: vec![0, 0], values: Values::F64(vec![1.0, 2.0]) };
        let field = |name: &str| FieldPoints { name: name.into(), points: points.clone() };
        let answer = Answer { series: vec!["".into()], fields: vec![field("a"), field("b"), field("c")] };
        // Three values of eight bytes a row, and one time.
        assert!(write(&answer).len() < 2 * (3 * 8 + 8) + 20);
        assert!(read(&[0, 1, 0, 0, SAME_ROWS]).is_err());
    }
}
