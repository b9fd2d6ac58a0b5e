//! Sends written rows on to receivers, in order of sequence ids and at least once: to the hooks and tables of triggers, and the destinations of
//! subscriptions.
//!
//! ```text
//! feed ──► job: rows that are wanted ──► queue: batches by rows, bytes and age ──► receiver, again until it takes or refuses
//!                                                                                  │ taken or refused: the durable cursor goes on
//! ```
//!
//! Each trigger and each destination is a job of its own: one that hangs holds up nothing else, and no writer waits for any. What a job has not
//! delivered stays in the log, up to `log_retained_bytes_max`; what is released before that is counted as dropped.
//!
//! * this file: what all jobs share, and which there are · [`definition`]: their documents · [`context`]: what all jobs use · [`statements`]: making and removing them
//! * [`work`]: the two kinds of jobs · [`job`]: one of them · [`send`]: an attempt · [`reading`], [`queue`]: what it has read · [`report`]: their states and numbers · [`urls`]: where they may send

pub(crate) mod context;
pub(crate) mod definition;
pub(crate) mod job;
pub(crate) mod queue;
mod reading;
mod report;
mod send;
mod statements;
mod urls;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use db::Db;
use parking_lot::Mutex;
use platform::network::{ClientOptions, NetworkPlatform};

use crate::feed::Feed;
use crate::tail::Streams;
use context::Shared;
pub use context::{OwnerScope, Owners};
use definition::{
    JobKey, Origin, SUBSCRIPTION, SubscriptionDefinition, SubscriptionName, TRIGGER, TriggerDefinition, TriggerName,
    document_of_cursor, name_text,
};
use job::Job;
pub use report::DeliveryReport;
pub use statements::{ListedSubscription, Maker};
pub use urls::UrlRules;
use work::JobSpec;

/// Triggers, and destinations of subscriptions, of a server: fewer than the log may have cursors.
const JOBS_MAX: usize = 200;

/// What deliveries need.
pub struct DeliveryOptions {
    /// Where rows come from.
    pub db: Arc<Db>,
    /// The network, and what tasks run on.
    pub network: NetworkPlatform,
    /// The accounts.
    pub owners: Arc<dyn Owners>,
    /// Addresses to which rows may be sent.
    pub urls: UrlRules,
    /// Streams that may be open at the same time.
    pub streams_max: usize,
    /// Tells the operator.
    pub log: fn(&str),
}

#[derive(Default)]
struct Defined {
    triggers: BTreeMap<TriggerName, TriggerDefinition>,
    subscriptions: BTreeMap<SubscriptionName, SubscriptionDefinition>,
    jobs: BTreeMap<JobKey, Arc<Job>>,
}

impl Defined {
    /// The jobs that are to run.
    fn specs(&self) -> Vec<(JobKey, JobSpec)> {
        let enabled = self.triggers.iter().filter(|(_, trigger)| trigger.is_enabled);
        let triggers = enabled.map(|(name, trigger)| work::trigger_job(name, trigger));
        let subscriptions = self.subscriptions.iter();
        let subscriptions = subscriptions.flat_map(|(name, subscription)| work::subscription_jobs(name, subscription));
        triggers.chain(subscriptions).collect()
    }
}

/// Triggers, subscriptions and live streams of a database's server.
pub struct Deliveries {
    shared: Arc<Shared>,
    streams: Arc<Streams>,
    defined: Mutex<Defined>,
}

impl Deliveries {
    /// Begins to deliver what the documents say, from where each was. Its tasks run on the network's runtime.
    pub fn start(options: DeliveryOptions) -> Self {
        let DeliveryOptions { db, network, owners, urls, streams_max, log } = options;
        // Redirections are not followed: they lead past the list of addresses.
        let client = network.network.client(&ClientOptions { keep_alive: true, ..ClientOptions::default() });
        let feed = Feed::new(db, network);
        let streams = Streams::new(&feed, streams_max);
        let shared = Arc::new(Shared { feed, owners, urls, client, log });
        let deliveries = Self { shared, streams, defined: Mutex::default() };
        deliveries.load();
        deliveries
    }

    /// Live streams.
    pub const fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    fn load(&self) {
        let mut defined = self.defined.lock();
        let unreadable = |kind: &str, name: &str, why: &str| {
            (self.shared.log)(&format!("the {kind} {name} cannot be read and does not run: {why}"));
        };
        for (name, document) in self.shared.db().documents(TRIGGER) {
            match definition::decode::<TriggerName, TriggerDefinition>(&name, &document) {
                Ok((name, trigger)) => drop(defined.triggers.insert(name, trigger)),
                Err(why) => unreadable(TRIGGER, &name, &why),
            }
        }
        for (name, document) in self.shared.db().documents(SUBSCRIPTION) {
            match definition::decode::<SubscriptionName, SubscriptionDefinition>(&name, &document) {
                Ok((name, subscription)) => drop(defined.subscriptions.insert(name, subscription)),
                Err(why) => unreadable(SUBSCRIPTION, &name, &why),
            }
        }
        self.apply(&mut defined);
    }

    /// Starts jobs that are defined and do not run, and ends those that are defined no more, or whose database is gone. Returns those that cannot
    /// be started, and why.
    fn apply(&self, defined: &mut Defined) -> Vec<(JobKey, String)> {
        self.drop_gone(defined);
        let mut before = std::mem::take(&mut defined.jobs);
        let (mut wanted, mut failed) = (BTreeSet::new(), Vec::new());
        for (key, spec) in defined.specs() {
            wanted.insert(key.cursor());
            let job = match before.remove(&key) {
                Some(job) if job.spec == spec => Ok(job),
                other => {
                    other.inspect(|job| job.stop());
                    Job::start(&key, spec, &self.shared)
                }
            };
            match job {
                Ok(job) => drop(defined.jobs.insert(key, job)),
                Err(error) => {
                    (self.shared.log)(&format!("{key} does not run: {error}"));
                    failed.push((key, error.to_string()));
                }
            }
        }
        before.into_values().for_each(|gone| gone.stop());
        self.remove_cursors(defined, &wanted);
        failed
    }

    /// Removes cursors of what is not to run. Documents that cannot be read keep theirs: another version may read them.
    fn remove_cursors(&self, defined: &Defined, wanted: &BTreeSet<String>) {
        let triggers = defined.triggers.keys().map(|name| (TRIGGER, name_text(name)));
        let subscriptions = defined.subscriptions.keys().map(|name| (SUBSCRIPTION, name_text(name)));
        let readable: BTreeSet<(&str, String)> = triggers.chain(subscriptions).collect();
        let of_kind = |kind| self.shared.db().documents(kind).into_iter().map(move |(name, _)| (kind, name));
        let stored: BTreeSet<(&str, String)> = [TRIGGER, SUBSCRIPTION].into_iter().flat_map(of_kind).collect();
        for cursor in self.shared.db().log_cursors() {
            let Some((kind, name)) = document_of_cursor(&cursor.name) else { continue };
            let document = (kind, name.to_owned());
            let is_unreadable = stored.contains(&document) && !readable.contains(&document);
            if !wanted.contains(&cursor.name) && !is_unreadable {
                // Where it fails the log is held for it until the next start.
                let _ = self.shared.db().remove_log_cursor(&cursor.name);
            }
        }
    }

    /// Drops what was made in databases that are gone, those of which another one has the name, too; returns whether there was anything.
    fn drop_gone(&self, defined: &mut Defined) -> bool {
        let is_gone = |database: &str, origin: &Origin| self.shared.is_dropped(database, origin);
        let triggers = defined.triggers.iter().filter(|(name, trigger)| is_gone(&name.database, &trigger.origin));
        let triggers: Vec<TriggerName> = triggers.map(|(name, _)| name.clone()).collect();
        let subscriptions = defined.subscriptions.iter();
        let subscriptions = subscriptions.filter(|(name, subscription)| is_gone(&name.database, &subscription.origin));
        let subscriptions: Vec<SubscriptionName> = subscriptions.map(|(name, _)| name.clone()).collect();
        for name in &triggers {
            // Where it fails it is dropped at the next start.
            let _ = self.shared.db().remove_document(TRIGGER, &name_text(name));
            defined.triggers.remove(name);
        }
        for name in &subscriptions {
            let _ = self.shared.db().remove_document(SUBSCRIPTION, &name_text(name));
            defined.subscriptions.remove(name);
        }
        !triggers.is_empty() || !subscriptions.is_empty()
    }

    /// Forgets what belongs to databases that are gone.
    pub fn forget_dropped(&self) {
        let mut defined = self.defined.lock();
        if self.drop_gone(&mut defined) {
            self.apply(&mut defined);
        }
    }

    /// Ends; the next start goes on where this one stopped.
    pub fn stop(&self) {
        self.shared.feed.stop();
        let jobs: Vec<Arc<Job>> = self.defined.lock().jobs.values().cloned().collect();
        jobs.iter().for_each(|job| job.stop());
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.stop();
    }
}
