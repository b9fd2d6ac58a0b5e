//! A token (JWT, RFC 7519) of an identity provider, checked: its signature, who made it, for whom, and when it holds.

use jsonwebtoken::{Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::keys::{ALGORITHMS, KeySet, install};
use super::{GROUPS_MAX, Identity, OidcRules};
use crate::account::NAME_BYTES_MAX;

/// Bytes of a token that are looked at.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// How far the clocks of the provider and of this machine may be apart.
const LEEWAY_S: i64 = 60;

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenError {
    /// It names a key that is not known: the provider may have a new one.
    UnknownKey,
    /// It is wrong or is meant for others. Holds why, for the log.
    Refused(String),
    /// The provider has signed it for this server, but it does not hold now, or names no account. Holds why, for the log.
    Useless(String),
}

fn refused(why: impl Into<String>) -> TokenError {
    TokenError::Refused(why.into())
}

fn useless(why: impl Into<String>) -> TokenError {
    TokenError::Useless(why.into())
}

/// Returns whether a text has the form of such a token: three parts of base64, the first of which is a JSON object.
pub fn has_form(text: &str) -> bool {
    text.starts_with("eyJ") && text.len() <= TOKEN_BYTES_MAX && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl OidcRules {
    /// Checks a token at a time, seconds since the Unix epoch.
    pub fn check(&self, token: &str, keys: &KeySet, now_s: i64) -> Result<Identity, TokenError> {
        let claims = self.claims(token, keys, now_s)?;
        self.identity(&claims)
    }

    /// Checks the token of a sign-in of the page, which has to answer the request that has this nonce.
    pub fn check_answer(
        &self,
        token: &str,
        keys: &KeySet,
        (nonce, now_s): (&str, i64),
    ) -> Result<Identity, TokenError> {
        let claims = self.claims(token, keys, now_s)?;
        let is_answer = claims
            .get("nonce")
            .and_then(Value::as_str)
            .is_some_and(|found| crate::secret::is_equal(found.as_bytes(), nonce.as_bytes()));
        if is_answer { self.identity(&claims) } else { Err(refused("it answers another request (nonce)")) }
    }

    fn claims(&self, token: &str, keys: &KeySet, now_s: i64) -> Result<Map<String, Value>, TokenError> {
        if !has_form(token) {
            return Err(refused("it is no JWT"));
        }
        install();
        let header = decode_header(token).map_err(|error| refused(error.to_string()))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(refused(format!("{:?} is no algorithm that is taken", header.alg)));
        }
        let candidates = keys.find(header.kid.as_deref(), header.alg.family());
        if candidates.is_empty() {
            return Err(TokenError::UnknownKey);
        }
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&self.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // Times are checked below, by the clock of the platform.
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        let mut why = None;
        for key in candidates {
            match decode::<Map<String, Value>>(token, key, &validation) {
                Ok(decoded) => return check_times(&decoded.claims, now_s).map(|()| decoded.claims),
                Err(error) => why = Some(error.to_string()),
            }
        }
        Err(refused(why.unwrap_or_default()))
    }

    fn identity(&self, claims: &Map<String, Value>) -> Result<Identity, TokenError> {
        let name = claims.get(&self.name_claim).and_then(Value::as_str).unwrap_or_default();
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        if !is_name {
            return Err(useless(format!("its claim {} is no name", self.name_claim)));
        }
        let groups = match claims.get(&self.groups_claim) {
            Some(Value::Array(groups)) => {
                groups.iter().take(GROUPS_MAX).filter_map(Value::as_str).map(str::to_owned).collect()
            }
            Some(Value::String(group)) => vec![group.clone()],
            _ => Vec::new(),
        };
        let expires_s = time(claims, "exp").unwrap_or(0);
        Ok(Identity { name: name.to_owned(), groups, expires_s })
    }
}

/// A time of the claims, seconds since the Unix epoch.
fn time(claims: &Map<String, Value>, name: &str) -> Option<i64> {
    let value = claims.get(name)?;
    // Some providers write fractions.
    value.as_i64().or_else(|| value.as_f64().filter(|seconds| seconds.abs() < 1e12).map(|seconds| seconds as i64))
}

fn check_times(claims: &Map<String, Value>, now_s: i64) -> Result<(), TokenError> {
    let expires_s = time(claims, "exp").ok_or_else(|| useless("its time of expiry cannot be read"))?;
    if expires_s.saturating_add(LEEWAY_S) <= now_s {
        return Err(useless("it has expired"));
    }
    for name in ["nbf", "iat"] {
        let Some(value) = claims.get(name) else { continue };
        if value.is_null() {
            continue;
        }
        let from_s = time(claims, name).ok_or_else(|| useless(format!("its {name} cannot be read")))?;
        if from_s.saturating_sub(LEEWAY_S) > now_s {
            return Err(useless(format!("it does not hold yet ({name})")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
    use serde_json::json;

    use super::*;
    use crate::oidc::Role;

    const NOW_S: i64 = 1_800_000_000;

    fn encoded(bytes: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    struct Provider {
        key: EcdsaKeyPair,
        random: SystemRandom,
    }

    impl Provider {
        fn new() -> Self {
            let random = SystemRandom::new();
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
            let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
            Self { key, random }
        }

        fn jwk(&self, id: &str) -> Value {
            let point = self.key.public_key().as_ref();
            json!({"kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "x": encoded(&point[1..33]), "y": encoded(&point[33..])})
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
            let signature = self.key.sign(&self.random, message.as_bytes()).unwrap();
            format!("{message}.{}", encoded(signature))
        }
    }

    fn rules() -> OidcRules {
        OidcRules {
            issuer: "https://id.example".to_owned(),
            audiences: vec!["thalweg".to_owned()],
            name_claim: "email".to_owned(),
            groups_claim: "groups".to_owned(),
            roles: vec![Role::parse("engineers=read:metrics").unwrap()],
        }
    }

    fn claims() -> Value {
        json!({
            "iss": "https://id.example", "aud": ["other", "thalweg"], "sub": "17", "email": "alice@example",
            "groups": ["engineers"], "exp": NOW_S + 300, "iat": NOW_S, "nonce": "n1",
        })
    }

    fn key_set(keys: &[Value]) -> KeySet {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_token_is_taken_that_its_provider_has_signed_for_this_server() {
        let provider = Provider::new();
        let keys = key_set(&[provider.jwk("k1")]);
        let token = provider.token(&json!({"alg": "ES256", "kid": "k1"}), &claims());
        let identity = rules().check(&token, &keys, NOW_S).unwrap();
        assert_eq!((identity.name.as_str(), identity.expires_s), ("alice@example", NOW_S + 300));
        assert_eq!(identity.groups, ["engineers"]);
        assert!(rules().check_answer(&token, &keys, ("n1", NOW_S)).is_ok());
        assert!(rules().check_answer(&token, &keys, ("n2", NOW_S)).is_err());
        // Within the leeway, and a token that names no key.
        assert!(rules().check(&token, &keys, NOW_S + 359).is_ok());
        assert!(rules().check(&provider.token(&json!({"alg": "ES256"}), &claims()), &keys, NOW_S).is_ok());
        let other = provider.token(&json!({"alg": "ES256", "kid": "k2"}), &claims());
        assert_eq!(rules().check(&other, &keys, NOW_S), Err(TokenError::UnknownKey));
    }

    #[test]
    fn tokens_that_are_wrong_are_refused() {
        let (provider, stranger) = (Provider::new(), Provider::new());
        let keys = key_set(&[provider.jwk("k1")]);
        let header = json!({"alg": "ES256", "kid": "k1"});
        let with = |name: &str, value: Value| {
            let mut changed = claims();
            changed[name] = value;
            provider.token(&header, &changed)
        };
        let without = |name: &str| {
            let mut changed = claims();
            changed.as_object_mut().unwrap().remove(name);
            provider.token(&header, &changed)
        };
        let good = provider.token(&header, &claims());
        let (message, _) = good.rsplit_once('.').unwrap();
        let secret = provider.key.public_key().as_ref().to_vec();
        let hmac = encoded(crate::secret::keyed_hash(&secret, &[message.as_bytes()]));
        for (what, token) in [
            ("another key", stranger.token(&header, &claims())),
            ("another issuer", with("iss", json!("https://evil.example"))),
            ("another audience", with("aud", json!("other"))),
            ("expired", with("exp", json!(NOW_S - 61))),
            ("not yet", with("nbf", json!(NOW_S + 61))),
            ("from the future", with("iat", json!(NOW_S + 3_600))),
            ("no expiry", without("exp")),
            ("no audience", without("aud")),
            ("no issuer", without("iss")),
            ("no name", without("email")),
            ("a name of control characters", with("email", json!("a\nb"))),
            ("an expiry that is no number", with("exp", json!("soon"))),
            ("no signature", format!("{message}.")),
            ("algorithm none", provider.token(&json!({"alg": "none", "kid": "k1"}), &claims())),
            ("HMAC by the public key", {
                let message = format!(
                    "{}.{}",
                    encoded(json!({"alg": "HS256", "kid": "k1"}).to_string()),
                    encoded(claims().to_string())
                );
                format!("{message}.{hmac}")
            }),
            ("another kind of key", provider.token(&json!({"alg": "RS256", "kid": "k1"}), &claims())),
            ("another curve", provider.token(&json!({"alg": "ES384", "kid": "k1"}), &claims())),
            ("too long", format!("{good}{}", "a".repeat(TOKEN_BYTES_MAX))),
            ("nonsense", "eyJ.eyJ.x".to_owned()),
        ] {
            assert!(rules().check(&token, &keys, NOW_S).is_err(), "{what}");
        }
        assert!(rules().check(&good, &keys, NOW_S).is_ok());
        // Only what the provider has signed for this server is known to have been right.
        let mut expired = claims();
        expired["exp"] = json!(NOW_S - 61);
        let check = |key: &Provider| rules().check(&key.token(&header, &expired), &keys, NOW_S);
        assert!(matches!(check(&provider), Err(TokenError::Useless(_))));
        assert!(matches!(check(&stranger), Err(TokenError::Refused(_))));
    }

    #[test]
    fn other_curves_sign_too_and_keys_for_other_uses_do_not() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let jwk = |public_use: &str| json!({"kty": "OKP", "crv": "Ed25519", "kid": "e1", "use": public_use, "x": encoded(pair.public_key())});
        let message =
            format!("{}.{}", encoded(json!({"alg": "EdDSA", "kid": "e1"}).to_string()), encoded(claims().to_string()));
        let token = format!("{message}.{}", encoded(pair.sign(message.as_bytes())));
        assert!(rules().check(&token, &key_set(&[jwk("sig")]), NOW_S).is_ok());
        let secret = json!({"kty": "oct", "k": encoded([1; 32]), "kid": "h1"});
        for keys in [vec![jwk("enc")], vec![secret], vec![]] {
            assert!(KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).is_err());
        }
        assert!(KeySet::parse(b"{").is_err());
    }
}
