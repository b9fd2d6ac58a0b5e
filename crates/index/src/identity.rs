//! Hashes of identities: database, measurement and labels, by which groups are found again.

use model::Labels;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{DatabaseId, MeasurementId};

/// An odd number without pattern (the fraction of the golden ratio).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The part of an identity's hash that segments keep. The seed, drawn once for each data folder, keeps clients from choosing
/// labels that collide.
pub(crate) fn fingerprint(seed: u64, database: DatabaseId, measurement: MeasurementId, labels: &Labels) -> u32 {
    let numbers = u64::from(database) << 32 | u64::from(measurement);
    let numbers = xxh3_64_with_seed(&numbers.to_le_bytes(), seed);
    (xxh3_64_with_seed(labels.packed().as_bytes(), numbers) >> 32) as u32
}

/// Spreads a fingerprint over the 64 bits that a hash table looks at.
pub(crate) const fn spread(fingerprint: u32) -> u64 {
    (fingerprint as u64).wrapping_mul(MULTIPLIER).rotate_left(32)
}

/// The hash of a text in one of the tables in memory.
pub(crate) fn text_hash(seed: u64, text: &str) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), seed)
}

/// Joins two numbers into a hash, for tables in memory whose keys clients do not choose.
pub(crate) const fn mix(a: u64, b: u64) -> u64 {
    let product = (a ^ MULTIPLIER) as u128 * (b ^ MULTIPLIER.rotate_left(32)) as u128;
    (product >> 64) as u64 ^ product as u64
}
