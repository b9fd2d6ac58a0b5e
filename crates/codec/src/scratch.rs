#![allow(missing_docs, clippy::all, clippy::pedantic, clippy::print_stdout, clippy::unwrap_used)]
use crate::*;
use std::time::Instant;
fn best(name: &str, n: usize, mut f: impl FnMut()) {
    let mut b = f64::INFINITY;
    for _ in 0..300 { let t = Instant::now(); f(); b = b.min(t.elapsed().as_secs_f64()); }
    println!("{name:40} {:8.2} us  {:8.0} MV/s  {:.2} ns/v", b * 1e6, n as f64 / b / 1e6, b * 1e9 / n as f64);
}
#[test]
fn scratch() {
    let n = 4096;
    let mut s = 42u64;
    let mut uni = || { s = s.wrapping_add(0x9e37_79b9_7f4a_7c15); let mut m = s; m = (m ^ (m >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9); m = (m ^ (m >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb); ((m ^ (m >> 31)) >> 11) as f64 / (1u64 << 53) as f64 };
    let mut tot = [0usize; 3];
    let mut vals = vec![];
    let mut ent = 0.0;
    for _ in 0..32 {
        let mut at = 100.0 * uni();
        let v: Vec<f64> = (0..n).map(|_| { at = (at + (0..12).map(|_| uni()).sum::<f64>() - 6.0).clamp(0.0, 100.0); at.trunc() }).collect();
        let mut c = std::collections::HashMap::new();
        for p in v.windows(2) { *c.entry((p[1] - p[0]) as i64).or_insert(0usize) += 1; }
        ent += c.values().map(|k| *k as f64 * ((n - 1) as f64 / *k as f64).log2()).sum::<f64>();
        for (i, e) in [Effort::Fast, Effort::Small].into_iter().enumerate() { let mut o = vec![]; float::encode_with(&v, e, &mut o); tot[i] += o.len(); }
        vals = v;
    }
    println!("bits fast {:.3} small {:.3} entropy {:.3}", tot[0] as f64 / 32.0 * 8.0 / n as f64, tot[1] as f64 / 32.0 * 8.0 / n as f64, ent / 32.0 / n as f64);
    let ints: Vec<i64> = vals.iter().map(|v| *v as i64).collect();
    let diffs: Vec<i64> = ints.windows(2).map(|p| p[1] - p[0]).collect();
    let mut o = Vec::with_capacity(100000);
    best("float fast enc", n, || { o.clear(); float::encode_with(&vals, Effort::Fast, &mut o); });
    let mut back = Vec::with_capacity(n);
    best("float fast dec", n, || { back.clear(); float::decode(&mut Reader::new(&o), n, &mut back).unwrap(); });
    best("float small enc", n, || { o.clear(); float::encode_with(&vals, Effort::Small, &mut o); });
    best("float small dec", n, || { back.clear(); float::decode(&mut Reader::new(&o), n, &mut back).unwrap(); });
    best("int fast enc", n, || { o.clear(); integer::encode_with(&ints, Effort::Fast, &mut o); });
    best("patched enc", n, || { o.clear(); patched::encode(&diffs, &mut o); });
    let mut ib = vec![0; n - 1];
    best("patched dec", n, || { patched::decode(&mut Reader::new(&o), &mut ib).unwrap(); });
    best("block_bits", n, || { for b in diffs.chunks(256) { std::hint::black_box(patched::block_bits(b)); } });
    best("factor", n, || { std::hint::black_box(integer::scratch_scale(&ints)); });
    best("tokens enc", n, || { o.clear(); tokens::encode(&diffs, 0, &mut o); });
    best("tokens dec", n, || { tokens::decode(&mut Reader::new(&o), &mut ib).unwrap(); });
    let toks: Vec<u8> = diffs.iter().map(|d| varint::zigzag(*d) as u8).collect();
    best("tans enc", n, || { o.clear(); tans::encode(&toks, &mut o); });
    println!("table bits {} ", o[0]);
    let mut tb = vec![0; n - 1];
    best("tans dec", n, || { assert!(tans::Coded::read(&mut Reader::new(&o)).unwrap().decode(&std::array::from_fn(|s| s as u8), &mut tb)); });
    best("tans table", n, || { std::hint::black_box(tans::Coded::read(&mut Reader::new(&o)).unwrap().table()); });
    best("tans 0", n, || { assert!(tans::Coded::read(&mut Reader::new(&o)).unwrap().decode(&std::array::from_fn(|s| s as u8), &mut tb[..0])); });
}
