//! Expressions, by the strength of their operators.

use super::ast::{Cast, Expr, Operator};
use super::duration;
use super::lex::Token;
use super::parse::{Parsed, Parser, is_keyword};

/// Operators in a row that are not `AND` or `OR`: each makes the tree taller.
const CHAIN_MAX: usize = 200;

/// The strength of comparisons, the weakest operators below `AND`.
const COMPARISON: u8 = 3;

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            parser.operands("or", Expr::Any, |parser| parser.operands("and", Expr::All, |p| p.chain(COMPARISON)))
        })
    }

    /// Operands between `AND`s or `OR`s.
    fn operands(
        &mut self,
        word: &str,
        make: fn(Vec<Expr>) -> Expr,
        operand: fn(&mut Self) -> Parsed<Expr>,
    ) -> Parsed<Expr> {
        let first = operand(self)?;
        if !self.peek_word(word) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.accept_word(word) {
            operands.push(operand(self)?);
        }
        Ok(make(operands))
    }

    /// Operators of at least a strength, from left to right.
    fn chain(&mut self, strength: u8) -> Parsed<Expr> {
        let mut left = self.operand()?;
        let mut length = 0;
        while let Some((operator, found)) = self.operator(strength) {
            length += 1;
            if length > CHAIN_MAX {
                return Err(format!("an expression has more than {CHAIN_MAX} operators in a row"));
            }
            self.next();
            let right = if matches!(operator, Operator::Matches | Operator::MatchesNot) {
                let pattern = self.accept_pattern()?;
                Expr::Pattern(pattern.ok_or_else(|| self.unexpected("regex"))?)
            } else {
                self.nested(|parser| parser.chain(found + 1))?
            };
            left = Expr::binary(operator, left, right);
        }
        Ok(left)
    }

    fn operator(&self, strength: u8) -> Option<(Operator, u8)> {
        let Token::Mark(mark) = self.peek() else {
            return None;
        };
        let found = Operator::ALL.iter().find(|(written, _, found)| *written == mark && *found >= strength);
        found.map(|(_, operator, found)| (*operator, *found))
    }

    /// An operand.
    pub(super) fn operand(&mut self) -> Parsed<Expr> {
        if let Some(pattern) = self.accept_pattern()? {
            return Ok(Expr::Pattern(pattern));
        }
        match self.peek() {
            Token::Mark("(") => {
                self.next();
                let inner = self.expression()?;
                self.expect_mark(")")?;
                Ok(Expr::Parentheses(Box::new(inner)))
            }
            Token::Mark("+") => {
                self.next();
                self.nested(Self::operand)
            }
            Token::Mark("-") => {
                self.next();
                self.nested(Self::negated)
            }
            Token::Mark("*") => {
                self.next();
                let cast = self.cast()?;
                match cast {
                    None | Some(Cast::Field | Cast::Tag) => Ok(Expr::Wildcard(cast)),
                    Some(_) => Err(self.unexpected("field or tag behind *::")),
                }
            }
            Token::Parameter(name) => self.parameter(&name),
            Token::Word(word) if word.eq_ignore_ascii_case("distinct") => self.distinct(),
            Token::Name(_) | Token::Word(_) => self.word(),
            _ => self.literal(),
        }
    }

    /// The operand of a minus: a literal takes it in, anything else is multiplied by −1.
    fn negated(&mut self) -> Parsed<Expr> {
        if let Token::Integer(digits) = self.peek()
            && let Ok(value) = format!("-{digits}").parse()
        {
            self.next();
            return Ok(Expr::Integer(value));
        }
        match self.operand()? {
            Expr::Number(value) => Ok(Expr::Number(-value)),
            Expr::Integer(value) => Ok(Expr::Integer(value.wrapping_neg())),
            Expr::Duration(value) => Ok(Expr::Duration(value.wrapping_neg())),
            operand @ (Expr::Reference { .. } | Expr::Call { .. } | Expr::Parentheses(_)) => {
                Ok(Expr::binary(Operator::Multiply, Expr::Integer(-1), operand))
            }
            _ => Err(self.unexpected("a number, a name, a call or a parenthesis behind -")),
        }
    }

    fn literal(&mut self) -> Parsed<Expr> {
        let expr = match self.peek() {
            Token::Text(text) => Expr::Text(text),
            Token::Integer(digits) => match digits.parse() {
                Ok(value) => Expr::Integer(value),
                Err(_) => Expr::Unsigned(digits.parse().map_err(|_| self.unexpected("a number below 2^64"))?),
            },
            Token::Number(text) => Expr::Number(text.parse().map_err(|_| self.unexpected("number"))?),
            Token::Duration(text) => {
                Expr::Duration(duration::parse(text).ok_or_else(|| self.unexpected("a duration such as 1h30m"))?)
            }
            _ => return Err(self.unexpected("identifier, string, number, bool")),
        };
        self.next();
        Ok(expr)
    }

    /// A reference, a call, or a yes or no.
    fn word(&mut self) -> Parsed<Expr> {
        if let Token::Word(word) = self.peek() {
            for (text, value) in [("true", true), ("false", false)] {
                if word.eq_ignore_ascii_case(text) {
                    self.next();
                    return Ok(Expr::Boolean(value));
                }
            }
            if !is_keyword(word) && self.peek_second() == Token::Mark("(") {
                self.next();
                return self.call(word.to_ascii_lowercase());
            }
        }
        let name = self.name().map_err(|_| self.unexpected("identifier, string, number, bool"))?;
        let mut name = name;
        while matches!(self.peek(), Token::Mark(".")) && self.touches() {
            self.next();
            name.push('.');
            name.push_str(&self.name()?);
        }
        Ok(Expr::Reference { name, cast: self.cast()? })
    }

    fn call(&mut self, name: String) -> Parsed<Expr> {
        self.expect_mark("(")?;
        if self.accept_mark(")") {
            return Ok(Expr::Call { name, arguments: Vec::new() });
        }
        let arguments = self.list(Self::expression)?;
        self.expect_mark(")")?;
        Ok(Expr::Call { name, arguments })
    }

    /// `DISTINCT field` or `distinct(field)`.
    fn distinct(&mut self) -> Parsed<Expr> {
        self.next();
        if self.peek() == Token::Mark("(") {
            return self.call("distinct".to_owned());
        }
        let name = self.name()?;
        Ok(Expr::Call { name: "distinct".to_owned(), arguments: vec![Expr::reference(&name)] })
    }

    fn cast(&mut self) -> Parsed<Option<Cast>> {
        if !self.accept_mark("::") {
            return Ok(None);
        }
        let Token::Word(word) = self.peek() else {
            return Err(self.unexpected("float, integer, unsigned, string, boolean, field, tag"));
        };
        let named = Cast::ALL.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        let cast = named.ok_or_else(|| self.unexpected("float, integer, unsigned, string, boolean, field, tag"))?.1;
        self.next();
        Ok(Some(cast))
    }
}

impl Cast {
    /// All, with their names.
    pub(super) const ALL: [(&'static str, Self); 7] = [
        ("float", Self::Float),
        ("integer", Self::Integer),
        ("unsigned", Self::Unsigned),
        ("string", Self::Text),
        ("boolean", Self::Boolean),
        ("field", Self::Field),
        ("tag", Self::Tag),
    ];
}
