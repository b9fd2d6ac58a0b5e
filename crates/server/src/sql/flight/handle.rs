//! Handles of statements. A handle is the statement itself with what it is to be run with: nothing is kept here between calls, and
//! handles outlive a restart.

use prost::Message;
use sql::Value;
use tonic::Status;

/// A statement on its way from one call to the next.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Handle {
    #[prost(string, tag = "1")]
    pub(super) database: String,
    #[prost(string, tag = "2")]
    pub(super) text: String,
    /// What `$1`, `$2` … stand for: a run of the statement for each row; one run without any if there is none.
    #[prost(message, repeated, tag = "3")]
    pub(super) rows: Vec<Row>,
}

/// The parameters of a run.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Row {
    #[prost(message, repeated, tag = "1")]
    parameters: Vec<Parameter>,
}

/// A parameter; none of its kinds stands for NULL.
#[derive(Clone, PartialEq, Message)]
struct Parameter {
    #[prost(oneof = "ParameterValue", tags = "1, 2, 3, 4, 5")]
    value: Option<ParameterValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ParameterValue {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int(i64),
    #[prost(double, tag = "3")]
    Float(f64),
    #[prost(string, tag = "4")]
    Text(String),
    /// Nanoseconds since the Unix epoch.
    #[prost(int64, tag = "5")]
    Timestamp(i64),
}

impl Handle {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Status> {
        Self::decode(bytes).map_err(|_| Status::invalid_argument("the handle is not one that this server gave"))
    }

    /// What the one run of a query is value.
    pub(super) fn only_row(&self) -> Result<Vec<Value>, Status> {
        match self.rows.as_slice() {
            [] => Ok(Vec::new()),
            [row] => Ok(row.values()),
            rows => Err(Status::invalid_argument(format!("a query takes one row of parameters, not {}", rows.len()))),
        }
    }
}

impl Row {
    pub(super) fn from_values(values: &[Value]) -> Self {
        Self { parameters: values.iter().map(Parameter::from).collect() }
    }

    pub(super) fn values(&self) -> Vec<Value> {
        self.parameters.iter().map(Parameter::value).collect()
    }
}

impl Parameter {
    fn value(&self) -> Value {
        match &self.value {
            None => Value::Null,
            Some(ParameterValue::Bool(value)) => Value::Bool(*value),
            Some(ParameterValue::Int(value)) => Value::Int(*value),
            Some(ParameterValue::Float(value)) => Value::Float(*value),
            Some(ParameterValue::Text(text)) => Value::text(text.as_str()),
            Some(ParameterValue::Timestamp(ns)) => Value::Timestamp(*ns),
        }
    }
}

impl From<&Value> for Parameter {
    fn from(value: &Value) -> Self {
        let value = match value {
            Value::Null => None,
            Value::Bool(value) => Some(ParameterValue::Bool(*value)),
            Value::Int(value) => Some(ParameterValue::Int(*value)),
            Value::Float(value) => Some(ParameterValue::Float(*value)),
            Value::Timestamp(ns) | Value::LocalTimestamp(ns) | Value::Date(ns) => Some(ParameterValue::Timestamp(*ns)),
            Value::Unsigned(_) | Value::Text(_) | Value::Interval(_) => Some(ParameterValue::Text(value.to_string())),
        };
        Self { value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back() {
        let values = vec![
            Value::Null,
            Value::Bool(true),
            Value::Int(i64::MIN),
            Value::Float(-0.5),
            Value::text("é"),
            Value::Timestamp(7),
        ];
        let handle =
            Handle { database: "d".to_owned(), text: "SELECT $1".to_owned(), rows: vec![Row::from_values(&values)] };
        let back = Handle::read(&handle.encode_to_vec()).unwrap();
        assert_eq!((back.text.as_str(), back.database.as_str()), ("SELECT $1", "d"));
        assert_eq!(back.only_row().unwrap(), values);
    }

    #[test]
    fn hostile_handles_are_refused_or_read() {
        let whole =
            Handle { database: "d".to_owned(), text: "x".repeat(200), rows: vec![Row::from_values(&[Value::Int(1)])] };
        let bytes = whole.encode_to_vec();
        // A message that ends between two fields is one without those behind.
        let only_text = Handle { rows: Vec::new(), ..whole.clone() };
        let only_database = Handle { text: String::new(), ..only_text.clone() };
        let ends = [0, only_database.encoded_len(), only_text.encoded_len()];
        for end in 0..bytes.len() {
            assert_eq!(Handle::read(bytes.get(..end).unwrap()).is_ok(), ends.contains(&end), "{end}");
        }
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0xff;
            let _ = Handle::read(&damaged).map(|handle| handle.only_row());
        }
    }
}
