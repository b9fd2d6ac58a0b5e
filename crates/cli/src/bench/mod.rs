//! `thalweg bench`: measurements that anybody can repeat. A file per kind.

mod cache;
mod floods;
mod generate;
mod hostile;
mod hosts;
mod latency;
mod load;
mod plans;
mod process;
mod query;
mod queue;
mod requests;
mod send;
mod storage;
mod walk;
mod wire;

use std::process::ExitCode;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Measure the result cache: replacement policies, simulated, and the cache itself
    Cache(cache::CacheFlags),
    /// Attack a server, by queries or by floods, and watch what others have to wait for
    Hostile(hostile::HostileFlags),
    /// Write generated data of the Time Series Benchmark Suite's kind
    Load(load::LoadFlags),
    /// Ask what the Time Series Benchmark Suite asks, and a rate over 10,000 series
    Query(query::QueryFlags),
    /// Measure the storage engine: memory, insertion, size, late data, long queries
    Storage(storage::StorageFlags),
    /// Write by the binary protocol: hosts and clients in every combination, against a server that throws everything away
    Wire(wire::WireFlags),
}

pub(crate) fn run(flags: &BenchFlags) -> Result<ExitCode, String> {
    match &flags.kind {
        Kind::Cache(flags) => cache::run(flags),
        Kind::Hostile(flags) => hostile::run(flags),
        Kind::Load(flags) => load::run(flags),
        Kind::Query(flags) => query::run(flags),
        Kind::Storage(flags) => storage::run(flags),
        Kind::Wire(flags) => wire::run(flags),
    }
}
