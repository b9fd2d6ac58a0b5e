//! Amazon's AWS: requests signed with keys, which are those of a role where one is named.
//!
//! * `credentials`: which key and region · `signature`: requests signed with a key (Signature Version 4) · `xml`: answers

mod credentials;
mod signature;
pub mod xml;

use platform::network::{ClientOptions, HttpRequest, NetworkPlatform};

use tokio::sync::Mutex;

use crate::client::proxy_options;
use crate::config::{AwsIdentity, ProxyConfig, Sigv4Config};
use credentials::Surroundings;
use signature::{Keys, Signing};

/// Bytes of an answer with keys.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Keys of a role are fetched anew so long before they end.
const KEYS_MARGIN_NS: i64 = 300_000_000_000;

/// The session's name where none is configured.
const SESSION_NAME: &str = "thalweg";

/// Signs requests for one service.
pub(crate) struct Signer {
    network: NetworkPlatform,
    config: Sigv4Config,
    /// How the role is asked for: as requests are.
    proxy: ProxyConfig,
    /// Held while the keys are fetched, so that requests that come together fetch them once.
    role: Mutex<Option<RoleKeys>>,
}

/// Keys of a role, which end after a while.
#[derive(Clone)]
struct RoleKeys {
    keys: Keys,
    ends_ns: i64,
    /// The key that the role was taken on with.
    access_key: String,
}

impl Signer {
    pub(crate) fn new(network: &NetworkPlatform, config: &Sigv4Config, proxy: &ProxyConfig) -> Self {
        let (network, config, proxy) = (network.clone(), config.clone(), proxy.clone());
        Self { network, config, proxy, role: Mutex::default() }
    }

    /// The request with its signature. Keys are looked up for each request, so that new ones need no reload.
    pub(crate) async fn sign(&self, request: HttpRequest) -> Result<HttpRequest, String> {
        let identity = &self.config.identity;
        let (region, keys) = with_surroundings(&self.network, |surroundings| {
            Ok::<_, String>((surroundings.region(identity)?, surroundings.keys(identity)?))
        })?;
        let keys = if identity.role_arn.is_empty() { keys } else { self.role_keys(&region, keys).await? };
        let now_ns = self.network.platform.clock.now_ns();
        Signing { keys: &keys, region: &region, service: &self.config.service, now_ns }.sign(request)
    }

    /// The keys of the role: those of its session, as long as that lasts.
    async fn role_keys(&self, region: &str, own: Keys) -> Result<Keys, String> {
        let mut role = self.role.lock().await;
        let now_ns = self.network.platform.clock.now_ns();
        let is_good = |known: &&RoleKeys| known.ends_ns > now_ns && known.access_key == own.access_key;
        if let Some(known) = role.as_ref().filter(is_good) {
            return Ok(known.keys.clone());
        }
        let taken_on = self.assume_role(region, &own).await;
        let (keys, ends_ns) = taken_on.map_err(|reason| format!("role {}: {reason}", self.config.identity.role_arn))?;
        let ends_ns = ends_ns.saturating_sub(KEYS_MARGIN_NS);
        *role = Some(RoleKeys { keys: keys.clone(), ends_ns, access_key: own.access_key });
        Ok(keys)
    }

    async fn assume_role(&self, region: &str, own: &Keys) -> Result<(Keys, i64), String> {
        let request = role_request(&self.config.identity, region);
        let now_ns = self.network.platform.clock.now_ns();
        let request = Signing { keys: own, region, service: "sts", now_ns }.sign(request)?;
        let options = ClientOptions { follow_redirects: true, enable_http2: true, ..proxy_options(&self.proxy) };
        let client = self.network.network.client(&options)?;
        let mut response = client.send(request).await.map_err(|error| error.to_string())?;
        let body = response.read_body(ANSWER_BYTES_MAX).await.map_err(|error| error.to_string())?;
        let text = std::str::from_utf8(&body).map_err(|_| "the answer is not UTF-8".to_owned())?;
        if response.status != 200 {
            let message = xml::parse(text).ok();
            let message = message.as_ref().and_then(|answer| answer.child("Error"));
            let message = message.map_or("", |error| error.text("Message"));
            return Err(format!("status {} {message}", response.status).trim_end().to_owned());
        }
        keys_of(&xml::parse(text)?)
    }
}

/// The domain of a region's services.
pub(crate) fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// The region that a configuration names, or that of the surroundings.
pub(crate) fn region(network: &NetworkPlatform, identity: &AwsIdentity) -> Result<String, String> {
    with_surroundings(network, |surroundings| surroundings.region(identity))
}

fn with_surroundings<T>(network: &NetworkPlatform, look: impl FnOnce(&Surroundings<'_>) -> T) -> T {
    look(&Surroundings { files: &*network.platform.files, variable: &|name: &str| std::env::var(name).ok() })
}

/// `AssumeRole` of the Security Token Service.
fn role_request(identity: &AwsIdentity, region: &str) -> HttpRequest {
    let prefix = if identity.use_fips_sts { "sts-fips" } else { "sts" };
    let session = if identity.session_name.is_empty() { SESSION_NAME } else { &identity.session_name };
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("Action", "AssumeRole").append_pair("Version", "2011-06-15");
    form.append_pair("RoleArn", &identity.role_arn).append_pair("RoleSessionName", session);
    if !identity.external_id.is_empty() {
        form.append_pair("ExternalId", &identity.external_id);
    }
    for (number, (key, value)) in (1..).zip(&identity.session_tags) {
        form.append_pair(&format!("Tags.member.{number}.Key"), key);
        form.append_pair(&format!("Tags.member.{number}.Value"), value);
    }
    let url = format!("https://{prefix}.{region}.{}/", domain(region));
    HttpRequest { method: "POST", url, headers: Vec::new(), body: form.finish().into_bytes() }
        .with_header("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
}

/// The keys in an answer of `AssumeRole`, and when they end.
fn keys_of(answer: &xml::Element) -> Result<(Keys, i64), String> {
    let found = answer.child("AssumeRoleResult").and_then(|result| result.child("Credentials"));
    let found = found.ok_or("the answer has no Credentials")?;
    let required = |name: &str| {
        let text = found.text(name);
        if text.is_empty() { Err(format!("the answer has no {name}")) } else { Ok(text.to_owned()) }
    };
    let ends: jiff::Timestamp =
        required("Expiration")?.parse().map_err(|error: jiff::Error| format!("Expiration: {error}"))?;
    let keys = Keys {
        access_key: required("AccessKeyId")?,
        secret_key: required("SecretAccessKey")?,
        session_token: Some(required("SessionToken")?),
    };
    Ok((keys, i64::try_from(ends.as_nanosecond()).unwrap_or(i64::MAX)))
}
