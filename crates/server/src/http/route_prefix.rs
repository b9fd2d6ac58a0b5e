//! A prefix before every path of HTTP, as Prometheus's `--web.route-prefix` has it.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tower::ServiceExt;

use crate::error::ApiError;
use crate::http::guard::RequestGuard;

/// What stands before every path, as `/thalweg`; by default nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoutePrefix(String);

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
enum Target<'a> {
    /// To this path without the prefix.
    Route(&'a str),
    /// To the page, which has a slash at its end: what it loads is relative to that.
    Page,
    /// Nowhere.
    Outside,
}

impl RoutePrefix {
    /// Reads it from a setting, or from the path of an external URL. Slashes around it have no meaning.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bare = text.trim_matches('/');
        if bare.is_empty() {
            return Ok(Self::default());
        }
        let prefix = format!("/{bare}");
        let is_path = prefix.parse::<Uri>().is_ok_and(|uri| uri.path() == prefix);
        if is_path && !prefix.contains("//") { Ok(Self(prefix)) } else { Err(format!("{text:?} is no path")) }
    }

    /// The prefix as Prometheus shows it: `/` if there is none.
    pub fn as_str(&self) -> &str {
        if self.0.is_empty() { "/" } else { &self.0 }
    }

    fn target<'a>(&self, path: &'a str) -> Target<'a> {
        match path.strip_prefix(&self.0) {
            Some("") => Target::Page,
            Some(rest) if rest.starts_with('/') => Target::Route(rest),
            _ if path == "/" => Target::Page,
            _ => Target::Outside,
        }
    }

    /// Puts the routes after the prefix. What is not there has the headers of every answer nevertheless.
    pub(crate) fn wrap(&self, guard: &Arc<RequestGuard>, router: Router) -> Router {
        if self.0.is_empty() {
            return router;
        }
        let (prefix, guard) = (self.clone(), guard.clone());
        Router::new().fallback(move |request: Request| async move { prefix.answer(&guard, router, request).await })
    }

    async fn answer(&self, guard: &RequestGuard, router: Router, mut request: Request) -> Response {
        let mut response = match self.target(request.uri().path()) {
            Target::Route(path) => {
                let Some(uri) = with_path(request.uri(), path) else {
                    return ApiError::bad_data("the path is no path").into_response();
                };
                *request.uri_mut() = uri;
                return router.oneshot(request).await.unwrap_or_else(|never| match never {});
            }
            Target::Page => (StatusCode::FOUND, [(header::LOCATION, format!("{}/", self.0))]).into_response(),
            Target::Outside => {
                let message = format!("there is nothing at {}: paths begin with {}", request.uri().path(), self.0);
                ApiError::not_found(message).into_response()
            }
        };
        guard.finish(&request, &mut response);
        response
    }
}

/// A target with another path.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let target = uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_paths_without_slashes_around_them() {
        for (text, expected) in [("", "/"), ("/", "/"), ("a", "/a"), ("/a/", "/a"), ("//a/b//", "/a/b")] {
            assert_eq!(RoutePrefix::parse(text).unwrap().as_str(), expected, "{text}");
        }
        for text in ["a b", "a?b", "a#b", "a//b"] {
            assert!(RoutePrefix::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn paths_after_the_prefix_are_routes() {
        let prefix = RoutePrefix::parse("/a").unwrap();
        for (path, expected) in [
            ("/", Target::Page),
            ("/a", Target::Page),
            ("/a/", Target::Route("/")),
            ("/a/api/v1/query", Target::Route("/api/v1/query")),
            ("/ab", Target::Outside),
            ("/api/v1/query", Target::Outside),
        ] {
            assert_eq!(prefix.target(path), expected, "{path}");
        }
        let uri = with_path(&"http://h/a/b?c=/a/".parse().unwrap(), "/b").unwrap();
        assert_eq!(uri.to_string(), "http://h/b?c=/a/");
    }
}
