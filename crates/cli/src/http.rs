//! Clients of a running server, whose warnings go to stderr.

use client::http::HttpClient;

fn print_warning(warning: &str) {
    eprintln!("thalweg: warning: {warning}");
}

pub(crate) fn client(url: &str) -> HttpClient {
    signed_in(HttpClient::new(url).on_warning(print_warning))
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

/// Waits as long as it takes: for a backup, say.
pub(crate) fn patient_client(url: &str) -> HttpClient {
    signed_in(HttpClient::with_timeout(url, None).on_warning(print_warning))
}
