//! `CREATE|ALTER|DROP ROLE|USER`, `GRANT` and `REVOKE`: statements about users, which the server runs.
//!
//! The grammar has only some of their forms; they are taken out of the tokens before, and found again by the place of the first name.

use std::collections::HashMap;

use access::grant::{Right, Rights};
use access::statement::{AccountStatement, RightsChange};
use sqlparser::tokenizer::Token;
use zeroize::Zeroizing;

use super::cursor::{Cursor, StandIn};
use crate::error::SqlError;

/// By the line and column of a name.
pub(crate) type AccountsByPlace = HashMap<(u64, u64), AccountStatement>;

/// Options that change nothing here: every user signs in, and none has these rights of Postgres.
const WITHOUT_MEANING: [&str; 7] =
    ["login", "inherit", "nosuperuser", "nocreatedb", "nocreaterole", "noreplication", "nobypassrls"];

/// The options of a role.
#[derive(Default)]
struct Options {
    password: Option<Zeroizing<String>>,
    is_server_admin: Option<bool>,
}

/// Looks at the beginning of a statement; `None` if it is none of these.
pub(super) fn take(cursor: &Cursor<'_>) -> Result<Option<StandIn<AccountStatement>>, SqlError> {
    let mut at = *cursor;
    let mut verb = None;
    for word in ["create", "alter", "drop"] {
        if ["role", "user"].iter().any(|kind| at.take(&[word, kind])) {
            verb = Some(word);
        }
    }
    let statement = match verb {
        Some("create") => create(&mut at)?,
        Some("alter") => alter(&mut at)?,
        Some(_) => {
            let if_exists = at.take(&["if", "exists"]);
            AccountStatement::Drop { name: at.name()?, if_exists }
        }
        None if at.take(&["grant"]) => AccountStatement::Grant(rights(&mut at, "to")?),
        None if at.take(&["revoke"]) => AccountStatement::Revoke(rights(&mut at, "from")?),
        None => return Ok(None),
    };
    cursor.stand_in(&at, "role", statement)
}

fn create(at: &mut Cursor<'_>) -> Result<AccountStatement, SqlError> {
    let if_not_exists = at.take(&["if", "not", "exists"]);
    let name = at.name()?;
    let options = options(at)?;
    let Some(password) = options.password else {
        return at.error("PASSWORD '…', without which a user cannot sign in");
    };
    let is_server_admin = options.is_server_admin == Some(true);
    Ok(AccountStatement::Create { name, password, is_server_admin, if_not_exists })
}

fn alter(at: &mut Cursor<'_>) -> Result<AccountStatement, SqlError> {
    let name = at.name()?;
    match options(at)? {
        Options { password: None, is_server_admin: None } => at.error("PASSWORD '…', SUPERUSER or NOSUPERUSER"),
        Options { password, is_server_admin } => Ok(AccountStatement::Alter { name, password, is_server_admin }),
    }
}

fn options(at: &mut Cursor<'_>) -> Result<Options, SqlError> {
    let mut options = Options::default();
    at.take(&["with"]);
    loop {
        if at.take(&["password"]) || at.take(&["encrypted", "password"]) {
            let password = Zeroizing::new(at.text()?);
            // As psql's \password sends it: a verifier of Postgres alone.
            if password.starts_with("SCRAM-SHA-256$") || password.starts_with("md5") && password.len() == 35 {
                let message = "a password that is hashed already cannot be taken: send ALTER USER … PASSWORD '…' with the password itself";
                return Err(SqlError::Invalid(message.to_owned()));
            }
            options.password = Some(password);
        } else if at.take(&["superuser"]) {
            options.is_server_admin = Some(true);
        } else {
            if at.at(&["nosuperuser"]) {
                options.is_server_admin = Some(false);
            }
            if !WITHOUT_MEANING.iter().any(|option| at.take(&[option])) {
                return Ok(options);
            }
        }
    }
}

/// `SELECT, INSERT ON DATABASE a, b TO name`
fn rights(at: &mut Cursor<'_>, direction: &str) -> Result<RightsChange, SqlError> {
    let mut rights = Rights::default();
    loop {
        let words = [
            ("select", Rights::from_rights(&[Right::Read])),
            ("insert", Rights::from_rights(&[Right::Write])),
            ("create", Rights::from_rights(&[Right::Create])),
            ("delete", Rights::from_rights(&[Right::Admin])),
            ("all", Rights::ALL),
        ];
        match words.iter().find(|(word, _)| at.take(&[word])) {
            Some((_, more)) => rights = rights.with(*more),
            None => return at.error("SELECT, INSERT, CREATE, DELETE or ALL"),
        }
        at.take(&["privileges"]);
        if at.symbol(&Token::Comma).is_err() {
            break;
        }
    }
    if !at.take(&["on", "database"]) {
        return at.error("ON DATABASE: rights are on whole databases");
    }
    let mut databases = vec![at.name()?];
    while at.symbol(&Token::Comma).is_ok() {
        databases.push(at.name()?);
    }
    if !at.take(&[direction]) {
        return at.error(&direction.to_uppercase());
    }
    Ok(RightsChange { name: at.name()?, rights, databases })
}

#[cfg(test)]
mod tests {
    use crate::syntax::parse::parse;

    #[test]
    fn statements_about_users_are_read() {
        let read = |text: &str| match parse(text) {
            Ok(parsed) => {
                assert!(parsed.first_change().is_some(), "{text}");
                parsed.account_statement(0).map_or("none".to_owned(), |statement| format!("{statement:?}"))
            }
            Err(error) => error.to_string(),
        };
        for (text, expected) in [
            ("CREATE USER a PASSWORD 'x'", "CREATE USER \"a\" WITH PASSWORD '[REDACTED]'"),
            (
                "create role if not exists \"A b\" with login superuser encrypted password 'x'; SELECT 1",
                "CREATE USER \"A b\" WITH PASSWORD '[REDACTED]' WITH ALL PRIVILEGES",
            ),
            ("ALTER USER a WITH PASSWORD 'y'", "SET PASSWORD FOR \"a\" = '[REDACTED]'"),
            ("ALTER ROLE a NOSUPERUSER", "REVOKE ALL FROM \"a\""),
            ("DROP USER IF EXISTS a;", "DROP USER \"a\""),
            ("GRANT SELECT, INSERT ON DATABASE d, e TO a", "GRANT READ+WRITE ON \"d\", \"e\" TO \"a\""),
            ("REVOKE ALL PRIVILEGES ON DATABASE d FROM a", "REVOKE ALL ON \"d\" FROM \"a\""),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        for (text, part) in [
            ("CREATE USER a", "PASSWORD"),
            ("CREATE ROLE a PASSWORD 'x' CREATEDB", "the end of the statement"),
            ("GRANT SELECT ON t TO a", "ON DATABASE"),
            ("GRANT pg_monitor TO a", "SELECT, INSERT"),
            ("ALTER USER a PASSWORD 'SCRAM-SHA-256$4096:x'", "hashed already"),
            ("ALTER ROLE a SET timezone = 'UTC'", "PASSWORD"),
        ] {
            assert!(parse(text).is_err_and(|error| error.to_string().contains(part)), "{text}");
        }
    }
}
