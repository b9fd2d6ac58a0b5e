//! Clients of a running server, whose warnings go to stderr.

use client::http::HttpClient;

fn print_warning(warning: &str) {
    eprintln!("thalweg: warning: {warning}");
}

pub(crate) fn client(url: &str) -> HttpClient {
    HttpClient::new(url).on_warning(print_warning)
}

/// Waits as long as it takes: for a backup, say.
pub(crate) fn patient_client(url: &str) -> HttpClient {
    HttpClient::with_timeout(url, None).on_warning(print_warning)
}
