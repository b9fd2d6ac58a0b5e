//! Packed bodies: nothing panics, and no body unpacks to more than it may.
#![no_main]

use ingest::encoding::{Encoding, UnpackLimits, decompress};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|body: &[u8]| {
    let limits = UnpackLimits { size_bytes_max: 1 << 16, ratio_max: 100 };
    for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd, Encoding::Snappy] {
        if let Ok(unpacked) = decompress(encoding, body.to_vec(), limits) {
            assert!(unpacked.len() <= limits.size_bytes_max);
        }
    }
});
