//! Templates as trees.

use std::collections::BTreeMap;

use super::functions;
use super::lexer::{Lexeme, Token, lex};
use super::value::Value;

/// How deep actions and parentheses may be in one another.
const DEPTH_MAX: usize = 60;

/// Something that a template does, in order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Text(String),
    /// Its value is printed, unless it sets a variable.
    Action(Pipe),
    If(Branch),
    With(Branch),
    Range(Branch),
    /// Runs another template.
    Template {
        name: String,
        argument: Option<Pipe>,
    },
    Break,
    Continue,
}

/// A condition or a list, what is done with it, and without it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Branch {
    pub(super) pipe: Pipe,
    pub(super) then: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// Commands, each with the result of the one before as its last argument.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Pipe {
    /// Variables that are made or set.
    pub(super) variables: Vec<String>,
    /// True if the variables exist.
    pub(super) is_assignment: bool,
    pub(super) commands: Vec<Vec<Operand>>,
}

/// A value, and what is taken of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Operand {
    pub(super) base: Base,
    pub(super) fields: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Base {
    Dot,
    Variable(String),
    Constant(Value),
    Function(&'static str),
    Pipe(Box<Pipe>),
}

/// Templates by name.
pub(super) type Templates = BTreeMap<String, Vec<Node>>;

/// Parses a text, and the templates that it defines.
pub(super) fn parse(name: &str, text: &str) -> Result<Templates, String> {
    let failed = |line: usize, reason: String| format!("template: {name}:{line}: {reason}");
    let lexemes = lex(text).map_err(|(line, reason)| failed(line, reason))?;
    let variables = vec!["$".to_owned()];
    let mut parser = Parser { lexemes, next: 0, templates: Templates::new(), variables, depth: 0, loops: 0 };
    let parsed = parser.list().and_then(|(nodes, end)| match end {
        ListEnd::Text => Ok(nodes),
        ListEnd::Closed => Err("unexpected {{end}}".to_owned()),
        ListEnd::Else => Err("unexpected {{else}}".to_owned()),
    });
    match parsed {
        Ok(nodes) => {
            parser.templates.insert(name.to_owned(), nodes);
            Ok(parser.templates)
        }
        Err(reason) => Err(failed(parser.line(), reason)),
    }
}

/// Why a list of nodes ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    Text,
    Closed,
    Else,
}

struct Parser {
    lexemes: Vec<Lexeme>,
    next: usize,
    templates: Templates,
    /// Those in scope.
    variables: Vec<String>,
    depth: usize,
    loops: usize,
}

impl Parser {
    fn line(&self) -> usize {
        self.lexemes.get(self.next.saturating_sub(1)).map_or(1, |lexeme| lexeme.line)
    }

    fn peek(&self) -> Option<&Token> {
        self.lexemes.get(self.next).map(|lexeme| &lexeme.token)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += 1;
        token
    }

    fn take_if(&mut self, token: &Token) -> bool {
        let is_it = self.peek() == Some(token);
        self.next += usize::from(is_it);
        is_it
    }

    fn take_word(&mut self, word: &str) -> bool {
        self.take_if(&Token::Word(word.to_owned()))
    }

    fn expect_close(&mut self, context: &str) -> Result<(), String> {
        match self.take() {
            Some(Token::Close) => Ok(()),
            Some(token) => Err(format!("unexpected {token:?} in {context}")),
            None => Err("unclosed action".to_owned()),
        }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        if self.depth >= DEPTH_MAX {
            return Err("the template is nested too deeply".to_owned());
        }
        self.depth += 1;
        let made = read(self);
        self.depth -= 1;
        made
    }

    fn list(&mut self) -> Result<(Vec<Node>, ListEnd), String> {
        self.deeper(|parser| {
            let mut nodes = Vec::new();
            loop {
                match parser.take() {
                    None => return Ok((nodes, ListEnd::Text)),
                    Some(Token::Text(text)) => nodes.push(Node::Text(text)),
                    _ => {
                        if parser.take_word("end") {
                            parser.expect_close("end")?;
                            return Ok((nodes, ListEnd::Closed));
                        }
                        if parser.take_word("else") {
                            return Ok((nodes, ListEnd::Else));
                        }
                        nodes.extend(parser.action()?);
                    }
                }
            }
        })
    }

    /// An action after its `{{`.
    fn action(&mut self) -> Result<Option<Node>, String> {
        let Some(Token::Word(word)) = self.peek().cloned() else { return self.pipe_action() };
        self.next += 1;
        match word.as_str() {
            "if" => Ok(Some(Node::If(self.branch("if")?))),
            "with" => Ok(Some(Node::With(self.branch("with")?))),
            "range" => Ok(Some(Node::Range(self.branch("range")?))),
            "define" => {
                let name = self.name("define")?;
                self.expect_close("define")?;
                self.define(name)?;
                Ok(None)
            }
            "block" => {
                let name = self.name("block")?;
                let argument = Some(self.pipe(&Token::Close)?);
                self.define(name.clone())?;
                Ok(Some(Node::Template { name, argument }))
            }
            "template" => {
                let name = self.name("template")?;
                if self.take_if(&Token::Close) {
                    return Ok(Some(Node::Template { name, argument: None }));
                }
                Ok(Some(Node::Template { name, argument: Some(self.pipe(&Token::Close)?) }))
            }
            "break" | "continue" => {
                if self.loops == 0 {
                    return Err(format!("{{{{{word}}}}} outside {{{{range}}}}"));
                }
                self.expect_close(&word)?;
                Ok(Some(if word == "break" { Node::Break } else { Node::Continue }))
            }
            _ => {
                self.next -= 1;
                self.pipe_action()
            }
        }
    }

    fn pipe_action(&mut self) -> Result<Option<Node>, String> {
        Ok(Some(Node::Action(self.pipe(&Token::Close)?)))
    }

    fn name(&mut self, context: &str) -> Result<String, String> {
        match self.take() {
            Some(Token::Constant(Value::Text(name))) => Ok(name.as_ref().to_owned()),
            _ => Err(format!("expected a name in quotes in {context} clause")),
        }
    }

    fn define(&mut self, name: String) -> Result<(), String> {
        // A template sees its own variables alone.
        let outer = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let loops = std::mem::take(&mut self.loops);
        let (nodes, end) = self.list()?;
        self.variables = outer;
        self.loops = loops;
        if end != ListEnd::Closed {
            return Err("unexpected end of a definition".to_owned());
        }
        self.templates.insert(name, nodes);
        Ok(())
    }

    /// The rest of `if`, `with` or `range`.
    fn branch(&mut self, kind: &'static str) -> Result<Branch, String> {
        let scope = self.variables.len();
        let pipe = self.pipe(&Token::Close)?;
        self.loops += usize::from(kind == "range");
        let body = self.list();
        self.loops -= usize::from(kind == "range");
        let (then, end) = body?;
        let otherwise = match end {
            ListEnd::Closed => Vec::new(),
            ListEnd::Text => return Err("unexpected EOF".to_owned()),
            // `else if` and `else with` end with the `end` of the whole.
            ListEnd::Else if kind != "range" && self.take_word(kind) => {
                let rest = self.deeper(|parser| parser.branch(kind))?;
                vec![if kind == "if" { Node::If(rest) } else { Node::With(rest) }]
            }
            ListEnd::Else => {
                self.expect_close("else")?;
                let (nodes, end) = self.list()?;
                if end != ListEnd::Closed {
                    return Err("expected end".to_owned());
                }
                nodes
            }
        };
        self.variables.truncate(scope);
        Ok(Branch { pipe, then, otherwise })
    }

    fn pipe(&mut self, end: &Token) -> Result<Pipe, String> {
        self.deeper(|parser| parser.pipe_inner(end))
    }

    fn pipe_inner(&mut self, end: &Token) -> Result<Pipe, String> {
        let (variables, is_assignment) = self.declaration()?;
        let mut pipe = Pipe { variables, is_assignment, commands: Vec::new() };
        loop {
            let command = self.command()?;
            if command.is_empty() {
                return Err("missing value for command".to_owned());
            }
            let is_callable = matches!(command.first(), Some(Operand { base: Base::Function(_), .. }));
            if !is_callable && (command.len() > 1 || !pipe.commands.is_empty()) {
                return Err("non executable command in pipeline".to_owned());
            }
            pipe.commands.push(command);
            if self.take_if(end) {
                break;
            }
            match self.take() {
                Some(Token::Symbol("|")) => {}
                None => return Err("unclosed action".to_owned()),
                Some(token) => return Err(format!("unexpected {token:?} in command")),
            }
        }
        if !is_assignment {
            self.variables.extend(pipe.variables.iter().cloned());
        }
        Ok(pipe)
    }

    /// `$x :=`, `$x =`, `$i, $x :=`.
    fn declaration(&mut self) -> Result<(Vec<String>, bool), String> {
        let begin = self.next;
        let mut names = Vec::new();
        while let Some(Token::Variable(name)) = self.peek().cloned() {
            self.next += 1;
            names.push(name);
            match self.take() {
                Some(Token::Symbol(",")) if names.len() < 2 => {}
                Some(Token::Symbol(":=")) => return Ok((names, false)),
                Some(Token::Symbol("=")) => {
                    for name in &names {
                        self.check_variable(name)?;
                    }
                    return Ok((names, true));
                }
                _ => break,
            }
        }
        self.next = begin;
        Ok((Vec::new(), false))
    }

    fn check_variable(&self, name: &str) -> Result<(), String> {
        if self.variables.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(format!("undefined variable \"{name}\""))
    }

    fn command(&mut self) -> Result<Vec<Operand>, String> {
        let mut operands = Vec::new();
        loop {
            let base = match self.peek().cloned() {
                Some(Token::Dot) => Base::Dot,
                Some(Token::Field(_)) => {
                    let fields = self.fields(true);
                    operands.push(Operand { base: Base::Dot, fields });
                    continue;
                }
                Some(Token::Variable(name)) => {
                    self.check_variable(&name)?;
                    Base::Variable(name)
                }
                Some(Token::Constant(value)) => Base::Constant(value),
                Some(Token::Word(word)) => match word.as_str() {
                    "true" => Base::Constant(Value::Bool(true)),
                    "false" => Base::Constant(Value::Bool(false)),
                    "nil" => Base::Constant(Value::Nil),
                    _ => {
                        let known = functions::name(&word);
                        Base::Function(known.ok_or_else(|| format!("function {word:?} not defined"))?)
                    }
                },
                Some(Token::Symbol("(")) => {
                    self.next += 1;
                    let pipe = self.pipe(&Token::Symbol(")"))?;
                    let fields = self.fields(false);
                    operands.push(Operand { base: Base::Pipe(Box::new(pipe)), fields });
                    continue;
                }
                _ => return Ok(operands),
            };
            self.next += 1;
            let fields = self.fields(false);
            operands.push(Operand { base, fields });
        }
    }

    /// Fields that follow without space; the first may have some before it.
    fn fields(&mut self, mut may_be_spaced: bool) -> Vec<String> {
        let mut fields = Vec::new();
        while let Some(Lexeme { token: Token::Field(name), is_spaced, .. }) = self.lexemes.get(self.next)
            && (may_be_spaced || !*is_spaced)
        {
            may_be_spaced = false;
            fields.push(name.clone());
            self.next += 1;
        }
        fields
    }
}
