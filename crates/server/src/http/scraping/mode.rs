//! The configuration in force. A reload takes all of a new one over, or nothing.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use db::Db;
use platform::network::NetworkPlatform;
use scrape::Scraper;
use scrape::config::reader::Problem;
use scrape::config::{self, Config, Loaded, Origin};

/// How a `prometheus.yml` is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrometheusSettings {
    /// The file.
    pub file: PathBuf,
    /// The database that scrapes are written to.
    pub database: String,
}

/// A configuration that the server runs.
pub struct PrometheusMode {
    settings: PrometheusSettings,
    network: NetworkPlatform,
    current: Mutex<Current>,
    scraper: OnceLock<Scraper>,
}

struct Current {
    config: Arc<Config>,
    is_last_reload_successful: bool,
    loaded_ns: i64,
}

impl fmt::Debug for PrometheusMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PrometheusMode").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Reads a configuration with the variables of this process.
pub(crate) fn load(network: &NetworkPlatform, file: &Path) -> Result<Loaded, Vec<Problem>> {
    let variable = |name: &str| std::env::var(name).ok();
    config::load(file, &Origin { files: &*network.platform.files, variable: &variable })
}

impl PrometheusMode {
    /// Reads the file; also what in it has no effect. Errors are given all at once.
    pub fn load(
        settings: PrometheusSettings,
        network: NetworkPlatform,
    ) -> Result<(Arc<Self>, Vec<Problem>), Vec<Problem>> {
        let Loaded { config, warnings } = load(&network, &settings.file)?;
        let loaded_ns = network.platform.clock.now_ns();
        let current = Current { config: Arc::new(config), is_last_reload_successful: true, loaded_ns };
        let mode = Self { settings, network, current: Mutex::new(current), scraper: OnceLock::new() };
        Ok((Arc::new(mode), warnings))
    }

    /// Begins to scrape into a database. Runs on the runtime's threads.
    pub(crate) fn start(&self, db: &Arc<Db>) {
        let scraper = self.scraper.get_or_init(|| Scraper::start(&self.network, db.clone(), &self.settings.database));
        scraper.apply(&self.config());
    }

    /// Ends all scrapes; the next start goes on.
    pub fn stop(&self) {
        if let Some(scraper) = self.scraper.get() {
            scraper.stop();
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

    /// Jobs that do not run, and why.
    pub fn disabled_jobs(&self) -> Vec<(String, String)> {
        let config = self.config();
        let jobs = config.scrape_configs.iter();
        jobs.filter_map(|job| Some((job.job_name.clone(), job.disabled.clone()?))).collect()
    }

    /// Reads the file again and takes it over, unless it has errors; also what in it has no effect.
    pub fn reload(&self) -> Result<Vec<Problem>, Vec<Problem>> {
        let loaded = load(&self.network, &self.settings.file);
        // Reloads come one after another.
        let mut current = self.current();
        current.is_last_reload_successful = loaded.is_ok();
        let Loaded { config, warnings } = loaded?;
        current.config = Arc::new(config);
        current.loaded_ns = self.network.platform.clock.now_ns();
        if let Some(scraper) = self.scraper.get() {
            scraper.apply(&current.config);
        }
        Ok(warnings)
    }

    /// When the configuration in force was read, and whether the last reload succeeded.
    pub(crate) fn last_reload(&self) -> (i64, bool) {
        let current = self.current();
        (current.loaded_ns, current.is_last_reload_successful)
    }

    pub(crate) fn pools(&self) -> Vec<Arc<scrape::Pool>> {
        self.scraper.get().map(Scraper::pools).unwrap_or_default()
    }
}
