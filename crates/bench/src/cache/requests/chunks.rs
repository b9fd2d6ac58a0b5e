//! What one does without a cache for spans of time: answers cut into units of a fixed length, each an item of memcached.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use cache::{Answer, Key, Span, json};

/// Keys of one `get`.
const KEYS_PER_GET: usize = 50;
const TIMEOUT: Duration = Duration::from_secs(30);

/// How answers are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Units {
    pub(super) length_s: i64,
    /// Missing units are fetched whole, also beyond what was requested. Without it only units that lie inside of
    /// what is asked for are kept, and looked for.
    pub(super) whole: bool,
}

impl Units {
    /// The units to look for.
    fn units_of(self, span: Span) -> Vec<Span> {
        let length = self.length_s.max(1);
        let (first, last) = if self.whole {
            (span.start.div_euclid(length), (span.end - 1).div_euclid(length))
        } else {
            ((span.start + length - 1).div_euclid(length), span.end.div_euclid(length) - 1)
        };
        (first..=last).map(|unit| Span::new(unit * length, (unit + 1) * length)).collect()
    }
}

/// What has to be fetched: as few spans as may be, given the units that there are, in order.
fn missing(span: Span, cached: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut missing = Vec::new();
    let mut from = span.start;
    for unit in cached {
        if unit.start > from {
            missing.push(Span::new(from, unit.start));
        }
        from = unit.end;
    }
    if from < span.end {
        missing.push(Span::new(from, span.end));
    }
    missing
}

/// What an answer was made of.
pub(super) struct Outcome {
    pub(super) answer: Answer,
    /// Points of it that were fetched.
    pub(super) fetched_points: usize,
}

/// A connection to memcached.
pub(super) struct Chunks {
    stream: BufReader<TcpStream>,
    units: Units,
}

impl Chunks {
    pub(super) fn connect(address: SocketAddr, units: Units) -> Result<Self, String> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Ok(BufReader::new(stream))
        };
        let stream = connect().map_err(|error: io::Error| format!("memcached at {address}: {error}"))?;
        Ok(Self { stream, units })
    }

    /// The answer for a span, of what is cached and of what is fetched.
    pub(super) fn query(
        &mut self,
        statement: &str,
        span: Span,
        mut fetch: impl FnMut(Span) -> Result<Answer, String>,
    ) -> Result<Outcome, String> {
        let units = self.units.units_of(span);
        let key = Key::of_statement(statement);
        let found = self
            .get(&units.iter().map(|unit| item(&key, *unit)).collect::<Vec<_>>())
            .map_err(|error| failed(&error))?;
        let mut parts: Vec<(Span, Answer)> = Vec::new();
        for unit in &units {
            if let Some(body) = found.get(&item(&key, *unit)) {
                parts.push((*unit, json::read(body)?));
            }
        }
        let everything = match units.as_slice() {
            [first, .., last] if self.units.whole => Span::new(first.start, last.end),
            [only] if self.units.whole => *only,
            _ => span,
        };
        let mut fetched_points = 0;
        let mut kept = Vec::new();
        for gap in missing(everything, parts.iter().map(|(unit, _)| *unit).collect::<Vec<_>>().into_iter()) {
            let answer = fetch(gap)?;
            for unit in units.iter().filter(|unit| gap.contains(unit)) {
                kept.push((item(&key, *unit), json::write(&answer.within(*unit), *unit)));
            }
            fetched_points += answer.within(span).points();
            parts.push((gap, answer));
        }
        self.set(&kept).map_err(|error| failed(&error))?;
        parts.sort_by_key(|(part, _)| part.start);
        let mut answer = Answer::default();
        for (part, piece) in &parts {
            if span.contains(part) {
                answer.append(piece);
            } else {
                answer.append(&piece.within(span));
            }
        }
        Ok(Outcome { answer, fetched_points })
    }

    fn get(&mut self, items: &[String]) -> io::Result<HashMap<String, Vec<u8>>> {
        let mut found = HashMap::new();
        for some in items.chunks(KEYS_PER_GET) {
            self.stream.get_mut().write_all(format!("get {}\r\n", some.join(" ")).as_bytes())?;
            loop {
                let line = self.line()?;
                let words: Vec<&str> = line.split(' ').collect();
                let ["VALUE", name, _, bytes] = words.as_slice() else {
                    if line == "END" {
                        break;
                    }
                    return Err(io::Error::other(line));
                };
                let bytes: usize = bytes.parse().map_err(io::Error::other)?;
                let mut body = vec![0; bytes + 2];
                self.stream.read_exact(&mut body)?;
                body.truncate(bytes);
                found.insert((*name).to_owned(), body);
            }
        }
        Ok(found)
    }

    /// Sets items, all at once. One that memcached has no room for is not kept.
    fn set(&mut self, items: &[(String, Vec<u8>)]) -> io::Result<()> {
        let mut request = Vec::new();
        for (name, body) in items {
            request.extend_from_slice(format!("set {name} 0 0 {}\r\n", body.len()).as_bytes());
            request.extend_from_slice(body);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        for _ in items {
            let line = self.line()?;
            if line != "STORED" && !line.starts_with("SERVER_ERROR") {
                return Err(io::Error::other(line));
            }
        }
        Ok(())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(line.to_owned())
    }
}

fn item(key: &Key, unit: Span) -> String {
    format!("{key}:{}", unit.start)
}

fn failed(error: &io::Error) -> String {
    format!("memcached: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_lie_inside_or_around() {
        let inside = Units { length_s: 10, whole: false };
        let around = Units { length_s: 10, whole: true };
        for (span, expected_inside, expected_around) in [
            ((0, 10), vec![0], vec![0]),
            ((1, 10), vec![], vec![0]),
            ((1, 9), vec![], vec![0]),
            ((5, 31), vec![10, 20], vec![0, 10, 20, 30]),
        ] {
            let starts = |units: Units| {
                units.units_of(Span::new(span.0, span.1)).iter().map(|unit| unit.start).collect::<Vec<_>>()
            };
            assert_eq!((starts(inside), starts(around)), (expected_inside, expected_around), "{span:?}");
        }
    }

    #[test]
    fn gaps_are_what_no_unit_has() {
        let check = |cached: &[(i64, i64)], expected: &[(i64, i64)]| {
            let spans = |of: &[(i64, i64)]| of.iter().map(|(start, end)| Span::new(*start, *end)).collect::<Vec<_>>();
            assert_eq!(missing(Span::new(5, 45), spans(cached).into_iter()), spans(expected), "{cached:?}");
        };
        check(&[], &[(5, 45)]);
        check(&[(10, 20), (20, 30)], &[(5, 10), (30, 45)]);
        check(&[(0, 10), (20, 30), (40, 50)], &[(10, 20), (30, 40)]);
        check(&[(0, 50)], &[]);
    }
}
