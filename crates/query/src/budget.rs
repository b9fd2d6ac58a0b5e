//! What one query may use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use access::grant::Right;
use access::scope::Scope;
use model::{Matcher, TimeRange};
use store::{MemoryPool, TenantMemory};

use crate::QueryError;
use crate::result::label_rows::LabelRows;

/// Bytes that a sample takes while a query holds it: its timestamp and its value.
pub const SAMPLE_BYTES: usize = 16;

/// Warns of an answer that is not that of all samples that were written: the rule is at [`model::Folds`].
pub const FOLDED_WARNING: &str = "part of this time range is folded: count, sum, min, max, first, last and avg cover all samples \
     that were written (a fold counts where its last sample is), everything else only the last sample of each fold";

/// Why a running query was stopped from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Its time is up.
    Timeout,
    /// Its sender left, or an operator stopped it.
    Cancelled,
}

/// A table whose rows are of more series than an account may read: a view without the label that narrows the account's rights.
#[derive(Debug, Clone)]
pub struct HiddenTable {
    /// Its database.
    pub database: String,
    /// Its name.
    pub table: String,
    /// A matcher that none of its metrics satisfies.
    pub others: Matcher,
}

/// How a query uses materialised views.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ViewUse {
    /// Where it names them, and for queries of their sources that they answer.
    #[default]
    All,
    /// Where it names them; all of their windows, also of those of which queries read the stored ones alone.
    Named,
    /// As tables: their windows as they are stored.
    Stored,
}

/// How the program schedules the threads of one query. Nothing in it waits.
pub trait Schedule: std::fmt::Debug + Send + Sync {
    /// Called at each check, by each thread that works on the query.
    fn note_check(&self);
    /// Returns whether a core is free for one thread more, beside those of queries that have used no more CPU time than this one. If so, it
    /// counts from now on as working on the query.
    fn join(&self) -> bool;
    /// Called by each thread that has joined before it works. It is the query's own, and ends before the query does.
    fn begin(&self);
    /// One thread less works on it.
    fn leave(&self);
    /// Returns whether threads that help with the query are to stop, because there are more threads than cores.
    fn gives_way(&self) -> bool;
}

/// A thread that helps with a query, until it is dropped.
pub(crate) struct Joined<'s>(&'s dyn Schedule);

impl Joined<'_> {
    /// To be called by that thread before it works.
    pub(crate) fn begin(&self) {
        self.0.begin();
    }
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// How much the sender of a statement may write, beside its rights.
pub trait WriteLimits: std::fmt::Debug + Send + Sync {
    /// Counts samples that are to be written to a database; an error says why they are not, for now.
    fn take_samples(&self, database: &str, samples: u64) -> Result<(), String>;
    /// Counts series that are to be made in a database; an error says why they are not, for now.
    fn take_new_series(&self, database: &str, series: u64) -> Result<(), String>;
}

/// Bytes that the queries of one account, or of one database, may hold together: a limit of its own, beside what the pool gives.
#[derive(Debug)]
pub struct QueryMemoryLimit {
    used_bytes: AtomicU64,
    bytes_max: AtomicU64,
}

impl Default for QueryMemoryLimit {
    fn default() -> Self {
        Self { used_bytes: AtomicU64::new(0), bytes_max: AtomicU64::new(u64::MAX) }
    }
}

impl QueryMemoryLimit {
    /// From now on they may hold so many; `None`: as many as the pool gives.
    pub fn set(&self, bytes_max: Option<u64>) {
        self.bytes_max.store(bytes_max.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn take(&self, bytes: u64) -> Result<(), QueryError> {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= bytes_max);
        let taken = self.used_bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, add);
        taken.map(drop).map_err(|_| {
            QueryError::OverQuota(format!(
                "the queries of this account or database hold as much memory as they may, {bytes_max} bytes (query_memory_bytes_max): try again \
                 later"
            ))
        })
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The memory of a query: what its tenant's queries have of the pool, and the limits of its database and its account.
#[derive(Debug, Clone)]
pub struct QueryMemory {
    /// Of the pool that all queries share.
    pub tenant: Arc<TenantMemory>,
    /// Limits that hold beside.
    pub limits: Vec<Arc<QueryMemoryLimit>>,
}

impl QueryMemory {
    fn take(&self, bytes: u64, held_bytes: u64) -> Result<(), QueryError> {
        for (place, limit) in self.limits.iter().enumerate() {
            if let Err(error) = limit.take(bytes) {
                self.limits.iter().take(place).for_each(|taken| taken.give_back(bytes));
                return Err(error);
            }
        }
        if self.tenant.take(bytes, held_bytes) {
            return Ok(());
        }
        self.limits.iter().for_each(|limit| limit.give_back(bytes));
        Err(QueryError::TooMuchMemory { limit_bytes: self.tenant.pool().bytes_max })
    }

    fn give_back(&self, bytes: u64) {
        self.limits.iter().for_each(|limit| limit.give_back(bytes));
        self.tenant.give_back(bytes);
    }
}

/// The limits of one query, shared by all threads that work on it. It has no clock: the caller watches the time
/// and calls [`Budget::stop`].
#[derive(Debug)]
pub struct Budget {
    samples_max: u64,
    samples: AtomicU64,
    /// The most that were held.
    peak: AtomicU64,
    /// Samples that were ever taken.
    samples_taken: AtomicU64,
    /// Bytes that are held beside samples.
    other_bytes: AtomicU64,
    stop: AtomicU8,
    /// True if cached results must not be used.
    computes_all: AtomicBool,
    /// How views are used, by the numbers of [`ViewUse`].
    view_use: AtomicU8,
    /// True if selectors of PromQL have views as they are stored.
    reads_names_as_stored: AtomicBool,
    /// True if the answer is made of what folding left.
    is_folded: AtomicBool,
    /// True if there must be no such answer.
    is_strict: AtomicBool,
    /// The first and the last time that it reads.
    first_ns: AtomicI64,
    last_ns: AtomicI64,
    /// The memory that it shares with all other queries.
    memory: Option<QueryMemory>,
    /// The rights of its sender.
    scope: Option<Arc<Scope>>,
    /// Narrower rights than those, while a view is read whose maker had these.
    narrowed: RwLock<Option<Arc<Scope>>>,
    /// Tables that its sender must not read, whatever their labels.
    hidden: Vec<HiddenTable>,
    /// How much its sender may write.
    write_limits: Option<Arc<dyn WriteLimits>>,
    schedule: OnceLock<Arc<dyn Schedule>>,
    /// What small tables say of labels, by what is read of them: the same for all that a query does.
    label_rows: RwLock<BTreeMap<String, Arc<LabelRows>>>,
}

impl Budget {
    /// A budget of so many samples held at once.
    pub const fn new(samples_max: u64) -> Self {
        Self::with_memory(samples_max, None)
    }

    /// A budget out of the memory that all queries share, which gets it back when the budget is dropped.
    pub fn sharing(samples_max: u64, memory: &Arc<MemoryPool>) -> Self {
        Self::of_tenant(samples_max, QueryMemory { tenant: memory.tenant(), limits: Vec::new() })
    }

    /// As [`Budget::sharing`], beside the other queries of a tenant.
    pub const fn of_tenant(samples_max: u64, memory: QueryMemory) -> Self {
        Self::with_memory(samples_max, Some(memory))
    }

    const fn with_memory(samples_max: u64, memory: Option<QueryMemory>) -> Self {
        let [samples, peak, samples_taken, other_bytes] = [const { AtomicU64::new(0) }; 4];
        Self {
            samples_max,
            samples,
            peak,
            samples_taken,
            other_bytes,
            stop: AtomicU8::new(0),
            computes_all: AtomicBool::new(false),
            view_use: AtomicU8::new(0),
            reads_names_as_stored: AtomicBool::new(false),
            is_folded: AtomicBool::new(false),
            is_strict: AtomicBool::new(false),
            first_ns: AtomicI64::new(TimeRange::EMPTY.start_ns),
            last_ns: AtomicI64::new(TimeRange::EMPTY.end_ns),
            memory,
            scope: None,
            narrowed: RwLock::new(None),
            hidden: Vec::new(),
            write_limits: None,
            schedule: OnceLock::new(),
            label_rows: RwLock::new(BTreeMap::new()),
        }
    }

    /// The budget with the scope of the account that sent the query. Without one the query may read and change everything.
    #[must_use]
    pub fn for_scope(mut self, scope: Arc<Scope>) -> Self {
        self.scope = Some(scope);
        self
    }

    /// The budget of a sender who must not read certain tables.
    #[must_use]
    pub fn hiding(mut self, hidden: Vec<HiddenTable>) -> Self {
        self.hidden = hidden;
        self
    }

    /// The tables of a database that its sender must not read.
    pub(crate) fn hidden<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a HiddenTable> {
        self.hidden.iter().filter(move |hidden| hidden.database == database)
    }

    /// The budget with limits of what its statement may write.
    #[must_use]
    pub fn limiting_writes(mut self, limits: Arc<dyn WriteLimits>) -> Self {
        self.write_limits = Some(limits);
        self
    }

    /// The limits of what its statement may write, if there are any.
    pub fn write_limits(&self) -> Option<&dyn WriteLimits> {
        self.write_limits.as_deref()
    }

    /// What the query may read and change.
    pub fn scope(&self) -> Arc<Scope> {
        self.narrowed_scope().or_else(|| self.scope.clone()).unwrap_or_else(Scope::open)
    }

    /// Narrower rights than the sender's, if the query has them now.
    pub(crate) fn narrowed_scope(&self) -> Option<Arc<Scope>> {
        self.narrowed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on the query has narrower rights than its sender, or the sender's.
    pub(crate) fn narrow_scope(&self, scope: Option<Arc<Scope>>) {
        *self.narrowed.write().unwrap_or_else(PoisonError::into_inner) = scope;
    }

    /// The part of a cached answer's key that the sender's rights make: the matchers that narrow them; nothing where they are not narrowed.
    pub fn scope_text(&self, database: &str) -> String {
        self.scope()
            .matchers(Right::Read, database)
            .iter()
            .fold(String::new(), |text, matcher| text + &matcher.to_string() + "\n")
    }

    /// What a small table says of labels, if the query has read it; `text` says what is read of the table.
    pub(crate) fn label_rows(&self, text: &str) -> Option<Arc<LabelRows>> {
        self.label_rows.read().unwrap_or_else(PoisonError::into_inner).get(text).cloned()
    }

    /// Keeps what a small table says of labels for the rest of the query.
    pub(crate) fn keep_label_rows(&self, text: String, rows: &Arc<LabelRows>) -> Result<(), QueryError> {
        self.hold_bytes((text.len() + rows.bytes()) as u64)?;
        self.label_rows.write().unwrap_or_else(PoisonError::into_inner).insert(text, rows.clone());
        Ok(())
    }

    /// Records that the query reads rows of a range of time.
    pub fn note_read(&self, range: &TimeRange) {
        self.first_ns.fetch_min(range.start_ns, Ordering::Relaxed);
        self.last_ns.fetch_max(range.end_ns, Ordering::Relaxed);
    }

    /// The smallest range that has all times that were read; empty if none were.
    pub fn read_range(&self) -> TimeRange {
        TimeRange::new(self.first_ns.load(Ordering::Relaxed), self.last_ns.load(Ordering::Relaxed))
    }

    /// Takes samples out of the budget, or says that there are too few left, or that the query was stopped; then it takes
    /// none.
    pub fn take(&self, samples: usize) -> Result<(), QueryError> {
        self.check()?;
        let samples = samples as u64;
        let add = |held: u64| held.checked_add(samples).filter(|held| *held <= self.samples_max);
        let held_bytes = self.held_bytes();
        if self.samples.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return Err(QueryError::TooManySamples { limit: self.samples_max });
        }
        let bytes = samples.saturating_mul(SAMPLE_BYTES as u64);
        if let Err(error) = self.memory.as_ref().map_or(Ok(()), |memory| memory.take(bytes, held_bytes)) {
            self.samples.fetch_sub(samples, Ordering::Relaxed);
            return Err(error);
        }
        self.samples_taken.fetch_add(samples, Ordering::Relaxed);
        self.peak.fetch_max(self.samples(), Ordering::Relaxed);
        Ok(())
    }

    /// Takes bytes that are no samples out of the memory that all queries share, until the budget is dropped; what reading holds, say.
    pub fn hold_bytes(&self, bytes: u64) -> Result<(), QueryError> {
        if let Some(memory) = &self.memory {
            memory.take(bytes, self.held_bytes())?;
            self.other_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives back samples that are no longer held.
    pub fn give_back(&self, samples: usize) {
        self.samples.fetch_sub(samples as u64, Ordering::Relaxed);
        if let Some(memory) = &self.memory {
            memory.give_back(samples as u64 * SAMPLE_BYTES as u64);
        }
    }

    /// Fails if the query was stopped. To be called at least once per series and per few thousand samples.
    pub fn check(&self) -> Result<(), QueryError> {
        match self.stop.load(Ordering::Relaxed) {
            0 => {}
            1 => return Err(QueryError::Stopped(Stop::Timeout)),
            _ => return Err(QueryError::Stopped(Stop::Cancelled)),
        }
        if let Some(schedule) = self.schedule.get() {
            schedule.note_check();
        }
        Ok(())
    }

    /// Gives the query to a scheduler; the first schedule that is set counts.
    pub fn set_schedule(&self, schedule: Arc<dyn Schedule>) {
        let _ = self.schedule.set(schedule);
    }

    /// Returns whether the query has a schedule, which then says how many threads help with it.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.schedule.get().is_some()
    }

    /// A permit for one more thread to help with the query; `None` if no core is free, or if the query has no schedule.
    pub(crate) fn join(&self) -> Option<Joined<'_>> {
        let schedule = self.schedule.get()?.as_ref();
        schedule.join().then(|| Joined(schedule))
    }

    /// Returns whether threads that help with the query are to stop.
    pub(crate) fn gives_way(&self) -> bool {
        self.schedule.get().is_some_and(|schedule| schedule.gives_way())
    }

    /// Stops the query at its next check.
    pub fn stop(&self, reason: Stop) {
        let number = match reason {
            Stop::Timeout => 1,
            Stop::Cancelled => 2,
        };
        self.stop.store(number, Ordering::Relaxed);
    }

    /// From now on everything is computed: cached results of earlier queries are not used.
    pub fn compute_all(&self) {
        self.computes_all.store(true, Ordering::Relaxed);
    }

    /// Returns whether that was said.
    pub fn computes_all(&self) -> bool {
        self.computes_all.load(Ordering::Relaxed)
    }

    /// From now on views are used in a certain way.
    pub fn use_views(&self, view_use: ViewUse) {
        let number = match view_use {
            ViewUse::All => 0,
            ViewUse::Named => 1,
            ViewUse::Stored => 2,
        };
        self.view_use.store(number, Ordering::Relaxed);
    }

    /// How views are used.
    pub fn view_use(&self) -> ViewUse {
        match self.view_use.load(Ordering::Relaxed) {
            0 => ViewUse::All,
            1 => ViewUse::Named,
            _ => ViewUse::Stored,
        }
    }

    /// From now on selectors of PromQL have views as they are stored: the log of their tables tells of these alone.
    pub fn read_names_as_stored(&self) {
        self.reads_names_as_stored.store(true, Ordering::Relaxed);
    }

    /// Returns whether selectors of PromQL have views as they are stored.
    pub fn reads_names_as_stored(&self) -> bool {
        self.reads_names_as_stored.load(Ordering::Relaxed)
    }

    /// From now on the query fails where its answer would be made of what folding left.
    pub fn be_strict(&self) {
        self.is_strict.store(true, Ordering::Relaxed);
    }

    /// Records that the answer is made of what folding left; fails if it must not be.
    pub fn note_folded(&self) -> Result<(), QueryError> {
        if self.is_strict.load(Ordering::Relaxed) {
            let reason = format!("the database is strict about folded data: {FOLDED_WARNING}");
            return Err(QueryError::Execution(reason));
        }
        self.is_folded.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether that was recorded: the answer comes with [`FOLDED_WARNING`], and is not to be cached.
    pub fn is_folded(&self) -> bool {
        self.is_folded.load(Ordering::Relaxed)
    }

    /// How many samples may be held at once.
    pub const fn samples_max(&self) -> u64 {
        self.samples_max
    }

    /// Samples that were taken so far, also those that were given back: how much work it was.
    pub fn samples_taken(&self) -> u64 {
        self.samples_taken.load(Ordering::Relaxed)
    }

    /// The most samples that were held at once.
    pub fn samples_peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    fn held_bytes(&self) -> u64 {
        self.samples() * SAMPLE_BYTES as u64 + self.other_bytes.load(Ordering::Relaxed)
    }

    /// Samples held now.
    pub fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.give_back(self.held_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has room for one thread, and counts those that work.
    #[derive(Debug, Default)]
    struct OneHelper(AtomicU64);

    impl Schedule for OneHelper {
        fn note_check(&self) {}

        fn join(&self) -> bool {
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |working| (working == 0).then_some(1)).is_ok()
        }

        fn begin(&self) {}

        fn leave(&self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }

        fn gives_way(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_thread_that_did_not_join_does_not_leave() {
        let (budget, schedule) = (Budget::new(10), Arc::new(OneHelper::default()));
        assert!(budget.join().is_none());
        budget.set_schedule(schedule.clone());
        let working = || schedule.0.load(Ordering::Relaxed);
        let joined = budget.join();
        assert!(joined.is_some() && budget.join().is_none());
        assert_eq!(working(), 1);
        drop(joined);
        assert_eq!(working(), 0);
    }

    #[test]
    fn a_limit_of_memory_is_of_all_queries_that_have_it() {
        let limit = Arc::new(QueryMemoryLimit::default());
        limit.set(Some(100));
        assert_eq!(limit.take(60), Ok(()));
        let error = limit.take(60).unwrap_err();
        assert!(error.to_string().contains("100 bytes (query_memory_bytes_max)"), "{error}");
        limit.give_back(60);
        assert_eq!(limit.take(100), Ok(()));
        limit.set(None);
        assert_eq!(limit.take(1 << 40), Ok(()));
    }

    #[test]
    fn is_used_up_given_back_and_stopped() {
        let budget = Budget::new(10);
        budget.take(8).unwrap();
        assert_eq!(budget.take(3), Err(QueryError::TooManySamples { limit: 10 }));
        budget.give_back(8);
        budget.take(10).unwrap();
        budget.stop(Stop::Timeout);
        assert_eq!(budget.take(0), Err(QueryError::Stopped(Stop::Timeout)));
    }
}
