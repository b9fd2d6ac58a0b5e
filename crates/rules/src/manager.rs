//! All groups of a configuration, each with a task of its own, and the Alertmanagers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use db::Db;
use parking_lot::Mutex;
use platform::network::{NetworkPlatform, compute};
use scrape::config::Config;
use tokio::sync::watch;

use crate::file::GroupConfig;
use crate::group::{Group, Surroundings};
use crate::materialize::RuleKeeper;
use crate::notify::Notifier;
use crate::restore;
use crate::store::{RuleSample, RuleStore, RuleValue};

const NS_PER_MS: i64 = 1_000_000;

/// How often samples are made durable, for all groups together.
const SYNC_MS: u64 = 1_000;

/// From one look at what changes results of the past to the next, and where there is more to do at once.
const KEEP_MS: u64 = 1_000;
const KEEP_BUSY_MS: u64 = 10;

/// Series of a group that a reload removed end after so many intervals, unless another group writes them.
const INTERVALS_TO_END: u64 = 2;

/// How rules run.
#[derive(Debug, Clone, Default)]
pub struct ManagerOptions {
    /// The database that rules query and write to.
    pub database: String,
    /// The address by which the server is reached from outside.
    pub external_url: String,
}

/// Runs groups.
pub struct Manager {
    shared: Arc<Shared>,
    /// Ends what belongs to all groups.
    stop: watch::Sender<bool>,
    /// True once a configuration was applied: alerts are restored at the start alone.
    has_begun: Mutex<bool>,
}

struct Shared {
    network: NetworkPlatform,
    store: RuleStore,
    options: ManagerOptions,
    notifier: Arc<Notifier>,
    groups: Mutex<BTreeMap<(PathBuf, String), Running>>,
    /// True while the groups are those of a configuration: not before the first one, and not after the end.
    is_applied: AtomicBool,
}

struct Running {
    group: Arc<Group>,
    stop: watch::Sender<bool>,
}

impl Manager {
    /// Begins without groups. On a simulated network its tasks run there.
    pub fn start(network: &NetworkPlatform, db: Arc<Db>, options: ManagerOptions) -> Self {
        let shared = Arc::new(Shared {
            network: network.clone(),
            store: RuleStore::new(db, &options.database),
            options,
            notifier: Notifier::start(network),
            groups: Mutex::default(),
            is_applied: AtomicBool::new(false),
        });
        let stop = watch::Sender::new(false);
        let (own, mut stopped) = (shared.clone(), stop.subscribe());
        network.tasks.spawn(Box::pin(async move {
            loop {
                tokio::select! {
                    () = own.network.tasks.sleep_ms(SYNC_MS) => {}
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                }
                let to = own.clone();
                // Why samples cannot be stored is told where they are appended, and in the server's health.
                own.network.tasks.block(Box::new(move || drop(to.store.sync()))).await;
            }
        }));
        network.tasks.spawn(Box::pin(run_keeper(shared.clone(), stop.subscribe())));
        Self { shared, stop, has_begun: Mutex::new(false) }
    }

    /// Takes a configuration and its groups over. Groups that did not change go on undisturbed.
    pub fn apply(&self, config: &Config, groups: Vec<GroupConfig>) {
        let surroundings = Arc::new(Surroundings {
            external_labels: config.global.external_labels.clone(),
            external_url: self.shared.options.external_url.clone(),
            interval_ms: config.global.evaluation_interval_ms,
            query_offset_ms: config.global.rule_query_offset_ms,
        });
        self.shared.notifier.apply(&config.alerting, &surroundings);
        let mut has_begun = self.has_begun.lock();
        let needs_restoring = !std::mem::replace(&mut *has_begun, true);
        let mut running = self.shared.groups.lock();
        let mut before = std::mem::take(&mut *running);
        for config in groups {
            let key = (config.file.clone(), config.name.clone());
            let next = match before.remove(&key) {
                Some(known) if known.group.config == config && known.group.surroundings == surroundings => known,
                known => self.begin(Group::new(config, &surroundings, needs_restoring), known),
            };
            running.insert(key, next);
        }
        drop(running);
        self.shared.is_applied.store(true, Ordering::SeqCst);
        before.into_values().for_each(|gone| self.end(gone));
    }

    fn begin(&self, group: Group, before: Option<Running>) -> Running {
        if let Some(before) = before {
            before.stop.send_replace(true);
            group.go_on_from(&before.group);
        }
        let group = Arc::new(group);
        let stop = watch::Sender::new(false);
        let (shared, own, mut stopped) = (self.shared.clone(), group.clone(), stop.subscribe());
        self.shared.network.tasks.spawn(Box::pin(async move {
            tokio::select! {
                () = run(&shared, &own) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }));
        Running { group, stop }
    }

    /// Ends a group; its series end later, unless another group writes them by then.
    fn end(&self, gone: Running) {
        gone.stop.send_replace(true);
        let (shared, mut stopped) = (self.shared.clone(), self.stop.subscribe());
        self.shared.network.tasks.spawn(Box::pin(async move {
            let wait_ms = gone.group.interval_ms() as u64 * INTERVALS_TO_END;
            tokio::select! {
                () = shared.network.tasks.sleep_ms(wait_ms) => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
            let ending = shared.clone();
            shared.network.tasks.block(Box::new(move || ending.end_series(&gone.group))).await;
        }));
    }

    /// The groups, in order of files and names.
    pub fn groups(&self) -> Vec<Arc<Group>> {
        self.shared.groups()
    }

    /// What sends alerts.
    pub fn notifier(&self) -> &Notifier {
        &self.shared.notifier
    }

    /// Numbers of groups and notifications, as Prometheus's text.
    pub fn metrics(&self) -> String {
        crate::metrics::render(self)
    }

    /// Ends all groups, without markers: the next start goes on.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        self.shared.is_applied.store(false, Ordering::SeqCst);
        for running in std::mem::take(&mut *self.shared.groups.lock()).into_values() {
            running.stop.send_replace(true);
        }
        self.shared.notifier.stop();
        // What is not on disk yet is with the closing of the database.
        let _ = self.shared.store.sync();
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.lock().values().map(|running| running.group.clone()).collect()
    }

    fn now_ms(&self) -> i64 {
        self.network.platform.clock.now_ns().div_euclid(NS_PER_MS)
    }

    fn end_series(&self, group: &Group) {
        let mut left = group.series();
        for running in self.groups.lock().values() {
            for series in running.group.series() {
                left.remove(&series);
            }
        }
        let time_ms = self.now_ms();
        let samples: Vec<RuleSample> =
            left.into_iter().map(|labels| RuleSample { labels, time_ms, value: RuleValue::Stale }).collect();
        // Where nothing can be stored, the series end by their age.
        let _ = self.store.write(&samples);
    }

    fn evaluate(&self, group: &Group, time_ms: i64) {
        group.counts.iterations.fetch_add(1, Ordering::Relaxed);
        for (rule, alerts) in group.evaluate(&self.store, time_ms) {
            self.notifier.send(&rule, &alerts, &self.options.external_url);
        }
    }
}

/// Keeps results of the past right, of rules that are selected.
async fn run_keeper(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let begin = || RuleKeeper::new(&shared.options.database);
    let (mut keeper, mut pause_ms) = (begin(), KEEP_MS);
    loop {
        tokio::select! {
            () = shared.network.tasks.sleep_ms(pause_ms) => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        let groups = shared.groups();
        // After the groups: those of the end are none.
        if !shared.is_applied.load(Ordering::SeqCst) {
            continue;
        }
        let own = shared.clone();
        let pass = move || {
            let has_more = keeper.pass(&own.store, groups);
            (keeper, has_more)
        };
        // One that panicked begins anew, where it was saved.
        let (after, has_more) = compute(&shared.network.tasks, pass).await.unwrap_or_else(|| (begin(), false));
        (keeper, pause_ms) = (after, if has_more { KEEP_BUSY_MS } else { KEEP_MS });
    }
}

/// Evaluates a group whenever it is due.
async fn run(shared: &Arc<Shared>, group: &Arc<Group>) {
    let interval_ms = group.interval_ms();
    let mut due_ms = group.evaluation_ms(shared.now_ms()) + interval_ms;
    let mut evaluated = 0u64;
    loop {
        let wait_ms = (due_ms - shared.now_ms()).max(0) as u64;
        if wait_ms > 0 {
            shared.network.tasks.sleep_ms(wait_ms).await;
        }
        let (own, ending) = (shared.clone(), group.clone());
        evaluated += 1;
        shared
            .network
            .tasks
            .block(Box::new(move || {
                own.evaluate(&ending, due_ms);
                // The second evaluation has found what was pending before, even if targets were scraped anew first.
                if evaluated == 2 {
                    restore::restore(&ending, &own.store, due_ms);
                }
            }))
            .await;
        let missed = ((shared.now_ms() - due_ms) / interval_ms).max(0);
        group.counts.iterations.fetch_add(missed as u64, Ordering::Relaxed);
        group.counts.missed.fetch_add(missed as u64, Ordering::Relaxed);
        due_ms += (missed + 1) * interval_ms;
    }
}
