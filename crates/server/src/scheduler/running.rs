//! Queries that run or wait: a bound on how many, a list of them, a way to end one, what they took.
//!
//! ```text
//! arrive ──► wait, at most queue_max and queue_timeout ──► run, at most concurrency_max ──► done: counted, told if slow
//!       └──► refused: 429                            └──► refused: 429  └──► heavy: leaves its slot to others
//! ```
//!
//! Priorities of those that run: `mod.rs`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use query::{Budget, Stop};

use crate::error::ApiError;
use crate::http::json;
use crate::log::{self, Level};
use crate::metrics::family;
use crate::redact;
use crate::scheduler::tenants::Tenant;
use crate::scheduler::tenants::slots::{FairSlots, QueueFull, Slot};
use crate::scheduler::{ScheduleGuard, Scheduler};
use crate::sign_in::Caller;

/// Upper bounds of the histogram's buckets, in seconds.
const BUCKETS_S: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0];

const NS_PER_S: f64 = 1e9;

/// A query that has had this much CPU time is a heavy one.
const HEAVY_NS: u64 = 60_000_000;
/// A query that has had less is a light one, and keeps its slot while others wait.
const LIGHT_NS_MAX: u64 = 5_000_000;

/// Heavy queries that run beside as many light ones as may. Which of them has a core is decided otherwise, and memory bounds them, too.
const HEAVY_FACTOR: usize = 4;

/// Characters of a text that the log shows.
const LOGGED_CHARACTERS_MAX: usize = 2_000;

/// The client's address; put into a request where its connection is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote(pub(crate) SocketAddr);

/// A query as it came.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    /// `instant`, `range`, `plan`, `export`, `federate` or `remote_read`.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    pub(crate) database: String,
    /// The client that sent it.
    pub(crate) caller: Caller,
}

struct Running {
    description: Description,
    tenant: Arc<Tenant>,
    started_ns: i64,
    budget: Arc<Budget>,
    _scheduled: ScheduleGuard,
}

impl Running {
    /// Returns whether a caller may know of it: its own queries, and all of them for administrators of the server.
    fn is_seen_by(&self, caller: &Caller) -> bool {
        caller.scope.is_server_admin || self.description.caller.scope.name == caller.scope.name
    }
}

/// How a query ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Answered,
    Failed,
    TimedOut,
    Cancelled,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Durations of one kind of query.
#[derive(Debug, Default, Clone, Copy)]
struct Durations {
    buckets: [u64; BUCKETS_S.len()],
    count: u64,
    sum_s: f64,
}

/// The bounds on queries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) concurrency_max: usize,
    pub(crate) queue_max: usize,
    pub(crate) queue_timeout: Duration,
}

/// All queries.
pub(crate) struct Queries {
    bounds: Bounds,
    running: Mutex<BTreeMap<u64, Running>>,
    next_id: AtomicU64,
    slots: Arc<FairSlots>,
    heavy: Arc<FairSlots>,
    scheduler: Arc<Scheduler>,
    refused: AtomicU64,
    outcomes: Mutex<BTreeMap<(&'static str, Outcome), u64>>,
    durations: Mutex<BTreeMap<&'static str, Durations>>,
    samples: AtomicU64,
}

/// The slot of a running query. Queries begin in one of a few slots; one that turns out to be heavy moves to
/// the heavy ones, of which there are more, so that light queries never wait for a heavy one to end.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    slot: Mutex<Slot>,
    /// The slots that queries begin in, which others may wait for.
    slots: Arc<FairSlots>,
    heavy: Arc<FairSlots>,
    is_heavy: AtomicBool,
}

/// Returns whether a query that has had so much CPU time gives its slot up: a heavy one always does, and one that is no light one any more
/// does when others wait. Without the second rule a few heavy queries that begin together keep all slots until the cores have taken each
/// of them through its first 60 ms.
fn leaves_slot(ran_ns: u64, waiting: u64) -> bool {
    ran_ns >= HEAVY_NS || waiting > 0 && ran_ns >= LIGHT_NS_MAX
}

impl AdmissionPermit {
    fn new(slot: Slot, slots: Arc<FairSlots>, heavy: Arc<FairSlots>) -> Arc<Self> {
        Arc::new(Self { slot: Mutex::new(slot), slots, heavy, is_heavy: AtomicBool::new(false) })
    }

    /// A slot of its own.
    #[cfg(test)]
    pub(crate) fn lone() -> Arc<Self> {
        let [slots, heavy] = [1, 1].map(FairSlots::new);
        Self::new(slots.try_acquire(&"".into()).unwrap(), slots, heavy)
    }

    /// A query that has had so much CPU time moves from its slot to one of the heavy queries' if it should. If none of those is free it
    /// stays, and tries again at its next check.
    pub(crate) fn make_room(&self, ran_ns: u64) {
        if self.is_heavy.load(Ordering::Relaxed) || !leaves_slot(ran_ns, self.slots.waiting()) {
            return;
        }
        let mut slot = lock(&self.slot);
        if let Some(heavy) = self.heavy.try_acquire(slot.tenant()) {
            *slot = heavy;
            self.is_heavy.store(true, Ordering::Relaxed);
        }
    }
}

impl Queries {
    pub(crate) fn new(bounds: Bounds, scheduler: Arc<Scheduler>) -> Self {
        Self {
            bounds,
            running: Mutex::default(),
            next_id: AtomicU64::new(1),
            slots: FairSlots::new(bounds.concurrency_max),
            heavy: FairSlots::new(HEAVY_FACTOR.saturating_mul(bounds.concurrency_max)),
            scheduler,
            refused: AtomicU64::new(0),
            outcomes: Mutex::default(),
            durations: Mutex::default(),
            samples: AtomicU64::new(0),
        }
    }

    /// Waits for a free slot.
    async fn admit(&self, tenant: &Tenant) -> Result<Slot, ApiError> {
        let acquire = self.slots.acquire(&tenant.name, self.bounds.queue_max);
        match tokio::time::timeout(self.bounds.queue_timeout, acquire).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(QueueFull)) => Err(self.refuse("as many more wait as may (query_queue_max)")),
            Err(_) => Err(self.refuse("none ended while this one waited (query_queue_timeout_ms)")),
        }
    }

    fn refuse(&self, why: &str) -> ApiError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "unavailable",
            format!(
                "{} queries run already (query_concurrency_max) and {why}: try again later",
                self.bounds.concurrency_max
            ),
        )
    }

    /// Stops a query, if it is one that a caller may see; returns whether it was.
    pub(crate) fn stop(&self, id: u64, by: &Caller) -> bool {
        let running = lock(&self.running);
        let seen = running.get(&id).filter(|running| running.is_seen_by(by));
        seen.map(|running| running.budget.stop(Stop::Cancelled)).is_some()
    }

    /// The queries that a caller may see, as a JSON list.
    pub(crate) fn list(&self, now_ns: i64, by: &Caller) -> String {
        let running = lock(&self.running);
        let items = running.iter().filter(|(_, running)| running.is_seen_by(by)).map(|(id, running)| {
            let Description { kind, text, database, caller } = &running.description;
            let remote = caller.remote.map_or_else(|| "null".to_owned(), |remote| json::text(&remote.to_string()));
            format!(
                r#"{{"id":"{id}","kind":"{kind}","query":{},"database":{},"account":{},"started":{:.3},"duration_seconds":{:.3},"samples":{},"samples_held":{},"remote":{remote}}}"#,
                json::text(&redact::passwords(text)),
                json::text(database),
                json::text(&caller.scope.name),
                running.started_ns as f64 / NS_PER_S,
                seconds_between(running.started_ns, now_ns),
                running.budget.samples_taken(),
                running.budget.samples(),
            )
        });
        format!("[{}]", items.collect::<Vec<_>>().join(","))
    }

    /// The numbers of queries, in Prometheus's text format.
    pub(crate) fn render(&self, out: &mut String) {
        let running = lock(&self.running).len() as u64;
        for (name, kind, help, value) in [
            ("thalweg_queries_running", "gauge", "Queries that run.", running),
            ("thalweg_queries_waiting", "gauge", "Queries that wait for their turn.", self.slots.waiting()),
            (
                "thalweg_queries_refused_total",
                "counter",
                "Queries refused because too many ran.",
                self.refused.load(Ordering::Relaxed),
            ),
            (
                "thalweg_query_samples_total",
                "counter",
                "Samples that queries read or made.",
                self.samples.load(Ordering::Relaxed),
            ),
        ] {
            family(out, name, kind, help);
            let _ = writeln!(out, "{name} {value}");
        }
        family(out, "thalweg_queries_total", "counter", "Queries that ended, by kind and how.");
        for ((kind, outcome), count) in lock(&self.outcomes).iter() {
            let labels = format!("kind=\"{kind}\",outcome=\"{}\"", outcome.name());
            let _ = writeln!(out, "thalweg_queries_total{{{labels}}} {count}");
        }
        let name = "thalweg_query_duration_seconds";
        family(out, name, "histogram", "How long queries ran, by kind.");
        for (kind, durations) in lock(&self.durations).iter() {
            for (bound, count) in BUCKETS_S.iter().zip(durations.buckets) {
                let _ = writeln!(out, "{name}_bucket{{kind=\"{kind}\",le=\"{bound}\"}} {count}");
            }
            let _ = writeln!(out, "{name}_bucket{{kind=\"{kind}\",le=\"+Inf\"}} {}", durations.count);
            let _ = writeln!(out, "{name}_sum{{kind=\"{kind}\"}} {}", durations.sum_s);
            let _ = writeln!(out, "{name}_count{{kind=\"{kind}\"}} {}", durations.count);
        }
    }
}

impl Queries {
    /// Lets a query run when a slot is free; its number, by which it ends.
    pub(crate) async fn start(
        &self,
        description: Description,
        tenant: Arc<Tenant>,
        budget: Arc<Budget>,
        now_ns: i64,
    ) -> Result<(u64, Arc<AdmissionPermit>), ApiError> {
        check_quota(&lock(&self.running), &description.caller, &tenant)?;
        let slot = AdmissionPermit::new(self.admit(&tenant).await?, self.slots.clone(), self.heavy.clone());
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (schedule, scheduled) = self.scheduler.begin(slot.clone());
        budget.set_schedule(schedule);
        let mut all = lock(&self.running);
        // Others of the account may have waited for a slot, too.
        check_quota(&all, &description.caller, &tenant)?;
        all.insert(id, Running { description, tenant, started_ns: now_ns, budget, _scheduled: scheduled });
        Ok((id, slot))
    }

    /// Counts a query that is done; what the log is to say of it, if it took `slow_ms` or longer, or failed.
    pub(crate) fn end(&self, id: u64, ended: &Ended<'_>) -> Option<EndedQuery> {
        let running = lock(&self.running).remove(&id)?;
        let duration_s = seconds_between(running.started_ns, ended.now_ns);
        let (kind, samples) = (running.description.kind, running.budget.samples_taken());
        count(self, kind, ended.outcome, duration_s, samples);
        let is_slow = duration_s * 1000.0 >= ended.slow_ms as f64;
        let is_told = is_slow || ended.reason.is_some() && log::is_enabled(Level::Debug);
        is_told.then(|| EndedQuery {
            text: LoggedQuery { running: &running, ended, duration_s, samples, is_slow }.text(),
            is_slow,
        })
    }

    /// Stops and counts a query whose client has left; one that ended is not known any more.
    pub(crate) fn abandon(&self, id: u64, now_ns: i64) {
        let Some(running) = lock(&self.running).remove(&id) else { return };
        running.budget.stop(Stop::Cancelled);
        let (kind, samples) = (running.description.kind, running.budget.samples_taken());
        count(self, kind, Outcome::Cancelled, seconds_between(running.started_ns, now_ns), samples);
    }
}

/// Refuses a query of an account, or of a database, that runs as many as it may.
fn check_quota(running: &BTreeMap<u64, Running>, caller: &Caller, tenant: &Tenant) -> Result<(), ApiError> {
    let (of_account, of_database) = (caller.scope.quota.queries_max, tenant.quota().queries_max);
    if of_account.is_none() && of_database.is_none() {
        return Ok(());
    }
    let is_of_account = |running: &Running| running.description.caller.scope.name == caller.scope.name;
    let is_of_database = |running: &Running| running.tenant.name == tenant.name;
    let is_reached = |queries_max: Option<u64>, is_counted: &dyn Fn(&Running) -> bool| {
        queries_max.filter(|most| running.values().filter(|running| is_counted(running)).count() as u64 >= *most)
    };
    let (owner, queries_max) = match is_reached(of_account, &is_of_account) {
        Some(most) => (format!("the account {}", caller.scope.name), most),
        None => match is_reached(of_database, &is_of_database) {
            Some(most) => (format!("the database {}", tenant.name), most),
            None => return Ok(()),
        },
    };
    tenant.note_refusal();
    Err(ApiError::later(format!("{owner} runs {queries_max} queries already (queries_max): try again later")))
}

/// What the log says of a query that is done.
pub(crate) struct EndedQuery {
    pub(crate) text: String,
    pub(crate) is_slow: bool,
}

/// How a query ended.
pub(crate) struct Ended<'a> {
    /// Why it failed, if it did.
    pub(crate) reason: Option<&'a str>,
    pub(crate) outcome: Outcome,
    pub(crate) answer_bytes: usize,
    pub(crate) now_ns: i64,
    /// From which duration on a query is slow.
    pub(crate) slow_ms: u64,
}

fn count(queries: &Queries, kind: &'static str, outcome: Outcome, duration_s: f64, samples: u64) {
    *lock(&queries.outcomes).entry((kind, outcome)).or_default() += 1;
    queries.samples.fetch_add(samples, Ordering::Relaxed);
    let mut kinds = lock(&queries.durations);
    let of_kind = kinds.entry(kind).or_default();
    of_kind.count += 1;
    of_kind.sum_s += duration_s;
    for (bound, bucket) in BUCKETS_S.iter().zip(&mut of_kind.buckets) {
        *bucket += u64::from(duration_s <= *bound);
    }
}

/// A query that the log has a line of.
struct LoggedQuery<'q> {
    running: &'q Running,
    ended: &'q Ended<'q>,
    duration_s: f64,
    samples: u64,
    is_slow: bool,
}

impl LoggedQuery<'_> {
    fn text(&self) -> String {
        let Description { kind, text, database, caller } = &self.running.description;
        let remote = caller.remote;
        let shown: String = redact::passwords(text).chars().take(LOGGED_CHARACTERS_MAX).collect();
        let remote = remote.map_or_else(|| "unknown".to_owned(), |remote| remote.to_string());
        let (outcome, duration_s) = (self.ended.outcome.name(), self.duration_s);
        let (samples, answer_bytes) = (self.samples, self.ended.answer_bytes);
        let slow = if self.is_slow { "slow " } else { "" };
        let reason: String = self.ended.reason.unwrap_or_default().chars().take(LOGGED_CHARACTERS_MAX).collect();
        let reason = if reason.is_empty() { reason } else { format!(" ({})", redact::passwords(&reason)) };
        format!(
            "{slow}{kind} query from {remote}: {outcome}{reason} after {duration_s:.3} s, {samples} samples, {answer_bytes} bytes of \
             answer, database {database:?}: {shown:?}"
        )
    }
}

fn seconds_between(from_ns: i64, to_ns: i64) -> f64 {
    to_ns.saturating_sub(from_ns).max(0) as f64 / NS_PER_S
}

/// What a poisoned lock guards is whole: nothing under it fails midway.
fn lock<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_left_by_heavy_queries_and_by_all_but_light_ones_while_others_wait() {
        for (ran_ns, waiting, expected) in [
            (0, 0, false),
            (0, 9, false),
            (LIGHT_NS_MAX, 0, false),
            (LIGHT_NS_MAX - 1, 1, false),
            (LIGHT_NS_MAX, 1, true),
            (HEAVY_NS - 1, 0, false),
            (HEAVY_NS, 0, true),
        ] {
            assert_eq!(leaves_slot(ran_ns, waiting), expected, "{ran_ns} ns, {waiting} waiting");
        }
    }

    #[test]
    fn a_query_makes_room_for_one_that_waits_once() {
        let [slots, heavy] = [1, 1].map(FairSlots::new);
        let permit = || AdmissionPermit::new(slots.try_acquire(&"".into()).unwrap(), slots.clone(), heavy.clone());
        let first = permit();
        first.make_room(HEAVY_NS);
        first.make_room(HEAVY_NS);
        assert_eq!([slots.free(), heavy.free()], [1, 0]);
        // No slot of heavy queries is free: the next one stays until the first has ended.
        let second = permit();
        second.make_room(HEAVY_NS);
        assert_eq!(slots.free(), 0);
        drop(first);
        second.make_room(HEAVY_NS);
        assert_eq!([slots.free(), heavy.free()], [1, 0]);
    }
}
