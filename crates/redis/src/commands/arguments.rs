//! The arguments of a command, read from the left.

use std::ops::Range;

use super::CommandError;

/// The arguments of a request. None of them is empty but where the client sent an empty one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arguments<'a> {
    input: &'a [u8],
    ranges: &'a [Range<usize>],
}

impl<'a> Arguments<'a> {
    pub(crate) const fn new(input: &'a [u8], ranges: &'a [Range<usize>]) -> Self {
        Self { input, ranges }
    }

    /// How many are left.
    pub(crate) const fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The next one, which stays.
    pub(crate) fn peek(&self) -> Option<&'a [u8]> {
        self.ranges.first().and_then(|range| self.input.get(range.clone()))
    }

    /// The next one.
    pub(crate) fn next(&mut self) -> Option<&'a [u8]> {
        let next = self.peek()?;
        self.ranges = self.ranges.get(1..)?;
        Some(next)
    }

    /// The next one, which is a text.
    pub(crate) fn text(&mut self) -> Result<&'a str, CommandError> {
        let bytes = self.next().ok_or(CommandError::Syntax)?;
        std::str::from_utf8(bytes)
            .map_err(|_| CommandError::other("ERR keys, labels and names are UTF-8 here, and this one is not"))
    }

    /// The next one as a key.
    pub(crate) fn key(&mut self) -> Result<&'a str, CommandError> {
        let key = self.text()?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(CommandError::other(format!("ERR a key has 1 to {KEY_BYTES_MAX} bytes here")));
        }
        Ok(key)
    }

    /// Takes the next one if it is a word, in any case.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        let is_next = self.peek().is_some_and(|next| next.eq_ignore_ascii_case(word.as_bytes()));
        if is_next {
            self.next();
        }
        is_next
    }

    /// The next one as a number; `error` if it is none.
    pub(crate) fn number<T: std::str::FromStr>(&mut self, error: &str) -> Result<T, CommandError> {
        let text = self.next().and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.and_then(|text| text.parse().ok()).ok_or_else(|| CommandError::other(error))
    }

    /// All that are left, as texts.
    pub(crate) fn rest(&mut self) -> Result<Vec<&'a str>, CommandError> {
        let mut texts = Vec::with_capacity(self.len());
        while self.len() > 0 {
            texts.push(self.text()?);
        }
        Ok(texts)
    }
}

/// Bytes of the longest key.
const KEY_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_taken_from_the_left() {
        let input = b"ADDkey12x\xff";
        let ranges = [0..3, 3..6, 6..8, 8..9, 9..10];
        let mut arguments = Arguments::new(input, &ranges);
        assert!(!arguments.take("AD") && arguments.take("add"));
        assert_eq!(arguments.key().unwrap(), "key");
        assert_eq!(arguments.number::<i64>("no").unwrap(), 12);
        assert_eq!(arguments.number::<i64>("no").unwrap_err().to_string(), "no");
        assert!(arguments.text().unwrap_err().to_string().contains("UTF-8"));
        assert_eq!(arguments.text().unwrap_err().to_string(), "ERR syntax error");
    }
}
