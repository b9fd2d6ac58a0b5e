//! Settings of TLS: certificates, who of the clients has to show one, versions, and the listeners that speak it.

use std::fmt;
use std::path::PathBuf;

use access::web_config::{ClientCertificates, TlsServerConfig, TlsVersion};

/// Where PEM is.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// In a file, which is read again when it changes.
    File(PathBuf),
    /// In the settings themselves.
    Text(String),
}

impl fmt::Debug for Pem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(formatter),
            // It may be a key.
            Self::Text(_) => formatter.write_str("text"),
        }
    }
}

impl fmt::Display for Pem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Text(_) => formatter.write_str("the settings"),
        }
    }
}

impl Pem {
    /// The file if one is named, else the text; `None` if both are empty.
    fn from_file_or_text(file: &str, text: &str) -> Option<Self> {
        match (file, text) {
            ("", "") => None,
            ("", text) => Some(Self::Text(text.to_owned())),
            (file, _) => Some(Self::File(file.into())),
        }
    }
}

/// TLS of the listeners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The server's certificate, with the ones between it and its authority.
    pub certificate: Pem,
    /// Its key.
    pub key: Pem,
    /// The authorities that sign clients' certificates.
    pub client_authorities: Option<Pem>,
    /// Lists of client certificates that their authorities have revoked.
    pub client_revocations: Option<Pem>,
    /// How clients' certificates are treated.
    pub client_certificates: ClientCertificates,
    /// Subject alternative names of which a client's certificate must have one; empty: any may connect.
    pub client_allowed_sans: Vec<String>,
    /// The lowest version that is spoken.
    pub min_version: TlsVersion,
    /// The highest one.
    pub max_version: TlsVersion,
    /// Whether HTTP/2 is offered to clients of HTTP.
    pub http2: bool,
    /// The flags of the listeners that speak TLS, without dashes; `None`: all that use TCP.
    pub listeners: Option<Vec<String>>,
}

impl TlsSettings {
    /// With a certificate and its key, for all listeners.
    pub const fn new(certificate: Pem, key: Pem) -> Self {
        Self {
            certificate,
            key,
            client_authorities: None,
            client_revocations: None,
            client_certificates: ClientCertificates::Ignored,
            client_allowed_sans: Vec::new(),
            min_version: TlsVersion::Tls12,
            max_version: TlsVersion::Tls13,
            http2: true,
            listeners: None,
        }
    }

    /// As Prometheus's `web.config.yml` has it. Its paths are relative to its own folder, which the caller has put in front.
    pub fn from_web_config(config: &TlsServerConfig, http2: bool) -> Result<Self, String> {
        let missing = || "tls_server_config: cert_file and key_file are missing".to_owned();
        let certificate = Pem::from_file_or_text(&config.cert_file, &config.cert).ok_or_else(missing)?;
        let key = Pem::from_file_or_text(&config.key_file, &config.key).ok_or_else(missing)?;
        let (min_version, max_version) = config.versions()?;
        Ok(Self {
            client_authorities: Pem::from_file_or_text(&config.client_ca_file, &config.client_ca),
            client_certificates: config.client_certificates()?,
            client_allowed_sans: config.client_allowed_sans.clone(),
            min_version,
            max_version,
            http2,
            ..Self::new(certificate, key)
        })
    }

    /// Returns whether the listener of a flag, such as `--http`, speaks TLS.
    pub fn covers(&self, flag: &str) -> bool {
        let name = flag.trim_start_matches('-');
        self.listeners.as_ref().is_none_or(|listeners| listeners.iter().any(|listener| listener == name))
    }
}
