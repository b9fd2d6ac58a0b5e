//! Lines of the audit log: JSON, one for each event, never with a secret.

use std::net::IpAddr;

use serde_json::{Map, Value};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A sign-in, for protocols where one stands for a session.
    SignedIn,
    /// A sign-in that was refused.
    SignInFailed,
    /// Something that the account may not do.
    Denied,
    /// An account was made or changed.
    AccountChanged,
    /// An account was removed.
    AccountRemoved,
    /// Rows were deleted, or a table or a database dropped.
    Deleted,
    /// Settings of a database or of the server were changed.
    SettingsChanged,
    /// A backup or a snapshot was taken.
    BackedUp,
    /// Another one's query was stopped.
    QueryStopped,
}

impl Event {
    /// Its word in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SignedIn => "signed_in",
            Self::SignInFailed => "sign_in_failed",
            Self::Denied => "denied",
            Self::AccountChanged => "account_changed",
            Self::AccountRemoved => "account_removed",
            Self::Deleted => "deleted",
            Self::SettingsChanged => "settings_changed",
            Self::BackedUp => "backed_up",
            Self::QueryStopped => "query_stopped",
        }
    }
}

/// Who did it, from where.
#[derive(Debug, Clone, Copy, Default)]
pub struct Actor<'a> {
    /// The account; empty where no client signs in.
    pub account: &'a str,
    /// The client's address.
    pub address: Option<IpAddr>,
}

/// The longest detail, in characters.
const DETAIL_CHARACTERS_MAX: usize = 1_000;

/// A line, with its end. The time is RFC 3339 as the caller writes it.
pub fn line(time: &str, event: Event, actor: Actor<'_>, detail: &str) -> String {
    let mut fields = Map::new();
    fields.insert("time".to_owned(), time.into());
    fields.insert("event".to_owned(), event.name().into());
    fields.insert("account".to_owned(), actor.account.into());
    let address = actor.address.map_or(Value::Null, |address| address.to_string().into());
    fields.insert("address".to_owned(), address);
    fields.insert("detail".to_owned(), detail.chars().take(DETAIL_CHARACTERS_MAX).collect::<String>().into());
    format!("{}\n", Value::Object(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_whatever_is_in_it() {
        let actor = Actor { account: "a\"b", address: Some("10.0.0.1".parse().unwrap()) };
        let line = line("2026-01-01T00:00:00Z", Event::Deleted, actor, "DROP\nTABLE x");
        let expected = r#"{"time":"2026-01-01T00:00:00Z","event":"deleted","account":"a\"b","address":"10.0.0.1","detail":"DROP\nTABLE x"}"#;
        let parsed: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed, serde_json::from_str::<Value>(expected).unwrap());
        assert_eq!(line.matches('\n').count(), 1);
    }
}
