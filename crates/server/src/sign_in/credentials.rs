//! Credentials in requests of HTTP, in the ways that clients of Prometheus, InfluxDB 1 to 3, Grafana and QuestDB send them.

use axum::http::{HeaderMap, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{OwnedCredentials, unauthorized};
use crate::error::ApiError;

/// The header of a bare token.
const API_KEY: &str = "x-api-key";

/// What a request signs in with: `Authorization: Bearer`, `Token` or `Basic`, `X-API-Key`, or InfluxDB 1's parameters `u` and `p`.
/// A header wins over parameters. Two `Authorization` headers are refused, since a proxy may have checked the other one.
pub(crate) fn of_request(headers: &HeaderMap, uri: &Uri) -> Result<Option<OwnedCredentials>, ApiError> {
    let mut authorizations = headers.get_all(header::AUTHORIZATION).iter();
    if let Some(value) = authorizations.next() {
        if authorizations.next().is_some() {
            return Err(unauthorized("the request has more than one Authorization header"));
        }
        let text = value.to_str().map_err(|_| unauthorized("the Authorization header cannot be read"))?;
        return authorization(text).map(Some);
    }
    if let Some(key) = headers.get(API_KEY) {
        let text = key.to_str().map_err(|_| unauthorized("the X-API-Key header cannot be read"))?;
        return Ok(Some(token(text)));
    }
    Ok(of_parameters(uri.query().unwrap_or_default()))
}

/// Reads an `Authorization` header.
pub(crate) fn authorization(text: &str) -> Result<OwnedCredentials, ApiError> {
    let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("basic") {
        let decoded = STANDARD.decode(rest).ok().and_then(|bytes| String::from_utf8(bytes).ok()).map(Zeroizing::new);
        let pair = decoded.as_deref().and_then(|pair| pair.split_once(':'));
        let (name, password) = pair.ok_or_else(|| unauthorized("the Basic credentials cannot be read"))?;
        return Ok(password_of(name, password));
    }
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(token(rest));
    }
    if scheme.eq_ignore_ascii_case("token") {
        // InfluxDB 1.8 lets clients of version 2 send a user and a password so.
        return Ok(rest.split_once(':').map_or_else(|| token(rest), |(name, password)| password_of(name, password)));
    }
    Err(unauthorized("the Authorization header is neither Bearer, Token nor Basic"))
}

fn of_parameters(query: &str) -> Option<OwnedCredentials> {
    let (mut name, mut password) = (None, None);
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        match key.as_ref() {
            "u" => name = name.or(Some(value.into_owned())),
            "p" => password = password.or_else(|| Some(Zeroizing::new(value.into_owned()))),
            _ => {}
        }
    }
    let password = password?;
    Some(OwnedCredentials::Password { name: name.unwrap_or_default(), password })
}

fn token(text: &str) -> OwnedCredentials {
    OwnedCredentials::Token(Zeroizing::new(text.to_owned()))
}

pub(super) fn password_of(name: &str, password: &str) -> OwnedCredentials {
    OwnedCredentials::Password { name: name.to_owned(), password: Zeroizing::new(password.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(headers: &[(&str, &str)], target: &str) -> Result<String, u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(header::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        match of_request(&map, &target.parse().unwrap()) {
            Ok(None) => Ok("none".to_owned()),
            Ok(Some(OwnedCredentials::Token(token))) => Ok(format!("token {}", *token)),
            Ok(Some(OwnedCredentials::Password { name, password })) => Ok(format!("{name} {}", *password)),
            Err(error) => Err(error.status.as_u16()),
        }
    }

    #[test]
    fn credentials_come_in_many_ways() {
        for (headers, target, expected) in [
            (&[][..], "/query?q=x", Ok("none")),
            (&[("authorization", "Bearer abc")], "/", Ok("token abc")),
            (&[("authorization", "bearer  abc ")], "/", Ok("token abc")),
            (&[("authorization", "Token abc")], "/", Ok("token abc")),
            (&[("authorization", "Token user:pass")], "/", Ok("user pass")),
            (&[("authorization", "Basic dXNlcjpwYTpzcw==")], "/", Ok("user pa:ss")),
            (&[("x-api-key", "abc")], "/", Ok("token abc")),
            (&[], "/write?u=user&p=a%20b", Ok("user a b")),
            (&[], "/write?p=abc", Ok(" abc")),
            (&[], "/write?u=user", Ok("none")),
            (&[("authorization", "Bearer abc")], "/write?u=user&p=other", Ok("token abc")),
            (&[("authorization", "Bearer a"), ("authorization", "Bearer b")], "/", Err(401)),
            (&[("authorization", "Basic dXNlcg==")], "/", Err(401)),
            (&[("authorization", "Basic ???")], "/", Err(401)),
            (&[("authorization", "Digest x")], "/", Err(401)),
            (&[("authorization", "")], "/", Err(401)),
        ] {
            assert_eq!(found(headers, target), expected.map(str::to_owned), "{headers:?} {target}");
        }
    }
}
