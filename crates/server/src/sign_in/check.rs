//! Checks of credentials, and of what is written where.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use access::audit::{Actor, Event};
use access::directory::{Credentials, Entry, Lookup, PasswordCheck};
use access::grant::Right;
use access::oidc::token::has_form;
use access::scope::Scope;
use access::secret::PASSWORD_MEMORY_KIB;
use axum::http::StatusCode;

use super::oidc::Refusal;
use super::{Caller, Destination, OwnedCredentials, denied, lock, unauthorized};
use crate::error::ApiError;
use crate::http::body::Share;
use crate::listen::socket::{Peer, Transport};
use crate::state::State;

/// How long a sign-in waits for its turn to be checked.
const CHECK_PATIENCE: Duration = Duration::from_secs(5);

/// The error of what can be tried again as it is. Answers with it say when.
pub(super) fn unavailable(message: &str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message.to_owned())
}

impl State {
    /// Who a client is by its credentials; without any, by the connection itself.
    pub(crate) async fn sign_in(
        self: &Arc<Self>,
        credentials: Option<OwnedCredentials>,
        peer: Option<&Peer>,
    ) -> Result<Caller, ApiError> {
        let remote = peer.map(|peer| peer.address);
        if !self.sign_in.is_required {
            return Ok(Caller { scope: Scope::open(), remote });
        }
        let Some(credentials) = credentials else {
            let connected = peer.and_then(|peer| self.connected_caller(peer));
            return connected
                .ok_or_else(|| unauthorized("sign in with a token or a password: Authorization: Bearer TOKEN"));
        };
        let (now_ns, address) = (self.db.now_ns(), remote.map(|remote| remote.ip()));
        let name = credentials.as_ref().name().to_owned();
        self.check_wait(address, &name)?;
        if let (Some(oidc), Some(token)) = (&self.sign_in.oidc, credentials.provided()) {
            let signed_in = oidc.sign_in(token, now_ns).await;
            return signed_in.map(|scope| Caller { scope, remote }).map_err(|why| self.refuse_provided(address, why));
        }
        let Some(entry) = self.find_account(credentials, address).await? else {
            self.sign_in.fail(address, &name, now_ns);
            return Err(unauthorized("the token or the password is wrong, or has expired"));
        };
        entry.note_use(now_ns);
        Ok(Caller { scope: entry.scope.clone(), remote })
    }

    /// Refuses a token of an identity provider. Why is the operator's to know. Only a token that is wrong counts as a sign-in that failed: what a
    /// provider that does not answer costs is not its sender's fault, and clients send tokens until they have expired.
    fn refuse_provided(&self, address: Option<IpAddr>, refusal: Refusal) -> ApiError {
        let why = match refusal {
            Refusal::Unavailable(why) => {
                self.tell(|| format!("OpenID Connect: a token cannot be checked: {why}"));
                return unavailable(
                    "the token cannot be checked now, since the identity provider does not answer: try again",
                );
            }
            Refusal::Useless(why) => why,
            Refusal::Wrong(why) => {
                self.sign_in.fail(address, "", self.db.now_ns());
                why
            }
        };
        self.tell(|| format!("OpenID Connect: a token is refused: {why}"));
        unauthorized("the token is wrong, or has expired")
    }

    /// Refuses an address, or a name from there, whose sign-ins have failed too often.
    pub(super) fn check_wait(&self, address: Option<IpAddr>, name: &str) -> Result<(), ApiError> {
        let Some(wait) = self.sign_in.wait(address, name, self.db.now_ns()) else { return Ok(()) };
        let seconds = wait.as_secs().max(1);
        Err(ApiError::later(format!("too many sign-ins have failed from here: try again in {seconds} s")))
    }

    /// The account that the credentials of a client at an address are of; `None` if they are wrong.
    pub(crate) async fn find_account(
        self: &Arc<Self>,
        credentials: OwnedCredentials,
        address: Option<IpAddr>,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        let now_ns = self.db.now_ns();
        match self.sign_in.directory().look_up(credentials.as_ref(), now_ns) {
            Lookup::Known(entry) => Ok(Some(entry)),
            Lookup::Refused => Ok(None),
            Lookup::Check(check) => self.check_password(check, credentials, address).await,
        }
    }

    /// Who a client is that sends no credentials: the owner of its certificate, or a client that the mode of a unix socket lets in.
    pub(crate) fn connected_caller(&self, peer: &Peer) -> Option<Caller> {
        let remote = Some(peer.address);
        if peer.transport == Transport::UnixSocket {
            return Some(Caller { scope: Scope::open(), remote });
        }
        let now_ns = self.db.now_ns();
        let entry = self.sign_in.certified(peer, now_ns)?;
        entry.note_use(now_ns);
        Some(Caller { scope: entry.scope.clone(), remote })
    }

    /// Who a client is that a trusted proxy has signed in.
    pub(crate) fn proxied_caller(&self, user: &str, peer: Option<&Peer>) -> Result<Caller, ApiError> {
        let (now_ns, remote) = (self.db.now_ns(), peer.map(|peer| peer.address));
        let directory = self.sign_in.directory();
        let entry = directory.get(user).filter(|entry| !entry.account.is_expired(now_ns));
        let Some(entry) = entry else {
            self.sign_in.fail(remote.map(|remote| remote.ip()), user, now_ns);
            return Err(unauthorized("the proxy names an account that there is not"));
        };
        entry.note_use(now_ns);
        Ok(Caller { scope: entry.scope.clone(), remote })
    }

    /// Who a client of a protocol is that has a place for a token alone. Costs no more than a look.
    pub(crate) fn token_caller(&self, token: &str, peer: &Peer) -> Result<Caller, ApiError> {
        let remote = Some(peer.address);
        if !self.sign_in.is_required {
            return Ok(Caller { scope: Scope::open(), remote });
        }
        if let Some(caller) = self.connected_caller(peer).filter(|_| token.is_empty()) {
            return Ok(caller);
        }
        let (now_ns, address) = (self.db.now_ns(), remote.map(|remote| remote.ip()));
        if self.sign_in.wait(address, "", now_ns).is_some() {
            return Err(ApiError::later("too many sign-ins have failed from here: try again later"));
        }
        if let Some(oidc) = self.sign_in.oidc.as_ref().filter(|_| has_form(token)) {
            let signed_in = oidc.sign_in_by_known(token, now_ns);
            return signed_in.map(|scope| Caller { scope, remote }).map_err(|why| self.refuse_provided(address, why));
        }
        match self.sign_in.directory().look_up(Credentials::Token(token), now_ns) {
            Lookup::Known(entry) => {
                entry.note_use(now_ns);
                Ok(Caller { scope: entry.scope.clone(), remote })
            }
            Lookup::Refused | Lookup::Check(_) => {
                self.sign_in.fail(address, "", now_ns);
                Err(unauthorized("sign in with a token: this one is missing, wrong or expired"))
            }
        }
    }

    /// Checks a password, a few at a time, on a thread that may compute.
    async fn check_password(
        self: &Arc<Self>,
        check: PasswordCheck,
        credentials: OwnedCredentials,
        address: Option<IpAddr>,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        let OwnedCredentials::Password { name, password } = credentials else { return Ok(None) };
        let now_ns = self.db.now_ns();
        if lock(&self.sign_in.verdicts).has(check.stored(), &password, now_ns) {
            return Ok(check.known());
        }
        let permit = tokio::time::timeout(CHECK_PATIENCE, self.sign_in.checks.acquire()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(ApiError::later("too many passwords are being checked: try again, or use a token"));
        };
        // Many that came together wait for their turn: those before this one may have failed since.
        self.check_wait(address, &name)?;
        let checked = self.work_unbounded(move |state| {
            let stored = check.stored().to_owned();
            let _memory = state.password_memory()?;
            let entry = check.run(&password);
            if let Some(entry) = &entry {
                lock(&state.sign_in.verdicts).note(&stored, &password, now_ns);
                let actor = Actor { account: &entry.account.name, address: None };
                state.sign_in.audit.note(now_ns, Event::SignedIn, actor, "");
            }
            Ok(entry)
        });
        let entry = checked.await;
        drop(permit);
        entry?
    }

    /// The memory of hashing a password, out of that of all requests, until it is dropped. Only for threads that may block.
    pub(crate) fn password_memory(&self) -> Result<Share, ApiError> {
        let mut share = self.bodies.share(&self.own_tenant());
        let reserved = share.reserve_patiently(PASSWORD_MEMORY_KIB as usize * 1024);
        reserved.map(|()| share).map_err(|_| {
            let message = format!("a password is checked with {PASSWORD_MEMORY_KIB} KiB of memory, which requests hold: try again, or use a token");
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
        })
    }

    /// A database that a caller may write. One that does not exist is made by the first rows, if the caller may make it.
    pub(crate) fn destination(&self, database: impl Into<String>, scope: &Arc<Scope>) -> Result<Destination, ApiError> {
        let database = database.into();
        if !scope.may(Right::Write, &database) {
            return Err(denied(scope, Right::Write, &database));
        }
        if !scope.may(Right::Create, &database) && !self.db.databases().contains(&database) {
            return Err(denied(scope, Right::Create, &database));
        }
        Ok(Destination { database, scope: scope.clone() })
    }
}
