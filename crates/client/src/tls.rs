//! TLS of the clients: which authorities are trusted, and which certificate is shown.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls_platform_verifier::BuilderVerifierExt;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// TLS of a client. PEM throughout.
#[derive(Clone, Default)]
pub struct TlsOptions {
    /// The authorities that are trusted; empty: those of the system.
    pub authorities: Vec<u8>,
    /// The certificate that the client shows, with its key.
    pub certificate: Option<ClientCertificate>,
    /// The server's name in its certificate; by default its address.
    pub server_name: Option<String>,
}

/// A client's certificate.
#[derive(Clone)]
pub struct ClientCertificate {
    /// The certificate, with the ones between it and its authority.
    pub chain: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the key.
        formatter.debug_struct("TlsOptions").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl TlsOptions {
    /// Of files; an error names the one that cannot be read.
    pub fn from_files(
        authorities: Option<&Path>,
        certificate: Option<&Path>,
        key: Option<&Path>,
    ) -> Result<Self, String> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let certificate = match (certificate, key) {
            (Some(chain), Some(key)) => Some(ClientCertificate { chain: read(chain)?, key: read(key)? }),
            (None, None) => None,
            _ => return Err("a client's certificate and its key are needed together".to_owned()),
        };
        let authorities = authorities.map(read).transpose()?.unwrap_or_default();
        if !authorities.is_empty() {
            certificates(&authorities)?;
        }
        let options = Self { authorities, certificate, server_name: None };
        options.config().map(|_| options)
    }

    /// The configuration of a connection.
    fn config(&self) -> Result<ClientConfig, String> {
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let builder = if self.authorities.is_empty() {
            let builder = builder.with_platform_verifier();
            builder.map_err(|error| format!("the system's authorities cannot be asked: {error}"))?
        } else {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(&self.authorities)? {
                roots.add(certificate).map_err(|error| format!("an authority's certificate: {error}"))?;
            }
            builder.with_root_certificates(roots)
        };
        match &self.certificate {
            None => Ok(builder.with_no_client_auth()),
            Some(certificate) => {
                let chain = certificates(&certificate.chain)?;
                let key = PrivateKeyDer::from_pem_slice(&certificate.key);
                let key = key.map_err(|error| format!("the client's key cannot be read: {error}"))?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|error| format!("the client's certificate and key: {error}"))
            }
        }
    }

    /// What the binary protocol connects with.
    pub(crate) fn connector(&self) -> Result<tokio_rustls::TlsConnector, String> {
        self.config().map(|config| Arc::new(config).into())
    }

    /// The name that the server's certificate must have.
    pub(crate) fn name(&self, address: SocketAddr) -> Result<ServerName<'static>, String> {
        match &self.server_name {
            None => Ok(ServerName::IpAddress(address.ip().into())),
            Some(name) => ServerName::try_from(name.clone()).map_err(|error| format!("{name:?}: {error}")),
        }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(read) if read.is_empty() => Err("there is no certificate in the file".to_owned()),
        Ok(read) => Ok(read),
        Err(error) => Err(format!("a certificate cannot be read: {error}")),
    }
}
