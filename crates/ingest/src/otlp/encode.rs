//! Answers, and requests for clients.

use crate::protobuf::{write_bytes, write_fixed64, write_varint_field};

/// What the answer to a request says: an `ExportMetricsServiceResponse`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// Data points that were not taken.
    pub points_rejected: u64,
    /// Why; may hold a warning if none was rejected.
    pub message: String,
}

impl Answer {
    fn is_plain(&self) -> bool {
        self.points_rejected == 0 && self.message.is_empty()
    }

    /// As protobuf.
    pub fn to_protobuf(&self) -> Vec<u8> {
        let mut answer = Vec::new();
        if !self.is_plain() {
            let mut partial = Vec::new();
            write_varint_field(&mut partial, 1, self.points_rejected);
            write_bytes(&mut partial, 2, self.message.as_bytes());
            write_bytes(&mut answer, 1, &partial);
        }
        answer
    }

    /// As JSON. Numbers of 64 bits are texts there.
    pub fn to_json(&self) -> String {
        if self.is_plain() {
            return "{}".to_owned();
        }
        let message = serde_json::Value::String(self.message.clone());
        format!(r#"{{"partialSuccess":{{"rejectedDataPoints":"{}","errorMessage":{message}}}}}"#, self.points_rejected)
    }
}

/// An error as a `google.rpc.Status`.
pub fn encode_status(code: u32, message: &str) -> Vec<u8> {
    let mut status = Vec::new();
    write_varint_field(&mut status, 1, code.into());
    write_bytes(&mut status, 2, message.as_bytes());
    status
}

/// A data point of a gauge to write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberPoint<'a> {
    /// Names and values.
    pub attributes: &'a [(&'a str, &'a str)],
    /// Nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// The value.
    pub value: f64,
}

/// A message `ExportMetricsServiceRequest` with one gauge. Messages may be joined: their resources follow one another.
pub fn encode_gauge(
    resource: &[(&str, &str)],
    scope: &str,
    name: &str,
    unit: &str,
    points: &[NumberPoint<'_>],
) -> Vec<u8> {
    let mut gauge = Vec::new();
    for point in points {
        let mut message = attributes(7, point.attributes);
        write_fixed64(&mut message, 3, point.time_ns);
        write_fixed64(&mut message, 4, point.value.to_bits());
        write_bytes(&mut gauge, 1, &message);
    }
    let metric = [field(1, name.as_bytes()), field(3, unit.as_bytes()), field(5, &gauge)].concat();
    let scope_metrics = [field(1, &field(1, scope.as_bytes())), field(2, &metric)].concat();
    let resource_metrics = [field(1, &attributes(1, resource)), field(2, &scope_metrics)].concat();
    field(1, &resource_metrics)
}

fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(content.len() + 6);
    write_bytes(&mut message, number, content);
    message
}

/// Texts as fields of this number.
fn attributes(number: u32, pairs: &[(&str, &str)]) -> Vec<u8> {
    let pair = |(name, value): &(&str, &str)| {
        let content = [field(1, name.as_bytes()), field(2, &field(1, value.as_bytes()))].concat();
        field(number, &content)
    };
    pairs.iter().flat_map(pair).collect()
}
