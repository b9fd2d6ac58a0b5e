//! Answers as InfluxDB 1's `MessagePack`: the objects of its JSON, times as its clients read them.

use influxql::{Series, TimeFormat, Value};

use super::Done;

/// The type of times among the extensions: seconds and nanoseconds since 1970.
const TIME_EXTENSION: u8 = 5;
const NS_PER_S: i64 = 1_000_000_000;

/// The answer to all statements: one object.
pub(super) fn msgpack(results: &[Done], times: TimeFormat) -> Vec<u8> {
    let mut out = Packed(Vec::new());
    out.document(results.len());
    for (number, result) in results.iter().enumerate() {
        out.result(number, result, times);
    }
    out.0
}

/// Bytes of `MessagePack`, being written.
struct Packed(Vec<u8>);

impl Packed {
    /// `{"results": […]}` of so many.
    fn document(&mut self, results: usize) {
        self.map(1);
        self.text("results");
        self.array(results);
    }

    /// A statement's result in one piece.
    fn result(&mut self, number: usize, result: &Done, times: TimeFormat) {
        match result {
            Err(error) => {
                self.map(2);
                self.statement(number);
                self.text("error");
                self.text(&error.to_string());
            }
            Ok(answer) => {
                self.map(1 + usize::from(!answer.series.is_empty()) + usize::from(!answer.messages.is_empty()));
                self.statement(number);
                if !answer.series.is_empty() {
                    self.text("series");
                    self.array(answer.series.len());
                    for series in &answer.series {
                        self.series(series, &series.rows.values(), times);
                    }
                }
                self.messages(&answer.messages);
            }
        }
    }

    fn series(&mut self, series: &Series, rows: &[Vec<Value>], times: TimeFormat) {
        let (has_name, has_tags) = (!series.name.is_empty(), !series.tags.is_empty());
        let members = [has_name, has_tags, !rows.is_empty()].map(usize::from);
        self.map(1 + members.iter().sum::<usize>());
        if has_name {
            self.text("name");
            self.text(&series.name);
        }
        if has_tags {
            self.text("tags");
            self.map(series.tags.len());
            for (name, value) in &series.tags {
                self.text(name);
                self.text(value);
            }
        }
        self.text("columns");
        self.array(series.columns.len());
        series.columns.iter().for_each(|column| self.text(column));
        if !rows.is_empty() {
            self.text("values");
            self.array(rows.len());
            for row in rows {
                self.array(row.len());
                row.iter().for_each(|value| self.value(value, times));
            }
        }
    }

    fn statement(&mut self, number: usize) {
        self.text("statement_id");
        self.integer(number as i64);
    }

    fn messages(&mut self, messages: &[String]) {
        if messages.is_empty() {
            return;
        }
        self.text("messages");
        self.array(messages.len());
        for message in messages {
            self.map(2);
            for text in ["level", "warning", "text", message] {
                self.text(text);
            }
        }
    }

    fn value(&mut self, value: &Value, times: TimeFormat) {
        match value {
            Value::Null => self.0.push(0xc0),
            Value::Bool(value) => self.0.push(if *value { 0xc3 } else { 0xc2 }),
            Value::Int(value) => self.integer(*value),
            Value::Unsigned(value) => match i64::try_from(*value) {
                Ok(value) => self.integer(value),
                Err(_) => self.tagged(0xcf, &value.to_be_bytes()),
            },
            Value::Float(value) if !value.is_finite() => self.0.push(0xc0),
            Value::Float(value) => self.tagged(0xcb, &value.to_be_bytes()),
            Value::Timestamp(ns) => match times {
                TimeFormat::Number { unit_ns } => self.integer(ns / unit_ns),
                TimeFormat::Text => {
                    self.tagged(0xc7, &[12, TIME_EXTENSION]);
                    self.0.extend(ns.div_euclid(NS_PER_S).to_be_bytes());
                    self.0.extend((ns.rem_euclid(NS_PER_S) as u32).to_be_bytes());
                }
            },
            Value::Text(text) => self.text(text),
            // These are of SQL alone.
            other => self.text(&other.to_string()),
        }
    }

    fn integer(&mut self, value: i64) {
        match (i8::try_from(value), i32::try_from(value)) {
            // One byte says small ones.
            (Ok(small), _) if small >= -32 => self.0.extend(small.to_be_bytes()),
            (_, Ok(short)) => self.tagged(0xd2, &short.to_be_bytes()),
            _ => self.tagged(0xd3, &value.to_be_bytes()),
        }
    }

    fn text(&mut self, text: &str) {
        match u8::try_from(text.len()) {
            Ok(length) if length < 32 => self.0.push(0xa0 | length),
            Ok(length) => self.tagged(0xd9, &[length]),
            Err(_) => self.tagged(0xdb, &(text.len() as u32).to_be_bytes()),
        }
        self.0.extend(text.as_bytes());
    }

    fn array(&mut self, length: usize) {
        self.sized(0x90, 0xdd, length);
    }

    fn map(&mut self, length: usize) {
        self.sized(0x80, 0xdf, length);
    }

    fn sized(&mut self, short: u8, long: u8, length: usize) {
        match u8::try_from(length) {
            Ok(length) if length < 16 => self.0.push(short | length),
            _ => self.tagged(long, &(length as u32).to_be_bytes()),
        }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_bytes_of_the_format() {
        let series = Series {
            name: "m".to_owned(),
            columns: ["time", "v"].map(str::to_owned).into(),
            rows: influxql::Rows::Values(vec![
                vec![Value::Timestamp(-1), Value::Float(1.5)],
                vec![Value::Timestamp(2_000_000_000), Value::Int(-40)],
            ]),
            ..Series::default()
        };
        let answer = influxql::Answer { series: vec![series], messages: Vec::new() };
        let head = b"\x81\xa7results\x91\x82\xacstatement_id\x00\xa6series\x91\x83\xa4name\xa1m\xa7columns\x92\xa4time\xa1v\xa6values";
        let first = b"\x92\xc7\x0c\x05\xff\xff\xff\xff\xff\xff\xff\xff\x3b\x9a\xc9\xff\xcb\x3f\xf8\0\0\0\0\0\0";
        let second = b"\x92\xc7\x0c\x05\0\0\0\0\0\0\0\x02\0\0\0\0\xd2\xff\xff\xff\xd8";
        let results = [Ok(answer)];
        assert_eq!(msgpack(&results, TimeFormat::Text), [&head[..], b"\x92", first, second].concat());
    }
}
