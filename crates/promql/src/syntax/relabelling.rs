//! `relabelled ("m", {action="…", …}, …)` after the labels that an aggregation groups by: steps that change the labels of series, or leave them
//! out, before they are grouped. Prometheus has none; VictoriaMetrics's stream aggregation does.

use model::{MatchOp, Matcher};
use relabel::{Condition, Rule, RuleText};

use crate::syntax::ast::{RELABELLED, Relabelling};
use crate::syntax::check::{REGEXES_MAX, compile_regex};
use crate::syntax::parse::{Parser, parse_conditions};
use crate::syntax::span::{ParseError, ParseResult, Span};
use crate::syntax::strings::{quote, unquote};
use crate::syntax::token::TokenKind;

impl Parser<'_> {
    /// The relabelling of a grouping, if there is one.
    pub(super) fn relabelling(&mut self) -> ParseResult<Option<Relabelling>> {
        let word = self.peek();
        if word.kind != TokenKind::Identifier || self.written(&word) != RELABELLED {
            return Ok(None);
        }
        self.next();
        if !self.features.experimental_functions {
            return Err(ParseError::new(word.span, format!("{RELABELLED} is not enabled")));
        }
        self.expect('(')?;
        let mut metric = None;
        if let Some(name) = self.accept(TokenKind::Text) {
            metric = Some(unquote(self.written(&name)));
            self.accept(TokenKind::Mark(',')).ok_or_else(|| self.unexpected(RELABELLED, "\",\""))?;
        }
        let mut rules = Vec::new();
        loop {
            let rule = self.relabelling_step(rules.len() + 1)?;
            rules.push(rule);
            if self.accept(TokenKind::Mark(')')).is_some() {
                return Ok(Some(Relabelling { metric, rules: rules.into() }));
            }
            self.accept(TokenKind::Mark(',')).ok_or_else(|| self.unexpected(RELABELLED, "\",\" or \")\""))?;
        }
    }

    fn relabelling_step(&mut self, number: usize) -> ParseResult<Rule> {
        let start = self.peek().span.start;
        self.accept(TokenKind::Mark('{')).ok_or_else(|| self.unexpected(RELABELLED, "\"{\""))?;
        let fields = self.matchers()?;
        let span = Span::new(start, self.last_closing);
        let wrong = |why: String| ParseError::new(span, format!("step {number} of {RELABELLED}: {why}"));
        if let Some(other) = fields.iter().find(|field| field.op != MatchOp::Equal) {
            return Err(wrong(format!("a field has a text, {}=\"…\"", other.name)));
        }
        let pairs = fields.iter().map(|field| (field.name.as_str(), field.value.as_str()));
        let text = RuleText::from_fields(pairs, condition).map_err(wrong)?;
        // All steps of an expression are compiled while it is parsed.
        self.step_regexes += 1 + text.conditions.iter().map(regexes_of).sum::<usize>();
        if self.step_regexes > REGEXES_MAX {
            return Err(wrong(format!("more than {REGEXES_MAX} steps and regular expressions in one expression")));
        }
        text.regex.as_deref().map_or(Ok(()), |regex| compile_regex(regex).map(drop)).map_err(wrong)?;
        Rule::new(text).map_err(wrong)
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    let matchers = parse_conditions(text);
    let matchers = matchers.map_err(|error| format!("if {}: {}", quote(text), error.with_position(text)))?;
    Ok(Condition { text: text.to_owned(), matchers })
}

fn regexes_of(condition: &Condition) -> usize {
    let is_regex = |matcher: &&Matcher| matches!(matcher.op, MatchOp::Regex | MatchOp::NotRegex);
    condition.matchers.iter().filter(is_regex).count()
}
