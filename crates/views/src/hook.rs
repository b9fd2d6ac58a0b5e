//! Requests to receivers over HTTP, and the signatures of hooks.

use std::fmt::Write;

use platform::network::retry::{Verdict, retry_after_ms, verdict};
use platform::network::{HttpClient, HttpRequest};
use ring::hmac;

use crate::delivery::queue::{Chunk, Payload};
use crate::json;

/// The header that has the signature of a hook's body.
pub const SIGNATURE_HEADER: &str = "X-Thalweg-Signature";

/// What requests are sent by.
const USER_AGENT: &str = concat!("Thalweg/", env!("CARGO_PKG_VERSION"));

/// Bytes that are read of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

const NS_PER_MS: i64 = 1_000_000;

/// `sha256=` and the HMAC-SHA-256 of a body by a key, in hexadecimal digits.
pub fn signature(secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut out = String::from("sha256=");
    for byte in hmac::sign(&key, body).as_ref() {
        // Writing into a string does not fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// A hook, and the trigger that calls it.
#[derive(Clone, Copy)]
pub(crate) struct Hook<'a> {
    pub(crate) trigger: &'a str,
    pub(crate) database: &'a str,
    pub(crate) table: &'a str,
    pub(crate) url: &'a str,
    pub(crate) secret: Option<&'a str>,
}

/// The request of a trigger's rows.
pub(crate) fn request(hook: Hook<'_>, chunk: &Chunk) -> HttpRequest {
    let Hook { trigger, database, table, url, secret } = hook;
    let sequence = chunk.last_sequence();
    let mut body = format!(
        "{{\"trigger\":{},\"database\":{},\"table\":{},\"sequence\":{sequence},\"rows\":[",
        json::text(trigger),
        json::text(database),
        json::text(table),
    );
    let rows = chunk.items.iter().filter_map(|item| match &item.payload {
        Payload::Text(text) => Some(text),
        Payload::Row(..) => None,
    });
    for (index, row) in rows.enumerate() {
        body.push_str(if index == 0 { "" } else { "," });
        body.push_str(row);
    }
    body.push_str("]}");
    let signed = secret.map(|secret| signature(secret, body.as_bytes()));
    let request = HttpRequest { method: "POST", url: url.to_owned(), headers: Vec::new(), body: body.into_bytes() }
        .with_header("Content-Type", "application/json")
        .with_header("X-Thalweg-Trigger", header_text(trigger))
        .with_header("X-Thalweg-Sequence", sequence.to_string());
    match signed {
        Some(signed) => request.with_header(SIGNATURE_HEADER, signed),
        None => request,
    }
}

/// A name as a header may have it.
fn header_text(name: &str) -> String {
    name.chars().map(|character| if character.is_ascii_graphic() { character } else { '_' }).collect()
}

/// The verdict on a request, with the status of the answer if there was one.
pub(crate) struct Answer {
    pub(crate) status: Option<u16>,
    pub(crate) verdict: Verdict,
}

/// Sends a request and judges the answer. Callers bound the time.
pub(crate) async fn post(client: &dyn HttpClient, request: HttpRequest, now_ns: i64) -> Answer {
    let retry = |reason: String| Verdict::Retry { after_ms: None, reason };
    let mut response = match client.send(request.with_header("User-Agent", USER_AGENT)).await {
        Ok(response) => response,
        Err(error) => return Answer { status: None, verdict: retry(error.to_string()) },
    };
    let unix_ms = |text: &str| Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond());
    let after_ms = retry_after_ms(response.header("retry-after"), now_ms(now_ns), unix_ms);
    // The connection is used again once the answer is read.
    let body = response.read_body(ANSWER_BYTES_MAX).await.unwrap_or_default();
    let verdict = match (response.status, first_line(&String::from_utf8_lossy(&body))) {
        // It took too long, as far as the receiver is concerned.
        (408, line) => retry(format!("HTTP status 408: {line}")),
        (300..400, _) => Verdict::Refused(format!("HTTP status {}: redirections are not followed", response.status)),
        (status, line) => verdict(status, after_ms, &line, true),
    };
    Answer { status: Some(response.status), verdict }
}

/// The beginning of an answer, as logs may have it.
fn first_line(body: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let line = body.lines().next().unwrap_or_default();
    line.chars().take(CHARACTERS_MAX).filter(|character| !character.is_control()).collect()
}

const fn now_ms(now_ns: i64) -> i64 {
    now_ns / NS_PER_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2.
    #[test]
    fn signatures_are_hmac_sha_256() {
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signature("Jefe", b"what do ya want for nothing?"), expected);
    }
}
