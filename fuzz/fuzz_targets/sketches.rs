//! Sketches: whatever text there is, it is read or refused; what is read is written as it was, and can be put together with itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use query::sketch::{DistinctSketch, Histogram, QuantileSketch};
use thalweg_fuzz as _;

fuzz_target!(|text: &str| {
    if let Ok(sketch) = DistinctSketch::decode(text) {
        assert_eq!(sketch.encode(), text);
        let mut twice = sketch.clone();
        twice.merge(&sketch);
        assert_eq!(twice.merge_text(text), Ok(()));
        assert!(twice == sketch && sketch.estimate() < u64::MAX);
    }
    if let Ok(histogram) = Histogram::decode(text) {
        assert_eq!(histogram.encode().as_deref(), Ok(text));
        assert!(histogram.clone().add_all(&histogram).is_ok());
    }
    let Ok(sketch) = QuantileSketch::decode(text) else { return };
    assert_eq!(sketch.encode(), text);
    let mut twice = sketch.clone();
    twice.merge(&sketch);
    assert_eq!(twice.count(), sketch.count() * 2);
    assert_eq!(QuantileSketch::decode(&twice.encode()).map(|read| read == twice), Ok(true));
    assert_eq!(sketch.quantile(0.5).is_some(), sketch.count() > 0);
});
