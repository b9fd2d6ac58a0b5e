//! Subscriptions of InfluxDB 1: everything that is written to a database goes on as line protocol, over HTTP or as datagrams.

use std::fmt::Write;

use platform::network::HttpRequest;
use platform::network::retry::Verdict;
use query::lines::{MEASUREMENT_SPECIAL, TAG_SPECIAL, escaped, push_field};

use crate::delivery::context::Shared;
use crate::delivery::definition::SubscriptionName;
use crate::delivery::queue::{Chunk, Payload, RowWork};
use crate::hook;
use crate::rows::{Row, sql_value};

/// The header of a subscription's requests that names the data folder that sends them, by its incarnation in hexadecimal digits.
pub const ORIGIN_HEADER: &str = "X-Thalweg-Origin";

/// The value of that header.
pub fn origin_text(incarnation: u64) -> String {
    format!("{incarnation:x}")
}

/// What a job of a subscription does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SubscriptionWork {
    pub(crate) name: SubscriptionName,
    /// One, or several that take turns.
    pub(crate) destinations: Vec<String>,
}

/// Bytes that a datagram of IPv4 may have.
const DATAGRAM_BYTES_MAX: usize = 65_507;

/// Makes lines of rows.
pub(crate) struct SubscriptionRun {
    line_bytes_max: usize,
}

impl SubscriptionRun {
    pub(crate) fn new(work: &SubscriptionWork) -> Self {
        let has_datagrams = work.destinations.iter().any(|destination| destination.starts_with(DATAGRAMS));
        Self { line_bytes_max: if has_datagrams { DATAGRAM_BYTES_MAX } else { usize::MAX } }
    }
}

impl RowWork for SubscriptionRun {
    fn payload(&mut self, row: &Row<'_>, _: u64) -> Result<Option<Payload>, String> {
        let Some(line) = line(row) else { return Ok(None) };
        if line.len() > self.line_bytes_max {
            return Err(format!("a line of {} bytes does not fit into a datagram", line.len()));
        }
        Ok(Some(Payload::Text(line)))
    }
}

/// The beginning of destinations that get datagrams.
const DATAGRAMS: &str = "udp://";

/// A row as a line without its end; `None` if no field can be written.
fn line(row: &Row<'_>) -> Option<String> {
    let mut fields = String::new();
    for (name, value) in row.fields() {
        if let Some(value) = sql_value(value) {
            push_field(&mut fields, name, &value);
        }
    }
    if fields.is_empty() {
        return None;
    }
    let mut out = escaped(row.table(), &MEASUREMENT_SPECIAL);
    for (name, value) in row.tags().iter() {
        // Writing into a string does not fail.
        let _ = write!(out, ",{}={}", escaped(name, &TAG_SPECIAL), escaped(value, &TAG_SPECIAL));
    }
    let _ = write!(out, " {fields} {}", row.timestamp_ns());
    Some(out)
}

/// Rows as they are sent.
pub(crate) struct Lines {
    lines: Vec<String>,
}

impl SubscriptionWork {
    pub(crate) fn lines(chunk: &Chunk) -> Lines {
        let lines = chunk.items.iter().filter_map(|item| match &item.payload {
            Payload::Text(text) => Some(text.clone()),
            Payload::Row(..) => None,
        });
        Lines { lines: lines.collect() }
    }

    /// The destination whose turn it is: each request begins with the next one.
    fn destination(&self, turn: u64) -> Option<&str> {
        let count = self.destinations.len().max(1) as u64;
        self.destinations.get((turn % count) as usize).map(String::as_str)
    }

    /// Sends lines to the destination whose turn it is. Callers bound the time.
    pub(crate) async fn send(&self, shared: &Shared, lines: &Lines, turn: u64) -> Verdict {
        let retry = |reason: String| Verdict::Retry { after_ms: None, reason };
        let Some(destination) = self.destination(turn) else {
            return Verdict::Refused("there is no destination".to_owned());
        };
        if let Some(address) = destination.strip_prefix(DATAGRAMS) {
            let to = address.trim_end_matches('/').to_owned();
            let datagrams = lines.lines.iter().map(|line| line.clone().into_bytes()).collect();
            let sent = shared.feed.network.network.send_datagrams(to, datagrams).await;
            // What is lost on the way is lost; that there is no such host is worth another try.
            return sent.map_or_else(|error| retry(error.to_string()), |()| Verdict::Sent);
        }
        let client = match &shared.client {
            Ok(client) => client,
            Err(reason) => return retry(reason.clone()),
        };
        let mut body = lines.lines.join("\n");
        body.push('\n');
        let request =
            HttpRequest { method: "POST", url: self.url(destination), headers: Vec::new(), body: body.into_bytes() };
        let request = request
            .with_header("Content-Type", "text/plain; charset=utf-8")
            .with_header(ORIGIN_HEADER, origin_text(shared.db().incarnation()));
        // Its password may be changed, its database made: what is written meanwhile waits.
        match hook::post(&**client, request, shared.db().now_ns()).await {
            hook::Answer { status: Some(300..=399 | 401 | 403 | 404), verdict: Verdict::Refused(reason) } => {
                retry(reason)
            }
            answer => answer.verdict,
        }
    }

    /// `/write` of a destination, as InfluxDB 1 asks for it.
    fn url(&self, destination: &str) -> String {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("consistency", "")
            .append_pair("db", &self.name.database)
            .append_pair("precision", "ns")
            .append_pair("rp", &self.name.policy)
            .finish();
        format!("{}/write?{query}", destination.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use db::{LogSample, LogSeries, LogValue};
    use model::Labels;

    use super::*;

    #[test]
    fn rows_are_lines() {
        let tags = Labels::from_pairs([("a b", "c,d"), ("e", "f")]).unwrap();
        let sample = |field: &str, value| {
            let labels = tags.clone();
            let series = LogSeries {
                database: "d".into(),
                labels,
                table: "m x".into(),
                tags: tags.clone(),
                field: field.into(),
            };
            LogSample { series: Arc::new(series), timestamp_ns: 5, value }
        };
        let samples = vec![
            sample("i", LogValue::Integer(-1)),
            sample("t", LogValue::Text("q\"".into())),
            sample("n", LogValue::Float(f64::NAN)),
        ];
        let row = Row { samples: Cow::Owned(samples) };
        assert_eq!(line(&row).as_deref(), Some(r#"m\ x,a\ b=c\,d,e=f i=-1i,t="q\"" 5"#));
        let nothing = Row { samples: Cow::Owned(vec![sample("n", LogValue::Float(f64::NAN))]) };
        assert_eq!(line(&nothing), None);
    }

    #[test]
    fn destinations_take_turns() {
        let name = SubscriptionName { database: "d b".into(), policy: "p".into(), name: "n".into() };
        let work = SubscriptionWork { name, destinations: vec!["http://a/".to_owned(), "http://b".to_owned()] };
        let turns: Vec<Option<&str>> = (0..3).map(|turn| work.destination(turn)).collect();
        assert_eq!(turns, [Some("http://a/"), Some("http://b"), Some("http://a/")]);
        assert_eq!(work.url("http://a/"), "http://a/write?consistency=&db=d+b&precision=ns&rp=p");
    }
}
