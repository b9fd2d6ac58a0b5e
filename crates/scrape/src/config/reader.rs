//! Reads typed values from a tree. Each field that is read is known; what is left at the end is an error that names the nearest known one.
//! Errors are gathered, so that one run shows them all.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::{Path, PathBuf};

use super::units;
use super::yaml::{Node, Position, Value};

/// Findings that are kept of a file.
const PROBLEMS_MAX: usize = 100;

/// An error or a warning, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// The position in it.
    pub position: Position,
    /// The error.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        write!(formatter, "{}:{line}:{column}: {}", self.file.display(), self.message)
    }
}

impl std::error::Error for Problem {}

/// The reading of one file.
#[derive(Debug)]
pub struct Reading {
    file: PathBuf,
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl Reading {
    /// Of a file by this name; files that it names lie beside it.
    pub fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), problems: RefCell::default(), warnings: RefCell::default() }
    }

    /// Errors and warnings, in order of position.
    pub fn finish(self) -> (Vec<Problem>, Vec<Problem>) {
        let (mut problems, mut warnings) = (self.problems.into_inner(), self.warnings.into_inner());
        problems.sort();
        problems.dedup();
        warnings.sort();
        warnings.dedup();
        (problems, warnings)
    }

    /// A path in the file, which is relative to the file's folder.
    pub fn path(&self, text: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(text)
    }

    /// Adds an error.
    pub fn error(&self, position: Position, message: impl Into<String>) {
        push(&self.problems, Problem { file: self.file.clone(), position, message: message.into() });
    }

    /// Adds a warning.
    pub fn warn(&self, position: Position, message: impl Into<String>) {
        push(&self.warnings, Problem { file: self.file.clone(), position, message: message.into() });
    }

    /// The fields of a map.
    pub fn fields<'a>(&'a self, node: &'a Node) -> Option<Fields<'a>> {
        let mut entries = Vec::new();
        match &node.value {
            Value::Map(found) => {
                for (key, value) in found {
                    match (&*key.name, &value.value) {
                        // Keys of the map itself win over those that are merged into it.
                        ("<<", Value::Map(merged)) => {
                            let is_own = |name: &str| found.iter().any(|(own, _)| own.name == name);
                            entries.extend(merged.iter().filter(|(key, _)| !is_own(&key.name)).map(Entry::new));
                        }
                        _ => entries.push(Entry { key: (&key.name, key.position), value, is_used: Cell::new(false) }),
                    }
                }
            }
            _ if node.is_null() => {}
            _ => {
                self.error(node.position, format!("expected a map, found {}", node.kind()));
                return None;
            }
        }
        Some(Fields { reading: self, position: node.position, entries, known: RefCell::default() })
    }

    /// The items of a list; nothing is an empty one.
    pub fn items<'a>(&self, node: &'a Node) -> &'a [Node] {
        match &node.value {
            Value::List(items) => items,
            _ if node.is_null() => &[],
            _ => {
                self.error(node.position, format!("expected a list, found {}", node.kind()));
                &[]
            }
        }
    }

    /// A text.
    pub fn text(&self, node: &Node) -> Option<String> {
        match node.text() {
            _ if node.is_null() => Some(String::new()),
            Some(text) => Some(text.to_owned()),
            None => {
                self.error(node.position, format!("expected a text, found {}", node.kind()));
                None
            }
        }
    }

    /// Makes something of a text; an error stands at it.
    pub fn parse<T>(&self, node: &Node, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(node)?;
        parse(&text).map_err(|message| self.error(node.position, message)).ok()
    }
}

fn push(problems: &RefCell<Vec<Problem>>, problem: Problem) {
    let mut problems = problems.borrow_mut();
    if problems.len() < PROBLEMS_MAX {
        problems.push(problem);
    }
}

struct Entry<'a> {
    key: (&'a str, Position),
    value: &'a Node,
    is_used: Cell<bool>,
}

impl<'a> Entry<'a> {
    fn new((key, value): &'a (super::yaml::Key, Node)) -> Self {
        Self { key: (&key.name, key.position), value, is_used: Cell::new(false) }
    }
}

/// The fields of a map that is being read.
pub struct Fields<'a> {
    /// The whole.
    pub reading: &'a Reading,
    /// Where the map begins.
    pub position: Position,
    entries: Vec<Entry<'a>>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Fields<'a> {
    /// The node of a field, if it is there and not nothing.
    pub fn node(&self, name: &'static str) -> Option<&'a Node> {
        self.known.borrow_mut().push(name);
        let entry = self.entries.iter().find(|entry| entry.key.0 == name)?;
        entry.is_used.set(true);
        (!entry.value.is_null()).then_some(entry.value)
    }

    /// Returns whether a field is there, whatever it holds.
    pub fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.key.0 == name)
    }

    /// Where a field's name stands, or where the map begins.
    pub fn position_of(&self, name: &str) -> Position {
        self.entries.iter().find(|entry| entry.key.0 == name).map_or(self.position, |entry| entry.key.1)
    }

    /// A text.
    pub fn text(&self, name: &'static str) -> Option<String> {
        self.reading.text(self.node(name)?)
    }

    /// A text, or its default.
    pub fn text_or(&self, name: &'static str, default: &str) -> String {
        self.text(name).unwrap_or_else(|| default.to_owned())
    }

    /// A text that must be there.
    pub fn required(&self, name: &'static str) -> String {
        let text = self.text(name).unwrap_or_default();
        if text.is_empty() {
            self.reading.error(self.position, format!("{name} is missing"));
        }
        text
    }

    /// Makes something of a field's text.
    pub fn parsed<T>(&self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        self.reading.parse(self.node(name)?, parse)
    }

    /// A truth value.
    pub fn flag(&self, name: &'static str) -> Option<bool> {
        self.parsed(name, |text| match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            _ => Err(format!("{name}: expected true or false, found {text:?}")),
        })
    }

    /// A truth value, or its default.
    pub fn flag_or(&self, name: &'static str, default: bool) -> bool {
        self.flag(name).unwrap_or(default)
    }

    /// A whole number.
    pub fn number(&self, name: &'static str) -> Option<u64> {
        self.parsed(name, |text| text.parse().map_err(|_| format!("{name}: expected a whole number, found {text:?}")))
    }

    /// A number.
    pub fn float(&self, name: &'static str) -> Option<f64> {
        self.parsed(name, |text| text.parse().map_err(|_| format!("{name}: expected a number, found {text:?}")))
    }

    /// Milliseconds of a duration.
    pub fn duration_ms(&self, name: &'static str) -> Option<u64> {
        self.parsed(name, |text| units::duration_ms(text).map_err(|reason| format!("{name}: {reason}")))
    }

    /// Bytes of a size.
    pub fn size_bytes(&self, name: &'static str) -> Option<u64> {
        self.parsed(name, |text| units::size_bytes(text).map_err(|reason| format!("{name}: {reason}")))
    }

    /// Reads each item of a list.
    pub fn list<T>(&self, name: &'static str, read: impl FnMut(&'a Node) -> Option<T>) -> Vec<T> {
        let Some(node) = self.node(name) else { return Vec::new() };
        self.reading.items(node).iter().filter_map(read).collect()
    }

    /// A list of texts.
    pub fn texts(&self, name: &'static str) -> Vec<String> {
        self.list(name, |node| self.reading.text(node))
    }

    /// A list of maps.
    pub fn maps<T>(&self, name: &'static str, mut read: impl FnMut(&Fields<'a>) -> Option<T>) -> Vec<T> {
        self.list(name, |node| {
            let fields = self.reading.fields(node)?;
            let made = read(&fields);
            fields.finish();
            made
        })
    }

    /// A map with known fields.
    pub fn map<T>(&self, name: &'static str, read: impl FnOnce(&Fields<'a>) -> T) -> Option<T> {
        let fields = self.reading.fields(self.node(name)?)?;
        let made = read(&fields);
        fields.finish();
        Some(made)
    }

    /// A map with any keys.
    pub fn pairs<T>(&self, name: &'static str, mut read: impl FnMut(&'a Node) -> Option<T>) -> Vec<(String, T)> {
        let Some(fields) = self.node(name).and_then(|node| self.reading.fields(node)) else { return Vec::new() };
        let pairs = fields.entries.iter().filter_map(|entry| Some((entry.key.0.to_owned(), read(entry.value)?)));
        pairs.collect()
    }

    /// A map of texts, with the positions of its keys.
    pub fn text_pairs(&self, name: &'static str) -> Vec<(String, String)> {
        self.pairs(name, |node| self.reading.text(node))
    }

    /// A field that is accepted and does nothing here: one warning.
    pub fn without_effect(&self, name: &'static str, why: &str) {
        if self.node(name).is_some() {
            self.reading.warn(self.position_of(name), format!("{name} has no effect: {why}"));
        }
    }

    /// Names of fields that were not read so far.
    pub fn unread(&self) -> Vec<(&'a str, Position)> {
        self.entries.iter().filter(|entry| !entry.is_used.get()).map(|entry| entry.key).collect()
    }

    /// Marks a field as read.
    pub fn skip(&self, name: &str) {
        self.entries.iter().filter(|entry| entry.key.0 == name).for_each(|entry| entry.is_used.set(true));
    }

    /// Refuses all fields that were not read.
    pub fn finish(&self) {
        let known = self.known.borrow();
        for (name, position) in self.unread() {
            let hint = nearest(name, &known).map_or_else(String::new, |near| format!(": did you mean {near}?"));
            self.reading.error(position, format!("unknown field {name}{hint}"));
        }
    }
}

/// The known name that is most like this one, if any is like it.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let distance = |other: &str| edit_distance(name.as_bytes(), other.as_bytes());
    let nearest = known.iter().map(|other| (distance(other), *other)).min();
    nearest.filter(|(distance, other)| *distance <= (other.len() / 3).max(2)).map(|(_, other)| other)
}

/// Insertions, deletions and changes of bytes between two names.
fn edit_distance(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, byte) in from.iter().enumerate() {
        let mut diagonal = index;
        let mut left = index + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, other) in row.iter_mut().skip(1).zip(to) {
            let changed = diagonal + usize::from(byte != other);
            diagonal = *cell;
            left = changed.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::*;

    #[test]
    fn errors_name_their_position_and_the_nearest_field() {
        let text = "job_nmae: x\nscrape_interval: fast\nparams:\n  - a\n";
        let node = yaml::parse(text).unwrap();
        let reading = Reading::new(Path::new("/etc/p.yml"));
        let fields = reading.fields(&node).unwrap();
        fields.required("job_name");
        fields.duration_ms("scrape_interval");
        fields.pairs("params", |node| reading.text(node));
        fields.finish();
        let (problems, _) = reading.finish();
        let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "/etc/p.yml:1:1: job_name is missing",
                "/etc/p.yml:1:1: unknown field job_nmae: did you mean job_name?",
                "/etc/p.yml:2:18: scrape_interval: \"fast\" is no duration such as 30s or 1h30m",
                "/etc/p.yml:4:3: expected a map, found a list",
            ]
        );
    }

    #[test]
    fn distances() {
        for (a, b, expected) in [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 2), ("kitten", "sitting", 3)] {
            assert_eq!(edit_distance(a.as_bytes(), b.as_bytes()), expected);
        }
    }
}
