//! Tokens to trees, by recursive descent; operators by their strength.

use model::{METRIC_NAME, MatchOp, Matcher};

use crate::syntax::ast::{
    Aggregate, Aggregation, Arithmetic, Call, Cardinality, Chain, Edges, Expr, Grouping, Link, Matching, Node,
    Operator, SampleAggregate, SampleAggregation, Selector, Shift,
};
use crate::syntax::features::Features;
use crate::syntax::lex::{describe, tokens};
use crate::syntax::span::{ParseError, ParseResult, Span};
use crate::syntax::strings::{quote, unquote};
use crate::syntax::token::{Token, TokenKind};
use crate::syntax::{check, functions, number};

/// Longest text.
const TEXT_BYTES_MAX: usize = 256 * 1024;

/// How deep expressions may nest.
const DEPTH_MAX: usize = 200;

/// Operators of a chain, which is no nesting.
const CHAIN_MAX: usize = 10_000;

/// Binds tighter than all operators but `^`.
const SIGN_STRENGTH: u8 = 5;

/// A part of the tree, and how tall it is.
pub(super) struct ParsedExpr {
    pub(super) expr: Expr,
    pub(super) height: usize,
}

/// What stands after the name of an aggregation.
struct AggregationParts {
    arguments: Vec<Expr>,
    grouping: Grouping,
    span: Span,
    height: usize,
}

impl ParsedExpr {
    /// Around parts of at most a height; fails if it is too tall then.
    pub(super) fn new(node: Node, span: Span, inner_height: usize) -> ParseResult<Self> {
        let height = inner_height + 1;
        if height > DEPTH_MAX {
            return Err(too_deep(span));
        }
        Ok(Self { expr: Expr::new(node, span), height })
    }
}

pub(super) struct Parser<'t> {
    pub(super) text: &'t str,
    tokens: Vec<Token>,
    position: usize,
    error: Option<ParseError>,
    pub(super) features: Features,
    /// Aggregations around the current token: Prometheus names them in errors.
    aggregations: usize,
    depth: usize,
    /// Steps of `relabelled` so far, and the regular expressions of their conditions.
    pub(super) step_regexes: usize,
    /// The construct that the current duration belongs to.
    pub(super) duration_of: &'static str,
    /// The last token with which an expression may end, as far as read.
    pub(super) last_closing: usize,
}

/// Parses and checks an expression.
pub(crate) fn parse(text: &str, features: Features) -> ParseResult<Expr> {
    let mut expr = parse_unchecked(text, features)?;
    check::check(&mut expr, text)?;
    Ok(expr)
}

fn parse_unchecked(text: &str, features: Features) -> ParseResult<Expr> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("expression of {} bytes is longer than {TEXT_BYTES_MAX} bytes", text.len());
        return Err(ParseError::new(Span::from(0), message));
    }
    let mut parser = Parser::new(text, features);
    if parser.peek().kind == TokenKind::End {
        return Err(ParseError::new(Span::from(0), "no expression found in input"));
    }
    let expr = parser.expression(0)?.expr;
    if parser.peek().kind == TokenKind::End { Ok(expr) } else { Err(parser.unexpected("", "")) }
}

/// Parses a vector selector without modifiers.
pub(crate) fn parse_plain_selector(text: &str) -> ParseResult<Vec<Matcher>> {
    plain_selector(parse(text, Features::default())?, text)
}

/// Parses the conditions of one, which may hold for labels that are not there.
pub(crate) fn parse_conditions(text: &str) -> ParseResult<Vec<Matcher>> {
    plain_selector(parse_unchecked(text, Features::default())?, text)
}

fn plain_selector(expr: Expr, text: &str) -> ParseResult<Vec<Matcher>> {
    match expr.node {
        Node::Selector(selector) if selector.shift == Shift::default() && selector.edges == Edges::Plain => {
            Ok(selector.matchers)
        }
        _ => Err(ParseError::new(expr.span, format!("expected a plain series selector, got {}", quote(text)))),
    }
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, features: Features) -> Self {
        let (tokens, error) = tokens(text);
        Self {
            text,
            tokens,
            position: 0,
            error,
            features,
            aggregations: 0,
            depth: 0,
            step_regexes: 0,
            duration_of: "",
            last_closing: 0,
        }
    }

    pub(super) fn peek(&self) -> Token {
        let end = Token { kind: TokenKind::End, span: Span::from(self.text.len()) };
        self.tokens.get(self.position).or(self.tokens.last()).copied().unwrap_or(end)
    }

    fn peek_second(&self) -> TokenKind {
        self.tokens.get(self.position + 1).map_or(TokenKind::End, |token| token.kind)
    }

    pub(super) fn next(&mut self) -> Token {
        let token = self.peek();
        self.position += 1;
        if matches!(token.kind, TokenKind::Number | TokenKind::Duration | TokenKind::Mark(')' | '}' | ']')) {
            self.last_closing = token.span.end;
        }
        token
    }

    /// Unreads a token, for the error that it does not belong there.
    pub(super) fn step_back(&mut self) {
        self.position = self.position.saturating_sub(1);
    }

    pub(super) fn accept(&mut self, kind: TokenKind) -> Option<Token> {
        (self.peek().kind == kind).then(|| self.next())
    }

    pub(super) fn written(&self, token: &Token) -> &'t str {
        self.text.get(token.span.start..token.span.end).unwrap_or_default()
    }

    /// The error that the next token does not belong here; the scanner's own if it stopped here.
    pub(super) fn unexpected(&self, context: &str, expected: &str) -> ParseError {
        let token = self.peek();
        if let (TokenKind::Error, Some(error)) = (token.kind, &self.error) {
            return error.clone();
        }
        let mut message = format!("unexpected {}", describe(&token, self.text));
        if !context.is_empty() {
            message.extend([" in ", context]);
        } else if self.aggregations > 0 {
            message.push_str(" in aggregation");
        }
        if !expected.is_empty() {
            message.extend([", expected ", expected]);
        }
        ParseError::new(token.span, message)
    }

    pub(super) fn expect(&mut self, mark: char) -> ParseResult<Token> {
        self.accept(TokenKind::Mark(mark)).ok_or_else(|| self.unexpected("", ""))
    }

    /// Runs a part of the parser one level deeper.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= DEPTH_MAX {
            return Err(too_deep(self.peek().span));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// An expression of operators that are stronger than the given strength.
    fn expression(&mut self, weakest: u8) -> ParseResult<ParsedExpr> {
        self.nested(|parser| {
            let mut left = parser.operand()?;
            while let TokenKind::Operator(text) = parser.peek().kind {
                let Some(operator) = Operator::parse(text).filter(|operator| operator.strength() > weakest) else {
                    break;
                };
                left = parser.link(left, operator)?;
            }
            Ok(left)
        })
    }

    /// An operator and its right side, added to the chain on its left.
    fn link(&mut self, left: ParsedExpr, operator: Operator) -> ParseResult<ParsedExpr> {
        self.next();
        let (return_bool, matching) = self.matching()?;
        let weakest = match operator {
            // Right-associative.
            Operator::Arithmetic(Arithmetic::Power) => operator.strength() - 1,
            _ => operator.strength(),
        };
        let right = self.expression(weakest)?;
        let span = left.expr.span.to(right.expr.span);
        let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
        if fills && !self.features.fill_modifiers {
            return Err(ParseError::new(span, "binop fill modifiers are experimental and not enabled"));
        }
        let link = Link { operator, right: right.expr, return_bool, matching: Some(matching) };
        // The chain's own level counts once.
        let (mut chain, left_height) = match left.expr.node {
            Node::Chain(chain) => (chain, left.height - 1),
            node => (Box::new(Chain { first: Expr::new(node, left.expr.span), links: Vec::new() }), left.height),
        };
        if chain.links.len() == CHAIN_MAX {
            return Err(ParseError::new(span, format!("more than {CHAIN_MAX} operators in a row")));
        }
        chain.links.push(link);
        ParsedExpr::new(Node::Chain(chain), span, left_height.max(right.height))
    }

    /// `bool`, `on`, `ignoring`, `group_left`, `group_right`, `fill` after an operator.
    fn matching(&mut self) -> ParseResult<(bool, Matching)> {
        let return_bool = self.accept(TokenKind::Keyword("bool")).is_some();
        let mut matching = Matching::default();
        let on = self.accept(TokenKind::Keyword("on")).is_some();
        if on || self.accept(TokenKind::Keyword("ignoring")).is_some() {
            matching.on = on;
            matching.labels = self.labels()?;
            let left = self.accept(TokenKind::Keyword("group_left")).is_some();
            if left || self.accept(TokenKind::Keyword("group_right")).is_some() {
                matching.cardinality = if left { Cardinality::ManyToOne } else { Cardinality::OneToMany };
                if self.peek().kind == TokenKind::Mark('(') {
                    matching.include = self.labels()?;
                }
            }
        }
        if self.accept(TokenKind::Keyword("fill")).is_some() {
            let value = Some(self.fill_value()?);
            (matching.fill_left, matching.fill_right) = (value, value);
            return Ok((return_bool, matching));
        }
        for _ in 0..2 {
            if matching.fill_left.is_none() && self.accept(TokenKind::Keyword("fill_left")).is_some() {
                matching.fill_left = Some(self.fill_value()?);
            } else if matching.fill_right.is_none() && self.accept(TokenKind::Keyword("fill_right")).is_some() {
                matching.fill_right = Some(self.fill_value()?);
            }
        }
        Ok((return_bool, matching))
    }

    fn fill_value(&mut self) -> ParseResult<f64> {
        self.expect('(')?;
        let negative = self.accept(TokenKind::Operator("-")).is_some();
        if !negative {
            self.accept(TokenKind::Operator("+"));
        }
        let (value, ..) = self.number_or_duration()?.ok_or_else(|| self.unexpected("", ""))?;
        self.expect(')')?;
        Ok(if negative { -value } else { value })
    }

    /// `(a, b)`.
    fn labels(&mut self) -> ParseResult<Vec<String>> {
        const CONTEXT: &str = "grouping opts";
        let mut labels = Vec::new();
        if self.accept(TokenKind::Mark('(')).is_none() {
            return Err(self.unexpected(CONTEXT, "\"(\""));
        }
        while self.accept(TokenKind::Mark(')')).is_none() {
            let token = self.peek();
            let written = self.written(&token);
            let label = match token.kind {
                TokenKind::Text => unquote(written),
                TokenKind::Identifier
                | TokenKind::MetricIdentifier
                | TokenKind::Aggregator(_)
                | TokenKind::Keyword(_)
                | TokenKind::Preprocessor(_)
                | TokenKind::Operator("and" | "or" | "unless" | "atan2") => written.to_owned(),
                _ => return Err(self.unexpected(CONTEXT, "label")),
            };
            if label.is_empty() {
                let message = format!("invalid label name for grouping: {}", quote(&label));
                return Err(ParseError::new(token.span, message));
            }
            self.next();
            labels.push(label);
            if self.accept(TokenKind::Mark(',')).is_none() && self.peek().kind != TokenKind::Mark(')') {
                return Err(self.unexpected(CONTEXT, "\",\" or \")\""));
            }
        }
        Ok(labels)
    }

    /// An operand with its sign and its modifiers.
    fn operand(&mut self) -> ParseResult<ParsedExpr> {
        let token = self.peek();
        let TokenKind::Operator("-" | "+") = token.kind else {
            let primary = self.primary()?;
            return self.modified(primary);
        };
        self.next();
        let negative = token.kind == TokenKind::Operator("-");
        let inner = self.expression(SIGN_STRENGTH)?;
        let span = token.span.to(inner.expr.span);
        if let Node::Number { value, duration } = inner.expr.node {
            let value = if negative { -value } else { value };
            return ParsedExpr::new(Node::Number { value, duration }, span, inner.height);
        }
        ParsedExpr::new(Node::Sign { negative, inner: Box::new(inner.expr) }, span, inner.height)
    }

    fn primary(&mut self) -> ParseResult<ParsedExpr> {
        let token = self.peek();
        if let Some((value, duration, span)) = self.number_or_duration()? {
            return ParsedExpr::new(Node::Number { value, duration }, span, 0);
        }
        match token.kind {
            TokenKind::Text => {
                self.next();
                ParsedExpr::new(Node::Text(unquote(self.written(&token))), token.span, 0)
            }
            TokenKind::Mark('(') => {
                self.next();
                let inner = self.expression(0)?;
                let end = self.expect(')')?;
                ParsedExpr::new(Node::Parentheses(Box::new(inner.expr)), token.span.to(end.span), inner.height)
            }
            TokenKind::Aggregator(name) if self.starts_aggregation() => self.aggregation(name),
            TokenKind::Identifier if self.starts_aggregation() && self.sample_aggregation().is_some() => {
                self.aggregation_of_samples()
            }
            TokenKind::Identifier | TokenKind::Preprocessor(_) if self.peek_second() == TokenKind::Mark('(') => {
                self.call()
            }
            TokenKind::Mark('{') => self.selector(None),
            TokenKind::Identifier
            | TokenKind::MetricIdentifier
            | TokenKind::Aggregator(_)
            | TokenKind::Preprocessor(_)
            | TokenKind::Keyword(
                "by" | "without" | "offset" | "anchored" | "smoothed" | "fill" | "fill_left" | "fill_right",
            )
            | TokenKind::Operator("and" | "or" | "unless") => {
                self.next();
                self.selector(Some(token))
            }
            _ => Err(self.unexpected("", "")),
        }
    }

    fn starts_aggregation(&self) -> bool {
        matches!(self.peek_second(), TokenKind::Mark('(') | TokenKind::Keyword("by" | "without"))
    }

    /// A number or a duration in seconds, whether it is a duration, and its position.
    pub(super) fn number_or_duration(&mut self) -> ParseResult<Option<(f64, bool, Span)>> {
        let token = self.peek();
        let written = self.written(&token);
        let error = |message| ParseError::new(token.span, message);
        let value = match token.kind {
            TokenKind::Number => number::parse(written).map_err(error)?,
            TokenKind::Duration => number::parse_duration_ms(written).map_err(error)? as f64 / 1000.0,
            _ => return Ok(None),
        };
        self.next();
        Ok(Some((value, token.kind == TokenKind::Duration, token.span)))
    }

    fn grouping(&mut self) -> ParseResult<Option<Grouping>> {
        let without = self.accept(TokenKind::Keyword("without")).is_some();
        if !without && self.accept(TokenKind::Keyword("by")).is_none() {
            return Ok(None);
        }
        let labels = self.labels()?;
        Ok(Some(Grouping { without, labels, relabelling: self.relabelling()? }))
    }

    /// The arguments of an aggregation, and how it groups, before or after them.
    fn aggregation_parts(&mut self) -> ParseResult<AggregationParts> {
        let start = self.next().span;
        self.aggregations += 1;
        let before = self.grouping()?;
        let (arguments, height) = self.arguments()?;
        let mut end = self.last_closing;
        let grouping = match before {
            Some(grouping) => Some(grouping),
            None => {
                let trailing = self.grouping()?;
                if trailing.is_some() {
                    end = self.last_closing;
                }
                trailing
            }
        };
        self.aggregations -= 1;
        let grouping = grouping.unwrap_or(Grouping { without: false, labels: Vec::new(), relabelling: None });
        Ok(AggregationParts { arguments, grouping, span: Span::new(start.start, end), height })
    }

    fn aggregation(&mut self, name: &str) -> ParseResult<ParsedExpr> {
        let AggregationParts { mut arguments, grouping, span, height } = self.aggregation_parts()?;
        let error = |message: String| Err(ParseError::new(span, message));
        let Some(operation) = Aggregation::parse(name) else { return Err(self.unexpected("", "")) };
        if arguments.is_empty() {
            return error("no arguments for aggregate expression provided".to_owned());
        }
        if operation.is_experimental() && !self.features.experimental_functions {
            let flag = "--enable-feature=promql-experimental-functions";
            return error(format!("{name}() is experimental and must be enabled with {flag}"));
        }
        let expected = if operation.has_parameter() { 2 } else { 1 };
        let count = arguments.len();
        let (Some(input), true) = (arguments.pop(), count == expected) else {
            let message = "wrong number of arguments for aggregate expression provided";
            return error(format!("{message}, expected {expected}, got {count}"));
        };
        let aggregate = Aggregate { operation, input, parameter: arguments.pop(), grouping };
        ParsedExpr::new(Node::Aggregate(Box::new(aggregate)), span, height)
    }

    /// The aggregation over samples that the next word names.
    fn sample_aggregation(&self) -> Option<SampleAggregation> {
        SampleAggregation::parse(self.written(&self.peek()))
    }

    fn aggregation_of_samples(&mut self) -> ParseResult<ParsedExpr> {
        let Some(operation) = self.sample_aggregation() else { return Err(self.unexpected("", "")) };
        let AggregationParts { arguments, grouping, span, height } = self.aggregation_parts()?;
        if !self.features.experimental_functions {
            return Err(ParseError::new(span, format!("function {} is not enabled", quote(operation.name()))));
        }
        let aggregate = SampleAggregate { operation, arguments, grouping };
        ParsedExpr::new(Node::SampleAggregate(Box::new(aggregate)), span, height)
    }

    /// `(a, b)`, and the height of the tallest argument.
    fn arguments(&mut self) -> ParseResult<(Vec<Expr>, usize)> {
        self.expect('(')?;
        let (mut arguments, mut height) = (Vec::new(), 0);
        if self.accept(TokenKind::Mark(')')).is_some() {
            return Ok((arguments, height));
        }
        loop {
            let argument = self.expression(0)?;
            height = height.max(argument.height);
            arguments.push(argument.expr);
            if self.accept(TokenKind::Mark(')')).is_some() {
                return Ok((arguments, height));
            }
            let Some(comma) = self.accept(TokenKind::Mark(',')) else { return Err(self.unexpected("", "")) };
            if matches!(self.peek().kind, TokenKind::Mark(')' | ',')) {
                return Err(ParseError::new(comma.span, "trailing commas not allowed in function call args"));
            }
        }
    }

    fn call(&mut self) -> ParseResult<ParsedExpr> {
        let name = self.next();
        let (arguments, height) = self.arguments()?;
        let written = self.written(&name);
        // Preprocessors are words of any case.
        let lower = written.to_ascii_lowercase();
        let wanted = if matches!(name.kind, TokenKind::Preprocessor(_)) { lower.as_str() } else { written };
        let Some(signature) = functions::by_name(wanted) else {
            return Err(ParseError::new(name.span, format!("unknown function with name {}", quote(written))));
        };
        if signature.experimental && !self.features.experimental_functions {
            return Err(ParseError::new(name.span, format!("function {} is not enabled", quote(written))));
        }
        let span = Span::new(name.span.start, self.last_closing);
        ParsedExpr::new(Node::Call(Box::new(Call { signature, arguments })), span, height)
    }

    fn selector(&mut self, name: Option<Token>) -> ParseResult<ParsedExpr> {
        let mut span = name.map_or(self.peek().span, |name| name.span);
        let mut matchers = Vec::new();
        if self.accept(TokenKind::Mark('{')).is_some() {
            matchers = self.matchers()?;
            span.end = self.last_closing;
        }
        let name = name.map(|name| self.written(&name).to_owned()).unwrap_or_default();
        if !name.is_empty() {
            matchers.push(Matcher::new(METRIC_NAME, MatchOp::Equal, name.clone()));
        }
        let selector = Selector { name, matchers, shift: Shift::default(), edges: Edges::Plain };
        ParsedExpr::new(Node::Selector(Box::new(selector)), span, 0)
    }

    /// The inside of braces and the right one.
    pub(super) fn matchers(&mut self) -> ParseResult<Vec<Matcher>> {
        const CONTEXT: &str = "label matching";
        let mut matchers = Vec::new();
        if self.accept(TokenKind::Mark('}')).is_some() {
            return Ok(matchers);
        }
        loop {
            matchers.push(self.matcher(CONTEXT)?);
            let comma = self.accept(TokenKind::Mark(',')).is_some();
            if self.accept(TokenKind::Mark('}')).is_some() {
                return Ok(matchers);
            }
            if !comma {
                return Err(self.unexpected(CONTEXT, "\",\" or \"}\""));
            }
        }
    }

    fn matcher(&mut self, context: &str) -> ParseResult<Matcher> {
        let token = self.peek();
        let label = match token.kind {
            TokenKind::Identifier => self.written(&token).to_owned(),
            TokenKind::Text => unquote(self.written(&token)),
            _ => return Err(self.unexpected(context, "identifier or \"}\"")),
        };
        self.next();
        let op = match self.peek().kind {
            TokenKind::Mark('=') => MatchOp::Equal,
            TokenKind::Operator("!=") => MatchOp::NotEqual,
            TokenKind::Operator("=~") => MatchOp::Regex,
            TokenKind::Operator("!~") => MatchOp::NotRegex,
            _ if token.kind == TokenKind::Text => {
                if matches!(self.peek().kind, TokenKind::Mark(',' | '}')) {
                    return Ok(Matcher::new(METRIC_NAME, MatchOp::Equal, label));
                }
                return Err(self.unexpected(context, "\",\" or \"}\""));
            }
            _ => return Err(self.unexpected(context, "label matching operator")),
        };
        self.next();
        let Some(value) = self.accept(TokenKind::Text) else { return Err(self.unexpected(context, "string")) };
        let matcher = Matcher::new(label, op, unquote(self.written(&value)));
        if matches!(op, MatchOp::Regex | MatchOp::NotRegex) {
            check::compile_regex(&matcher.value)
                .map_err(|message| ParseError::new(token.span.to(value.span), message))?;
        }
        Ok(matcher)
    }
}

fn too_deep(span: Span) -> ParseError {
    ParseError::new(span, format!("the expression nests deeper than {DEPTH_MAX} levels"))
}
