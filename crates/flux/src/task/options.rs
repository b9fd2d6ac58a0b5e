//! `option task = {name: "…", every: 1h, offset: 5m}`: what a task is called and when it runs.

use std::fmt::Write;

use query::Interval;

use crate::syntax::ast::{Expr, ExprKind, Record, Statement};
use crate::syntax::lex::{TokenKind, tokens};
use crate::syntax::{FluxError, Position};

/// The name of the option.
pub(super) const TASK: &str = "task";

/// Options of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOptions {
    /// Its name.
    pub name: String,
    /// How often it runs, as it is written.
    pub every: Option<String>,
    /// How often it runs, as `cron` says it.
    pub cron: Option<String>,
    /// How long after a window's end it runs, as it is written.
    pub offset: Option<String>,
    /// The time from one run to the next.
    pub period: Interval,
    /// The offset in nanoseconds.
    pub offset_ns: i64,
    /// Options that say how runs are tried again and share a server, which mean nothing here.
    others: Vec<(String, i64)>,
}

/// Options in place of others; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskOptionChanges {
    /// Its name.
    pub name: Option<String>,
    /// How often it runs.
    pub every: Option<String>,
    /// How often it runs, as `cron` says it.
    pub cron: Option<String>,
    /// How long after a window's end it runs.
    pub offset: Option<String>,
}

impl TaskOptions {
    pub(super) fn of_statements(statements: &[Statement]) -> Result<Self, FluxError> {
        let is_task = |statement: &&Statement| matches!(statement, Statement::Assign(name, _) if name == TASK);
        let mut found = statements.iter().filter(is_task);
        let (Some(Statement::Assign(_, expression)), None) = (found.next(), found.next()) else {
            let message = "a task has one option task = {name: \"…\", every: 1h}";
            return Err(FluxError::new(Position { line: 1, column: 1 }, message));
        };
        let ExprKind::Record(Record { with: None, members }) = &expression.kind else {
            return Err(FluxError::new(expression.at, "option task is a record: {name: \"…\", every: 1h}"));
        };
        Self::of_members(expression.at, members)
    }

    fn of_members(at: Position, members: &[(String, Expr)]) -> Result<Self, FluxError> {
        let (mut name, mut every, mut cron, mut offset, mut others) = (None, None, None, None, Vec::new());
        for (member, value) in members {
            let wrong = |kind: &str| FluxError::new(value.at, format!("option task: {member} is {kind}"));
            match (member.as_str(), &value.kind) {
                ("name", ExprKind::Text(text)) => name = Some(text.clone()),
                ("cron", ExprKind::Text(text)) => cron = Some(text.clone()),
                ("every", ExprKind::Duration(duration)) => every = Some(*duration),
                ("offset", ExprKind::Duration(duration)) => offset = Some(*duration),
                ("concurrency" | "retry", ExprKind::Integer(count)) => others.push((member.clone(), *count)),
                ("name" | "cron", _) => return Err(wrong("a text")),
                ("every" | "offset", _) => return Err(wrong("a duration such as 1h")),
                ("concurrency" | "retry", _) => return Err(wrong("an int")),
                _ => {
                    let known = "there are name, every, cron and offset";
                    return Err(FluxError::new(value.at, format!("option task: {member} is not known: {known}")));
                }
            }
        }
        let error = |message: String| FluxError::new(at, format!("option task: {message}"));
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| error("name is missing".to_owned()))?;
        let period = match (every, &cron) {
            (Some(every), None) if every.approximate_ns() >= 1_000_000_000 => every,
            (Some(_), None) => return Err(error("every is a second at least".to_owned())),
            (None, Some(cron)) => cron_period(cron).map_err(error)?,
            _ => return Err(error("it has either every or cron".to_owned())),
        };
        let offset_ns = match offset {
            None => 0,
            Some(Interval { months: 0, days: 0, ns }) if ns >= 0 => ns,
            Some(_) => return Err(error("offset is a duration of weeks or less, not before the time".to_owned())),
        };
        let every = every.map(duration_text);
        Ok(Self { name, every, cron, offset: offset.map(duration_text), period, offset_ns, others })
    }

    /// The record of the option.
    fn text(&self) -> String {
        let mut members = vec![format!("name: {}", text_literal(&self.name))];
        members.extend(self.every.iter().map(|every| format!("every: {every}")));
        members.extend(self.cron.iter().map(|cron| format!("cron: {}", text_literal(cron))));
        members.extend(self.offset.iter().map(|offset| format!("offset: {offset}")));
        members.extend(self.others.iter().map(|(name, count)| format!("{name}: {count}")));
        format!("{{{}}}", members.join(", "))
    }

    /// A script with some of its options changed, given those that it has.
    ///
    /// # Errors
    /// If the script cannot be read.
    pub fn changed(&self, script: &str, changes: &TaskOptionChanges) -> Result<String, FluxError> {
        let mut new = self.clone();
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(name) = given(&changes.name) {
            new.name = name;
        }
        // One takes the place of the other.
        match (given(&changes.every), given(&changes.cron)) {
            (Some(every), _) if Some(&every) != self.every.as_ref() => (new.every, new.cron) = (Some(every), None),
            (_, Some(cron)) if Some(&cron) != self.cron.as_ref() => (new.every, new.cron) = (None, Some(cron)),
            _ => {}
        }
        if let Some(offset) = given(&changes.offset) {
            new.offset = Some(offset);
        }
        if new == *self {
            return Ok(script.to_owned());
        }
        let (start, end) = record_bytes(script)?;
        let part = |range: std::ops::Range<usize>| script.get(range).unwrap_or_default();
        Ok(format!("{}{}{}", part(0..start), new.text(), part(end..script.len())))
    }
}

/// Where the option's record is, from its first brace to after its last one.
fn record_bytes(script: &str) -> Result<(usize, usize), FluxError> {
    let tokens = tokens(script)?;
    let is_word = |place: usize, word: &str| {
        tokens.get(place).is_some_and(|token| matches!(&token.kind, TokenKind::Word(known) if known == word))
    };
    let symbol = |place: usize| match tokens.get(place).map(|token| &token.kind) {
        Some(TokenKind::Symbol(symbol)) => *symbol,
        _ => "",
    };
    let begins = |place: &usize| {
        is_word(*place, "option") && is_word(place + 1, TASK) && symbol(place + 2) == "=" && symbol(place + 3) == "{"
    };
    let missing = || FluxError::new(Position { line: 1, column: 1 }, "there is no option task");
    let open = (0..tokens.len()).find(begins).ok_or_else(missing)? + 3;
    let mut depth = 0;
    for place in open..tokens.len() {
        depth += match symbol(place) {
            "{" => 1,
            "}" => -1,
            _ => 0,
        };
        if depth == 0 {
            let at = |place: usize| tokens.get(place).map_or(0, |token| byte_of(script, token.at));
            return Ok((at(open), at(place) + 1));
        }
    }
    Err(missing())
}

/// The byte of a place in a text.
fn byte_of(text: &str, at: Position) -> usize {
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if number + 1 == at.line {
            return start + line.char_indices().nth(at.column - 1).map_or(line.len(), |(byte, _)| byte);
        }
        start += line.len();
    }
    text.len()
}

fn text_literal(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace("${", "\\${"))
}

/// A duration as Flux writes it.
fn duration_text(duration: Interval) -> String {
    const UNITS: [(&str, i64); 6] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("ns", 1),
    ];
    // Writing into a string does not fail.
    let mut text = String::new();
    for (unit, count) in [("y", duration.months / 12), ("mo", duration.months % 12), ("d", duration.days)] {
        if count != 0 {
            let _ = write!(text, "{count}{unit}");
        }
    }
    let mut rest = duration.ns;
    for (unit, ns) in UNITS {
        if rest / ns != 0 {
            let _ = write!(text, "{}{unit}", rest / ns);
            rest %= ns;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// The time from one run to the next of a schedule whose runs are equally far apart.
fn cron_period(text: &str) -> Result<Interval, String> {
    const MINUTE_NS: i64 = 60_000_000_000;
    let refused = || {
        format!(
            "cron {text:?} is not supported: it names whole windows, as \"0 * * * *\", \"*/10 * * * *\", \"0 */6 * * *\", \"0 0 * * *\" \
             and \"0 0 1 * *\" do; otherwise say every and offset"
        )
    };
    let fields: Vec<&str> = match text.trim() {
        "@hourly" => vec!["0", "*", "*", "*", "*"],
        "@daily" | "@midnight" => vec!["0", "0", "*", "*", "*"],
        "@monthly" => vec!["0", "0", "1", "*", "*"],
        other => other.split_whitespace().collect(),
    };
    // Steps that do not divide what they are steps of are not equally far apart.
    let step = |field: &str, of: i64| match field {
        "*" => Some(1),
        _ => field.strip_prefix("*/")?.parse().ok().filter(|step| *step > 0 && of % step == 0),
    };
    match fields.as_slice() {
        ["0", "0", "1", "*", "*"] => Ok(Interval { months: 1, days: 0, ns: 0 }),
        ["0", "0", "*", "*", "*"] => Ok(Interval::of_ns(24 * 60 * MINUTE_NS)),
        ["0", hour, "*", "*", "*"] => {
            step(hour, 24).map(|hours| Interval::of_ns(hours * 60 * MINUTE_NS)).ok_or_else(refused)
        }
        [minute, "*", "*", "*", "*"] => {
            step(minute, 60).map(|minutes| Interval::of_ns(minutes * MINUTE_NS)).ok_or_else(refused)
        }
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::parse::parse;

    fn options(text: &str) -> Result<TaskOptions, String> {
        let statements = parse(text).map_err(|error| error.to_string())?;
        TaskOptions::of_statements(&statements).map_err(|error| error.to_string())
    }

    #[test]
    fn schedules_of_equal_periods_are_read() {
        let minutes = |cron: &str| {
            options(&format!("option task = {{name: \"t\", cron: \"{cron}\"}}"))
                .map(|task| task.period.ns / 60_000_000_000)
        };
        for (cron, expected) in [("0 * * * *", 60), ("* * * * *", 1), ("*/15 * * * *", 15), ("0 */6 * * *", 360)] {
            assert_eq!(minutes(cron), Ok(expected), "{cron}");
        }
        assert_eq!(minutes("@daily"), Ok(1440));
        for wrong in ["*/7 * * * *", "5 * * * *", "0 8 * * *", "0 0 * * 1", "0 *", "0 */0 * * *", ""] {
            assert!(minutes(wrong).unwrap_err().contains("is not supported"), "{wrong}");
        }
    }

    #[test]
    fn options_that_are_wrong_are_told() {
        for (record, expected) in [
            ("{every: 1h}", "name is missing"),
            ("{name: \"a\"}", "either every or cron"),
            ("{name: \"a\", every: 1h, cron: \"0 * * * *\"}", "either every or cron"),
            ("{name: \"a\", every: 1ms}", "a second at least"),
            ("{name: \"a\", every: \"1h\"}", "every is a duration"),
            ("{name: \"a\", every: 1h, offset: 1mo}", "offset is a duration"),
            ("{name: \"a\", every: 1h, when: 1h}", "when is not known"),
        ] {
            let told = options(&format!("option task = {record}")).unwrap_err();
            assert!(told.contains(expected), "{record}: {told}");
        }
        assert!(options("a = 1").unwrap_err().contains("one option task"));
    }

    #[test]
    fn options_are_changed_in_their_script() {
        let script =
            "// é {\noption task = { name: \"a}b\", every: 1h30m, // each\n offset: 5m }\nfrom(bucket: \"é\") |> x()";
        let known = options(script).unwrap();
        assert_eq!((known.every.as_deref(), known.offset_ns), (Some("1h30m"), 300_000_000_000));
        let same = TaskOptionChanges {
            every: Some("1h30m".to_owned()),
            name: Some("a}b".to_owned()),
            ..TaskOptionChanges::default()
        };
        assert_eq!(known.changed(script, &same).unwrap(), script);
        let wanted = TaskOptionChanges {
            name: Some("q\"\\".to_owned()),
            cron: Some("0 * * * *".to_owned()),
            ..TaskOptionChanges::default()
        };
        let changed = known.changed(script, &wanted).unwrap();
        assert!(
            changed.starts_with("// é {\noption task = {name:") && changed.ends_with("}\nfrom(bucket: \"é\") |> x()")
        );
        let read = options(&changed).unwrap();
        assert_eq!((read.name.as_str(), read.cron.as_deref(), read.every), ("q\"\\", Some("0 * * * *"), None));
        assert_eq!(read.offset.as_deref(), Some("5m"));
    }
}
