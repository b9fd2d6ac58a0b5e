//! Settings of what Prometheus has: scraping, its web interface, replicas.

use db::DbOptions;
use ingest::remote_write::ReplicaLabels;
use ingest::replicas::ReplicaSettings;
use promql::{Features, NameRemoval};
use rules::materialize::RulePatterns;
use rules::stream_aggregation::AggregationFile;
use server::{PrometheusSettings, RoutePrefix, ServerSettings};

use super::{ServeFlags, database, list, set};

/// Where the server is reached unless it is said.
const EXTERNAL_URL: &str = "http://localhost:7780";

impl ServeFlags {
    /// The `prometheus.yml` and the stream aggregation file that are run, if one is named.
    pub(super) fn prometheus(&self, db: &DbOptions) -> Result<Option<PrometheusSettings>, String> {
        let patterns = RulePatterns::parse(&list(self.materialize_rules.as_deref()));
        let materialize_rules = patterns.map_err(|why| format!("--materialize-rules: {why}"))?;
        if self.prometheus.is_none() && !materialize_rules.is_empty() {
            // Not ignored silently: rules of files run with a configuration alone.
            return Err("--materialize-rules needs --prometheus, whose rule_files run".to_owned());
        }
        let file = self.prometheus.clone();
        let stream_aggregation = self.stream_aggregation.clone().map(|path| AggregationFile {
            path,
            lookback_ms: u64::try_from(db.lookback_ms).unwrap_or_default(),
            features: Features::all(db.promql_experimental),
        });
        if file.is_none() && stream_aggregation.is_none() {
            return Ok(None);
        }
        let database = database("--prometheus-database", self.prometheus_database.as_deref())?;
        let external_url = self.web_external_url.clone().unwrap_or_else(|| EXTERNAL_URL.to_owned());
        Ok(Some(PrometheusSettings { file, stream_aggregation, database, external_url, materialize_rules }))
    }

    /// When metrics' names are dropped.
    pub(super) fn set_name_removal(&self, db: &mut DbOptions) -> Result<(), String> {
        if let Some(word) = &self.delayed_name_removal {
            db.name_removal = NameRemoval::from_word(word)
                .ok_or_else(|| format!("--delayed-name-removal {word:?} is not false, true or always"))?;
        }
        Ok(())
    }

    /// How HTTP is reached, and whether it may end the server.
    pub(super) fn set_web(&self, server: &mut ServerSettings) -> Result<(), String> {
        server.web.is_lifecycle_enabled = self.web_enable_lifecycle;
        let external_url = self.web_external_url.as_deref().unwrap_or_default();
        let path = if external_url.is_empty() { "" } else { path_of(external_url)? };
        let prefix = self.web_route_prefix.as_deref();
        let prefix_flag = if prefix.is_some() { "--web-route-prefix" } else { "--web-external-url" };
        server.web.route_prefix =
            RoutePrefix::parse(prefix.unwrap_or(path)).map_err(|why| format!("{prefix_flag}: {why}"))?;
        external_url.clone_into(&mut server.web.external_url);
        Ok(())
    }

    /// How samples of replicas are deduplicated, if one of their labels is named.
    pub(super) fn replicas(&self) -> Result<Option<ReplicaSettings>, String> {
        if self.ha_cluster_label.is_none() && self.ha_replica_label.is_none() {
            return Ok(None);
        }
        let mut settings = ReplicaSettings::default();
        set(&mut settings.labels.cluster, self.ha_cluster_label.clone());
        set(&mut settings.labels.replica, self.ha_replica_label.clone());
        set(&mut settings.failover_timeout_ms, self.ha_failover_timeout_ms);
        set(&mut settings.clusters_max, self.ha_clusters_max);
        let ReplicaLabels { cluster, replica } = &settings.labels;
        if cluster.is_empty() || replica.is_empty() || cluster == replica {
            return Err(format!(
                "--ha-cluster-label {cluster:?} and --ha-replica-label {replica:?}: two labels are needed"
            ));
        }
        Ok(Some(settings))
    }
}

/// The path of an external URL.
fn path_of(external_url: &str) -> Result<&str, String> {
    let rest = external_url.strip_prefix("http://").or_else(|| external_url.strip_prefix("https://"));
    let (host, path) = rest.map_or(("", ""), |rest| rest.split_at(rest.find('/').unwrap_or(rest.len())));
    if host.is_empty() || external_url.contains(['?', '#', '@', ' ', '"']) {
        return Err(format!(
            "--web-external-url {external_url:?} is no address such as https://metrics.example/thalweg"
        ));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_prefix_is_the_path_of_the_external_url_unless_it_is_set() {
        for (url, prefix, expected) in [
            (None, None, Some("/")),
            (Some("https://metrics.example"), None, Some("/")),
            (Some("https://metrics.example/a/b/"), None, Some("/a/b")),
            (Some("https://metrics.example/a"), Some("/"), Some("/")),
            (Some("https://metrics.example/a"), Some("b"), Some("/b")),
            (Some("metrics.example/a"), None, None),
            (Some("https://"), None, None),
            (None, Some("a b"), None),
        ] {
            let flags = ServeFlags {
                web_external_url: url.map(str::to_owned),
                web_route_prefix: prefix.map(str::to_owned),
                ..ServeFlags::default()
            };
            let found = flags.to_settings().ok().map(|settings| settings.server.web.route_prefix.as_str().to_owned());
            assert_eq!(found.as_deref(), expected, "{url:?} {prefix:?}");
        }
    }

    #[test]
    fn rules_are_selected_where_some_run() {
        let prometheus = |patterns: &str, file: Option<&str>| {
            let materialize_rules = Some(patterns.to_owned());
            let flags = ServeFlags { materialize_rules, prometheus: file.map(Into::into), ..ServeFlags::default() };
            flags.prometheus(&DbOptions::new("d"))
        };
        let settings = prometheus("api/job:*, db", Some("prometheus.yml")).unwrap().unwrap();
        let expected = RulePatterns::parse(&["api/job:*".to_owned(), "db".to_owned()]).unwrap();
        assert_eq!(settings.materialize_rules, expected);
        assert!(prometheus("api", None).unwrap_err().contains("needs --prometheus"));
        assert!(prometheus("/x", Some("prometheus.yml")).unwrap_err().contains("--materialize-rules"));
    }

    #[test]
    fn stream_aggregation_runs_by_itself() {
        let flags = ServeFlags {
            stream_aggregation: Some("s.yml".into()),
            lookback_ms: Some(60_000),
            promql_experimental: Some(false),
            ..ServeFlags::default()
        };
        let settings = flags.to_settings().unwrap().prometheus.unwrap();
        let expected = AggregationFile { path: "s.yml".into(), lookback_ms: 60_000, features: Features::all(false) };
        assert_eq!((settings.file, settings.stream_aggregation), (None, Some(expected)));
        assert!(ServeFlags::default().to_settings().unwrap().prometheus.is_none());
    }

    #[test]
    fn one_label_of_replicas_is_enough() {
        let settings = |cluster: Option<&str>, replica: Option<&str>| {
            let flags = ServeFlags {
                ha_cluster_label: cluster.map(str::to_owned),
                ha_replica_label: replica.map(str::to_owned),
                ..ServeFlags::default()
            };
            flags.replicas().map(|settings| settings.map(|one| (one.labels.cluster, one.labels.replica)))
        };
        let labels = |cluster: &str, replica: &str| Ok(Some((cluster.to_owned(), replica.to_owned())));
        assert_eq!(settings(None, None), Ok(None));
        assert_eq!(settings(Some("c"), None), labels("c", "__replica__"));
        assert_eq!(settings(None, Some("r")), labels("cluster", "r"));
        assert!(settings(Some("a"), Some("a")).is_err() && settings(Some(""), None).is_err());
    }
}
