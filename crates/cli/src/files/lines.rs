//! Where a text of lines may be cut.

use memchr::{memchr, memchr_iter};

/// Bytes that a line may have; the server takes no longer ones.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;

/// A comment that says what follows in a file that `influx_inspect export` wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directive<'a> {
    /// Statements that make databases.
    Statements,
    /// Points.
    Points,
    /// Points of this database.
    Database(&'a str),
}

impl<'a> Directive<'a> {
    /// The directive in the first line of a text.
    pub(crate) fn read(text: &'a [u8]) -> Option<Self> {
        let text = text.strip_prefix(b"#")?;
        let line = std::str::from_utf8(text.split(|byte| *byte == b'\n').next()?).ok()?.trim();
        match line {
            "DDL" => Some(Self::Statements),
            "DML" => Some(Self::Points),
            _ => Some(Self::Database(line.strip_prefix("CONTEXT-DATABASE:")?.trim())),
        }
    }
}

/// The front of a text, cut at a line's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cut {
    /// Its length in bytes.
    pub(crate) length: usize,
    /// Lines in it.
    pub(crate) lines: u64,
}

/// Takes as many whole lines from the front as fit into `bytes_max`, but at least one. The length is 0 if there is no
/// whole line. At the end of the input the last line needs no end. With `quotes`, line ends inside quoted strings of
/// line protocol end no line, and a [`Directive`] stands only in the first line.
pub(crate) fn cut(text: &[u8], bytes_max: usize, at_end: bool, quotes: bool) -> Cut {
    let mut cut = Cut::default();
    while let Some(rest) = text.get(cut.length..).filter(|rest| !rest.is_empty()) {
        let Some(length) = line_length(rest, at_end, quotes) else {
            break;
        };
        let begins_section = quotes && Directive::read(rest).is_some();
        if cut.length > 0 && (begins_section || cut.length + length > bytes_max) {
            break;
        }
        let line = rest.get(..length).unwrap_or_default();
        cut.length += length;
        // Only the input's last line may have no end.
        cut.lines += memchr_iter(b'\n', line).count() as u64 + u64::from(!line.ends_with(b"\n"));
    }
    cut
}

/// The length of the first line with its end; `None` if its end is not there yet.
fn line_length(text: &[u8], at_end: bool, quotes: bool) -> Option<usize> {
    let first_end = memchr(b'\n', text).map(|end| end + 1).or_else(|| at_end.then_some(text.len()))?;
    let line = text.get(..first_end).unwrap_or_default();
    if !quotes || memchr(b'"', line).is_none() || line.first() == Some(&b'#') {
        return Some(first_end);
    }
    // A quote that stays open is a mistake of that line alone.
    let hopeless = at_end || text.len() > LINE_BYTES_MAX;
    end_outside_strings(text).or_else(|| hopeless.then_some(first_end))
}

/// The first line end of a point outside its strings: those begin behind `=` among the fields.
fn end_outside_strings(text: &[u8]) -> Option<usize> {
    let mut in_fields = false;
    let mut in_string = false;
    let mut last = b' ';
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' if in_string || !in_fields => at += 1,
            b'"' if in_string => in_string = false,
            b'"' if in_fields && last == b'=' => in_string = true,
            b' ' if at > 0 => in_fields = true,
            b'\n' if !in_string => return Some(at + 1),
            _ => {}
        }
        last = *byte;
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, bytes_max: usize, at_end: bool, expected: (usize, u64)) {
        let cut = cut(text.as_bytes(), bytes_max, at_end, true);
        assert_eq!((cut.length, cut.lines), expected, "{text:?}");
    }

    #[test]
    fn at_line_ends() {
        check("", 100, true, (0, 0));
        check("m f=1\nm f=2\n", 100, false, (12, 2));
        check("m f=1\nm f=2", 100, false, (6, 1));
        check("m f=1\nm f=2", 100, true, (11, 2));
        check("m f=1\nm f=2\n", 6, false, (6, 1));
        check("m f=1\nm f=2\n", 1, false, (6, 1));
        check("# a\n\n  \nm f=1\n", 100, false, (14, 4));
    }

    #[test]
    fn before_directives() {
        check("# DDL\nCREATE DATABASE a\n# DML\nm f=1\n", 100, false, (24, 2));
        check("# DML\n# CONTEXT-DATABASE: a\nm f=1\n", 100, false, (6, 1));
        check("# CONTEXT-DATABASE: a\n# CONTEXT-RETENTION-POLICY: b\nm f=1\n", 100, false, (58, 3));
        assert_eq!(Directive::read(b"# CONTEXT-DATABASE: my db\r\nx"), Some(Directive::Database("my db")));
        assert_eq!(Directive::read(b"# CONTEXT-RETENTION-POLICY: b\n"), None);
    }

    #[test]
    fn not_inside_strings() {
        check("m f=\"a\nb\"\nm f=2\n", 5, false, (10, 2));
        check("m f=\"a\\\"\nb\" 1\nm f=2\n", 5, false, (14, 2));
        check("m f=\"a\n", 100, false, (0, 0));
        check("m f=\"a\nm f=2\n", 100, true, (13, 2));
        check("m,t=\"a f=1\nm f=2\n", 5, false, (11, 1));
        check("m\\ \"x f=1\nm f=2\n", 5, false, (10, 1));
        check("# it's \"open\nm f=2\n", 5, false, (13, 1));
    }
}
