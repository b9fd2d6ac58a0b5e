//! The configuration in force: a `prometheus.yml`, a stream aggregation file, or both. A reload takes all of a new one over, or nothing.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use db::Db;
use platform::network::NetworkPlatform;
use rules::file::{self, GroupConfig, LoadedRules, ReadOptions};
use rules::materialize::{self, RulePatterns};
use rules::stream_aggregation::AggregationFile;
use rules::{Manager, ManagerOptions};
use scrape::config::reader::Problem;
use scrape::config::{self, Config, Loaded, Origin};
use scrape::{Forwarder, Scraper};

/// How a `prometheus.yml` and a stream aggregation file are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrometheusSettings {
    /// The `prometheus.yml`; without one nothing is scraped.
    pub file: Option<PathBuf>,
    /// VictoriaMetrics's stream aggregation file, if there is one.
    pub stream_aggregation: Option<AggregationFile>,
    /// The database that scrapes are written to, and that rules read and write.
    pub database: String,
    /// The address by which the server is reached from outside, for links in alerts.
    pub external_url: String,
    /// Recording rules whose results are kept right for the past, too.
    pub materialize_rules: RulePatterns,
}

/// A configuration that the server runs.
pub struct PrometheusMode {
    settings: PrometheusSettings,
    network: NetworkPlatform,
    current: Mutex<Current>,
    running: OnceLock<Running>,
}

struct Running {
    scraper: Scraper,
    rules: Manager,
    forwarder: Forwarder,
}

struct Current {
    config: Arc<Config>,
    groups: Vec<GroupConfig>,
    is_last_reload_successful: bool,
    loaded_ns: i64,
}

impl fmt::Debug for PrometheusMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PrometheusMode").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Reads a configuration with the variables of this process, its rules, and those that a stream aggregation file becomes.
fn load(network: &NetworkPlatform, settings: &PrometheusSettings) -> Result<(Loaded, LoadedRules), Vec<Problem>> {
    let variable = |name: &str| std::env::var(name).ok();
    let files = &*network.platform.files;
    let loaded = match &settings.file {
        Some(file) => config::load(file, &Origin { files, variable: &variable })?,
        None => Loaded::default(),
    };
    let options = ReadOptions { names: loaded.config.global.defaults.names, ..ReadOptions::default() };
    let mut rules = file::load(files, &loaded.config.rule_files, &options)?;
    if let Some(file) = &settings.stream_aggregation {
        let aggregation = file.load(files, &variable)?;
        rules.groups.extend(aggregation.groups);
        rules.warnings.extend(aggregation.warnings);
    }
    rules.warnings.extend(materialize::select(&mut rules.groups, &settings.materialize_rules)?);
    Ok((loaded, rules))
}

impl PrometheusMode {
    /// Reads the files; also what in them has no effect. Errors are given all at once.
    pub fn load(
        settings: PrometheusSettings,
        network: NetworkPlatform,
    ) -> Result<(Arc<Self>, Vec<Problem>), Vec<Problem>> {
        let (Loaded { config, mut warnings }, rules) = load(&network, &settings)?;
        warnings.extend(rules.warnings);
        let loaded_ns = network.platform.clock.now_ns();
        let config = Arc::new(config);
        let current = Current { config, groups: rules.groups, is_last_reload_successful: true, loaded_ns };
        let mode = Self { settings, network, current: Mutex::new(current), running: OnceLock::new() };
        Ok((Arc::new(mode), warnings))
    }

    /// Begins to scrape into a database, and to evaluate rules. Runs on the runtime's threads.
    pub(crate) fn start(&self, db: &Arc<Db>) {
        let running = self.running.get_or_init(|| {
            let PrometheusSettings { database, external_url, .. } = &self.settings;
            let options = ManagerOptions { database: database.clone(), external_url: external_url.clone() };
            Running {
                scraper: Scraper::start(&self.network, db.clone(), database),
                rules: Manager::start(&self.network, db.clone(), options),
                forwarder: Forwarder::start(&self.network, db.clone(), database),
            }
        });
        running.apply(&self.current(), self.has_prometheus());
    }

    /// Returns whether there is a `prometheus.yml`: without one nothing is said of targets and receivers.
    const fn has_prometheus(&self) -> bool {
        self.settings.file.is_some()
    }

    /// Ends all scrapes and rules; the next start goes on.
    pub fn stop(&self) {
        if let Some(running) = self.running.get() {
            running.rules.stop();
            running.scraper.stop();
            running.forwarder.stop();
        }
    }

    /// The database that scrapes are written to.
    pub(crate) fn database(&self) -> &str {
        &self.settings.database
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.current().config.clone()
    }

    /// Reads the files again and takes them over, unless one has errors; also what in them has no effect.
    pub fn reload(&self) -> Result<Vec<Problem>, Vec<Problem>> {
        let loaded = load(&self.network, &self.settings);
        // Reloads come one after another.
        let mut current = self.current();
        current.is_last_reload_successful = loaded.is_ok();
        let (Loaded { config, mut warnings }, rules) = loaded?;
        warnings.extend(rules.warnings);
        current.config = Arc::new(config);
        current.groups = rules.groups;
        current.loaded_ns = self.network.platform.clock.now_ns();
        if let Some(running) = self.running.get() {
            running.apply(&current, self.has_prometheus());
        }
        Ok(warnings)
    }

    /// When the configuration in force was read, and whether the last reload succeeded.
    pub(crate) fn last_reload(&self) -> (i64, bool) {
        let current = self.current();
        (current.loaded_ns, current.is_last_reload_successful)
    }

    pub(crate) fn pools(&self) -> Vec<Arc<scrape::Pool>> {
        self.running.get().map(|running| running.scraper.pools()).unwrap_or_default()
    }

    /// Returns whether the configuration in force has a receiver.
    pub(crate) fn has_receiver(&self, name: &str) -> bool {
        scrape::forward::receivers(&self.config()).contains(&name.to_owned())
    }

    /// The numbers of what is forwarded, as text.
    pub(crate) fn forwarding_metrics(&self) -> String {
        self.running.get().map(|running| running.forwarder.metrics()).unwrap_or_default()
    }

    /// What an operator should look at: a reload that failed, receivers that do not take what is forwarded.
    pub(crate) fn notifications(&self) -> Vec<String> {
        let reload = (!self.last_reload().1).then(|| "Configuration reload has failed.".to_owned());
        let failures = self.running.get().map(|running| running.forwarder.failures()).unwrap_or_default();
        let failures = failures.into_iter().map(|(name, reason)| format!("Forwarding to {name} fails: {reason}"));
        reload.into_iter().chain(failures).collect()
    }

    /// The rules that run.
    pub(crate) fn rules(&self) -> Option<&Manager> {
        self.running.get().map(|running| &running.rules)
    }
}

impl Running {
    fn apply(&self, current: &Current, has_prometheus: bool) {
        // What the log holds for receivers is given up where a file does not name them any more, not where there is none.
        if has_prometheus {
            // First: what is scraped from now on is forwarded.
            self.forwarder.apply(&current.config);
            self.scraper.apply(&current.config);
        }
        self.rules.apply(&current.config, current.groups.clone());
    }
}
