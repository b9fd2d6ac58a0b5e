//! Sign-in of Postgres's clients: SCRAM-SHA-256, whose proof shows a password or a token without sending it; or a certificate.

use std::fmt::{self, Debug};
use std::net::IpAddr;
use std::sync::Arc;

use access::audit::{Actor, Event};
use access::directory::Entry;
use async_trait::async_trait;
use futures_util::{Sink, SinkExt};
use pgwire::api::auth::cleartext::CleartextPasswordAuth;
use pgwire::api::auth::driver::AuthOutcome;
use pgwire::api::auth::mechanism::{AuthMechanism, AuthMechanismFactory, AuthState};
use pgwire::api::auth::sasl::scram::{ScramAuth, ScramSecret};
use pgwire::api::auth::{
    AuthDriver, AuthSource, DefaultServerParameterProvider, LoginInfo, Password, StartupHandler, protocol_negotiation,
    save_startup_parameters_to_metadata,
};
use pgwire::api::{ClientInfo, METADATA_USER};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::startup::{Authentication, PasswordMessageFamily};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use zeroize::Zeroizing;

use super::errors::failed;
use super::postgres::Connection;
use crate::listen::socket::Transport;
use crate::sign_in::{Client, OwnedCredentials};
use crate::state::State;

/// The start of a session.
pub(super) struct Startup {
    connection: Arc<Connection>,
    driver: AuthDriver<DefaultServerParameterProvider, Arc<Entry>>,
}

impl Startup {
    pub(super) fn new(connection: Arc<Connection>) -> Arc<Self> {
        let driver = AuthDriver::new(DefaultServerParameterProvider::default());
        let driver = driver.with_connection_manager(connection.manager.clone());
        Arc::new(Self { connection, driver })
    }

    /// Refuses a name whose sign-ins have failed too often from the client's address.
    fn check_wait(&self, name: &str) -> PgWireResult<()> {
        let state = &self.connection.state;
        let wait = state.sign_in.wait(Some(self.connection.peer.address.ip()), name, state.db.now_ns());
        let message = |seconds| format!("too many sign-ins have failed from here: try again in {seconds} s");
        wait.map_or(Ok(()), |wait| Err(failed("53300", message(wait.as_secs().max(1)))))
    }

    /// How a client signs in with a name: by its certificate if that is the name's; else by SCRAM. Where the server has passwords of which only a
    /// bcrypt hash is known, which SCRAM cannot check, clients send theirs, within TLS alone. All do then, whatever their name: else the way in
    /// which one is asked would tell what it is.
    fn mechanism(&self, name: &str) -> Box<dyn AuthMechanism<Arc<Entry>>> {
        let (state, peer) = (&self.connection.state, &self.connection.peer);
        if !state.sign_in.is_required {
            return Box::new(Known(None));
        }
        let now_ns = state.db.now_ns();
        if let Some(entry) = state.sign_in.certified(peer, now_ns).filter(|entry| entry.account.name == name) {
            return Box::new(Known(Some(entry)));
        }
        let accounts = Arc::new(Accounts { state: state.clone(), address: peer.address.ip() });
        let is_sent = peer.transport == Transport::Tls && state.sign_in.directory().has_bcrypt_alone();
        if is_sent { CleartextPasswordAuth::new(accounts).create() } else { ScramAuth::new(accounts).create() }
    }

    /// Takes note of who has signed in.
    fn enter(&self, entry: &Arc<Entry>) {
        let state = &self.connection.state;
        let now_ns = state.db.now_ns();
        entry.note_use(now_ns);
        let actor = Actor { account: &entry.account.name, address: Some(self.connection.peer.address.ip()) };
        state.sign_in.audit.note(now_ns, Event::SignedIn, actor, "postgres");
        self.connection.set_client(Client::Account(entry.clone()));
    }

    /// Lets the session begin. What its settings cannot be is told after that, when clients take notices.
    async fn complete<C>(&self, client: &mut C, final_message: Option<Authentication>) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        self.driver.complete_authentication(client, final_message).await?;
        self.connection.take_startup_settings(client).await?;
        Ok(client.flush().await?)
    }

    async fn advance<C>(&self, client: &mut C, message: PasswordMessageFamily) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = client.metadata().get(METADATA_USER).cloned().unwrap_or_default();
        let (state, address) = (&self.connection.state, self.connection.peer.address.ip());
        // Sessions that began together may have failed since.
        self.check_wait(&name)?;
        match self.driver.advance_authentication(client, message).await {
            Ok(AuthOutcome::InProgress) => Ok(()),
            Ok(AuthOutcome::Authenticated { identity: Some(entry), final_message }) => {
                self.enter(&entry);
                self.complete(client, final_message).await
            }
            Ok(AuthOutcome::Authenticated { identity: None, .. }) => Err(PgWireError::InvalidPassword(name)),
            Err(error) => {
                state.sign_in.fail(Some(address), &name, state.db.now_ns());
                // SCRAM's messages need not repeat the name.
                Err(if matches!(error, PgWireError::InvalidPassword(_)) {
                    PgWireError::InvalidPassword(name)
                } else {
                    error
                })
            }
        }
    }
}

#[async_trait]
impl StartupHandler for Startup {
    async fn on_startup<C>(&self, client: &mut C, message: PgWireFrontendMessage) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        match message {
            PgWireFrontendMessage::Startup(ref startup) => {
                protocol_negotiation(client, startup).await?;
                save_startup_parameters_to_metadata(client, startup);
                let name = client.metadata().get(METADATA_USER).cloned().unwrap_or_default();
                self.check_wait(&name)?;
                let begun = self.driver.begin_authentication(client, self.mechanism(&name)).await?;
                if let AuthOutcome::Authenticated { final_message, identity } = begun {
                    if let Some(entry) = identity {
                        self.enter(&entry);
                    }
                    self.complete(client, final_message).await?;
                }
                Ok(())
            }
            PgWireFrontendMessage::PasswordMessageFamily(message) => self.advance(client, message).await,
            _ => Ok(()),
        }
    }
}

/// Lets a client in that is known by its certificate, or every client where none has to sign in.
struct Known(Option<Arc<Entry>>);

#[async_trait]
impl AuthMechanism<Arc<Entry>> for Known {
    async fn begin(&mut self, _: &(dyn ClientInfo + Send + Sync)) -> PgWireResult<AuthState<Arc<Entry>>> {
        Ok(AuthState::Ok { final_message: None, identity: self.0.take() })
    }

    async fn next(
        &mut self,
        _: &(dyn ClientInfo + Send + Sync),
        _: PasswordMessageFamily,
    ) -> PgWireResult<AuthState<Arc<Entry>>> {
        Err(PgWireError::InvalidSASLState)
    }
}

/// The accounts, as SCRAM asks for them.
struct Accounts {
    state: Arc<State>,
    /// The client's address.
    address: IpAddr,
}

impl Debug for Accounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Accounts")
    }
}

#[async_trait]
impl AuthSource<Arc<Entry>> for Accounts {
    async fn get_password(&self, login: &LoginInfo) -> PgWireResult<Password> {
        // Passwords are not known, only their keys.
        Err(PgWireError::InvalidPassword(login.user().unwrap_or_default().to_owned()))
    }

    async fn verify_password(&self, login: &LoginInfo, password: &[u8]) -> PgWireResult<Option<Arc<Entry>>> {
        let name = login.user().unwrap_or_default().to_owned();
        let wrong = PgWireError::InvalidPassword(name.clone());
        let Ok(password) = std::str::from_utf8(password) else { return Err(wrong) };
        let credentials = OwnedCredentials::Password { name, password: Zeroizing::new(password.to_owned()) };
        let found = self
            .state
            .find_account(credentials, Some(self.address))
            .await
            .map_err(|error| failed("53300", error.message))?;
        // Without an account the session would have no account.
        found.map(Some).ok_or(wrong)
    }

    async fn get_scram_secret(&self, login: &LoginInfo) -> PgWireResult<(ScramSecret, Option<Arc<Entry>>)> {
        let (keys, entry) = self.state.sign_in.scram(login.user().unwrap_or_default(), self.state.db.now_ns());
        let secret = ScramSecret::Verifier {
            salt: keys.salt,
            iterations: keys.iterations as usize,
            stored_key: keys.stored_key,
            server_key: keys.server_key,
        };
        Ok((secret, entry))
    }
}
