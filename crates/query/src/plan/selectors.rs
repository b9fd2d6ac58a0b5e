//! Selectors of series as PromQL writes them, for languages that take them as texts: `cpu_usage{host=~"a.*",region!="eu"}`.

use model::{METRIC_NAME, MatchOp};

use super::Selector;

/// An example, for errors.
const FORM: &str = "series are selected as cpu_usage{host=\"a\",region=~\"eu.*\"}";

/// Selectors that a text may have.
const SELECTORS_MAX: usize = 1000;

impl Selector {
    /// The selectors of a text; at least one. An error says what is wrong with it.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let mut parser = Parser { rest: text.trim() };
        let mut selectors = Vec::new();
        let name = parser.name(|letter| letter.is_alphanumeric() || matches!(letter, '_' | ':' | '.'));
        if !name.is_empty() {
            selectors.push(metric(name.to_owned()));
        }
        if parser.skip('{') {
            while !parser.skip('}') {
                if selectors.len() >= SELECTORS_MAX {
                    return Err(format!("there are more than {SELECTORS_MAX} selectors"));
                }
                selectors.push(parser.selector()?);
                if !parser.skip(',') && !parser.rest.starts_with('}') {
                    return Err(parser.wrong());
                }
            }
        }
        if !parser.rest.is_empty() || selectors.is_empty() {
            return Err(parser.wrong());
        }
        Ok(selectors)
    }
}

fn metric(name: String) -> Selector {
    Selector { name: METRIC_NAME.to_owned(), op: MatchOp::Equal, values: vec![name] }
}

struct Parser<'t> {
    /// Without blanks before it.
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn wrong(&self) -> String {
        let rest: String = self.rest.chars().take(40).collect();
        if rest.is_empty() {
            format!("the selector ends too soon: {FORM}")
        } else {
            format!("not understood at {rest:?}: {FORM}")
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default().trim_start();
    }

    fn skip(&mut self, letter: char) -> bool {
        let is_there = self.rest.starts_with(letter);
        if is_there {
            self.advance(letter.len_utf8());
        }
        is_there
    }

    fn name(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
        let name = self.rest.get(..end).unwrap_or_default();
        self.advance(end);
        name
    }

    /// `label="value"`, or the metric's name in quotes.
    fn selector(&mut self) -> Result<Selector, String> {
        let is_quoted = self.rest.starts_with(['"', '\'']);
        let name = if is_quoted {
            self.quoted()?
        } else {
            self.name(|letter| letter.is_alphanumeric() || letter == '_').to_owned()
        };
        let ops = [("=~", MatchOp::Regex), ("!~", MatchOp::NotRegex), ("!=", MatchOp::NotEqual), ("=", MatchOp::Equal)];
        let Some((sign, op)) = ops.into_iter().find(|(sign, _)| self.rest.starts_with(sign)) else {
            return if !is_quoted || name.is_empty() || !self.rest.starts_with([',', '}']) {
                Err(self.wrong())
            } else {
                Ok(metric(name))
            };
        };
        if name.is_empty() {
            return Err(self.wrong());
        }
        self.advance(sign.len());
        Ok(Selector { name, op, values: vec![self.quoted()?] })
    }

    fn quoted(&mut self) -> Result<String, String> {
        let Some(quote) = self.rest.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
            return Err(self.wrong());
        };
        let mut text = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => match letters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                _ if letter == quote => {
                    self.advance(at + 1);
                    return Ok(text);
                }
                _ => text.push(letter),
            }
        }
        Err(format!("a text in quotes never ends: {FORM}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_as_promql_writes_them() {
        let one = |name: &str, op, value: &str| Selector { name: name.to_owned(), op, values: vec![value.to_owned()] };
        let name = |name: &str| one(METRIC_NAME, MatchOp::Equal, name);
        for (text, expected) in [
            ("up", vec![name("up")]),
            (" cpu:rate5m {} ", vec![name("cpu:rate5m")]),
            (
                "up{a=\"b\" , c!~'d.*',}",
                vec![name("up"), one("a", MatchOp::Equal, "b"), one("c", MatchOp::NotRegex, "d.*")],
            ),
            (r#"{"a b", c != "x\"\\\n}"}"#, vec![name("a b"), one("c", MatchOp::NotEqual, "x\"\\\n}")]),
            (r#"{__name__=~"a|b"}"#, vec![one(METRIC_NAME, MatchOp::Regex, "a|b")]),
        ] {
            assert_eq!(Selector::parse_all(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "{}",
            "up{",
            "up{a}",
            "up{a=b}",
            "up{a=\"b}",
            "up{a=\"b\" c=\"d\"}",
            "up} x",
            "up{=\"b\"}",
            "{\"a\\",
            "sum(up)",
        ] {
            assert!(Selector::parse_all(text).is_err(), "{text}");
        }
    }
}
