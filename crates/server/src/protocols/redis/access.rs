//! The account of a connection of Redis's protocol.

use std::sync::Arc;

use ::access::audit::{Actor, Event};
use ::access::grant::Right;
use ::access::rate::Counted;
use ::access::scope::Scope;
use query::Budget;
use redis::NewSeriesGate;

use crate::http::body::Share;
use crate::listen::socket::Peer;
use crate::scheduler::tenants::Tenant;
use crate::sign_in::{Client, OwnedCredentials, denied};
use crate::state::State;

/// Bytes of memory that replies take at a time; as many are a connection's own.
const REPLY_STEP_BYTES: usize = 64 << 10;

/// The account of a connection, with the rights that it has by now.
pub(super) struct Account {
    state: Arc<State>,
    peer: Peer,
    client: Option<Client>,
    /// The memory of replies that are not sent yet, and its bytes.
    replies: Option<(Share, usize)>,
}

impl Account {
    /// The owner of the client's certificate, if it has one; else the client signs in.
    pub(super) fn new(state: Arc<State>, peer: Peer) -> Self {
        let mut account = Self { state, peer, client: None, replies: None };
        redis::Access::sign_out(&mut account);
        account
    }

    fn scope(&self) -> Option<Arc<Scope>> {
        let State { sign_in, db, .. } = &*self.state;
        if !sign_in.is_required {
            return Some(Scope::open());
        }
        self.client.as_ref().and_then(|client| sign_in.scope_now(client, db.now_ns()))
    }

    fn scope_or_none(&self) -> Arc<Scope> {
        self.scope().unwrap_or_else(Scope::signed_out)
    }

    /// Gives back the memory of replies that are sent.
    pub(super) fn release_replies(&mut self) {
        if self.replies.as_ref().is_some_and(|(_, held)| *held > REPLY_STEP_BYTES) {
            self.replies = None;
        }
    }

    /// What the connection's requests count as.
    pub(super) fn tenant(&self) -> Arc<Tenant> {
        self.state.tenant(&self.state.settings.redis.database, &self.scope_or_none())
    }
}

impl redis::Access for Account {
    fn is_signed_in(&self) -> bool {
        self.scope().is_some()
    }

    fn sign_in(&mut self, user: &str, password: &str) -> Result<(), String> {
        // Redis's own name for clients that have none.
        let credentials = if matches!(user, "" | "default") {
            OwnedCredentials::Token(password.to_owned().into())
        } else {
            OwnedCredentials::Password { name: user.to_owned(), password: password.to_owned().into() }
        };
        let signed_in = self.state.sign_in(Some(credentials), Some(&self.peer));
        // This thread is one that may block.
        let caller = tokio::runtime::Handle::current().block_on(signed_in).map_err(|error| error.message)?;
        let actor = Actor { account: &caller.scope.name, address: Some(self.peer.address.ip()) };
        self.state.sign_in.audit.note(self.state.db.now_ns(), Event::SignedIn, actor, "redis");
        self.client = Some(self.state.sign_in.client(&caller));
        Ok(())
    }

    fn sign_out(&mut self) {
        self.client = self.state.connected_caller(&self.peer).map(|caller| self.state.sign_in.client(&caller));
    }

    fn check(&self, right: redis::Right, database: &str) -> Result<(), String> {
        let scope = self.scope_or_none();
        let needed = match right {
            redis::Right::Read => Right::Read,
            redis::Right::Write => Right::Write,
            redis::Right::Delete => Right::Admin,
        };
        let may_make =
            needed != Right::Write || scope.may(Right::Create, database) || self.state.db.has_database(database);
        if !scope.may(needed, database) || !may_make {
            return Err(denied(&scope, if may_make { needed } else { Right::Create }, database).message);
        }
        if !scope.matchers(needed, database).is_empty() || !scope.matchers(Right::Read, database).is_empty() {
            return Err("the rights of this account are narrowed by labels, which keys do not know".to_owned());
        }
        let tenant = self.state.tenant(database, &scope);
        self.state.take(&scope, &tenant, (Counted::Requests, 1)).map_err(|error| error.message)
    }

    fn budget(&self, database: &str) -> Arc<Budget> {
        self.state.budget_of(database, &self.scope_or_none())
    }

    fn series_gate(&self, database: &str) -> NewSeriesGate {
        let (state, scope) = (self.state.clone(), self.scope_or_none());
        let tenant = state.tenant(database, &scope);
        Box::new(move |count| state.take_new_series(&scope, &tenant, count))
    }

    fn hold_bytes(&mut self, bytes: usize) -> Result<(), String> {
        let tenant = self.tenant();
        let (share, held) = self.replies.get_or_insert_with(|| (self.state.bodies.share(&tenant), REPLY_STEP_BYTES));
        if bytes > *held {
            // In steps, so that small replies ask seldom.
            let more = (bytes - *held).max(REPLY_STEP_BYTES);
            share.reserve_patiently(more).map_err(|error| error.message)?;
            *held += more;
        }
        Ok(())
    }

    fn note_samples(&self, database: &str, count: u64) {
        let scope = self.scope_or_none();
        self.state.owe(&scope, &self.state.tenant(database, &scope), (Counted::Samples, count));
    }
}
