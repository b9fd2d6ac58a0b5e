//! What lies in the database: sources with fields that walk, at equal intervals; and the queries for it.

use std::fmt::Write;
use std::time::Duration;

use cache::{Answer, Span, json};

use crate::workload::walk::Chance;
use client::http::HttpClient;

/// The database and the measurement.
const DATABASE: &str = "bench_cache";
const MEASUREMENT: &str = "readings";
/// 2020-01-01T00:00:00Z.
const START_S: i64 = 1_577_836_800;
const MINUTE_S: i64 = 60;
/// Rows of one write.
const BATCH_ROWS: usize = 5000;
/// How long the database may be asked for before it is given up.
const TIMEOUT: Duration = Duration::from_mins(1);

/// How much data there is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    pub(super) sources: u32,
    pub(super) days: u32,
    pub(super) interval_s: u32,
    pub(super) fields: u32,
}

/// A query without its range.
pub(super) struct Statement {
    pub(super) text: String,
    series: String,
}

impl Data {
    pub(super) fn minutes(&self) -> i64 {
        i64::from(self.days) * 24 * 60
    }

    /// Rows of all sources.
    pub(super) fn rows(&self) -> u64 {
        let rows = i64::from(self.days) * 24 * 3600 / i64::from(self.interval_s);
        rows as u64 * u64::from(self.sources)
    }

    /// A time and a float of each field, eight bytes each.
    pub(super) fn raw_bytes(&self) -> u64 {
        self.rows() * 8 * (1 + u64::from(self.fields))
    }

    /// Two queries for each source: one for all of its fields, one for half of them. Lower numbers come more often.
    pub(super) fn statement(&self, query: u32) -> Statement {
        let fields = if query.is_multiple_of(2) { self.fields } else { self.fields.div_ceil(2) };
        let names: Vec<String> = (0..fields).map(|field| format!("field_{field}")).collect();
        let source = query / 2 % self.sources;
        Statement {
            text: format!("SELECT {} FROM {MEASUREMENT} WHERE source = 's{source}'", names.join(", ")),
            series: format!("source=s{source}"),
        }
    }

    /// Minutes of the workload as seconds of the data.
    pub(super) fn seconds(minutes: Span) -> Span {
        Span::new(START_S + minutes.start * MINUTE_S, START_S + minutes.end * MINUTE_S)
    }

    /// Writes everything, in order of time. Values have two decimals and walk by normal steps of deviation 0.1.
    pub(super) fn load(&self, client: &HttpClient, seed: u64) -> Result<(), String> {
        post(client, "/query", &[("q", &format!("CREATE DATABASE {DATABASE}"))], "")?;
        let mut chance = Chance::new(seed);
        let mut walks = vec![50.0; (self.sources * self.fields) as usize];
        let (mut lines, mut rows) = (String::new(), 0);
        let end = START_S + self.minutes() * MINUTE_S;
        for time in (START_S..end).step_by(self.interval_s as usize) {
            for (source, values) in walks.chunks_mut(self.fields as usize).enumerate() {
                // Writing into a string does not fail.
                let _ = write!(lines, "{MEASUREMENT},source=s{source} ");
                for (field, value) in values.iter_mut().enumerate() {
                    *value += chance.normal() * 0.1;
                    let comma = if field == 0 { "" } else { "," };
                    let _ = write!(lines, "{comma}field_{field}={value:.2}");
                }
                let _ = writeln!(lines, " {time}");
                rows += 1;
            }
            if rows >= BATCH_ROWS {
                post(client, "/write", &[("db", DATABASE), ("precision", "s")], &lines)?;
                (lines, rows) = (String::new(), 0);
            }
        }
        post(client, "/write", &[("db", DATABASE), ("precision", "s")], &lines)
    }
}

fn post(client: &HttpClient, path: &str, parameters: &[(&str, &str)], body: &str) -> Result<(), String> {
    let answer = client.post(path, parameters, body.as_bytes())?;
    if answer.status < 300 { Ok(()) } else { Err(format!("{path} answered {}: {}", answer.status, answer.body.trim())) }
}

/// A connection to the database.
pub(super) struct Database(HttpClient);

impl Database {
    pub(super) fn new(url: &str) -> Self {
        Self(HttpClient::with_timeout(url, Some(TIMEOUT)))
    }

    /// The answer for a span of seconds.
    pub(super) fn fetch(&self, statement: &Statement, span: Span) -> Result<Answer, String> {
        let text = format!("{} AND time >= {}s AND time < {}s", statement.text, span.start, span.end);
        let answer = self.0.get("/query", &[("db", DATABASE), ("epoch", "s"), ("q", &text)])?;
        if answer.status != 200 {
            return Err(format!("the database answered {}: {}", answer.status, answer.body.trim()));
        }
        read(&answer.body, &statement.series)
    }
}

/// Reads what InfluxDB 1.x answers to one statement; its series gets a name that tells sources apart.
fn read(body: &str, series: &str) -> Result<Answer, String> {
    let inside =
        body.trim_end().strip_prefix(r#"{"results":[{"statement_id":0"#).and_then(|rest| rest.strip_suffix("}]}"));
    let inside = inside.ok_or_else(|| format!("no answer of InfluxDB: {}", body.trim()))?;
    let Some(inside) = inside.strip_prefix(',') else {
        return Ok(Answer::default());
    };
    let mut answer = json::read(format!("{{{inside}}}").as_bytes())?;
    if let [name] = answer.series.as_mut_slice() {
        *name = series.into();
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_database_are_read() {
        let none = read("{\"results\":[{\"statement_id\":0}]}\n", "a").unwrap();
        assert_eq!(none, Answer::default());
        let body = r#"{"results":[{"statement_id":0,"series":[{"name":"readings","columns":["time","field_0"],"values":[[60,1.25],[120,2]]}]}]}"#;
        let answer = read(body, "source=s1").unwrap();
        assert_eq!((answer.points(), answer.series.first().map(AsRef::as_ref)), (2, Some("source=s1")));
        for wrong in ["", r#"{"results":[{"statement_id":0,"error":"no"}]}"#, r#"{"error":"no"}"#] {
            assert!(read(wrong, "a").is_err(), "{wrong}");
        }
    }

    #[test]
    fn data_is_counted_and_asked_for() {
        let data = Data { sources: 3, days: 2, interval_s: 60, fields: 4 };
        assert_eq!((data.rows(), data.raw_bytes()), (3 * 2880, 3 * 2880 * 40));
        assert_eq!(
            data.statement(0).text,
            "SELECT field_0, field_1, field_2, field_3 FROM readings WHERE source = 's0'"
        );
        assert_eq!(data.statement(9).text, "SELECT field_0, field_1 FROM readings WHERE source = 's1'");
        assert_eq!(Data::seconds(Span::new(0, 1)), Span::new(START_S, START_S + 60));
    }
}
