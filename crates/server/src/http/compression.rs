//! Which answers are compressed: those for clients that ask for it, unless they are on this machine. Loopback carries an answer in a tenth of the
//! time that it takes to compress it (`docs/decisions/0009-answers-on-loopback.md`).

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{Extensions, HeaderMap, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{And, DefaultPredicate, Predicate};

use crate::scheduler::running::Remote;
use crate::settings::Compression;
use crate::state::State;

impl Compression {
    /// Whether the answer to a request may be compressed.
    fn is_for(self, remote: Option<SocketAddr>, headers: &HeaderMap) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Remote => {
                let is_near = remote.is_some_and(|remote| remote.ip().to_canonical().is_loopback());
                let by_proxy = [header::FORWARDED, header::VIA].iter().any(|name| headers.contains_key(name));
                !is_near || by_proxy || headers.contains_key("x-forwarded-for")
            }
        }
    }
}

/// In a response: it goes out as it is.
#[derive(Clone, Copy)]
struct AsItIs;

/// Marks the responses that are not to be compressed; within [`layer`].
pub(crate) async fn mark(From(state): From<Arc<State>>, request: Request, next: Next) -> Response {
    let remote = request.extensions().get::<Remote>().map(|remote| remote.0);
    let is_compressed = state.settings.http_compression.is_for(remote, request.headers());
    let mut response = next.run(request).await;
    if !is_compressed {
        response.extensions_mut().insert(AsItIs);
    }
    response
}

/// What [`layer`] asks of a response.
type Asks = And<DefaultPredicate, fn(StatusCode, Version, &HeaderMap, &Extensions) -> bool>;

/// Compresses what is not marked. Answers go over a fast network once: a smaller one is not worth more time than it took to compute.
pub(crate) fn layer() -> CompressionLayer<Asks> {
    let is_unmarked: fn(StatusCode, Version, &HeaderMap, &Extensions) -> bool =
        |_, _, _, extensions| extensions.get::<AsItIs>().is_none();
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(DefaultPredicate::new().and(is_unmarked))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_client_on_this_machine_gets_answers_as_they_are() {
        let of = |word: &str, remote: &str, headers: &[&'static str]| {
            let names = headers.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x")));
            Compression::from_name(word).unwrap().is_for(remote.parse().ok(), &names.collect())
        };
        for (word, remote, headers, expected) in [
            ("remote", "127.0.0.1:5", &[][..], false),
            ("remote", "[::1]:5", &[], false),
            ("remote", "[::ffff:127.0.0.9]:5", &[], false),
            ("remote", "127.0.0.1:5", &["x-forwarded-for"], true),
            ("remote", "127.0.0.1:5", &["forwarded"], true),
            ("remote", "127.0.0.1:5", &["via"], true),
            ("remote", "10.0.0.1:5", &[], true),
            ("remote", "nobody knows", &[], true),
            ("always", "127.0.0.1:5", &[], true),
            ("never", "10.0.0.1:5", &["via"], false),
        ] {
            assert_eq!(of(word, remote, headers), expected, "{word} {remote} {headers:?}");
        }
        assert_eq!(Compression::from_name("sometimes"), None);
    }
}
