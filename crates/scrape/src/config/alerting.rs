//! `alerting`: where alerts are sent.

use super::discovery::{self, Discovery};
use super::http::HttpConfig;
use super::job::read_scheme;
use super::reader::Fields;
use super::relabelling::read_rules;
use relabel::{NameScheme, Rule};

/// Where alerts are sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlertingConfig {
    /// Steps for all alerts.
    pub alert_relabel: Vec<Rule>,
    /// Groups of Alertmanagers.
    pub alertmanagers: Vec<AlertmanagerConfig>,
}

/// Alertmanagers that are found and asked alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertmanagerConfig {
    /// `http` or `https`.
    pub scheme: String,
    /// What stands before the API's paths.
    pub path_prefix: String,
    /// How long a request may take.
    pub timeout_ms: u64,
    /// How requests are made.
    pub http: HttpConfig,
    /// Where they are found.
    pub discoveries: Vec<Discovery>,
    /// Why they cannot be found or asked, if they cannot.
    pub disabled: Option<String>,
    /// Steps for Alertmanagers.
    pub relabel: Vec<Rule>,
    /// Steps for the alerts that are sent to these.
    pub alert_relabel: Vec<Rule>,
}

pub(super) fn read(fields: &Fields<'_>, names: NameScheme) -> AlertingConfig {
    AlertingConfig {
        alert_relabel: read_rules(fields, "alert_relabel_configs", names),
        alertmanagers: fields.maps("alertmanagers", |section| Some(read_alertmanager(section, names))),
    }
}

fn read_alertmanager(fields: &Fields<'_>, names: NameScheme) -> AlertmanagerConfig {
    let version = fields.text_or("api_version", "v2");
    if version != "v2" {
        fields.reading.error(fields.position_of("api_version"), format!("api_version {version:?}: only v2 is there"));
    }
    let (discoveries, not_found) = discovery::read(fields, names);
    let http = HttpConfig::read_with_clouds(fields);
    let disabled = not_found.or_else(|| http.not_built_in().map(str::to_owned));
    AlertmanagerConfig {
        scheme: read_scheme(fields),
        path_prefix: fields.text_or("path_prefix", ""),
        timeout_ms: fields.duration_ms("timeout").unwrap_or(10_000),
        http,
        discoveries,
        disabled,
        relabel: read_rules(fields, "relabel_configs", names),
        alert_relabel: read_rules(fields, "alert_relabel_configs", names),
    }
}
