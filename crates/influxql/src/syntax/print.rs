//! Prints trees as text that parses to the same tree.

use std::fmt::{self, Display, Formatter, Write};

use super::ast::{
    Cast, ContinuousQuery, Counted, Dimension, Expr, Field, Fill, Limits, Measurement, Named, PolicyOptions, Select,
    Show, ShowTarget, Source, Statement, SubscriptionStatement, Target, WithKey,
};
use super::duration;
use super::parse::is_keyword;

/// An expression as text.
pub(crate) fn expr_text(expr: &Expr) -> String {
    expr.to_string()
}

/// A name, between quotes if it has to be.
fn name(name: &str) -> String {
    let is_start = |character: char| character.is_ascii_alphabetic() || character == '_';
    let is_plain = name.starts_with(is_start)
        && name.chars().all(|character| is_start(character) || character.is_ascii_digit())
        && !is_keyword(name);
    if is_plain {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n"))
}

fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'").replace('\n', "\\n"))
}

fn pattern(pattern: &str) -> String {
    format!("/{}/", pattern.replace('/', r"\/"))
}

/// Writes items with something between them.
fn join<T: Display>(out: &mut Formatter<'_>, items: &[T], between: &str) -> fmt::Result {
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            out.write_str(between)?;
        }
        write!(out, "{item}")?;
    }
    Ok(())
}

/// Writes ` WORD items`, if there are any.
fn clause<T: Display>(out: &mut Formatter<'_>, word: &str, items: &[T]) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    write!(out, " {word} ")?;
    join(out, items, ", ")
}

fn condition(out: &mut Formatter<'_>, condition: Option<&Expr>) -> fmt::Result {
    condition.map_or(Ok(()), |condition| write!(out, " WHERE {condition}"))
}

/// A float, with a point, so that it stays one.
fn number(value: f64) -> String {
    let text = format!("{value}");
    if text.contains('.') { text } else { format!("{text}.0") }
}

impl Display for Expr {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reference { name: of, cast } => write!(out, "{}{}", name(of), cast_text(*cast)),
            Self::Number(value) => out.write_str(&number(*value)),
            Self::Integer(value) => write!(out, "{value}"),
            Self::Unsigned(value) => write!(out, "{value}"),
            Self::Text(value) => out.write_str(&text(value)),
            Self::Boolean(value) => write!(out, "{value}"),
            Self::Duration(duration_ns) => out.write_str(&duration::text(*duration_ns)),
            Self::Pattern(of) => out.write_str(&pattern(of)),
            Self::Wildcard(cast) => write!(out, "*{}", cast_text(*cast)),
            Self::Call { name, arguments } => {
                write!(out, "{name}(")?;
                join(out, arguments, ", ")?;
                out.write_char(')')
            }
            Self::Binary { operator, left, right } => write!(out, "{left} {} {right}", operator.written()),
            Self::All(operands) => join(out, operands, " AND "),
            Self::Any(operands) => join(out, operands, " OR "),
            Self::Parentheses(inner) => write!(out, "({inner})"),
        }
    }
}

fn cast_text(cast: Option<Cast>) -> String {
    let named = Cast::ALL.iter().find(|(_, known)| cast == Some(*known));
    named.map_or_else(String::new, |(name, _)| format!("::{name}"))
}

impl Display for Field {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.expr)?;
        self.alias.as_ref().map_or(Ok(()), |alias| write!(out, " AS {}", name(alias)))
    }
}

impl Display for Named {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(of) => out.write_str(&name(of)),
            Self::Pattern(of) => out.write_str(&pattern(of)),
        }
    }
}

/// The database and policy before a measurement's name.
fn path(database: Option<&String>, policy: Option<&String>) -> String {
    let policy_text = policy.map_or_else(String::new, |policy| name(policy));
    match (database, policy) {
        (None, None) => String::new(),
        (None, Some(_)) => format!("{policy_text}."),
        (Some(database), _) => format!("{}.{policy_text}.", name(database)),
    }
}

impl Display for Measurement {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", path(self.database.as_ref(), self.policy.as_ref()), self.name)
    }
}

impl Display for Target {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&path(self.database.as_ref(), self.policy.as_ref()))?;
        let to = self.measurement.as_ref().map_or_else(|| ":MEASUREMENT".to_owned(), |to| name(to));
        out.write_str(&to)
    }
}

impl Display for Source {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measurement(measurement) => write!(out, "{measurement}"),
            Self::Subquery(select) => write!(out, "({select})"),
        }
    }
}

impl Display for Dimension {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time { width_ns, offset: None } => write!(out, "time({})", duration::text(*width_ns)),
            Self::Time { width_ns, offset: Some(offset) } => {
                write!(out, "time({}, {offset})", duration::text(*width_ns))
            }
            Self::Tag(of) => out.write_str(&name(of)),
            Self::Pattern(of) => out.write_str(&pattern(of)),
            Self::Wildcard => out.write_char('*'),
        }
    }
}

impl Display for Fill {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => out.write_str("null"),
            Self::None => out.write_str("none"),
            Self::Previous => out.write_str("previous"),
            Self::Linear => out.write_str("linear"),
            Self::Integer(value) => write!(out, "{value}"),
            Self::Number(value) => out.write_str(&number(*value)),
        }
    }
}

impl Display for Limits {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let named = [
            ("LIMIT", self.rows),
            ("OFFSET", self.rows_skipped),
            ("SLIMIT", self.series),
            ("SOFFSET", self.series_skipped),
        ];
        named.iter().filter(|(_, value)| *value > 0).try_for_each(|(word, value)| write!(out, " {word} {value}"))
    }
}

impl Display for Select {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("SELECT ")?;
        join(out, &self.fields, ", ")?;
        if let Some(into) = &self.into {
            write!(out, " INTO {into}")?;
        }
        clause(out, "FROM", &self.sources)?;
        condition(out, self.condition.as_ref())?;
        clause(out, "GROUP BY", &self.dimensions)?;
        if let Some(fill) = self.fill {
            write!(out, " fill({fill})")?;
        }
        if let Some(descending) = self.descending {
            write!(out, " ORDER BY time {}", if descending { "DESC" } else { "ASC" })?;
        }
        write!(out, "{}", self.limits)?;
        self.zone.as_ref().map_or(Ok(()), |zone| write!(out, " TZ({})", text(zone)))
    }
}

impl Display for WithKey {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(names) if names.len() == 1 => write!(out, "= {}", name(names.first().map_or("", String::as_str))),
            Self::In(names) => {
                let quoted: Vec<String> = names.iter().map(|of| name(of)).collect();
                write!(out, "IN ({})", quoted.join(", "))
            }
            Self::Not(of) => write!(out, "!= {}", name(of)),
            Self::Matches(of) => write!(out, "=~ {}", pattern(of)),
            Self::MatchesNot(of) => write!(out, "!~ {}", pattern(of)),
        }
    }
}

impl ShowTarget {
    fn words(self) -> String {
        let words = match self {
            Self::Databases => "DATABASES",
            Self::Measurements => "MEASUREMENTS",
            Self::Series => "SERIES",
            Self::TagKeys => "TAG KEYS",
            Self::TagValues => "TAG VALUES",
            Self::FieldKeys => "FIELD KEYS",
            Self::Policies => "RETENTION POLICIES",
            Self::Queries => "QUERIES",
            Self::Shards => "SHARDS",
            Self::ShardGroups => "SHARD GROUPS",
            Self::Subscriptions => "SUBSCRIPTIONS",
            Self::ContinuousQueries => "CONTINUOUS QUERIES",
            Self::Stats => "STATS",
            Self::Diagnostics => "DIAGNOSTICS",
            Self::Cardinality { counted, exact } => {
                let words = match counted {
                    Counted::Series => "SERIES",
                    Counted::Measurements => "MEASUREMENT",
                    Counted::TagKeys => "TAG KEY",
                    Counted::TagValues => "TAG VALUES",
                    Counted::FieldKeys => "FIELD KEY",
                };
                return format!("{words}{} CARDINALITY", if exact { " EXACT" } else { "" });
            }
        };
        words.to_owned()
    }
}

impl Display for Show {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "SHOW {}", self.what.words())?;
        if let Some(module) = &self.module {
            write!(out, " FOR {}", text(module))?;
        }
        if let Some(database) = &self.database {
            write!(out, " ON {}", name(database))?;
        }
        clause(out, "FROM", &self.sources)?;
        match &self.with_measurement {
            None => {}
            Some(Named::Exactly(of)) => write!(out, " WITH MEASUREMENT = {}", name(of))?,
            Some(Named::Pattern(of)) => write!(out, " WITH MEASUREMENT =~ {}", pattern(of))?,
        }
        if let Some(key) = &self.with_key {
            write!(out, " WITH KEY {key}")?;
        }
        condition(out, self.condition.as_ref())?;
        clause(out, "GROUP BY", &self.dimensions)?;
        out.write_str(if self.descending { " ORDER BY time DESC" } else { "" })?;
        write!(out, "{}", self.limits)
    }
}

impl Display for PolicyOptions {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if let Some(duration_ns) = self.duration_ns {
            let length = if duration_ns == 0 { "INF".to_owned() } else { duration::text(duration_ns) };
            write!(out, " DURATION {length}")?;
        }
        if let Some(replication) = self.replication {
            write!(out, " REPLICATION {replication}")?;
        }
        if let Some(duration_ns) = self.shard_duration_ns {
            write!(out, " SHARD DURATION {}", duration::text(duration_ns))?;
        }
        out.write_str(if self.default { " DEFAULT" } else { "" })?;
        self.name.as_ref().map_or(Ok(()), |of| write!(out, " NAME {}", name(of)))
    }
}

impl Display for ContinuousQuery {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "CREATE CONTINUOUS QUERY {} ON {}", name(&self.name), name(&self.database))?;
        if self.every_ns.is_some() || self.for_ns.is_some() {
            out.write_str(" RESAMPLE")?;
        }
        if let Some(every_ns) = self.every_ns {
            write!(out, " EVERY {}", duration::text(every_ns))?;
        }
        if let Some(for_ns) = self.for_ns {
            write!(out, " FOR {}", duration::text(for_ns))?;
        }
        write!(out, " BEGIN {} END", self.select)
    }
}

impl Display for Statement {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Select(select) => write!(out, "{select}"),
            Self::Explain { analyze, select } => {
                write!(out, "EXPLAIN {}{select}", if *analyze { "ANALYZE " } else { "" })
            }
            Self::Show(show) => write!(out, "{show}"),
            Self::CreateDatabase { name: of, policy } => {
                write!(out, "CREATE DATABASE {}", name(of))?;
                policy.as_ref().map_or(Ok(()), |policy| write!(out, " WITH{policy}"))
            }
            Self::DropDatabase(of) => write!(out, "DROP DATABASE {}", name(of)),
            Self::CreatePolicy { name: of, database, options } => {
                write!(out, "CREATE RETENTION POLICY {} ON {}{options}", name(of), name(database))
            }
            Self::AlterPolicy { name: of, database, options } => {
                write!(out, "ALTER RETENTION POLICY {} ON {}{options}", name(of), name(database))
            }
            Self::DropPolicy { name: of, database } => {
                write!(out, "DROP RETENTION POLICY {} ON {}", name(of), name(database))
            }
            Self::Delete { sources, condition: of } => {
                out.write_str("DELETE")?;
                clause(out, "FROM", sources)?;
                condition(out, of.as_ref())
            }
            Self::DropSeries { sources, condition: of } => {
                out.write_str("DROP SERIES")?;
                clause(out, "FROM", sources)?;
                condition(out, of.as_ref())
            }
            Self::DropMeasurement(of) => write!(out, "DROP MEASUREMENT {}", name(of)),
            Self::CreateContinuousQuery(query) => write!(out, "{query}"),
            Self::DropContinuousQuery { name: of, database } => {
                write!(out, "DROP CONTINUOUS QUERY {} ON {}", name(of), name(database))
            }
            Self::KillQuery(number) => write!(out, "KILL QUERY {number}"),
            Self::Refused(words) => out.write_str(words),
            Self::Account(statement) => write!(out, "{statement}"),
            Self::Subscription(statement) => write!(out, "{statement}"),
        }
    }
}

impl Display for SubscriptionStatement {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { name: of, database, policy, sends_to_all, destinations } => {
                let mode = if *sends_to_all { "ALL" } else { "ANY" };
                write!(
                    out,
                    "CREATE SUBSCRIPTION {} ON {}.{} DESTINATIONS {mode} ",
                    name(of),
                    name(database),
                    name(policy)
                )?;
                join(out, &destinations.iter().map(|destination| text(destination)).collect::<Vec<_>>(), ", ")
            }
            Self::Drop { name: of, database, policy } => {
                write!(out, "DROP SUBSCRIPTION {} ON {}.{}", name(of), name(database), name(policy))
            }
            Self::Show => out.write_str("SHOW SUBSCRIPTIONS"),
        }
    }
}
