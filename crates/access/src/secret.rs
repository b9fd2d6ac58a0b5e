//! Tokens and passwords: how they are made, what is kept of them, and whether one is right.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// How every token begins, so that scanners of repositories find them.
pub const TOKEN_PREFIX: &str = "thw_";

/// Random bytes of a token.
pub const TOKEN_BYTES: usize = 32;

/// Random bytes of a salt.
pub const SALT_BYTES: usize = 16;

/// Memory that checking a password takes, in KiB (OWASP's parameters for argon2id with two passes).
pub const PASSWORD_MEMORY_KIB: u32 = 19 * 1024;

/// The longest password. Longer ones would only cost the server.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// Passes of SCRAM's salted password; what Postgres's clients expect at least.
const SCRAM_ITERATIONS: u32 = 4096;

/// What `SCRAM-SHA-256` calls itself, also in Postgres's stored form.
const SCRAM: &str = "SCRAM-SHA-256";

/// The SHA-256 of a token: all that is kept of it.
pub type TokenHash = [u8; 32];

/// A token's text from its random bytes.
pub fn token_text(random: &[u8; TOKEN_BYTES]) -> Zeroizing<String> {
    Zeroizing::new(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

/// Returns whether a text has the form of a token.
pub fn is_token(text: &str) -> bool {
    let random = text.strip_prefix(TOKEN_PREFIX).map(|rest| URL_SAFE_NO_PAD.decode(rest));
    random.is_some_and(|random| random.is_ok_and(|random| random.len() == TOKEN_BYTES))
}

/// The stored form of a token. It has 256 random bits, so a fast hash is as good as a slow one.
pub fn token_hash(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares in a time that says nothing of the bytes.
pub fn is_equal(left: &[u8], right: &[u8]) -> bool {
    left.ct_eq(right).into()
}

/// A password's stored form: argon2id in PHC's notation. Takes [`PASSWORD_MEMORY_KIB`] of memory and some 30 ms.
pub fn hash_password(password: &str, salt: &[u8; SALT_BYTES]) -> Result<String, String> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(format!("a password has 1 to {PASSWORD_BYTES_MAX} bytes"));
    }
    let parameters = Params::new(PASSWORD_MEMORY_KIB, 2, 1, None).map_err(|error| error.to_string())?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters);
    let hashed: Result<PasswordHash, _> = argon2.hash_password_with_salt(password.as_bytes(), salt);
    hashed.map(|hash| hash.to_string()).map_err(|error| error.to_string())
}

/// Returns whether a stored form, of argon2 or of bcrypt, is that of a password. Costs what the stored form says.
pub fn is_password(password: &str, stored: &str) -> bool {
    if password.len() > PASSWORD_BYTES_MAX {
        return false;
    }
    if is_bcrypt(stored) {
        return bcrypt::verify(password, stored).unwrap_or(false);
    }
    // The parameters are those of the stored form.
    let hash = PasswordHash::new(stored);
    hash.is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

/// Returns whether a stored form is of bcrypt, as Prometheus keeps passwords.
pub fn is_bcrypt(stored: &str) -> bool {
    ["$2a$", "$2b$", "$2y$"].iter().any(|prefix| stored.starts_with(prefix))
}

/// SCRAM-SHA-256's keys of a password (RFC 5802, section 3): enough to check a client's proof, and not enough to be the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScramKeys {
    /// Mixed into the password.
    pub salt: Vec<u8>,
    /// Passes.
    pub iterations: u32,
    /// Of the client's key.
    pub stored_key: Vec<u8>,
    /// Of the server's proof.
    pub server_key: Vec<u8>,
}

impl ScramKeys {
    /// The keys of a password.
    pub fn derive(password: &str, salt: &[u8]) -> Self {
        let mut salted = Zeroizing::new([0; 32]);
        pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), salt, SCRAM_ITERATIONS, &mut *salted);
        let client_key = Zeroizing::new(keyed_hash(&*salted, &[b"Client Key"]));
        Self {
            salt: salt.to_vec(),
            iterations: SCRAM_ITERATIONS,
            stored_key: Sha256::digest(*client_key).to_vec(),
            server_key: keyed_hash(&*salted, &[b"Server Key"]).to_vec(),
        }
    }

    /// Keys that no password matches, with a salt that is always the same for a name and a secret of the server's.
    pub fn decoy(secret: &[u8], name: &str) -> Self {
        let key = |what: &str| keyed_hash(secret, &[what.as_bytes(), name.as_bytes()]).to_vec();
        let mut salt = key("salt");
        salt.truncate(SALT_BYTES);
        Self { salt, iterations: SCRAM_ITERATIONS, stored_key: key("stored"), server_key: key("server") }
    }

    /// As Postgres stores them: `SCRAM-SHA-256$4096:salt$StoredKey:ServerKey`.
    pub fn to_text(&self) -> String {
        let [salt, stored, server] = [&self.salt, &self.stored_key, &self.server_key].map(|key| STANDARD.encode(key));
        format!("{SCRAM}${}:{salt}${stored}:{server}", self.iterations)
    }

    /// Reads what [`ScramKeys::to_text`] writes.
    pub fn from_text(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(SCRAM)?.strip_prefix('$')?;
        let ((iterations, salt), (stored, server)) = {
            let (salting, keys) = rest.split_once('$')?;
            (salting.split_once(':')?, keys.split_once(':')?)
        };
        let key = |text| STANDARD.decode(text).ok().filter(|key| key.len() == 32);
        let salt = STANDARD.decode(salt).ok()?;
        Some(Self { salt, iterations: iterations.parse().ok()?, stored_key: key(stored)?, server_key: key(server)? })
    }
}

/// HMAC-SHA-256 of some texts, one after another.
pub(crate) fn keyed_hash(key: &[u8], texts: &[&[u8]]) -> [u8; 32] {
    // A key of any length will do.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for text in texts {
        mac.update(text);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_a_form_and_a_hash() {
        let token = token_text(&[7; TOKEN_BYTES]);
        assert!(is_token(&token) && token.len() == 47, "{}", *token);
        assert!(!is_token("thw_short") && !is_token(&token[1..]) && !is_token(&format!("{}A", *token)));
        // FIPS 180-2's example.
        let hash = STANDARD.encode(token_hash("abc"));
        assert_eq!(hash, "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    }

    #[test]
    fn passwords_are_known_again() {
        let stored = hash_password("correct horse", &[1; SALT_BYTES]).unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(is_password("correct horse", &stored));
        assert!(!is_password("correct horsf", &stored));
        assert!(hash_password("", &[1; SALT_BYTES]).is_err());
        assert!(hash_password(&"x".repeat(2000), &[1; SALT_BYTES]).is_err());
        // Prometheus's documentation has this hash, of "test".
        let bcrypt = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay";
        assert!(is_bcrypt(bcrypt) && is_password("test", bcrypt) && !is_password("tesT", bcrypt));
        for damaged in ["", "$argon2id$", "$2b$99$x", "plain"] {
            assert!(!is_password("test", damaged), "{damaged}");
        }
    }

    #[test]
    fn scram_keys_are_those_of_the_specification() {
        // RFC 7677, section 3: user "user", password "pencil"; the proof of the client and of the server in its example.
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let keys = ScramKeys::derive("pencil", &salt);
        let without_proof = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let first = "n=user,r=rOprNGfwEbeRWgbNEkqO";
        let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let exchange = format!("{first},{server_first},{without_proof}");
        let signature = keyed_hash(&keys.server_key, &[exchange.as_bytes()]);
        assert_eq!(STANDARD.encode(signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        let client_signature = keyed_hash(&keys.stored_key, &[exchange.as_bytes()]);
        let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        let client_key: Vec<u8> = proof.iter().zip(client_signature).map(|(left, right)| left ^ right).collect();
        assert_eq!(Sha256::digest(client_key).to_vec(), keys.stored_key);
        assert_eq!(ScramKeys::from_text(&keys.to_text()), Some(keys));
        assert_eq!(ScramKeys::from_text("SCRAM-SHA-256$4096:AA==$AA==:AA=="), None);
    }
}
