//! `thalweg token` and `thalweg user`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::show::table;
use crate::http::ServerFlags;
use crate::units::sizes::size_bytes;

const TOKEN_EXAMPLES: &str = "Examples:
  thalweg token create grafana --grant read:metrics
  thalweg token create telegraf --grant write+create:telegraf --expires 90d
  thalweg token create team-a --grant 'read:shared{team=\"a\"}' --queries-max 4
  thalweg token create ci --server-admin
  thalweg token list
  thalweg token revoke grafana

A grant is RIGHTS:DATABASE, with label matchers if only some series are meant. Rights: read, write, create, admin, all, joined by +.
A database is a name, or the beginning of names with * at its end. The command signs in with THALWEG_TOKEN or the file THALWEG_TOKEN_FILE.";

const USER_EXAMPLES: &str = "Examples:
  thalweg user create alice --grant all:metrics       asks for the password
  thalweg user create telegraf --certificate telegraf.example --grant write+create:telegraf    asks for none
  thalweg user password alice
  thalweg user list
  thalweg user remove alice

Without a terminal the password is the first line of stdin.";

/// Tokens, with which programs sign in
#[derive(Debug, Args)]
#[command(after_help = TOKEN_EXAMPLES)]
pub(crate) struct TokenFlags {
    #[command(subcommand)]
    action: TokenAction,
    #[command(flatten)]
    common: CommonFlags,
}

/// Users, who sign in with passwords
#[derive(Debug, Args)]
#[command(after_help = USER_EXAMPLES)]
pub(crate) struct UserFlags {
    #[command(subcommand)]
    action: UserAction,
    #[command(flatten)]
    common: CommonFlags,
}

#[derive(Debug, Args)]
struct CommonFlags {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, Subcommand)]
enum TokenAction {
    /// Make a token, which is shown once
    Create(RightsFlags),
    /// Change what a token may do; what is not named stays as it is
    Alter(RightsFlags),
    /// Make a new secret for a token: the old one does not work any more
    Renew {
        /// Its name
        name: String,
    },
    /// List tokens and users
    List,
    /// Remove a token
    Revoke {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Subcommand)]
enum UserAction {
    /// Make a user
    Create(RightsFlags),
    /// Change what a user may do; what is not named stays as it is
    Alter(RightsFlags),
    /// Set a user's password
    Password {
        /// Its name
        name: String,
    },
    /// List tokens and users
    List,
    /// Remove a user
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
struct RightsFlags {
    /// Its name: for Postgres's clients the user
    name: String,
    /// Rights on databases, such as read:metrics; may be repeated
    #[arg(long = "grant", value_name = "GRANT")]
    grants: Vec<String>,
    /// Name of a client certificate that signs it in, too: a subject alternative name (DNS names in lower case, e-mail addresses, URIs) or the
    /// common name; may be repeated
    #[arg(long = "certificate", value_name = "NAME")]
    certificates: Vec<String>,
    /// It may do everything, also with accounts, settings and backups
    #[arg(long)]
    server_admin: bool,
    /// After how long it does not work any more: 90d, never
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
    #[command(flatten)]
    quota: QuotaFlags,
}

/// Limits of an account or a database.
#[derive(Debug, Args)]
pub(super) struct QuotaFlags {
    /// Requests a second [default: any number]
    #[arg(long, value_name = "NUMBER")]
    requests_per_s: Option<u64>,
    /// Written samples a second [default: any number]
    #[arg(long, value_name = "NUMBER")]
    samples_per_s: Option<u64>,
    /// Bytes of bodies a second [default: any number]
    #[arg(long, value_name = "NUMBER")]
    bytes_per_s: Option<u64>,
    /// Series an hour that were not there before [default: any number]
    #[arg(long, value_name = "NUMBER")]
    new_series_per_hour: Option<u64>,
    /// Queries that run at the same time [default: any number]
    #[arg(long, value_name = "NUMBER")]
    queries_max: Option<u64>,
    /// Bytes of memory that its queries hold at the same time, such as 256MiB [default: any number]
    #[arg(long, value_name = "BYTES", value_parser = size_bytes)]
    query_memory_bytes_max: Option<u64>,
}

impl QuotaFlags {
    /// The limits that are named, as the API takes them.
    pub(super) fn body(&self) -> Map<String, Value> {
        [
            ("requests_per_s", self.requests_per_s),
            ("samples_per_s", self.samples_per_s),
            ("bytes_per_s", self.bytes_per_s),
            ("new_series_per_hour", self.new_series_per_hour),
            ("queries_max", self.queries_max),
            ("query_memory_bytes_max", self.query_memory_bytes_max),
        ]
        .into_iter()
        .filter_map(|(name, limit)| Some((name.to_owned(), limit?.into())))
        .collect()
    }
}

impl RightsFlags {
    /// The flags as the API takes them.
    fn body(&self) -> Map<String, Value> {
        let mut body = Map::new();
        if !self.grants.is_empty() {
            body.insert("grants".to_owned(), self.grants.clone().into());
        }
        if !self.certificates.is_empty() {
            body.insert("certificates".to_owned(), self.certificates.clone().into());
        }
        if self.server_admin {
            body.insert("server_admin".to_owned(), true.into());
        }
        body.extend(self.expires.as_ref().map(|expires| ("expires".to_owned(), Value::from(expires.as_str()))));
        let quota = self.quota.body();
        if !quota.is_empty() {
            body.insert("quota".to_owned(), quota.into());
        }
        body
    }
}

const ACCOUNTS: &str = "/api/v1/admin/accounts";

pub(crate) fn run_token(flags: &TokenFlags) -> Result<ExitCode, String> {
    let common = &flags.common;
    match &flags.action {
        TokenAction::Create(rights) => {
            common.refuse_known(&rights.name)?;
            let mut body = rights.body();
            // Also one with a certificate.
            body.insert("renew".to_owned(), true.into());
            common.put(&rights.name, body)
        }
        TokenAction::Alter(rights) => {
            common.check_known(&rights.name)?;
            common.put(&rights.name, rights.body())
        }
        TokenAction::Renew { name } => {
            common.check_known(name)?;
            common.put(name, [("renew".to_owned(), true.into())].into_iter().collect())
        }
        TokenAction::List => common.list(),
        TokenAction::Revoke { name } => common.remove(name),
    }
}

pub(crate) fn run_user(flags: &UserFlags) -> Result<ExitCode, String> {
    let common = &flags.common;
    let with_password = |mut body: Map<String, Value>| -> Result<Map<String, Value>, String> {
        body.insert("password".to_owned(), read_password()?.into());
        Ok(body)
    };
    match &flags.action {
        UserAction::Create(rights) => {
            common.refuse_known(&rights.name)?;
            // One that signs in by a certificate needs no password.
            let body = rights.body();
            let body = if rights.certificates.is_empty() { with_password(body)? } else { body };
            common.put(&rights.name, body)
        }
        UserAction::Alter(rights) => {
            common.check_known(&rights.name)?;
            common.put(&rights.name, rights.body())
        }
        UserAction::Password { name } => {
            common.check_known(name)?;
            common.put(name, with_password(Map::new())?)
        }
        UserAction::List => common.list(),
        UserAction::Remove { name } => common.remove(name),
    }
}

/// A password from the terminal, or the first line of stdin.
fn read_password() -> Result<String, String> {
    let (stdin, mut stderr) = (io::stdin(), io::stderr());
    if stdin.is_terminal() {
        let _ = write!(stderr, "Password (it is shown as you type): ");
        let _ = stderr.flush();
    }
    let mut line = String::new();
    stdin.lock().read_line(&mut line).map_err(|error| format!("cannot read the password: {error}"))?;
    match line.trim_end_matches(['\r', '\n']) {
        "" => Err("the password is empty".to_owned()),
        password => Ok(password.to_owned()),
    }
}

impl CommonFlags {
    fn accounts(&self) -> Result<Vec<Value>, String> {
        let listed = self.server.client()?.api(ACCOUNTS, &[])?;
        Ok(listed.as_array().cloned().unwrap_or_default())
    }

    fn is_known(&self, name: &str) -> Result<bool, String> {
        Ok(self.accounts()?.iter().any(|account| account["name"] == name))
    }

    fn refuse_known(&self, name: &str) -> Result<(), String> {
        if self.is_known(name)? {
            Err(format!("there is an account {name} already: alter it, or choose another name"))
        } else {
            Ok(())
        }
    }

    fn check_known(&self, name: &str) -> Result<(), String> {
        if self.is_known(name)? { Ok(()) } else { Err(format!("there is no account {name}")) }
    }

    fn put(&self, name: &str, body: Map<String, Value>) -> Result<ExitCode, String> {
        let body = Value::from(body).to_string();
        let made = self.server.client()?.send_api("PUT", &format!("{ACCOUNTS}/{name}"), &[], body.as_bytes())?;
        if self.json {
            say!("{made}");
        } else if let Some(token) = made["token"].as_str() {
            eprintln!("thalweg: this token is shown once: keep it in a secret place");
            say!("{token}");
        } else {
            print(&[made]);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn list(&self) -> Result<ExitCode, String> {
        let accounts = self.accounts()?;
        if self.json {
            say!("{}", Value::from(accounts));
        } else {
            print(&accounts);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn remove(&self, name: &str) -> Result<ExitCode, String> {
        self.server.client()?.send_api("DELETE", &format!("{ACCOUNTS}/{name}"), &[], b"")?;
        say!("{name} may not sign in any more");
        Ok(ExitCode::SUCCESS)
    }
}

fn print(accounts: &[Value]) {
    let mut rows = table(&["name", "kind", "rights", "expires", "last used"]);
    for account in accounts {
        let text = |name: &str| account[name].as_str().unwrap_or("never").to_owned();
        let grants: Vec<&str> = account["grants"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let admin = if account["server_admin"] == true { "server admin " } else { "" };
        let rights = format!("{admin}{}", grants.join(" "));
        rows.add_row([text("name"), text("kind"), rights, text("expires"), text("last_used")]);
    }
    say!("{rows}");
}
