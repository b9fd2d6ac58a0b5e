//! Bodies of text on their way into a parser. Packed ones are unpacked piece by piece as they are parsed, and never held as a whole.

use std::io;

use axum::http::HeaderMap;
use ingest::encoding::{Encoding, Unpacker};
use ingest::{Body, Ledger, PackedBody, quote_lines};

use crate::error::ApiError;
use crate::http::body::{Buffer, Form, Share, Unpacked, body_error, encoding_of, unpack_as, unpack_limits};
use crate::state::State;

/// A body of text on its way into a parser. A packed one is unpacked piece by piece as it is parsed.
pub(crate) struct Text<'s> {
    state: &'s State,
    /// How it is packed still.
    encoding: Encoding,
    bytes: Buffer,
    share: Share,
}

/// What reading a packed body takes.
struct TextLedger<'t> {
    share: &'t mut Share,
    unpacked: Unpacked,
    /// Whether rows are made of it.
    has_rows: bool,
    refused: Option<ApiError>,
}

impl<'s> Text<'s> {
    /// The body of a request, with its share of what all bodies may take. If it is not packed, the memory of its rows is taken now.
    pub(crate) fn new(
        state: &'s State,
        headers: &HeaderMap,
        bytes: Buffer,
        mut share: Share,
    ) -> Result<Self, ApiError> {
        let encoding = encoding_of(headers)?;
        match encoding {
            Encoding::Gzip | Encoding::Deflate | Encoding::Zstd => Ok(Self { state, encoding, bytes, share }),
            Encoding::Identity | Encoding::Snappy => {
                let bytes = unpack_as(state, encoding, bytes, (&mut share, Form::Text))?;
                Ok(Self { state, encoding: Encoding::Identity, bytes, share })
            }
        }
    }

    /// Has the body parsed, and its rows used.
    pub(crate) fn parse<T>(&mut self, parse: impl FnOnce(Body<'_>) -> Result<T, ApiError>) -> Result<T, ApiError> {
        self.read(true, parse)
    }

    /// Refuses a packed body that cannot be unpacked, for parsers that use its beginning before they know its end.
    pub(crate) fn check(&mut self) -> Result<(), ApiError> {
        if self.encoding == Encoding::Identity {
            return Ok(());
        }
        self.read(false, |mut body| match io::copy(&mut body, &mut io::sink()) {
            Ok(_) => Ok(()),
            Err(error) => Err(body_error(&error.into())),
        })
    }

    fn read<T>(&mut self, has_rows: bool, read: impl FnOnce(Body<'_>) -> Result<T, ApiError>) -> Result<T, ApiError> {
        if self.encoding == Encoding::Identity {
            return read(Body::Whole(&self.bytes));
        }
        let unpacker = Unpacker::new(self.encoding, &self.bytes, unpack_limits(self.state));
        let unpacker = unpacker.map_err(|error| body_error(&error))?;
        let none_yet = Unpacked { sent_bytes: self.bytes.len(), bytes: 0 };
        let mut ledger = TextLedger { share: &mut self.share, unpacked: none_yet, has_rows, refused: None };
        let done = read(Body::Packed(PackedBody::new(unpacker, &mut ledger)));
        match ledger.refused {
            Some(refused) if done.is_err() => Err(refused),
            _ => done,
        }
    }
}

/// Text whose lines messages quote.
pub(crate) trait Quotable {
    /// Calls with the number and the text of each of these lines, which are in order and counted from 1. After an error there are fewer.
    fn quote(self, lines: impl Iterator<Item = u32>, quote: impl FnMut(u32, &[u8]));
}

impl Quotable for &[u8] {
    fn quote(self, lines: impl Iterator<Item = u32>, quote: impl FnMut(u32, &[u8])) {
        let _ = quote_lines(Body::Whole(self), lines, quote);
    }
}

/// A packed body is unpacked again.
impl Quotable for &mut Text<'_> {
    fn quote(self, lines: impl Iterator<Item = u32>, quote: impl FnMut(u32, &[u8])) {
        let _ = self.read(false, |body| quote_lines(body, lines, quote).map_err(|error| body_error(&error)));
    }
}

impl Ledger for TextLedger<'_> {
    fn take_buffer(&mut self, bytes: usize) -> bool {
        self.share.grow_patiently(bytes).map_err(|error| self.refused = Some(error)).is_ok()
    }

    fn take_rows(&mut self, text: &[u8]) -> bool {
        self.unpacked.bytes += text.len();
        let text = if self.has_rows { text } else { &[] };
        let taken = self.share.grow_for_piece(text, self.unpacked);
        taken.map_err(|error| self.refused = Some(error)).is_ok()
    }
}
