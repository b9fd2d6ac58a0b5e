//! Entries of the fuzz targets: whatever bytes there are, nothing panics and nothing is read twice.

use crate::protocol::{Limits, Parser};

/// Reads requests until more bytes are needed or the connection would be closed.
pub fn requests(input: &[u8]) {
    let limits = Limits { request_bytes_max: 1 << 16, arguments_max: 1 << 10 };
    let (mut rest, mut parser) = (input, Parser::default());
    while let Ok(Some(request)) = parser.next(rest, &limits) {
        assert!(request.bytes > 0 && request.bytes <= rest.len());
        assert!(request.arguments.iter().all(|range| range.end <= request.bytes));
        rest = rest.get(request.bytes..).unwrap_or_default();
    }
}
