//! Requests: arrays of bulk strings, or a line of words.

use std::fmt;
use std::ops::Range;

/// Bounds of a request.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a request.
    pub request_bytes_max: usize,
    /// Its arguments, the command's name among them.
    pub arguments_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request_bytes_max: 16 << 20, arguments_max: 1 << 20 }
    }
}

/// A request's arguments, as ranges of the bytes that it was read from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The command's name first.
    pub arguments: Vec<Range<usize>>,
    /// Bytes that it takes.
    pub bytes: usize,
}

/// Why a connection cannot be read any further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolError(pub String);

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protocol error: {}", self.0)
    }
}

impl std::error::Error for ProtocolError {}

/// Bytes of the longest line of words, and of a line with a length.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Reads requests from bytes that come in pieces: what was read of an unfinished one is not read again.
#[derive(Debug, Default)]
pub struct Parser {
    arguments: Vec<Range<usize>>,
    /// Arguments that are yet to come, if it is known; and where the next one begins.
    missing: Option<(usize, usize)>,
}

impl Parser {
    /// Reads the request that the input begins with; `None` if more bytes are needed: the next input begins with the same ones. A request
    /// without arguments is an empty line.
    ///
    /// # Errors
    /// What no request begins with, and requests over a limit: where the next one begins is not known then.
    pub fn next(&mut self, input: &[u8], limits: &Limits) -> Result<Option<Request>, ProtocolError> {
        match input.first() {
            None => Ok(None),
            Some(b'*') => self.array(input, limits),
            Some(_) => parse_inline(input),
        }
    }

    fn array(&mut self, input: &[u8], limits: &Limits) -> Result<Option<Request>, ProtocolError> {
        if self.missing.is_none() {
            let Some((count, at)) = length(input, 0, b'*')? else { return Ok(None) };
            let count = usize::try_from(count).unwrap_or(0);
            if count > limits.arguments_max {
                let most = limits.arguments_max;
                return Err(ProtocolError(format!("{count} arguments are more than {most} (arguments_max)")));
            }
            self.missing = Some((count, at));
        }
        while let Some((count @ 1.., at)) = self.missing {
            let Some((bytes, start)) = length(input, at, b'$')? else { return Ok(None) };
            let bytes = usize::try_from(bytes).map_err(|_| ProtocolError("invalid bulk length".to_owned()))?;
            let end = start.saturating_add(bytes);
            if end > limits.request_bytes_max {
                let most = limits.request_bytes_max;
                let message = format!("a request has at most {most} bytes (request_bytes_max): send smaller ones");
                return Err(ProtocolError(message));
            }
            match input.get(end..end.saturating_add(2)) {
                None => return Ok(None),
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError("a bulk string does not end where its length says".to_owned())),
            }
            self.arguments.push(start..end);
            self.missing = Some((count - 1, end + 2));
        }
        let bytes = self.missing.take().map_or(0, |(_, at)| at);
        Ok(Some(Request { arguments: std::mem::take(&mut self.arguments), bytes }))
    }
}

/// The number of a line that begins with a sign, and where the next line begins; `None` if it has no end yet.
fn length(input: &[u8], at: usize, sign: u8) -> Result<Option<(i64, usize)>, ProtocolError> {
    let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
    let found = rest.first().copied().unwrap_or_default();
    if found != sign {
        let (expected, found) = (char::from(sign), char::from(found).escape_default());
        return Err(ProtocolError(format!("expected '{expected}', got '{found}'")));
    }
    let head = rest.get(..rest.len().min(32)).unwrap_or_default();
    let Some(end) = head.windows(2).position(|pair| pair == b"\r\n") else {
        let is_short = rest.len() < 32;
        return if is_short { Ok(None) } else { Err(ProtocolError("invalid length".to_owned())) };
    };
    let digits = head.get(1..end).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| digits.parse().ok());
    let number = number.ok_or_else(|| ProtocolError("invalid length".to_owned()))?;
    Ok(Some((number, at + end + 2)))
}

/// A line of words, as people type them. Quotes are not known: clients send arrays.
fn parse_inline(input: &[u8]) -> Result<Option<Request>, ProtocolError> {
    let Some(end) = input.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
        let is_short = input.len() < LINE_BYTES_MAX;
        return if is_short { Ok(None) } else { Err(ProtocolError("too big inline request".to_owned())) };
    };
    let mut arguments = Vec::new();
    let mut start = None;
    for (at, byte) in input.iter().enumerate().take(end + 1) {
        match (byte.is_ascii_whitespace(), start) {
            (true, Some(from)) => {
                arguments.push(from..at);
                start = None;
            }
            (false, None) => start = Some(at),
            _ => {}
        }
    }
    let first = arguments.first().and_then(|range| input.get(range.clone())).unwrap_or_default();
    // A browser that was made to send something here: see "Cross Protocol Scripting" of Redis.
    if first.eq_ignore_ascii_case(b"POST") || first.eq_ignore_ascii_case(b"Host:") {
        return Err(ProtocolError("this is not a port of HTTP".to_owned()));
    }
    Ok(Some(Request { arguments, bytes: end + 1 }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(input: &[u8], request: &Request) -> Vec<Vec<u8>> {
        request.arguments.iter().map(|range| input[range.clone()].to_vec()).collect()
    }

    /// The arguments of a request, and its bytes.
    type Read = Option<(Vec<Vec<u8>>, usize)>;

    fn read(input: &[u8]) -> Result<Read, ProtocolError> {
        let request = Parser::default().next(input, &Limits { request_bytes_max: 100, arguments_max: 4 })?;
        Ok(request.map(|request| (words(input, &request), request.bytes)))
    }

    #[test]
    fn arrays_and_lines_are_read() {
        let get = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n";
        assert_eq!(read(get), Ok(Some((vec![b"GET".to_vec(), b"a".to_vec()], 20))));
        assert_eq!(read(b"*1\r\n$0\r\n\r\n"), Ok(Some((vec![Vec::new()], 10))));
        assert_eq!(read(b"*0\r\n"), Ok(Some((Vec::new(), 4))));
        assert_eq!(read(b"*-1\r\n"), Ok(Some((Vec::new(), 5))));
        assert_eq!(read(b"ping  a\r\nx"), Ok(Some((vec![b"ping".to_vec(), b"a".to_vec()], 9))));
        assert_eq!(read(b"\r\n"), Ok(Some((Vec::new(), 2))));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let refused: [(&[u8], &str); 8] = [
            (b"*5\r\n", "5 arguments are more than 4 (arguments_max)"),
            (b"*1\r\n$101\r\n", "a request has at most 100 bytes (request_bytes_max): send smaller ones"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n:1\r\n", "expected '$', got ':'"),
            (b"*1\r\n$1\r\nabc", "a bulk string does not end where its length says"),
            (b"*x\r\n", "invalid length"),
            (b"*11111111111111111111111111111111111", "invalid length"),
            (b"POST / HTTP/1.1\r\n", "this is not a port of HTTP"),
        ];
        for (input, why) in refused {
            assert_eq!(read(input), Err(ProtocolError(why.to_owned())), "{:?}", String::from_utf8_lossy(input));
        }
    }

    proptest! {
        #[test]
        fn a_request_is_read_when_its_last_byte_has_come(arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..4)) {
            let mut input = format!("*{}\r\n", arguments.len()).into_bytes();
            for argument in &arguments {
                input.extend(format!("${}\r\n", argument.len()).bytes());
                input.extend(argument);
                input.extend(b"\r\n");
            }
            let (mut parser, limits) = (Parser::default(), Limits::default());
            for end in 0..input.len() {
                prop_assert_eq!(parser.next(&input[..end], &limits), Ok(None));
            }
            let whole = parser.next(&input, &limits).unwrap().unwrap();
            prop_assert_eq!(words(&input, &whole), arguments.clone());
            let bytes = input.len();
            input.extend(b"*1\r\n");
            prop_assert_eq!(read(&input), Ok(Some((arguments, bytes))));
        }
    }
}
