//! Modifiers after an operand: ranges, `offset`, `@`, `anchored`, `smoothed`.

use crate::syntax::ast::{At, DurationSpec, Edges, Node, Range, Selector, Shift, Subquery};
use crate::syntax::number;
use crate::syntax::parse::{ParsedExpr, Parser};
use crate::syntax::span::{ParseError, ParseResult, Span};
use crate::syntax::token::TokenKind;

/// Farthest `@` from the epoch, in milliseconds: beyond all data, and far from overflow.
const AT_MS_MAX: f64 = (1u64 << 51) as f64;

const DURATION_HINT: &str = "number, duration, step(), or range()";

impl Parser<'_> {
    /// The operand with all modifiers that follow.
    pub(super) fn modified(&mut self, mut part: ParsedExpr) -> ParseResult<ParsedExpr> {
        loop {
            match self.peek().kind {
                TokenKind::Mark('[') => part = self.range(part)?,
                TokenKind::Keyword("offset") => self.offset(&mut part)?,
                TokenKind::Operator("@") => self.at(&mut part)?,
                TokenKind::Keyword(word @ ("anchored" | "smoothed")) => {
                    self.next();
                    self.edges(&mut part, word)?;
                }
                _ => return Ok(part),
            }
        }
    }

    fn range(&mut self, part: ParsedExpr) -> ParseResult<ParsedExpr> {
        let bracket = self.next();
        let Some(range) = self.positive_duration()? else {
            return Err(self.unexpected("subquery or range selector", DURATION_HINT));
        };
        if self.accept(TokenKind::Mark(':')).is_none() {
            let Some(end) = self.accept(TokenKind::Mark(']')) else {
                return Err(self.unexpected("subquery or range", "\":\" or \"]\""));
            };
            return range_selector(part, range, bracket.span.to(end.span));
        }
        let step = if self.peek().kind == TokenKind::Mark(']') { None } else { self.positive_duration()? };
        let Some(end) = self.accept(TokenKind::Mark(']')) else {
            let expected = if step.is_some() { "\"]\"" } else { "number, duration, step(), range(), or \"]\"" };
            return Err(self.unexpected("subquery selector", expected));
        };
        let (span, height) = (part.expr.span.to(end.span), part.height);
        let subquery = Subquery { inner: part.expr, range, step, shift: Shift::default() };
        ParsedExpr::new(Node::Subquery(Box::new(subquery)), span, height)
    }

    fn offset(&mut self, part: &mut ParsedExpr) -> ParseResult<()> {
        self.next();
        let Some(offset) = self.offset_duration()? else { return Err(self.unexpected("offset", DURATION_HINT)) };
        let (span, end) = (part.expr.span, self.last_closing);
        let Some(shift) = shift_of(&mut part.expr.node) else {
            let message =
                "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery";
            return Err(ParseError::new(span, message));
        };
        if shift.offset.as_ref().is_some_and(|offset| *offset != DurationSpec::Fixed(0)) {
            return Err(ParseError::new(span, "offset may not be set multiple times"));
        }
        shift.offset = Some(offset);
        part.expr.span.end = end;
        Ok(())
    }

    fn at(&mut self, part: &mut ParsedExpr) -> ParseResult<()> {
        self.next();
        let (at, seconds) = self.at_time()?;
        let (span, end) = (part.expr.span, self.last_closing);
        if let Some(seconds) = seconds.filter(|seconds| seconds.is_nan() || seconds.abs() * 1000.0 > AT_MS_MAX) {
            let shown = if seconds.is_finite() { format!("{seconds:.6}") } else { number::plain(seconds) };
            return Err(ParseError::new(span, format!("timestamp out of bounds for @ modifier: {shown}")));
        }
        let Some(shift) = shift_of(&mut part.expr.node) else {
            let message =
                "@ modifier must be preceded by an instant vector selector or range vector selector or a subquery";
            return Err(ParseError::new(span, message));
        };
        if shift.at.is_some() {
            return Err(ParseError::new(span, "@ <timestamp> may not be set multiple times"));
        }
        shift.at = Some(at);
        part.expr.span.end = end;
        Ok(())
    }

    fn at_time(&mut self) -> ParseResult<(At, Option<f64>)> {
        let word = self.peek().kind;
        if let TokenKind::Preprocessor("start" | "end") = word {
            self.next();
            let parentheses = self.accept(TokenKind::Mark('(')).and_then(|_| self.accept(TokenKind::Mark(')')));
            if parentheses.is_none() {
                return Err(self.unexpected("@", "timestamp"));
            }
            return Ok((if word == TokenKind::Preprocessor("start") { At::Start } else { At::End }, None));
        }
        let negative = self.accept(TokenKind::Operator("-")).is_some();
        if !negative {
            self.accept(TokenKind::Operator("+"));
        }
        let Some((value, ..)) = self.number_or_duration()? else { return Err(self.unexpected("@", "timestamp")) };
        let seconds = if negative { -value } else { value };
        Ok((At::Time((seconds * 1000.0).round() as i64), Some(seconds)))
    }

    fn edges(&mut self, part: &mut ParsedExpr, word: &str) -> ParseResult<()> {
        let span = part.expr.span;
        let error = |message: String| Err(ParseError::new(span, message));
        if !self.features.extended_ranges {
            return error(format!("{word} modifier is experimental and not enabled"));
        }
        let selector: &mut Selector = match &mut part.expr.node {
            Node::Selector(selector) => selector,
            Node::Range(range) => &mut range.selector,
            Node::Subquery(_) => return error(format!("{word} modifier is not supported for subqueries")),
            _ => return error(format!("{word} modifier not implemented")),
        };
        let edges = if word == "anchored" { Edges::Anchored } else { Edges::Smoothed };
        if selector.edges != Edges::Plain && selector.edges != edges {
            return error("anchored and smoothed modifiers cannot be used together".to_owned());
        }
        selector.edges = edges;
        Ok(())
    }
}

fn range_selector(part: ParsedExpr, range: DurationSpec, brackets: Span) -> ParseResult<ParsedExpr> {
    let error = |message: &str| Err(ParseError::new(brackets, message));
    let span = part.expr.span;
    let Node::Selector(selector) = part.expr.node else {
        return error("ranges only allowed for vector selectors");
    };
    if selector.shift.offset.as_ref().is_some_and(|offset| *offset != DurationSpec::Fixed(0)) {
        return error("no offset modifiers allowed before range");
    }
    if selector.shift.at.is_some() {
        return error("no @ modifiers allowed before range");
    }
    let range = Range { selector: *selector, selector_span: span, range };
    ParsedExpr::new(Node::Range(Box::new(range)), Span::new(span.start, brackets.end), part.height)
}

fn shift_of(node: &mut Node) -> Option<&mut Shift> {
    match node {
        Node::Selector(selector) => Some(&mut selector.shift),
        Node::Range(range) => Some(&mut range.selector.shift),
        Node::Subquery(subquery) => Some(&mut subquery.shift),
        _ => None,
    }
}
