//! Replies, written as they are made.

use std::fmt::Write as _;

/// Writes replies in the version of the protocol that a client has asked for.
#[derive(Debug, Default)]
pub struct ReplyWriter {
    out: Vec<u8>,
    is_resp3: bool,
    /// For numbers.
    text: String,
}

impl ReplyWriter {
    /// A writer of RESP3, or of RESP2.
    pub fn new(is_resp3: bool) -> Self {
        Self { is_resp3, ..Self::default() }
    }

    /// Writes RESP3 from now on, or RESP2.
    pub const fn set_resp3(&mut self, is_resp3: bool) {
        self.is_resp3 = is_resp3;
    }

    /// Returns whether RESP3 is written.
    pub const fn is_resp3(&self) -> bool {
        self.is_resp3
    }

    /// The bytes that were written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Takes the bytes that were written; the writer is empty then.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Takes back what was written after so many bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.out.truncate(bytes);
    }

    fn line(&mut self, sign: u8, text: &str) {
        self.out.push(sign);
        // A line must end where it ends.
        self.out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, sign: u8, number: i64) {
        self.text.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{number}");
        self.out.push(sign);
        self.out.extend_from_slice(self.text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// A short text without line ends.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// `OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// An error: a word in capitals, then words for people.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text);
    }

    /// An integer.
    pub fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// Bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A text.
    pub fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.out.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// A float, as `RedisTimeSeries` writes it: a short text in RESP2, a double in RESP3.
    pub fn float(&mut self, number: f64) {
        self.text.clear();
        if number.is_nan() {
            self.text.push_str(if self.is_resp3 { "nan" } else { "NaN" });
        } else if number.is_infinite() {
            self.text.push_str(if number > 0.0 { "inf" } else { "-inf" });
        } else if number == 0.0 || (1e-5..1e17).contains(&number.abs()) {
            let _ = write!(self.text, "{number}");
        } else {
            let _ = write!(self.text, "{number:e}");
        }
        self.out.push(if self.is_resp3 { b',' } else { b'+' });
        self.out.extend_from_slice(self.text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// The beginning of an array of so many elements.
    pub fn array(&mut self, elements: usize) {
        self.number(b'*', i64::try_from(elements).unwrap_or(i64::MAX));
    }

    /// The beginning of a map of so many pairs; an array of both in RESP2.
    pub fn map(&mut self, pairs: usize) {
        if self.is_resp3 {
            self.number(b'%', i64::try_from(pairs).unwrap_or(i64::MAX));
        } else {
            self.array(pairs.saturating_mul(2));
        }
    }

    /// The beginning of a set; an array in RESP2.
    pub fn set(&mut self, elements: usize) {
        if self.is_resp3 {
            self.number(b'~', i64::try_from(elements).unwrap_or(i64::MAX));
        } else {
            self.array(elements);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_resp3: bool, write: impl FnOnce(&mut ReplyWriter)) -> String {
        let mut writer = ReplyWriter::new(is_resp3);
        write(&mut writer);
        String::from_utf8(writer.take()).unwrap()
    }

    #[test]
    fn values_are_written_in_both_versions() {
        let write = |writer: &mut ReplyWriter| {
            writer.map(1);
            writer.text("a");
            writer.null();
            writer.set(1);
            writer.integer(-5);
            writer.error("ERR a\r\nb");
        };
        assert_eq!(written(false, write), "*2\r\n$1\r\na\r\n$-1\r\n*1\r\n:-5\r\n-ERR a  b\r\n");
        assert_eq!(written(true, write), "%1\r\n$1\r\na\r\n_\r\n~1\r\n:-5\r\n-ERR a  b\r\n");
    }

    #[test]
    fn floats_are_short() {
        let cases =
            [(1.0, "1"), (1.1, "1.1"), (0.0, "0"), (1e100, "1e100"), (-2.5e-9, "-2.5e-9"), (f64::INFINITY, "inf")];
        for (number, text) in cases {
            assert_eq!(written(false, |writer| writer.float(number)), format!("+{text}\r\n"));
            assert_eq!(written(true, |writer| writer.float(number)), format!(",{text}\r\n"));
        }
        assert_eq!(written(false, |writer| writer.float(f64::NAN)), "+NaN\r\n");
    }
}
