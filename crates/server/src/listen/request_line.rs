//! Request lines as Go's server takes them: bytes that hyper refuses in a target are percent-encoded before it reads them, in the
//! request line alone, and only where it is certain that one begins. What hyper still cannot read is answered with a reason.

use std::fmt::Write;
use std::io;

use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use tokio::io::AsyncWriteExt;

use crate::http::json;
use crate::listen::socket::Socket;
use crate::wire::linger;

/// Where the next request line begins among the bytes that hyper gets. Positions are counted from a connection's waking, when
/// a request begins for certain.
#[derive(Debug)]
pub(super) struct Boundary {
    /// Bytes that hyper got.
    passed: u64,
    /// Where the request at hand begins; `None` once that is not certain, because of a chunked body, or requests sent
    /// before the answer to one before them.
    begins_at: Option<u64>,
    /// Its line has begun and has no end yet.
    in_line: bool,
}

impl Default for Boundary {
    fn default() -> Self {
        Self { passed: 0, begins_at: Some(0), in_line: false }
    }
}

impl Boundary {
    /// Encodes the part of a request line in bytes that came; `None` if they are fine as they are.
    pub(super) fn encode(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut start = 0;
        if !self.in_line {
            if self.begins_at != Some(self.passed) {
                self.passed += bytes.len() as u64;
                return None;
            }
            // Line ends before a request are of no meaning.
            start = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.begins_at = Some(self.passed + start as u64);
            self.in_line = start < bytes.len();
        }
        let (blank, rest) = bytes.split_at_checked(start).unwrap_or_default();
        let end = memchr::memchr(b'\n', rest);
        self.in_line &= end.is_none();
        let (line, after) = rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or_default();
        let is_refused = line.iter().copied().any(is_encoded);
        let encoded = is_refused.then(|| [blank, &percent_encoded(line), after].concat());
        self.passed += encoded.as_ref().map_or(bytes.len(), Vec::len) as u64;
        encoded
    }

    /// A request was parsed that has so many bytes, if that is known: the next one begins after them.
    pub(super) fn note_request(&mut self, request_bytes: Option<u64>) {
        self.in_line = false;
        let ends_at = self.begins_at.zip(request_bytes).and_then(|(begin, bytes)| begin.checked_add(bytes));
        self.begins_at = ends_at.filter(|end| *end >= self.passed);
    }
}

/// Returns whether hyper does not take a byte in a target, or takes the rest for a fragment.
const fn is_encoded(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'#' | b'`' | 0x80..)
}

fn percent_encoded(line: &[u8]) -> Vec<u8> {
    let mut text = String::with_capacity(line.len() + 32);
    for byte in line {
        if is_encoded(*byte) {
            // Writing to memory does not fail.
            let _ = write!(text, "%{byte:02X}");
        } else {
            text.push(char::from(*byte));
        }
    }
    text.into_bytes()
}

/// The target without empty segments; `None` if it has none.
pub(super) fn without_double_slashes(uri: &Uri) -> Option<Uri> {
    if !uri.path().contains("//") {
        return None;
    }
    let mut path = String::with_capacity(uri.path().len());
    for character in uri.path().chars() {
        if character != '/' || !path.ends_with('/') {
            path.push(character);
        }
    }
    if let Some(query) = uri.query() {
        path.push('?');
        path.push_str(query);
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

/// Answers what hyper could not read, and closes.
pub(super) async fn refuse(mut stream: Socket, error: &hyper::Error) -> io::Result<()> {
    let (status, reason) = if error.is_parse_too_large() {
        ("431 Request Header Fields Too Large", "the request's head is too large".to_owned())
    } else {
        ("400 Bad Request", format!("this is not a request of HTTP/1: {error}"))
    };
    let body = format!(r#"{{"status":"error","errorType":"bad_data","error":{}}}"#, json::text(&reason));
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    linger(stream).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What hyper gets of pieces.
    fn encoded(boundary: &mut Boundary, pieces: &[&[u8]]) -> String {
        let got = pieces.iter().flat_map(|piece| boundary.encode(piece).unwrap_or_else(|| piece.to_vec()));
        String::from_utf8(got.collect()).unwrap()
    }

    #[test]
    fn only_the_request_line_is_encoded_however_it_is_cut() {
        let request = "\r\nGET /q?a=\"b\"&c=<ü> HTTP/1.1\r\nX: \"<>\r\n\r\n\"body\"".as_bytes();
        let expected = "\r\nGET /q?a=%22b%22&c=%3C%C3%BC%3E HTTP/1.1\r\nX: \"<>\r\n\r\n\"body\"";
        for cut in 0..request.len() {
            let (front, back) = request.split_at(cut);
            let mut boundary = Boundary::default();
            assert_eq!(encoded(&mut boundary, &[front, back]), expected, "{cut}");
        }
    }

    #[test]
    fn the_next_line_begins_where_the_request_ended() {
        let mut boundary = Boundary::default();
        let head = "POST /a HTTP/1.1\r\n\r\n";
        assert_eq!(encoded(&mut boundary, &[head.as_bytes()]), head);
        boundary.note_request(Some(head.len() as u64 + 5));
        // The body looks like a request line and is none.
        assert_eq!(encoded(&mut boundary, &[b"GET \"", b"GET /\" \n"]), "GET \"GET /%22 \n");
    }

    #[test]
    fn what_is_not_certain_is_left_alone() {
        for (sent, request_bytes) in [("GET /aa HTTP/1.1\r\n\r\nG", Some(20)), ("GET /aa HTTP/1.1\r\n\r\n", None)] {
            let mut boundary = Boundary::default();
            boundary.encode(sent.as_bytes());
            boundary.note_request(request_bytes);
            assert_eq!(encoded(&mut boundary, &[b"GET /\" HTTP/1.1\r\n"]), "GET /\" HTTP/1.1\r\n");
        }
    }

    #[test]
    fn slashes_are_single() {
        let without = |target: &str| {
            without_double_slashes(&target.parse().unwrap()).map(|uri| uri.to_string()).unwrap_or_default()
        };
        assert_eq!(without("//api///v1/query?a=//"), "/api/v1/query?a=//");
        assert_eq!(without("/api/v1/query?a=//"), "");
    }
}
