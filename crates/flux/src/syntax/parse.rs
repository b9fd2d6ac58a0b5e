//! Tokens to statements.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::ast::{Binary, Call, Expr, ExprKind, Function, Record, Statement, Unary};
use super::lex::{Token, TokenKind, tokens};
use super::{FluxError, Position};

/// Expressions within expressions.
const DEPTH_MAX: usize = 40;

/// Patterns of a script, and the bytes that a compiled one may take.
const PATTERNS_MAX: usize = 100;
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Operators, members, calls and pipes in a row; `and` and `or` have no limit of their own.
const CHAIN_MAX: usize = 100;

/// The statements of a script.
pub(crate) fn parse(text: &str) -> Result<Vec<Statement>, FluxError> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0, patterns: 0 };
    let mut statements = Vec::new();
    while parser.peek() != &TokenKind::End {
        statements.extend(parser.statement()?);
    }
    Ok(statements)
}

struct Parser {
    /// The last one is the end.
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
    patterns: usize,
}

/// A parameter of a function.
enum Parameter {
    /// It gets what is piped to the function.
    Piped,
    /// It has a default, or must be given.
    Named(Option<Expr>),
}

/// Operators of one rank, the weakest rank first; comparisons do not chain.
const RANKS: [&[(&str, Binary)]; 6] = [
    &[("or", Binary::Or)],
    &[("and", Binary::And)],
    &[
        ("==", Binary::Equal),
        ("!=", Binary::NotEqual),
        ("<=", Binary::LessOrEqual),
        (">=", Binary::GreaterOrEqual),
        ("<", Binary::Less),
        (">", Binary::Greater),
        ("=~", Binary::Matches),
        ("!~", Binary::MatchesNot),
    ],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[("*", Binary::Multiply), ("/", Binary::Divide), ("%", Binary::Remainder)],
    &[("^", Binary::Power)],
];
/// The rank of `and`, above which `not` binds.
const RANK_OF_AND: usize = 1;

/// A chain of `and` or `or` as a tree that is as deep as it has to be.
fn balanced(at: Position, mut operands: Vec<Expr>, between: &[Binary]) -> Expr {
    let Some(operator) = between.first() else {
        return operands.pop().unwrap_or(Expr { at, kind: ExprKind::Bool(true) });
    };
    let right = operands.split_off(operands.len() / 2);
    let half = |operands: Vec<Expr>| {
        let count = operands.len() - 1;
        balanced(at, operands, between.get(..count).unwrap_or_default())
    };
    Expr { at, kind: ExprKind::Binary(*operator, Box::new([half(operands), half(right)])) }
}

impl Parser {
    fn token(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.next + ahead).or_else(|| self.tokens.last())
    }

    fn peek(&self) -> &TokenKind {
        self.token(0).map_or(&TokenKind::End, |token| &token.kind)
    }

    fn at(&self) -> Position {
        self.token(0).map(|token| token.at).unwrap_or_default()
    }

    fn advance(&mut self) -> TokenKind {
        let kind = self.peek().clone();
        self.next += 1;
        kind
    }

    /// Returns whether a symbol or word comes so many tokens ahead.
    fn is_ahead(&self, ahead: usize, wanted: &str) -> bool {
        match self.token(ahead).map(|token| &token.kind) {
            Some(TokenKind::Symbol(symbol)) => *symbol == wanted,
            Some(TokenKind::Word(word)) => word == wanted,
            _ => false,
        }
    }

    /// Takes a symbol or a word if it comes next.
    fn takes(&mut self, wanted: &str) -> bool {
        let is_next = self.is_ahead(0, wanted);
        self.next += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, wanted: &str) -> Result<(), FluxError> {
        if self.takes(wanted) { Ok(()) } else { Err(self.unexpected(&format!("{wanted:?}"))) }
    }

    fn unexpected(&self, wanted: &str) -> FluxError {
        let found = match self.peek() {
            TokenKind::End => "the end".to_owned(),
            TokenKind::Word(word) => format!("{word:?}"),
            TokenKind::Symbol(symbol) => format!("{symbol:?}"),
            TokenKind::Text(text) => format!("the text {text:?}"),
            _ => "a value".to_owned(),
        };
        FluxError::new(self.at(), format!("expected {wanted}, found {found}"))
    }

    fn word(&mut self) -> Result<String, FluxError> {
        match self.peek() {
            TokenKind::Word(_) => match self.advance() {
                TokenKind::Word(word) => Ok(word),
                _ => Err(self.unexpected("a name")),
            },
            _ => Err(self.unexpected("a name")),
        }
    }

    /// A statement; `None` for `package`, which says nothing.
    fn statement(&mut self) -> Result<Option<Statement>, FluxError> {
        let at = self.at();
        if self.is_ahead(0, "package") && !self.is_ahead(1, "=") {
            self.next += 1;
            self.word()?;
            return Ok(None);
        }
        if self.is_ahead(0, "import") && !self.is_ahead(1, "=") {
            self.next += 1;
            if matches!(self.peek(), TokenKind::Word(_)) {
                self.word()?;
            }
            return match self.advance() {
                TokenKind::Text(package) => Ok(Some(Statement::Import(at, package))),
                _ => Err(FluxError::new(at, "import names a package in quotes")),
            };
        }
        if self.is_ahead(0, "option") && !self.is_ahead(1, "=") {
            self.next += 1;
        }
        if matches!(self.peek(), TokenKind::Word(_)) && self.is_ahead(1, "=") {
            let name = self.word()?;
            self.expect("=")?;
            return Ok(Some(Statement::Assign(name, self.expression()?)));
        }
        self.expression().map(|expression| Some(Statement::Expression(expression)))
    }

    /// An expression, and what it is piped through.
    fn expression(&mut self) -> Result<Expr, FluxError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(FluxError::new(self.at(), format!("more than {DEPTH_MAX} expressions are within one another")));
        }
        let at = self.at();
        let mut piped = if self.takes("if") { self.conditional(at)? } else { self.ranked(0)? };
        let mut count = 0;
        while self.takes("|>") {
            count += 1;
            if count > CHAIN_MAX {
                return Err(FluxError::new(at, format!("more than {CHAIN_MAX} functions are piped to one another")));
            }
            let target = self.postfix()?;
            let ExprKind::Call(call) = target.kind else {
                return Err(FluxError::new(target.at, "a function call is expected after |>"));
            };
            piped = Expr { at: piped.at, kind: ExprKind::Pipe(Box::new(piped), call) };
        }
        self.depth -= 1;
        Ok(piped)
    }

    fn conditional(&mut self, at: Position) -> Result<Expr, FluxError> {
        let test = self.expression()?;
        self.expect("then")?;
        let then = self.expression()?;
        self.expect("else")?;
        let otherwise = self.expression()?;
        Ok(Expr { at, kind: ExprKind::Conditional(Box::new([test, then, otherwise])) })
    }

    fn ranked(&mut self, rank: usize) -> Result<Expr, FluxError> {
        let Some(operators) = RANKS.get(rank) else { return self.unary() };
        let at = self.at();
        if rank == RANK_OF_AND + 1 && (self.is_ahead(0, "not") || self.is_ahead(0, "exists")) {
            let operator = if self.takes("not") { Unary::Not } else { Unary::Exists };
            self.next += usize::from(operator == Unary::Exists);
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err(FluxError::new(at, format!("more than {DEPTH_MAX} expressions are within one another")));
            }
            let operand = self.ranked(rank)?;
            self.depth -= 1;
            return Ok(Expr { at, kind: ExprKind::Unary(operator, Box::new(operand)) });
        }
        let mut operands = vec![self.ranked(rank + 1)?];
        let mut between = Vec::new();
        while let Some((_, operator)) = operators.iter().find(|(name, _)| self.is_ahead(0, name)) {
            self.next += 1;
            between.push(*operator);
            operands.push(self.ranked(rank + 1)?);
        }
        if rank <= RANK_OF_AND {
            return Ok(balanced(at, operands, &between));
        }
        if between.len() > CHAIN_MAX {
            return Err(FluxError::new(at, format!("more than {CHAIN_MAX} operators in a row")));
        }
        let mut operands = operands.into_iter();
        let first = operands.next().ok_or_else(|| self.unexpected("a value"))?;
        let chained = operands.zip(between).fold(first, |left, (right, operator)| Expr {
            at,
            kind: ExprKind::Binary(operator, Box::new([left, right])),
        });
        Ok(chained)
    }

    fn unary(&mut self) -> Result<Expr, FluxError> {
        let at = self.at();
        let operator = if self.takes("-") {
            Unary::Negate
        } else if self.takes("+") {
            Unary::Plus
        } else {
            return self.postfix();
        };
        let operand = self.postfix()?;
        Ok(Expr { at, kind: ExprKind::Unary(operator, Box::new(operand)) })
    }

    /// A value with its calls and members.
    fn postfix(&mut self) -> Result<Expr, FluxError> {
        let mut expression = self.primary()?;
        let first = self.next;
        loop {
            let at = expression.at;
            // Each takes two tokens at least.
            if self.next - first > 2 * CHAIN_MAX && !self.is_ahead(0, "|>") {
                return Err(FluxError::new(at, "the expression is too long"));
            }
            let kind = if self.takes(".") {
                let name = self.word()?;
                ExprKind::Member(Box::new(expression), name)
            } else if self.is_ahead(0, "(") {
                ExprKind::Call(self.call(expression)?)
            } else if self.takes("[") {
                let index = self.expression()?;
                self.expect("]")?;
                match index.kind {
                    ExprKind::Text(name) => ExprKind::Member(Box::new(expression), name),
                    _ => ExprKind::Index(Box::new(expression), Box::new(index)),
                }
            } else {
                return Ok(expression);
            };
            expression = Expr { at, kind };
        }
    }

    fn call(&mut self, callee: Expr) -> Result<Call, FluxError> {
        let at = callee.at;
        self.expect("(")?;
        let mut arguments: Vec<(String, Expr)> = Vec::new();
        while !self.takes(")") {
            let at_name = self.at();
            let name = self.word()?;
            // `f(a)` is `f(a: a)`.
            let value = if self.takes(":") {
                self.expression()?
            } else {
                Expr { at: at_name, kind: ExprKind::Name(name.clone()) }
            };
            if arguments.iter().any(|(known, _)| *known == name) {
                return Err(FluxError::new(at_name, format!("the argument {name} is given twice")));
            }
            arguments.push((name, value));
            if !self.takes(",") && !self.is_ahead(0, ")") {
                return Err(self.unexpected("\",\" or \")\""));
            }
        }
        Ok(Call { at, callee: Box::new(callee), arguments })
    }

    fn primary(&mut self) -> Result<Expr, FluxError> {
        let at = self.at();
        if self.is_ahead(0, "(") {
            return if self.is_function() { self.function(at) } else { self.in_parentheses() };
        }
        if self.takes("[") {
            let items = self.list("]", Self::expression)?;
            return Ok(Expr { at, kind: ExprKind::Array(items) });
        }
        if self.takes("{") {
            return self.record(at);
        }
        let kind = match self.peek() {
            TokenKind::Symbol(_) | TokenKind::End => return Err(self.unexpected("a value")),
            _ => match self.advance() {
                TokenKind::Word(word) => match word.as_str() {
                    "true" => ExprKind::Bool(true),
                    "false" => ExprKind::Bool(false),
                    _ => ExprKind::Name(word),
                },
                TokenKind::Text(text) => ExprKind::Text(text),
                TokenKind::Integer(value) => ExprKind::Integer(value),
                TokenKind::Float(value) => ExprKind::Float(value),
                TokenKind::Duration(value) => ExprKind::Duration(value),
                TokenKind::Time(ns) => ExprKind::Time(ns),
                TokenKind::Pattern(pattern) => ExprKind::Pattern(self.pattern(at, &pattern)?),
                TokenKind::Symbol(_) | TokenKind::End => return Err(self.unexpected("a value")),
            },
        };
        Ok(Expr { at, kind })
    }

    fn pattern(&mut self, at: Position, pattern: &str) -> Result<Regex, FluxError> {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX {
            return Err(FluxError::new(at, format!("a script has at most {PATTERNS_MAX} patterns")));
        }
        let compiled = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
        compiled.map_err(|error| FluxError::new(at, format!("the pattern is wrong: {error}")))
    }

    fn in_parentheses(&mut self) -> Result<Expr, FluxError> {
        self.expect("(")?;
        let inner = self.expression()?;
        self.expect(")")?;
        Ok(inner)
    }

    /// Items up to a closing symbol.
    fn list<T>(&mut self, end: &str, item: impl Fn(&mut Self) -> Result<T, FluxError>) -> Result<Vec<T>, FluxError> {
        let mut items = Vec::new();
        while !self.takes(end) {
            items.push(item(self)?);
            if !self.takes(",") && !self.is_ahead(0, end) {
                return Err(self.unexpected(&format!("\",\" or {end:?}")));
            }
        }
        Ok(items)
    }

    fn record(&mut self, at: Position) -> Result<Expr, FluxError> {
        let mut with = None;
        if matches!(self.peek(), TokenKind::Word(_)) && self.is_ahead(1, "with") {
            let at_name = self.at();
            let name = self.word()?;
            self.expect("with")?;
            with = Some(Box::new(Expr { at: at_name, kind: ExprKind::Name(name) }));
        }
        let members = self.list("}", |parser| {
            let at = parser.at();
            let (TokenKind::Word(name) | TokenKind::Text(name)) = parser.advance() else {
                return Err(FluxError::new(at, "a name is expected in a record"));
            };
            let value =
                if parser.takes(":") { parser.expression()? } else { Expr { at, kind: ExprKind::Name(name.clone()) } };
            Ok((name, value))
        })?;
        Ok(Expr { at, kind: ExprKind::Record(Record { with, members }) })
    }

    /// Returns whether the parentheses that come next hold the parameters of a function.
    fn is_function(&self) -> bool {
        let mut open = 0usize;
        for (ahead, token) in self.tokens.iter().skip(self.next).enumerate() {
            match token.kind {
                TokenKind::Symbol("(") => open += 1,
                TokenKind::Symbol(")") => {
                    open -= 1;
                    if open == 0 {
                        return self.is_ahead(ahead + 1, "=>");
                    }
                }
                _ => {}
            }
        }
        false
    }

    fn function(&mut self, at: Position) -> Result<Expr, FluxError> {
        self.expect("(")?;
        let parameters = self.list(")", |parser| {
            let name = parser.word()?;
            let default = match parser.takes("=") {
                true if parser.takes("<-") => return Ok((name, Parameter::Piped)),
                true => Parameter::Named(Some(parser.expression()?)),
                false => Parameter::Named(None),
            };
            Ok((name, default))
        })?;
        let (mut piped, mut named) = (None, Vec::with_capacity(parameters.len()));
        for (name, parameter) in parameters {
            match parameter {
                Parameter::Piped => piped = Some(name),
                Parameter::Named(default) => named.push((name, default)),
            }
        }
        self.expect("=>")?;
        let body = if self.takes("{") {
            if !self.takes("return") {
                return Err(FluxError::new(
                    self.at(),
                    "the body of a function is an expression, or { return expression }",
                ));
            }
            let body = self.expression()?;
            self.expect("}")?;
            body
        } else {
            self.expression()?
        };
        Ok(Expr { at, kind: ExprKind::Function(Arc::new(Function { at, piped, parameters: named, body })) })
    }
}
