//! Hostile bytes as a column of every kind: the first two bytes are how many values it claims to hold. Nothing panics, no
//! decoder returns more values than that, and what was read can be written, with either effort, and read again.
#![no_main]

use codec::{Effort, Reader, boolean, cells, float, histogram, integer, presence, text};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|data: &[u8]| {
    let Some((count, bytes)) = data.split_first_chunk::<2>() else { return };
    let count = usize::from(u16::from_le_bytes(*count));
    integers(bytes, count);
    floats(bytes, count);
    booleans(bytes, count);
    let _ = presence::decode(&mut Reader::new(bytes), count);
    texts(bytes, count);
    histograms(bytes, count);
    rows_of_cells(bytes, count);
});

fn integers(bytes: &[u8], count: usize) {
    let mut values = Vec::new();
    let decoded = integer::decode(&mut Reader::new(bytes), count, &mut values);
    assert!(values.len() <= count);
    let (from, to) = (count / 3, count / 3 * 2);
    let mut part = Vec::new();
    let partly = integer::decode_range(&mut Reader::new(bytes), count, from..to, &mut part);
    if decoded.is_err() {
        return;
    }
    // Blocks that are skipped are not looked into, so the part may be read where the whole is not, never otherwise.
    partly.expect("a part of what can be read");
    assert_eq!(part, values[from..to]);
    for effort in [Effort::Fast, Effort::Small] {
        let (mut out, mut back) = (Vec::new(), Vec::new());
        integer::encode_with(&values, effort, &mut out);
        integer::decode(&mut Reader::new(&out), count, &mut back).expect("what was written");
        assert_eq!(back, values);
    }
}

fn floats(bytes: &[u8], count: usize) {
    let mut values: Vec<f64> = Vec::new();
    if float::decode(&mut Reader::new(bytes), count, &mut values).is_err() {
        return;
    }
    assert_eq!(values.len(), count);
    for effort in [Effort::Fast, Effort::Small] {
        let (mut out, mut back) = (Vec::new(), Vec::<f64>::new());
        float::encode_with(&values, effort, &mut out);
        float::decode(&mut Reader::new(&out), count, &mut back).expect("what was written");
        assert!(back.iter().zip(&values).all(|(back, value)| back.to_bits() == value.to_bits()));
    }
}

fn rows_of_cells(bytes: &[u8], count: usize) {
    for width in [1, 3] {
        let mut values = Vec::new();
        let decoded = cells::decode(&mut Reader::new(bytes), count, width, &mut values);
        assert!(values.len() <= count * width);
        if decoded.is_err() {
            continue;
        }
        for is_float in [true, false] {
            let (mut out, mut back) = (Vec::new(), Vec::new());
            cells::encode(&values, &vec![is_float; width], &mut out);
            cells::decode(&mut Reader::new(&out), count, width, &mut back).expect("what was written");
            assert_eq!(back, values);
        }
    }
}

fn booleans(bytes: &[u8], count: usize) {
    let (mut values, mut plain) = (Vec::new(), Vec::new());
    let _ = boolean::decode_tagged(&mut Reader::new(bytes), count, &mut values);
    let _ = boolean::decode(&mut Reader::new(bytes), count, &mut plain);
    assert!(values.len() <= count && plain.len() <= count);
}

fn texts(bytes: &[u8], count: usize) {
    // A dictionary's texts may be many times the bytes they come from; the bound on that is not what is tested here.
    let Ok(values) = text::decode(&mut Reader::new(bytes), count % 256) else { return };
    let texts: Vec<&str> = values.iter().map(String::as_str).collect();
    let mut out = Vec::new();
    text::encode_with(&texts, Effort::Small, &mut out);
    assert_eq!(text::decode(&mut Reader::new(&out), texts.len()).expect("what was written"), values);
}

fn histograms(bytes: &[u8], count: usize) {
    let Ok(values) = histogram::decode(&mut Reader::new(bytes), count % 64) else { return };
    let mut out = Vec::new();
    histogram::encode_with(&values, Effort::Small, &mut out).expect("what was read fits");
    let back = histogram::decode(&mut Reader::new(&out), values.len()).expect("what was written");
    // As text, because not a number is not equal to itself.
    assert_eq!(format!("{back:?}"), format!("{values:?}"));
}
