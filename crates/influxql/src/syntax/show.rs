//! `SHOW`.

use super::ast::{Counted, Measurement, Named, Show, ShowTarget, WithKey};
use super::parse::{Parsed, Parser};

impl Parser<'_> {
    pub(super) fn show(&mut self) -> Parsed<Show> {
        let what = self.show_target()?;
        let mut show = Show {
            what,
            module: None,
            database: None,
            sources: Vec::new(),
            with_measurement: None,
            with_key: None,
            condition: None,
            dimensions: Vec::new(),
            descending: false,
            limits: super::ast::Limits::default(),
        };
        if what == ShowTarget::Stats || what == ShowTarget::Diagnostics {
            if self.accept_word("for") {
                show.module = Some(self.text_literal()?);
            }
            return Ok(show);
        }
        if self.accept_word("on") {
            show.database = Some(self.name()?);
        }
        show.sources = self.sources()?;
        if self.accept_words(&["with", "measurement"]) {
            show.with_measurement = Some(self.with_measurement()?);
        }
        if matches!(what, ShowTarget::TagValues | ShowTarget::Cardinality { counted: Counted::TagValues, .. }) {
            self.expect_word("with")?;
            self.expect_word("key")?;
            show.with_key = Some(self.with_key()?);
        }
        show.condition = self.condition()?;
        show.dimensions = self.dimensions()?;
        show.descending = self.order()? == Some(true);
        show.limits = self.limits()?;
        Ok(show)
    }

    fn show_target(&mut self) -> Parsed<ShowTarget> {
        let named: [(&[&str], ShowTarget); 13] = [
            (&["databases"], ShowTarget::Databases),
            (&["tag", "keys"], ShowTarget::TagKeys),
            (&["tag", "values"], ShowTarget::TagValues),
            (&["field", "keys"], ShowTarget::FieldKeys),
            (&["retention", "policies"], ShowTarget::Policies),
            (&["queries"], ShowTarget::Queries),
            (&["shards"], ShowTarget::Shards),
            (&["shard", "groups"], ShowTarget::ShardGroups),
            (&["subscriptions"], ShowTarget::Subscriptions),
            (&["continuous", "queries"], ShowTarget::ContinuousQueries),
            (&["stats"], ShowTarget::Stats),
            (&["diagnostics"], ShowTarget::Diagnostics),
            (&["measurements"], ShowTarget::Measurements),
        ];
        if let Some(counted) = self.cardinality() {
            return Ok(counted);
        }
        for (words, what) in named {
            if self.accept_words(words) {
                return Ok(what);
            }
        }
        if self.accept_word("series") {
            return Ok(ShowTarget::Series);
        }
        Err(self.unexpected(
            "CONTINUOUS, DATABASES, DIAGNOSTICS, FIELD, GRANTS, MEASUREMENT, MEASUREMENTS, QUERIES, RETENTION, SERIES, SHARD, SHARDS, \
             STATS, SUBSCRIPTIONS, TAG, USERS",
        ))
    }

    fn cardinality(&mut self) -> Option<ShowTarget> {
        let named: [(&[&str], Counted); 5] = [
            (&["series"], Counted::Series),
            (&["measurement"], Counted::Measurements),
            (&["tag", "key"], Counted::TagKeys),
            (&["tag", "values"], Counted::TagValues),
            (&["field", "key"], Counted::FieldKeys),
        ];
        for (words, counted) in named {
            if self.accept_words(&[words, &["exact", "cardinality"]].concat()) {
                return Some(ShowTarget::Cardinality { counted, exact: true });
            }
            if self.accept_words(&[words, &["cardinality"]].concat()) {
                return Some(ShowTarget::Cardinality { counted, exact: false });
            }
        }
        None
    }

    fn with_measurement(&mut self) -> Parsed<Named> {
        if self.accept_mark("=~") {
            let pattern = self.accept_pattern()?;
            return pattern.map(Named::Pattern).ok_or_else(|| self.unexpected("regex"));
        }
        self.expect_mark("=")?;
        let Measurement { name, .. } = self.measurement()?;
        Ok(name)
    }

    fn with_key(&mut self) -> Parsed<WithKey> {
        if self.accept_word("in") {
            self.expect_mark("(")?;
            let names = self.list(Self::name)?;
            self.expect_mark(")")?;
            return Ok(WithKey::In(names));
        }
        for (mark, make) in [("=~", WithKey::Matches as fn(String) -> WithKey), ("!~", WithKey::MatchesNot)] {
            if self.accept_mark(mark) {
                let pattern = self.accept_pattern()?;
                return pattern.map(make).ok_or_else(|| self.unexpected("regex"));
            }
        }
        if self.accept_mark("!=") {
            return self.name().map(WithKey::Not);
        }
        self.expect_mark("=")?;
        self.name().map(|name| WithKey::In(vec![name]))
    }
}
