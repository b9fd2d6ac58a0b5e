//! Who gets in by HTTP: decided from a request's head alone, before its body is read, for every route.
//!
//! A page of any site can have a browser send requests to this machine, and by DNS rebinding can give it any name. So the name by which a
//! request reaches the server ([`RequestGuard::accepts`]) and the page that it comes from ([`RequestGuard::admit`]) are checked. Programs send none of
//! the headers that say where a page is from, and are let in as before.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
use crate::http::page;
use crate::listen::socket::{Peer, Transport};
use crate::settings::ServerSettings;
use crate::sign_in::oidc::is_callback;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Methods that some route has.
const METHODS: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";

/// How the names of headers begin that only browsers send.
const FETCH_PREFIX: &str = "sec-fetch-";

/// What a request may do beside what its method says; put into its extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admitted {
    /// Whether it comes from a program that reached a loopback listener by a name that the server accepts: `GET /exec` may change things
    /// then. Elsewhere programs are not told from pages: to plain HTTP of other machines browsers send none of their headers.
    pub(crate) is_trusted_program: bool,
}

/// The checks of one listener.
#[derive(Debug)]
pub(crate) struct RequestGuard {
    is_loopback: bool,
    host_names: Vec<String>,
    origins: Vec<String>,
    /// Headers of every answer.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// What browsers are told by TLS: to use nothing else.
    strict_transport: Option<HeaderValue>,
}

impl RequestGuard {
    /// For a listener on an address.
    pub(crate) fn new(listener: IpAddr, settings: &ServerSettings) -> Self {
        Self {
            is_loopback: listener.to_canonical().is_loopback(),
            host_names: settings.host_names.clone(),
            origins: settings.origins.iter().map(|origin| origin.trim_end_matches('/').to_owned()).collect(),
            headers: settings.response_headers.iter().filter_map(parsed).collect(),
            strict_transport: settings
                .hsts_max_age_s
                .and_then(|age_s| HeaderValue::from_str(&format!("max-age={age_s}")).ok()),
        }
    }

    /// Adds the headers that every answer has, those of the settings in place of others.
    fn add_headers(&self, headers: &mut HeaderMap, is_tls: bool) {
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        if let Some(value) = self.strict_transport.as_ref().filter(|_| is_tls) {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, value.clone());
        }
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
    }

    /// Adds them to an answer to a request.
    pub(crate) fn finish(&self, request: &Request, response: &mut Response) {
        self.add_headers(response.headers_mut(), is_tls(request));
    }

    /// The origin of a page of the settings, which may read what it asks for.
    fn listed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.origins.iter().any(|listed| listed.eq_ignore_ascii_case(text)).then(|| origin.clone())
    }

    /// Decides by a request's head.
    fn admit<B>(&self, request: &Request<B>) -> Result<Admitted, ApiError> {
        let headers = request.headers();
        let from_browser = is_from_browser(headers);
        let host = host(request)?;
        let is_accepted = host.as_ref().is_some_and(|host| self.accepts(host.host()));
        if (self.is_loopback || from_browser) && host.is_some() && !is_accepted {
            return Err(forbidden(
                "the name in the Host header is not one of this server: use localhost or its address, or add the name to --host-names",
            ));
        }
        if from_browser {
            self.check_page(request, host.as_ref())?;
        }
        let is_trusted_program = self.is_loopback && is_accepted && !from_browser && !calls_itself_browser(headers);
        Ok(Admitted { is_trusted_program })
    }

    /// Whether a host may be this server: a loopback name always; an address where the listener is not on loopback, because a page
    /// cannot make an address mean another machine; and the names of the settings.
    fn accepts(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return !self.is_loopback || address.to_canonical().is_loopback() || self.names(host);
        }
        is_localhost(host) || self.names(host)
    }

    fn names(&self, host: &str) -> bool {
        self.host_names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }

    /// Refuses what pages of other origins ask for, but for following a link to the page itself.
    fn check_page<B>(&self, request: &Request<B>, host: Option<&Authority>) -> Result<(), ApiError> {
        let headers = request.headers();
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (origin, another) = (origins.next(), origins.next());
        if another.is_some() {
            return Err(forbidden("the request has more than one Origin header"));
        }
        if let Some(origin) = origin {
            let origin = origin.to_str().unwrap_or("?");
            if self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
                return Ok(());
            }
            if !host.is_some_and(|host| is_same_origin(origin, host)) {
                return Err(forbidden(
                    "a page of another origin asked for this; if it is a page or a proxy of yours, add its origin to --origins",
                ));
            }
        }
        // Every copy of the header must be harmless.
        let is_harmless = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
        if headers.get_all(FETCH_SITE).iter().all(is_harmless) || is_link_to_page(request) {
            return Ok(());
        }
        Err(forbidden("a page of another site asked for this (Sec-Fetch-Site)"))
    }
}

/// Whether a client is a browser by its own word: all of them begin so.
fn calls_itself_browser(headers: &HeaderMap) -> bool {
    headers.get_all(header::USER_AGENT).iter().any(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
}

/// Whether a person follows a link to the page: that is not told apart from typing the address. So comes back who has signed in at an identity
/// provider: what that may do is bound to a cookie of its own.
fn is_link_to_page<B>(request: &Request<B>) -> bool {
    let says = |name, value: &str| request.headers().get(name).is_some_and(|found: &HeaderValue| found == value);
    [Method::GET, Method::HEAD].contains(request.method())
        && says(FETCH_MODE, "navigate")
        && says(FETCH_DEST, "document")
        && (page::asset(request.uri().path()).is_some() || is_callback(request.uri().path()))
}

/// Whether a browser, or a proxy that hands a browser's headers on, sent this.
fn is_from_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN)
        || headers.contains_key(header::REFERER)
        || headers.keys().any(|name| name.as_str().starts_with(FETCH_PREFIX))
}

/// The one host that a request is for. Only before HTTP/1.1 it need not say.
fn host<B>(request: &Request<B>) -> Result<Option<Authority>, ApiError> {
    let bad = |message: &str| ApiError::bad_data(message);
    let mut named = request.headers().get_all(header::HOST).iter();
    let (first, another) = (named.next(), named.next());
    if another.is_some() {
        return Err(bad("the request has more than one Host header"));
    }
    let parsed = first.map(|value| Authority::try_from(value.as_bytes()));
    let in_header = parsed.transpose().map_err(|_| bad("the Host header is not a host and a port"))?;
    let in_target = request.uri().authority();
    let host = match (in_header, in_target) {
        (Some(header), Some(target)) if !header.as_str().eq_ignore_ascii_case(target.as_str()) => {
            return Err(bad("the Host header and the request's target name different hosts"));
        }
        (Some(host), _) => host,
        (None, Some(target)) if request.version() == Version::HTTP_2 => target.clone(),
        (None, None) if matches!(request.version(), Version::HTTP_10 | Version::HTTP_09) => return Ok(None),
        (None, _) => return Err(bad("the request has no Host header")),
    };
    if host.as_str().contains('@') || host.host().is_empty() {
        return Err(bad("the Host header is not a host and a port"));
    }
    Ok(Some(host))
}

/// `localhost` and the names below it, which no name server is asked for.
fn is_localhost(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

fn is_same_origin(origin: &str, host: &Authority) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    !authority.as_str().contains('@')
        && authority.host().eq_ignore_ascii_case(host.host())
        && authority.port_u16().unwrap_or(port) == host.port_u16().unwrap_or(port)
}

/// A header of the settings; one that cannot be read was refused there.
fn parsed((name, value): &(String, String)) -> Option<(HeaderName, HeaderValue)> {
    Some((name.parse().ok()?, value.parse().ok()?))
}

fn forbidden(message: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", message.to_owned())
}

fn is_tls(request: &Request) -> bool {
    request.extensions().get::<Peer>().is_some_and(|peer| peer.transport == Transport::Tls)
}

/// Lets a request in, or answers why not. Its body has not been read then. OPTIONS of everything is answered here.
pub(crate) async fn check(From(guard): From<Arc<RequestGuard>>, mut request: Request, next: Next) -> Response {
    let is_tls = is_tls(&request);
    let admitted = match guard.admit(&request) {
        Ok(admitted) => admitted,
        Err(error) => {
            let mut refused = error.into_response();
            guard.add_headers(refused.headers_mut(), is_tls);
            return refused;
        }
    };
    let origin = guard.listed_origin(request.headers());
    request.extensions_mut().insert(admitted);
    let mut response = if request.method() == Method::OPTIONS {
        (StatusCode::NO_CONTENT, [(header::ALLOW, METHODS)]).into_response()
    } else {
        next.run(request).await
    };
    if let Some(origin) = origin {
        share_with(response.headers_mut(), origin);
    }
    guard.add_headers(response.headers_mut(), is_tls);
    response
}

/// Lets the page of an origin read an answer (CORS).
fn share_with(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Accept, Authorization, Content-Type, Origin"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(listener: &str) -> RequestGuard {
        let mut settings = ServerSettings::new("127.0.0.1:0".parse().unwrap());
        settings.host_names = vec!["db.example".to_owned()];
        settings.origins = vec!["http://grafana:3000".to_owned()];
        RequestGuard::new(listener.parse().unwrap(), &settings)
    }

    fn admitted(listener: &str, target: &str, headers: &[(&str, &str)]) -> Result<bool, u16> {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let admitted = guard(listener).admit(&request.body(()).unwrap());
        admitted.map(|admitted| admitted.is_trusted_program).map_err(|error| error.status.as_u16())
    }

    #[test]
    fn hosts_are_loopback_names_addresses_and_those_of_the_settings() {
        for (listener, host, expected) in [
            ("127.0.0.1", "localhost:7780", Ok(true)),
            ("127.0.0.1", "LOCALHOST.", Ok(true)),
            ("127.0.0.1", "a.localhost", Ok(true)),
            ("127.0.0.1", "127.8.0.1:1", Ok(true)),
            ("::1", "[::1]:7780", Ok(true)),
            ("::1", "[::ffff:127.0.0.1]:7780", Ok(true)),
            ("127.0.0.1", "db.example:80", Ok(true)),
            ("127.0.0.1", "evil.example", Err(403)),
            ("127.0.0.1", "localhost.evil.example", Err(403)),
            ("127.0.0.1", "notlocalhost", Err(403)),
            ("127.0.0.1", "10.0.0.1:7780", Err(403)),
            ("127.0.0.1", "user@localhost", Err(400)),
            ("127.0.0.1", "", Err(400)),
            // A program may reach a public listener by any name, but is not trusted with changes by GET.
            ("0.0.0.0", "anything", Ok(false)),
            ("0.0.0.0", "10.0.0.1:7780", Ok(false)),
            ("10.0.0.1", "localhost", Ok(false)),
        ] {
            assert_eq!(admitted(listener, "/", &[("host", host)]), expected, "{listener} {host}");
        }
        assert_eq!(
            admitted("127.0.0.1", "/", &[("host", "localhost"), ("user-agent", "Mozilla/5.0 (X11)")]),
            Ok(false)
        );
        assert_eq!(
            admitted("127.0.0.1", "/", &[("host", "localhost"), ("user-agent", "curl/8 Mozilla/5.0")]),
            Ok(true)
        );
        assert_eq!(admitted("127.0.0.1", "/", &[]), Err(400), "none");
        assert_eq!(admitted("127.0.0.1", "/", &[("host", "localhost"), ("host", "localhost")]), Err(400), "two");
        assert_eq!(admitted("127.0.0.1", "http://evil.example/", &[("host", "localhost")]), Err(400), "another target");
        assert_eq!(admitted("127.0.0.1", "http://localhost/", &[("host", "localhost")]), Ok(true), "the same target");
    }

    #[test]
    fn pages_of_other_origins_stay_outside() {
        for (listener, path, host, headers, expected) in [
            ("127.0.0.1", "/sql", "127.0.0.1:7780", &[("origin", "http://127.0.0.1:7780")][..], Ok(false)),
            ("127.0.0.1", "/sql", "localhost", &[("origin", "http://localhost:80")], Ok(false)),
            ("127.0.0.1", "/sql", "127.0.0.1:7780", &[("origin", "http://127.0.0.1:3000")], Err(403)),
            ("127.0.0.1", "/sql", "127.0.0.1:7780", &[("origin", "http://localhost:7780")], Err(403)),
            ("127.0.0.1", "/sql", "127.0.0.1:7780", &[("origin", "https://evil.example")], Err(403)),
            ("127.0.0.1", "/sql", "127.0.0.1:7780", &[("origin", "null")], Err(403)),
            ("127.0.0.1", "/", "127.0.0.1:7780", &[("origin", "null")], Err(403)),
            ("127.0.0.1", "/sql", "localhost:1", &[("origin", "http://grafana:3000")], Ok(false)),
            (
                "127.0.0.1",
                "/sql",
                "localhost:1",
                &[("origin", "http://grafana:3000"), ("sec-fetch-site", "cross-site")],
                Ok(false),
            ),
            (
                "127.0.0.1",
                "/sql",
                "localhost:1",
                &[("origin", "http://localhost:1"), ("origin", "http://localhost:1")],
                Err(403),
            ),
            ("127.0.0.1", "/sql", "localhost:1", &[("sec-fetch-site", "same-origin")], Ok(false)),
            ("127.0.0.1", "/sql", "localhost:1", &[("sec-fetch-site", "none")], Ok(false)),
            ("127.0.0.1", "/sql", "localhost:1", &[("sec-fetch-site", "cross-site")], Err(403)),
            ("127.0.0.1", "/sql", "localhost:1", &[("sec-fetch-site", "same-site")], Err(403)),
            ("127.0.0.1", "/sql", "localhost:1", &[("referer", "http://evil.example/")], Ok(false)),
            ("0.0.0.0", "/sql", "rebound.example", &[("referer", "http://rebound.example/")], Err(403)),
            ("0.0.0.0", "/sql", "rebound.example", &[("origin", "http://rebound.example")], Err(403)),
            ("0.0.0.0", "/sql", "db.example", &[("origin", "https://db.example")], Ok(false)),
        ] {
            let headers = [&[("host", host)], headers].concat();
            assert_eq!(admitted(listener, path, &headers), expected, "{listener} {path} {headers:?}");
        }
    }

    #[test]
    fn a_link_leads_to_the_page_and_nowhere_else() {
        let link = [("host", "localhost:1"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        let with = |dest| [&link[..], &[("sec-fetch-dest", dest)]].concat();
        assert_eq!(admitted("127.0.0.1", "/", &with("document")), Ok(false));
        assert_eq!(admitted("127.0.0.1", "/", &with("iframe")), Err(403));
        assert_eq!(admitted("127.0.0.1", "/api/v1/query?query=1", &with("document")), Err(403));
        assert_eq!(admitted("127.0.0.1", "/exec?query=x", &with("document")), Err(403));
    }
}
