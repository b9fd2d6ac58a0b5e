//! Remote write: nothing panics, packed or not, and every series' labels decode or say why not.
#![no_main]

use ingest::remote_write::{self, Options};
use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits, Protocol};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    // Most random bytes are no snappy block, so the parser sees them as they are, too.
    if let Ok(unpacked) = remote_write::decompress(body.to_vec(), 1 << 16) {
        parse(&unpacked);
    }
    parse(body);
});

fn parse(body: &[u8]) {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits { tags_max: 4, name_bytes_max: 20, ..Limits::default() };
    let options = Options { hasher: hasher.scope(Protocol::RemoteWrite, 1), limits: &limits };
    let Ok(request) = remote_write::parse(body, &options) else { return };
    for block in &request.batch.blocks {
        assert_eq!((block.cells.len(), block.lines.len()), (block.rows(), block.rows()));
        assert_eq!(block.keys.len(), block.rows());
        for key in &block.keys {
            if let Ok(identity) = (request.batch.key_decoder)(request.batch.text(key.text)) {
                assert!(!identity.measurement.is_empty());
            }
        }
    }
}
