//! Sign-in of Postgres's clients: SCRAM-SHA-256, whose proof shows a password or a token without sending it.

use std::fmt::{self, Debug};
use std::sync::Arc;

use access::audit::{Actor, Event};
use access::directory::Entry;
use async_trait::async_trait;
use futures_util::{Sink, SinkExt};
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

use super::errors::failed;
use super::postgres::Connection;
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
        let wait = state.sign_in.wait(Some(self.connection.remote.ip()), name, state.db.now_ns());
        let message = |seconds| format!("too many sign-ins have failed from here: try again in {seconds} s");
        wait.map_or(Ok(()), |wait| Err(failed("53300", message(wait.as_secs().max(1)))))
    }

    fn mechanism(&self) -> Box<dyn AuthMechanism<Arc<Entry>>> {
        if !self.connection.state.sign_in.is_required {
            return Box::new(Open);
        }
        ScramAuth::new(Arc::new(Accounts(self.connection.state.clone()))).create()
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
        let (state, address) = (&self.connection.state, self.connection.remote.ip());
        let now_ns = state.db.now_ns();
        match self.driver.advance_authentication(client, message).await {
            Ok(AuthOutcome::InProgress) => Ok(()),
            Ok(AuthOutcome::Authenticated { identity: Some(entry), final_message }) => {
                entry.note_use(now_ns);
                let actor = Actor { account: &entry.account.name, address: Some(address) };
                state.sign_in.audit.note(now_ns, Event::SignedIn, actor, "postgres");
                self.connection.set_scope(entry.scope.clone());
                self.complete(client, final_message).await
            }
            Ok(AuthOutcome::Authenticated { identity: None, .. }) => Err(PgWireError::InvalidPassword(name)),
            Err(error) => {
                state.sign_in.fail(Some(address), &name, now_ns);
                Err(error)
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
                let begun = self.driver.begin_authentication(client, self.mechanism()).await?;
                if let AuthOutcome::Authenticated { final_message, .. } = begun {
                    self.complete(client, final_message).await?;
                }
                Ok(())
            }
            PgWireFrontendMessage::PasswordMessageFamily(message) => self.advance(client, message).await,
            _ => Ok(()),
        }
    }
}

/// Lets every client in, where none has to sign in.
struct Open;

#[async_trait]
impl AuthMechanism<Arc<Entry>> for Open {
    async fn begin(&mut self, _: &(dyn ClientInfo + Send + Sync)) -> PgWireResult<AuthState<Arc<Entry>>> {
        Ok(AuthState::Ok { final_message: None, identity: None })
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
struct Accounts(Arc<State>);

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

    async fn get_scram_secret(&self, login: &LoginInfo) -> PgWireResult<(ScramSecret, Option<Arc<Entry>>)> {
        let (keys, entry) = self.0.sign_in.scram(login.user().unwrap_or_default(), self.0.db.now_ns());
        let secret = ScramSecret::Verifier {
            salt: keys.salt,
            iterations: keys.iterations as usize,
            stored_key: keys.stored_key,
            server_key: keys.server_key,
        };
        Ok((secret, entry))
    }
}
