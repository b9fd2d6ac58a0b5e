//! Settings of scraping.

use server::PrometheusSettings;

use super::{ServeFlags, database};

impl ServeFlags {
    /// The `prometheus.yml` that is run, if one is named.
    pub(super) fn prometheus(&self) -> Result<Option<PrometheusSettings>, String> {
        let Some(file) = self.prometheus.clone() else { return Ok(None) };
        let database = database("--prometheus-database", self.prometheus_database.as_deref())?;
        Ok(Some(PrometheusSettings { file, database, is_lifecycle_enabled: self.web_enable_lifecycle }))
    }
}
