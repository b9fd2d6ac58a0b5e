//! YAML as a tree of texts with positions. What a text means is for its reader to say: a label's value `8080` stays a text.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use granit_parser::{Event, Parser, ScalarStyle};

/// Nodes of a file, those that aliases repeat included.
const NODES_MAX: usize = 1_000_000;

/// How deep lists and maps may be in one another.
const DEPTH_MAX: usize = 100;

/// A position in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

/// A node of the tree.
#[derive(Debug, Clone)]
pub struct Node {
    /// Where it begins.
    pub position: Position,
    /// Its content.
    pub value: Value,
    /// Set by readers of secrets: it is shown as `<secret>`.
    pub(crate) is_secret: Cell<bool>,
}

/// The content of a node.
#[derive(Debug, Clone)]
pub enum Value {
    /// A text, and whether it stood without quotes.
    Text(String, bool),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in order.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Debug, Clone)]
pub struct Key {
    /// Where it begins.
    pub position: Position,
    /// Its text.
    pub name: String,
}

/// Why a text is no YAML, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// Where.
    pub position: Position,
    /// Why.
    pub message: String,
}

impl Node {
    pub(crate) fn new(position: Position, value: Value) -> Self {
        Self { position, value, is_secret: Cell::new(false) }
    }

    /// Returns whether it is nothing: empty, `~` or `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Text(text, true) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Its text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text, _) => Some(text),
            _ => None,
        }
    }

    /// Its content as JSON. What stands without quotes may be a number, a truth value or nothing.
    pub fn json(&self) -> serde_json::Value {
        match &self.value {
            _ if self.is_null() => serde_json::Value::Null,
            Value::Text(text, true) => {
                let plain = serde_json::from_str(text).ok().filter(|value: &serde_json::Value| !value.is_string());
                plain.unwrap_or_else(|| text.as_str().into())
            }
            Value::Text(text, false) => text.as_str().into(),
            Value::List(nodes) => nodes.iter().map(Self::json).collect(),
            Value::Map(pairs) => pairs.iter().map(|(key, node)| (key.name.clone(), node.json())).collect(),
        }
    }

    /// Its kind, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Text(..) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

/// Reads the first document of a text; an empty one is nothing.
pub fn parse(text: &str) -> Result<Node, YamlError> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text.trim_start_matches('\u{feff}')) {
        let (event, span) = event.map_err(|error| YamlError {
            position: position(error.marker()),
            message: error.info().lines().next().unwrap_or("malformed").to_owned(),
        })?;
        builder.take(event, position(&span.start))?;
        if builder.is_done {
            break;
        }
    }
    let nothing = || Node::new(Position { line: 1, column: 1 }, Value::Text(String::new(), true));
    Ok(builder.root.unwrap_or_else(nothing))
}

fn position(marker: &granit_parser::Marker) -> Position {
    Position { line: marker.line() as u32, column: marker.col() as u32 + 1 }
}

/// A list or a map that is not at its end.
struct Open {
    node: Node,
    anchor: usize,
    /// The key whose value comes next.
    key: Option<Key>,
    names: BTreeSet<String>,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: BTreeMap<usize, (Node, usize)>,
    nodes: usize,
    root: Option<Node>,
    is_done: bool,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, position: Position) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let value = Value::Text(text.into_owned(), style == ScalarStyle::Plain);
                self.count(1, position)?;
                self.add(Node::new(position, value), anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.start(Value::List(Vec::new()), anchor, position),
            Event::MappingStart(_, anchor, _) => self.start(Value::Map(Vec::new()), anchor, position),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => self.add(open.node, open.anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => {
                let unknown = || YamlError { position, message: "this alias has no anchor".to_owned() };
                let (node, nodes) = self.anchors.get(&anchor).cloned().ok_or_else(unknown)?;
                self.count(nodes, position)?;
                self.add(node, 0)
            }
            Event::DocumentEnd => {
                self.is_done = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, nodes: usize, position: Position) -> Result<(), YamlError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= NODES_MAX {
            return Ok(());
        }
        Err(YamlError { position, message: format!("more than {NODES_MAX} values, those of aliases included") })
    }

    fn start(&mut self, value: Value, anchor: usize, position: Position) -> Result<(), YamlError> {
        self.count(1, position)?;
        if self.open.len() >= DEPTH_MAX {
            return Err(YamlError { position, message: format!("lists and maps are nested deeper than {DEPTH_MAX}") });
        }
        self.open.push(Open { node: Node::new(position, value), anchor, key: None, names: BTreeSet::new() });
        Ok(())
    }

    fn add(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), count_nodes(&node)));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.node.value {
            Value::List(items) => items.push(node),
            Value::Map(entries) => match open.key.take() {
                Some(key) => entries.push((key, node)),
                None => {
                    let position = node.position;
                    let Value::Text(name, _) = node.value else {
                        return Err(YamlError {
                            position,
                            message: format!("a key must be a text, not {}", node.kind()),
                        });
                    };
                    if name != "<<" && !open.names.insert(name.clone()) {
                        return Err(YamlError { position, message: format!("the key {name:?} is there twice") });
                    }
                    open.key = Some(Key { position, name });
                }
            },
            Value::Text(..) => {}
        }
        Ok(())
    }
}

fn count_nodes(node: &Node) -> usize {
    match &node.value {
        Value::Text(..) => 1,
        Value::List(items) => 1 + items.iter().map(count_nodes).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|(_, node)| count_nodes(node)).sum::<usize>(),
    }
}

/// Writes a tree as YAML, without its secrets.
pub fn render(node: &Node) -> String {
    let mut out = String::new();
    write_node(&mut out, node, 0, false);
    out.trim_start_matches('\n').to_owned()
}

fn write_node(out: &mut String, node: &Node, indent: usize, after_dash: bool) {
    match &node.value {
        _ if node.is_secret.get() => out.push_str(" <secret>\n"),
        Value::Text(text, is_plain) => {
            let text = without_password(text);
            // Writing into a string does not fail.
            let _ =
                writeln!(out, " {}", if *is_plain && is_plain_text(&text) { text.into_owned() } else { quoted(&text) });
        }
        Value::List(items) if items.is_empty() => out.push_str(" []\n"),
        Value::Map(entries) if entries.is_empty() => out.push_str(" {}\n"),
        Value::List(items) => {
            out.push('\n');
            for item in items {
                let _ = write!(out, "{:indent$}-", "");
                write_node(out, item, indent + 2, true);
            }
        }
        Value::Map(entries) => {
            let mut is_first = true;
            for (key, value) in entries {
                match (is_first, after_dash) {
                    (true, true) => out.push(' '),
                    (true, false) => {
                        let _ = write!(out, "\n{:indent$}", "");
                    }
                    (false, _) => {
                        let _ = write!(out, "{:indent$}", "");
                    }
                }
                is_first = false;
                let _ = write!(out, "{}:", if is_plain_key(&key.name) { key.name.clone() } else { quoted(&key.name) });
                // A list stands as far to the right as its key.
                let deeper = if matches!(value.value, Value::List(_)) { indent } else { indent + 2 };
                write_node(out, value, deeper, false);
            }
        }
    }
}

/// What stands for a password in an address, as Prometheus shows it.
const PASSWORD: &str = "xxxxx";

/// An address without the password in it (`http://user:password@host/`); any other text as it is.
fn without_password(text: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = text.split_once("://") else { return Cow::Borrowed(text) };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').and_then(|(user_info, _)| user_info.split_once(':'));
    let Some((name, password)) = user else { return Cow::Borrowed(text) };
    let after = rest.get(name.len() + 1 + password.len()..).unwrap_or_default();
    Cow::Owned(format!("{scheme}://{name}:{PASSWORD}{after}"))
}

/// Returns whether a text that stood without quotes may stand so wherever it is written.
fn is_plain_text(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./+$".contains(&byte);
    text == "~" || text.is_empty() || text.bytes().all(allowed) && !text.starts_with('-') && !text.starts_with("..")
}

fn is_plain_key(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for symbol in text.chars() {
        match symbol {
            '"' | '\\' => quoted.extend(['\\', symbol]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            plain => quoted.push(plain),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_their_passwords() {
        for (text, shown) in [
            ("http://u:secret@proxy:3128", "http://u:xxxxx@proxy:3128"),
            ("https://u:s@c:ret@h/p?a=b@c", "https://u:xxxxx@h/p?a=b@c"),
            ("http://u:@h", "http://u:xxxxx@h"),
            ("http://u@h:80/", "http://u@h:80/"),
            ("http://h:80/x:y@z", "http://h:80/x:y@z"),
            ("u:secret@h", "u:secret@h"),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }

    #[test]
    fn trees_have_positions_and_come_back_as_text() {
        let text = "a: 1 # note\nb:\n  - x: 'y'\n    z: [1, \"2\\n\"]\n  - {}\nc: &anchor\n  d: e\nf: *anchor\ng:\n";
        let node = parse(text).unwrap();
        let Value::Map(entries) = &node.value else { panic!() };
        assert_eq!(entries[1].0.position, Position { line: 2, column: 1 });
        let Value::List(items) = &entries[1].1.value else { panic!() };
        assert_eq!(items[0].position, Position { line: 3, column: 5 });
        assert!(entries[4].1.is_null());
        let shown = render(&node);
        let expected = "a: 1\nb:\n- x: \"y\"\n  z:\n  - 1\n  - \"2\\n\"\n- {}\nc:\n  d: e\nf:\n  d: e\ng: ~\n";
        assert_eq!(shown, expected);
        assert_eq!(render(&parse(&shown).unwrap()), expected);
    }

    #[test]
    fn what_is_no_tree_is_an_error_with_its_position() {
        for (text, line, message) in [
            ("a: 1\na: 2\n", 2, "twice"),
            ("a: [1\n", 2, ""),
            ("? [a]\n: b\n", 1, "a key must be a text"),
            ("a: *b\n", 1, ""),
            ("a:\n\t- b\n", 2, ""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains(message), "{text:?}: {error:?}");
            assert!(error.position.line.abs_diff(line) <= 1, "{text:?}: {error:?}");
        }
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let list = vec![format!("*a{}", level - 1); 10].join(", ");
            writeln!(bomb, "a{level}: &a{level} [{list}]").unwrap();
        }
        assert!(parse(&bomb).unwrap_err().message.contains("more than"));
        assert!(parse(&"[".repeat(5000)).is_err());
        assert!(parse("").unwrap().is_null());
    }
}
