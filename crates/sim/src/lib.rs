//! The shipped store on a simulated machine, compared with a plain map after every step. Everything follows from a seed.
//!
//! * [`oracle`]: what the store must hold.
//! * [`rows`]: rows as they are drawn, and as the store takes them.
//! * [`world`]: the machine, the store and the oracle, and what happens to them.
//! * [`clock`]: what its clock does. [`check`]: the comparison. [`upkeep`]: the folder's own checks, backups.
//!   [`spoil`]: missing, cut and flipped files. [`trash`]: what expired and is restored.
//!   [`documents`]: named documents. [`epochs`]: a regular database. [`deletes`]: deletes, also half of them.
//!   [`trims`]: series that keep their rows less long, and openings for reading only.

mod check;
mod clock;
mod deletes;
mod documents;
mod epochs;
mod oracle;
mod rows;
mod spoil;
mod trash;
mod trims;
mod upkeep;
mod world;

use std::fmt;

use world::World;

/// What a run did: a run that does little tests little.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations carried out.
    pub operations: u64,
    /// Crashes survived.
    pub crashes: u64,
    /// Flushes of heads.
    pub flushes: u64,
    /// Merges of parts, by reason.
    pub merges: store::MergeCounts,
    /// Operations that a full disk refused.
    pub refused: u64,
    /// Comparisons of samples or windows with the oracle.
    pub comparisons: u64,
    /// Nodes that stood for samples in window aggregates.
    pub nodes: u64,
    /// Backups taken and restored.
    pub backups: u64,
    /// Times at which the wall clock was set wrong, or stopped.
    pub clock_faults: u64,
    /// Rows that were rejected because they came for folded time.
    pub folded: u64,
    /// Rows that were rejected because they are beyond the retention.
    pub beyond_retention: u64,
    /// Writes to epochs of a regular database.
    pub epochs: u64,
    /// Files spoilt while the store was closed.
    pub spoilt: u64,
    /// Openings refused for a loss, and then accepted.
    pub refused_losses: u64,
    /// Parts restored from the trash.
    pub restored: u64,
    /// Samples that were expected again after that.
    pub restored_samples: u64,
    /// Trims of series that took rows.
    pub trims: u64,
    /// Openings for reading only.
    pub read_only: u64,
}

/// The store and the oracle differ, or the store failed where it must not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// The seed that shows it again.
    pub seed: u64,
    /// The operation after which it showed, counted from 0.
    pub operation: u64,
    /// What differs.
    pub message: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "seed {}, operation {}: {}", self.seed, self.operation, self.message)
    }
}

impl std::error::Error for Divergence {}

impl Report {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.crashes += other.crashes;
        self.flushes += other.flushes;
        self.refused += other.refused;
        self.comparisons += other.comparisons;
        self.nodes += other.nodes;
        self.backups += other.backups;
        self.clock_faults += other.clock_faults;
        self.folded += other.folded;
        self.beyond_retention += other.beyond_retention;
        self.epochs += other.epochs;
        self.spoilt += other.spoilt;
        self.refused_losses += other.refused_losses;
        self.restored += other.restored;
        self.restored_samples += other.restored_samples;
        self.trims += other.trims;
        self.read_only += other.read_only;
        self.merges.merge(&other.merges);
    }
}

/// Runs so many operations from a seed. The data folder of some seeds is one file.
pub fn run(seed: u64, operations: u64) -> Result<Report, Divergence> {
    run_in(seed, operations, world::is_one_file(seed))
}

/// Runs so many operations from a seed, in a data folder that is one file or is none.
pub fn run_in(seed: u64, operations: u64, is_one_file: bool) -> Result<Report, Divergence> {
    let diverged = |operation: u64| move |message: String| Divergence { seed, operation, message };
    let mut world = World::new(seed, is_one_file).map_err(diverged(0))?;
    for operation in 0..operations {
        world.step().map_err(diverged(operation))?;
    }
    world.finish().map_err(diverged(operations))
}
