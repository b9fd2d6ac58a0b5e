//! A parsed expression.

use model::Matcher;
use query::QueryError;

use crate::syntax::ast::Expr;
use crate::syntax::features::Features;
use crate::syntax::functions::Function;
use crate::syntax::result_kind::ResultKind;
use crate::syntax::{parse, print, tree};

/// An expression, parsed and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    pub(crate) expr: Expr,
    pub(crate) text: String,
}

impl Expression {
    /// Parses a text with all features; fails with [`QueryError::Invalid`] if it is no PromQL, too long or too deeply nested.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        Self::parse_with(text, Features::default())
    }

    /// Parses a text that may contain some features only.
    pub fn parse_with(text: &str, features: Features) -> Result<Self, QueryError> {
        match parse::parse(text, features) {
            Ok(expr) => Ok(Self { expr, text: text.to_owned() }),
            Err(error) => Err(QueryError::Invalid(error.with_position(text))),
        }
    }

    /// The text that it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The type of the expression.
    pub fn result_kind(&self) -> ResultKind {
        self.expr.kind()
    }

    /// The matchers of every selector, from left to right.
    pub fn selectors(&self) -> Vec<&[Matcher]> {
        let mut selectors = Vec::new();
        self.expr.for_each_selector(&mut |selector| selectors.push(selector.matchers.as_slice()));
        selectors
    }

    /// Returns whether it may read series that none of its selectors names, as `info` does.
    pub fn reads_unnamed_series(&self) -> bool {
        self.expr.calls(Function::Info)
    }

    /// The expression in the standard spelling, broken into lines where it is long.
    pub fn pretty(&self) -> String {
        print::pretty(&self.expr, 0)
    }

    /// The expression in the standard spelling, on one line.
    pub fn line(&self) -> String {
        print::line(&self.expr)
    }

    /// The expression's tree as JSON, in the form of Prometheus's `parse_query`.
    pub fn tree_json(&self) -> String {
        tree::json(&self.expr)
    }
}

/// Parses a plain vector selector, as the parameter `match[]` of Prometheus's API takes it: at least one matcher does
/// not match the empty text, and there is no `offset`, `@` or range.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    parse::parse_plain_selector(text).map_err(|error| QueryError::Invalid(error.with_position(text)))
}

/// Parses the conditions that a vector selector has, such as `{job!="a"}`, which select nothing by themselves: all of them may match the empty text.
pub fn parse_conditions(text: &str) -> Result<Vec<Matcher>, QueryError> {
    parse::parse_conditions(text).map_err(|error| QueryError::Invalid(error.with_position(text)))
}
