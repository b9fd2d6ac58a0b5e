//! Bytes that must never change: `docs/formats/columns.md`.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use thalweg_codec::presence::Cell;
use thalweg_codec::{Reader, boolean, float, integer, presence, text};

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn check_integers(values: &[i64], expected: &str) {
    let mut out = Vec::new();
    integer::encode(values, &mut out);
    assert_eq!(hex(&out), expected, "{values:?}");
    let mut back = Vec::new();
    integer::decode(&mut Reader::new(&out), values.len(), &mut back).unwrap();
    assert_eq!(back, values);
}

#[test]
fn integers() {
    check_integers(&[], "");
    check_integers(&[-3, -3, -3], "0005");
    check_integers(&[10, 20, 30], "011414");
    check_integers(&[5, 0, 7, 3], "020003c507");
    check_integers(&[0, 1_000_000, 3_000_000, 4_000_000, 6_000_000, 7_000_000], "030080897a02010a");
    check_integers(&[0, 1000, 3000, 6000, 10_000, 15_000, 21_000, 28_001], "040002d00fd00f0120");
}

fn check_floats(values: &[f64], expected: &str) {
    let mut out = Vec::new();
    float::encode(values, &mut out);
    assert_eq!(hex(&out), expected, "{values:?}");
    let mut back = Vec::new();
    float::decode(&mut Reader::new(&out), values.len(), &mut back).unwrap();
    assert_eq!(back, values);
}

#[test]
fn floats() {
    check_floats(&[1.5, 1.5], "00000000000000f83f");
    check_floats(&[0.25, 0.5, 0.75], "010200013232");
    check_floats(&[1.0 / 3.0, 0.1 + 0.2], "0201aad5aad5aad5aad57fc18891a2c4889102");
}

#[test]
fn others() {
    let mut out = Vec::new();
    boolean::encode(&[true, false, true, true, false, false, false, false, true], &mut out);
    assert_eq!(hex(&out), "0d01");
    let mut out = Vec::new();
    presence::encode(&[Cell::Value, Cell::Null, Cell::Stale], &mut out);
    assert_eq!(hex(&out), "030503");
    let mut out = Vec::new();
    text::encode(&["up", "down"], &mut out);
    assert_eq!(hex(&out), "000104047570646f776e");
    let mut out = Vec::new();
    text::encode(&["up", "up", "up", "down", "up"], &mut out);
    assert_eq!(hex(&out), "01020104047570646f776e02000108");
}
