//! Settings of who gets in: TLS, browsers, accounts of files, networks; and where backups may go.

use std::path::Path;

use access::account::{Account, Credential};
use access::oidc::{OidcRules, Role};
use access::rate::Quota;
use access::web_config::{ClientCertificates, WebConfig};
use platform::Platform;
use server::{BackupTarget, Network, OidcClient, Pem, ServerSettings, TlsSettings, log};
use views::delivery::UrlRules;
use zeroize::Zeroizing;

use super::{ServeFlags, list};

impl ServeFlags {
    /// Which browsers get in, and where backups may go.
    pub(super) fn set_access(&self, server: &mut ServerSettings) -> Result<(), String> {
        server.host_names = list(self.host_names.as_deref());
        server.origins = origins(self.origins.as_deref())?;
        server.backup_targets =
            list(self.backup_targets.as_deref()).iter().map(|text| BackupTarget::parse(text)).collect();
        server.line_sources = networks("--line-sources", self.line_sources.as_deref())?;
        server.trusted_proxies = networks("--trusted-proxies", self.trusted_proxies.as_deref())?;
        let urls = UrlRules::parse(&list(self.webhook_urls.as_deref()));
        server.web.webhook_urls = urls.map_err(|why| format!("--webhook-urls: {why}"))?;
        server.web.tail_streams_max = self.tail_streams_max;
        server.http_socket.clone_from(&self.http_socket);
        server.hsts_max_age_s = self.hsts_max_age_s;
        server.tls = self.tls()?;
        if let Some(path) = &self.web_config_file {
            self.set_web_config(server, path).map_err(|why| format!("--web-config-file {}: {why}", path.display()))?;
        }
        if server.hsts_max_age_s.is_some() && server.tls.is_none() {
            return Err("--hsts-max-age-s needs TLS: browsers take it from nothing else".to_owned());
        }
        Ok(())
    }

    /// Takes over TLS, headers and users of `web.config.yml`.
    fn set_web_config(&self, server: &mut ServerSettings, path: &Path) -> Result<(), String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let config = WebConfig::parse(&text)?.resolved(path.parent().unwrap_or(Path::new("")));
        if let Some(tls) = &config.tls_server_config {
            if server.tls.is_some() {
                return Err("there is a tls_server_config in it: leave it or --tls-cert out".to_owned());
            }
            for setting in tls.without_effect() {
                log::warn(&format!(
                    "web.config.yml: tls_server_config: {setting} has no effect: there are no weak ones to leave out"
                ));
            }
            let from_file = TlsSettings::from_web_config(tls, config.http_server_config.http2)?;
            server.tls = Some(TlsSettings { listeners: self.tls_listeners()?, ..from_file });
        }
        if config.rate_limit.is_some() {
            log::warn(
                "web.config.yml: rate_limit has no effect: limits are of accounts (thalweg token create --requests-per-s)",
            );
        }
        server.response_headers = config.http_server_config.headers.into_iter().collect();
        let account = |(name, stored): (&String, &String)| Account {
            name: name.clone(),
            credential: Credential::Password(stored.clone()),
            certificates: Vec::new(),
            scram: None,
            is_server_admin: true,
            grants: Vec::new(),
            quota: Quota::default(),
            created_ns: 0,
            expires_ns: None,
        };
        server.accounts = config.basic_auth_users.iter().map(account).collect();
        Ok(())
    }

    /// The identity provider, if one is named.
    pub(super) fn oidc(&self) -> Result<Option<OidcSettings>, String> {
        let Some(issuer) = self.oidc_issuer.clone() else {
            let others = [&self.oidc_audiences, &self.oidc_roles, &self.oidc_client_id, &self.oidc_redirect_url];
            let is_named = others.iter().any(|other| other.is_some()) || self.oidc_client_secret_file.is_some();
            return if is_named {
                Err("the settings of OpenID Connect need --oidc-issuer".to_owned())
            } else {
                Ok(None)
            };
        };
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let client = match (&self.oidc_client_id, &self.oidc_redirect_url) {
            (Some(id), Some(redirect_url)) => {
                let secret = self.oidc_client_secret_file.as_deref().map(|path| {
                    let bytes = Zeroizing::new(read(path)?);
                    let text = std::str::from_utf8(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
                    Ok::<_, String>(Zeroizing::new(text.trim().to_owned()))
                });
                Some(OidcClient { id: id.clone(), secret: secret.transpose()?, redirect_url: redirect_url.clone() })
            }
            (None, None) => None,
            _ => return Err("--oidc-client-id and --oidc-redirect-url are needed together".to_owned()),
        };
        let mut audiences = list(self.oidc_audiences.as_deref());
        audiences.extend(client.as_ref().map(|client| client.id.clone()));
        if audiences.is_empty() {
            return Err(
                "--oidc-audiences says whom tokens have to be meant for: without it any token of the provider would do"
                    .to_owned(),
            );
        }
        let granted: Result<Vec<Role>, String> =
            roles(self.oidc_roles.as_deref()).iter().map(|role| Role::parse(role)).collect();
        let rules = OidcRules {
            issuer,
            audiences,
            name_claim: self.oidc_name_claim.clone().unwrap_or_else(|| "sub".to_owned()),
            groups_claim: self.oidc_groups_claim.clone().unwrap_or_else(|| "groups".to_owned()),
            roles: granted.map_err(|why| format!("--oidc-roles: {why}"))?,
        };
        let authorities = self.oidc_ca_file.as_deref().map(read).transpose()?;
        Ok(Some(OidcSettings { rules, client, authorities }))
    }

    /// TLS as the flags have it.
    fn tls(&self) -> Result<Option<TlsSettings>, String> {
        let (certificate, key) = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) if self.tls_client_ca.is_none() && self.tls_client_crl.is_none() => return Ok(None),
            _ => return Err("--tls-cert and --tls-key are needed together".to_owned()),
        };
        let client_certificates = match (&self.tls_client_ca, self.tls_client_certificates.as_deref()) {
            (None, None) => ClientCertificates::Ignored,
            (None, Some(_)) => return Err("--tls-client-certificates needs --tls-client-ca".to_owned()),
            (Some(_), None | Some("optional")) => ClientCertificates::Verified,
            (Some(_), Some("required")) => ClientCertificates::Required,
            (_, Some(word)) => {
                return Err(format!("--tls-client-certificates {word:?} is neither optional nor required"));
            }
        };
        if self.tls_client_crl.is_some() && self.tls_client_ca.is_none() {
            return Err("--tls-client-crl needs --tls-client-ca".to_owned());
        }
        Ok(Some(TlsSettings {
            client_authorities: self.tls_client_ca.clone().map(Pem::File),
            client_revocations: self.tls_client_crl.clone().map(Pem::File),
            client_certificates,
            listeners: self.tls_listeners()?,
            ..TlsSettings::new(Pem::File(certificate.clone()), Pem::File(key.clone()))
        }))
    }

    fn tls_listeners(&self) -> Result<Option<Vec<String>>, String> {
        let Some(text) = &self.tls_listeners else { return Ok(None) };
        let listeners = list(Some(text));
        match listeners.iter().find(|name| !LISTENERS.contains(&name.as_str())) {
            Some(wrong) => Err(format!("--tls-listeners {wrong:?} is none of {}", LISTENERS.join(", "))),
            None => Ok(Some(listeners)),
        }
    }

    /// Whether clients have to sign in, once it is known where the server listens.
    pub(super) fn set_sign_in(&self, server: &mut ServerSettings, data: &Path) -> Result<(), String> {
        server.is_insecure_open = self.insecure_open;
        server.sign_in_required = match self.sign_in.as_deref() {
            None | Some("auto") => server.is_reachable_from_outside() || !server.accounts.is_empty(),
            Some("required") => true,
            Some(word) => return Err(format!("--sign-in {word:?} is neither auto nor required")),
        };
        server.audit_log = match self.audit_log.as_deref() {
            None => {
                let path = platform::container::companion(&*Platform::real().files, data, "audit.log");
                Some(path).filter(|_| server.sign_in_required && !server.is_insecure_open)
            }
            Some("off") => None,
            Some(path) => Some(path.into()),
        };
        Ok(())
    }
}

/// The identity provider, and what its accounts may do.
#[derive(Debug, Clone)]
pub(crate) struct OidcSettings {
    pub(crate) rules: OidcRules,
    /// The page's sign-in, if it is by the provider, too.
    pub(crate) client: Option<OidcClient>,
    /// The authorities that its certificate is checked by (PEM).
    pub(crate) authorities: Option<Vec<u8>>,
}

/// Roles are separated by semicolons: label matchers in them have commas.
fn roles(text: Option<&str>) -> Vec<String> {
    let roles = text.unwrap_or_default().split(';').map(str::trim).filter(|role| !role.is_empty());
    roles.map(str::to_owned).collect()
}

/// The listeners that use TCP, by the names of their flags.
const LISTENERS: [&str; 11] = [
    "http",
    "control",
    "ingest",
    "line",
    "graphite",
    "opentsdb",
    "rrdcached",
    "postgres",
    "redis",
    "flight-sql",
    "otlp-grpc",
];

fn networks(flag: &str, text: Option<&str>) -> Result<Vec<Network>, String> {
    let networks: Result<Vec<Network>, String> = list(text).iter().map(|text| Network::parse(text)).collect();
    networks.map_err(|why| format!("{flag}: {why}"))
}

/// Origins of pages, each as a browser says it.
fn origins(text: Option<&str>) -> Result<Vec<String>, String> {
    let origins = list(text);
    let is_origin = |origin: &&String| {
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        rest.is_some_and(|host| !host.is_empty() && !host.trim_end_matches('/').contains('/'))
    };
    match origins.iter().find(|origin| !is_origin(origin)) {
        Some(wrong) => Err(format!("--origins {wrong:?} is not an origin such as http://grafana:3000")),
        None => Ok(origins),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_tls_belong_together() {
        let of_text = |text: &str| ServeFlags::default().over(text).and_then(|flags| flags.to_settings());
        let both = "tls_cert = \"c.pem\"\ntls_key = \"k.pem\"\n";
        let tls = of_text(&format!("{both}tls_client_ca = \"a.pem\"\ntls_listeners = \"http, postgres\"")).unwrap();
        let tls = tls.server.tls.unwrap();
        assert_eq!(tls.client_certificates, ClientCertificates::Verified);
        assert!(tls.covers("--http") && tls.covers("postgres") && !tls.covers("--line"));
        for (text, expected) in [
            ("tls_cert = \"c.pem\"", "together"),
            ("tls_client_ca = \"a.pem\"", "together"),
            (&format!("{both}tls_client_certificates = \"required\""), "--tls-client-ca"),
            (&format!("{both}tls_client_ca = \"a.pem\"\ntls_client_certificates = \"maybe\""), "maybe"),
            (&format!("{both}tls_listeners = \"udp\""), "udp"),
            ("hsts_max_age_s = 5", "needs TLS"),
            ("trusted_proxies = \"x\"", "--trusted-proxies"),
            ("webhook_urls = \"nowhere\"", "--webhook-urls"),
            (&format!("{both}tls_client_crl = \"r.pem\""), "--tls-client-ca"),
            ("oidc_audiences = \"x\"", "--oidc-issuer"),
            ("oidc_issuer = \"https://id.example\"", "--oidc-audiences"),
            ("oidc_issuer = \"https://id.example\"\noidc_client_id = \"x\"", "--oidc-redirect-url"),
            ("oidc_issuer = \"https://id.example\"\noidc_audiences = \"x\"\noidc_roles = \"x\"", "--oidc-roles"),
        ] {
            let error = of_text(text).err().unwrap_or_default();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
