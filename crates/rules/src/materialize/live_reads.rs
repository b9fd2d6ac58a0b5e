//! What rules read whose past is left alone: at each evaluation what is there, in alerting rules by their templates, too.

use db::Db;

use super::reads::RuleReads;
use crate::file::{RuleConfig, RuleKind};
use crate::group::Rule;

/// How far a rule looks back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookBack {
    /// It does not read the metric.
    Not,
    /// From so many milliseconds after its evaluation on: mostly less than 0.
    From(i64),
    /// How far is not known.
    Unknown,
}

impl LookBack {
    fn hull(self, other: Self) -> Self {
        match (self, other) {
            (Self::Not, one) | (one, Self::Not) => one,
            (Self::From(one), Self::From(other)) => Self::From(one.min(other)),
            _ => Self::Unknown,
        }
    }

    fn from_reads(reads: Option<&RuleReads>, metric: &str) -> Self {
        match reads {
            None => Self::Unknown,
            Some(reads) if reads.reads_unnamed_series() => Self::Unknown,
            Some(reads) if !reads.metric(metric) => Self::Not,
            Some(reads) => reads.interval().map_or(Self::Unknown, |interval| Self::From(interval.first_ms)),
        }
    }
}

/// How far a rule looks back at a metric.
pub(super) fn look_back(rule: &Rule, metric: &str, db: &Db) -> LookBack {
    let of_expression = LookBack::from_reads(rule.reads(db).as_deref(), metric);
    templates(&rule.config).fold(of_expression, |known, text| known.hull(of_template(text, metric, db)))
}

/// The texts of an alerting rule that may query.
fn templates(config: &RuleConfig) -> impl Iterator<Item = &String> {
    let alert = match &config.kind {
        RuleKind::Alert(alert) => Some(alert),
        RuleKind::Record(_) => None,
    };
    alert.into_iter().flat_map(|alert| alert.annotations.values().chain(config.labels.values()))
}

/// How far the queries of a template look back: of one whose text is not there as it is nothing is known.
fn of_template(text: &str, metric: &str, db: &Db) -> LookBack {
    let mut known = LookBack::Not;
    if !text.contains("{{") {
        return known;
    }
    for (at, name) in text.match_indices("query") {
        // A word that has it in its middle is none.
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        if before.is_some_and(|before| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = text.get(at + name.len()..).unwrap_or_default();
        let of_query =
            literal(rest.trim_start()).map(|expr| LookBack::from_reads(RuleReads::new(&expr, db).as_ref(), metric));
        known = known.hull(of_query.unwrap_or(LookBack::Unknown));
    }
    known
}

/// The text that stands in quotation marks at the beginning of another.
fn literal(text: &str) -> Option<String> {
    if let Some(raw) = text.strip_prefix('`') {
        return raw.split_once('`').map(|(inner, _)| inner.to_owned());
    }
    let mut rest = text.strip_prefix('"')?.chars();
    let mut inner = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(inner),
            '\\' => match rest.next()? {
                escaped @ ('"' | '\\') => inner.push(escaped),
                // Others do not occur where names are told apart.
                _ => return None,
            },
            other => inner.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use db::DbOptions;
    use platform::sim::Simulation;

    use super::*;

    #[test]
    fn templates_look_back_as_far_as_their_queries() {
        let db = Db::open(Simulation::new(1).platform(), DbOptions::new("/data")).unwrap();
        for (text, expected) in [
            ("plain query", LookBack::Not),
            ("{{ .Value }} of m", LookBack::Not),
            ("{{ query \"n{a=\\\"m\\\"}\" | first | value }}", LookBack::Not),
            ("{{ with query `sum(rate(m[1h]))` }}x{{ end }}", LookBack::From(-3_900_000)),
            ("{{ query \"m offset 2h\" }}", LookBack::From(-7_500_000)),
            ("{{ query `m` }}{{ query `m[1h:1m]` }}", LookBack::From(-3_900_000)),
            ("{{ query `{job=\"x\"}` }}", LookBack::From(-300_000)),
            ("{{ query `m @ 0` }}", LookBack::Unknown),
            ("{{ query (printf \"%s\" .Labels.a) }}", LookBack::Unknown),
            ("{{ \"m\" | query }}", LookBack::Unknown),
            ("{{ query \"\\u006d\" }}", LookBack::Unknown),
            ("{{ .Labels.my_query }}", LookBack::Not),
            ("{{ query `n` }}", LookBack::Not),
            ("{{ query `sum(info(n))` }}", LookBack::Unknown),
        ] {
            let found = of_template(text, "m", &db);
            let is_near = match (found, expected) {
                (LookBack::From(found), LookBack::From(expected)) => (found - expected).abs() <= 60_000,
                (found, expected) => found == expected,
            };
            assert!(is_near, "{text}: {found:?}");
        }
    }
}
