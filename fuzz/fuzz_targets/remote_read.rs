//! Remote read: nothing panics, packed or not.
#![no_main]

use ingest::{remote_read, remote_write};
use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|body: &[u8]| {
    if let Ok(unpacked) = remote_write::decompress(body.to_vec(), 1 << 16) {
        let _ = remote_read::parse(&unpacked);
    }
    let _ = remote_read::parse(body);
});
