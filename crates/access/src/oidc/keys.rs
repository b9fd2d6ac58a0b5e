//! The keys of an identity provider (JWKS), and signatures checked by ring, which everything else here uses, too. Only signatures that need
//! a secret of the provider's own are taken: those of HMAC could be made by all who can check them.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

/// Bytes of a provider's keys, and keys, that are taken.
pub const KEYS_BYTES_MAX: usize = 256 << 10;
const KEYS_MAX: usize = 100;

/// The algorithms that are taken, all of them asymmetric.
pub(super) const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// A key with its name.
struct Key {
    id: Option<String>,
    key: DecodingKey,
}

/// The keys of a provider.
#[derive(Default)]
pub struct KeySet(Vec<Key>);

impl std::fmt::Debug for KeySet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

impl KeySet {
    /// Reads a document of keys; those that are of no use here are left out.
    pub fn parse(document: &[u8]) -> Result<Self, String> {
        if document.len() > KEYS_BYTES_MAX {
            return Err(format!("the provider's keys have more than {KEYS_BYTES_MAX} bytes"));
        }
        let set: JwkSet = serde_json::from_slice(document).map_err(|error| format!("the provider's keys: {error}"))?;
        if set.keys.len() > KEYS_MAX {
            return Err(format!("the provider has more than {KEYS_MAX} keys"));
        }
        let keys: Vec<Key> = set.keys.iter().filter_map(Key::from_jwk).collect();
        if keys.is_empty() {
            Err("the provider has no key for signatures of RSA, ECDSA or EdDSA".to_owned())
        } else {
            Ok(Self(keys))
        }
    }

    /// The keys that may have signed a token: the one that it names, or, where it names none, all of its kind.
    pub(super) fn find(&self, id: Option<&str>, family: AlgorithmFamily) -> Vec<&DecodingKey> {
        let is_meant = |key: &&Key| key.key.family() == family && id.is_none_or(|id| key.id.as_deref() == Some(id));
        self.0.iter().filter(is_meant).map(|key| &key.key).collect()
    }
}

impl Key {
    fn from_jwk(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        if !matches!(common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        let key = DecodingKey::from_jwk(jwk).ok().filter(|key| key.family() != AlgorithmFamily::Hmac)?;
        Some(Self { id: common.key_id.clone(), key })
    }
}

/// Has jsonwebtoken check signatures by ring.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |_: &Algorithm, _: &EncodingKey| Err(ErrorKind::InvalidAlgorithm.into()),
        verifier_factory: |algorithm, key| verifier(*algorithm, key),
        // Of private keys, of which there are none here.
        key_utils: KeyUtils {
            rsa_pub_components_from_private_key: |_| Err(ErrorKind::InvalidKeyFormat.into()),
            rsa_pub_components_from_public_key: |_| Err(ErrorKind::InvalidKeyFormat.into()),
            ec_pub_components_from_private_key: |_, _| Err(ErrorKind::InvalidKeyFormat.into()),
            ed_pub_components_from_private_key: |_, _| Err(ErrorKind::InvalidKeyFormat.into()),
            compute_digest: |_, _| Err(ErrorKind::InvalidKeyFormat.into()),
        },
    };
    INSTALLED.call_once(|| {
        // Nothing else in the program installs one.
        let _ = PROVIDER.install_default();
    });
}

/// How ring checks a signature.
enum Check {
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

struct Verifier {
    algorithm: Algorithm,
    check: Check,
    key: DecodingKey,
}

fn verifier(algorithm: Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let check = match algorithm {
        Algorithm::RS256 => Check::Rsa(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Check::Rsa(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Check::Rsa(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Check::Rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Check::Rsa(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Check::Rsa(&RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Check::Curve(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Check::Curve(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Check::Curve(&ED25519),
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    };
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(Verifier { algorithm, check, key: key.clone() }))
}

impl signature::Verifier<Vec<u8>> for Verifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let checked = match (&self.check, self.key.kind()) {
            (Check::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Check::Curve(algorithm), DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(*algorithm, point).verify(message, signature)
            }
            _ => return Err(signature::Error::new()),
        };
        checked.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Verifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
