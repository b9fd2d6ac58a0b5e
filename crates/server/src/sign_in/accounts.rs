//! `/api/v1/admin/accounts`: tokens and users, for administrators of the server.

use std::sync::Arc;

use access::account::{Account, Credential, check_name};
use access::audit::Event;
use access::grant::Grant;
use access::rate::Quota;
use access::secret::{self, SALT_BYTES, ScramKeys, TOKEN_BYTES};
use axum::Extension;
use axum::extract::{Path, Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::{ACCOUNTS, Caller};
use crate::error::ApiError;
use crate::http::json;
use crate::http::parameters::parse_duration_ms;
use crate::http::request::extract;
use crate::state::State;

const NS_PER_MS: i64 = 1_000_000;

/// `GET /api/v1/admin/accounts`: all accounts, without their secrets.
pub(crate) async fn list(From(state): From<Arc<State>>) -> Response {
    let directory = state.sign_in.directory();
    let accounts: Vec<Value> = directory
        .entries()
        .into_iter()
        .map(|entry| {
            let mut object = account_json(&entry.account);
            object.insert(
                "last_used".to_owned(),
                entry.last_used_ns().map_or(Value::Null, |used_ns| time_text(used_ns).into()),
            );
            Value::Object(object)
        })
        .collect();
    json::success(&Value::from(accounts).to_string(), &[], &[])
}

/// `PUT /api/v1/admin/accounts/{name}`: makes an account, or changes what the body says of one. A body with a password makes a user; one
/// without makes a token, which the answer holds: it is not shown again. One with certificates and without a password makes no token unless
/// the body asks for one (`renew`).
pub(crate) async fn put(
    From(state): From<Arc<State>>,
    Path(name): Path<String>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let change = Change::read(&parts.body)?;
    let data = state.work(move |state| state.change_account(&caller, &name, change)).await??;
    let no_store = [(header::CACHE_CONTROL, "no-store")];
    Ok((no_store, json::success(&data.to_string(), &[], &[])).into_response())
}

/// `DELETE /api/v1/admin/accounts/{name}`: it may not sign in any more.
pub(crate) async fn remove(
    From(state): From<Arc<State>>,
    Path(name): Path<String>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    let removed = state.work(move |state| state.remove_account(&caller, &name)).await??;
    if removed {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(ApiError::not_found("there is no such account"))
    }
}

/// What a request says of an account; what it leaves out stays as it is.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) password: Option<Zeroizing<String>>,
    /// Whether a token is to be made anew.
    pub(crate) renews_token: bool,
    pub(crate) grants: Option<Vec<Grant>>,
    /// Names of client certificates that sign it in.
    pub(crate) certificates: Option<Vec<String>>,
    pub(crate) is_server_admin: Option<bool>,
    pub(crate) expiry: Option<Expiry>,
    pub(crate) quota: Option<Quota>,
}

/// How long an account works.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expiry {
    Never,
    /// So many milliseconds from now.
    AfterMs(i64),
}

impl Change {
    fn read(body: &[u8]) -> Result<Self, ApiError> {
        let expected = r#"expected an object such as {"grants":["read:metrics"],"expires":"90d"}"#;
        let bad = |what: &str| ApiError::bad_data(format!("{what}; {expected}"));
        let mut change = Self::default();
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(change);
        }
        let object: Map<String, Value> =
            serde_json::from_slice(body).map_err(|error| bad(&format!("the body cannot be read: {error}")))?;
        for (name, value) in object {
            match (name.as_str(), value) {
                ("password", Value::String(text)) => change.password = Some(Zeroizing::new(text)),
                ("grants", Value::Array(grants)) => change.grants = Some(read_grants(&grants)?),
                ("certificates", Value::Array(names)) => change.certificates = Some(read_certificates(names)?),
                ("server_admin", Value::Bool(is)) => change.is_server_admin = Some(is),
                ("renew", Value::Bool(is)) => change.renews_token = is,
                ("expires", Value::String(text)) => change.expiry = Some(read_expiry(&text)?),
                ("quota", quota) => {
                    let read = serde_json::from_value(quota);
                    change.quota = Some(read.map_err(|error| bad(&format!("the quota cannot be read: {error}")))?);
                }
                (known @ ("password" | "grants" | "certificates" | "server_admin" | "renew" | "expires"), _) => {
                    return Err(bad(&format!("{known:?} has a value of the wrong type")));
                }
                _ => return Err(bad(&format!("unknown field {name:?}"))),
            }
        }
        Ok(change)
    }
}

impl Change {
    /// Returns whether a new account gets neither a password nor a token.
    fn is_by_certificate(&self) -> bool {
        self.certificates.as_ref().is_some_and(|names| !names.is_empty()) && !self.renews_token
    }
}

fn read_grants(grants: &[Value]) -> Result<Vec<Grant>, ApiError> {
    let read = |grant: &Value| {
        let text = grant.as_str().ok_or_else(|| ApiError::invalid_parameter("grants", "a grant is a text"))?;
        text.parse::<Grant>().map_err(|reason| ApiError::invalid_parameter("grants", reason))
    };
    grants.iter().map(read).collect()
}

fn read_certificates(names: Vec<Value>) -> Result<Vec<String>, ApiError> {
    let read = |name| match name {
        Value::String(name) => Ok(name),
        _ => Err(ApiError::invalid_parameter("certificates", "the name of a certificate is a text")),
    };
    names.into_iter().map(read).collect()
}

fn read_expiry(text: &str) -> Result<Expiry, ApiError> {
    if matches!(text, "" | "never") {
        return Ok(Expiry::Never);
    }
    parse_duration_ms(text).map(Expiry::AfterMs).map_err(|why| ApiError::invalid_parameter("expires", why))
}

impl State {
    /// Makes or changes an account; what its maker is shown of it, the secret of a new token with it.
    pub(crate) fn change_account(&self, caller: &Caller, name: &str, change: Change) -> Result<Value, ApiError> {
        check_name(name).map_err(ApiError::bad_data)?;
        if self.settings.accounts.iter().any(|account| account.name == name) {
            return Err(ApiError::bad_data(format!("the account {name} is one of web.config.yml: change it there")));
        }
        let now_ns = self.db.now_ns();
        let known = self.sign_in.directory().get(name).map(|entry| entry.account.clone());
        let (secret, mut account) = match (known, &change.password) {
            (Some(known), None) if !change.renews_token => (None, known),
            (None, None) if change.is_by_certificate() => {
                (None, self.with_credential(None, name, (Credential::Certificate, None)))
            }
            (Some(known), None) if !known.is_token() => {
                return Err(ApiError::bad_data(format!("the account {name} is a user: give it a password")));
            }
            (Some(known), Some(_)) if known.is_token() => {
                return Err(ApiError::bad_data(format!("the account {name} is a token, which has no password")));
            }
            (known, Some(password)) => (None, self.with_password(known, name, password)?),
            (known, None) => {
                let (token, account) = self.with_token(known, name)?;
                (Some(token), account)
            }
        };
        account.grants = change.grants.unwrap_or(account.grants);
        account.certificates = change.certificates.unwrap_or(account.certificates);
        self.check_certificates(&account)?;
        account.is_server_admin = change.is_server_admin.unwrap_or(account.is_server_admin);
        account.quota = change.quota.unwrap_or(account.quota);
        match change.expiry {
            None => {}
            Some(Expiry::Never) => account.expires_ns = None,
            Some(Expiry::AfterMs(ms)) => {
                account.expires_ns = Some(now_ns.saturating_add(ms.saturating_mul(NS_PER_MS)));
            }
        }
        account.check().map_err(ApiError::bad_data)?;
        self.db
            .put_document(ACCOUNTS, name, &account.to_document())
            .map_err(|error| ApiError::internal(error.to_string()))?;
        self.sign_in.reload(&self.db);
        self.sign_in.audit.note(now_ns, Event::AccountChanged, caller.actor(), name);
        let mut shown = account_json(&account);
        shown.extend(secret.map(|token| ("token".to_owned(), Value::from(token.as_str()))));
        Ok(Value::Object(shown))
    }

    /// Refuses the name of a certificate that another account has.
    fn check_certificates(&self, account: &Account) -> Result<(), ApiError> {
        let directory = self.sign_in.directory();
        for name in &account.certificates {
            let owner = directory.certificate_owner(name).map(|owner| &owner.account.name);
            if let Some(owner) = owner.filter(|owner| **owner != account.name) {
                return Err(ApiError::bad_data(format!("the certificate {name} signs the account {owner} in")));
            }
        }
        Ok(())
    }

    /// Removes an account; returns whether there was one.
    pub(crate) fn remove_account(&self, caller: &Caller, name: &str) -> Result<bool, ApiError> {
        let removed = self.db.remove_document(ACCOUNTS, name).map_err(|error| ApiError::internal(error.to_string()))?;
        if removed {
            self.sign_in.reload(&self.db);
            self.sign_in.audit.note(self.db.now_ns(), Event::AccountRemoved, caller.actor(), name);
        }
        Ok(removed)
    }

    fn with_password(&self, known: Option<Account>, name: &str, password: &str) -> Result<Account, ApiError> {
        let salts: [u8; 2 * SALT_BYTES] = self.random()?;
        let [salt, scram_salt] = [0, SALT_BYTES].map(|start| {
            let mut salt = [0; SALT_BYTES];
            salt.copy_from_slice(salts.get(start..start + SALT_BYTES).unwrap_or(&[0; SALT_BYTES]));
            salt
        });
        let _memory = self.password_memory()?;
        let stored = secret::hash_password(password, &salt).map_err(ApiError::bad_data)?;
        let scram = Some(ScramKeys::derive(password, &scram_salt));
        Ok(self.with_credential(known, name, (Credential::Password(stored), scram)))
    }

    fn with_token(&self, known: Option<Account>, name: &str) -> Result<(Zeroizing<String>, Account), ApiError> {
        let random = Zeroizing::new(self.random::<TOKEN_BYTES>()?);
        let token = secret::token_text(&random);
        let scram = Some(ScramKeys::derive(&token, &self.random::<SALT_BYTES>()?));
        let credential = Credential::Token(secret::token_hash(&token));
        Ok((token, self.with_credential(known, name, (credential, scram))))
    }

    fn with_credential(
        &self,
        known: Option<Account>,
        name: &str,
        (credential, scram): (Credential, Option<ScramKeys>),
    ) -> Account {
        let known = known.map(|known| Account { credential: credential.clone(), scram: scram.clone(), ..known });
        known.unwrap_or_else(|| Account {
            name: name.to_owned(),
            credential,
            certificates: Vec::new(),
            scram,
            is_server_admin: false,
            grants: Vec::new(),
            quota: Quota::default(),
            created_ns: self.db.now_ns(),
            expires_ns: None,
        })
    }

    fn random<const BYTES: usize>(&self) -> Result<[u8; BYTES], ApiError> {
        let mut bytes = [0; BYTES];
        self.db.fill_random(&mut bytes).map_err(|error| ApiError::internal(format!("no random bytes: {error}")))?;
        Ok(bytes)
    }
}

fn account_json(account: &Account) -> Map<String, Value> {
    let Value::Object(object) = json!({
        "name": account.name,
        "kind": match account.credential {
            Credential::Token(_) => "token",
            Credential::Password(_) => "user",
            Credential::Certificate => "certificate",
        },
        "certificates": account.certificates,
        "server_admin": account.is_server_admin,
        "grants": account.grants.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "quota": account.quota,
        "created": time_text(account.created_ns),
        "expires": account.expires_ns.map(time_text),
    }) else {
        return Map::new();
    };
    object
}

fn time_text(time_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(time_ns.into()).map(|time| time.to_string()).unwrap_or_default()
}
