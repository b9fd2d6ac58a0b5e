//! The numbers of a `prometheus.yml` that runs.

use std::fmt::Write;

use super::mode::PrometheusMode;
use crate::metrics::family;

/// The numbers of reloads and targets, as text.
pub(crate) fn render(mode: &PrometheusMode, out: &mut String) {
    let (loaded_ns, is_successful) = mode.last_reload();
    let pools = mode.pools();
    let disabled = pools.iter().filter(|pool| pool.config.disabled.is_some()).count();
    for (name, help, value) in [
        (
            "thalweg_config_last_reload_successful",
            "Whether the last reload of prometheus.yml succeeded.",
            f64::from(u8::from(is_successful)),
        ),
        (
            "thalweg_config_last_reload_success_timestamp_seconds",
            "When prometheus.yml was read as it is in force.",
            loaded_ns as f64 / 1e9,
        ),
        (
            "thalweg_scrape_jobs_disabled",
            "Jobs that do not run because their discovery is not built in.",
            disabled as f64,
        ),
        (
            "thalweg_config_parts_disabled",
            "Jobs, Alertmanagers and receivers of remote_write that do not run because something of them is not built in.",
            mode.config().disabled().len() as f64,
        ),
    ] {
        family(out, name, "gauge", help);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name} {value}");
    }
    family(out, "thalweg_scrape_pool_targets", "gauge", "Targets of each job.");
    for pool in &pools {
        let name = pool.config.job_name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = writeln!(out, "thalweg_scrape_pool_targets{{scrape_job=\"{name}\"}} {}", pool.active().len());
    }
    if let Some(rules) = mode.rules() {
        out.push_str(&rules.metrics());
    }
    out.push_str(&mode.forwarding_metrics());
}
