//! The keyed hash that stands for a group's raw key.

use xxhash_rust::xxh3::xxh3_128_with_secret;

/// Bytes of secret that [`KeyHasher::new`] takes.
pub const KEY_SECRET_BYTES: usize = 192;

/// How a key is spelled. The same bytes mean different groups in different protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// `measurement,tag=value` with line protocol's escapes.
    Line = 1,
    /// The label messages of a remote-written series.
    RemoteWrite = 2,
    /// `name{label="value"}` of the text exposition format.
    Exposition = 3,
    /// `name;tag=value` of Graphite.
    Graphite = 4,
    /// `metric tag=value` of OpenTSDB.
    Opentsdb = 5,
    /// A JSON object of labels.
    JsonLines = 6,
    /// Name, resource and attributes of OpenTelemetry.
    Otlp = 7,
}

/// Hashes raw keys with a secret, so that no client can construct two keys of one hash. One per data folder: the
/// store remembers the hashes.
#[derive(Clone)]
pub struct KeyHasher {
    secret: [u8; KEY_SECRET_BYTES],
}

impl KeyHasher {
    /// A hasher for this secret, which should come from a source of strong randomness.
    pub const fn new(secret: [u8; KEY_SECRET_BYTES]) -> Self {
        Self { secret }
    }

    /// The hasher for one protocol's keys in one database.
    pub fn scope(&self, protocol: Protocol, database_id: u32) -> ScopedKeyHasher<'_> {
        let [a, b, c, d] = database_id.to_le_bytes();
        let scope = [protocol as u8, a, b, c, d];
        ScopedKeyHasher { secret: &self.secret, tweak: xxh3_128_with_secret(&scope, &self.secret) }
    }
}

/// The secret stays out of logs.
impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KeyHasher(..)")
    }
}

/// A [`KeyHasher`] for one protocol and one database.
#[derive(Clone, Copy)]
pub struct ScopedKeyHasher<'a> {
    secret: &'a [u8; KEY_SECRET_BYTES],
    /// The scope's own hash. Mixed in behind the hash of the key rather than hashed with it, so that keys are hashed
    /// where they lie; the two are independent, so a collision across scopes is as improbable as any other.
    tweak: u128,
}

impl ScopedKeyHasher<'_> {
    /// The hash of a raw key.
    pub fn hash(&self, key: &[u8]) -> u128 {
        xxh3_128_with_secret(key, self.secret) ^ self.tweak
    }
}

impl std::fmt::Debug for ScopedKeyHasher<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ScopedKeyHasher(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_secrets_protocols_databases_and_keys() {
        let mut secrets = [[0; KEY_SECRET_BYTES]; 2];
        for (place, byte) in secrets.as_flattened_mut().iter_mut().enumerate() {
            *byte = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7];
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut count = 0;
        for secret in secrets {
            let secret_hasher = KeyHasher::new(secret);
            for protocol in [Protocol::Line, Protocol::RemoteWrite, Protocol::Exposition, Protocol::Otlp] {
                for database_id in [0, 1, 256] {
                    for length in [0, 1, 5, 17, 200, 300, 2000] {
                        seen.insert(secret_hasher.scope(protocol, database_id).hash(&vec![b'k'; length]));
                        count += 1;
                    }
                }
            }
        }
        assert_eq!(seen.len(), count);
    }
}
