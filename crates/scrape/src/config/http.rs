//! How HTTP requests are made: credentials, TLS, proxies. Scraping, discovery, Alertmanagers and forwarding have these fields in common.

use super::cloud::{self, AzureConfig, GoogleConfig, Sigv4Config};
use super::reader::Fields;
use super::secret::Source;

/// Settings of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// What requests sign in with.
    pub credentials: Credentials,
    /// TLS.
    pub tls: TlsConfig,
    /// Whether redirections are followed.
    pub follow_redirects: bool,
    /// Whether HTTP/2 is offered.
    pub enable_http2: bool,
    /// Whether connections are kept open.
    pub keep_alive: bool,
    /// Proxies.
    pub proxy: ProxyConfig,
    /// Further headers.
    pub headers: Vec<HeaderConfig>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            credentials: Credentials::None,
            tls: TlsConfig::default(),
            follow_redirects: true,
            enable_http2: true,
            keep_alive: true,
            proxy: ProxyConfig::default(),
            headers: Vec::new(),
        }
    }
}

/// How requests sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing.
    None,
    /// `Authorization: Basic`.
    Basic {
        /// The name.
        username: Option<Source>,
        /// The password.
        password: Option<Source>,
    },
    /// `Authorization` with a kind and credentials.
    Authorization {
        /// `Bearer`, ….
        kind: String,
        /// What follows the kind.
        credentials: Option<Source>,
    },
    /// A token of OAuth 2.0.
    Oauth2(Box<Oauth2Config>),
    /// A signature of AWS.
    Sigv4(Box<Sigv4Config>),
    /// A token of an identity at Azure.
    Azure(Box<AzureConfig>),
    /// A token of an identity at Google Cloud.
    Google(GoogleConfig),
    /// A way that is not built in, with an error that says so: requests would be refused without it.
    NotBuiltIn(String),
}

/// A client of OAuth 2.0 that fetches its own tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oauth2Config {
    /// The client's name.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Option<Source>,
    /// The statement that it signs instead of showing a secret.
    pub assertion: Option<Box<AssertionConfig>>,
    /// What the token is for.
    pub scopes: Vec<String>,
    /// Where tokens are fetched.
    pub token_url: String,
    /// Further parameters.
    pub endpoint_params: Vec<(String, String)>,
    /// TLS of that address.
    pub tls: TlsConfig,
    /// Proxies to it.
    pub proxy: ProxyConfig,
}

/// The statement that a client of OAuth 2.0 signs itself (RFC 7523).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssertionConfig {
    /// The key, as PEM.
    pub key: Option<Source>,
    /// The key's name in the statement's header; empty: none.
    pub key_id: String,
    /// How it is signed.
    pub algorithm: AssertionAlgorithm,
    /// Who states; empty: the client.
    pub issuer: String,
    /// For whom; empty: the address of tokens.
    pub audience: String,
    /// Further claims.
    pub claims: serde_json::Map<String, serde_json::Value>,
}

/// How a statement is signed (RFC 7518, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssertionAlgorithm {
    /// RSA, PKCS #1, SHA-256.
    Rs256,
    /// RSA, PKCS #1, SHA-384.
    Rs384,
    /// RSA, PKCS #1, SHA-512.
    Rs512,
    /// RSA, PSS, SHA-256.
    Ps256,
}

impl AssertionAlgorithm {
    /// Its name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
        }
    }
}

/// TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsConfig {
    /// Certificates of trusted authorities.
    pub ca: Option<Source>,
    /// The client's certificate.
    pub cert: Option<Source>,
    /// Its key.
    pub key: Option<Source>,
    /// The name that the server's certificate must have.
    pub server_name: Option<String>,
    /// Takes every certificate.
    pub insecure_skip_verify: bool,
    /// The lowest version: 2 for TLS 1.2, 3 for TLS 1.3.
    pub version_min: Option<u8>,
    /// The highest version.
    pub version_max: Option<u8>,
}

impl TlsConfig {
    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.ca.iter().chain(&self.cert).chain(&self.key)
    }
}

/// Proxies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyConfig {
    /// The proxy of all requests.
    pub url: Option<String>,
    /// Hosts, domains and networks that are reached without it.
    pub except: String,
    /// Takes both from the environment.
    pub from_environment: bool,
}

/// A header with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderConfig {
    /// The header's name.
    pub name: String,
    /// Its values; there may be several.
    pub values: Vec<Source>,
}

/// Headers that requests have anyway.
const RESERVED_HEADERS: [&str; 20] = [
    "authorization",
    "host",
    "content-encoding",
    "content-length",
    "content-type",
    "user-agent",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "www-authenticate",
    "accept-encoding",
    "x-prometheus-remote-write-version",
    "x-prometheus-remote-read-version",
    "x-prometheus-scrape-timeout-seconds",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-content-sha256",
    "te",
    "upgrade",
];

impl HttpConfig {
    /// Everything in it that may come from a file.
    pub fn sources(&self) -> Vec<&Source> {
        let mut sources: Vec<&Source> = self.tls.sources().collect();
        match &self.credentials {
            Credentials::None | Credentials::NotBuiltIn(_) | Credentials::Azure(_) | Credentials::Google(_) => {}
            Credentials::Basic { username, password } => sources.extend(username.iter().chain(password)),
            Credentials::Authorization { credentials, .. } => sources.extend(credentials),
            Credentials::Oauth2(oauth2) => {
                let key = oauth2.assertion.iter().filter_map(|assertion| assertion.key.as_ref());
                sources.extend(oauth2.client_secret.iter().chain(key).chain(oauth2.tls.sources()));
            }
            Credentials::Sigv4(signing) => sources.extend(&signing.identity.secret_key),
        }
        sources.extend(self.headers.iter().flat_map(|header| &header.values));
        sources
    }

    /// Why requests cannot be made, if they cannot.
    pub fn not_built_in(&self) -> Option<&str> {
        match &self.credentials {
            Credentials::NotBuiltIn(reason) => Some(reason),
            _ => None,
        }
    }

    /// Takes its fields out of those of a section.
    pub fn read(fields: &Fields<'_>) -> Self {
        Self::read_with(fields, Vec::new())
    }

    /// As [`HttpConfig::read`], in a section that may sign in as clouds have it.
    pub(super) fn read_with_clouds(fields: &Fields<'_>) -> Self {
        Self::read_with(fields, cloud::read_credentials(fields))
    }

    fn read_with(fields: &Fields<'_>, further: Vec<Credentials>) -> Self {
        Self {
            credentials: read_credentials(fields, further),
            tls: fields.map("tls_config", read_tls).unwrap_or_default(),
            follow_redirects: fields.flag_or("follow_redirects", true),
            enable_http2: fields.flag_or("enable_http2", true),
            keep_alive: true,
            proxy: read_proxy(fields),
            headers: read_headers(fields),
        }
    }
}

fn read_credentials(fields: &Fields<'_>, further: Vec<Credentials>) -> Credentials {
    let mut ways = further;
    if let Some(basic) = fields.map("basic_auth", |basic| Credentials::Basic {
        username: Source::of_two(basic, "username", "username_file"),
        password: Source::secret(basic, "password", "password_file"),
    }) {
        ways.push(basic);
    }
    let authorization = fields.map("authorization", |section| {
        let kind = section.text("type").map(|kind| kind.trim().to_owned()).filter(|kind| !kind.is_empty());
        let kind = kind.unwrap_or_else(|| "Bearer".to_owned());
        if kind.eq_ignore_ascii_case("basic") {
            let position = section.position_of("type");
            section.reading.error(position, "authorization type cannot be basic: use basic_auth");
        }
        let credentials = Source::secret(section, "credentials", "credentials_file");
        Credentials::Authorization { kind, credentials }
    });
    ways.extend(authorization);
    if let Some(token) = Source::secret(fields, "bearer_token", "bearer_token_file") {
        ways.push(Credentials::Authorization { kind: "Bearer".to_owned(), credentials: Some(token) });
    }
    ways.extend(fields.map("oauth2", read_oauth2));
    if ways.len() > 1 {
        let message = "at most one of basic_auth, authorization, bearer_token, bearer_token_file, oauth2, sigv4, azuread and google_iam may be there";
        fields.reading.error(fields.position, message);
    }
    ways.into_iter().next().unwrap_or(Credentials::None)
}

/// The grant by which a client shows a statement that it has signed (RFC 7523, section 2.1).
pub(crate) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

fn read_oauth2(fields: &Fields<'_>) -> Credentials {
    let grant_type = fields.parsed("grant_type", |text| match text {
        "" | "client_credentials" => Ok(false),
        JWT_BEARER => Ok(true),
        _ => Err(format!("grant_type: expected client_credentials or {JWT_BEARER}, found {text:?}")),
    });
    let client = Oauth2Config {
        client_id: fields.required("client_id"),
        client_secret: Source::secret(fields, "client_secret", "client_secret_file"),
        assertion: (grant_type == Some(true)).then(|| Box::new(read_assertion(fields))),
        scopes: fields.texts("scopes"),
        token_url: fields.required("token_url"),
        endpoint_params: fields.text_pairs("endpoint_params"),
        tls: fields.map("tls_config", read_tls).unwrap_or_default(),
        proxy: read_proxy(fields),
    };
    let is_taken = |name: &str| match name {
        "scope" => !client.scopes.is_empty(),
        "assertion" => client.assertion.is_some(),
        _ => false,
    };
    if let Some((name, _)) = client.endpoint_params.iter().find(|(name, _)| is_taken(name)) {
        let message = format!("endpoint_params: {name} is set by other fields");
        fields.reading.error(fields.position_of("endpoint_params"), message);
    }
    Credentials::Oauth2(Box::new(client))
}

fn read_assertion(fields: &Fields<'_>) -> AssertionConfig {
    let algorithm = fields.parsed("signature_algorithm", |text| match text {
        "" | "RS256" => Ok(AssertionAlgorithm::Rs256),
        "RS384" => Ok(AssertionAlgorithm::Rs384),
        "RS512" => Ok(AssertionAlgorithm::Rs512),
        _ => Err(format!("signature_algorithm: expected RS256, RS384 or RS512, found {text:?}")),
    });
    let key = Source::secret(fields, "client_certificate_key", "client_certificate_key_file");
    if key.is_none() {
        let message = format!("grant_type {JWT_BEARER} needs client_certificate_key or client_certificate_key_file");
        fields.reading.error(fields.position_of("grant_type"), message);
    }
    AssertionConfig {
        key,
        key_id: fields.text_or("client_certificate_key_id", ""),
        algorithm: algorithm.unwrap_or(AssertionAlgorithm::Rs256),
        issuer: fields.text_or("iss", ""),
        audience: fields.text_or("audience", ""),
        claims: fields.pairs("claims", |node| Some(node.json())).into_iter().collect(),
    }
}

/// TLS's section.
pub(super) fn read_tls(fields: &Fields<'_>) -> TlsConfig {
    let version = |name: &'static str| {
        fields.parsed(name, |text| match text {
            "TLS13" => Ok(3),
            "TLS12" => Ok(2),
            "TLS10" | "TLS11" => {
                fields.reading.warn(fields.position_of(name), format!("{name}: {text} is not spoken: TLS12 is taken"));
                Ok(2)
            }
            _ => Err(format!("{name}: expected TLS10, TLS11, TLS12 or TLS13, found {text:?}")),
        })
    };
    let (cert, key) = (Source::of_two(fields, "cert", "cert_file"), Source::secret(fields, "key", "key_file"));
    if cert.is_some() != key.is_some() {
        fields.reading.error(fields.position, "a client's certificate and its key belong together");
    }
    TlsConfig {
        ca: Source::of_two(fields, "ca", "ca_file"),
        cert,
        key,
        server_name: fields.text("server_name").filter(|name| !name.is_empty()),
        insecure_skip_verify: fields.flag_or("insecure_skip_verify", false),
        version_min: version("min_version"),
        version_max: version("max_version"),
    }
}

fn read_proxy(fields: &Fields<'_>) -> ProxyConfig {
    let url = fields.parsed("proxy_url", |text| {
        if text.contains("://") { Ok(text.to_owned()) } else { Err(format!("proxy_url: {text:?} is no address")) }
    });
    let proxy = ProxyConfig {
        url,
        except: fields.text_or("no_proxy", ""),
        from_environment: fields.flag_or("proxy_from_environment", false),
    };
    if proxy.from_environment && (proxy.url.is_some() || !proxy.except.is_empty()) {
        let message = "proxy_from_environment goes with neither proxy_url nor no_proxy";
        fields.reading.error(fields.position_of("proxy_from_environment"), message);
    }
    if !proxy.except.is_empty() && proxy.url.is_none() {
        fields.reading.error(fields.position_of("no_proxy"), "no_proxy needs proxy_url");
    }
    for (_, values) in fields.pairs("proxy_connect_header", |node| Some(fields.reading.items(node))) {
        values.iter().for_each(|value| value.is_secret.set(true));
    }
    fields.without_effect("proxy_connect_header", "requests to proxies have no further headers here");
    proxy
}

fn read_headers(fields: &Fields<'_>) -> Vec<HeaderConfig> {
    let pairs = fields.pairs("http_headers", |node| {
        let header = fields.reading.fields(node)?;
        let mut values: Vec<Source> = header.texts("values").into_iter().map(Source::Inline).collect();
        let secret = header.list("secrets", |node| {
            node.is_secret.set(true);
            fields.reading.text(node)
        });
        values.extend(secret.into_iter().map(Source::Inline));
        values.extend(header.texts("files").iter().map(|path| Source::File(fields.reading.path(path))));
        header.finish();
        Some(values)
    });
    for (name, _) in &pairs {
        if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            fields
                .reading
                .error(fields.position_of("http_headers"), format!("the header {name} is not for http_headers"));
        }
    }
    pairs.into_iter().map(|(name, values)| HeaderConfig { name, values }).collect()
}
