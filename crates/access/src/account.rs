//! Accounts: tokens for programs, users with passwords for people. Each is kept as a small document.

use std::fmt::Write;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::grant::Grant;
use crate::rate::Quota;
use crate::scope::Scope;
use crate::secret::{ScramKeys, TokenHash};

/// The longest name.
pub const NAME_BYTES_MAX: usize = 128;

/// The most certificates that an account may have, and the longest name of one.
pub const CERTIFICATES_MAX: usize = 64;
/// As `CERTIFICATES_MAX` says.
pub const CERTIFICATE_BYTES_MAX: usize = 512;

/// The most grants that an account may have.
pub const GRANTS_MAX: usize = 256;

/// What an account signs in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A token, of which the hash is known.
    Token(TokenHash),
    /// A password in its stored form: argon2id, or bcrypt.
    Password(String),
    /// Neither: a certificate alone.
    Certificate,
}

/// A token or a user.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// Its name: what Postgres's clients give as their user.
    pub name: String,
    /// How it signs in.
    pub credential: Credential,
    /// Names of client certificates that sign it in, too: a subject alternative name or a common name.
    pub certificates: Vec<String>,
    /// For protocols with SCRAM; none for passwords of which only a bcrypt hash is known.
    pub scram: Option<ScramKeys>,
    /// True for an administrator of the server.
    pub is_server_admin: bool,
    /// Its rights on databases.
    pub grants: Vec<Grant>,
    /// How much it may ask for.
    pub quota: Quota,
    /// When it was made, nanoseconds since the Unix epoch.
    pub created_ns: i64,
    /// From when on it may not sign in any more.
    pub expires_ns: Option<i64>,
}

/// The document of an account, version 1.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scram: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    certificates: Vec<String>,
    #[serde(default)]
    is_server_admin: bool,
    #[serde(default)]
    grants: Vec<String>,
    #[serde(default)]
    quota: Quota,
    created_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ns: Option<i64>,
}

impl Account {
    /// The scope of a client that signs in with it.
    pub fn scope(&self) -> Arc<Scope> {
        Arc::new(Scope {
            name: self.name.as_str().into(),
            is_server_admin: self.is_server_admin,
            grants: self.grants.clone(),
            quota: self.quota,
        })
    }

    /// Returns whether it is a token rather than a user.
    pub const fn is_token(&self) -> bool {
        matches!(self.credential, Credential::Token(_))
    }

    /// Returns whether it may not sign in any more.
    pub fn is_expired(&self, now_ns: i64) -> bool {
        self.expires_ns.is_some_and(|expires_ns| expires_ns <= now_ns)
    }

    /// Refuses names and sizes that make no sense.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        if self.grants.len() > GRANTS_MAX {
            return Err(format!("an account has at most {GRANTS_MAX} grants"));
        }
        if self.certificates.len() > CERTIFICATES_MAX {
            return Err(format!("an account has at most {CERTIFICATES_MAX} certificates"));
        }
        let is_name =
            |name: &String| (1..=CERTIFICATE_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
        if !self.certificates.iter().all(is_name) {
            return Err(format!("the name of a certificate has 1 to {CERTIFICATE_BYTES_MAX} bytes"));
        }
        if self.credential == Credential::Certificate && self.certificates.is_empty() {
            return Err("an account without a token and a password needs a certificate".to_owned());
        }
        Ok(())
    }

    /// The document that keeps it (`docs/formats/accounts.md`).
    pub fn to_document(&self) -> Vec<u8> {
        let (token_sha256, password) = match &self.credential {
            Credential::Token(hash) => (Some(hex(hash)), None),
            Credential::Password(stored) => (None, Some(stored.clone())),
            Credential::Certificate => (None, None),
        };
        let document = Document {
            version: 1,
            name: self.name.clone(),
            token_sha256,
            password,
            scram: self.scram.as_ref().map(ScramKeys::to_text),
            certificates: self.certificates.clone(),
            is_server_admin: self.is_server_admin,
            grants: self.grants.iter().map(Grant::to_string).collect(),
            quota: self.quota,
            created_ns: self.created_ns,
            expires_ns: self.expires_ns,
        };
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// Reads its document.
    pub fn from_document(bytes: &[u8]) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if document.version != 1 {
            return Err(format!("it has version {}, and this program reads version 1", document.version));
        }
        let credential = match (&document.token_sha256, document.password) {
            (Some(hash), None) => Credential::Token(from_hex(hash).ok_or("its hash is not 64 hexadecimal digits")?),
            (None, Some(stored)) => Credential::Password(stored),
            (None, None) if !document.certificates.is_empty() => Credential::Certificate,
            _ => return Err("it has neither a token, a password nor a certificate, or both of the first".to_owned()),
        };
        let scram = document.scram.map(|text| ScramKeys::from_text(&text).ok_or("its SCRAM keys cannot be read"));
        let grants: Result<Vec<Grant>, String> = document.grants.iter().map(|grant| grant.parse()).collect();
        let account = Self {
            name: document.name,
            credential,
            certificates: document.certificates,
            scram: scram.transpose()?,
            is_server_admin: document.is_server_admin,
            grants: grants?,
            quota: document.quota,
            created_ns: document.created_ns,
            expires_ns: document.expires_ns,
        };
        account.check().map(|()| account)
    }
}

/// Refuses a name that could be taken for something else in a header, a path or a log.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |character: char| character.is_alphanumeric() || "._-@+".contains(character);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_allowed) {
        return Err(format!("an account's name has 1 to {NAME_BYTES_MAX} bytes: letters, digits, and . _ - @ +"));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<TokenHash> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::{SALT_BYTES, token_hash};

    fn account(credential: Credential) -> Account {
        Account {
            name: "grafana".to_owned(),
            credential,
            certificates: vec!["spiffe://a/grafana".to_owned()],
            scram: Some(ScramKeys::derive("x", &[3; SALT_BYTES])),
            is_server_admin: false,
            grants: vec!["read:metrics{env=\"prod\"}".parse().unwrap()],
            quota: Quota { requests_per_s: Some(5), ..Quota::default() },
            created_ns: 5,
            expires_ns: Some(10),
        }
    }

    #[test]
    fn an_account_is_the_same_after_its_document() {
        let password = Credential::Password("$argon2id$x".to_owned());
        for credential in [Credential::Token(token_hash("abc")), password, Credential::Certificate] {
            let account = account(credential);
            let document = account.to_document();
            assert_eq!(
                Account::from_document(&document).as_ref(),
                Ok(&account),
                "{}",
                String::from_utf8_lossy(&document)
            );
            assert!(!account.is_expired(9) && account.is_expired(10));
        }
    }

    /// A document of the first version: such ones must be read for ever.
    #[test]
    fn a_document_of_version_one_is_read() {
        let text = r#"{"version":1,"name":"a","token_sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","is_server_admin":true,"grants":["read:*"],"quota":{"samples_per_s":7},"created_ns":1}"#;
        let account = Account::from_document(text.as_bytes()).unwrap();
        assert_eq!(account.credential, Credential::Token(token_hash("abc")));
        assert_eq!((account.is_server_admin, account.quota.samples_per_s), (true, Some(7)));
    }

    #[test]
    fn damaged_documents_and_bad_names_are_refused() {
        for text in [
            "",
            "{}",
            r#"{"version":2,"name":"a","password":"x","created_ns":1}"#,
            r#"{"version":1,"name":"a b","password":"x","created_ns":1}"#,
        ] {
            assert!(Account::from_document(text.as_bytes()).is_err(), "{text}");
        }
        for (name, is_good) in [("a", true), ("téléport@x.example", true), ("", false), ("a:b", false), ("a\n", false)]
        {
            assert_eq!(check_name(name).is_ok(), is_good, "{name:?}");
        }
    }
}
