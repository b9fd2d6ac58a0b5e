//! Who may do what: accounts, the rights that they have, and whether a secret is theirs. Pure: no sockets, no files, no clock.
//!
//! * [`scope`]: what an account may do, asked by everything that reads or changes data; [`grant`]: its parts as text; [`matchers`]: their label matchers
//! * [`account`]: tokens and users, and the documents that keep them · [`directory`]: all of them, looked up by what a client sends
//! * [`statement`]: statements about users, and what they do to grants
//! * [`secret`]: making and checking tokens and passwords, SCRAM's keys · [`verdicts`]: passwords checked a moment ago · [`session`]: the page's sessions
//! * [`back_off`]: waiting times after failed sign-ins · [`rate`]: limits of what an account may ask for in a time
//! * [`oidc`]: tokens of identity providers
//! * [`certificate`]: the names in a client's certificate · [`audit`]: lines of the audit log · [`web_config`]: Prometheus's `web.config.yml`

pub mod account;
pub mod audit;
pub mod back_off;
pub mod certificate;
pub mod directory;
pub mod grant;
mod matchers;
pub mod oidc;
pub mod rate;
pub mod scope;
pub mod secret;
pub mod session;
pub mod statement;
pub mod verdicts;
pub mod web_config;

/// Entries for fuzzing: what is read before a client has signed in.
#[doc(hidden)]
pub mod fuzzing {
    use std::str::FromStr;

    /// Reads a text as a grant, as a web configuration, and as the stored hash of a password.
    pub fn texts(text: &str) {
        if let Ok(grant) = crate::grant::Grant::from_str(text) {
            let printed = grant.to_string();
            assert_eq!(crate::grant::Grant::from_str(&printed).as_ref(), Ok(&grant), "{printed}");
        }
        let _ = crate::web_config::WebConfig::parse(text);
        let _ = crate::account::Account::from_document(text.as_bytes());
    }

    /// Reads bytes as an identity provider's documents, and a text as a token of it.
    pub fn oidc(text: &str) {
        use crate::oidc::keys::KeySet;
        use crate::oidc::{OidcRules, Role, documents};

        let (keys, token) = text.split_once('\n').unwrap_or(("", text));
        let _ = documents::Discovery::parse(text.as_bytes(), "https://id.example");
        let _ = documents::id_token(text.as_bytes());
        let rules = OidcRules {
            issuer: "https://id.example".to_owned(),
            audiences: vec!["thalweg".to_owned()],
            name_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
            roles: Role::parse(token).into_iter().collect(),
        };
        let known =
            br#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        if let Ok(keys) = KeySet::parse(keys.as_bytes()) {
            let _ = rules.check(token, &keys, 0);
        }
        if let Ok(keys) = KeySet::parse(known) {
            assert!(rules.check(token, &keys, 0).is_err(), "a signature was made without the key: {token}");
        }
    }

    /// Reads bytes as a certificate.
    pub fn certificate(bytes: &[u8]) {
        let _ = crate::certificate::CertificateNames::parse(bytes);
    }
}
