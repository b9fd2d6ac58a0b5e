//! Sign-ins of the page that are under way at the provider: authorization codes with PKCE (RFC 7636). Each has a random state, which a cookie
//! ties to the browser that began it, and a verifier that only the server knows.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::secret::{TokenHash, token_hash};

/// Random bytes of a sign-in: for its state, its verifier and its nonce.
pub const RANDOM_BYTES: usize = 96;

/// How long a person may take at the provider.
pub const AGE_MAX_S: i64 = 600;

/// Sign-ins that are under way; of more, the oldest one ends.
const PENDING_MAX: usize = 1_000;

/// The secrets of a sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Comes back from the provider, and in the cookie.
    pub state: String,
    /// What the code has to be exchanged with.
    pub verifier: String,
    /// Comes back in the token.
    pub nonce: String,
}

impl Attempt {
    /// Out of random bytes.
    pub fn from_random(random: &[u8; RANDOM_BYTES]) -> Self {
        let mut parts = random.chunks(RANDOM_BYTES / 3).map(|part| URL_SAFE_NO_PAD.encode(part));
        let mut next = || parts.next().unwrap_or_default();
        Self { state: next(), verifier: next(), nonce: next() }
    }

    /// What the provider is told of the verifier.
    pub fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

/// Sign-ins that are under way, by the hashes of their states.
#[derive(Debug, Default)]
pub struct Pending(HashMap<TokenHash, (Attempt, i64)>);

impl Pending {
    /// Adds one.
    pub fn begin(&mut self, attempt: Attempt, now_s: i64) {
        self.0.retain(|_, (_, begun_s)| now_s.saturating_sub(*begun_s) <= AGE_MAX_S);
        if self.0.len() >= PENDING_MAX {
            let oldest = self.0.iter().min_by_key(|(_, (_, begun_s))| *begun_s).map(|(hash, _)| *hash);
            oldest.map(|hash| self.0.remove(&hash));
        }
        self.0.insert(token_hash(&attempt.state), (attempt, now_s));
    }

    /// Ends the one of a state, which comes back once.
    pub fn end(&mut self, state: &str, now_s: i64) -> Option<Attempt> {
        let (attempt, begun_s) = self.0.remove(&token_hash(state))?;
        (now_s.saturating_sub(begun_s) <= AGE_MAX_S).then_some(attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_specification() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let attempt = Attempt { verifier, state: String::new(), nonce: String::new() };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn a_state_comes_back_once_and_in_time() {
        let mut pending = Pending::default();
        let attempt = |number: u8| Attempt::from_random(&[number; RANDOM_BYTES]);
        pending.begin(attempt(1), 0);
        pending.begin(attempt(2), 0);
        assert_eq!(pending.end(&attempt(1).state, AGE_MAX_S), Some(attempt(1)));
        assert_eq!(pending.end(&attempt(1).state, 1), None);
        assert_eq!(pending.end(&attempt(2).state, AGE_MAX_S + 1), None);
        for number in 0..3_000_u32 {
            let state = number.to_string();
            pending.begin(Attempt { state, verifier: String::new(), nonce: String::new() }, 0);
        }
        assert!(pending.0.len() <= PENDING_MAX);
    }
}
