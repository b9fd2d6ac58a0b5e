//! What is checked on the raw text before it goes to the parser: nesting (its tree is walked by recursion, so that
//! hostile text could exhaust the stack), durations (it would panic on some) and the cost of regular expressions.

use std::iter::Peekable;
use std::str::CharIndices;

/// Longest expression.
pub(crate) const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Deepest nesting; operators in a row count like parentheses, since each makes the tree deeper.
pub(crate) const DEPTH_MAX: usize = 200;
/// Most regular expressions.
const REGEXES_MAX: usize = 256;
/// Longest duration given as a number of seconds: 1,000 years.
const SECONDS_MAX: f64 = 1000.0 * 365.0 * 86_400.0;

/// Checks a text; the error is for the user.
pub(crate) fn check(text: &str) -> Result<(), String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("the expression has {} bytes, more than the limit of {TEXT_BYTES_MAX}", text.len()));
    }
    let mut scan =
        Scan { text, chars: text.char_indices().peekable(), levels: vec![1], seconds_follow: false, regexes: 0 };
    while let Some((place, next)) = scan.chars.next() {
        scan.step(place, next)?;
    }
    Ok(())
}

struct Scan<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
    /// For each open parenthesis, how deep the tree below it may be.
    levels: Vec<usize>,
    /// A duration comes next.
    seconds_follow: bool,
    regexes: usize,
}

impl Scan<'_> {
    fn step(&mut self, place: usize, next: char) -> Result<(), String> {
        match next {
            '"' | '\'' | '`' => self.skip_string(next),
            '#' => self.skip_while(|c| c != '\n' && c != '\r'),
            '(' => {
                self.levels.push(1);
                return self.check_depth();
            }
            ')' if self.levels.len() > 1 => {
                self.levels.pop();
            }
            ',' => {
                if let Some(level) = self.levels.last_mut() {
                    *level = 1;
                }
            }
            '{' => return self.matchers(),
            '[' => return self.brackets(place),
            '+' | '-' | '*' | '/' | '%' | '^' | '=' | '!' | '<' | '>' | '@' => return self.deeper(),
            c if c.is_ascii_alphanumeric() || c == '_' || c == '.' => return self.word(place),
            _ => {}
        }
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), String> {
        if let Some(level) = self.levels.last_mut() {
            *level += 1;
        }
        self.check_depth()
    }

    fn check_depth(&self) -> Result<(), String> {
        if self.levels.iter().sum::<usize>() > DEPTH_MAX {
            return Err(format!("the expression nests deeper than the limit of {DEPTH_MAX} levels"));
        }
        Ok(())
    }

    fn word(&mut self, place: usize) -> Result<(), String> {
        self.skip_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':'));
        let end = self.chars.peek().map_or(self.text.len(), |(place, _)| *place);
        let word = self.text.get(place..end).unwrap_or_default().to_ascii_lowercase();
        if std::mem::take(&mut self.seconds_follow) {
            check_seconds(&word)?;
        }
        match word.as_str() {
            "and" | "or" | "unless" | "atan2" => self.deeper(),
            "offset" => {
                self.seconds_follow = true;
                self.deeper()
            }
            _ => Ok(()),
        }
    }

    fn brackets(&mut self, place: usize) -> Result<(), String> {
        self.skip_while(|c| c != ']');
        let end = self.chars.peek().map_or(self.text.len(), |(place, _)| *place);
        let inside = self.text.get(place + 1..end).unwrap_or_default();
        inside.split(':').try_for_each(|part| check_seconds(part.trim()))?;
        self.deeper()
    }

    /// Skips what is between braces, checking the regular expressions there.
    fn matchers(&mut self) -> Result<(), String> {
        let mut regex_follows = false;
        while let Some((place, next)) = self.chars.next() {
            match next {
                '}' => break,
                '#' => self.skip_while(|c| c != '\n' && c != '\r'),
                '~' => regex_follows = true,
                '"' | '\'' | '`' => {
                    self.skip_string(next);
                    let end = self.chars.peek().map_or(self.text.len(), |(place, _)| *place);
                    let quoted = self.text.get(place..end).unwrap_or_default();
                    if std::mem::take(&mut regex_follows) {
                        self.regex(quoted)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn regex(&mut self, quoted: &str) -> Result<(), String> {
        self.regexes += 1;
        if self.regexes > REGEXES_MAX {
            return Err(format!("the expression has more than {REGEXES_MAX} regular expressions"));
        }
        // What cannot be unquoted the parser refuses by itself.
        match promql_parser::util::unquote_string(quoted) {
            Ok(pattern) => super::compile_regex(&pattern).map(|_| ()),
            Err(_) => Ok(()),
        }
    }

    fn skip_string(&mut self, quote: char) {
        while let Some((_, next)) = self.chars.next() {
            if next == quote {
                return;
            }
            if next == '\\' {
                self.chars.next();
            }
        }
    }

    fn skip_while(&mut self, holds: impl Fn(char) -> bool) {
        while self.chars.next_if(|(_, next)| holds(*next)).is_some() {}
    }
}

/// Durations may be plain numbers of seconds; those that are none, or out of bounds, must not reach the parser.
fn check_seconds(word: &str) -> Result<(), String> {
    match word.parse::<f64>() {
        Ok(seconds) if !(0.0..=SECONDS_MAX).contains(&seconds) => {
            Err(format!("duration out of range: {word} (at most {SECONDS_MAX} seconds)"))
        }
        _ => Ok(()),
    }
}
