//! Errors as Prometheus's API answers them.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use query::{QueryError, Stop};

use crate::json;

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
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let kind = json::text(self.kind);
        let body = format!(r#"{{"status":"error","errorType":{kind},"error":{}}}"#, json::text(&self.message));
        (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}
