//! How requests sign in at clouds: by AWS's signature, or by OAuth at Azure. What is not built in says so, and its section does not run.

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
        section.text("credentials_file");
        Credentials::NotBuiltIn("google_iam is not built in".to_owned())
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

/// `azuread`. An application with a secret is a client of OAuth 2.0; the other ways need services of Azure's own machines.
fn read_azure(fields: &Fields<'_>) -> Credentials {
    let cloud = fields.parsed("cloud", |text| {
        let known = AZURE_CLOUDS.iter().find(|(name, ..)| *name == text);
        known.ok_or_else(|| format!("cloud: expected AzurePublic, AzureChina or AzureGovernment, found {text:?}"))
    });
    let (_, login, scope) = cloud.unwrap_or(&AZURE_CLOUDS[0]);
    let scope = fields.text("scope").filter(|scope| !scope.is_empty()).unwrap_or_else(|| (*scope).to_owned());
    let mut ways: Vec<Credentials> = Vec::new();
    ways.extend(fields.map("oauth", |section| {
        let tenant = section.required("tenant_id");
        Credentials::Oauth2(Box::new(Oauth2Config {
            client_id: section.required("client_id"),
            client_secret: Source::secret(section, "client_secret", "client_secret_file"),
            scopes: vec![scope.clone()],
            token_url: format!("{login}/{tenant}/oauth2/v2.0/token"),
            endpoint_params: Vec::new(),
            tls: TlsConfig::default(),
            proxy: ProxyConfig::default(),
        }))
    }));
    for (name, known) in [
        ("managed_identity", &["client_id"][..]),
        ("workload_identity", &["client_id", "tenant_id", "token_file_path"][..]),
        ("sdk", &["tenant_id"][..]),
    ] {
        ways.extend(fields.map(name, |section| {
            known.iter().for_each(|field| drop(section.text(field)));
            Credentials::NotBuiltIn(format!("azuread's {name} is not built in: oauth is"))
        }));
    }
    if ways.len() != 1 {
        let message = "exactly one of oauth, managed_identity, workload_identity and sdk has to be there";
        fields.reading.error(fields.position, message);
    }
    ways.into_iter().next().unwrap_or(Credentials::None)
}
