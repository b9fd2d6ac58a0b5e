//! TLS of the server, and the token that its clients sign in with.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use subtle::ConstantTimeEq;

/// What clients sign in with, all of them with the same.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

impl Token {
    /// Of a text, without the white space around it; an error if nothing is left.
    pub fn new(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Err("the token is empty".to_owned()),
            token => Ok(Self(token.into())),
        }
    }

    /// Returns whether a client's is the same, in a time that says nothing of it but its length.
    pub(super) fn is(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }

    /// Returns whether an `Authorization` header has it.
    pub(super) fn is_in(&self, authorization: &str) -> bool {
        let (scheme, token) = authorization.trim().split_once(' ').unwrap_or_default();
        scheme.eq_ignore_ascii_case("bearer") && self.is(token.trim())
    }
}

/// TLS 1.2 and 1.3 with a certificate and its key, in PEM.
pub fn tls(certificate: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| format!("the certificate cannot be read: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key cannot be read: {error}"))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let config = builder.with_no_client_auth().with_single_cert(chain, key);
    config.map(Arc::new).map_err(|error| format!("the certificate and its key: {error}"))
}
