//! Identities at Azure: of the machine, of a pod of Kubernetes, of an application with a certificate, or whichever the environment names.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use platform::read_file;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

use super::assertion::Assertion;
use super::request::TokenRequest;
use crate::config::{AssertionAlgorithm, AzureCertificate, AzureConfig, AzureIdentity, Origin, Source};

/// Where a machine of Azure asks for its tokens (Instance Metadata Service).
const MACHINE_URL: &str = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01";

/// Where Kubernetes puts the token of a pod, unless it says otherwise.
const POD_TOKEN_FILE: &str = "/var/run/secrets/azure/tokens/azure-identity-token";

/// What an assertion in place of a secret is called (RFC 7523, section 2.2).
const CLIENT_ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Bytes of a file with certificates and keys.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Seconds for which a statement that replaces a secret is good.
const ASSERTION_LIFETIME_S: i64 = 600;

/// The request of a token for an identity.
pub(super) fn request(config: &AzureConfig, origin: &Origin<'_>) -> Result<TokenRequest, String> {
    match &config.identity {
        AzureIdentity::Managed { client_id } => Ok(of_machine(config, client_id, origin)),
        AzureIdentity::Workload { client_id, tenant_id, token_file } => {
            of_pod(config, (tenant_id, client_id), token_file.as_deref(), origin)
        }
        AzureIdentity::Certificate(certificate) => of_certificate(config, certificate, origin),
        AzureIdentity::Environment { tenant_id } => of_environment(config, tenant_id, origin),
    }
}

/// The identity of the machine, or of the App Service that names its own address.
fn of_machine(config: &AzureConfig, client_id: &str, origin: &Origin<'_>) -> TokenRequest {
    let service = (origin.variable)("IDENTITY_ENDPOINT").zip((origin.variable)("IDENTITY_HEADER"));
    let (url, header) = match service {
        Some((url, secret)) => (format!("{url}?api-version=2019-08-01"), ("X-IDENTITY-HEADER", secret)),
        None => (MACHINE_URL.to_owned(), ("Metadata", "true".to_owned())),
    };
    let resource = config.scope.strip_suffix("/.default").unwrap_or(&config.scope);
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("resource", resource);
    if !client_id.is_empty() {
        query.append_pair("client_id", client_id);
    }
    TokenRequest { url: format!("{url}&{}", query.finish()), headers: vec![header], form: None, assertion: None }
}

/// A client's request of a token, which lacks how the client shows who it is.
fn of_client(config: &AzureConfig, (tenant_id, client_id): (&str, &str)) -> TokenRequest {
    let url = format!("{}/{tenant_id}/oauth2/v2.0/token", config.login_url);
    let pairs = [("grant_type", "client_credentials"), ("client_id", client_id), ("scope", &config.scope)];
    TokenRequest::of_form(url, pairs)
}

fn with_pairs(mut request: TokenRequest, pairs: &[(&str, &str)]) -> TokenRequest {
    let pairs = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    request.form.get_or_insert_default().extend(pairs);
    request
}

/// A pod shows the token that Kubernetes has put into a file.
fn of_pod(
    config: &AzureConfig,
    account: (&str, &str),
    token_file: Option<&Path>,
    origin: &Origin<'_>,
) -> Result<TokenRequest, String> {
    let of_environment = || (origin.variable)("AZURE_FEDERATED_TOKEN_FILE").map(PathBuf::from);
    let path = token_file.map(Path::to_owned).or_else(of_environment).unwrap_or_else(|| POD_TOKEN_FILE.into());
    let token = Source::File(path).read(origin.files)?;
    let pairs = [("client_assertion_type", CLIENT_ASSERTION_TYPE), ("client_assertion", &token)];
    Ok(with_pairs(of_client(config, account), &pairs))
}

/// An application signs a statement with its certificate's key.
fn of_certificate(
    config: &AzureConfig,
    certificate: &AzureCertificate,
    origin: &Origin<'_>,
) -> Result<TokenRequest, String> {
    let AzureCertificate { client_id, tenant_id, path, key_path, sends_chain } = certificate;
    let pem = Source::File(path.clone()).read(origin.files)?;
    let key_path = key_path.as_ref().unwrap_or(path);
    let key = Source::File(key_path.clone()).read(origin.files)?;
    let chain: Result<Vec<CertificateDer<'_>>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let chain = chain.map_err(|error| format!("{}: {error}", path.display()))?;
    let first = chain.first().ok_or_else(|| {
        format!("{}: no certificate as PEM: openssl pkcs12 -in FILE -nodes makes it of a PFX file", path.display())
    })?;
    let mut header = Map::new();
    let digest = ring::digest::digest(&ring::digest::SHA256, first);
    header.insert("x5t#S256".to_owned(), Value::from(URL_SAFE_NO_PAD.encode(digest)));
    if *sends_chain {
        header.insert("x5c".to_owned(), chain.iter().map(|certificate| STANDARD.encode(certificate)).collect());
    }
    let request = of_client(config, (tenant_id, client_id));
    let mut claims = Map::new();
    claims.insert("aud".to_owned(), Value::from(&*request.url));
    claims.insert("iss".to_owned(), Value::from(&**client_id));
    claims.insert("sub".to_owned(), Value::from(&**client_id));
    let algorithm = AssertionAlgorithm::Ps256;
    let assertion = Assertion { key, algorithm, header, claims, lifetime_s: ASSERTION_LIFETIME_S };
    let mut request = with_pairs(request, &[("client_assertion_type", CLIENT_ASSERTION_TYPE)]);
    request.assertion = Some(("client_assertion", assertion));
    Ok(request)
}

/// What Azure's libraries look for, in their order: an application's secret or certificate, a pod, the machine. Their command-line tools
/// are not asked.
fn of_environment(config: &AzureConfig, tenant_id: &str, origin: &Origin<'_>) -> Result<TokenRequest, String> {
    let variable = |name: &str| (origin.variable)(name);
    let client_id = variable("AZURE_CLIENT_ID").unwrap_or_default();
    let tenant_id = variable("AZURE_TENANT_ID").unwrap_or_else(|| tenant_id.to_owned());
    let account = (tenant_id.as_str(), client_id.as_str());
    if tenant_id.is_empty() || client_id.is_empty() {
        return Ok(of_machine(config, &client_id, origin));
    }
    if let Some(secret) = variable("AZURE_CLIENT_SECRET") {
        return Ok(with_pairs(of_client(config, account), &[("client_secret", &secret)]));
    }
    if let Some(path) = variable("AZURE_CLIENT_CERTIFICATE_PATH") {
        let path = PathBuf::from(path);
        let certificate = AzureCertificate { client_id, tenant_id, path, key_path: None, sends_chain: false };
        return of_certificate(config, &certificate, origin);
    }
    let has_pod_token = variable("AZURE_FEDERATED_TOKEN_FILE").is_some()
        || read_file(origin.files, Path::new(POD_TOKEN_FILE), FILE_BYTES_MAX).is_ok();
    if has_pod_token { of_pod(config, account, None, origin) } else { Ok(of_machine(config, &client_id, origin)) }
}
