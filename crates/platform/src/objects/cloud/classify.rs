//! From what `object_store` reports to what the caller does next.

use std::error::Error as StdError;
use std::fmt::Write;

use object_store::Error;
use object_store::client::HttpError;

use crate::objects::{ObjectError, ObjectErrorKind};

/// Characters of a message that are kept: answers of servers are quoted in it.
const MESSAGE_CHARS_MAX: usize = 1_000;

pub(super) fn object_error(action: String, error: &Error, status: Option<u16>) -> ObjectError {
    let text = chain(error);
    let kind = match error {
        Error::NotFound { .. } => missing(&text),
        // A put under a condition, where there is no bucket.
        Error::Precondition { .. } if missing(&text) == ObjectErrorKind::Config => ObjectErrorKind::Config,
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => {
            ObjectErrorKind::Conflict
        }
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => ObjectErrorKind::Denied,
        Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::UnknownConfigurationKey { .. }
        | Error::InvalidPath { .. } => ObjectErrorKind::Config,
        _ if holds_transport_error(error) => transport(&text),
        _ => status.map_or(ObjectErrorKind::Other, |status| by_status(status, &text)),
    };
    ObjectError::new(kind, action, text.chars().take(MESSAGE_CHARS_MAX).collect::<String>())
}

/// The error and its causes, without those whose text a cause above them already holds.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {part}");
        }
        cause = error.source();
    }
    text
}

/// Whether the connection broke, timed out or was never made.
pub(super) fn holds_transport_error(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<HttpError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The request did not get there, or its answer did not come back whole.
fn transport(text: &str) -> ObjectErrorKind {
    const METADATA_SERVERS: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];
    if METADATA_SERVERS.iter().any(|server| text.contains(server)) {
        // Without credentials in the environment those of the machine are asked for; this is none of the cloud's.
        ObjectErrorKind::Denied
    } else if text.contains("certificate") || text.contains("URL scheme is not allowed") {
        ObjectErrorKind::Config
    } else {
        ObjectErrorKind::Busy
    }
}

fn missing(text: &str) -> ObjectErrorKind {
    const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"];
    if NO_BUCKET.iter().any(|words| text.contains(words)) { ObjectErrorKind::Config } else { ObjectErrorKind::Missing }
}

fn by_status(status: u16, text: &str) -> ObjectErrorKind {
    const EXPIRED: [&str; 3] = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"];
    match status {
        // Amazon S3 says "slow down" in the body of a good answer, too.
        200 if text.contains("SlowDown") || text.contains("InternalError") => ObjectErrorKind::Busy,
        300..=399 | 501 => ObjectErrorKind::Config,
        400 if text.contains("RequestTimeout") => ObjectErrorKind::Busy,
        400 if EXPIRED.iter().any(|words| text.contains(words)) => ObjectErrorKind::Denied,
        401 | 403 => ObjectErrorKind::Denied,
        404 => missing(text),
        409 | 412 => ObjectErrorKind::Conflict,
        408 | 429 | 500.. => ObjectErrorKind::Busy,
        _ => ObjectErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpErrorKind;

    use super::*;

    fn generic(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error::Generic { store: "S3", source: source.into() }
    }

    fn not_found(text: &str) -> Error {
        Error::NotFound { path: "a".into(), source: text.into() }
    }

    fn transport_error(text: &'static str) -> Error {
        generic(HttpError::new(HttpErrorKind::Connect, std::io::Error::other(text)))
    }

    #[test]
    fn kinds_follow_from_what_the_caller_does_next() {
        use ObjectErrorKind::{Busy, Config, Conflict, Denied, Missing, Other};
        let cases = [
            (not_found("<Code>NoSuchKey</Code>"), Some(404), Missing),
            (not_found("<Code>NoSuchBucket</Code>"), Some(404), Config),
            (Error::Precondition { path: "a".into(), source: "x".into() }, Some(412), Conflict),
            (Error::Precondition { path: "a".into(), source: "NoSuchBucket".into() }, Some(404), Config),
            (Error::AlreadyExists { path: "a".into(), source: "x".into() }, Some(412), Conflict),
            (Error::PermissionDenied { path: "a".into(), source: "x".into() }, Some(403), Denied),
            (generic("<Code>SlowDown</Code>"), Some(503), Busy),
            (generic("<Code>SlowDown</Code>"), Some(200), Busy),
            (generic("<Code>InternalError</Code>"), Some(500), Busy),
            (generic("too many"), Some(429), Busy),
            (generic("<Code>RequestTimeout</Code>"), Some(400), Busy),
            (generic("<Code>ExpiredToken</Code>"), Some(400), Denied),
            (generic("<Code>InvalidRequest</Code>"), Some(400), Other),
            (generic("moved"), Some(301), Config),
            (generic("range"), Some(416), Other),
            (generic("nothing is known"), None, Other),
            (transport_error("connection refused"), None, Busy),
            (transport_error("cut in the body"), Some(206), Busy),
            (transport_error("invalid peer certificate: UnknownIssuer"), None, Config),
            (transport_error("http://169.254.169.254/latest/api/token"), None, Denied),
        ];
        for (error, status, expected) in cases {
            let found = object_error("read object a".into(), &error, status);
            assert_eq!(found.kind, expected, "{error:?} {status:?}");
        }
    }

    #[test]
    fn long_answers_are_cut() {
        let found = object_error(String::new(), &generic("x".repeat(100_000)), Some(500));
        assert_eq!(found.message.chars().count(), MESSAGE_CHARS_MAX);
    }
}
