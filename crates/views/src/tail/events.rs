//! Records as server-sent events: an event for each record, a line of JSON for each sample.

use std::fmt::Write;

use db::{LogRecord, LogValue};
use model::{Labels, STALE_NAN_BITS};

use crate::json;
use crate::series_filter::SeriesFilter;

/// Bytes of a chunk, but for the last sample in it.
const CHUNK_BYTES: usize = 64 << 10;

/// Samples that are looked at for one chunk.
const CHUNK_SAMPLES: usize = 100_000;

/// How far a batch was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    record: usize,
    sample: usize,
    /// Samples that were written.
    pub(super) samples: u64,
}

impl Progress {
    /// At the first record after a sequence id.
    pub(super) fn after(records: &[LogRecord], sequence: u64) -> Self {
        let record = records.iter().take_while(|record| record.sequence <= sequence).count();
        Self { record, sample: 0, samples: 0 }
    }

    pub(super) fn is_at_end(&self, records: &[LogRecord]) -> bool {
        self.record >= records.len()
    }
}

/// The next chunk. An event whose record goes on in the next chunk has no id: a client that resumes gets the whole record again.
pub(super) fn chunk(records: &[LogRecord], progress: &mut Progress, filter: &mut SeriesFilter) -> Vec<u8> {
    let (mut out, mut looked_at) = (String::new(), 0);
    while let Some(record) = records.get(progress.record) {
        let mut has_data = false;
        for sample in record.samples.get(progress.sample..).unwrap_or_default() {
            if out.len() >= CHUNK_BYTES || looked_at >= CHUNK_SAMPLES {
                out.push_str(if has_data { "\n" } else { "" });
                return out.into_bytes();
            }
            looked_at += 1;
            progress.sample += 1;
            if filter.has(&sample.series) {
                has_data = true;
                progress.samples += 1;
                push_sample(&mut out, &sample.series.labels, sample.timestamp_ns, &sample.value);
            }
        }
        if has_data {
            // Writing into a string does not fail.
            let _ = write!(out, "id: {}\n\n", record.sequence);
        }
        progress.record += 1;
        progress.sample = 0;
    }
    out.into_bytes()
}

fn push_sample(out: &mut String, labels: &Labels, timestamp_ns: i64, value: &LogValue) {
    out.push_str("data: {\"labels\":");
    json::push_labels(out, labels);
    // Writing into a string does not fail.
    let _ = write!(out, ",\"time\":\"{}\",\"value\":", json::time(timestamp_ns));
    match value {
        LogValue::Float(value) if value.to_bits() == STALE_NAN_BITS => out.push_str("null"),
        value => json::push_value(out, value),
    }
    out.push_str("}\n");
}

/// A comment that says that the stream is there, and an id from which a client resumes.
pub(super) fn heartbeat(sequence: u64) -> Vec<u8> {
    format!(": heartbeat\nid: {sequence}\n\n").into_bytes()
}

/// Records that the log does not have any more.
pub(super) fn gap((first, last): (u64, u64)) -> Vec<u8> {
    format!("event: gap\ndata: {{\"first\":{first},\"last\":{last}}}\nid: {last}\n\n").into_bytes()
}

/// The last event.
pub(super) fn end(sequence: u64, reason: &str, message: &str) -> Vec<u8> {
    let message = json::text(message);
    format!("event: end\ndata: {{\"reason\":\"{reason}\",\"message\":{message},\"sequence\":{sequence}}}\n\n")
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use db::{LogSample, LogSeries};

    use super::*;

    fn series(host: &str) -> Arc<LogSeries> {
        let tags = Labels::from_pairs([("host", host)]).unwrap();
        let labels = tags.with("__name__", "m_v");
        Arc::new(LogSeries { database: "default".into(), labels, table: "m".into(), tags, field: "v".into() })
    }

    fn record(sequence: u64, samples: impl IntoIterator<Item = (&'static str, f64)>) -> LogRecord {
        let sample = |(host, value)| LogSample { series: series(host), timestamp_ns: 1, value: LogValue::Float(value) };
        LogRecord { sequence, samples: samples.into_iter().map(sample).collect(), ..LogRecord::default() }
    }

    fn all(records: &[LogRecord], after: u64, filter: &mut SeriesFilter) -> Vec<String> {
        let (mut progress, mut chunks) = (Progress::after(records, after), Vec::new());
        while !progress.is_at_end(records) {
            chunks.push(String::from_utf8(chunk(records, &mut progress, filter)).unwrap());
        }
        chunks
    }

    #[test]
    fn a_record_is_an_event_with_its_sequence_id() {
        let records = [record(4, [("a", 9.0)]), record(5, [("a", 1.5), ("b", f64::NAN)]), record(6, [("c", 2.0)])];
        let wanted = vec![vec![model::Matcher::new("host", model::MatchOp::Regex, "a|b")]];
        let mut filter = SeriesFilter::new(&[], &wanted).unwrap();
        let expected = "data: {\"labels\":{\"__name__\":\"m_v\",\"host\":\"a\"},\"time\":\"1970-01-01T00:00:00.000000001Z\",\"value\":1.5}\n\
                        data: {\"labels\":{\"__name__\":\"m_v\",\"host\":\"b\"},\"time\":\"1970-01-01T00:00:00.000000001Z\",\"value\":\"NaN\"}\n\
                        id: 5\n\n";
        assert_eq!(all(&records, 4, &mut filter), [expected]);
        let only_a = [model::Matcher::new("host", model::MatchOp::Equal, "a")];
        let mut filter = SeriesFilter::new(&only_a, &[]).unwrap();
        assert_eq!(all(&records, 3, &mut filter).concat().matches("data:").count(), 2, "the account's matchers count");
    }

    #[test]
    fn a_long_record_has_an_id_at_its_end_alone() {
        let records = [record(7, std::iter::repeat_n(("a", 1.0), 3_000))];
        let chunks = all(&records, 0, &mut SeriesFilter::new(&[], &[]).unwrap());
        assert!(chunks.len() > 2 && chunks.iter().all(|chunk| chunk.ends_with("\n\n")));
        assert_eq!(chunks.concat().matches("id: 7\n\n").count(), 1);
        assert!(chunks.last().is_some_and(|last| last.ends_with("id: 7\n\n")));
        assert_eq!(chunks.concat().matches("data: ").count(), 3_000);
    }

    #[test]
    fn ends_and_gaps_are_events_of_their_own() {
        assert_eq!(
            end(5, "too_slow", "a \"b\""),
            b"event: end\ndata: {\"reason\":\"too_slow\",\"message\":\"a \\\"b\\\"\",\"sequence\":5}\n\n"
        );
        assert_eq!(gap((3, 9)), b"event: gap\ndata: {\"first\":3,\"last\":9}\nid: 9\n\n");
    }
}
