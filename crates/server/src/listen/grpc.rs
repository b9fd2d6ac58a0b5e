//! gRPC as far as OpenTelemetry's exporters need it: one call, one message there, one back, over HTTP/2 without TLS.
//!
//! A message is a byte that says whether it is packed, its length in four bytes, and its bytes; the outcome is told in
//! trailers (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use std::fmt::Write;
use std::sync::Arc;

use access::rate::Counted;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::{BodyExt, Full};
use ingest::encoding::Encoding;

use crate::error::ApiError;
use crate::http::body::{Form, collect, unpack_as};
use crate::http::parameters::Parameters;
use crate::http::request::tenant_of;
use crate::http::write::otlp::{grpc_code, write_metrics};
use crate::sign_in::Caller;
use crate::state::State;

const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Packings that are understood, as answers tell them.
const ENCODINGS: HeaderValue = HeaderValue::from_static("identity,gzip,deflate,zstd,snappy");

/// Bytes before a message.
const PREFIX_BYTES: usize = 5;

pub(crate) fn router(state: Arc<State>) -> Router {
    Router::new().route(EXPORT, post(export)).fallback(unknown).with_state(state)
}

async fn unknown(request: Request) -> Response {
    let message = format!("there is no {}", request.uri().path());
    status(&ApiError::not_found(message))
}

async fn export(From(state): From<Arc<State>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let is_grpc =
        head.headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "this port speaks gRPC; OTLP/HTTP is at /v1/metrics")
            .into_response();
    }
    let written = async {
        let caller = Caller::from_extensions(&head.extensions);
        let tenant = tenant_of(&state, &head, &caller);
        let (mut body, mut share) = collect(&state, &tenant, body).await?;
        state.take(&caller.scope, &tenant, (Counted::Bytes, body.len() as u64))?;
        let to = state.destination(Parameters::default().database(&head.headers), &caller.scope)?;
        let packing = packing(&head.headers)?;
        share.queue_if_large(packing, &body, state.body_timeout()).await?;
        let work = move |state: &State| {
            let is_packed = read_message(&mut body)?;
            let encoding = if is_packed { packing } else { Encoding::Identity };
            let message = unpack_as(state, encoding, body, (&mut share, Form::Protobuf))?;
            write_metrics(state, &to, &message)
        };
        state.work_of(&tenant, work).await?
    };
    let answer = written.await;
    let code = answer.as_ref().map_or_else(|error| error.status, |_| StatusCode::OK);
    state.metrics.count_request("otlp grpc", code.as_u16());
    match answer {
        Ok(answer) => message(&answer.to_protobuf()),
        Err(error) => status(&error),
    }
}

fn packing(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    let name = headers.get("grpc-encoding").map_or("", |value| value.to_str().unwrap_or("?"));
    Encoding::from_name(name)
        .ok_or_else(|| ApiError::not_found(format!("grpc-encoding {name:?} is not supported; use {}", Encoding::NAMES)))
}

/// Leaves the one message of a call, and says whether it is packed.
fn read_message(body: &mut Vec<u8>) -> Result<bool, ApiError> {
    let prefix = body.first_chunk::<PREFIX_BYTES>().copied();
    let [flag, length @ ..] = prefix.ok_or_else(|| ApiError::bad_data("a message of gRPC has at least five bytes"))?;
    let length = u32::from_be_bytes(length) as usize;
    if body.len() - PREFIX_BYTES != length || flag > 1 {
        let found = body.len() - PREFIX_BYTES;
        return Err(ApiError::bad_data(format!("expected one message of {length} bytes, found {found}")));
    }
    body.drain(..PREFIX_BYTES);
    Ok(flag == 1)
}

/// An answer that ends well.
fn message(content: &[u8]) -> Response {
    let mut framed = vec![0];
    framed.extend_from_slice(&(content.len() as u32).to_be_bytes());
    framed.extend_from_slice(content);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from(framed)).with_trailers(std::future::ready(Some(Ok(trailers))));
    let headers = [(header::CONTENT_TYPE, GRPC), (header::HeaderName::from_static("grpc-accept-encoding"), ENCODINGS)];
    (headers, Body::new(body)).into_response()
}

/// An answer that is an outcome alone.
pub(crate) fn status(error: &ApiError) -> Response {
    let mut response = ([(header::CONTENT_TYPE, GRPC)], Body::empty()).into_response();
    let headers = response.headers_mut();
    headers.insert("grpc-status", HeaderValue::from(grpc_code(error.status)));
    headers.insert("grpc-accept-encoding", ENCODINGS);
    if let Some(wait) = error.retry_after {
        headers
            .insert("grpc-retry-pushback-ms", HeaderValue::from(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
    }
    if let Ok(message) = HeaderValue::from_str(&percent_encode(&error.message)) {
        headers.insert("grpc-message", message);
    }
    response
}

/// Printable ASCII stays, everything else and the percent sign is encoded.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_framed_and_texts_encoded() {
        let mut body = b"\x01\0\0\0\x02ab".to_vec();
        assert!(read_message(&mut body).unwrap());
        assert_eq!(body, b"ab");
        for bad in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x02a", b"\0\0\0\0\x01ab", b"\x02\0\0\0\0", b"\0\xff\xff\xff\xff"]
        {
            assert!(read_message(&mut bad.to_vec()).is_err(), "{bad:?}");
        }
        assert_eq!(percent_encode("100 % ä\n"), "100 %25 %C3%A4%0A");
    }
}
