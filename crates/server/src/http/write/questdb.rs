//! QuestDB's `/imp`: a file of CSV as the part `data` of a multipart form.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ingest::csv::{CsvImporter, CsvMapping, TimeFormat};
use serde_json::{Value, json};

use super::Outcome;
use super::imports::{csv_error, import_csv};
use crate::error::ApiError;
use crate::http::body::{Form, unpack};
use crate::http::multipart;
use crate::http::parameters::Parameters;
use crate::http::request::{RequestParts, extract_write};
use crate::state::State;

/// Names of the column of time, unless `timestamp` names it.
const TIME_NAMES: [&str; 2] = ["timestamp", "time"];

/// `POST /imp`: `name`, `timestamp`, `delimiter`, `fmt`; types of columns in the part `schema`, of which SYMBOL makes a tag.
pub(crate) async fn imp(From(state): From<Arc<State>>, request: Request) -> Response {
    let imported = async {
        let parts = extract_write(&state, request).await?;
        let is_json = parts.parameters.get("fmt") == Some("json");
        let imported = state.work_of(&parts.tenant.clone(), move |state| import(state, parts)).await??;
        Ok(if is_json { imported.json() } else { imported.text() })
    };
    imported.await.unwrap_or_else(|error: ApiError| {
        let body = json!({ "status": error.message }).to_string();
        let response = (error.status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        super::with_retry_after(error.status, error.retry_after_s(), response)
    })
}

/// What came of a file.
struct Imported {
    table: String,
    time_column: String,
    columns: Vec<Value>,
    outcome: Outcome,
}

fn import(state: &State, mut parts: RequestParts) -> Result<Imported, ApiError> {
    let to = state.destination(parts.parameters.database(&parts.headers), &parts.caller.scope)?;
    let body = unpack(state, &parts.headers, parts.body, (&mut parts.share, Form::Text))?;
    let Some(data) = multipart::part(&parts.headers, &body, "data")? else {
        return Err(ApiError::bad_data("the file is missing: send it as the part \"data\" of a multipart form"));
    };
    if parts.parameters.flag("overwrite", false)? {
        return Err(ApiError::invalid_parameter("overwrite", "tables are not replaced here: DROP TABLE first"));
    }
    let schema = multipart::part(&parts.headers, &body, "schema")?;
    let symbols = symbols(schema.map_or(&b"[]"[..], |schema| schema.content))?;
    let header =
        String::from_utf8_lossy(data.content.split(|byte| *byte == b'\n').next().unwrap_or_default()).into_owned();
    let mapping = mapping(&parts.parameters, data.file, symbols, &header)?;
    let (table, time_column) = (mapping.measurement.clone(), mapping.time_column.clone().unwrap_or_default());
    let column = |name: &str| {
        let kind = if name == time_column {
            Some("TIMESTAMP")
        } else {
            mapping.tags.iter().any(|tag| tag == name).then_some("SYMBOL")
        };
        json!({ "name": name, "type": kind, "errors": 0 })
    };
    let columns = names(&header, mapping.delimiter).map(column).collect();
    let importer = CsvImporter::new(data.content.into(), mapping, state.db.limits().clone()).map_err(csv_error)?;
    let outcome = import_csv(state, &to, importer)?.number_lines();
    Ok(Imported { table, time_column, columns, outcome })
}

/// The columns that the schema declares as symbols: `[{"name":"sym","type":"SYMBOL"},…]`.
fn symbols(schema: &[u8]) -> Result<Vec<String>, ApiError> {
    let schema: Vec<Value> = serde_json::from_slice(schema)
        .map_err(|error| ApiError::bad_data(format!("the part \"schema\" is no list of columns: {error}")))?;
    let is_symbol = |column: &&Value| column["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("symbol"));
    Ok(schema.iter().filter(is_symbol).filter_map(|column| column["name"].as_str()).map(str::to_owned).collect())
}

fn names(header: &str, delimiter: u8) -> impl Iterator<Item = &str> {
    header.trim_end().split(char::from(delimiter)).map(|name| name.trim().trim_matches('"'))
}

fn mapping(
    parameters: &Parameters,
    file: Option<String>,
    symbols: Vec<String>,
    header: &str,
) -> Result<CsvMapping, ApiError> {
    let delimiter = match parameters.get("delimiter").map(str::as_bytes) {
        None => b',',
        Some([delimiter]) => *delimiter,
        Some(_) => return Err(ApiError::invalid_parameter("delimiter", "it is one character of ASCII")),
    };
    let named = parameters.get("timestamp");
    let time_column = names(header, delimiter)
        .find(|name| named.map_or_else(|| TIME_NAMES.contains(name), |named| named == *name))
        .ok_or_else(|| match named {
            Some(named) => ApiError::invalid_parameter("timestamp", format!("the file has no column {named:?}")),
            None => ApiError::invalid_parameter("timestamp", "name the column with the times of rows"),
        })?;
    Ok(CsvMapping {
        measurement: parameters.get("name").map(str::to_owned).or(file).unwrap_or_else(|| "imported".to_owned()),
        time_column: Some(time_column.to_owned()),
        time_format: TimeFormat::Auto,
        tags: symbols,
        fields: None,
        delimiter,
    })
}

impl Imported {
    fn json(&self) -> Response {
        let reasons: Vec<&str> = self.outcome.reasons.iter().map(|reason| reason.text.as_str()).collect();
        let body = json!({
            "status": "OK",
            "location": self.table,
            "rowsRejected": self.outcome.dropped,
            "rowsImported": self.outcome.written,
            "header": true,
            "partitionBy": "DAY",
            "timestamp": self.time_column,
            "warnings": reasons,
            "columns": self.columns,
        });
        (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
    }

    fn text(&self) -> Response {
        let Outcome { written, dropped, reasons, .. } = &self.outcome;
        let mut body = format!("table: {}\nrows imported: {written}\nrows rejected: {dropped}\n", self.table);
        for reason in reasons {
            body.push_str(&reason.text);
            body.push('\n');
        }
        (StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
    }
}
