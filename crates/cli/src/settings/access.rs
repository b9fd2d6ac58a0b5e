//! Settings of who gets in: browsers, accounts of files, networks; and where backups may go.

use std::path::Path;

use access::account::{Account, Credential};
use access::rate::Quota;
use access::web_config::WebConfig;
use server::{BackupTarget, Network, ServerSettings};

use super::{ServeFlags, list};

impl ServeFlags {
    /// Which browsers get in, and where backups may go.
    pub(super) fn set_access(&self, server: &mut ServerSettings) -> Result<(), String> {
        server.host_names = list(self.host_names.as_deref());
        server.origins = origins(self.origins.as_deref())?;
        server.backup_targets =
            list(self.backup_targets.as_deref()).iter().map(|text| BackupTarget::parse(text)).collect();
        let sources = list(self.line_sources.as_deref());
        let sources: Result<Vec<Network>, String> = sources.iter().map(|text| Network::parse(text)).collect();
        server.line_sources = sources.map_err(|why| format!("--line-sources: {why}"))?;
        server.accounts = self.web_config()?;
        Ok(())
    }

    /// The users of `web.config.yml`.
    fn web_config(&self) -> Result<Vec<Account>, String> {
        let Some(path) = &self.web_config_file else { return Ok(Vec::new()) };
        let named = |why: String| format!("--web-config-file {}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let config = WebConfig::parse(&text).map_err(named)?;
        if config.tls_server_config.is_some() {
            return Err(named("tls_server_config is not served yet: put a proxy that ends TLS in front".to_owned()));
        }
        let account = |(name, stored): (&String, &String)| Account {
            name: name.clone(),
            credential: Credential::Password(stored.clone()),
            scram: None,
            is_server_admin: true,
            grants: Vec::new(),
            quota: Quota::default(),
            created_ns: 0,
            expires_ns: None,
        };
        Ok(config.basic_auth_users.iter().map(account).collect())
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
            None => Some(data.join("audit.log")).filter(|_| server.sign_in_required && !server.is_insecure_open),
            Some("off") => None,
            Some(path) => Some(path.into()),
        };
        Ok(())
    }
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
