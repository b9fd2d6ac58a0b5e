//! What the targets share: a bound on memory; for wire formats a hasher, limits that short inputs reach, and what every batch holds to; for
//! queries a small database.

pub mod database;
pub mod samples;

use std::alloc::System;

use cap::Cap;
use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits};
use model::Batch;

/// Bytes that an input may have in use at once: what asks for more is not bounded by the input, and ends the process as a finding.
const MEMORY_BYTES_MAX: usize = 256 << 20;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, MEMORY_BYTES_MAX);

/// Hashes keys. The secret is everybody's: inputs that found something find it again. Its bytes differ: where two words of it are the
/// same, keys that have their words the other way round have one hash.
pub static HASHER: KeyHasher = KeyHasher::new(secret());

const fn secret() -> [u8; KEY_SECRET_BYTES] {
    let mut secret = [0; KEY_SECRET_BYTES];
    let mut place = 0;
    while place < KEY_SECRET_BYTES {
        secret[place] = ((place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8;
        place += 1;
    }
    secret
}

/// Limits that short inputs can break.
pub fn tight_limits() -> Limits {
    Limits { line_bytes_max: 300, tags_max: 4, fields_max: 6, name_bytes_max: 20, ..Limits::default() }
}

/// Whether a batch is one: columns of one length, keys that decode or say why not, histograms that are there and valid. How many
/// values there are.
pub fn check_batch(batch: &Batch<'_>) -> usize {
    for block in &batch.blocks {
        assert!(!block.fields.is_empty());
        assert_eq!(block.cells.len(), block.rows() * block.fields.len());
        assert_eq!((block.keys.len(), block.lines.len()), (block.rows(), block.rows()));
        for key in &block.keys {
            if let Ok(identity) = (batch.key_decoder)(batch.text(key.text)) {
                assert!(!identity.measurement.is_empty());
                assert!(block.measurement.as_ref().is_none_or(|measurement| *measurement == identity.measurement));
            }
        }
    }
    assert!(batch.histograms.iter().all(|histogram| histogram.validate().is_ok()));
    batch.values()
}
