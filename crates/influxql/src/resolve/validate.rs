//! Checks of a selection before its tables are looked at.

use crate::functions::sketched;
use crate::syntax::ast::{Expr, Field, Fill, Operator, Select};
use crate::value::Math;

/// Values of a season, most: the search keeps as many points, each of as many numbers.
const SEASON_MAX: usize = 1024;

/// Functions of an interval's values that give one of their own kind, or one that was among them.
const PLAIN: [&str; 11] = ["count", "sum", "mean", "median", "mode", "stddev", "spread", "max", "min", "first", "last"];
/// Functions of the values in their order. They take a field, or an aggregate per interval.
pub(crate) const TRANSFORMATIONS: [&str; 9] = [
    "derivative",
    "non_negative_derivative",
    "difference",
    "non_negative_difference",
    "cumulative_sum",
    "moving_average",
    "elapsed",
    "holt_winters",
    "holt_winters_with_fit",
];
/// Functions that choose one of the values.
pub(crate) const SELECTORS: [&str; 8] = ["first", "last", "max", "min", "percentile", "sample", "top", "bottom"];

/// Facts about a selection's fields.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct FieldChecks {
    calls: usize,
    /// References outside of calls.
    references: bool,
    only_selectors: bool,
    top: Option<&'static str>,
    distinct: bool,
    /// True if rows are grouped by time: at all, and by the selection itself.
    windows: bool,
    own_windows: bool,
    rows_max: u64,
    /// Windows before the first that must be read.
    pub(crate) extra_windows: i64,
}

/// Checks a selection's fields, given whether rows are grouped by time, here or outside.
pub(crate) fn check(
    select: &Select,
    fields: &[Field],
    windows: bool,
    own_windows: bool,
) -> Result<FieldChecks, String> {
    let mut found = FieldChecks {
        only_selectors: true,
        windows,
        own_windows,
        rows_max: select.limits.rows,
        ..FieldChecks::default()
    };
    if fields.is_empty() {
        return Err("at least 1 non-time field must be queried".to_owned());
    }
    for field in fields {
        found.expr(&field.expr, true)?;
    }
    found.together(select)?;
    Ok(found)
}

impl FieldChecks {
    pub(crate) const fn has_calls(&self) -> bool {
        self.calls > 0
    }

    fn together(&self, select: &Select) -> Result<(), String> {
        if let Some(top) = self.top.filter(|_| self.calls > 1) {
            return Err(format!("selector function {top}() cannot be combined with other functions"));
        }
        if self.calls == 0 {
            match select.fill {
                Some(Fill::None) => return Err("fill(none) must be used with a function".to_owned()),
                Some(Fill::Linear) => return Err("fill(linear) must be used with a function".to_owned()),
                _ => {}
            }
            if self.own_windows {
                return Err("GROUP BY requires at least one aggregate function".to_owned());
            }
        }
        if self.distinct && (self.calls != 1 || self.references) {
            return Err("aggregate function distinct() cannot be combined with other functions or fields".to_owned());
        }
        if self.references && !self.only_selectors {
            return Err("mixing aggregate and non-aggregate queries is not supported".to_owned());
        }
        if self.references && self.calls > 1 {
            return Err("mixing multiple selector functions with tags or fields is not supported".to_owned());
        }
        Ok(())
    }

    fn expr(&mut self, expr: &Expr, wildcard: bool) -> Result<(), String> {
        match expr {
            Expr::Wildcard(_) if !wildcard => return Err("unable to use wildcard in a binary expression".to_owned()),
            Expr::Pattern(_) if !wildcard => return Err("unable to use regex in a binary expression".to_owned()),
            Expr::Reference { .. } | Expr::Wildcard(_) | Expr::Pattern(_) => self.references = true,
            Expr::Call { name, arguments } => return self.call(name, arguments, wildcard),
            Expr::Parentheses(inner) => return self.expr(inner, wildcard),
            Expr::Binary { operator, left, right } => {
                if operator.compares() || matches!(operator, Operator::Matches | Operator::MatchesNot) {
                    return Err(format!(
                        "invalid operator {} in SELECT clause; operator is intended for WHERE",
                        operator.written()
                    ));
                }
                match (is_literal(left), is_literal(right)) {
                    (true, true) => return Err("cannot perform a binary expression on two literals".to_owned()),
                    (true, false) => self.expr(right, false)?,
                    (false, true) => self.expr(left, false)?,
                    (false, false) => {
                        self.expr(left, false)?;
                        self.expr(right, false)?;
                    }
                }
            }
            Expr::All(_) | Expr::Any(_) => {
                return Err("invalid operator in SELECT clause; AND and OR are intended for WHERE".to_owned());
            }
            _ => return Err("field must contain at least one variable".to_owned()),
        }
        Ok(())
    }

    fn call(&mut self, name: &str, arguments: &[Expr], wildcard: bool) -> Result<(), String> {
        if let Some((_, takes)) = Math::named(name) {
            expect_arguments(name, arguments, takes, takes)?;
            return arguments
                .iter()
                .filter(|argument| !is_literal(argument))
                .try_for_each(|argument| self.expr(argument, wildcard));
        }
        self.calls += 1;
        let first = arguments.first();
        match name {
            "distinct" => self.distinct(arguments, false),
            "top" | "bottom" => self.top(name, arguments),
            "percentile" => {
                expect_arguments(name, arguments, 2, 2)?;
                if !matches!(arguments.get(1), Some(Expr::Integer(_) | Expr::Number(_))) {
                    return Err("expected float argument in percentile()".to_owned());
                }
                self.symbol(name, first, wildcard)
            }
            sketched::PERCENTILE => {
                expect_arguments(name, arguments, 2, 2)?;
                let percent = match arguments.get(1) {
                    Some(Expr::Integer(percent)) => *percent as f64,
                    Some(Expr::Number(percent)) => *percent,
                    _ => f64::NAN,
                };
                if !(0.0..=100.0).contains(&percent) {
                    return Err(format!("expected a number from 0 to 100 as second argument in {name}()"));
                }
                self.only_selectors = false;
                self.symbol(name, first, wildcard)
            }
            "sample" => {
                expect_arguments(name, arguments, 2, 2)?;
                match arguments.get(1) {
                    Some(Expr::Integer(1..)) => self.symbol(name, first, wildcard),
                    Some(Expr::Integer(size)) => Err(format!("sample window must be greater than 1, got {size}")),
                    _ => Err("expected integer argument in sample()".to_owned()),
                }
            }
            "integral" => {
                expect_arguments(name, arguments, 1, 2)?;
                expect_duration(name, arguments.get(1))?;
                self.only_selectors = false;
                self.symbol(name, first, wildcard)
            }
            "holt_winters" | "holt_winters_with_fit" => self.holt_winters(name, arguments),
            _ if TRANSFORMATIONS.contains(&name) => self.transformation(name, arguments, wildcard),
            _ if PLAIN.contains(&name) || sketched::DISTINCT.contains(&name) => {
                self.only_selectors &= SELECTORS.contains(&name);
                expect_arguments(name, arguments, 1, 1)?;
                match first {
                    Some(Expr::Call { name: inner, arguments }) if name == "count" && inner == "distinct" => {
                        self.distinct(arguments, true)
                    }
                    first => self.symbol(name, first, wildcard),
                }
            }
            _ => Err(format!("undefined function {name}()")),
        }
    }

    /// A field, or what stands for several.
    fn symbol(&mut self, name: &str, argument: Option<&Expr>, wildcard: bool) -> Result<(), String> {
        match argument {
            Some(Expr::Reference { .. }) => Ok(()),
            Some(Expr::Wildcard(_)) if !wildcard => Err(format!("unsupported expression with wildcard: {name}()")),
            Some(Expr::Pattern(_)) if !wildcard => Err(format!("unsupported expression with regex field: {name}()")),
            Some(Expr::Wildcard(_) | Expr::Pattern(_)) => {
                self.only_selectors = false;
                Ok(())
            }
            _ => Err(format!("expected field argument in {name}()")),
        }
    }

    fn distinct(&mut self, arguments: &[Expr], nested: bool) -> Result<(), String> {
        match arguments {
            [] => return Err("distinct function requires at least one argument".to_owned()),
            [Expr::Reference { .. }] => {}
            [_] => return Err("expected field argument in distinct()".to_owned()),
            _ => return Err("distinct function can only have one argument".to_owned()),
        }
        self.distinct |= !nested;
        self.only_selectors = false;
        Ok(())
    }

    fn top(&mut self, name: &str, arguments: &[Expr]) -> Result<(), String> {
        let known = if name == "top" { "top" } else { "bottom" };
        if let Some(before) = self.top {
            return Err(format!("selector function {before}() cannot be combined with other functions"));
        }
        let [first, tags @ .., size] = arguments else {
            let got = arguments.len();
            return Err(format!("invalid number of arguments for {name}, expected at least 2, got {got}"));
        };
        match size {
            Expr::Integer(size) if *size <= 0 => {
                return Err(format!("limit ({size}) in {name} function must be at least 1"));
            }
            Expr::Integer(size) if self.rows_max > 0 && size.unsigned_abs() > self.rows_max => {
                return Err(format!(
                    "limit ({size}) in {name} function can not be larger than the LIMIT ({}) in the select statement",
                    self.rows_max
                ));
            }
            Expr::Integer(_) => {}
            other => return Err(format!("expected integer as last argument in {name}(), found {other}")),
        }
        if !matches!(first, Expr::Reference { .. }) {
            return Err(format!("expected first argument to be a field in {name}(), found {first}"));
        }
        if let Some(other) = tags.iter().find(|tag| !matches!(tag, Expr::Reference { .. })) {
            return Err(format!("only fields or tags are allowed in {name}(), found {other}"));
        }
        self.references |= !tags.is_empty();
        self.top = Some(known);
        Ok(())
    }

    fn transformation(&mut self, name: &str, arguments: &[Expr], wildcard: bool) -> Result<(), String> {
        let mut extra_windows = 1;
        match name {
            "derivative" | "non_negative_derivative" | "elapsed" => {
                expect_arguments(name, arguments, 1, 2)?;
                expect_duration(name, arguments.get(1))?;
            }
            "moving_average" => {
                expect_arguments(name, arguments, 2, 2)?;
                match arguments.get(1) {
                    Some(Expr::Integer(size @ 2..)) => extra_windows = *size,
                    Some(Expr::Integer(size)) => {
                        return Err(format!("moving_average window must be greater than 1, got {size}"));
                    }
                    _ => return Err("second argument for moving_average must be an integer".to_owned()),
                }
            }
            _ => expect_arguments(name, arguments, 1, 1)?,
        }
        self.only_selectors = false;
        self.extra_windows = self.extra_windows.max(extra_windows);
        match arguments.first() {
            Some(Expr::Call { name: inner, arguments }) => {
                if !self.windows {
                    return Err(format!("{name} aggregate requires a GROUP BY interval"));
                }
                self.inner(inner, arguments, wildcard)
            }
            _ if self.own_windows => Err(format!("aggregate function required inside the call to {name}")),
            first => self.symbol(name, first, wildcard),
        }
    }

    fn holt_winters(&mut self, name: &str, arguments: &[Expr]) -> Result<(), String> {
        expect_arguments(name, arguments, 3, 3)?;
        match arguments.get(1) {
            Some(Expr::Integer(1..)) => {}
            Some(Expr::Integer(count)) => {
                return Err(format!("second arg to {name} must be greater than 0, got {count}"));
            }
            _ => return Err(format!("expected integer argument as second arg in {name}")),
        }
        match arguments.get(2) {
            Some(Expr::Integer(season)) if *season > SEASON_MAX as i64 => {
                return Err(format!("third arg to {name} must be at most {SEASON_MAX}, got {season}"));
            }
            Some(Expr::Integer(0..)) => {}
            Some(Expr::Integer(season)) => return Err(format!("third arg to {name} cannot be negative, got {season}")),
            _ => return Err(format!("expected integer argument as third arg in {name}")),
        }
        self.only_selectors = false;
        match arguments.first() {
            Some(Expr::Call { .. }) if !self.windows => Err(format!("{name} aggregate requires a GROUP BY interval")),
            Some(Expr::Call { name: inner, arguments }) => self.inner(inner, arguments, false),
            _ => Err(format!("must use aggregate function with {name}")),
        }
    }

    /// A call inside of a transformation: it does not count as one of its own.
    fn inner(&mut self, name: &str, arguments: &[Expr], wildcard: bool) -> Result<(), String> {
        if TRANSFORMATIONS.contains(&name) || Math::named(name).is_some() || name == "top" || name == "bottom" {
            return Err(format!("{name}() cannot stand inside of another function; use a subquery"));
        }
        if name == "distinct" {
            return self.distinct(arguments, true);
        }
        let calls = self.calls;
        self.call(name, arguments, wildcard)?;
        self.calls = calls;
        Ok(())
    }
}

fn is_literal(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Number(_) | Expr::Integer(_) | Expr::Unsigned(_) | Expr::Text(_) | Expr::Boolean(_) | Expr::Duration(_)
    )
}

fn expect_arguments(name: &str, arguments: &[Expr], fewest: usize, most: usize) -> Result<(), String> {
    let got = arguments.len();
    if (fewest..=most).contains(&got) {
        return Ok(());
    }
    if fewest == most {
        return Err(format!("invalid number of arguments for {name}, expected {fewest}, got {got}"));
    }
    Err(format!(
        "invalid number of arguments for {name}, expected at least {fewest} but no more than {most}, got {got}"
    ))
}

fn expect_duration(name: &str, argument: Option<&Expr>) -> Result<(), String> {
    match argument {
        None | Some(Expr::Duration(1..)) => Ok(()),
        Some(Expr::Duration(_)) => Err(format!(
            "duration argument must be positive, got {}",
            argument.map_or(String::new(), ToString::to_string)
        )),
        Some(_) => Err(format!("second argument to {name} must be a duration")),
    }
}
