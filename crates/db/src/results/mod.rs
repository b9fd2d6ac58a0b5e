//! Answers that are kept, so that a dashboard that is asked for again, or slides forward, is computed only where something is new.
//!
//! ```text
//!  query ──► key (what is asked, but for when) ──► kept stretches ──► still true? ──► join ──► answer
//!                                                                  (validity, journal)    ▲
//!                                             missing stretches ──► evaluate, keep ────┘
//! ```
//!
//! An answer whose steps stand for themselves is kept by steps on the grid of its step; others as a whole. Each stretch has the number of
//! a snapshot that was taken before it was evaluated. When it is asked for, the store's journal says what was written, deleted or
//! folded since: steps that look at any of that are evaluated again. Whatever the journal does not remember is a miss.

mod bins;
mod flash;
mod range;
mod recent;
mod slab_form;
mod validity;
mod whole;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cache::{Front, Key, Options, Portion, Span};
use model::TimeRange;
use platform::Platform;
use promql::{Evaluation, EvaluationResult, EvaluationSettings, Expression, PartialRange, PartialRangeSlice};
use query::{Budget, Frame, StoreSource};
use store::{Store, StoreError};

pub(crate) use bins::Asker;
use flash::Flash;
use recent::Recents;

/// Of the memory for answers, what newest samples may take: one part of so many.
const RECENTS_SHARE: usize = 4;

/// Results that left memory and are not on flash yet, and those that are in no slab yet, may each take one part of so many of it.
pub(crate) const OPEN_SHARE: usize = 8;

/// A cache entry under a key for a span: times of steps in milliseconds, of bins in nanoseconds, or 0 to 1 for what cannot be cut.
#[derive(Debug, Clone)]
pub(crate) enum Portions {
    /// An answer by steps.
    Steps(PartialRange),
    /// An answer as a whole.
    Whole(Arc<EvaluationResult>),
    /// Bins of time, in the order of labels.
    Bins(Vec<Frame>),
}

impl Portion for Portions {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Steps(stretch) => stretch.size_bytes(),
            Self::Whole(answer) => whole::size_bytes(answer),
            Self::Bins(frames) => frames.iter().map(Frame::size_bytes).sum(),
        }
    }

    fn within(&self, span: Span) -> Self {
        match self {
            Self::Steps(range) => {
                let (first_ms, last_ms) = (span.start, span.end.saturating_sub(1));
                Self::Steps(PartialRange::join(&[PartialRangeSlice { range, first_ms, last_ms }]))
            }
            Self::Whole(answer) => Self::Whole(answer.clone()),
            Self::Bins(frames) => {
                let range = TimeRange::new(span.start, span.end.saturating_sub(1));
                // It was put together once, so it can be cut.
                Self::Bins(Frame::join(&[(frames, range)]).unwrap_or_default())
            }
        }
    }

    fn append(&mut self, later: &Self) {
        match (self, later) {
            (Self::Steps(stretch), Self::Steps(later)) => stretch.append(later),
            (Self::Bins(frames), Self::Bins(later)) => {
                let joined = Frame::join(&[(frames, TimeRange::ALL), (later, TimeRange::ALL)]);
                *frames = joined.unwrap_or_default();
            }
            _ => {}
        }
    }
}

/// How much of an answer was kept before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Steps of the answer.
    pub steps: u64,
    /// How many of them were in memory.
    pub from_memory: u64,
    /// How many of them were on flash.
    pub from_flash: u64,
}

/// Counts since the database was opened, and sizes now, of answers that are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResultCacheStats {
    /// Queries that might have been answered from it.
    pub queries: u64,
    /// Those that were answered without evaluating anything.
    pub hits: u64,
    /// Those of which a part was evaluated.
    pub partial_hits: u64,
    /// Steps of all answers.
    pub steps: u64,
    /// Steps that were in memory.
    pub steps_from_memory: u64,
    /// Steps that were on flash.
    pub steps_from_flash: u64,
    /// Steps that were kept, but for which something had changed.
    pub steps_changed: u64,
    /// Keys in memory.
    pub keys: u64,
    /// Bytes in memory: answers, newest samples, and what is known of flash.
    pub memory_bytes: u64,
    /// Bytes of slabs with anything in them on flash.
    pub flash_bytes: u64,
    /// Bytes read from flash.
    pub flash_bytes_read: u64,
    /// Bytes written to flash.
    pub flash_bytes_written: u64,
}

#[derive(Debug, Default)]
struct Counters {
    queries: AtomicU64,
    hits: AtomicU64,
    partial_hits: AtomicU64,
    steps: AtomicU64,
    from_memory: AtomicU64,
    from_flash: AtomicU64,
    changed: AtomicU64,
}

/// The answers that are kept.
pub(crate) struct ResultCache {
    memory: Front<Portions>,
    /// The series that the newest steps are evaluated on.
    recents: Recents,
    /// Entries that left memory, and those that outlive the process.
    flash: Option<Flash>,
    counters: Counters,
}

/// A query, and what it runs on.
pub(crate) struct Run<'a> {
    pub(crate) store: &'a Store,
    pub(crate) database: &'a str,
    pub(crate) source: &'a StoreSource<'a>,
    pub(crate) expression: &'a Expression,
    pub(crate) settings: &'a EvaluationSettings,
    pub(crate) budget: &'a Budget,
}

impl Run<'_> {
    /// The source that the query is evaluated on.
    fn evaluation(&self) -> Evaluation<'_> {
        Evaluation::new(self.source, self.settings, self.budget)
    }
}

impl ResultCache {
    pub(crate) fn new(memory_bytes_max: usize) -> Self {
        let of_recents = memory_bytes_max / RECENTS_SHARE;
        let (memory, recents) = (Front::new(memory_bytes_max - of_recents), Recents::new(of_recents));
        Self { memory, recents, flash: None, counters: Counters::default() }
    }

    /// The cache with a file behind it.
    pub(crate) fn on_flash(self, platform: &Platform, options: Options, store: &Store) -> std::io::Result<Self> {
        let memory = Front::new(self.memory.bytes_max().saturating_sub(2 * options.open_bytes_max));
        Ok(Self { flash: Some(Flash::open(platform, options, store)?), memory, ..self })
    }

    /// Returns whether some of it is to be worked at in the background.
    pub(crate) const fn has_flash(&self) -> bool {
        self.flash.is_some()
    }

    /// Writes what is due to flash. Whether there may be more to do.
    pub(crate) fn work(&self, store: &Store) -> Result<bool, StoreError> {
        self.flash.as_ref().map_or(Ok(false), |flash| flash.work(store, &self.memory))
    }

    /// Writes everything to flash that is in memory alone.
    pub(crate) fn save(&self, store: &Store) -> Result<(), StoreError> {
        self.flash.as_ref().map_or(Ok(()), |flash| flash.save(store, &self.memory, true))
    }

    /// Keeps an answer in memory; what has to leave it goes to flash.
    fn insert(&self, key: Key, portion: impl Into<Arc<Portions>>, span: Span, stamp: u64) {
        let evicted = self.memory.insert(key, portion, span, stamp);
        if let Some(flash) = self.flash.as_ref().filter(|_| !evicted.is_empty()) {
            flash.take(evicted);
        }
    }

    pub(crate) fn stats(&self) -> ResultCacheStats {
        let (counters, memory) = (&self.counters, self.memory.stats());
        let flash = self.flash.as_ref().map(Flash::stats).unwrap_or_default();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ResultCacheStats {
            queries: read(&counters.queries),
            hits: read(&counters.hits),
            partial_hits: read(&counters.partial_hits),
            steps: read(&counters.steps),
            steps_from_memory: read(&counters.from_memory),
            steps_from_flash: read(&counters.from_flash),
            steps_changed: read(&counters.changed),
            keys: memory.keys as u64,
            memory_bytes: (memory.bytes + self.recents.memory_bytes()) as u64
                + self.flash.as_ref().map_or(0, Flash::memory_bytes),
            flash_bytes: flash.slab_bytes,
            flash_bytes_read: flash.read_bytes,
            flash_bytes_written: flash.written_bytes,
        }
    }

    fn count(&self, used: CacheUse) {
        let counters = &self.counters;
        let add = |counter: &AtomicU64, more: u64| counter.fetch_add(more, Ordering::Relaxed);
        let kept = used.from_memory + used.from_flash;
        add(&counters.queries, 1);
        add(&counters.hits, u64::from(kept == used.steps));
        add(&counters.partial_hits, u64::from(kept > 0 && kept < used.steps));
        add(&counters.steps, used.steps);
        add(&counters.from_memory, used.from_memory);
        add(&counters.from_flash, used.from_flash);
    }
}

/// The key of an answer: everything that it depends on but the data. Grid and times are `when`.
fn key_of(database: u32, when: &str, run: &Run<'_>) -> Key {
    let settings = run.budget.scope_text(run.database) + &settings_of(run.settings);
    key_of_text(database, when, &settings, run.expression.text())
}

fn key_of_text(database: u32, when: &str, settings: &str, text: &str) -> Key {
    Key::of_statement(&format!("{database}\n{when}\n{settings}\n{text}"))
}

fn settings_of(settings: &EvaluationSettings) -> String {
    let EvaluationSettings { lookback_ms, steps_max, subquery_step_ms, name_removal, features } = settings;
    format!("{lookback_ms} {steps_max} {subquery_step_ms} {} {features:?}", name_removal.word())
}
