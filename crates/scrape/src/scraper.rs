//! All jobs of a configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use db::Db;
use parking_lot::Mutex;
use platform::network::NetworkPlatform;
use tokio::sync::watch;

use crate::config::Config;
use crate::pool::Pool;
use crate::target::{Command, Destination};

/// How often samples are made durable, for all targets together.
const SYNC_MS: u64 = 1_000;

/// Scrapes the targets of a configuration into a database.
pub struct Scraper {
    network: NetworkPlatform,
    destination: Arc<Destination>,
    pools: Mutex<BTreeMap<String, Arc<Pool>>>,
    stop: watch::Sender<bool>,
}

impl Scraper {
    /// Begins without jobs. On a simulated network its tasks run there.
    pub fn start(network: &NetworkPlatform, db: Arc<Db>, database: &str) -> Self {
        let destination = Arc::new(Destination::new(db, database));
        let stop = watch::Sender::new(false);
        let (tasks, to, mut stopped) = (network.tasks.clone(), destination.clone(), stop.subscribe());
        network.tasks.spawn(Box::pin(async move {
            loop {
                tokio::select! {
                    () = tasks.sleep_ms(SYNC_MS) => {}
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                }
                let to = to.clone();
                // Why samples cannot be stored is told where they are appended, and in the server's health.
                tasks.block(Box::new(move || drop(to.sync()))).await;
            }
        }));
        Self { network: network.clone(), destination, pools: Mutex::default(), stop }
    }

    /// Takes a configuration over. Jobs that did not change go on undisturbed.
    pub fn apply(&self, config: &Config) {
        let mut pools = self.pools.lock();
        let mut before = std::mem::take(&mut *pools);
        for job in &config.scrape_configs {
            let known = before.remove(&job.job_name);
            let pool = match known {
                Some(pool) if *pool.config == *job => pool,
                known => Pool::start(job.clone(), &self.destination, &self.network, known.as_ref()),
            };
            pools.insert(pool.config.job_name.clone(), pool);
        }
        before.into_values().for_each(|gone| gone.end(Command::Gone));
    }

    /// The jobs, in order of their names.
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.pools.lock().values().cloned().collect()
    }

    /// Ends all scrapes, without markers: the next start goes on.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        std::mem::take(&mut *self.pools.lock()).into_values().for_each(|pool| pool.end(Command::Stop));
        // What is not on disk yet is with the closing of the database.
        let _ = self.destination.sync();
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        self.stop();
    }
}
