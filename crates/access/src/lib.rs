//! Who may do what: accounts, the rights that they have, and whether a secret is theirs. Pure: no sockets, no files, no clock.
//!
//! * [`scope`]: what an account may do, asked by everything that reads or changes data; [`grant`]: its parts as text; [`matchers`]: their label matchers
//! * [`account`]: tokens and users, and the documents that keep them · [`directory`]: all of them, looked up by what a client sends
//! * [`statement`]: statements about users, and what they do to grants
//! * [`secret`]: making and checking tokens and passwords, SCRAM's keys · [`verdicts`]: passwords checked a moment ago · [`session`]: the page's sessions
//! * [`back_off`]: waiting times after failed sign-ins · [`rate`]: limits of what an account may ask for in a time
//! * [`certificate`]: the names in a client's certificate · [`audit`]: lines of the audit log · [`web_config`]: Prometheus's `web.config.yml`

pub mod account;
pub mod audit;
pub mod back_off;
pub mod certificate;
pub mod directory;
pub mod grant;
mod matchers;
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

    /// Reads bytes as a certificate.
    pub fn certificate(bytes: &[u8]) {
        let _ = crate::certificate::CertificateNames::parse(bytes);
    }
}
