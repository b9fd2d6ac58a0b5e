//! Go's text templates as Prometheus uses them in labels and annotations: missing labels are empty texts.
//!
//! * `lexer`, `parser`: text to trees · `run`: trees to text, within bounds of steps, bytes and depth · `value`: what they work on
//! * `functions`: Go's and Prometheus's, with `printf` and `humanize`

mod functions;
mod humanize;
mod lexer;
mod parser;
mod printf;
mod run;
#[cfg(test)]
mod tests;
mod value;

use std::sync::Arc;

use promql::{EvaluationResult, ResultValue};

pub(crate) use functions::link;
pub use value::{TextMap, Value};

/// Bytes of a template.
const TEMPLATE_BYTES_MAX: usize = 1 << 20;

/// What a template of an alert can use without saying so.
const DEFINITIONS: &str =
    "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}";

/// A template of an alert with the variables that it can use.
pub fn with_definitions(text: &str) -> String {
    format!("{DEFINITIONS}{text}")
}

/// A number as Go prints it.
pub(crate) fn number_text(value: f64) -> String {
    printf::float(value, 'v', None)
}

/// A parsed template.
#[derive(Debug, Clone)]
pub struct Template {
    name: String,
    templates: parser::Templates,
}

/// What an expansion may use.
pub struct Expansion<'a> {
    /// What `.` stands for.
    pub dot: &'a Value,
    /// The time of evaluation.
    pub time_ms: i64,
    /// The address by which the server is reached from outside.
    pub external_url: &'a str,
    /// Evaluates PromQL at that time.
    pub query: &'a dyn Fn(&str) -> Result<Value, String>,
}

impl Template {
    /// Parses a text.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(format!("template: {name}: the text is too long"));
        }
        Ok(Self { name: name.to_owned(), templates: parser::parse(name, text)? })
    }

    /// Its text for a value.
    pub fn expand(&self, expansion: &Expansion<'_>) -> Result<String, String> {
        let mut run = run::Run::new(&self.templates, expansion);
        let done = run.template(&self.name, expansion.dot);
        done.map_err(|reason| format!("error executing template {}: {reason}", self.name))?;
        Ok(run.out)
    }
}

/// What a template sees of an alert.
pub fn alert_data(labels: &TextMap, external: &TextMap, external_url: &str, value: f64) -> Value {
    let fields = [
        ("Labels", Value::Labels(Arc::new(labels.clone()))),
        ("ExternalLabels", Value::Labels(Arc::new(external.clone()))),
        ("ExternalURL", Value::text(external_url)),
        ("Value", Value::Float(value)),
    ];
    Value::Map(Arc::new(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
}

/// The result of a query as `query` gives it.
pub fn query_value(result: EvaluationResult) -> Result<Value, String> {
    let samples = match result.value {
        ResultValue::Vector(samples) => samples
            .into_iter()
            .map(|sample| {
                let labels = sample.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
                Value::Sample(Arc::new(labels.collect()), sample.value)
            })
            .collect(),
        ResultValue::Scalar { value, .. } => vec![Value::Sample(Arc::default(), value)],
        ResultValue::String { text, .. } => {
            let labels = TextMap::from([(functions::TEXT_LABEL.to_owned(), text)]);
            vec![Value::Sample(Arc::new(labels), 0.0)]
        }
        ResultValue::Matrix(_) => return Err("query did not return an instant vector".to_owned()),
    };
    Ok(Value::List(Arc::new(samples)))
}
