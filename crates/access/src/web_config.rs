//! Prometheus's `web.config.yml`, as <https://prometheus.io/docs/prometheus/latest/configuration/https/> describes it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::secret::is_bcrypt;

/// The largest file that is read.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebConfig {
    /// TLS of the HTTP listener.
    pub tls_server_config: Option<TlsServerConfig>,
    /// Options of HTTP.
    pub http_server_config: HttpServerConfig,
    /// Users with bcrypt hashes of their passwords. They may do everything, as with Prometheus.
    pub basic_auth_users: BTreeMap<String, String>,
    /// Requests a second of all clients.
    pub rate_limit: Option<RateLimit>,
}

/// `tls_server_config`. Names of Go are read as they stand.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsServerConfig {
    /// File of the certificate chain.
    pub cert_file: String,
    /// File of its key.
    pub key_file: String,
    /// The certificate chain itself, in PEM.
    pub cert: String,
    /// Its key itself.
    pub key: String,
    /// File of the authorities that sign clients' certificates.
    pub client_ca_file: String,
    /// Those authorities themselves.
    pub client_ca: String,
    /// `NoClientCert`, `RequestClientCert`, `RequireAnyClientCert`, `VerifyClientCertIfGiven`, `RequireAndVerifyClientCert`.
    pub client_auth_type: String,
    /// Subject alternative names of which a client's certificate must have one.
    pub client_allowed_sans: Vec<String>,
    /// `TLS12` or `TLS13`; earlier versions are not spoken.
    pub min_version: String,
    /// As `min_version`.
    pub max_version: String,
    /// Read and not used: rustls has no weak ones to leave out.
    pub cipher_suites: Vec<String>,
    /// Read and not used.
    pub prefer_server_cipher_suites: Option<bool>,
    /// Read and not used.
    pub curve_preferences: Vec<String>,
}

/// `http_server_config`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpServerConfig {
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Headers that every answer gets.
    pub headers: BTreeMap<String, String>,
}

impl Default for HttpServerConfig {
    fn default() -> Self {
        Self { http2: true, headers: BTreeMap::new() }
    }
}

/// `rate_limit`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimit {
    /// How often a request is let through, as `100ms`.
    pub interval: String,
    /// How many may come at once.
    pub burst: u64,
}

/// How clients' certificates are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// None are asked for.
    Ignored,
    /// One that is sent must be good.
    Verified,
    /// There must be a good one.
    Required,
}

/// A version of TLS that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl TlsVersion {
    /// By Go's name.
    fn from_name(name: &str) -> Result<Self, String> {
        match name {
            "TLS12" => Ok(Self::Tls12),
            "TLS13" => Ok(Self::Tls13),
            _ => Err(format!("tls_server_config: {name} is not spoken: TLS12 and TLS13 are")),
        }
    }
}

/// Headers that may be set.
const HEADERS: [&str; 6] = [
    "content-security-policy",
    "x-frame-options",
    "x-content-type-options",
    "x-xss-protection",
    "strict-transport-security",
    "cross-origin-opener-policy",
];

impl WebConfig {
    /// Reads the file's text.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > FILE_BYTES_MAX {
            return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let config: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        config.check().map(|()| config)
    }

    /// The file with its paths relative to a folder: its own.
    #[must_use]
    pub fn resolved(mut self, folder: &Path) -> Self {
        if let Some(tls) = &mut self.tls_server_config {
            tls.resolve(folder);
        }
        self
    }

    fn check(&self) -> Result<(), String> {
        if let Some((user, _)) = self.basic_auth_users.iter().find(|(_, stored)| !is_bcrypt(stored)) {
            return Err(format!("basic_auth_users: the password of {user} is no bcrypt hash ($2b$…)"));
        }
        if let Some(user) = self.basic_auth_users.keys().find(|user| crate::account::check_name(user).is_err()) {
            return Err(format!(
                "basic_auth_users: {user:?}: {}",
                crate::account::check_name(user).err().unwrap_or_default()
            ));
        }
        let headers = &self.http_server_config.headers;
        if let Some(name) = headers.keys().find(|name| !HEADERS.contains(&name.to_ascii_lowercase().as_str())) {
            return Err(format!(
                "http_server_config: headers: {name} cannot be set; these can: {}",
                HEADERS.join(", ")
            ));
        }
        if let Some((name, _)) = headers.iter().find(|(_, value)| value.chars().any(char::is_control)) {
            return Err(format!("http_server_config: headers: the value of {name} has a control character"));
        }
        self.tls_server_config.as_ref().map_or(Ok(()), TlsServerConfig::check)
    }
}

impl TlsServerConfig {
    fn check(&self) -> Result<(), String> {
        let failed = |text: &str| Err(format!("tls_server_config: {text}"));
        match (self.cert_file.is_empty() == self.cert.is_empty(), self.key_file.is_empty() == self.key.is_empty()) {
            (false, false) => {}
            _ => return failed("it has one of cert_file and cert, and one of key_file and key"),
        }
        self.client_certificates()?;
        if !self.client_allowed_sans.is_empty() && self.client_certificates()? != ClientCertificates::Required {
            return failed("client_allowed_sans needs client_auth_type RequireAndVerifyClientCert");
        }
        self.versions().map(|_| ())
    }

    /// The lowest and the highest version that are spoken. A lowest one before TLS 1.2 means TLS 1.2.
    pub fn versions(&self) -> Result<(TlsVersion, TlsVersion), String> {
        let min = match self.min_version.as_str() {
            "" | "TLS10" | "TLS11" => TlsVersion::Tls12,
            name => TlsVersion::from_name(name)?,
        };
        let max = match self.max_version.as_str() {
            "" => TlsVersion::Tls13,
            name => TlsVersion::from_name(name)?,
        };
        if min > max {
            return Err("tls_server_config: min_version is above max_version".to_owned());
        }
        Ok((min, max))
    }

    /// Settings that are accepted and have no effect.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let lists = [("cipher_suites", &self.cipher_suites), ("curve_preferences", &self.curve_preferences)];
        lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(name, _)| name).collect()
    }

    /// Puts a folder before the paths that are relative, as Prometheus does with that of the file.
    fn resolve(&mut self, folder: &Path) {
        for path in [&mut self.cert_file, &mut self.key_file, &mut self.client_ca_file] {
            if !path.is_empty() {
                *path = folder.join(&*path).to_string_lossy().into_owned();
            }
        }
    }

    /// What `client_auth_type` asks for.
    pub fn client_certificates(&self) -> Result<ClientCertificates, String> {
        let has_authorities = !self.client_ca.is_empty() || !self.client_ca_file.is_empty();
        let needs_authorities = |wanted| {
            if has_authorities { Ok(wanted) } else { Err("tls_server_config: client_ca_file is missing".to_owned()) }
        };
        match self.client_auth_type.as_str() {
            "" | "NoClientCert" if has_authorities => {
                Err("tls_server_config: client_ca_file needs a client_auth_type".to_owned())
            }
            "" | "NoClientCert" | "RequestClientCert" => Ok(ClientCertificates::Ignored),
            "VerifyClientCertIfGiven" => needs_authorities(ClientCertificates::Verified),
            "RequireAndVerifyClientCert" => needs_authorities(ClientCertificates::Required),
            "RequireAnyClientCert" => {
                Err("tls_server_config: RequireAnyClientCert lets any certificate in: use RequireAndVerifyClientCert"
                    .to_owned())
            }
            other => Err(format!("tls_server_config: {other} is no client_auth_type")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_file_is_read() {
        let text = "
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [prometheus.example]
  min_version: TLS12
  prefer_server_cipher_suites: true
http_server_config:
  http2: false
  headers:
    Strict-Transport-Security: max-age=31536000
basic_auth_users:
  alice: $2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze
rate_limit:
  interval: 100ms
  burst: 20
";
        let config = WebConfig::parse(text).unwrap();
        let tls = config.tls_server_config.unwrap();
        assert_eq!(
            (tls.cert_file.as_str(), tls.client_certificates()),
            ("server.crt", Ok(ClientCertificates::Required))
        );
        assert!(!config.http_server_config.http2 && config.basic_auth_users.contains_key("alice"));
        assert_eq!(WebConfig::parse(" \n"), Ok(WebConfig::default()));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, reason) in [
            ("basic_auth_user: {}", "basic_auth_user"),
            ("basic_auth_users: {a: secret}", "no bcrypt hash"),
            ("tls_server_config: {cert_file: a}", "key_file"),
            ("tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}", "client_auth_type"),
            (
                "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAndVerifyClientCert}",
                "client_ca_file",
            ),
            ("tls_server_config: {cert_file: a, key_file: b, max_version: TLS11}", "TLS11"),
            ("tls_server_config: {cert_file: a, key_file: b, min_version: TLS13, max_version: TLS12}", "above"),
            ("http_server_config: {headers: {X-Mine: a}}", "X-Mine"),
        ] {
            let error = WebConfig::parse(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
