//! Random statements in the SQL that both speak.

use std::fmt::Write;

use super::data::Random;

/// A statement, and whether the order of its rows is said in full.
pub(crate) struct Statement {
    pub(crate) text: String,
    pub(crate) is_ordered: bool,
}

impl Statement {
    /// The same in the peer's words.
    pub(crate) fn for_peer(&self) -> String {
        let renamed = [
            ("first(", "arg_min("),
            ("last(", "arg_max("),
            ("date_bin(", "time_bucket("),
            ("ASOF JOIN", "ASOF LEFT JOIN"),
        ];
        renamed.iter().fold(self.text.clone(), |text, (ours, theirs)| text.replace(ours, theirs))
    }
}

const NUMBERS: [&str; 3] = ["a", "b", "n"];
const AGGREGATES: [&str; 8] = ["min", "max", "sum", "avg", "count", "stddev", "var_pop", "median"];

/// Makes statements.
pub(crate) struct Generator<'a> {
    pub(crate) random: &'a mut Random,
}

impl Generator<'_> {
    pub(crate) fn statement(&mut self) -> Statement {
        match self.random.below(12) {
            0..=1 => self.rows(),
            2..=5 => self.groups(),
            6..=7 => self.join(),
            8 => self.as_of(),
            9 => self.set_operation(),
            10 => self.nested(),
            _ => self.distinct(),
        }
    }

    fn rows(&mut self) -> Statement {
        let count = 1 + self.random.below(3);
        let shown = self.shown("", count);
        let from = format!("SELECT {} FROM cpu{}", shown.join(", "), self.condition(""));
        self.ordered(from, shown.len())
    }

    fn distinct(&mut self) -> Statement {
        let columns = ["host", "region", "s", "ok", "n", "a", "n % 2", "upper(s)"];
        let shown: Vec<&str> = (0..=self.random.below(3)).map(|_| self.random.of(&columns)).collect();
        let from = format!("SELECT DISTINCT {} FROM cpu{}", shown.join(", "), self.condition(""));
        self.ordered(from, shown.len())
    }

    fn groups(&mut self) -> Statement {
        let (keys, mut shown) = self.keys("");
        let aggregates: Vec<String> = (0..=self.random.below(3)).map(|_| self.aggregate("")).collect();
        shown.extend(aggregates.iter().cloned());
        let mut text = format!("SELECT {} FROM cpu{}", shown.join(", "), self.condition(""));
        if !keys.is_empty() {
            write!(text, " GROUP BY {}", keys.join(", ")).unwrap();
            if self.random.one_in(4) {
                let having = match self.random.below(3) {
                    0 => {
                        let (name, column) = (self.random.of(&AGGREGATES), self.random.of(&NUMBERS));
                        format!("{name}({column}) > {}", self.random.below(6))
                    }
                    1 => format!("count(*) >= {}", self.random.below(40)),
                    _ => format!("{} IS NOT NULL", self.aggregate("")),
                };
                write!(text, " HAVING {having}").unwrap();
            }
        }
        self.ordered(text, shown.len())
    }

    fn join(&mut self) -> Statement {
        let kind = self.random.of(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "INNER JOIN"]);
        let on = match self.random.below(4) {
            0 => "USING (host, time)".to_owned(),
            1 => "ON c.host = r.host AND c.time = r.time".to_owned(),
            2 => "ON c.time = r.time".to_owned(),
            _ => "ON c.host = r.host AND c.time = r.time AND r.w > 4".to_owned(),
        };
        let from = format!("FROM cpu c {kind} ref r {on}");
        if self.random.one_in(2) {
            let shown = ["c.a", "c.n", "c.s", "r.w", "r.kind", "c.region", "coalesce(c.n, 0) + r.w"];
            let shown: Vec<&str> = (0..=self.random.below(3)).map(|_| self.random.of(&shown)).collect();
            let shown = if on.starts_with("USING") { [vec!["host", "time"], shown].concat() } else { shown };
            let text = format!("SELECT {} {from}{}", shown.join(", "), self.condition("c."));
            return self.ordered(text, shown.len());
        }
        let key = self.random.of(&["r.kind", "c.region", "c.s", "r.kind, c.region"]);
        let shown = [key.to_owned(), "count(*)".to_owned(), "sum(r.w)".to_owned(), self.aggregate("c.")];
        let text = format!("SELECT {} {from}{} GROUP BY {key}", shown.join(", "), self.condition("c."));
        let columns = shown.len() + usize::from(key.contains(','));
        self.ordered(text, columns)
    }

    fn as_of(&mut self) -> Statement {
        let text = format!(
            "SELECT c.time, c.host, c.{}, r.time, r.w, r.kind FROM cpu c ASOF JOIN ref r ON c.host = r.host AND c.time >= r.time{}",
            self.random.of(&NUMBERS),
            self.condition("c.")
        );
        self.ordered(text, 6)
    }

    fn set_operation(&mut self) -> Statement {
        let shapes = ["host, n", "s, n", "host, region", "time, host", "n, a"];
        let shape = self.random.of(&shapes);
        let operator = self.random.of(&["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"]);
        let (left, right) = (self.condition(""), self.condition(""));
        let text = format!("SELECT {shape} FROM cpu{left} {operator} SELECT {shape} FROM cpu{right}");
        self.ordered(text, 2)
    }

    /// Queries in FROM, in WITH, in conditions and as values.
    fn nested(&mut self) -> Statement {
        let aggregate = self.aggregate("");
        let inner = format!(
            "SELECT host, {} AS bin, {aggregate} AS x, count(*) AS rows FROM cpu{} GROUP BY 1, 2",
            self.bin(""),
            self.condition("")
        );
        let text = match self.random.below(5) {
            0 => format!("SELECT host, max(x), sum(rows) FROM ({inner}) AS t GROUP BY host"),
            1 => format!("WITH t AS ({inner}) SELECT bin, count(x), min(rows) FROM t GROUP BY bin"),
            2 => format!("WITH t AS ({inner}) SELECT host, bin, x FROM t WHERE rows > 3 AND x IS NOT NULL"),
            3 => format!("SELECT host, s, n FROM cpu WHERE n > (SELECT avg(n) FROM cpu{})", self.condition("")),
            _ => {
                let not = self.random.of(&["", "NOT "]);
                let inner = format!("SELECT host FROM ref{}", self.random.of(&["", " WHERE w > 8", " WHERE w < 0"]));
                format!("SELECT host, region, a FROM cpu WHERE host {not}IN ({inner})")
            }
        };
        self.ordered(text, 3)
    }

    /// In full order, perhaps within a limit; or in none.
    fn ordered(&mut self, mut text: String, columns: usize) -> Statement {
        let is_exact = !["stddev", "var_pop"].iter().any(|inexact| text.contains(inexact));
        if !is_exact || self.random.one_in(3) {
            return Statement { text, is_ordered: false };
        }
        let by: Vec<String> = (1..=columns)
            .map(|place| format!("{place}{}", self.random.of(&["", " DESC", " ASC", " NULLS FIRST"])))
            .collect();
        write!(text, " ORDER BY {}", by.join(", ")).unwrap();
        if self.random.one_in(2) {
            write!(text, " LIMIT {}", self.random.below(30)).unwrap();
            if self.random.one_in(2) {
                write!(text, " OFFSET {}", self.random.below(10)).unwrap();
            }
        }
        Statement { text, is_ordered: true }
    }

    fn shown(&mut self, table: &str, count: usize) -> Vec<String> {
        (0..count)
            .map(|_| match self.random.below(6) {
                0 => format!("{table}time"),
                1 => format!("{table}host"),
                2 => self.text(table),
                3 => self.bin(table),
                4 => format!(
                    "CASE WHEN {} THEN {} ELSE {} END",
                    self.predicate(table, 1),
                    self.number(table, 1),
                    self.number(table, 0)
                ),
                _ => self.number(table, 2),
            })
            .collect()
    }

    fn keys(&mut self, table: &str) -> (Vec<String>, Vec<String>) {
        let mut keys: Vec<String> = Vec::new();
        for _ in 0..self.random.below(3) {
            let key = match self.random.below(8) {
                0..=1 => format!("{table}host"),
                2 => format!("{table}region"),
                3..=4 => self.bin(table),
                5 => format!("{table}s"),
                6 => format!("{table}ok"),
                _ => format!("{table}n % 3"),
            };
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        (keys.clone(), keys)
    }

    fn bin(&mut self, table: &str) -> String {
        let width = self.random.of(&["30 seconds", "5 minutes", "17 minutes", "1 hour", "1 day", "1 week"]);
        match self.random.below(4) {
            0..=1 => format!("time_bucket(INTERVAL '{width}', {table}time)"),
            2 => format!(
                "date_trunc('{}', {table}time)",
                self.random.of(&["minute", "hour", "day", "week", "month", "year"])
            ),
            _ => format!("date_bin(INTERVAL '{width}', {table}time, TIMESTAMP '2016-01-01 00:02:30')"),
        }
    }

    fn aggregate(&mut self, table: &str) -> String {
        let column = self.random.of(&NUMBERS);
        match self.random.below(12) {
            0 => "count(*)".to_owned(),
            1 => format!("count(DISTINCT {table}{})", self.random.of(&["n", "s", "host", "a"])),
            2 => format!("first({table}{column}, {table}time)"),
            3 => format!("last({table}{column}, {table}time)"),
            4 => format!("percentile_cont(0.9) WITHIN GROUP (ORDER BY {table}{column})"),
            5 => format!("sum({table}{column}) FILTER (WHERE {})", self.predicate(table, 0)),
            6 => {
                format!("{}({table}{})", self.random.of(&["min", "max"]), self.random.of(&["time", "s", "host", "ok"]))
            }
            7 => format!("{}({table}ok)", self.random.of(&["bool_and", "bool_or"])),
            8 => format!("{}({})", self.random.of(&["sum", "max", "avg"]), self.number(table, 1)),
            _ => format!("{}({table}{column})", self.random.of(&AGGREGATES)),
        }
    }

    fn number(&mut self, table: &str, depth: usize) -> String {
        if depth == 0 {
            return match self.random.below(5) {
                0 => (self.random.below(12) as i64 - 2).to_string(),
                _ => format!("{table}{}", self.random.of(&NUMBERS)),
            };
        }
        let of = self.number(table, depth - 1);
        match self.random.below(8) {
            0 => format!("({of} {} {})", self.random.of(&["+", "-", "*"]), self.number(table, depth - 1)),
            1 => format!("({of} / 4.0)"),
            2 => format!("abs({of})"),
            3 => format!("coalesce({of}, {})", self.number(table, depth - 1)),
            4 => format!("{}({of}, {})", self.random.of(&["greatest", "least"]), self.number(table, depth - 1)),
            5 => format!("nullif({of}, {})", self.random.below(4)),
            6 if self.random.one_in(2) => format!("sqrt(abs({of}))"),
            6 => format!("{}({of})", self.random.of(&["floor", "ceil"])),
            _ => format!("length({table}s)"),
        }
    }

    fn text(&mut self, table: &str) -> String {
        match self.random.below(6) {
            0 => format!("upper({table}s)"),
            1 => format!("{table}s || {table}host"),
            2 => format!("concat({table}s, '-', {table}region)"),
            3 => format!("substr({table}s, 2, 3)"),
            4 => format!("replace({table}s, 'p', 'q')"),
            _ => format!("{table}s"),
        }
    }

    fn condition(&mut self, table: &str) -> String {
        match self.random.below(4) {
            0 => String::new(),
            _ => format!(" WHERE {}", self.predicate(table, 2)),
        }
    }

    fn predicate(&mut self, table: &str, depth: usize) -> String {
        if depth > 0 && self.random.one_in(2) {
            let (left, right) = (self.predicate(table, depth - 1), self.predicate(table, depth - 1));
            return match self.random.below(5) {
                0 => format!("({left} OR {right})"),
                1 => format!("NOT ({left} AND {right})"),
                _ => format!("{left} AND {right}"),
            };
        }
        let column = format!("{table}{}", self.random.of(&NUMBERS));
        let number = self.random.below(12) as i64 - 3;
        match self.random.below(14) {
            0 => format!("{table}host = 'h{}'", self.random.below(6)),
            1 => format!("{table}host {}IN ('h1', 'h3', 'h9')", self.random.of(&["", "NOT "])),
            2 => format!("{table}region {} 'north'", self.random.of(&["=", "<>", ">"])),
            3 => format!(
                "{table}{} IS {}NULL",
                self.random.of(&["region", "a", "b", "s", "ok"]),
                self.random.of(&["", "NOT "])
            ),
            4..=5 => self.of_time(table),
            6 => format!(
                "{table}s {} '{}'",
                self.random.of(&["LIKE", "NOT LIKE", "ILIKE"]),
                self.random.of(&["up%", "%n", "_p", "%p\\_%", "x_y", "%"])
            ),
            7 => format!("{column} {}BETWEEN {number} AND {}", self.random.of(&["", "NOT "]), number + 4),
            8 => format!("{column} IS {}DISTINCT FROM {number}", self.random.of(&["", "NOT "])),
            9 => self
                .random
                .of(&["ok", "NOT ok", "ok IS TRUE", "ok IS NOT TRUE", "ok = false"])
                .replace("ok", &format!("{table}ok")),
            10 => format!("{table}n {}IN (1, 3, {number})", self.random.of(&["", "NOT "])),
            11 => format!("{} > {}", self.number(table, 1), self.number(table, 0)),
            _ => format!("{column} {} {number}", self.random.of(&["<", "<=", ">", ">=", "=", "<>"])),
        }
    }

    fn of_time(&mut self, table: &str) -> String {
        let at = |minutes: usize| format!("TIMESTAMP '2016-01-01 {:02}:{:02}:00'", minutes / 60, minutes % 60);
        let from = self.random.below(240);
        match self.random.below(3) {
            0 => format!("{table}time >= {}", at(from)),
            1 => format!("{table}time < {}", at(from)),
            _ => format!("{table}time >= {} AND {table}time < {}", at(from), at(from + self.random.below(90))),
        }
    }
}
