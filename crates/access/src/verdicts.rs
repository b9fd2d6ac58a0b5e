//! Passwords that were right a moment ago. Checking one costs tens of milliseconds on purpose; a client that sends it with every request
//! pays once a minute.

use std::collections::HashMap;

use crate::secret::keyed_hash;

/// How long a verdict holds.
const VALID_NS: i64 = 60 * 1_000_000_000;

/// Verdicts that are remembered at the same time.
const ENTRIES_MAX: usize = 10_000;

/// The verdicts: keyed hashes of what was right, so that memory never holds a password.
#[derive(Debug)]
pub struct Verdicts {
    key: [u8; 32],
    valid_until_ns: HashMap<[u8; 32], i64>,
}

impl Verdicts {
    /// None yet. The key is random and of this process alone.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, valid_until_ns: HashMap::new() }
    }

    /// Returns whether a password was right for a stored form a moment ago.
    pub fn has(&self, stored: &str, password: &str, now_ns: i64) -> bool {
        let until_ns = self.valid_until_ns.get(&self.hash(stored, password));
        // A clock that went back far is no reason to believe longer.
        until_ns.is_some_and(|until_ns| (0..=VALID_NS).contains(&until_ns.saturating_sub(now_ns)))
    }

    /// Notes that a password was right.
    pub fn note(&mut self, stored: &str, password: &str, now_ns: i64) {
        if self.valid_until_ns.len() >= ENTRIES_MAX {
            self.valid_until_ns.retain(|_, until_ns| *until_ns > now_ns);
        }
        if self.valid_until_ns.len() >= ENTRIES_MAX {
            self.valid_until_ns.clear();
        }
        self.valid_until_ns.insert(self.hash(stored, password), now_ns.saturating_add(VALID_NS));
    }

    fn hash(&self, stored: &str, password: &str) -> [u8; 32] {
        keyed_hash(&self.key, &[&(stored.len() as u64).to_be_bytes(), stored.as_bytes(), password.as_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_holds_for_a_minute_and_for_its_password_alone() {
        let mut verdicts = Verdicts::new([9; 32]);
        verdicts.note("$x", "pass", 0);
        assert!(verdicts.has("$x", "pass", VALID_NS - 1));
        assert!(!verdicts.has("$x", "pasS", 0) && !verdicts.has("$xp", "ass", 0) && !verdicts.has("$y", "pass", 0));
        assert!(!verdicts.has("$x", "pass", VALID_NS + 1) && !verdicts.has("$x", "pass", -1));
        for number in 0..3 * ENTRIES_MAX {
            verdicts.note("$x", &number.to_string(), 0);
        }
        assert!(verdicts.valid_until_ns.len() <= ENTRIES_MAX);
    }
}
