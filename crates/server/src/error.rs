//! Errors as Prometheus's API answers them.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use query::{QueryError, Stop};

use crate::http::json;

/// When to send again what could not be taken, in seconds.
pub(crate) const RETRY_AFTER_S: header::HeaderValue = header::HeaderValue::from_static("5");

/// The type of errors of statements that a method may not run.
const ONLY_BY_POST: &str = "method_not_allowed";

/// An error with Prometheus's type and the status that goes with it.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

impl ApiError {
    pub(crate) fn bad_data(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "bad_data", message: message.into() }
    }

    pub(crate) fn invalid_parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::bad_data(format!("invalid parameter {name:?}: {reason}"))
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, kind: "internal", message: message.into() }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, kind: "not_found", message: message.into() }
    }

    /// A statement that changes something came by a method that only reads.
    pub(crate) fn only_by_post(statement: &str) -> Self {
        let words: Vec<&str> = statement.split_whitespace().take(2).collect();
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            kind: ONLY_BY_POST,
            message: format!(
                "{} changes things: send it by POST; nothing of the request was executed",
                words.join(" ")
            ),
        }
    }

    /// What may be sent again later, as it is.
    pub(crate) fn later(message: impl Into<String>) -> Self {
        Self { status: StatusCode::TOO_MANY_REQUESTS, kind: "unavailable", message: message.into() }
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, kind: "bad_data", message: message.into() }
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        let message = error.to_string();
        match error {
            QueryError::Invalid(_) => Self::invalid_parameter("query", message),
            QueryError::Execution(_) | QueryError::TooManySamples { .. } | QueryError::TooMuchMemory { .. } => {
                Self { status: StatusCode::UNPROCESSABLE_ENTITY, kind: "execution", message }
            }
            QueryError::Stopped(Stop::Timeout) => {
                Self { status: StatusCode::SERVICE_UNAVAILABLE, kind: "timeout", message }
            }
            QueryError::Stopped(Stop::Cancelled) => {
                Self { status: StatusCode::SERVICE_UNAVAILABLE, kind: "canceled", message }
            }
            QueryError::Storage(_) => Self::internal(message),
            QueryError::Forbidden(_) => Self { status: StatusCode::FORBIDDEN, kind: "forbidden", message },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let kind = json::text(self.kind);
        let body = format!(r#"{{"status":"error","errorType":{kind},"error":{}}}"#, json::text(&self.message));
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_S);
        }
        if self.kind == ONLY_BY_POST {
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
        }
        response
    }
}
