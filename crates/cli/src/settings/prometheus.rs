//! Settings of scraping.

use server::PrometheusSettings;

use super::{ServeFlags, database};

/// Where the server is reached unless it is said.
const EXTERNAL_URL: &str = "http://localhost:7780";

impl ServeFlags {
    /// The `prometheus.yml` that is run, if one is named.
    pub(super) fn prometheus(&self) -> Result<Option<PrometheusSettings>, String> {
        let Some(file) = self.prometheus.clone() else { return Ok(None) };
        let database = database("--prometheus-database", self.prometheus_database.as_deref())?;
        let external_url = self.web_external_url.clone().unwrap_or_else(|| EXTERNAL_URL.to_owned());
        Ok(Some(PrometheusSettings { file, database, external_url, is_lifecycle_enabled: self.web_enable_lifecycle }))
    }
}
