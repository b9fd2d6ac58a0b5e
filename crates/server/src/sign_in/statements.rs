//! Statements about users, of InfluxQL and of SQL: the accounts that they make and change are those of [`super::accounts`].

use access::account::Account;
use access::grant::Rights;
use access::statement::AccountStatement;
use axum::http::StatusCode;
use query::QueryError;

use super::Caller;
use super::accounts::Change;
use crate::error::ApiError;
use crate::state::State;

/// The answer to a statement about users.
pub(crate) enum AccountAnswer {
    Done,
    /// Names of users, and whether they administer the server.
    Users(Vec<(String, bool)>),
    /// Databases, and the rights on them.
    Grants(Vec<(String, String)>),
}

impl State {
    /// Does what a statement says, which only administrators of the server may.
    pub(crate) fn account_statement(
        &self,
        caller: &Caller,
        statement: &AccountStatement,
    ) -> Result<AccountAnswer, ApiError> {
        caller.require_server_admin()?;
        match statement {
            AccountStatement::Create { name, if_not_exists, .. } if self.user(name).is_ok() => {
                return if *if_not_exists {
                    Ok(AccountAnswer::Done)
                } else {
                    Err(ApiError::bad_data(format!("user \"{name}\" already exists")))
                };
            }
            AccountStatement::Create { name, password, is_server_admin, .. } => {
                let is_server_admin = Some(*is_server_admin);
                let change = Change { password: Some(password.clone()), is_server_admin, ..Change::default() };
                self.change_account(caller, name, change)?;
            }
            AccountStatement::Alter { name, password, is_server_admin } => {
                self.user(name)?;
                let (password, is_server_admin) = (password.clone(), *is_server_admin);
                self.change_account(caller, name, Change { password, is_server_admin, ..Change::default() })?;
            }
            AccountStatement::Drop { name, if_exists } => {
                if !self.remove_account(caller, name)? && !if_exists {
                    return Err(unknown(name));
                }
            }
            AccountStatement::Grant(change) => {
                let grants = Some(self.user(&change.name)?.with_rights(change));
                self.change_account(caller, &change.name, Change { grants, ..Change::default() })?;
            }
            AccountStatement::Revoke(change) => {
                let left = self.user(&change.name)?.without_rights(change).map_err(ApiError::bad_data)?;
                self.change_account(caller, &change.name, Change { grants: Some(left), ..Change::default() })?;
            }
            AccountStatement::Users => {
                let directory = self.sign_in.directory();
                let users =
                    directory.entries().into_iter().map(|entry| &entry.account).filter(|account| !account.is_token());
                let users = users.map(|account| (account.name.clone(), account.is_server_admin));
                return Ok(AccountAnswer::Users(users.collect()));
            }
            AccountStatement::Grants(name) => {
                let grants = self.user(name)?.grants;
                let shown = grants.iter().map(|grant| (grant.databases.to_string(), privilege(grant.rights)));
                return Ok(AccountAnswer::Grants(shown.collect()));
            }
        }
        Ok(AccountAnswer::Done)
    }

    fn user(&self, name: &str) -> Result<Account, ApiError> {
        let entry = self.sign_in.directory().get(name).cloned();
        entry.map(|entry| entry.account.clone()).ok_or_else(|| unknown(name))
    }
}

fn unknown(name: &str) -> ApiError {
    ApiError::bad_data(format!("user \"{name}\" does not exist"))
}

/// As InfluxDB calls rights, those that it does not have as they are written in grants.
fn privilege(rights: Rights) -> String {
    if rights == Rights::ALL { "ALL PRIVILEGES".to_owned() } else { rights.to_string().to_uppercase() }
}

/// An error of accounts as one of a statement.
pub(crate) fn statement_error(error: ApiError) -> QueryError {
    match error.status {
        StatusCode::FORBIDDEN => QueryError::Forbidden(error.message),
        StatusCode::BAD_REQUEST => QueryError::Invalid(error.message),
        _ => QueryError::Storage(error.message),
    }
}
