//! Sessions of the page: a random cookie stands for an account that has signed in, for some hours. They are bounded in number, live in memory
//! alone, and end when the account's secret changes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::account::{Account, Credential};
use crate::scope::Scope;
use crate::secret::{TokenHash, token_hash};

/// How long a session lasts, and how long it may be unused.
pub const AGE_MAX_S: i64 = 12 * 3_600;
const IDLE_MAX_S: i64 = 2 * 3_600;

const NS_PER_S: i64 = 1_000_000_000;

/// Sessions of all accounts, and of one.
const SESSIONS_MAX: usize = 10_000;
const ACCOUNT_SESSIONS_MAX: usize = 20;

#[derive(Debug)]
struct Session {
    account: String,
    /// What the account signed in with then.
    credential: Credential,
    /// What an account may do that an identity provider has signed in: it is none of the server's own.
    external: Option<Arc<Scope>>,
    begun_ns: i64,
    used_ns: i64,
    /// When the token ends that an identity provider gave.
    expires_ns: i64,
}

/// An account that an identity provider has signed in.
#[derive(Debug, Clone)]
pub struct ExternalSignIn {
    /// Its rights.
    pub scope: Arc<Scope>,
    /// When the provider's token ends, and with it the session.
    pub expires_ns: i64,
}

impl Session {
    fn new(now_ns: i64) -> Self {
        Self {
            account: String::new(),
            credential: Credential::Certificate,
            external: None,
            begun_ns: now_ns,
            used_ns: now_ns,
            expires_ns: i64::MAX,
        }
    }

    fn is_over(&self, now_ns: i64) -> bool {
        let is_older = |since_ns: i64, max_s: i64| now_ns.saturating_sub(since_ns) > max_s * NS_PER_S;
        now_ns >= self.expires_ns || is_older(self.begun_ns, AGE_MAX_S) || is_older(self.used_ns, IDLE_MAX_S)
    }
}

/// The sessions, by the hashes of their cookies.
#[derive(Debug, Default)]
pub struct Sessions(HashMap<TokenHash, Session>);

impl Sessions {
    /// Begins a session of an account with a cookie of 256 random bits. Of an account that has many its oldest one ends.
    pub fn begin(&mut self, cookie: &str, account: &Account, now_ns: i64) {
        let (account, credential) = (account.name.clone(), account.credential.clone());
        self.insert(cookie, Session { account, credential, external: None, ..Session::new(now_ns) }, now_ns);
    }

    /// Begins a session of an account that an identity provider has signed in.
    pub fn begin_external(&mut self, cookie: &str, ExternalSignIn { scope, expires_ns }: ExternalSignIn, now_ns: i64) {
        let account = scope.name.to_string();
        self.insert(cookie, Session { account, external: Some(scope), expires_ns, ..Session::new(now_ns) }, now_ns);
    }

    fn insert(&mut self, cookie: &str, new: Session, now_ns: i64) {
        self.0.retain(|_, session| !session.is_over(now_ns));
        let own = |session: &Session| session.account == new.account;
        if self.0.values().filter(|session| own(session)).count() >= ACCOUNT_SESSIONS_MAX {
            self.remove_oldest(own);
        }
        if self.0.len() >= SESSIONS_MAX {
            self.remove_oldest(|_| true);
        }
        self.0.insert(token_hash(cookie), new);
    }

    /// What a session's account may do, if an identity provider has signed it in; and a note that it is used.
    pub fn external(&mut self, cookie: &str, now_ns: i64) -> Option<Arc<Scope>> {
        let session = self.0.get_mut(&token_hash(cookie)).filter(|session| !session.is_over(now_ns))?;
        let scope = session.external.clone()?;
        session.used_ns = now_ns;
        Some(scope)
    }

    fn remove_oldest(&mut self, is_meant: impl Fn(&Session) -> bool) {
        let meant = self.0.iter().filter(|(_, session)| is_meant(session));
        let oldest = meant.min_by_key(|(_, session)| session.used_ns).map(|(hash, _)| *hash);
        oldest.map(|hash| self.0.remove(&hash));
    }

    /// The name of a cookie's account, and a note that it is used.
    pub fn account(&mut self, cookie: &str, now_ns: i64) -> Option<String> {
        let is_own = |session: &&mut Session| session.external.is_none() && !session.is_over(now_ns);
        let session = self.0.get_mut(&token_hash(cookie)).filter(is_own)?;
        session.used_ns = now_ns;
        Some(session.account.clone())
    }

    /// Returns whether a cookie's session is still one of this account: the same name with the same secret.
    pub fn is_of(&self, cookie: &str, account: &Account) -> bool {
        let session = self.0.get(&token_hash(cookie));
        session.is_some_and(|session| session.account == account.name && session.credential == account.credential)
    }

    /// Ends a session.
    pub fn end(&mut self, cookie: &str) {
        self.0.remove(&token_hash(cookie));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Quota;

    fn account(name: &str, password: &str) -> Account {
        Account {
            name: name.to_owned(),
            credential: Credential::Password(password.to_owned()),
            certificates: Vec::new(),
            scram: None,
            is_server_admin: false,
            grants: Vec::new(),
            quota: Quota::default(),
            created_ns: 0,
            expires_ns: None,
        }
    }

    #[test]
    fn a_session_ends_by_age_by_silence_by_a_new_secret_and_by_sign_out() {
        let mut sessions = Sessions::default();
        let alice = account("alice", "x");
        sessions.begin("cookie", &alice, 0);
        assert_eq!(sessions.account("cookie", 1), Some("alice".to_owned()));
        assert_eq!(sessions.account("Cookie", 1), None);
        assert!(sessions.is_of("cookie", &alice) && !sessions.is_of("cookie", &account("alice", "y")));
        assert_eq!(sessions.account("cookie", 2 + IDLE_MAX_S * NS_PER_S), None);
        for hour in 0..12 {
            sessions.account("cookie", hour * 3_600 * NS_PER_S);
        }
        assert_eq!(sessions.account("cookie", AGE_MAX_S * NS_PER_S + 1), None);
        sessions.begin("cookie", &alice, 0);
        sessions.end("cookie");
        assert_eq!(sessions.account("cookie", 1), None);
    }

    #[test]
    fn a_session_of_a_provider_is_none_of_an_account_of_that_name() {
        let mut sessions = Sessions::default();
        let signed_in = |expires_ns| ExternalSignIn { scope: Scope::signed_out(), expires_ns };
        sessions.begin_external("cookie", signed_in(i64::MAX), 0);
        assert!(sessions.external("cookie", 1).is_some() && sessions.account("cookie", 1).is_none());
        sessions.begin("own", &account("", "x"), 0);
        assert!(sessions.external("own", 1).is_none() && sessions.account("own", 1).is_some());
        assert!(sessions.external("cookie", AGE_MAX_S * NS_PER_S).is_none(), "it was not used");
        // It ends with the provider's token.
        sessions.begin_external("short", signed_in(300 * NS_PER_S), 0);
        assert!(sessions.external("short", 300 * NS_PER_S - 1).is_some());
        assert!(sessions.external("short", 300 * NS_PER_S).is_none());
    }

    #[test]
    fn sessions_are_bounded() {
        let mut sessions = Sessions::default();
        for number in 0..30 {
            sessions.begin(&format!("a{number}"), &account("a", "x"), number);
        }
        assert_eq!(
            (sessions.0.len(), sessions.account("a9", 30), sessions.account("a29", 30).is_some()),
            (20, None, true)
        );
        for number in 0..200_i64 {
            sessions.begin(&format!("b{number}"), &account(&format!("b{}", number % 40), "x"), number);
        }
        assert!(sessions.0.len() <= SESSIONS_MAX);
    }
}
