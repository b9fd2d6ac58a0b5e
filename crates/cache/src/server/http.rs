//! The same over HTTP/1.1: `GET`, `PUT` and `DELETE` of `/v1/answers`, `/v1/stats`, `/health`. Bodies have a length; there are no chunks.

use std::collections::HashMap;
use std::io;

use super::Service;
use super::connections::{ANSWER_WORK_FACTOR, Peer};
use super::memcached::{Form, LINE_BYTES_MAX};
use super::wire::Wire;
use crate::{Key, Lookup, SetError, Span, formats::arrow, formats::json};

const HEADERS_MAX: usize = 100;

struct Reply {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Reply {
    fn text(status: &'static str, body: impl Into<String>) -> Self {
        let body: String = body.into();
        Self { status, headers: Vec::new(), content_type: "text/plain; charset=utf-8", body: body.into_bytes() }
    }

    fn json(body: Vec<u8>) -> Self {
        Self { status: "200 OK", headers: Vec::new(), content_type: "application/json", body }
    }
}

/// What a request's headers say that matters here.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a header")]
struct Head {
    body_bytes: usize,
    closes: bool,
    expects_continue: bool,
    is_chunked: bool,
    /// What the client signs in with.
    authorization: String,
    /// Answers are to be given as Arrow has them.
    accepts_arrow: bool,
    /// The body is something else than JSON.
    has_arrow: bool,
}

/// Answers one request, whose first line was read. Returns whether the connection stays open.
pub(super) fn serve<S: Peer>(service: &Service, wire: &mut Wire<S>, line: &str) -> io::Result<bool> {
    let head = read_head(wire, line.ends_with("1.0"))?;
    if let Some(token) = &service.options.token {
        let is_health = line.split(' ').nth(1) == Some("/health") && head.body_bytes == 0;
        if !is_health && !token.is_in(&head.authorization) {
            let mut reply = Reply::text("401 Unauthorized", "sign in with Authorization: Bearer TOKEN\n");
            reply.headers.push(("WWW-Authenticate", "Bearer".to_owned()));
            write(wire, &reply, true, false)?;
            return Ok(false);
        }
        if !is_health {
            wire.note_sign_in();
        }
    }
    if head.is_chunked || head.body_bytes > service.options.body_bytes_max {
        let reply = if head.is_chunked {
            Reply::text("411 Length Required", "send Content-Length instead of chunks\n")
        } else {
            let max = service.options.body_bytes_max;
            Reply::text("413 Content Too Large", format!("a body has {max} bytes at most\n"))
        };
        write(wire, &reply, true, false)?;
        return Ok(false);
    }
    if head.expects_continue {
        wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut share = service.bodies.share(service.options.bodies_bytes_max);
    let body = wire.bytes(head.body_bytes, &mut share);
    let body = body.and_then(|body| share.grow(body.len() * ANSWER_WORK_FACTOR).map(|()| body));
    let body = match body {
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
            write(wire, &unavailable(&error), true, false)?;
            return Ok(false);
        }
        body => body?,
    };
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let reply = route(service, (method, target), &head, &body);
    let reply = share.grow(reply.body.len()).map_or_else(|error| unavailable(&error), |()| reply);
    write(wire, &reply, head.closes, method == "HEAD")?;
    Ok(!head.closes)
}

fn unavailable(error: &io::Error) -> Reply {
    let mut reply = Reply::text("503 Service Unavailable", format!("{error}\n"));
    reply.headers.push(("Retry-After", "1".to_owned()));
    reply
}

fn read_head<S: Peer>(wire: &mut Wire<S>, is_old: bool) -> io::Result<Head> {
    let bad = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut head = Head { closes: is_old, ..Head::default() };
    for _ in 0..HEADERS_MAX {
        let line = wire.line(LINE_BYTES_MAX)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if line.is_empty() {
            return Ok(head);
        }
        let sent = String::from_utf8_lossy(&line);
        let line = sent.to_ascii_lowercase();
        let (name, value) = line.split_once(':').ok_or_else(|| bad("a header without a colon"))?;
        match (name, value.trim()) {
            ("authorization", _) => {
                sent.split_once(':').unwrap_or_default().1.trim().clone_into(&mut head.authorization);
            }
            ("content-length", value) => {
                head.body_bytes = value.parse().map_err(|_| bad("a length that is no number"))?;
            }
            ("connection", "close") => head.closes = true,
            ("expect", "100-continue") => head.expects_continue = true,
            ("accept", value) => {
                head.accepts_arrow = value.split([',', ';']).any(|one| one.trim() == arrow::MEDIA_TYPE);
            }
            ("content-type", value) => head.has_arrow = value == arrow::MEDIA_TYPE,
            ("transfer-encoding", value) => head.is_chunked = value != "identity",
            _ => {}
        }
    }
    Err(bad("too many headers"))
}

fn route(service: &Service, (method, target): (&str, &str), head: &Head, body: &[u8]) -> Reply {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameters: HashMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    match (method, path) {
        ("GET" | "HEAD", "/health") => Reply::text("200 OK", "ok\n"),
        ("GET" | "HEAD", "/v1/stats") => {
            let figures: serde_json::Map<String, serde_json::Value> =
                service.figures().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            Reply::json(serde_json::Value::Object(figures).to_string().into_bytes())
        }
        ("GET" | "HEAD" | "PUT" | "POST" | "DELETE", "/v1/answers") => match key_and_span(&parameters) {
            Ok(_) if head.has_arrow && !body.is_empty() => {
                Reply::text("415 Unsupported Media Type", "answers are set as JSON; they are given as Arrow, too\n")
            }
            Ok(what) if method == "GET" || method == "HEAD" => {
                get_answer(service, what, &parameters, head.accepts_arrow)
            }
            Ok(what) => changed(service, method, what, body),
            Err(message) => Reply::text("400 Bad Request", message + "\n"),
        },
        (_, "/health" | "/v1/stats" | "/v1/answers") => Reply::text("405 Method Not Allowed", "no such method here\n"),
        _ => Reply::text("404 Not Found", "there are /v1/answers, /v1/stats and /health\n"),
    }
}

fn key_and_span(parameters: &HashMap<String, String>) -> Result<(Key, Span), String> {
    let key = match (parameters.get("key"), parameters.get("statement")) {
        (Some(key), None) => Key::from_hex(key).ok_or("key is not forty hexadecimal digits")?,
        (None, Some(statement)) => Key::of_statement(statement),
        _ => {
            return Err(
                "give key (forty hexadecimal digits) or statement (the query without its time range)".to_owned()
            );
        }
    };
    let number = |name: &str| {
        let text = parameters.get(name).ok_or_else(|| format!("{name} is missing"))?;
        text.parse::<i64>().map_err(|error| format!("{name}={text}: {error}"))
    };
    let span = Span::new(number("start")?, number("end")?);
    if span.is_empty() { Err("the span is empty: it ends before end".to_owned()) } else { Ok((key, span)) }
}

/// What there is of an answer, in the form that is asked for.
fn get_answer(
    service: &Service,
    (key, span): (Key, Span),
    parameters: &HashMap<String, String>,
    accepts_arrow: bool,
) -> Reply {
    let Ok(wait_ms) = parameters.get("wait_ms").map_or(Ok(0), |text| text.parse()) else {
        return Reply::text("400 Bad Request", "wait_ms is not a number of milliseconds\n");
    };
    let partial = parameters.get("partial").is_some_and(|value| value == "true" || value == "1");
    let (word, answer, span) = match service.look_up(key, span, wait_ms, partial) {
        Lookup::Hit(answer) => ("hit", answer, span),
        Lookup::Partial { answer, span } => ("part", answer, span),
        Lookup::Miss => return Reply::text("404 Not Found", "not cached\n"),
    };
    let mut reply = Reply::json(Vec::new());
    reply.headers.push(("X-Cache", word.to_owned()));
    // Two forms of one answer have one address.
    reply.headers.push(("Vary", "Accept".to_owned()));
    if !accepts_arrow {
        return Reply { body: json::write(&answer, span), ..reply };
    }
    match arrow::write(&answer, span) {
        Ok(body) => Reply { body, content_type: arrow::MEDIA_TYPE, ..reply },
        Err(error) => Reply::text("500 Internal Server Error", format!("the answer as Arrow: {error}\n")),
    }
}

fn changed(service: &Service, method: &str, (key, span): (Key, Span), body: &[u8]) -> Reply {
    if method == "DELETE" {
        return match service.answers.delete(key, span) {
            Ok(_) => Reply::text("204 No Content", ""),
            Err(error) => Reply::text("500 Internal Server Error", format!("the cache's file: {error}\n")),
        };
    }
    match service.set(key, span, body, Form::Json) {
        Ok(()) => Reply::text("204 No Content", ""),
        Err(error @ SetError::Invalid(_)) => Reply::text("400 Bad Request", format!("{error}\n")),
        Err(error @ SetError::TooLarge(_)) => Reply::text("413 Content Too Large", format!("{error}\n")),
        Err(error @ SetError::Io(_)) => Reply::text("500 Internal Server Error", format!("{error}\n")),
    }
}

fn write<S: Peer>(wire: &mut Wire<S>, reply: &Reply, closes: bool, head_only: bool) -> io::Result<()> {
    let mut headers = reply.headers.clone();
    if !reply.status.starts_with("204") {
        headers.push(("Content-Type", reply.content_type.to_owned()));
        headers.push(("Content-Length", reply.body.len().to_string()));
    }
    if closes {
        headers.push(("Connection", "close".to_owned()));
    }
    let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let mut bytes = format!("HTTP/1.1 {}\r\n{}\r\n", reply.status, lines.concat()).into_bytes();
    if !head_only && !reply.status.starts_with("204") {
        bytes.extend_from_slice(&reply.body);
    }
    wire.write(&bytes)
}
