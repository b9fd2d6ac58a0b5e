//! Statements that a client signs with its own key: JSON Web Tokens (RFC 7519) with RSA's signatures (RFC 7518, section 3).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use platform::Random;
use ring::rand::SystemRandom;
use ring::{rsa, signature};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Map, Value};

use crate::config::AssertionAlgorithm;

/// A statement before it is signed. Its number, and from when to when it holds, come when it is.
#[derive(Clone, PartialEq)]
pub(super) struct Assertion {
    /// The key, as PEM (PKCS #1 or #8).
    pub(super) key: String,
    pub(super) algorithm: AssertionAlgorithm,
    /// The header, without the algorithm.
    pub(super) header: Map<String, Value>,
    /// The claims. Those of here go before the ones that are filled in.
    pub(super) claims: Map<String, Value>,
    pub(super) lifetime_s: i64,
}

impl Assertion {
    /// The signed statement, in its compact form.
    pub(super) fn sign(&self, now_ns: i64, random: &dyn Random) -> Result<String, String> {
        let key = read_key(&self.key)?;
        let mut header = self.header.clone();
        header.insert("alg".to_owned(), Value::from(self.algorithm.name()));
        header.insert("typ".to_owned(), Value::from("JWT"));
        let mut claims = Map::new();
        let issued_s = now_ns.div_euclid(1_000_000_000);
        claims.insert("jti".to_owned(), Value::from(unique_name(random)?));
        claims.insert("iat".to_owned(), Value::from(issued_s));
        claims.insert("exp".to_owned(), Value::from(issued_s.saturating_add(self.lifetime_s)));
        claims.extend(self.claims.clone());
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(Value::Object(part).to_string()));
        let text = format!("{header}.{claims}");
        let mut signature = vec![0; key.public().modulus_len()];
        let padding: &dyn signature::RsaEncoding = match self.algorithm {
            AssertionAlgorithm::Rs256 => &signature::RSA_PKCS1_SHA256,
            AssertionAlgorithm::Rs384 => &signature::RSA_PKCS1_SHA384,
            AssertionAlgorithm::Rs512 => &signature::RSA_PKCS1_SHA512,
            AssertionAlgorithm::Ps256 => &signature::RSA_PSS_SHA256,
        };
        let signed = key.sign(padding, &SystemRandom::new(), text.as_bytes(), &mut signature);
        signed.map_err(|_| "the key does not sign".to_owned())?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Reads a key of RSA.
pub(super) fn read_key(pem: &str) -> Result<rsa::KeyPair, String> {
    let der = PrivateKeyDer::from_pem_slice(pem.as_bytes());
    let der = der.map_err(|error| format!("the key is no PEM of a private key without a passphrase: {error}"))?;
    let key = match &der {
        PrivateKeyDer::Pkcs1(der) => rsa::KeyPair::from_der(der.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(der) => rsa::KeyPair::from_pkcs8(der.secret_pkcs8_der()),
        _ => return Err("the key is not RSA's".to_owned()),
    };
    key.map_err(|reason| format!("the key is no good key of RSA with 2,048 bits at least: {reason}"))
}

/// A name that no other statement has, in the form of a UUID.
fn unique_name(random: &dyn Random) -> Result<String, String> {
    let mut bytes = [0; 16];
    random.fill(&mut bytes).map_err(|error| error.to_string())?;
    // Version 4 of RFC 9562: random.
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{number:032x}");
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}
