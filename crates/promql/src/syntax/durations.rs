//! Durations in brackets and after `offset`, which may be computed.

use crate::syntax::ast::{Duration, DurationNode, DurationSpec};
use crate::syntax::number::{maximum, minimum};
use crate::syntax::parse::Parser;
use crate::syntax::span::{ParseError, ParseResult, Span};
use crate::syntax::token::{Token, TokenKind};

/// Longest duration in seconds: Prometheus counts nanoseconds in 64 bits.
const SECONDS_MAX: f64 = 9_223_372_036.854_776;

const HINT: &str = "number, duration, step(), or range()";

/// Signs bind tighter than `+` and `-`.
const SIGN_STRENGTH: u8 = 2;

impl Parser<'_> {
    /// A duration above zero; nothing if the next token starts none.
    pub(super) fn positive_duration(&mut self) -> ParseResult<Option<DurationSpec>> {
        if !self.starts_duration() {
            return Ok(None);
        }
        self.duration_of = "subquery or range selector";
        let duration = self.duration(0)?;
        if let DurationNode::Number { value, .. } = duration.node
            && !duration.wrapped
            && value <= 0.0
        {
            return Err(ParseError::new(duration.span, "duration must be greater than 0"));
        }
        Ok(Some(duration_spec(duration)))
    }

    /// The duration after `offset`: a single operand, since operators after it belong to the enclosing expression.
    pub(super) fn offset_duration(&mut self) -> ParseResult<Option<DurationSpec>> {
        if !self.starts_duration() {
            return Ok(None);
        }
        self.duration_of = "offset";
        if self.peek().kind == TokenKind::Mark('(') {
            return self.duration(0).map(|duration| Some(duration_spec(duration)));
        }
        let token = self.peek();
        let duration = match token.kind {
            TokenKind::Operator("-" | "+") => {
                self.next();
                let operand = self.duration_operand()?;
                signed(operand, token.kind == TokenKind::Operator("-"), token.span)?
            }
            _ => self.duration_operand()?,
        };
        Ok(Some(duration_spec(duration)))
    }

    fn starts_duration(&self) -> bool {
        matches!(
            self.peek().kind,
            TokenKind::Number
                | TokenKind::Duration
                | TokenKind::Mark('(')
                | TokenKind::Operator("-" | "+")
                | TokenKind::Preprocessor("step" | "range" | "max_of" | "min_of")
        )
    }

    fn duration(&mut self, weakest: u8) -> ParseResult<Duration> {
        self.nested(|parser| {
            let mut left = parser.duration_signed()?;
            while let TokenKind::Operator(operator @ ("+" | "-" | "*" | "/" | "%" | "^")) = parser.peek().kind {
                let strength = match operator {
                    "+" | "-" => 1,
                    "^" => 3,
                    _ => 2,
                };
                if strength <= weakest {
                    break;
                }
                let token = parser.next();
                let right = parser.duration(if operator == "^" { strength - 1 } else { strength })?;
                parser.check_enabled(left.span)?;
                check_divisor(operator, &right, token.span)?;
                let span = left.span.to(right.span);
                let node = DurationNode::Binary { operator, left: Box::new(left), right: Box::new(right) };
                left = Duration { node, span, wrapped: false };
            }
            Ok(left)
        })
    }

    fn duration_signed(&mut self) -> ParseResult<Duration> {
        let token = self.peek();
        let TokenKind::Operator("-" | "+") = token.kind else { return self.duration_operand() };
        self.next();
        let operand = self.duration(SIGN_STRENGTH)?;
        signed(operand, token.kind == TokenKind::Operator("-"), token.span)
    }

    fn duration_operand(&mut self) -> ParseResult<Duration> {
        let token = self.peek();
        if let Some((value, duration, span)) = self.number_or_duration()? {
            check_range(value, span)?;
            return Ok(Duration { node: DurationNode::Number { value, duration }, span, wrapped: false });
        }
        self.next();
        match token.kind {
            TokenKind::Mark('(') => {
                let inner = self.duration(0)?;
                self.check_enabled(inner.span)?;
                let end = self.duration_mark(')')?;
                Ok(wrapped(inner, token.span.to(end.span)))
            }
            TokenKind::Preprocessor(word @ ("step" | "range")) => {
                self.duration_mark('(')?;
                let end = self.duration_mark(')')?;
                let span = token.span.to(end.span);
                self.check_enabled(span)?;
                let node = if word == "step" { DurationNode::Step } else { DurationNode::Range };
                Ok(Duration { node, span, wrapped: false })
            }
            TokenKind::Preprocessor(operator @ ("max_of" | "min_of")) => {
                self.duration_mark('(')?;
                let left = Box::new(self.duration(0)?);
                self.duration_mark(',')?;
                let right = Box::new(self.duration(0)?);
                let end = self.duration_mark(')')?;
                let span = token.span.to(end.span);
                self.check_enabled(span)?;
                Ok(Duration { node: DurationNode::Binary { operator, left, right }, span, wrapped: false })
            }
            _ => {
                self.step_back();
                Err(self.unexpected(self.duration_of, HINT))
            }
        }
    }

    fn duration_mark(&mut self, mark: char) -> ParseResult<Token> {
        self.accept(TokenKind::Mark(mark)).ok_or_else(|| self.unexpected(self.duration_of, HINT))
    }

    fn check_enabled(&self, span: Span) -> ParseResult<()> {
        if self.features.duration_expressions {
            return Ok(());
        }
        Err(ParseError::new(span, "experimental duration expression is not enabled"))
    }
}

/// Parentheses around a plain number make it an expression with a sign that does nothing, as Prometheus has it.
fn wrapped(inner: Duration, span: Span) -> Duration {
    if !matches!(inner.node, DurationNode::Number { .. }) {
        return Duration { wrapped: true, ..inner };
    }
    Duration { node: DurationNode::Sign { negative: false, inner: Box::new(inner) }, span, wrapped: true }
}

fn signed(operand: Duration, negative: bool, sign: Span) -> ParseResult<Duration> {
    let span = sign.to(operand.span);
    if let (DurationNode::Number { value, duration }, false) = (&operand.node, operand.wrapped) {
        let value = if negative { -value } else { *value };
        check_range(value, sign)?;
        return Ok(Duration { node: DurationNode::Number { value, duration: *duration }, span, wrapped: false });
    }
    if !negative {
        return Ok(operand);
    }
    Ok(Duration { node: DurationNode::Sign { negative, inner: Box::new(operand) }, span, wrapped: false })
}

fn duration_spec(duration: Duration) -> DurationSpec {
    match duration.node {
        // As Prometheus: nanoseconds, rounded, of which whole milliseconds count.
        DurationNode::Number { value, .. } if !duration.wrapped => {
            DurationSpec::Fixed(((value * 1e9).round() / 1e6).trunc() as i64)
        }
        _ => DurationSpec::Computed(Box::new(duration)),
    }
}

fn check_range(seconds: f64, span: Span) -> ParseResult<()> {
    // Not `>`: NaN is no duration either.
    if seconds.abs() <= SECONDS_MAX { Ok(()) } else { Err(ParseError::new(span, "duration out of range")) }
}

fn check_divisor(operator: &str, right: &Duration, operator_span: Span) -> ParseResult<()> {
    let zero = matches!(right.node, DurationNode::Number { value: 0.0, .. });
    match operator {
        "/" if zero => Err(ParseError::new(operator_span, "division by zero")),
        "%" if zero => Err(ParseError::new(operator_span, "modulo by zero")),
        _ => Ok(()),
    }
}

impl DurationSpec {
    /// Milliseconds, for the step and the range of a query; the error is for the user.
    pub(crate) fn milliseconds(&self, step_s: f64, range_s: f64, may_be_negative: bool) -> Result<i64, String> {
        let duration = match self {
            Self::Fixed(milliseconds) => return Ok(*milliseconds),
            Self::Computed(duration) => duration,
        };
        let fail = |what: &str| Err(format!("{}:{}: {what}", duration.span.start, duration.span.end));
        let seconds = duration.seconds(step_s, range_s)?;
        if !seconds.is_finite() {
            return fail("duration is NaN or infinite");
        }
        if seconds <= 0.0 && !may_be_negative {
            return fail("duration must be greater than 0");
        }
        if seconds.abs() > SECONDS_MAX {
            return fail("duration is out of range");
        }
        Ok((seconds * 1000.0) as i64)
    }
}

impl Duration {
    fn seconds(&self, step_s: f64, range_s: f64) -> Result<f64, String> {
        let fail = |what: &str| Err(format!("{}:{}: {what}", self.span.start, self.span.end));
        match &self.node {
            DurationNode::Number { value, .. } => Ok(*value),
            DurationNode::Step => Ok(step_s),
            DurationNode::Range => Ok(range_s),
            DurationNode::Sign { negative, inner } => {
                let value = inner.seconds(step_s, range_s)?;
                Ok(if *negative { -value } else { value })
            }
            DurationNode::Binary { operator, left, right } => {
                let (left, right) = (left.seconds(step_s, range_s)?, right.seconds(step_s, range_s)?);
                match *operator {
                    "+" => Ok(left + right),
                    "-" => Ok(left - right),
                    "*" => Ok(left * right),
                    "/" if right == 0.0 => fail("division by zero"),
                    "/" => Ok(left / right),
                    "%" if right == 0.0 => fail("modulo by zero"),
                    "%" => Ok(left % right),
                    "^" => Ok(left.powf(right)),
                    "max_of" => Ok(maximum(left, right)),
                    _ => Ok(minimum(left, right)),
                }
            }
        }
    }
}
