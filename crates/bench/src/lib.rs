//! `thalweg bench`: measurements that can be repeated. A file per kind.
//!
//! * [`load`], [`protocols`]: writing to a server · [`query`], [`plans`], [`wide`]: asking one · [`hostile`], [`floods`]: attacking one · [`accounts`]: two tenants on one, the cost of TLS and tokens · [`scrape`](mod@scrape): what scraping costs, beside other programs
//! * [`epochs`]: regular databases, beside other programs · [`similar`](mod@epochs::similar): what is like what in one, beside stumpy
//! * [`storage`]: the engine without a server, an experiment a file; materialised views · [`cache`]: the result cache; [`simulate`]: its policies without a file
//! * [`workload`]: data to write and requests of it · [`measure`]: sending them, latencies, CPU time and memory
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing its report is what a benchmark is for")]

mod accounts;
mod cache;
mod epochs;
mod floods;
mod hostile;
mod load;
mod measure;
mod plans;
mod protocols;
mod query;
mod scrape;
mod simulate;
mod storage;
mod wide;
mod workload;

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use accounts::{access, tenants};
use epochs::similar;
use protocols::{redis, wire};
use storage::views;

/// The flags of `thalweg bench`.
#[derive(Debug, Args)]
pub struct BenchFlags {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Measure what TLS and tokens cost
    Access(access::AccessFlags),
    /// Measure the result cache: replacement policies, simulated, and the cache itself
    Cache(cache::CacheFlags),
    /// Measure a regular database of millions of series, and other programs beside it
    Epochs(epochs::EpochFlags),
    /// Attack a server, by queries or by floods, and watch what others have to wait for
    Hostile(hostile::HostileFlags),
    /// Write generated data of the Time Series Benchmark Suite's kind
    Load(load::LoadFlags),
    /// Ask what the Time Series Benchmark Suite asks, and a rate over 10,000 series
    Query(query::QueryFlags),
    /// Add samples by Redis's protocol, in pipelines
    Redis(redis::RedisFlags),
    /// Serve targets and measure what scraping them costs, beside Prometheus and VictoriaMetrics if wanted
    Scrape(scrape::ScrapeFlags),
    /// Look for days that are like one among those of very many series, and compute matrix profiles, beside stumpy if wanted
    Similar(similar::SimilarFlags),
    /// Measure the storage engine: memory, insertion, size, late data, long queries
    Storage(storage::StorageFlags),
    /// Put a tenant that wants everything beside one that wants little, and measure what the latter has to wait for
    Tenants(tenants::TenantsFlags),
    /// Keep materialised views right: what that costs, also after late rows, and what a query of a year spares by one
    Views(views::ViewsFlags),
    /// Ask about many lone series among millions
    Wide(wide::WideFlags),
    /// Write by the binary protocol: hosts and clients in every combination, against a server that throws everything away
    Wire(wire::WireFlags),
}

/// Measures in a folder of its own, which is removed again, and prints the report: as JSON, or for people.
fn report<R: Serialize>(
    is_json: bool,
    measure: impl FnOnce(&Path) -> Result<R, String>,
    render: impl FnOnce(&R) -> String,
) -> Result<ExitCode, String> {
    let folder = std::env::temp_dir().join(format!("thalweg-bench-{}", std::process::id()));
    let measured = measure(&folder);
    // Without it there is nothing to remove.
    let _ = std::fs::remove_dir_all(&folder);
    let measured = measured?;
    let text = if is_json {
        serde_json::to_string_pretty(&measured).map_err(|error| error.to_string())?
    } else {
        render(&measured)
    };
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}

/// Runs the measurement that the flags name and prints its report.
///
/// # Errors
///
/// What went wrong, for the person who ran it.
pub fn run(flags: &BenchFlags) -> Result<ExitCode, String> {
    match &flags.kind {
        Kind::Access(flags) => access::run(flags),
        Kind::Cache(flags) => cache::run(flags),
        Kind::Epochs(flags) => epochs::run(flags),
        Kind::Hostile(flags) => hostile::run(flags),
        Kind::Load(flags) => load::run(flags),
        Kind::Query(flags) => query::run(flags),
        Kind::Redis(flags) => redis::run(flags),
        Kind::Scrape(flags) => scrape::run(flags),
        Kind::Similar(flags) => similar::run(flags),
        Kind::Storage(flags) => storage::run(flags),
        Kind::Tenants(flags) => tenants::run(flags),
        Kind::Views(flags) => views::run(flags),
        Kind::Wide(flags) => wide::run(flags),
        Kind::Wire(flags) => wire::run(flags),
    }
}
