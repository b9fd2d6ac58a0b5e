//! Random tables with nulls, as lines for Thalweg and as statements for the peer.

use std::fmt::Write;

/// 2016-01-01T00:00:00Z.
pub(crate) const START_NS: i64 = 1_451_606_400_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// Numbers that look random (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// The tables of both.
pub(crate) struct Tables {
    pub(crate) lines: String,
    pub(crate) statements: Vec<String>,
}

/// A row as it grows: tags, fields, and the same as values.
struct Row {
    line: String,
    fields: usize,
    values: Vec<String>,
}

impl Row {
    fn new(table: &str) -> Self {
        Self { line: table.to_owned(), fields: 0, values: Vec::new() }
    }

    fn tag(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => {
                write!(self.line, ",{name}={value}").unwrap();
                self.values.push(format!("'{value}'"));
            }
            None => self.values.push("NULL".to_owned()),
        }
    }

    /// A field as a line has it, and as a statement has it.
    fn field(&mut self, name: &str, value: Option<(String, String)>) {
        let Some((in_line, in_statement)) = value else { return self.values.push("NULL".to_owned()) };
        self.line.push(if self.fields == 0 { ' ' } else { ',' });
        write!(self.line, "{name}={in_line}").unwrap();
        self.fields += 1;
        self.values.push(in_statement);
    }
}

/// `cpu` of five hosts, of which one has no region, one never `b`, one only texts now and then; stretches of time in which fields, or all rows, are
/// missing. Times are different in all rows. `ref` has rows at some of the times of `cpu`, and at others.
pub(crate) fn tables(random: &mut Random) -> Tables {
    let mut lines = String::new();
    let mut cpu: Vec<String> = Vec::new();
    let mut reference: Vec<String> = Vec::new();
    for step in 0..240i64 {
        for host in 0..5usize {
            if (step / 30) % 4 == 2 && host != 1 || random.one_in(6) {
                continue;
            }
            let time_ns = START_NS + (step * 60 + host as i64) * SECOND_NS;
            if let Some(row) = cpu_row(random, step, host) {
                push(&mut lines, &mut cpu, &row, time_ns);
            }
            if random.one_in(4) {
                let time_ns = if random.one_in(3) { time_ns } else { time_ns + 7 * SECOND_NS };
                let mut row = Row::new("ref");
                row.tag("host", Some(&format!("h{}", random.below(6))));
                let weight = random.below(20) as f64 / 2.0;
                row.field("w", (!random.one_in(5)).then(|| (weight.to_string(), weight.to_string())));
                let kind = random.of(&["x", "y", "long word"]);
                row.field("kind", Some((format!("\"{kind}\""), format!("'{kind}'"))));
                push(&mut lines, &mut reference, &row, time_ns);
            }
        }
    }
    let statements = vec![
        "CREATE TABLE cpu (time TIMESTAMP, host TEXT, region TEXT, a DOUBLE, b DOUBLE, n BIGINT, ok BOOLEAN, s TEXT)"
            .to_owned(),
        format!("INSERT INTO cpu VALUES {}", cpu.join(", ")),
        "CREATE TABLE ref (time TIMESTAMP, host TEXT, w DOUBLE, kind TEXT)".to_owned(),
        format!("INSERT INTO ref VALUES {}", reference.join(", ")),
    ];
    Tables { lines, statements }
}

fn cpu_row(random: &mut Random, step: i64, host: usize) -> Option<Row> {
    let mut row = Row::new("cpu");
    row.tag("host", Some(&format!("h{host}")));
    row.tag("region", (host != 4).then_some(if host < 2 { "north" } else { "south" }));
    let is_texts = host == 3;
    let hides = (step / 20) % 3 == 1;
    let float = |random: &mut Random| {
        let value = (random.below(41) as f64 - 10.0) / 2.0;
        (value.to_string(), format!("{value}::DOUBLE"))
    };
    let a = float(random);
    row.field("a", (!is_texts && !hides && !random.one_in(7)).then_some(a));
    let b = float(random);
    row.field("b", (!is_texts && host != 2 && !random.one_in(3)).then_some(b));
    let n = random.below(9) as i64 - 3;
    row.field("n", (!is_texts && !random.one_in(4)).then(|| (format!("{n}i"), n.to_string())));
    let ok = random.one_in(2);
    row.field("ok", (!is_texts && random.one_in(2)).then(|| (ok.to_string(), ok.to_string())));
    let word = random.of(&["up", "down", "Up and down", "x_y", "100%"]);
    row.field("s", (!random.one_in(3)).then(|| (format!("\"{word}\""), format!("'{word}'"))));
    (row.fields > 0).then_some(row)
}

fn push(lines: &mut String, rows: &mut Vec<String>, row: &Row, time_ns: i64) {
    writeln!(lines, "{} {time_ns}", row.line).unwrap();
    rows.push(format!("(make_timestamp({}), {})", time_ns / 1000, row.values.join(", ")));
}
