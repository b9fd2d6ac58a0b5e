//! Messages of Postgres's protocol as bytes: where one ends, whether it may be that long, and whether its body is what its kind
//! says. What passes can be decoded without a look beyond its end.

use std::fmt;

/// Bytes of a message before there is a session, with its length, as Postgres bounds it.
pub(super) const STARTUP_BYTES_MAX: usize = 10_000;

/// Bytes of a message before the client has signed in.
const SIGN_IN_BYTES_MAX: usize = 4 << 10;

/// Codes in the place of a version: a wish for TLS, one for Kerberos's encryption, and one to cancel a query.
pub(super) const TLS: u32 = 80_877_103;
pub(super) const KERBEROS: u32 = 80_877_104;
pub(super) const CANCEL: u32 = 80_877_102;

/// Why a connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// As Postgres numbers errors.
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

fn malformed(what: &str) -> Refusal {
    Refusal { code: "08P01", message: format!("malformed message: {what}") }
}

/// A client's messages, one after another.
#[derive(Debug)]
pub(super) struct Frames {
    message_bytes_max: usize,
    has_started: bool,
    has_signed_in: bool,
}

impl Frames {
    pub(super) fn new(message_bytes_max: usize) -> Self {
        Self { message_bytes_max, has_started: false, has_signed_in: true }
    }

    /// Of a client that has to sign in: until then its messages are short.
    pub(super) fn before_sign_in(message_bytes_max: usize) -> Self {
        Self { has_signed_in: false, ..Self::new(message_bytes_max) }
    }

    /// Takes note that the client has signed in.
    pub(super) fn note_sign_in(&mut self) {
        self.has_signed_in = true;
    }

    /// Whether the message that starts the session has come.
    pub(super) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Bytes of the message at the beginning, as it says itself; `None` if too little is there to say.
    pub(super) fn length(&self, bytes: &[u8]) -> Result<Option<usize>, Refusal> {
        // Before the start there is no byte for the kind.
        let kind_bytes = usize::from(self.has_started);
        let Some(length) = bytes.get(kind_bytes..kind_bytes + 4) else { return Ok(None) };
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if !self.has_started {
            return match length {
                8..=STARTUP_BYTES_MAX => Ok(Some(length)),
                _ => Err(malformed(&format!("a startup packet of {length} bytes; 8 to {STARTUP_BYTES_MAX} are taken"))),
            };
        }
        if length < 4 {
            return Err(malformed(&format!("a length of {length}")));
        }
        if !self.has_signed_in && length > SIGN_IN_BYTES_MAX {
            return Err(malformed(&format!(
                "{length} bytes before the sign-in; at most {SIGN_IN_BYTES_MAX} are taken"
            )));
        }
        if length > self.message_bytes_max {
            let most = self.message_bytes_max;
            let message = format!("a message of {length} bytes; at most {most} are taken (postgres_message_bytes_max)");
            return Err(Refusal { code: "54000", message });
        }
        Ok(Some(kind_bytes + length))
    }

    /// Checks a whole message, and takes note of the start.
    pub(super) fn check(&mut self, message: &[u8]) -> Result<(), Refusal> {
        if !self.has_started {
            let Some((_, body)) = message.split_at_checked(4) else { return Err(malformed("no startup packet")) };
            self.has_started = check_startup(body)?;
            return Ok(());
        }
        let (Some(kind), Some(body)) = (message.first(), message.get(5..)) else { return Err(malformed("no message")) };
        check_message(*kind, body)
    }
}

/// The unread rest of a body.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A text that ends with a zero.
    fn text(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(0, self.0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }

    fn u16(&mut self) -> Option<usize> {
        let bytes = self.take(2)?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// Items of so many bytes behind their number, which comes back.
    fn items(&mut self, item_bytes: usize) -> Option<usize> {
        let count = self.u16()?;
        self.take(count * item_bytes).map(|_| count)
    }
}

/// Whether a packet is the one that starts the session.
fn check_startup(body: &[u8]) -> Result<bool, Refusal> {
    let mut rest = Rest(body);
    match rest.u32() {
        Some(TLS | KERBEROS) if rest.0.is_empty() => Ok(false),
        // A process and a key of up to 256 bytes.
        Some(CANCEL) if (8..=260).contains(&rest.0.len()) => Ok(true),
        Some(version) if version >> 16 == 3 => loop {
            match rest.text() {
                Some([]) if rest.0.is_empty() => return Ok(true),
                Some([_, ..]) if rest.text().is_some() => {}
                _ => return Err(malformed("a startup packet's names and values")),
            }
        },
        _ => Err(malformed("no startup packet of Postgres's protocol 3")),
    }
}

fn check_message(kind: u8, body: &[u8]) -> Result<(), Refusal> {
    let mut rest = Rest(body);
    let read = match kind {
        // A query, and why a COPY failed.
        b'Q' | b'f' => rest.text().map(|_| ()),
        b'P' => check_parse(&mut rest),
        b'B' => check_bind(&mut rest),
        b'C' | b'D' => check_target(&mut rest),
        b'E' => rest.text().and_then(|_| rest.take(4)).map(|_| ()),
        // Flush, sync, the end, and the end of a COPY.
        b'H' | b'S' | b'X' | b'c' => Some(()),
        // Rows of a COPY, and passwords, which are not asked for.
        b'd' | b'p' => rest.take(body.len()).map(|_| ()),
        _ => return Err(malformed(&format!("kind {kind}"))),
    };
    if read.is_some() && rest.0.is_empty() {
        return Ok(());
    }
    Err(malformed(&format!("the body of a message {:?} of {} bytes", char::from(kind), body.len())))
}

/// A name, a statement, and its parameters' types.
fn check_parse(rest: &mut Rest<'_>) -> Option<()> {
    rest.text()?;
    rest.text()?;
    rest.items(4).map(|_| ())
}

/// Names of the portal and the statement, the parameters' forms and values, and the forms of what is asked for.
fn check_bind(rest: &mut Rest<'_>) -> Option<()> {
    rest.text()?;
    rest.text()?;
    let forms = rest.items(2)?;
    let values = rest.u16()?;
    // One form is for all, none is text; else each value has its own.
    if forms > 1 && forms != values {
        return None;
    }
    for _ in 0..values {
        let length = rest.u32()?;
        // A null has no bytes.
        if length != u32::MAX {
            rest.take(length as usize)?;
        }
    }
    rest.items(2).map(|_| ())
}

/// A statement or a portal.
fn check_target(rest: &mut Rest<'_>) -> Option<()> {
    let is_known = matches!(rest.take(1)?, b"S" | b"P");
    rest.text().filter(|_| is_known).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTUP: &[u8] = b"\0\0\0\x11\0\x03\0\0user\0me\0\0";

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend(((body.len() + 4) as u32).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// The refusal's text, or nothing.
    fn check(frames: &mut Frames, message: &[u8]) -> String {
        let length = frames.length(message).and_then(|length| {
            assert_eq!(length, Some(message.len()));
            frames.check(message)
        });
        length.err().map_or_else(String::new, |refusal| refusal.message)
    }

    fn started() -> Frames {
        let mut frames = Frames::new(100);
        assert_eq!(check(&mut frames, STARTUP), "");
        frames
    }

    #[test]
    fn what_clients_say_passes() {
        let mut frames = Frames::new(100);
        assert_eq!(check(&mut frames, b"\0\0\0\x08\x04\xd2\x16\x2f"), "");
        assert_eq!(check(&mut frames, b"\0\0\0\x08\x04\xd2\x16\x30"), "");
        assert_eq!(check(&mut frames, STARTUP), "");
        for (kind, body) in [
            (b'Q', &b"SELECT 1\0"[..]),
            (b'Q', b"\0"),
            (b'P', b"s\0SELECT $1\0\0\x01\0\0\0\x19"),
            (b'B', b"\0s\0\0\x01\0\0\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\0"),
            (b'D', b"Ss\0"),
            (b'C', b"P\0"),
            (b'E', b"\0\0\0\0\0"),
            (b'H', b""),
            (b'd', b"anything"),
        ] {
            assert_eq!(check(&mut frames, &message(kind, body)), "", "{}", char::from(kind));
        }
    }

    #[test]
    fn what_would_be_read_beyond_its_end_does_not() {
        let mut frames = started();
        for (kind, body) in [
            (b'Q', &b"SELECT 1"[..]),
            (b'Q', b"SELECT 1\0more\0"),
            (b'P', b"s\0SELECT\0\0\x02\0\0\0\x19"),
            (b'P', b"s\0SELECT"),
            (b'B', b"\0s\0\0\x00\0\x01\0\0\0\x02x\0\0"),
            (b'B', b"\0s\0\0\x00\0\x01\x7f\xff\xff\xff\0\0"),
            (b'B', b"\0s\0\0\x00\0\x00"),
            (b'B', b"\0s\0\0\x02\0\0\0\0\0\x01\0\0\0\x01x\0\0"),
            (b'D', b"X\0"),
            (b'D', b""),
            (b'E', b"\0\0"),
            (b'S', b"x"),
            (b'F', b""),
        ] {
            let told = check(&mut frames, &message(kind, body));
            assert!(told.contains("malformed message"), "{}: {told}", char::from(kind));
        }
        for packet in
            [&b"\0\0\0\x08\x12\x34\x56\x78"[..], b"\0\0\0\x0d\0\x03\0\0user\0", b"\0\0\0\x0c\x04\xd2\x16\x2e\0\0\0\0"]
        {
            assert!(check(&mut Frames::new(100), packet).contains("malformed"), "{packet:?}");
        }
    }

    #[test]
    fn lengths_are_bounded_before_bodies_come() {
        let frames = started();
        assert_eq!(frames.length(b"Q\0\0\0"), Ok(None));
        assert_eq!(frames.length(b"Q\0\0\0\x64"), Ok(Some(101)));
        let refusal = frames.length(b"Q\x35\xa4\xe9\0").unwrap_err();
        assert!(refusal.message.contains("900000000 bytes") && refusal.message.contains("postgres_message_bytes_max"));
        assert_eq!(refusal.code, "54000");
        assert!(frames.length(b"Q\xff\xff\xff\xff").is_err());
        assert!(frames.length(b"Q\0\0\0\x03").is_err());
        let mut unknown = Frames { has_started: true, ..Frames::before_sign_in(1 << 20) };
        assert!(unknown.length(b"p\0\0\x10\0").is_ok() && unknown.length(b"p\0\0\x10\x01").is_err());
        unknown.note_sign_in();
        assert!(unknown.length(b"p\0\0\x10\x01").is_ok());
        let fresh = Frames::new(100);
        assert!(fresh.length(b"\0\0\x27\x11").is_err());
        assert!(fresh.length(b"GET ").is_err());
        assert_eq!(fresh.length(b"\0\0\x27\x10"), Ok(Some(10_000)));
    }
}
