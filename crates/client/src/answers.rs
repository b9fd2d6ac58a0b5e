//! Answers of queries kept by `thalweg cache`, in front of any database; blocking.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use cache::{Answer, Key, Span, columns};

use crate::ClientError;

/// How long to wait for an answer that another client fetches already.
const WAIT_MS: u64 = 10_000;
/// A reply's first line.
const LINE_BYTES_MAX: u64 = 4096;
/// A body of the cache.
const BODY_BYTES_MAX: usize = 1 << 30;

/// A connection to `thalweg cache`, made when it is needed and again after it broke.
#[derive(Debug)]
pub struct AnswerCache {
    address: SocketAddr,
    timeout: Duration,
    stream: Option<BufReader<TcpStream>>,
}

/// How much more than what is missing is fetched and kept, so that neighbours that are asked for later find it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Margin {
    /// So much of the length of what is asked for, at each of its ends where something is missing.
    pub share: f64,
    /// Up to the next multiple of this, in the unit of the times; 1 for no multiples.
    pub step: i64,
    /// From where on points may still come. Beyond it no more is fetched than what is asked for: what is kept there would lack them.
    pub until: i64,
}

impl Margin {
    /// Only the missing part.
    pub const NONE: Self = Self { share: 0.0, step: 1, until: i64::MIN };

    /// Whole steps.
    pub const fn steps(step: i64, until: i64) -> Self {
        Self { share: 0.0, step, until }
    }

    /// The span to fetch when a part of the requested one is missing.
    fn around(self, missing: Span, asked: Span) -> Span {
        let more = (asked.length() * self.share.max(0.0)) as i64;
        let step = self.step.max(1);
        let (mut start, mut end) = (missing.start, missing.end);
        if start == asked.start {
            start = start.saturating_sub(more);
            start = start.saturating_sub(start.rem_euclid(step));
        }
        if end == asked.end {
            end = end.saturating_add(more);
            let rest = end.rem_euclid(step);
            end = if rest == 0 { end } else { end.saturating_add(step - rest) };
            end = end.min(self.until).max(missing.end);
        }
        Span::new(start, end)
    }
}

impl AnswerCache {
    /// For a cache at an address, which need not be there yet.
    pub const fn new(address: SocketAddr, timeout: Duration) -> Self {
        Self { address, timeout, stream: None }
    }

    /// The answer to a statement, which does not name the range, for times from start to just before end. What is not cached is
    /// fetched, from the database, by range, and cached. A cache that is not there is done without; errors are those of fetching.
    pub fn query<E>(
        &mut self,
        statement: &str,
        start: i64,
        end: i64,
        fetch: impl FnMut(i64, i64) -> Result<Answer, E>,
    ) -> Result<Answer, E> {
        self.query_with_margin(statement, (start, end), Margin::NONE, fetch)
    }

    /// As [`AnswerCache::query`]; around the missing part more is fetched and cached.
    pub fn query_with_margin<E>(
        &mut self,
        statement: &str,
        (start, end): (i64, i64),
        margin: Margin,
        mut fetch: impl FnMut(i64, i64) -> Result<Answer, E>,
    ) -> Result<Answer, E> {
        let asked = Span::new(start, end);
        let Ok(found) = self.get(statement, start, end) else { return fetch(start, end) };
        let missing = match &found {
            None => asked,
            Some((_, span)) if span.end < end => Span::new(span.end, end),
            Some((_, span)) => Span::new(start, span.start),
        };
        let (mut found, span) = match found {
            Some((found, _)) if missing.is_empty() => return Ok(found),
            Some((found, span)) => (found, span),
            None => (Answer::default(), Span::new(start, start)),
        };
        let wide = margin.around(missing, asked);
        let mut fetched = fetch(wide.start, wide.end)?;
        self.set_if_possible(statement, wide, &fetched);
        if wide != missing {
            fetched = fetched.within(missing);
        }
        if span.is_empty() {
            return Ok(fetched);
        }
        if span.end == missing.start {
            found.append(&fetched);
            return Ok(found);
        }
        fetched.append(&found);
        Ok(fetched)
    }

    /// The cached part of a range: all, the head or the tail, and its span.
    pub fn get(&mut self, statement: &str, start: i64, end: i64) -> Result<Option<(Answer, Span)>, ClientError> {
        let key = Key::of_statement(statement);
        let line = format!("tget {key} {start} {end} wait={WAIT_MS} partial columns\r\n");
        let reply = self.ask(line.as_bytes())?;
        let words: Vec<&str> = reply.split(' ').collect();
        let number = |text: &str| text.parse::<i64>().map_err(|_| refused(&reply));
        match words.as_slice() {
            ["MISS"] => Ok(None),
            ["HIT" | "PART", start, end, bytes] => {
                let span = Span::new(number(start)?, number(end)?);
                let bytes = usize::try_from(number(bytes)?).ok().filter(|bytes| *bytes <= BODY_BYTES_MAX);
                let body = self.body(bytes.ok_or_else(|| refused(&reply))?)?;
                Ok(Some((columns::read(&body).map_err(ClientError::Invalid)?, span)))
            }
            _ => Err(refused(&reply)),
        }
    }

    /// Keeps the whole answer for a range.
    pub fn set(&mut self, statement: &str, start: i64, end: i64, answer: &Answer) -> Result<(), ClientError> {
        let (key, body) = (Key::of_statement(statement), columns::write(answer));
        let mut request = format!("tset {key} {start} {end} {} columns\r\n", body.len()).into_bytes();
        request.extend_from_slice(&body);
        request.extend_from_slice(b"\r\n");
        let reply = self.ask(&request)?;
        if reply == "STORED" { Ok(()) } else { Err(refused(&reply)) }
    }

    /// Forgets the answer for a range: its data changed. Returns whether any of it was cached.
    pub fn delete(&mut self, statement: &str, start: i64, end: i64) -> Result<bool, ClientError> {
        let key = Key::of_statement(statement);
        let reply = self.ask(format!("tdelete {key} {start} {end}\r\n").as_bytes())?;
        match reply.as_str() {
            "DELETED" => Ok(true),
            "NOT_FOUND" => Ok(false),
            _ => Err(refused(&reply)),
        }
    }

    /// Sets what was fetched. If it is not kept, the next one fetches it again.
    fn set_if_possible(&mut self, statement: &str, span: Span, answer: &Answer) {
        let _ = self.set(statement, span.start, span.end, answer);
    }

    fn ask(&mut self, request: &[u8]) -> Result<String, ClientError> {
        let is_new = self.stream.is_none();
        let asked = self.ask_once(request);
        // A server that was restarted has closed the connection: once more, on a new one.
        let asked = if asked.is_err() && !is_new { self.ask_once(request) } else { asked };
        asked.map_err(|error| ClientError::Unavailable(format!("the cache at {}: {error}", self.address)))
    }

    fn ask_once(&mut self, request: &[u8]) -> std::io::Result<String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        stream.get_mut().write_all(request)?;
        let mut line = Vec::new();
        stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let Some(line) = line.strip_suffix("\r\n") else {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        };
        // Only a stream whose reply was read is used again.
        self.stream = Some(stream);
        Ok(line.to_owned())
    }

    fn body(&mut self, bytes: usize) -> Result<Vec<u8>, ClientError> {
        let mut body = vec![0; bytes + 2];
        let read = self.stream.as_mut().map(|stream| stream.read_exact(&mut body));
        if let Some(Err(error)) = read {
            self.stream = None;
            return Err(ClientError::Unavailable(format!("the cache at {}: {error}", self.address)));
        }
        body.truncate(bytes);
        Ok(body)
    }

    fn connect(&self) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.address, self.timeout)?;
        let timeout = Some(self.timeout + Duration::from_millis(WAIT_MS));
        stream.set_read_timeout(timeout)?;
        stream.set_write_timeout(timeout)?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }
}

fn refused(reply: &str) -> ClientError {
    ClientError::Invalid(format!("the cache answered {reply:?}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;

    use cache::server::{Server, ServerOptions};
    use cache::{Cache, FieldPoints, Options, Points, Values};
    use platform::sim::Simulation;

    use super::*;

    fn answer(start: i64, end: i64) -> Answer {
        let timestamps: Vec<i64> = (start..end).collect();
        let values = Values::F64(timestamps.iter().map(|time| *time as f64 / 2.0).collect());
        let points = Points { series: vec![0; timestamps.len()], timestamps, values };
        Answer { series: vec![Arc::from("host=a")], fields: vec![FieldPoints { name: Arc::from("load"), points }] }
    }

    #[test]
    fn only_what_is_missing_is_fetched() {
        let cache = Cache::open(&Simulation::new(1).platform(), Options::new("cache/flash", 8 << 20)).unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let server =
            Server::start(Arc::new(cache), TcpListener::bind(local).unwrap(), ServerOptions::default()).unwrap();
        let mut client = AnswerCache::new(server.address(), Duration::from_secs(20));
        let mut check = |start, end, expected: &[(i64, i64)]| {
            let mut fetched = Vec::new();
            let found = client.query("q", start, end, |start, end| {
                fetched.push((start, end));
                Ok::<_, std::convert::Infallible>(answer(start, end))
            });
            assert_eq!(found, Ok(answer(start, end)));
            assert_eq!(fetched, expected, "{start} to {end}");
        };
        check(100, 200, &[(100, 200)]);
        check(100, 200, &[]);
        check(150, 250, &[(200, 250)]);
        check(50, 250, &[(50, 100)]);
        check(60, 240, &[]);
        check(0, 300, &[(0, 300)]);
        assert_eq!(client.delete("q", 0, 300), Ok(true));
        assert_eq!(client.delete("q", 0, 300), Ok(false));
        server.stop().unwrap();
        let mut nobody = AnswerCache::new(SocketAddr::from(([127, 0, 0, 1], 1)), Duration::from_secs(1));
        let without = nobody.query("q", 0, 9, |start, end| Ok::<_, std::convert::Infallible>(answer(start, end)));
        assert_eq!(without, Ok(answer(0, 9)));
    }

    #[test]
    fn more_is_fetched_where_something_is_missing() {
        let cache = Cache::open(&Simulation::new(2).platform(), Options::new("cache/flash", 8 << 20)).unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let server =
            Server::start(Arc::new(cache), TcpListener::bind(local).unwrap(), ServerOptions::default()).unwrap();
        let mut client = AnswerCache::new(server.address(), Duration::from_secs(20));
        let mut check = |statement: &str, margin: Margin, (start, end), expected: &[(i64, i64)]| {
            let mut fetched = Vec::new();
            let found = client.query_with_margin(statement, (start, end), margin, |start, end| {
                fetched.push((start, end));
                Ok::<_, std::convert::Infallible>(answer(start, end))
            });
            assert_eq!(found, Ok(answer(start, end)));
            assert_eq!(fetched, expected, "{statement}, {start} to {end}");
        };
        let steps = Margin::steps(100, 450);
        check("steps", steps, (120, 130), &[(100, 200)]);
        check("steps", steps, (100, 200), &[]);
        check("steps", steps, (150, 201), &[(200, 300)]);
        check("steps", steps, (-30, -20), &[(-100, 0)]);
        check("steps", steps, (410, 420), &[(400, 450)]);
        check("steps", steps, (410, 470), &[(450, 470)]);
        // Where what is missing ends beside what is cached, it ends there.
        check("steps", steps, (250, 420), &[(300, 450)]);
        check("steps", steps, (90, 130), &[(0, 100)]);
        let half = Margin { share: 0.5, step: 1, until: 310 };
        check("share", half, (100, 200), &[(50, 250)]);
        check("share", half, (60, 240), &[]);
        check("share", half, (240, 280), &[(250, 300)]);
        check("share", half, (260, 305), &[(300, 310)]);
        check("share", half, (45, 65), &[(35, 50)]);
        check("share", half, (400, 500), &[(350, 500)]);
        server.stop().unwrap();
    }
}
