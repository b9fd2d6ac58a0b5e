//! Expressions of a script.

use std::sync::Arc;

use query::Interval;
use regex::Regex;

use super::Position;

/// An expression and where it begins.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) at: Position,
    pub(crate) kind: ExprKind,
}

#[derive(Debug, Clone)]
pub(crate) enum ExprKind {
    Name(String),
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    /// Nanoseconds since the Unix epoch.
    Time(i64),
    Duration(Interval),
    Pattern(Regex),
    Array(Vec<Expr>),
    Record(Record),
    Function(Arc<Function>),
    Call(Call),
    /// `object.name` and `object["name"]`
    Member(Box<Expr>, String),
    /// `array[0]`
    Index(Box<Expr>, Box<Expr>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<[Expr; 2]>),
    /// `if a then b else c`
    Conditional(Box<[Expr; 3]>),
    /// `a |> b()`
    Pipe(Box<Expr>, Call),
}

/// `{r with a: 1, b: 2}`
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) with: Option<Box<Expr>>,
    pub(crate) members: Vec<(String, Expr)>,
}

/// `(r) => …`
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) at: Position,
    /// The parameter that is piped to.
    pub(crate) piped: Option<String>,
    /// Names of the other parameters, and their defaults.
    pub(crate) parameters: Vec<(String, Option<Expr>)>,
    pub(crate) body: Expr,
}

/// `name(argument: value, …)`
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) at: Position,
    pub(crate) callee: Box<Expr>,
    pub(crate) arguments: Vec<(String, Expr)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Negate,
    Plus,
    Not,
    Exists,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    And,
    Or,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Matches,
    MatchesNot,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
}

impl Binary {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::And => "and",
            Self::Or => "or",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Matches => "=~",
            Self::MatchesNot => "!~",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Power => "^",
        }
    }
}

/// A statement of a script.
#[derive(Debug, Clone)]
pub(crate) enum Statement {
    /// `name = value`, `option name = value`
    Assign(String, Expr),
    Expression(Expr),
    /// `import "package"`, and where
    Import(Position, String),
}
