//! States and numbers of triggers and subscriptions.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use super::definition::{JobKey, TriggerAction, TriggerDefinition, TriggerName};
use super::job::Job;
use super::urls::without_credentials;
use super::work::{Work, subscription_jobs};
use super::{Defined, Deliveries};

/// A trigger, or some destinations of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeliveryReport {
    /// `trigger` or `subscription`.
    pub kind: &'static str,
    /// Its database.
    pub database: String,
    /// Its name.
    pub name: String,
    /// The table that a trigger looks at.
    pub table: String,
    /// The condition of a trigger.
    pub condition: String,
    /// `insert`, `webhook`; of a subscription `all` or `any`.
    pub action: &'static str,
    /// The table, or the addresses without their secrets.
    pub target: String,
    /// The account that made it.
    pub owner: String,
    /// `running`, `retrying` or `disabled`.
    pub state: &'static str,
    /// Everything up to this sequence id was delivered, refused or dropped.
    pub sequence: u64,
    /// Sequence ids that are on disk and not done with.
    pub lag: u64,
    /// Rows that were taken, since the start.
    pub sent_rows: u64,
    /// Rows that were refused, or for which the condition could not be computed.
    pub failed_rows: u64,
    /// Rows that were given up after `retry_for`.
    pub dropped_rows: u64,
    /// Records that the log did not have any more.
    pub dropped_records: u64,
    /// Attempts that are made again.
    pub retries: u64,
    /// Why the last rows were not taken; empty if they were.
    pub last_error: String,
}

impl DeliveryReport {
    fn with_job(mut self, job: &Job) -> Self {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &job.counts;
        self.sequence = job.sequence();
        self.lag = job.shared.db().durable_sequence().saturating_sub(self.sequence);
        self.sent_rows = count(&counts.sent_rows);
        self.failed_rows = count(&counts.failed_rows);
        self.dropped_rows = count(&counts.dropped_rows);
        self.dropped_records = count(&counts.dropped_records);
        self.retries = count(&counts.retries);
        let error = job.error();
        self.state = if error.is_some() { "retrying" } else { "running" };
        self.last_error = error.or_else(|| job.loss()).unwrap_or_default();
        self
    }
}

fn of_trigger(name: &TriggerName, trigger: &TriggerDefinition, job: Option<&Job>) -> DeliveryReport {
    let (action, target) = match &trigger.action {
        TriggerAction::Insert { table, .. } => ("insert", table.clone()),
        TriggerAction::Webhook { url, .. } => ("webhook", without_credentials(url)),
    };
    let report = DeliveryReport {
        kind: "trigger",
        database: name.database.clone(),
        name: name.name.clone(),
        table: trigger.table.clone(),
        condition: trigger.condition.clone(),
        action,
        target,
        owner: trigger.origin.owner.clone(),
        state: if trigger.is_enabled { "stopped" } else { "disabled" },
        ..DeliveryReport::default()
    };
    match job {
        Some(job) => report.with_job(job),
        None => report,
    }
}

impl Defined {
    fn reports(&self) -> Vec<DeliveryReport> {
        let job = |key: &JobKey| self.jobs.get(key).map(|job| &**job);
        let triggers = self.triggers.iter().map(|(name, trigger)| {
            let key = JobKey::Trigger(name.clone());
            of_trigger(name, trigger, job(&key))
        });
        let subscriptions = self.subscriptions.iter().flat_map(|(name, subscription)| {
            let jobs = subscription_jobs(name, subscription);
            jobs.into_iter().map(|(key, spec)| {
                let Work::Subscription(work) = &spec.work else { return DeliveryReport::default() };
                let addresses: Vec<String> = work.destinations.iter().map(|url| without_credentials(url)).collect();
                let report = DeliveryReport {
                    kind: "subscription",
                    database: name.database.clone(),
                    name: name.name.clone(),
                    action: if subscription.sends_to_all { "all" } else { "any" },
                    target: addresses.join(", "),
                    owner: subscription.origin.owner.clone(),
                    state: "stopped",
                    ..DeliveryReport::default()
                };
                match job(&key) {
                    Some(job) => report.with_job(job),
                    None => report,
                }
            })
        });
        triggers.chain(subscriptions).collect()
    }
}

/// A number of each job: its name, its type, its help, and where it is in a report.
type Family = (&'static str, &'static str, &'static str, fn(&DeliveryReport) -> u64);

const FAMILIES: [Family; 6] = [
    ("thalweg_trigger_sent_rows_total", "counter", "Rows that receivers took.", |report| report.sent_rows),
    ("thalweg_trigger_failed_rows_total", "counter", "Rows that were refused.", |report| report.failed_rows),
    ("thalweg_trigger_dropped_rows_total", "counter", "Rows that were given up after retry_for.", |report| {
        report.dropped_rows
    }),
    ("thalweg_trigger_dropped_records_total", "counter", "Records that the log did not have any more.", |report| {
        report.dropped_records
    }),
    ("thalweg_trigger_retries_total", "counter", "Attempts that are made again.", |report| report.retries),
    ("thalweg_trigger_lag_records", "gauge", "Sequence ids that are not done with.", |report| report.lag),
];

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Deliveries {
    /// All triggers and subscriptions.
    pub fn reports(&self) -> Vec<DeliveryReport> {
        self.defined.lock().reports()
    }

    /// The numbers of all of them and of streams, in Prometheus's text format.
    pub fn render(&self, out: &mut String) {
        let mut reports = self.reports();
        // A series has one sample: a subscription's destinations are told apart by their target.
        reports
            .dedup_by(|a, b| a.kind == b.kind && a.database == b.database && a.name == b.name && a.target == b.target);
        for (name, kind, help, read) in FAMILIES.iter().filter(|_| !reports.is_empty()) {
            // Writing into a string does not fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for report in &reports {
                let (database, label) = (escaped(&report.database), escaped(&report.name));
                let (kind, target, value) = (report.kind, escaped(&report.target), read(report));
                let _ = writeln!(
                    out,
                    "{name}{{kind=\"{kind}\",database=\"{database}\",name=\"{label}\",target=\"{target}\"}} {value}"
                );
            }
        }
        let streams = self.streams.stats();
        for (name, kind, help, value) in [
            ("thalweg_tail_streams", "gauge", "Live streams that are open.", streams.open as u64),
            ("thalweg_tail_streams_total", "counter", "Live streams that were opened.", streams.opened),
            ("thalweg_tail_cut_off_total", "counter", "Live streams whose clients read too slowly.", streams.cut_off),
            ("thalweg_tail_samples_total", "counter", "Samples that live streams sent.", streams.samples),
            (
                "thalweg_feed_readers",
                "gauge",
                "Databases whose log is read for followers.",
                self.shared.feed.hubs() as u64,
            ),
            (
                "thalweg_feed_read_errors_total",
                "counter",
                "How often it could not be read.",
                self.shared.feed.read_errors(),
            ),
        ] {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
    }
}
