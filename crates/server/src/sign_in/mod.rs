//! Who a client is: credentials looked up, passwords checked within bounds, failures slowed down and written to the audit log.
//!
//! * [`check`]: credentials and destinations, checked · [`credentials`]: what requests of HTTP sign in with · [`rights`]: the right that each route needs, and the check before it
//! * [`oidc`]: identity providers; [`oidc_page`]: the page's sign-in there · [`page_session`]: the page's sign-in and its cookie · [`proxy`]: what trusted proxies say of their clients
//! * [`accounts`]: accounts over HTTP; [`statements`]: by statements; [`first_admin`]: the first one · [`audit_log`]: the audit log's file

pub(crate) mod accounts;
pub(crate) mod audit_log;
mod check;
pub(crate) mod credentials;
pub(crate) mod first_admin;
pub(crate) mod oidc;
pub(crate) mod oidc_page;
pub(crate) mod page_session;
mod proxy;
pub(crate) mod rights;
pub(crate) mod statements;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use access::account::Account;
use access::audit::{Actor, Event};
use access::back_off::BackOff;
use access::directory::{Credentials, Directory, Entry};
use access::grant::Right;
use access::oidc::token::has_form;
use access::scope::Scope;
use access::secret::ScramKeys;
use access::session::Sessions;
use access::verdicts::Verdicts;
use axum::http::StatusCode;
use db::Db;
use tokio::sync::Semaphore;

use self::audit_log::AuditLog;
use self::oidc::Oidc;
use crate::error::ApiError;
use crate::listen::socket::Peer;
use crate::settings::ServerSettings;

/// Under which kind accounts are kept among the store's documents.
pub(crate) const ACCOUNTS: &str = "account";

/// Passwords that are checked at the same time; each takes a core and 19 MiB.
const CHECKS_MAX: usize = 2;

/// Under which kind and name it is kept that clients have to sign in, whatever the listeners are.
const SETTINGS: &str = "access";
const REQUIRED: &str = "required";

/// Returns whether clients have to sign in: the settings say so, or an earlier start did.
pub(crate) fn is_required(db: &Db, settings: &ServerSettings) -> bool {
    let is_kept = || db.documents(SETTINGS).iter().any(|(name, _)| name == REQUIRED);
    !settings.is_insecure_open && (settings.sign_in_required || is_kept())
}

/// Whether a request of a connection was signed in; put into requests by the connection. One without is not left idle for long.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acquainted(Arc<AtomicBool>);

impl Acquainted {
    /// Takes note of a request that was signed in.
    pub(crate) fn note(extensions: &axum::http::Extensions) {
        if let Some(acquainted) = extensions.get::<Self>() {
            acquainted.0.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether there was one.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// How long the connection may be silent: not for long before there was one.
    pub(crate) fn patience(&self, settings: &ServerSettings) -> Duration {
        let idle_ms = settings.http_idle_timeout_ms;
        Duration::from_millis(if self.is_set() { idle_ms } else { idle_ms.min(settings.head_timeout_ms) })
    }
}

/// A client, as far as it is known; put into requests by [`rights::check`].
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) scope: Arc<Scope>,
    pub(crate) remote: Option<SocketAddr>,
}

impl Caller {
    /// The caller of a request; one that was never checked may do nothing.
    pub(crate) fn from_extensions(extensions: &axum::http::Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_else(|| Self { scope: Scope::signed_out(), remote: None })
    }

    /// As the audit log names it.
    pub(crate) fn actor(&self) -> Actor<'_> {
        Actor { account: &self.scope.name, address: self.remote.map(|remote| remote.ip()) }
    }

    /// Refuses what the caller may not do with a database.
    pub(crate) fn require(&self, right: Right, database: &str) -> Result<(), ApiError> {
        if self.scope.may(right, database) { Ok(()) } else { Err(denied(&self.scope, right, database)) }
    }

    /// Refuses what only administrators of the server may do.
    pub(crate) fn require_server_admin(&self) -> Result<(), ApiError> {
        if self.scope.is_server_admin {
            return Ok(());
        }
        Err(forbidden(format!("the account {} is no administrator of this server", self.scope.name)))
    }
}

pub(crate) fn denied(scope: &Scope, right: Right, database: &str) -> ApiError {
    let right = right.name();
    forbidden(format!("the account {} does not have the right {right} on the database {database}", scope.name))
}

pub(crate) const fn forbidden(message: String) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", message)
}

/// A client of a connection on which it signs in once.
#[derive(Debug, Clone)]
pub(crate) enum Client {
    /// One that is let in without an account.
    Known(Arc<Scope>),
    /// The account as it was at the sign-in.
    Account(Arc<Entry>),
    /// One that an identity provider has signed in, until its token expires.
    External { scope: Arc<Scope>, expires_ns: i64 },
}

/// A database that a caller may write. Rows get into the database by nothing else.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub(crate) database: String,
    pub(crate) scope: Arc<Scope>,
}

/// Who may sign in.
pub(crate) struct SignIn {
    /// Whether clients have to. If not, everybody may do everything.
    pub(crate) is_required: bool,
    /// Random, and of this process alone.
    key: [u8; 32],
    directory: RwLock<Arc<Directory>>,
    pub(crate) verdicts: Mutex<Verdicts>,
    /// Those of the page.
    pub(crate) sessions: Mutex<Sessions>,
    back_off: Mutex<BackOff>,
    pub(crate) checks: Semaphore,
    failed: AtomicU64,
    pub(crate) audit: AuditLog,
    /// Accounts that files of settings name: they are not among the documents.
    configured: Vec<Account>,
    /// The provider that signs accounts in that are none of the server's own.
    pub(crate) oidc: Option<Arc<Oidc>>,
}

impl SignIn {
    /// With the accounts of the database and of the settings.
    pub(crate) fn new(db: &Db, settings: &ServerSettings) -> Self {
        let mut key = [0; 32];
        let _ = db.fill_random(&mut key);
        let configured = settings.accounts.clone();
        let sign_in = Self {
            is_required: is_required(db, settings),
            key,
            directory: RwLock::default(),
            verdicts: Mutex::new(Verdicts::new(key)),
            sessions: Mutex::default(),
            back_off: Mutex::default(),
            checks: Semaphore::new(CHECKS_MAX),
            failed: AtomicU64::new(0),
            audit: AuditLog::new(settings.audit_log.clone()),
            configured,
            oidc: settings.web.oidc.clone(),
        };
        sign_in.reload(db);
        if sign_in.is_required && db.documents(SETTINGS).is_empty() {
            // From now on, also on loopback.
            let _ = db.put_document(SETTINGS, REQUIRED, b"{}");
        }
        sign_in
    }

    /// Reads all accounts anew.
    pub(crate) fn reload(&self, db: &Db) {
        let (mut directory, earlier) = (Directory::default(), self.directory());
        for (name, document) in db.documents(ACCOUNTS) {
            match Account::from_document(&document) {
                Ok(account) => directory.insert_kept(account, &earlier),
                // It signs no client in.
                Err(reason) => {
                    crate::notice::write(&format!("the account {name} cannot be read and may not sign in: {reason}"));
                }
            }
        }
        self.configured.iter().cloned().for_each(|account| directory.insert_kept(account, &earlier));
        *self.directory.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(directory);
    }

    /// All accounts.
    pub(crate) fn directory(&self) -> Arc<Directory> {
        self.directory.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A caller as the client of a connection that stays open.
    pub(crate) fn client(&self, caller: &Caller) -> Client {
        let scope = caller.scope.clone();
        if Arc::ptr_eq(&scope, &Scope::open()) {
            return Client::Known(scope);
        }
        let entry = self.directory().get(&scope.name).cloned();
        if let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.scope, &scope)) {
            return Client::Account(entry);
        }
        // An account of the server's own that was changed or removed since the sign-in has no such scope any more: it signs in again.
        let expires_ns = self.oidc.as_ref().and_then(|oidc| oidc.expires_ns(&scope)).unwrap_or(i64::MIN);
        Client::External { scope, expires_ns }
    }

    /// What a client may do by now: the rights of its account as they are. `None` if it could not sign in so any more, since the account was
    /// removed, has expired, or has lost the secret or a certificate that it had then.
    pub(crate) fn scope_now(&self, client: &Client, now_ns: i64) -> Option<Arc<Scope>> {
        let then = match client {
            Client::Known(scope) => return Some(scope.clone()),
            Client::External { scope, expires_ns } => return Some(scope.clone()).filter(|_| *expires_ns > now_ns),
            Client::Account(entry) => &entry.account,
        };
        let directory = self.directory();
        let entry = directory.get(&then.name).filter(|entry| !entry.account.is_expired(now_ns))?;
        let has_certificates = then.certificates.iter().all(|name| entry.account.certificates.contains(name));
        (entry.account.credential == then.credential && has_certificates).then(|| entry.scope.clone())
    }

    /// The account that a client's certificate names.
    pub(crate) fn certified(&self, peer: &Peer, now_ns: i64) -> Option<Arc<Entry>> {
        self.directory().certified(peer.certificate.as_ref()?, now_ns).cloned()
    }

    /// SCRAM's keys of an account, and who has signed in once they match. For a name without an account keys are made up that nothing
    /// matches, always the same ones, so that clients cannot tell which names exist.
    pub(crate) fn scram(&self, name: &str, now_ns: i64) -> (ScramKeys, Option<Arc<Entry>>) {
        let directory = self.directory();
        let found = directory.scram(name, now_ns).map(|(keys, entry)| (keys.clone(), entry.clone()));
        found.map_or_else(|| (ScramKeys::decoy(&self.key, name), None), |(keys, entry)| (keys, Some(entry)))
    }

    /// How long an address has to wait before it tries again.
    pub(crate) fn wait(&self, address: Option<IpAddr>, name: &str, now_ns: i64) -> Option<Duration> {
        address.and_then(|address| lock(&self.back_off).wait(address, name, now_ns))
    }

    /// Notes a sign-in that failed.
    pub(crate) fn fail(&self, address: Option<IpAddr>, name: &str, now_ns: i64) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if let Some(address) = address {
            lock(&self.back_off).fail(address, name, now_ns);
        }
        self.audit.note(now_ns, Event::SignInFailed, Actor { account: name, address }, "");
    }

    /// Sign-ins that were refused.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of credentials that are missing or wrong. It does not say which part is wrong.
pub(crate) fn unauthorized(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message.to_owned())
}

/// Credentials that are owned, so that a thread can check them.
pub(crate) enum OwnedCredentials {
    Token(zeroize::Zeroizing<String>),
    Password { name: String, password: zeroize::Zeroizing<String> },
}

impl OwnedCredentials {
    /// A token of an identity provider, also in the place of a password.
    pub(crate) fn provided(&self) -> Option<&str> {
        let text = match self {
            Self::Token(token) => token,
            Self::Password { password, .. } => password,
        };
        Some(text.as_str()).filter(|text| has_form(text))
    }

    pub(crate) fn as_ref(&self) -> Credentials<'_> {
        match self {
            Self::Token(token) => Credentials::Token(token),
            Self::Password { name, password } => Credentials::Password { name, password },
        }
    }
}
