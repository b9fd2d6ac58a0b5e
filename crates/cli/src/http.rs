//! Clients of a running server, whose warnings go to stderr.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use client::http::{ANSWER_TIMEOUT, HttpClient};
use client::tls::TlsOptions;

/// Where a running database listens unless told otherwise.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:7780";

/// A running server, and how it is reached.
#[derive(Debug, Args)]
pub(crate) struct ServerFlags {
    /// Where the database listens
    #[arg(long, global = true, env = "THALWEG_URL", default_value = DEFAULT_URL)]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) tls: TlsFlags,
}

/// TLS to a server.
#[derive(Debug, Clone, Args)]
pub(crate) struct TlsFlags {
    /// File of the authorities (PEM) that are trusted for https [default: those of the system]
    #[arg(long, global = true, env = "THALWEG_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// File of the certificate (PEM) to sign in with
    #[arg(long, global = true, env = "THALWEG_CLIENT_CERT", value_name = "FILE")]
    client_cert: Option<PathBuf>,
    /// File of its key (PEM)
    #[arg(long, global = true, env = "THALWEG_CLIENT_KEY", value_name = "FILE")]
    client_key: Option<PathBuf>,
}

impl ServerFlags {
    /// A client that waits minutes for an answer.
    pub(crate) fn client(&self) -> Result<HttpClient, String> {
        self.with_timeout(Some(ANSWER_TIMEOUT))
    }

    /// Waits as long as it takes: for a backup, say.
    pub(crate) fn patient_client(&self) -> Result<HttpClient, String> {
        self.with_timeout(None)
    }

    fn with_timeout(&self, timeout: Option<Duration>) -> Result<HttpClient, String> {
        let TlsFlags { ca_file, client_cert, client_key } = &self.tls;
        let tls = TlsOptions::from_files(ca_file.as_deref(), client_cert.as_deref(), client_key.as_deref())?;
        let client = HttpClient::with_timeout(&self.url, timeout).on_warning(print_warning).with_tls(&tls)?;
        Ok(signed_in(client))
    }
}

fn print_warning(warning: &str) {
    eprintln!("thalweg: warning: {warning}");
}

/// With the token of the environment, if there is one: `THALWEG_TOKEN`, or the file that `THALWEG_TOKEN_FILE` names.
fn signed_in(client: HttpClient) -> HttpClient {
    let of_file = || {
        let path = std::env::var_os("THALWEG_TOKEN_FILE")?;
        let read = std::fs::read_to_string(&path);
        read.inspect_err(|error| eprintln!("thalweg: THALWEG_TOKEN_FILE {}: {error}", path.display())).ok()
    };
    let token = std::env::var("THALWEG_TOKEN").ok().filter(|token| !token.is_empty()).or_else(of_file);
    match token {
        Some(token) => client.with_token(&token),
        None => client,
    }
}

/// Refuses a database that is not there: a misspelt name would answer as if there were no data.
pub(crate) fn check_database(client: &HttpClient, name: &str) -> Result<(), String> {
    if name == model::DEFAULT_DATABASE {
        return Ok(());
    }
    let known = client.api("/api/v1/admin/databases", &[])?;
    let names: Vec<&str> = known.as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
    if names.contains(&name) {
        return Ok(());
    }
    Err(format!("there is no database {name:?}; there are: {}", names.join(", ")))
}
