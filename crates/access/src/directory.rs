//! All accounts, looked up by what a client sends. A change makes a new directory, so that lookups need no lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::account::{Account, Credential};
use crate::certificate::CertificateNames;
use crate::scope::Scope;
use crate::secret::{self, ScramKeys, TokenHash};

/// What a client signs in with.
#[derive(Clone, Copy)]
pub enum Credentials<'a> {
    /// A token by itself.
    Token(&'a str),
    /// A name and a password; a token may stand in place of the password.
    Password {
        /// The user, or the token's name; unused where the password is a token.
        name: &'a str,
        /// The password.
        password: &'a str,
    },
}

impl Credentials<'_> {
    /// The name that they give; empty for a token by itself.
    pub const fn name(&self) -> &str {
        match self {
            Self::Token(_) => "",
            Self::Password { name, .. } => name,
        }
    }
}

/// An account with what is worked out of it once.
#[derive(Debug)]
pub struct Entry {
    /// The account.
    pub account: Account,
    /// The rights of a client that signs in with it.
    pub scope: Arc<Scope>,
    /// When it last signed in since the server's start; 0: not yet.
    last_used_ns: AtomicI64,
}

impl Entry {
    /// When it last signed in since the server's start, nanoseconds since the Unix epoch.
    pub fn last_used_ns(&self) -> Option<i64> {
        Some(self.last_used_ns.load(Ordering::Relaxed)).filter(|used_ns| *used_ns != 0)
    }

    /// Notes that it has signed in.
    pub fn note_use(&self, now_ns: i64) {
        self.last_used_ns.store(now_ns, Ordering::Relaxed);
    }
}

/// The outcome of a lookup, before any costly work.
#[derive(Debug)]
pub enum Lookup {
    /// They are those of an account.
    Known(Arc<Entry>),
    /// They belong to no account: no such token, or one that has expired.
    Refused,
    /// A password has to be checked: costly, and to be bounded by the caller.
    Check(PasswordCheck),
}

/// A password's check. There is one also for names that do not exist, so that they cannot be told by the time it takes.
#[derive(Debug)]
pub struct PasswordCheck {
    entry: Option<Arc<Entry>>,
    stored: String,
}

/// The stored form of no password, with the cost of a real one.
const NOBODYS: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

impl PasswordCheck {
    /// The stored form to compare with.
    pub fn stored(&self) -> &str {
        &self.stored
    }

    /// Checks it. Takes tens of milliseconds and [`secret::PASSWORD_MEMORY_KIB`].
    pub fn run(self, password: &str) -> Option<Arc<Entry>> {
        let is_right = secret::is_password(password, &self.stored);
        self.entry.filter(|_| is_right)
    }

    /// The account, if the password was right a moment ago.
    pub fn known(self) -> Option<Arc<Entry>> {
        self.entry
    }
}

/// All accounts.
#[derive(Debug, Default, Clone)]
pub struct Directory {
    names: HashMap<String, Arc<Entry>>,
    tokens: HashMap<TokenHash, Arc<Entry>>,
    certificates: HashMap<String, Arc<Entry>>,
    /// Accounts of which only a bcrypt hash is known.
    bcrypt_alone: usize,
}

fn is_bcrypt_alone(account: &Account) -> bool {
    let is_bcrypt = matches!(&account.credential, Credential::Password(stored) if secret::is_bcrypt(stored));
    is_bcrypt && account.scram.is_none()
}

impl Directory {
    /// Adds an account, in place of one of its name.
    pub fn insert(&mut self, account: Account) {
        let scope = account.scope();
        self.insert_entry(Arc::new(Entry { account, scope, last_used_ns: AtomicI64::new(0) }));
    }

    /// As [`Directory::insert`]. An account that is as it was in an earlier directory keeps its entry: clients that have signed in are told by it.
    pub fn insert_kept(&mut self, account: Account, earlier: &Self) {
        match earlier.names.get(&account.name).filter(|entry| entry.account == account) {
            Some(entry) => self.insert_entry(entry.clone()),
            None => self.insert(account),
        }
    }

    fn insert_entry(&mut self, entry: Arc<Entry>) {
        let name = entry.account.name.clone();
        self.remove(&name);
        let token = match entry.account.credential {
            Credential::Token(hash) => Some(hash),
            Credential::Password(_) | Credential::Certificate => None,
        };
        self.bcrypt_alone += usize::from(is_bcrypt_alone(&entry.account));
        self.tokens.extend(token.map(|hash| (hash, entry.clone())));
        for name in &entry.account.certificates {
            self.certificates.insert(name.clone(), entry.clone());
        }
        self.names.insert(name, entry);
    }

    /// Removes an account; returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(entry) = self.names.remove(name) else { return false };
        self.bcrypt_alone -= usize::from(is_bcrypt_alone(&entry.account));
        if let Credential::Token(hash) = &entry.account.credential {
            self.tokens.remove(hash);
        }
        self.certificates.retain(|_, other| !Arc::ptr_eq(other, &entry));
        true
    }

    /// The account of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.names.get(name)
    }

    /// All accounts, by name.
    pub fn entries(&self) -> Vec<&Arc<Entry>> {
        let mut entries: Vec<&Arc<Entry>> = self.names.values().collect();
        entries.sort_by(|left, right| left.account.name.cmp(&right.account.name));
        entries
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Looks credentials up.
    pub fn look_up(&self, credentials: Credentials<'_>, now_ns: i64) -> Lookup {
        let (name, secret) = match credentials {
            Credentials::Token(token) => (None, token),
            Credentials::Password { name, password } => (Some(name), password),
        };
        if secret::is_token(secret) {
            let found = self.tokens.get(&secret::token_hash(secret));
            return found
                .filter(|entry| !entry.account.is_expired(now_ns))
                .map_or(Lookup::Refused, |entry| Lookup::Known(entry.clone()));
        }
        let Some(name) = name else { return Lookup::Refused };
        let entry = self.names.get(name).filter(|entry| !entry.account.is_expired(now_ns));
        let stored = entry.and_then(|entry| match &entry.account.credential {
            Credential::Password(stored) => Some((entry.clone(), stored.clone())),
            Credential::Token(_) | Credential::Certificate => None,
        });
        Lookup::Check(match stored {
            Some((entry, stored)) => PasswordCheck { entry: Some(entry), stored },
            None => PasswordCheck { entry: None, stored: NOBODYS.to_owned() },
        })
    }

    /// The account of a client that has shown a certificate: the first of its names that one has.
    pub fn certified(&self, certificate: &CertificateNames, now_ns: i64) -> Option<&Arc<Entry>> {
        let entry = certificate.all().find_map(|name| self.certificates.get(name))?;
        Some(entry).filter(|entry| !entry.account.is_expired(now_ns))
    }

    /// The account that has the name of a certificate.
    pub fn certificate_owner(&self, name: &str) -> Option<&Arc<Entry>> {
        self.certificates.get(name)
    }

    /// Returns whether there are passwords of which only a bcrypt hash is known, so that SCRAM cannot check them.
    pub const fn has_bcrypt_alone(&self) -> bool {
        self.bcrypt_alone > 0
    }

    /// SCRAM's keys of a name, and the account that has signed in once they match.
    pub fn scram(&self, name: &str, now_ns: i64) -> Option<(&ScramKeys, &Arc<Entry>)> {
        let entry = self.names.get(name).filter(|entry| !entry.account.is_expired(now_ns))?;
        Some((entry.account.scram.as_ref()?, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Quota;
    use crate::secret::{SALT_BYTES, TOKEN_BYTES, hash_password, token_hash, token_text};

    fn account(name: &str, credential: Credential, expires_ns: Option<i64>) -> Account {
        Account {
            name: name.to_owned(),
            credential,
            certificates: vec![format!("{name}.example")],
            scram: None,
            is_server_admin: false,
            grants: vec!["read:*".parse().unwrap()],
            quota: Quota::default(),
            created_ns: 0,
            expires_ns,
        }
    }

    fn name(lookup: Lookup, password: &str) -> Option<String> {
        let entry = match lookup {
            Lookup::Known(entry) => Some(entry),
            Lookup::Refused => None,
            Lookup::Check(check) => check.run(password),
        };
        entry.map(|entry| entry.account.name.clone())
    }

    #[test]
    fn an_account_that_is_as_it_was_keeps_its_entry() {
        let mut earlier = Directory::default();
        let [same, changed] = ["same", "changed"].map(|name| account(name, Credential::Certificate, None));
        earlier.insert(same.clone());
        earlier.insert(changed.clone());
        let mut directory = Directory::default();
        directory.insert_kept(same, &earlier);
        directory.insert_kept(Account { grants: Vec::new(), ..changed }, &earlier);
        let is_kept = |name: &str| Arc::ptr_eq(directory.get(name).unwrap(), earlier.get(name).unwrap());
        assert!(is_kept("same") && !is_kept("changed"));
        assert!(directory.certificate_owner("same.example").is_some());
    }

    #[test]
    fn credentials_lead_to_their_account_alone() {
        let [token, old, unknown] = [1, 2, 3].map(|byte| token_text(&[byte; TOKEN_BYTES]));
        let mut directory = Directory::default();
        directory.insert(account("t", Credential::Token(token_hash(&token)), None));
        directory.insert(account("old", Credential::Token(token_hash(&old)), Some(10)));
        let stored = hash_password("pass", &[5; SALT_BYTES]).unwrap();
        directory.insert(account("u", Credential::Password(stored), None));
        let by_token = |token: &str, now_ns| name(directory.look_up(Credentials::Token(token), now_ns), "");
        assert_eq!(by_token(&token, 5).as_deref(), Some("t"));
        assert_eq!(by_token(&old, 9).as_deref(), Some("old"));
        assert_eq!((by_token(&old, 10), by_token(&unknown, 5), by_token("pass", 5)), (None, None, None));
        for (user, password, expected) in [
            ("u", "pass", Some("u")),
            ("u", "Pass", None),
            ("t", "pass", None),
            ("nobody", "pass", None),
            // A token in place of a password, whatever the name.
            ("anything", token.as_str(), Some("t")),
            ("anything", unknown.as_str(), None),
        ] {
            let lookup = directory.look_up(Credentials::Password { name: user, password }, 5);
            assert_eq!(name(lookup, password).as_deref(), expected, "{user}");
        }
        let certified = |directory: &Directory, names: &[&str], now_ns| {
            let alternative = names.iter().map(|name| (*name).to_owned()).collect();
            let certificate = CertificateNames { alternative, ..CertificateNames::default() };
            directory.certified(&certificate, now_ns).map(|entry| entry.account.name.clone())
        };
        assert_eq!(certified(&directory, &["x", "t.example"], 5).as_deref(), Some("t"));
        assert_eq!(certified(&directory, &["old.example", "t.example"], 10), None, "expired");
        assert_eq!(certified(&directory, &["t"], 5), None, "the name of an account is none of a certificate");
        assert!(directory.remove("t") && !directory.remove("t"));
        assert_eq!(certified(&directory, &["t.example"], 5), None);
        assert!(matches!(directory.look_up(Credentials::Token(&token), 5), Lookup::Refused));
    }

    #[test]
    fn the_stored_form_of_nobody_costs_what_a_real_one_does() {
        use argon2::password_hash::phc::PasswordHash;
        let real = hash_password("pass", &[5; SALT_BYTES]).unwrap();
        let parameters = |stored: &str| PasswordHash::new(stored).map(|hash| hash.params.to_string());
        assert_eq!(parameters(NOBODYS).unwrap(), parameters(&real).unwrap());
    }
}
