//! How requests sign in at clouds: by AWS's signature, or by tokens of identities at Azure and Google Cloud. What is not built in says so,
//! and its section does not run.

use std::path::PathBuf;

use super::http::{Credentials, Oauth2Config, ProxyConfig, TlsConfig};
use super::reader::Fields;
use super::secret::Source;

/// The service that remote writes and alerts are signed for: Amazon's managed Prometheus.
const PROMETHEUS_SERVICE: &str = "aps";

/// Keys of AWS, and the role that they take on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AwsIdentity {
    /// The region; empty: that of the environment or of the profile.
    pub region: String,
    /// The key's name; without one, that of the environment.
    pub access_key: String,
    /// The key.
    pub secret_key: Option<Source>,
    /// The profile of Amazon's shared files that has the key; empty: none.
    pub profile: String,
    /// The role that is taken on with the key; empty: none.
    pub role_arn: String,
    /// What the role asks of those who take it on; empty: nothing.
    pub external_id: String,
    /// The session's name; empty: one of its own.
    pub session_name: String,
    /// Tags of the session.
    pub session_tags: Vec<(String, String)>,
    /// Whether the role is asked for at an address with FIPS's cryptography.
    pub use_fips_sts: bool,
}

/// Requests signed for a service of AWS, by version 4 of its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sigv4Config {
    /// With which keys.
    pub identity: AwsIdentity,
    /// The service's name in signatures.
    pub service: String,
}

/// An identity at Azure, and what its tokens are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzureConfig {
    /// Where applications sign in.
    pub login_url: &'static str,
    /// What the tokens are for.
    pub scope: String,
    /// Who signs in.
    pub identity: AzureIdentity,
}

/// Who signs in at Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AzureIdentity {
    /// The machine.
    Managed {
        /// Which of the machine's identities; empty: its own.
        client_id: String,
    },
    /// A pod of Kubernetes.
    Workload {
        /// The application.
        client_id: String,
        /// The directory that has it.
        tenant_id: String,
        /// The file with the pod's token, if it is not where Kubernetes says.
        token_file: Option<PathBuf>,
    },
    /// An application with a certificate.
    Certificate(AzureCertificate),
    /// What the environment names, as Azure's libraries look for it.
    Environment {
        /// The directory, if the environment names none; empty: none.
        tenant_id: String,
    },
}

/// An application of Azure with a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzureCertificate {
    /// The application.
    pub client_id: String,
    /// The directory that has it.
    pub tenant_id: String,
    /// The file with the certificate as PEM, and with its key unless that is elsewhere.
    pub path: PathBuf,
    /// The file with the key as PEM.
    pub key_path: Option<PathBuf>,
    /// Whether the certificates are shown, too: the directory may know their issuer alone.
    pub sends_chain: bool,
}

/// An identity at Google Cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoogleConfig {
    /// The file with a service account's key; without one, what the environment names.
    pub credentials_file: Option<PathBuf>,
}

impl AwsIdentity {
    /// Takes its fields out of those of a section.
    pub(super) fn read(fields: &Fields<'_>) -> Self {
        if let Some(node) = fields.node("secret_key") {
            node.is_secret.set(true);
        }
        let identity = Self {
            region: fields.text_or("region", ""),
            access_key: fields.text_or("access_key", ""),
            secret_key: fields.text("secret_key").filter(|key| !key.is_empty()).map(Source::Inline),
            profile: fields.text_or("profile", ""),
            role_arn: fields.text_or("role_arn", ""),
            external_id: fields.text_or("external_id", ""),
            ..Self::default()
        };
        if identity.access_key.is_empty() != identity.secret_key.is_none() {
            fields.reading.error(fields.position, "access_key and secret_key belong together");
        }
        identity
    }
}

/// What `sigv4`, `azuread` and `google_iam` sign in with, in the order of those that are there.
pub(super) fn read_credentials(fields: &Fields<'_>) -> Vec<Credentials> {
    let mut found = Vec::new();
    found.extend(fields.map("sigv4", |section| Credentials::Sigv4(Box::new(read_sigv4(section)))));
    found.extend(fields.map("azuread", read_azure));
    found.extend(fields.map("google_iam", |section| {
        Credentials::Google(GoogleConfig { credentials_file: path_in(section, "credentials_file") })
    }));
    found
}

fn read_sigv4(fields: &Fields<'_>) -> Sigv4Config {
    let identity = AwsIdentity {
        session_name: fields.text_or("session_name", ""),
        session_tags: fields.text_pairs("tags"),
        use_fips_sts: fields.flag_or("use_fips_sts_endpoint", false),
        ..AwsIdentity::read(fields)
    };
    if identity.role_arn.is_empty() && !(identity.session_name.is_empty() && identity.session_tags.is_empty()) {
        fields
            .reading
            .error(fields.position, "session_name and tags are those of a role's session: role_arn is missing");
    }
    let service = fields.text("service_name").filter(|name| !name.is_empty());
    Sigv4Config { identity, service: service.unwrap_or_else(|| PROMETHEUS_SERVICE.to_owned()) }
}

/// Azure's clouds: where tokens are fetched, and what they are for.
const AZURE_CLOUDS: [(&str, &str, &str); 3] = [
    ("AzurePublic", "https://login.microsoftonline.com", "https://monitor.azure.com/.default"),
    ("AzureChina", "https://login.chinacloudapi.cn", "https://monitor.azure.cn/.default"),
    ("AzureGovernment", "https://login.microsoftonline.us", "https://monitor.azure.us/.default"),
];

/// The path in a field, if there is one.
fn path_in(fields: &Fields<'_>, name: &'static str) -> Option<PathBuf> {
    let text = fields.text(name).filter(|text| !text.is_empty());
    text.map(|text| fields.reading.path(&text))
}

/// `azuread`. An application with a secret is a client of OAuth 2.0.
fn read_azure(fields: &Fields<'_>) -> Credentials {
    let cloud = fields.parsed("cloud", |text| {
        let known = AZURE_CLOUDS.iter().find(|(name, ..)| *name == text);
        known.ok_or_else(|| format!("cloud: expected AzurePublic, AzureChina or AzureGovernment, found {text:?}"))
    });
    let (_, login_url, scope) = *cloud.unwrap_or(&AZURE_CLOUDS[0]);
    let scope = fields.text("scope").filter(|scope| !scope.is_empty()).unwrap_or_else(|| scope.to_owned());
    let identity = |identity| Credentials::Azure(Box::new(AzureConfig { login_url, scope: scope.clone(), identity }));
    let mut ways: Vec<Credentials> = Vec::new();
    ways.extend(fields.map("oauth", |section| read_azure_secret(section, login_url, &scope)));
    ways.extend(fields.map("managed_identity", |section| {
        identity(AzureIdentity::Managed { client_id: section.text_or("client_id", "") })
    }));
    ways.extend(fields.map("workload_identity", |section| {
        identity(AzureIdentity::Workload {
            client_id: section.required("client_id"),
            tenant_id: section.required("tenant_id"),
            token_file: path_in(section, "token_file_path"),
        })
    }));
    ways.extend(fields.map("certificate", |section| match read_azure_certificate(section) {
        Ok(certificate) => identity(AzureIdentity::Certificate(certificate)),
        Err(reason) => Credentials::NotBuiltIn(reason),
    }));
    ways.extend(
        fields
            .map("sdk", |section| identity(AzureIdentity::Environment { tenant_id: section.text_or("tenant_id", "") })),
    );
    if ways.len() != 1 {
        let message = "exactly one of oauth, managed_identity, workload_identity, certificate and sdk has to be there";
        fields.reading.error(fields.position, message);
    }
    ways.into_iter().next().unwrap_or(Credentials::None)
}

fn read_azure_secret(fields: &Fields<'_>, login_url: &str, scope: &str) -> Credentials {
    let tenant_id = fields.required("tenant_id");
    Credentials::Oauth2(Box::new(Oauth2Config {
        client_id: fields.required("client_id"),
        client_secret: Source::secret(fields, "client_secret", "client_secret_file"),
        assertion: None,
        scopes: vec![scope.to_owned()],
        token_url: format!("{login_url}/{tenant_id}/oauth2/v2.0/token"),
        endpoint_params: Vec::new(),
        tls: TlsConfig::default(),
        proxy: ProxyConfig::default(),
    }))
}

/// A certificate and its key as PEM; an error for what is read as PFX alone.
fn read_azure_certificate(fields: &Fields<'_>) -> Result<AzureCertificate, String> {
    let certificate = AzureCertificate {
        client_id: fields.required("client_id"),
        tenant_id: fields.required("tenant_id"),
        path: fields.reading.path(&fields.required("certificate_path")),
        key_path: path_in(fields, "certificate_key_path"),
        sends_chain: fields.flag_or("send_certificate_chain", false),
    };
    if let Some(node) = fields.node("certificate_password") {
        node.is_secret.set(true);
        let reason = "azuread's certificate_password is not built in: PEM without one is (openssl pkcs12 -in FILE -nodes makes it)";
        return Err(reason.to_owned());
    }
    Ok(certificate)
}
