//! Bodies, within bounds of size and time.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::error::ApiError;
use crate::state::State;

/// Takes a body as it was sent.
pub(crate) async fn collect(state: &Arc<State>, body: Body) -> Result<Vec<u8>, ApiError> {
    let limit = state.settings.body_bytes_max;
    let collected = tokio::time::timeout(state.body_timeout(), Limited::new(body, limit).collect()).await;
    match collected {
        Ok(Ok(collected)) => Ok(collected.to_bytes().into()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(ApiError::too_large(format!("the body has more than {limit} bytes (body_bytes_max)")))
        }
        Ok(Err(error)) => Err(ApiError::bad_data(format!("the body could not be read: {error}"))),
        Err(_) => Err(ApiError {
            status: StatusCode::REQUEST_TIMEOUT,
            kind: "timeout",
            message: format!("the body took longer than {} ms (body_timeout_ms)", state.settings.body_timeout_ms),
        }),
    }
}

/// Unpacks a body that says it is packed with gzip.
pub(crate) fn unpack(state: &State, headers: &HeaderMap, body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
    let encoding = headers.get(header::CONTENT_ENCODING).map_or("identity", |value| value.to_str().unwrap_or("?"));
    match encoding {
        "" | "identity" => Ok(body),
        "gzip" => {
            ingest::gzip::decompress_gzip(&body, state.settings.unpacked_bytes_max).map_err(|error| body_error(&error))
        }
        other => Err(ApiError {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            kind: "bad_data",
            message: format!("content encoding {other:?} is not supported; use gzip or none"),
        }),
    }
}

/// A body that no parser can use.
pub(crate) fn body_error(error: &ingest::BodyError) -> ApiError {
    match error {
        ingest::BodyError::TooLarge { .. } => ApiError::too_large(format!("{error} (unpacked_bytes_max)")),
        ingest::BodyError::Malformed(_) => ApiError::bad_data(error.to_string()),
    }
}
