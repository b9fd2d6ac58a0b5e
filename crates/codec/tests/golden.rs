//! Bytes that must never change: `docs/formats/columns.md`. What a version wrote every later one reads; what is written
//! today is listed too, so that a change of it is seen.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use thalweg_codec::histogram::{Counts, CountsOf, Histogram, Layout};
use thalweg_codec::presence::Cell;
use thalweg_codec::{Effort, Reader, boolean, float, histogram, integer, presence, text};

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn written(encode: impl Fn(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    encode(&mut out);
    hex(&out)
}

fn read_integers(values: &[i64], bytes: &str) {
    let mut back = Vec::new();
    integer::decode(&mut Reader::new(&unhex(bytes)), values.len(), &mut back).unwrap();
    assert_eq!(back, values);
}

fn check_integers(values: &[i64], effort: Effort, expected: &str) {
    assert_eq!(written(|out| integer::encode_with(values, effort, out)), expected, "{values:?}");
    read_integers(values, expected);
}

#[test]
fn integers() {
    use Effort::{Fast, Small};
    check_integers(&[], Fast, "");
    check_integers(&[-3, -3, -3], Fast, "0005");
    check_integers(&[10, 20, 30], Fast, "011414");
    check_integers(&[5, 0, 7, 3], Fast, "050a010309c507");
    check_integers(&[0, 1_000_000, 3_000_000, 4_000_000, 6_000_000, 7_000_000], Fast, "0700c0843d01020a");
    check_integers(
        &[0, 1000, 3000, 6000, 10_000, 15_000, 21_000, 28_001],
        Fast,
        "0700010dd00f00007d401fdc05fa1067dc05",
    );
    check_integers(&[0, 100, 201, 299, 400, 501, 599, 700, 800], Fast, "07000102c401ceb3");
    let mut outlier = [1, 2, 3, 0, 3, 2, 1, 0, 3, 1, 2, 0, 1, 2, 3, 0];
    outlier[9] = 1 << 40;
    check_integers(&outlier, Small, "0502018201391b23390127090000000040");
    let coins: Vec<i64> = (0..256u32).map(|n| i64::from(n.wrapping_mul(2_654_435_761) >> 24 < 20)).collect();
    check_integers(&coins, Small, "05020180011401000d1a222f44515966737b889daab2bfd4e1e9f6ffff0f");
    let uneven: Vec<i64> = coins.iter().zip(0..).map(|(coin, n)| coin * (n * n % 60)).collect();
    check_integers(
        &uneven,
        Small,
        "050001800013060d1a222f44515966737b889daab2bfd4e1e9f63104c54415605902c52811106d4c02",
    );
}

#[test]
fn integers_of_old_versions() {
    read_integers(&[5, 0, 7, 3], "020003c507");
    read_integers(&[0, 1_000_000, 3_000_000, 4_000_000, 6_000_000, 7_000_000], "030080897a02010a");
    read_integers(&[0, 1000, 3000, 6000, 10_000, 15_000, 21_000, 28_001], "040002d00fd00f0120");
    read_integers(&[0, 1000, 3000, 6000, 10_000, 15_000, 21_000, 28_001], "080001d00f01d00f20");
    read_integers(&[0, 100, 201, 299, 400, 501, 599, 700, 800], "060001c8010201254901");
    read_integers(&[0, 1_000_000, 3_000_000, 4_000_000, 6_000_000, 7_000_000], "0500c0843d0300c8e803");
}

fn read_floats(values: &[f64], bytes: &str) {
    let mut back = Vec::new();
    float::decode(&mut Reader::new(&unhex(bytes)), values.len(), &mut back).unwrap();
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&back), bits(values));
}

fn check_floats(values: &[f64], expected: &str) {
    assert_eq!(written(|out| float::encode(values, out)), expected, "{values:?}");
    read_floats(values, expected);
}

#[test]
fn floats() {
    check_floats(&[1.5, 1.5], "00000000000000f83f");
    check_floats(&[0.25, 0.5, 0.75], "010200013232");
    check_floats(&[1.0, 2.0, 4.0, 3.0, 1.0, 2.0, 5.0, f64::NAN, 1.0], "01000107000000000000f87f0502010300c8849000");
    check_floats(&[1.0 / 3.0, 0.1 + 0.2], "0301aad5aad5aad5aad57fc18891a2c4889102");
    let wild = [1.0 / 3.0, -1e-300 / 3.0, 1e300 / 3.0, -1.0 / 3.0, 1e-300 / 7.0, 1e300 / 7.0, -1e-300 / 7.0];
    let split = "04320705ea3f010ead3e974f0198f25dbe0000c90700020100025555555555553167da0f544b02cd0900b6af7d5555555555558af1f727db7dc8629424f037ad187f7fb2dd07";
    assert_eq!(written(|out| float::encode_with(&wild, Effort::Small, out)), split);
    read_floats(&wild, split);
    check_floats(
        &wild,
        "0305aad5aad5aad5aad57f0140d5aad5aad5aad5aaff01abaaaaaaaaaaaa7f89bb5e5180c2483e26f255b55030f5bd0000000000000000e0464d7d30d34d41086e7a5e51a3e0bdcb635d2d7ad75c3e",
    );
}

#[test]
fn floats_of_old_versions() {
    read_floats(&[0.25, 0.5, 0.75], "010200013232");
    read_floats(&[1.0 / 3.0, 0.1 + 0.2], "0201aad5aad5aad5aad57fc18891a2c4889102");
    let odd = 1.0 / 3.0;
    read_floats(&[0.25, odd, 0.75], "01020101555555555555d53f023206002003");
}

#[test]
fn booleans_and_presence() {
    let bits = [true, false, true, true, false, false, false, false, true];
    assert_eq!(written(|out| boolean::encode(&bits, out)), "0d01");
    let check = |bits: &[bool], expected: &str| {
        assert_eq!(written(|out| boolean::encode_with(bits, Effort::Fast, out)), expected);
        let mut back = Vec::new();
        boolean::decode_tagged(&mut Reader::new(&unhex(expected)), bits.len(), &mut back).unwrap();
        assert_eq!(back, bits);
    };
    check(&bits, "000d01");
    check(&[[true; 80], [false; 80]].concat(), "01010200a001");
    let mut one = [false; 100];
    one[70] = true;
    check(&one, "0201008c01");
    check(&one.map(|bit| !bit), "0301008c01");

    let check = |cells: &[Cell], expected: &str| {
        assert_eq!(written(|out| presence::encode(cells, out)), expected);
        let back = presence::decode(&mut Reader::new(&unhex(expected)), cells.len()).unwrap();
        assert_eq!(back.unwrap_or_else(|| vec![Cell::Value; cells.len()]), cells);
    };
    check(&[Cell::Value; 3], "00");
    check(&[Cell::Value, Cell::Null, Cell::Stale], "030503");
    let mut cells = [Cell::Value; 100];
    cells[50..].fill(Cell::Null);
    check(&cells, "040101020064");
    cells[49] = Cell::Stale;
    check(&cells, "06010102006403010062");
}

#[test]
fn texts() {
    let check = |texts: &[&str], effort: Effort, expected: &str| {
        assert_eq!(written(|out| text::encode_with(texts, effort, out)), expected);
        assert_eq!(text::decode(&mut Reader::new(&unhex(expected)), texts.len()).unwrap(), texts);
    };
    check(&["up", "down"], Effort::Fast, "000104047570646f776e");
    check(&["up", "up", "up", "down", "up"], Effort::Fast, "01020104047570646f776e050001010008");
    let read = |texts: &[&str], bytes: &str| {
        assert_eq!(text::decode(&mut Reader::new(&unhex(bytes)), texts.len()).unwrap(), texts);
    };
    read(&["up", "down"], "000104047570646f776e");
    read(&["up", "up", "up", "down", "up"], "01020104047570646f776e02000108");
    // How small a text becomes may change with the compressor; that it is read may not.
    read(&["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"], "0200400b1f61010007506161616161");
    read(&["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; 2], "030100400b1f610100075061616161610000");
}

#[test]
fn histograms() {
    let layout =
        Arc::new(Layout { schema: 3, zero_threshold: 0.5, positive_spans: vec![(-2, 2), (3, 1)], ..Layout::default() });
    let row = |n: u64| {
        let counts = CountsOf { count: 6 * n, zero_count: 0, positive: vec![n, 2 * n, 3 * n], negative: vec![] };
        Histogram { layout: Arc::clone(&layout), hint: 2, sum: 1.5 * n as f64, counts: Counts::Integer(counts) }
    };
    let expected =
        "00010006000000000000e03f0203020601000000000004010100071e0f010202070c0601020200000502010400101373520b";
    let rows = [row(1), row(2), row(4)];
    assert_eq!(written(|out| histogram::encode_with(&rows, Effort::Fast, out).unwrap()), expected);
    assert_eq!(histogram::decode(&mut Reader::new(&unhex(expected)), 3).unwrap(), rows);
    // What earlier versions wrote.
    for old in [
        "00010006000000000000e03f0203020601000000000004010100051e0f020034050c0602003400000502010400101373520b",
        "00010006000000000000e03f0203020601000000000004010100081e0f020002080c0602000200000502010400101373520b",
    ] {
        assert_eq!(histogram::decode(&mut Reader::new(&unhex(old)), 3).unwrap(), rows);
    }
    let custom = Layout { schema: -53, positive_spans: vec![(0, 2)], custom_bounds: vec![0.5], ..Layout::default() };
    let counts = CountsOf { count: 0.5, zero_count: 0.0, positive: vec![0.25, 0.25], negative: vec![] };
    let row = Histogram { layout: Arc::new(custom), hint: 3, sum: 0.75, counts: Counts::Float(counts) };
    let expected = "000101690000000000000000010002000100000000000000e03f0000000600000000000000e83f00000000000000e03f00000000000000000000000000000000d03f";
    assert_eq!(written(|out| histogram::encode_row(&row, out).unwrap()), expected);
    assert_eq!(histogram::decode_row(&mut Reader::new(&unhex(expected))).unwrap(), row);
}
