//! What an identity provider serves beside its keys: where they are, and what it answers to a code.

use serde::Deserialize;

/// Bytes of such a document.
pub const DOCUMENT_BYTES_MAX: usize = 256 << 10;

/// Where the provider's document of itself is, below its issuer.
pub fn discovery_url(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
}

/// What a provider says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Discovery {
    /// Its name, as in its tokens.
    pub issuer: String,
    /// Where its keys are.
    pub jwks_uri: String,
    /// Where browsers are sent to sign in.
    #[serde(default)]
    pub authorization_endpoint: String,
    /// Where a code is exchanged for a token.
    #[serde(default)]
    pub token_endpoint: String,
}

impl Discovery {
    /// Reads the document of a provider, which has to be the one that was asked for.
    pub fn parse(document: &[u8], issuer: &str) -> Result<Self, String> {
        if document.len() > DOCUMENT_BYTES_MAX {
            return Err(format!("the provider's document has more than {DOCUMENT_BYTES_MAX} bytes"));
        }
        let read: Self =
            serde_json::from_slice(document).map_err(|error| format!("the provider's document: {error}"))?;
        if read.issuer != issuer {
            return Err(format!("the provider calls itself {:?}, and is expected to be {issuer:?}", read.issuer));
        }
        let urls = [&read.jwks_uri, &read.authorization_endpoint, &read.token_endpoint];
        let is_url = |url: &&String| url.is_empty() || is_safe_url(url);
        if !is_safe_url(&read.jwks_uri) || !urls.iter().all(is_url) {
            return Err("the provider names an address that is neither https:// nor on this machine".to_owned());
        }
        Ok(read)
    }
}

/// Returns whether what comes from an address cannot be changed on its way: by TLS, or from this machine.
pub fn is_safe_url(url: &str) -> bool {
    let host = |rest: &str| rest.split(['/', ':', '?']).next().map(str::to_owned);
    match url.split_once("://") {
        Some(("https", rest)) => !rest.is_empty(),
        Some(("http", rest)) => {
            rest.starts_with("[::1]") || matches!(host(rest).as_deref(), Some("localhost" | "127.0.0.1"))
        }
        _ => false,
    }
}

/// The answer to a code.
#[derive(Debug, Deserialize)]
struct CodeAnswer {
    #[serde(default)]
    id_token: String,
    #[serde(default)]
    error: String,
}

/// The token of an answer to a code.
pub fn id_token(document: &[u8]) -> Result<String, String> {
    if document.len() > DOCUMENT_BYTES_MAX {
        return Err(format!("the provider's answer has more than {DOCUMENT_BYTES_MAX} bytes"));
    }
    let read: CodeAnswer =
        serde_json::from_slice(document).map_err(|error| format!("the provider's answer: {error}"))?;
    match (read.id_token.is_empty(), read.error.is_empty()) {
        (false, _) => Ok(read.id_token),
        (true, false) => Err(format!("the provider refuses the code: {:?}", read.error)),
        (true, true) => Err("the provider's answer has no id_token: the scope openid is needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_the_one_that_was_asked_for_and_reached_safely() {
        let document = |issuer: &str, keys: &str| format!(r#"{{"issuer":"{issuer}","jwks_uri":"{keys}","x":1}}"#);
        let parse =
            |issuer: &str, keys: &str| Discovery::parse(document(issuer, keys).as_bytes(), "https://id.example");
        assert!(parse("https://id.example", "https://id.example/keys").is_ok());
        assert!(parse("https://id.example", "http://127.0.0.1:80/keys").is_ok());
        assert!(parse("https://evil.example", "https://id.example/keys").is_err());
        for keys in ["http://id.example/keys", "ftp://x", "", "https://", "http://127.0.0.1.evil.example/"] {
            assert!(parse("https://id.example", keys).is_err(), "{keys}");
        }
        assert_eq!(
            discovery_url("https://id.example/realm/"),
            "https://id.example/realm/.well-known/openid-configuration"
        );
    }

    #[test]
    fn an_answer_has_a_token_or_says_why_not() {
        assert_eq!(id_token(br#"{"id_token":"eyJ","access_token":"x"}"#), Ok("eyJ".to_owned()));
        assert!(id_token(br#"{"error":"invalid_grant"}"#).unwrap_err().contains("invalid_grant"));
        assert!(id_token(b"{}").unwrap_err().contains("openid") && id_token(b"").is_err());
    }
}
