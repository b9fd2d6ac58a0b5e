//! Text to a tree of lists and atoms, each with its place.

use std::fmt;

use crate::plan::UNITS;

/// Bytes of a text.
pub const TEXT_BYTES_MAX: usize = 1 << 18;
/// Lists within lists.
const DEPTH_MAX: usize = 64;

/// An error in a text, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where, in bytes from its beginning.
    pub offset: usize,
    /// The line, from 1.
    pub line: usize,
    /// The character in its line, from 1.
    pub column: usize,
    /// The error, and what to write instead.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for SyntaxError {}

/// An error whose line is not counted yet.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) offset: usize,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn in_text(self, text: &str) -> SyntaxError {
        let before = text.get(..self.offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        SyntaxError { offset: self.offset, line, column, message: self.message }
    }
}

/// An atom or a list.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) offset: usize,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    List(Vec<Node>),
    /// `'(…)`
    Quoted(Vec<Node>),
    Symbol(String),
    Text(String),
    Integer(i64),
    Float(f64),
    /// In nanoseconds.
    Duration(i64),
}

impl Node {
    pub(super) fn fault(&self, message: impl Into<String>) -> Fault {
        Fault { offset: self.offset, message: message.into() }
    }

    /// Its kind, for messages.
    pub(super) fn name(&self) -> String {
        match &self.kind {
            Kind::List(_) => "a list".to_owned(),
            Kind::Quoted(_) => "a quoted list".to_owned(),
            Kind::Symbol(symbol) => format!("`{symbol}`"),
            Kind::Text(text) => format!("the text {text:?}"),
            Kind::Integer(number) => format!("the number {number}"),
            Kind::Float(number) => format!("the number {number}"),
            Kind::Duration(_) => "a duration".to_owned(),
        }
    }
}

/// Reads one expression that is the whole text.
pub(super) fn read(text: &str) -> Result<Node, SyntaxError> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the text has {} bytes, more than the {TEXT_BYTES_MAX} that it may have", text.len());
        return Err(Fault { offset: 0, message }.in_text(text));
    }
    let mut reader = Reader { text, at: 0 };
    let whole = |reader: &mut Reader<'_>| {
        let node = reader.node(0)?;
        reader.skip_blank();
        match reader.peek() {
            None => Ok(node),
            Some(_) => Err(reader.fault("this stands behind the end of the query: a text is one expression")),
        }
    };
    whole(&mut reader).map_err(|fault| fault.in_text(text))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn fault(&self, message: impl Into<String>) -> Fault {
        Fault { offset: self.at, message: message.into() }
    }

    /// Blanks, commas, and comments from `;` to the end of the line.
    fn skip_blank(&mut self) {
        while let Some(character) = self.peek() {
            if character == ';' {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            } else if character.is_whitespace() || character == ',' {
                self.at += character.len_utf8();
            } else {
                return;
            }
        }
    }

    fn node(&mut self, depth: usize) -> Result<Node, Fault> {
        self.skip_blank();
        let offset = self.at;
        if depth > DEPTH_MAX {
            return Err(self.fault(format!("lists may stand within lists {DEPTH_MAX} deep")));
        }
        let kind = match self.peek() {
            None => {
                return Err(self.fault("the text ends where an expression is wanted, such as (->> (metric \"up\"))"));
            }
            Some('(') => Kind::List(self.list(depth)?),
            Some('\'') => {
                self.at += 1;
                if self.peek() != Some('(') {
                    return Err(self.fault("behind a quote stands a list, such as '(\"a\" \"b\")"));
                }
                Kind::Quoted(self.list(depth)?)
            }
            Some(')') => return Err(self.fault("this parenthesis closes nothing")),
            Some('"') => Kind::Text(self.quoted()?),
            Some(_) => self.atom()?,
        };
        Ok(Node { offset, kind })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Fault> {
        let opened = self.at;
        self.at += 1;
        let mut nodes = Vec::new();
        loop {
            self.skip_blank();
            match self.peek() {
                None => return Err(Fault { offset: opened, message: "this parenthesis is never closed".to_owned() }),
                Some(')') => {
                    self.at += 1;
                    return Ok(nodes);
                }
                Some(_) => nodes.push(self.node(depth + 1)?),
            }
        }
    }

    fn quoted(&mut self) -> Result<String, Fault> {
        let opened = self.at;
        let mut text = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((place, character)) = characters.next() {
            match character {
                '"' => {
                    self.at = opened + place + 1;
                    return Ok(text);
                }
                '\\' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                other => text.push(other),
            }
        }
        Err(Fault { offset: opened, message: "this text is never closed by a quotation mark".to_owned() })
    }

    fn atom(&mut self) -> Result<Kind, Fault> {
        let ends = |character: char| character.is_whitespace() || "()'\",;".contains(character);
        let length = self.rest().find(ends).unwrap_or(self.rest().len());
        let atom = self.rest().get(..length).unwrap_or_default().to_owned();
        let kind = classify(&atom).map_err(|message| self.fault(message))?;
        self.at += length;
        Ok(kind)
    }
}

fn classify(atom: &str) -> Result<Kind, String> {
    let digits = atom.trim_start_matches(['+', '-']);
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return Ok(match atom {
            "nan" => Kind::Float(f64::NAN),
            "inf" | "+inf" => Kind::Float(f64::INFINITY),
            "-inf" => Kind::Float(f64::NEG_INFINITY),
            _ => Kind::Symbol(atom.to_owned()),
        });
    }
    if let Ok(number) = atom.parse() {
        return Ok(Kind::Integer(number));
    }
    if let Ok(number) = atom.parse() {
        return Ok(Kind::Float(number));
    }
    let (negative, digits) = atom.strip_prefix('-').map_or((false, digits), |digits| (true, digits));
    match duration(digits) {
        Some(ns) => Ok(Kind::Duration(if negative { -ns } else { ns })),
        None => Err(format!(
            "{atom:?} is neither a number nor a duration such as 90s, 15m or 1h30m (units: w d h m s ms us ns)"
        )),
    }
}

/// Numbers with units, one after another.
fn duration(text: &str) -> Option<i64> {
    let mut total = 0i64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit())?;
        let (number, behind) = rest.split_at_checked(digits)?;
        let unit = behind.find(|character: char| character.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at_checked(unit)?;
        let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(*unit_ns)?)?;
        rest = behind;
    }
    Some(total)
}
