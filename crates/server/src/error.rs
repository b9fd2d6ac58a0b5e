//! Errors as Prometheus's API answers them.

use std::time::Duration;

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
    /// When to try again, where that is known.
    pub(crate) retry_after: Option<Duration>,
}

impl ApiError {
    pub(crate) const fn new(status: StatusCode, kind: &'static str, message: String) -> Self {
        Self { status, kind, message, retry_after: None }
    }

    pub(crate) fn bad_data(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_data", message.into())
    }

    pub(crate) fn invalid_parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::bad_data(format!("invalid parameter {name:?}: {reason}"))
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message.into())
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message.into())
    }

    /// A statement that changes something came by a method that only reads.
    pub(crate) fn only_by_post(statement: &str) -> Self {
        let words: Vec<&str> = statement.split_whitespace().take(2).collect();
        let message =
            format!("{} changes things: send it by POST; nothing of the request was executed", words.join(" "));
        Self::new(StatusCode::METHOD_NOT_ALLOWED, ONLY_BY_POST, message)
    }

    /// What may be sent again later, as it is.
    pub(crate) fn later(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "unavailable", message.into())
    }

    /// After how many seconds to try again.
    pub(crate) fn retry_after_s(&self) -> header::HeaderValue {
        // A part of a second counts as one.
        let seconds = |wait: Duration| wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
        self.retry_after.map_or(RETRY_AFTER_S, |wait| seconds(wait).into())
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "bad_data", message.into())
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        let message = error.to_string();
        match error {
            QueryError::Invalid(_) => Self::invalid_parameter("query", message),
            QueryError::Execution(_) | QueryError::TooManySamples { .. } | QueryError::TooMuchMemory { .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "execution", message)
            }
            QueryError::Stopped(Stop::Timeout) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message),
            QueryError::Stopped(Stop::Cancelled) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "canceled", message),
            QueryError::OverQuota(_) => Self::later(message),
            QueryError::Storage(_) => Self::internal(message),
            QueryError::Forbidden(_) => Self::new(StatusCode::FORBIDDEN, "forbidden", message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let kind = json::text(self.kind);
        let body = format!(r#"{{"status":"error","errorType":{kind},"error":{}}}"#, json::text(&self.message));
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(header::RETRY_AFTER, self.retry_after_s());
        }
        if self.kind == ONLY_BY_POST {
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
        }
        response
    }
}
