//! Joins: rows of two tables side by side, by columns that are equal or as of a time.

use std::collections::HashMap;

use jiff::tz::TimeZone;
use query::{Interval, Value, time};
use sqlparser::ast::{Expr, JoinConstraint, JoinOperator};

use super::from::Source;
use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{Bound, holds, width};
use crate::run::Run;
use crate::scope::{Role, Scope, ScopeColumn};

/// Rows that a join may make.
const JOIN_ROWS_MAX: usize = 10_000_000;

/// Columns of the left and of the right that are one by USING.
pub(super) type Shared = Vec<(usize, usize)>;

/// How rows find partners, and which rows without one stay.
#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    keeps_left: bool,
    keeps_right: bool,
    as_of: Option<AsOf>,
}

/// How old the newest row of the right may be that a row of the left finds.
#[derive(Debug, Clone, Copy)]
struct AsOf {
    /// True if it is to be earlier: `LT JOIN`.
    is_earlier: bool,
    /// The most that it may be earlier by; `None` for as much as it is.
    tolerance: Option<Interval>,
}

/// The two sides of a join.
struct Sides<'a> {
    left: (&'a Scope, Vec<Vec<Value>>),
    right: (&'a Scope, Vec<Vec<Value>>),
    both: &'a Scope,
}

impl Run<'_> {
    pub(super) fn join(
        &mut self,
        left: (Vec<Vec<Value>>, Scope),
        right: (Vec<Vec<Value>>, Scope),
        operator: &JoinOperator,
        tolerance: Option<&str>,
    ) -> Result<(Source, Scope), SqlError> {
        let tolerance = tolerance.map(|text| width(&Value::text(text))).transpose()?;
        let as_of =
            |is_earlier| Kind { keeps_left: true, keeps_right: false, as_of: Some(AsOf { is_earlier, tolerance }) };
        let mut both = Scope { columns: [left.1.columns.clone(), right.1.columns.clone()].concat() };
        let (constraint, kind) = match operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) | JoinOperator::CrossJoin(constraint) => {
                (constraint, Kind::default())
            }
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
                (constraint, Kind { keeps_left: true, ..Kind::default() })
            }
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                (constraint, Kind { keeps_right: true, ..Kind::default() })
            }
            JoinOperator::FullOuter(constraint) => {
                (constraint, Kind { keeps_left: true, keeps_right: true, as_of: None })
            }
            // What ASOF JOIN and LT JOIN were replaced by ([`crate::syntax::parse`]).
            JoinOperator::LeftSemi(constraint) => (constraint, as_of(false)),
            JoinOperator::LeftAnti(constraint) => (constraint, as_of(true)),
            _ => return unsupported("SEMI and ANTI joins; IN and EXISTS do the same"),
        };
        let (mut conditions, shared) = self.join_conditions(constraint, &left.1, &right.1, &both)?;
        let sides = Sides { left: (&left.1, left.0), right: (&right.1, right.0), both: &both };
        let rows = self.join_rows(sides, &mut conditions, &shared, kind)?;
        let merged: Vec<ScopeColumn> = shared.iter().filter_map(|(left, _)| both.columns.get(*left).cloned()).collect();
        for (left, right) in &shared {
            for place in [Some(*right), kind.keeps_right.then_some(*left)].into_iter().flatten() {
                let column = both.columns.get_mut(place);
                column.into_iter().for_each(|column| (column.is_hidden, column.needs_table) = (true, true));
            }
        }
        if kind.keeps_right {
            // Neither side has the value in all rows: a column of its own shows the one that is there.
            let without_table = |column: ScopeColumn| ScopeColumn { qualifier: None, ..column };
            both.columns.splice(0..0, merged.into_iter().map(without_table));
        }
        Ok((Source::Rows(rows), both))
    }

    /// The conditions on two rows, and which columns of the left also show those of the right.
    pub(super) fn join_conditions(
        &mut self,
        constraint: &JoinConstraint,
        left: &Scope,
        right: &Scope,
        both: &Scope,
    ) -> Result<(Vec<Bound>, Shared), SqlError> {
        let common: Vec<sqlparser::ast::Ident>;
        let names: Vec<&sqlparser::ast::Ident> = match constraint {
            JoinConstraint::None => return Ok((Vec::new(), Vec::new())),
            JoinConstraint::On(Expr::Value(value)) if value.value == sqlparser::ast::Value::Boolean(true) => {
                return Ok((Vec::new(), Vec::new()));
            }
            JoinConstraint::On(Expr::Nested(expression)) if matches!(**expression, Expr::Identifier(_)) => {
                match &**expression {
                    // QuestDB: `ON (host)`
                    Expr::Identifier(name) => vec![name],
                    _ => Vec::new(),
                }
            }
            JoinConstraint::On(Expr::Tuple(expression)) => expression
                .iter()
                .filter_map(|expression| if let Expr::Identifier(name) = expression { Some(name) } else { None })
                .collect(),
            JoinConstraint::On(expression) => {
                let bound = self.bind(both, expression)?;
                return Ok((super::filter::conjuncts(bound.expression), Vec::new()));
            }
            JoinConstraint::Using(names) => names.iter().filter_map(|name| name.0.last()?.as_ident()).collect(),
            JoinConstraint::Natural => {
                let is_of_right = |name: &str| right.columns.iter().any(|other| !other.is_hidden && other.name == name);
                let columns = left.columns.iter().filter(|column| !column.is_hidden && is_of_right(&column.name));
                common = columns.map(|column| sqlparser::ast::Ident::with_quote('"', &column.name)).collect();
                common.iter().collect()
            }
        };
        let (mut conditions, mut shared) = (Vec::new(), Vec::new());
        for name in names {
            let (a, b) = (left.find(None, name)?, left.columns.len() + right.find(None, name)?);
            conditions.push(crate::expression::equal(Bound::Column(a), Bound::Column(b)));
            shared.push((a, b));
        }
        Ok((conditions, shared))
    }

    /// Rows side by side: partners are found by the columns that must be equal, and, as of a time, the newest that is not later, or earlier.
    fn join_rows(
        &mut self,
        sides: Sides<'_>,
        conditions: &mut Vec<Bound>,
        shared: &[(usize, usize)],
        kind: Kind,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let keys = take_keys(conditions, sides.left.0.columns.len());
        let times = match kind.as_of {
            Some(as_of) => Some((as_of, as_of_times(sides.left.0, sides.right.0)?)),
            None => None,
        };
        if let Some((as_of, (row, found))) = times {
            let found = sides.left.0.columns.len() + found;
            crate::expression::take_as_of(conditions, (row, found), as_of.is_earlier)?;
        }
        let right = &sides.right.1;
        let partners = partners(right, &keys, times.map(|(_, (_, time))| time));
        let mut joined: Vec<Vec<Value>> = Vec::new();
        let empty = vec![Value::Null; sides.right.0.columns.len()];
        let width = sides.both.columns.len();
        let mut has_partner = vec![false; if kind.keeps_right { right.len() } else { 0 }];
        for row in sides.left.1 {
            self.session.budget().check()?;
            let key: Vec<Value> = keys.iter().map(|(a, _)| cell(&row, *a)).collect();
            let mut candidates = partners.get(&key).map(Vec::as_slice).unwrap_or_default();
            if let Some((as_of, (a, b))) = times {
                let at = |place: &usize| right.get(*place).map_or(Value::Null, |row| cell(row, b));
                candidates = as_of.newest(&cell(&row, a), candidates, at);
            }
            let before = joined.len();
            for place in candidates {
                let Some(partner) = right.get(*place) else { continue };
                let pair: Vec<Value> = row.iter().chain(partner).cloned().collect();
                let mut is_met = true;
                for condition in &*conditions {
                    is_met = is_met && holds(condition, &pair, &self.environment)?;
                }
                if is_met {
                    joined.push(pair);
                    has_partner.get_mut(*place).into_iter().for_each(|has_partner| *has_partner = true);
                }
            }
            if kind.keeps_left && joined.len() == before {
                joined.push(row.iter().chain(&empty).cloned().collect());
            }
            self.charge((joined.len() - before) * width)?;
            if joined.len() > JOIN_ROWS_MAX {
                let message = format!("a join makes at most {JOIN_ROWS_MAX} rows: join by more columns, or fewer rows");
                return invalid(message);
            }
        }
        let alone = right.iter().zip(&has_partner).filter(|(_, has_partner)| !**has_partner);
        let nothing = vec![Value::Null; sides.left.0.columns.len()];
        let before = joined.len();
        joined.extend(alone.map(|(row, _)| nothing.iter().chain(row).cloned().collect()));
        self.charge((joined.len() - before) * width)?;
        if kind.keeps_right && !shared.is_empty() {
            joined.iter_mut().for_each(|row| merge(row, shared));
        }
        Ok(joined)
    }
}

impl AsOf {
    /// The newest of candidates, which are in order of time, that a row of a time finds; none or one.
    fn newest<'a>(self, now: &Value, candidates: &'a [usize], at: impl Fn(&usize) -> Value) -> &'a [usize] {
        // A row of an outer join without one of the first table has no time.
        if now.is_null() {
            return &[];
        }
        let is_early = |place: &usize| {
            let order = at(place).order(now);
            order.is_lt() || (order.is_eq() && !self.is_earlier)
        };
        let after = candidates.partition_point(is_early);
        let newest = candidates.get(after.saturating_sub(1)..after).unwrap_or_default();
        let is_too_old = |place: &usize| {
            let oldest = self.tolerance.and_then(|by| time::add(now.time_ns()?, by.checked_neg()?, &TimeZone::UTC));
            oldest.is_some_and(|oldest| at(place).time_ns().is_none_or(|ns| ns < oldest))
        };
        if newest.iter().any(is_too_old) { &[] } else { newest }
    }
}

/// Puts the columns that both sides share before a row: the left's value, or else the right's.
fn merge(row: &mut Vec<Value>, shared: &[(usize, usize)]) {
    let value = |(left, right): &(usize, usize)| match cell(row, *left) {
        Value::Null => cell(row, *right),
        value => value,
    };
    let merged: Vec<Value> = shared.iter().map(value).collect();
    row.splice(0..0, merged);
}

/// Takes the columns that must be equal out of conditions: their places on the left and on the right.
pub(super) fn take_keys(conditions: &mut Vec<Bound>, width: usize) -> Vec<(usize, usize)> {
    let mut keys = Vec::new();
    conditions.retain(|condition| match crate::expression::equal_columns(condition) {
        Some((a, b)) if a < width && b >= width => {
            keys.push((a, b - width));
            false
        }
        _ => true,
    });
    keys
}

/// Places of rows by their keys, in order of time if there is one; rows with a null in the key have no partner.
fn partners(rows: &[Vec<Value>], keys: &[(usize, usize)], time: Option<usize>) -> HashMap<Vec<Value>, Vec<usize>> {
    let mut partners: HashMap<Vec<Value>, Vec<usize>> = HashMap::new();
    for (place, row) in rows.iter().enumerate() {
        let key: Vec<Value> = keys.iter().map(|(_, b)| cell(row, *b)).collect();
        if !key.iter().any(Value::is_null) {
            partners.entry(key).or_default().push(place);
        }
    }
    if let Some(time) = time {
        let at = |place: &usize| rows.get(*place).map_or(Value::Null, |row| cell(row, time));
        partners.values_mut().for_each(|places| places.sort_by(|a, b| at(a).order(&at(b))));
    }
    partners
}

fn cell(row: &[Value], place: usize) -> Value {
    row.get(place).cloned().unwrap_or(Value::Null)
}

/// The columns of time of both sides.
fn as_of_times(left: &Scope, right: &Scope) -> Result<(usize, usize), SqlError> {
    let time = |scope: &Scope| scope.columns.iter().position(|column| column.role == Role::Time);
    time(left)
        .zip(time(right))
        .ok_or_else(|| {
            let message = "ASOF JOIN and LT JOIN are of tables with their times: a query in FROM shows its table's time by the name that it has, time or timestamp";
            SqlError::Invalid(message.to_owned())
        })
}
