//! `SELECT`, and the clauses that other statements share with it.

use super::ast::{Dimension, Expr, Field, Fill, Limits, Measurement, Named, Select, Source, Target};
use super::lex::Token;
use super::parse::{Parsed, Parser};

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Parsed<Select> {
        self.expect_word("select")?;
        let fields = self.list(Self::field)?;
        let into = if self.accept_word("into") { Some(self.target()?) } else { None };
        self.expect_word("from")?;
        let sources = self.list(Self::source)?;
        let condition = self.condition()?;
        let dimensions = self.dimensions()?;
        let fill = self.fill()?;
        let descending = self.order()?;
        let limits = self.limits()?;
        let zone = self.zone()?;
        Ok(Select { fields, into, sources, condition, dimensions, fill, descending, limits, zone })
    }

    fn field(&mut self) -> Parsed<Field> {
        let expr = self.expression()?;
        let alias = if self.accept_word("as") { Some(self.name()?) } else { None };
        Ok(Field { expr, alias })
    }

    fn target(&mut self) -> Parsed<Target> {
        let mut names: Vec<Option<String>> = Vec::new();
        loop {
            if self.accept_mark(":") {
                self.expect_word("measurement")?;
                names.push(None);
                break;
            }
            names.push(Some(if self.peek() == Token::Mark(".") { String::new() } else { self.name()? }));
            if !self.accept_mark(".") {
                break;
            }
        }
        let mut names = names.into_iter().rev();
        let measurement = names.next().flatten();
        let policy = names.next().flatten().filter(|name| !name.is_empty());
        let database = names.next().flatten().filter(|name| !name.is_empty());
        if names.next().is_some() {
            return Err(self.unexpected("at most database.policy.measurement before this"));
        }
        Ok(Target { database, policy, measurement })
    }

    fn source(&mut self) -> Parsed<Source> {
        if !self.accept_mark("(") {
            return self.measurement().map(Source::Measurement);
        }
        let select = self.nested(Self::select)?;
        self.expect_mark(")")?;
        Ok(Source::Subquery(Box::new(select)))
    }

    pub(super) fn measurement(&mut self) -> Parsed<Measurement> {
        let mut names: Vec<String> = Vec::new();
        let name = loop {
            if let Some(pattern) = self.accept_pattern()? {
                break Named::Pattern(pattern);
            }
            let name = if self.peek() == Token::Mark(".") { String::new() } else { self.name()? };
            if !self.accept_mark(".") {
                break Named::Exactly(name);
            }
            names.push(name);
        };
        let mut names = names.into_iter().rev();
        let policy = names.next().filter(|name| !name.is_empty());
        let database = names.next().filter(|name| !name.is_empty());
        if names.next().is_some() {
            return Err(self.unexpected("at most database.policy.measurement before this"));
        }
        Ok(Measurement { database, policy, name })
    }

    /// `FROM` with measurements only, if it is there.
    pub(super) fn sources(&mut self) -> Parsed<Vec<Source>> {
        if !self.accept_word("from") {
            return Ok(Vec::new());
        }
        self.list(|parser| parser.measurement().map(Source::Measurement))
    }

    pub(super) fn condition(&mut self) -> Parsed<Option<Expr>> {
        if self.accept_word("where") { self.expression().map(Some) } else { Ok(None) }
    }

    pub(super) fn dimensions(&mut self) -> Parsed<Vec<Dimension>> {
        if !self.accept_word("group") {
            return Ok(Vec::new());
        }
        self.expect_word("by")?;
        self.list(Self::dimension)
    }

    fn dimension(&mut self) -> Parsed<Dimension> {
        match self.expression()?.bare() {
            Expr::Reference { name, .. } if name.eq_ignore_ascii_case("time") => {
                Err("time() is a function and expects at least one argument".to_owned())
            }
            Expr::Reference { name, .. } => Ok(Dimension::Tag(name.clone())),
            Expr::Pattern(pattern) => Ok(Dimension::Pattern(pattern.clone())),
            Expr::Wildcard(_) => Ok(Dimension::Wildcard),
            Expr::Call { name, arguments } if name == "time" => match arguments.as_slice() {
                [Expr::Duration(width_ns), rest @ ..] if rest.len() < 2 && *width_ns > 0 => {
                    Ok(Dimension::Time { width_ns: *width_ns, offset: rest.first().cloned() })
                }
                [] | [_, _, _, ..] => Err("time dimension expected 1 or 2 arguments".to_owned()),
                _ => Err("time dimension must have duration argument".to_owned()),
            },
            Expr::Call { .. } => Err("only time() calls allowed in dimensions".to_owned()),
            _ => Err("only time and tag dimensions allowed".to_owned()),
        }
    }

    fn fill(&mut self) -> Parsed<Option<Fill>> {
        if !self.accept_word("fill") {
            return Ok(None);
        }
        self.expect_mark("(")?;
        let named =
            [("null", Fill::Null), ("none", Fill::None), ("previous", Fill::Previous), ("linear", Fill::Linear)];
        let fill = match named.iter().find(|(word, _)| self.peek_word(word)) {
            Some((_, fill)) => {
                self.next();
                *fill
            }
            None => match self.operand()? {
                Expr::Integer(value) => Fill::Integer(value),
                Expr::Number(value) => Fill::Number(value),
                _ => return Err("fill requires an argument, e.g.: 0, null, none, previous, linear".to_owned()),
            },
        };
        self.expect_mark(")")?;
        Ok(Some(fill))
    }

    /// `ORDER BY time`: whether it falls.
    pub(super) fn order(&mut self) -> Parsed<Option<bool>> {
        if !self.accept_word("order") {
            return Ok(None);
        }
        self.expect_word("by")?;
        if !self.peek_word("asc") && !self.peek_word("desc") {
            let name = self.name()?;
            if name != "time" {
                return Err("only ORDER BY time supported at this time".to_owned());
            }
        }
        let descending = self.accept_word("desc");
        if !descending {
            self.accept_word("asc");
        }
        if self.peek() == Token::Mark(",") {
            return Err("only ORDER BY time supported at this time".to_owned());
        }
        Ok(Some(descending))
    }

    pub(super) fn limits(&mut self) -> Parsed<Limits> {
        let mut limits = Limits::default();
        let places: [(&str, &mut u64); 4] = [
            ("limit", &mut limits.rows),
            ("offset", &mut limits.rows_skipped),
            ("slimit", &mut limits.series),
            ("soffset", &mut limits.series_skipped),
        ];
        for (word, place) in places {
            if self.accept_word(word) {
                *place = self.unsigned()?;
            }
        }
        Ok(limits)
    }

    fn zone(&mut self) -> Parsed<Option<String>> {
        if !self.accept_word("tz") {
            return Ok(None);
        }
        self.expect_mark("(")?;
        let zone = self.text_literal()?;
        self.expect_mark(")")?;
        Ok(Some(zone))
    }
}
