//! One connection: commands and their replies.

use std::fmt::Write as _;
use std::io;
use std::sync::atomic::Ordering;

use super::Token;
use super::connections::{ANSWER_WORK_FACTOR, Peer, Share};
use super::items::Outcome;
use super::memcached::{Command, Form, LINE_BYTES_MAX, LineError, is_http, parse};
use super::wire::Wire;
use super::{Service, http};
use crate::{Key, Lookup, Request, SetError, Span, Stats, formats::columns, formats::json};

/// Bytes of a reply that are sent before more items are added.
const REPLY_BYTES: usize = 64 << 10;

/// Bytes of a user and a token.
const SIGN_IN_BYTES_MAX: usize = 4 << 10;

/// Serves a connection to its end.
pub(super) fn serve<S: Peer>(service: &Service, wire: &mut Wire<S>) -> io::Result<()> {
    let mut is_known = service.options.token.is_none();
    loop {
        wire.next_request();
        let Some(line) = wire.line(LINE_BYTES_MAX)? else { return Ok(()) };
        let Ok(line) = std::str::from_utf8(&line) else {
            wire.write(b"CLIENT_ERROR a command is UTF-8 text\r\n")?;
            continue;
        };
        if is_http(line) {
            if http::serve(service, wire, line)? {
                continue;
            }
            return Ok(());
        }
        if let Some(token) = service.options.token.as_ref().filter(|_| !is_known) {
            is_known = sign_in(service, wire, (line, token))?;
            if is_known {
                wire.note_sign_in();
                continue;
            }
            return Ok(());
        }
        let reply = match parse(line) {
            Ok(Command::Quit) => return Ok(()),
            Ok(command) => {
                let mut share = service.bodies.share(service.options.bodies_bytes_max);
                match run(service, wire, command, &mut share) {
                    // The rest of the body is still to come.
                    Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                        return wire.write(&server_error(&error));
                    }
                    reply => wire.write(&reply?)?,
                }
                continue;
            }
            Err(LineError::Unknown) => b"ERROR\r\n".to_vec(),
            Err(LineError::Bad(what, bytes)) => {
                skip_body(service, wire, bytes)?;
                format!("CLIENT_ERROR {what}\r\n").into_bytes()
            }
        };
        wire.write(&reply)?;
    }
}

/// The first command of a client that has to sign in: as memcached has it, one that stores, under any key, a user and the token with a space
/// between them. Returns whether it has; if not, the connection ends.
fn sign_in<S: Peer>(service: &Service, wire: &mut Wire<S>, (line, token): (&str, &Token)) -> io::Result<bool> {
    let Ok(Command::Store { bytes: bytes @ ..=SIGN_IN_BYTES_MAX, .. }) = parse(line) else {
        wire.write(b"CLIENT_ERROR unauthenticated\r\n")?;
        return Ok(false);
    };
    let mut share = service.bodies.share(service.options.bodies_bytes_max);
    let body = body(service, wire, bytes, &mut share)?.unwrap_or_default();
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let is_right = text.split_once(' ').is_some_and(|(_, password)| token.is(password.trim()));
    wire.write(if is_right { b"STORED\r\n".as_slice() } else { b"CLIENT_ERROR authentication failure\r\n" })?;
    Ok(is_right)
}

/// A body that follows a line which was refused is read all the same, so that it is not taken for commands.
fn skip_body<S: Peer>(service: &Service, wire: &mut Wire<S>, bytes: Option<usize>) -> io::Result<()> {
    match bytes {
        Some(bytes) if bytes <= service.options.body_bytes_max => wire.skip(bytes + 2),
        Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "a body that is too long")),
        None => Ok(()),
    }
}

/// Runs a command; what its body and its reply take is taken of the share.
fn run<S: Peer>(
    service: &Service,
    wire: &mut Wire<S>,
    command: Command<'_>,
    share: &mut Share<'_>,
) -> io::Result<Vec<u8>> {
    let now_s = service.now_s();
    let (quiet, reply) = match command {
        Command::Get { keys, with_version } => (false, get(service, wire, &keys, with_version)?),
        Command::Store { how, key, flags, expiry, bytes, quiet } => {
            let Some(body) = body(service, wire, bytes, share)? else {
                return Ok(b"CLIENT_ERROR bad data chunk\r\n".to_vec());
            };
            let stored = service.items.lock().store(how, key.as_bytes(), flags, expiry, &body, now_s);
            let reply = match stored {
                Outcome::Done => "STORED\r\n",
                Outcome::Refused => "NOT_STORED\r\n",
                Outcome::Changed => "EXISTS\r\n",
                Outcome::Missing => "NOT_FOUND\r\n",
            };
            (quiet, reply.into())
        }
        Command::Delete { key, quiet } => {
            (quiet, done_or_missing(service.items.lock().remove(key.as_bytes()), "DELETED"))
        }
        Command::Touch { key, expiry, quiet } => {
            (quiet, done_or_missing(service.items.lock().touch(key.as_bytes(), expiry, now_s), "TOUCHED"))
        }
        Command::Add { key, by, is_up, quiet } => {
            let reply = match service.items.lock().add(key.as_bytes(), by, is_up, now_s) {
                None => "NOT_FOUND\r\n".to_owned(),
                Some(Ok(number)) => format!("{number}\r\n"),
                Some(Err(())) => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_owned(),
            };
            (quiet, reply.into())
        }
        Command::TimeGet { key, span, wait_ms, partial, form } => {
            let reply = time_reply(&service.look_up(json::key(key), span, wait_ms, partial), span, form);
            share.grow(reply.len())?;
            (false, reply)
        }
        Command::TimeSet { key, span, bytes, form, quiet } => {
            let Some(body) = body(service, wire, bytes, share)? else {
                return Ok(b"CLIENT_ERROR bad data chunk\r\n".to_vec());
            };
            share.grow(body.len() * ANSWER_WORK_FACTOR)?;
            (quiet, set_reply(service.set(json::key(key), span, &body, form)))
        }
        Command::TimeDelete { key, span, quiet } => (
            quiet,
            match service.answers.delete(json::key(key), span) {
                Ok(was_there) => done_or_missing(was_there, "DELETED"),
                Err(error) => server_error(&error),
            },
        ),
        Command::FlushAll { quiet } => {
            service.items.lock().clear();
            (quiet, service.answers.clear().map_or_else(|error| server_error(&error), |()| b"OK\r\n".to_vec()))
        }
        Command::Stats => (false, stats(service).into()),
        Command::Version => (false, format!("VERSION {}\r\n", env!("CARGO_PKG_VERSION")).into()),
        Command::Verbosity { quiet } => (quiet, b"OK\r\n".to_vec()),
        Command::Quit => (true, Vec::new()),
    };
    Ok(if quiet { Vec::new() } else { reply })
}

/// The data behind a command. `None` if its end is not where it was said to be; then all up to the end of the line is skipped.
fn body<S: Peer>(
    service: &Service,
    wire: &mut Wire<S>,
    bytes: usize,
    share: &mut Share<'_>,
) -> io::Result<Option<Vec<u8>>> {
    if bytes > service.options.body_bytes_max {
        wire.write(b"SERVER_ERROR object too large for cache\r\n")?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a body that is too long"));
    }
    let body = wire.bytes(bytes, share)?;
    if wire.byte()? == b'\n' || wire.byte()? == b'\n' {
        return Ok(Some(body));
    }
    wire.line(LINE_BYTES_MAX)?;
    Ok(None)
}

/// Writes items as they are found; gives the end of the reply.
fn get<S: Peer>(service: &Service, wire: &mut Wire<S>, keys: &[&str], with_version: bool) -> io::Result<Vec<u8>> {
    let (mut reply, now_s) = (Vec::new(), service.now_s());
    for key in keys {
        if reply.len() > REPLY_BYTES {
            wire.write(&reply)?;
            reply.clear();
        }
        let Some(item) = service.items.lock().get(key.as_bytes(), now_s) else {
            continue;
        };
        let version = if with_version { format!(" {}", item.version) } else { String::new() };
        reply.extend_from_slice(format!("VALUE {key} {} {}{version}\r\n", item.flags, item.data.len()).as_bytes());
        reply.extend_from_slice(&item.data);
        reply.extend_from_slice(b"\r\n");
    }
    reply.extend_from_slice(b"END\r\n");
    Ok(reply)
}

fn done_or_missing(is_found: bool, done: &str) -> Vec<u8> {
    if is_found { format!("{done}\r\n").into() } else { b"NOT_FOUND\r\n".to_vec() }
}

fn server_error(error: &dyn std::fmt::Display) -> Vec<u8> {
    format!("SERVER_ERROR {}\r\n", error.to_string().replace(['\r', '\n'], " ")).into()
}

fn time_reply(found: &Lookup, span: Span, form: Form) -> Vec<u8> {
    let (word, answer, span) = match found {
        Lookup::Hit(answer) => ("HIT", answer, span),
        Lookup::Partial { answer, span } => ("PART", answer, *span),
        Lookup::Miss => return b"MISS\r\n".to_vec(),
    };
    let body = match form {
        Form::Json => json::write(answer, span),
        Form::Columns => columns::write(answer),
    };
    let mut reply = format!("{word} {} {} {}\r\n", span.start, span.end, body.len()).into_bytes();
    reply.extend_from_slice(&body);
    reply.extend_from_slice(b"\r\n");
    reply
}

fn set_reply(done: Result<(), SetError>) -> Vec<u8> {
    match done {
        Ok(()) => b"STORED\r\n".to_vec(),
        Err(SetError::Io(error)) => server_error(&error),
        Err(error) => format!("CLIENT_ERROR {}\r\n", error.to_string().replace(['\r', '\n'], " ")).into(),
    }
}

fn stats(service: &Service) -> String {
    let mut reply = String::new();
    for (name, value) in service.figures() {
        // Writing to a string cannot fail.
        let _ = write!(reply, "STAT {name} {value}\r\n");
    }
    reply + "END\r\n"
}

impl Service {
    pub(super) fn now_s(&self) -> i64 {
        self.cache.shared.platform.clock.now_ns() / 1_000_000_000
    }

    /// Looks an answer up; with `wait_ms` waits for another client that was told that it is missing and has not set it yet.
    pub(super) fn look_up(&self, key: Key, span: Span, wait_ms: u64, partial: bool) -> Lookup {
        let wait_ms = wait_ms.min(self.options.wait_ms_max);
        let partial_bytes_min = partial.then_some(0);
        let ask = || self.answers.get_with(&Request { key, span, partial_bytes_min, holds: &|_, _| true });
        let found = ask();
        if wait_ms == 0 || matches!(found, Lookup::Hit(_)) {
            return found;
        }
        if self.leases.take(key, span, self.cache.shared.platform.clock.monotonic_ns(), wait_ms) {
            return found;
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.leases.wait(key, span, wait_ms);
        ask()
    }

    pub(super) fn set(&self, key: Key, span: Span, body: &[u8], form: Form) -> Result<(), SetError> {
        let answer = match form {
            Form::Json => json::read(body),
            Form::Columns => columns::read(body),
        };
        let answer = answer.map_err(SetError::Invalid);
        let done = answer.and_then(|answer| self.answers.set_stamped(key, &answer, span, 0));
        // Also if it failed: a waiting client asks again and fetches it.
        self.leases.end(key, span);
        done
    }

    /// Names and values of all counts.
    pub(super) fn figures(&self) -> Vec<(&'static str, u64)> {
        let Stats {
            gets,
            hits,
            partial_hits,
            misses,
            hit_bytes,
            sets,
            set_bytes,
            reads,
            read_bytes,
            written_bytes,
            slab_reads,
            slabs_evicted,
            slabs_bad,
            compactions,
            keys,
            slabs,
            slabs_max,
            slab_bytes,
            points,
            open_bytes,
            buffer_hits,
            buffer_bytes,
            index_bytes,
            lru_thousandths,
            deletes,
            ..
        } = self.cache.stats();
        let items = self.items.lock();
        let memory = self.answers.memory().stats();
        vec![
            ("memory_hits", memory.hits),
            ("memory_bytes", memory.bytes as u64),
            ("memory_keys", memory.keys as u64),
            ("curr_items", items.len() as u64),
            ("bytes", items.bytes() as u64),
            ("limit_maxbytes", self.options.items_bytes_max as u64),
            ("evictions", items.evicted),
            ("curr_connections", self.connections.count() as u64),
            ("rejected_connections", self.connections.refused.load(Ordering::Relaxed)),
            ("time_gets", gets),
            ("time_hits", hits),
            ("time_partial_hits", partial_hits),
            ("time_misses", misses),
            ("time_hit_bytes", hit_bytes),
            ("time_sets", sets),
            ("time_set_bytes", set_bytes),
            ("time_waits", self.waits.load(Ordering::Relaxed)),
            ("flash_reads", reads),
            ("flash_read_bytes", read_bytes),
            ("flash_written_bytes", written_bytes),
            ("slab_reads", slab_reads),
            ("slabs", slabs),
            ("slabs_max", slabs_max),
            ("slab_bytes", slab_bytes),
            ("slabs_evicted", slabs_evicted),
            ("slabs_bad", slabs_bad),
            ("compactions", compactions),
            ("keys", keys),
            ("points", points),
            ("open_bytes", open_bytes),
            ("buffer_page_hits", buffer_hits),
            ("buffer_bytes", buffer_bytes),
            ("index_bytes", index_bytes),
            ("lru_thousandths", lru_thousandths),
            ("deletes", deletes),
        ]
    }
}
