//! Continuous queries of measurements and fields that may come later: what came since is taken in, in the background or by the same statement again.

use std::collections::BTreeMap;
use std::sync::Arc;

use query::plan::Selector;
use query::views::{View, ViewDefinition};
use query::{QueryError, Session};
use regex::Regex;

use crate::resolve::names;
use crate::statements::continuous::{OF_SEVERAL, Part, is_of_one, sources, target_database, target_of};
use crate::syntax::ast::{ContinuousQuery, Expr, Measurement, Named, Source, Statement};
use crate::syntax::parse;

/// A measurement by a name of a continuous query.
#[derive(Debug)]
enum SourceName {
    Exactly(String),
    Pattern(Regex),
}

/// A continuous query of measurements or fields that may come later: of a pattern, of several measurements, or of `*`.
#[derive(Debug)]
pub struct PatternQuery {
    query: ContinuousQuery,
    sources: Vec<SourceName>,
}

/// What became of a measurement that a continuous query may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// The query has it, or columns of it, from now on.
    Extended,
    /// The query has all of it.
    Unchanged,
    /// The query has nothing of it until it has other fields.
    WithoutFields,
    /// The query has nothing of it until it has rows, or tags or fields that `WHERE` names.
    WithoutNames,
}

impl PatternQuery {
    /// Such a query by its statement; `None` if this is no statement of one.
    pub fn parse(statement: &str) -> Option<Self> {
        match parse(statement, &BTreeMap::new()).ok()?.as_slice() {
            [Statement::CreateContinuousQuery(query)] => Self::new(query),
            _ => None,
        }
    }

    pub(super) fn new(query: &ContinuousQuery) -> Option<Self> {
        if is_of_one(query) && !query.select.fields.iter().any(|field| has_pattern(&field.expr)) {
            return None;
        }
        let name = |source: &Source| match source {
            Source::Measurement(Measurement { name: Named::Exactly(name), .. }) => {
                Some(SourceName::Exactly(name.clone()))
            }
            Source::Measurement(Measurement { name: Named::Pattern(pattern), .. }) => {
                names::compile(pattern).ok().map(SourceName::Pattern)
            }
            Source::Subquery(_) => None,
        };
        let sources: Option<Vec<SourceName>> = query.select.sources.iter().map(name).collect();
        Some(Self { query: query.clone(), sources: sources? })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.query.name
    }

    /// Returns whether it names one measurement, of which it has fields that may come later.
    pub fn is_of_one(&self) -> bool {
        is_of_one(&self.query)
    }

    /// Returns whether a measurement of a name is one of those that it reads: by a pattern if it is no materialised view.
    pub fn reads(&self, measurement: &str, is_view: impl Fn() -> bool) -> bool {
        let is_match = |source: &SourceName| match source {
            SourceName::Exactly(name) => name == measurement,
            SourceName::Pattern(pattern) => pattern.is_match(measurement) && !is_view(),
        };
        self.sources.iter().any(is_match)
    }

    /// The name of the view of a measurement that it reads.
    ///
    /// # Errors
    /// If it has no target.
    pub fn view_name(&self, measurement: &str) -> Result<String, QueryError> {
        Ok(self.part(measurement)?.view_name())
    }

    fn part<'a>(&'a self, source: &'a str) -> Result<Part<'a>, QueryError> {
        let (query, target) = (&self.query, target_of(&self.query)?);
        Ok(Part { query, target, into: None, source, is_only: is_of_one(query) })
    }

    /// Takes a measurement in, or columns of it that came since, by the rights that the query's maker had.
    ///
    /// `of` is one of the query's views, `known` that of the measurement if there is one.
    ///
    /// # Errors
    /// If the measurement cannot be one of the query: the text says why.
    pub fn extend(
        &self,
        session: &dyn Session,
        measurement: &str,
        (of, known): (&View, Option<&View>),
    ) -> Result<Extension, QueryError> {
        if session.table(&self.query.database, measurement)?.is_none() {
            return Ok(Extension::WithoutNames);
        }
        let Some(mut definition) = self.definition(session, measurement)? else {
            let may_get_names = self.query.select.condition.is_some();
            return Ok(if may_get_names { Extension::WithoutNames } else { Extension::WithoutFields });
        };
        let own = known.filter(|known| known.definition.statement == of.definition.statement);
        if own.is_some_and(|own| !own.definition.lacks_columns_of(&definition)) {
            return Ok(Extension::Unchanged);
        }
        if own.is_none() && target_of(&self.query)?.measurement.is_some() {
            return Err(QueryError::Invalid(format!("continuous query {}: {OF_SEVERAL}", self.query.name)));
        }
        let of = own.unwrap_or(of);
        definition.narrow_by(&self.rights(session, of)?);
        let is_changed = session.extend_view(of, definition)?;
        Ok(if is_changed { Extension::Extended } else { Extension::Unchanged })
    }

    fn definition(&self, session: &dyn Session, measurement: &str) -> Result<Option<ViewDefinition>, QueryError> {
        let part = self.part(measurement)?;
        let into = target_database(session, &self.query.database, part.target)?;
        Part { into, ..part }.definition(session)
    }

    /// What of a view's rows its maker's rights select, beside the query itself.
    fn rights(&self, session: &dyn Session, of: &View) -> Result<Vec<Selector>, QueryError> {
        let stored = of.definition.scan().map(|scan| scan.selectors.as_slice()).unwrap_or_default();
        if self.query.select.condition.is_none() || stored.is_empty() {
            return Ok(stored.to_vec());
        }
        let own = self.definition(session, of.definition.source())?;
        let own = own.as_ref().and_then(|own| own.scan()).map(|scan| scan.selectors.as_slice());
        let rights = own.and_then(|own| stored.strip_prefix(own));
        rights.map(<[Selector]>::to_vec).ok_or_else(|| {
            QueryError::Invalid(format!(
                "continuous query {}: which series its maker may read is not known any more, as {:?} has other tags now: drop it and make it again",
                self.query.name,
                of.definition.source()
            ))
        })
    }

    /// Takes in all measurements and columns that came since.
    pub(super) fn extend_all(&self, session: &dyn Session, views: &[Arc<View>]) -> Result<(), QueryError> {
        let Some(first) = views.first() else { return Ok(()) };
        let by_name: BTreeMap<&str, &View> =
            views.iter().map(|view| (view.definition.name.as_str(), &**view)).collect();
        let mut left_out: Vec<String> = Vec::new();
        for measurement in sources(session, &self.query)? {
            let known = by_name.get(self.view_name(&measurement)?.as_str()).copied();
            match self.extend(session, &measurement, (first, known)) {
                Ok(_) => {}
                Err(QueryError::Invalid(reason)) => left_out.push(format!("{measurement:?}: {reason}")),
                Err(error) => return Err(error),
            }
        }
        match left_out.first() {
            None => Ok(()),
            // Of one measurement that is not what it was the query stays as it is.
            Some(_) if is_of_one(&self.query) => Ok(()),
            Some(reason) => Err(QueryError::Invalid(format!(
                "the continuous query {} has the others, but {} of its measurements cannot be taken in: {reason}",
                self.query.name,
                left_out.len()
            ))),
        }
    }
}

/// Returns whether an expression has `*` or a pattern of fields.
fn has_pattern(expr: &Expr) -> bool {
    match expr {
        Expr::Wildcard(_) | Expr::Pattern(_) => true,
        other => other.children().into_iter().any(has_pattern),
    }
}
