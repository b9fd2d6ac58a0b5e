//! Prepared statements of a session: read, their parameters' types inferred, and bounded in bytes.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use pgwire::api::Type;
use pgwire::api::store::PortalStore;
use pgwire::messages::PgWireFrontendMessage;
use sql::{Parsed, SqlError};

/// The prepared statements and portals of a client.
pub(super) type Store = dyn PortalStore<Statement = Statements>;

/// What a statement takes, read, for each byte of its text.
const PARSED_BYTES: usize = 16;

/// What a name takes at least.
const NAMED_BYTES: usize = 256;

/// Statements as they were sent, read.
#[derive(Debug, Clone)]
pub(super) struct Statements {
    pub(super) text: Arc<str>,
    pub(super) parsed: Arc<Parsed>,
    /// `$1` to `$n`
    pub(super) parameters: usize,
}

impl Statements {
    pub(super) fn read(text: &str) -> Result<Self, SqlError> {
        Ok(Self::new(text, sql::parse(text)?))
    }

    pub(super) fn new(text: &str, parsed: Parsed) -> Self {
        Self { text: text.into(), parsed: Arc::new(parsed), parameters: placeholders(text) }
    }
}

/// The largest number after a dollar sign outside of texts.
pub(super) fn placeholders(text: &str) -> usize {
    let (mut largest, mut quoted) = (0, false);
    for (place, character) in text.char_indices() {
        match character {
            '\'' => quoted = !quoted,
            '$' if !quoted => {
                let behind = text.get(place + 1..).unwrap_or_default();
                let digits = behind.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(behind.len());
                largest = largest.max(behind.get(..digits).and_then(|digits| digits.parse::<u16>().ok()).unwrap_or(0));
            }
            _ => {}
        }
    }
    // The protocol has no more parameters than this number can say.
    usize::from(largest)
}

/// The type that a client gives a parameter; `None` if it leaves that to the server.
pub(super) fn given_type(number: u32) -> Option<Type> {
    Type::from_oid(number).filter(|kind| *kind != Type::UNKNOWN)
}

/// The bytes of a session's prepared statements and portals, by kind and name.
#[derive(Debug, Default)]
pub(super) struct StatementSizes {
    sizes_bytes: HashMap<(u8, String), usize>,
    bytes: usize,
}

impl StatementSizes {
    /// Takes note of what a message makes or closes. Returns whether it fits.
    pub(super) fn note(&mut self, message: &PgWireFrontendMessage, bytes_max: usize) -> bool {
        let named = |name: &Option<String>| name.clone().unwrap_or_default();
        match message {
            PgWireFrontendMessage::Parse(parse) => {
                let bytes = PARSED_BYTES * parse.query.len() + 4 * parse.type_oids.len() + 1;
                self.put(b'S', named(&parse.name), bytes, bytes_max)
            }
            PgWireFrontendMessage::Bind(bind) => {
                let values: usize = bind.parameters.iter().flatten().map(Bytes::len).sum();
                let items = bind.parameters.len() + bind.result_column_format_codes.len();
                self.put(b'P', named(&bind.portal_name), values + size_of::<Bytes>() * items + 1, bytes_max)
            }
            PgWireFrontendMessage::Close(close) => {
                self.remove(close.target_type, &named(&close.name));
                true
            }
            // A portal without a name ends with its query.
            PgWireFrontendMessage::Sync(_) => {
                self.remove(b'P', "");
                true
            }
            _ => true,
        }
    }

    /// Takes note of a statement that is prepared by SQL. Returns whether it fits.
    pub(super) fn prepare(&mut self, name: &str, text: &str, bytes_max: usize) -> bool {
        self.put(b'S', name.to_owned(), PARSED_BYTES * text.len() + 1, bytes_max)
    }

    /// Forgets a prepared statement; returns whether there was one.
    pub(super) fn deallocate(&mut self, name: &str) -> bool {
        self.remove(b'S', name)
    }

    /// The names of the prepared statements.
    pub(super) fn prepared(&self) -> Vec<String> {
        let names = self.sizes_bytes.keys().filter(|(kind, _)| *kind == b'S');
        names.map(|(_, name)| name.clone()).collect()
    }

    fn put(&mut self, kind: u8, name: String, bytes: usize, bytes_max: usize) -> bool {
        self.remove(kind, &name);
        let bytes = bytes + name.len() + NAMED_BYTES;
        if self.bytes + bytes > bytes_max {
            return false;
        }
        self.bytes += bytes;
        self.sizes_bytes.insert((kind, name), bytes);
        true
    }

    fn remove(&mut self, kind: u8, name: &str) -> bool {
        let removed = self.sizes_bytes.remove(&(kind, name.to_owned()));
        self.bytes -= removed.unwrap_or(0);
        removed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use pgwire::messages::extendedquery::{Bind, Close, Parse, Sync};

    use super::*;

    fn parse(name: &str, bytes: usize) -> PgWireFrontendMessage {
        PgWireFrontendMessage::Parse(Parse::new(Some(name.to_owned()), "x".repeat(bytes), Vec::new()))
    }

    fn bind(name: Option<&str>, bytes: usize) -> PgWireFrontendMessage {
        let values = vec![Some(vec![0; bytes].into())];
        PgWireFrontendMessage::Bind(Bind::new(name.map(str::to_owned), None, Vec::new(), values, Vec::new()))
    }

    #[test]
    fn placeholders_are_counted_outside_of_texts() {
        for (text, count) in
            [("SELECT 1", 0), ("SELECT $1, $3, '$9'", 3), ("$", 0), ("'it''s $4' || $2", 2), ("$99999999999", 0)]
        {
            assert_eq!(placeholders(text), count, "{text}");
        }
    }

    #[test]
    fn what_a_session_keeps_is_bounded() {
        let mut kept = StatementSizes::default();
        let most = 10_000;
        assert!(kept.note(&parse("a", 300), most));
        assert!(!kept.note(&parse("b", 300), most), "together they are too large");
        assert!(kept.note(&parse("a", 310), most), "one that is made again takes its own place");
        assert!(kept.note(&bind(None, 4000), most));
        assert!(!kept.note(&bind(Some("p"), 4000), most));
        assert!(kept.note(&PgWireFrontendMessage::Sync(Sync::new()), most));
        assert!(kept.note(&bind(Some("p"), 4000), most), "the other went with the sync");
        assert!(kept.note(&PgWireFrontendMessage::Sync(Sync::new()), most));
        assert!(!kept.note(&bind(Some("q"), 4000), most), "one with a name did not");
        for (kind, name) in [(b'P', "p"), (b'S', "a"), (b'S', "unknown")] {
            assert!(kept.note(&PgWireFrontendMessage::Close(Close::new(kind, Some(name.to_owned()))), most));
        }
        assert_eq!((kept.bytes, kept.sizes_bytes.len()), (0, 0));
        let fitting = (0..1000).take_while(|number| kept.note(&parse(&number.to_string(), 1), most)).count();
        assert!((10..50).contains(&fitting), "{fitting} small ones");
    }
}
