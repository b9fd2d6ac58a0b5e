//! The `thalweg` program.
//!
//! * `serve`: the server · `settings`: its flags, environment and file · `secrets`: settings that are not shown · `objects`: how object stores are reached
//! * `machine`: its memory and processor · `units`: sizes, durations and moments as people write them · `output`: stdout · `cache`: `thalweg cache`
//! * `query`, `plan`: asking a server; `query::tail`: what is written to one · `render`: answers for people · `http`: clients of a server
//! * `files`: sending files to one, and writing files from one · `upkeep`: databases, accounts, certificates, backups, checks, repairs
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a command line program is for")]

#[macro_use]
mod output;

mod cache;
mod files;
mod http;
mod machine;
mod objects;
mod plan;
mod query;
mod render;
mod secrets;
mod serve;
mod settings;
mod units;
mod upkeep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A time-series database: line protocol, remote write and OpenTelemetry in, PromQL, SQL and InfluxQL out.
///
/// Without a command it serves on 127.0.0.1:7780 from ./thalweg-data.
#[derive(Debug, Parser)]
#[command(name = "thalweg", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: settings::ServeFlags,
}

const EXAMPLES: &str = "Examples:
  thalweg                                        serve on 127.0.0.1:7780 from ./thalweg-data
  thalweg serve --data /var/lib/thalweg          serve from another folder
  thalweg serve --data metrics.tsdb              serve from one file
  thalweg query 'rate(node_cpu_seconds_total[1m])' --range 30m
  thalweg import samples.lp readings.csv --tag station
  thalweg db create metrics --retention 1y       keep a year
  thalweg token create grafana --grant read:metrics
  thalweg backup --to /mnt/backups/thalweg       back the running server up
  thalweg check --data /var/lib/thalweg          verify every checksum
  thalweg bench load --connections 4             measure this machine";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the database
    Serve(Box<settings::ServeFlags>),
    /// Ask a running database in PromQL
    Query(query::QueryFlags),
    /// Show what is written to a running database
    Tail(query::tail::TailFlags),
    /// Send files of line protocol, CSV, text exposition, OpenMetrics, JSON or RRDtool to a running database
    Import(files::import::ImportFlags),
    /// Write files from a running database
    Export(files::export::ExportFlags),
    /// Databases and how long they keep their data
    Db(upkeep::DatabaseFlags),
    /// Tokens, with which programs sign in
    Token(upkeep::TokenFlags),
    /// Users, who sign in with passwords
    User(upkeep::UserFlags),
    /// Make certificates for a server and its clients
    Cert(upkeep::CertificateFlags),
    /// Delete series, or a stretch of time of them
    Delete(upkeep::DeleteFlags),
    /// Back up a running server, or a folder that no server runs on
    Backup(upkeep::BackupFlags),
    /// Write a backup into an empty folder
    Restore(upkeep::RestoreFlags),
    /// Put a data folder into one file
    Pack(upkeep::PackFlags),
    /// Take a database in one file apart into a data folder
    Unpack(upkeep::UnpackFlags),
    /// Make a data folder anew from what a lost one had put into its object store
    Rebuild(upkeep::RebuildFlags),
    /// List the parts that retention took in the last day, or restore them
    Trash(upkeep::TrashFlags),
    /// Put a manifest together for a folder that has none which can be read, from its parts, index and log
    Repair(upkeep::RepairFlags),
    /// Verify every checksum of a data folder; nothing is changed
    Check(upkeep::CheckFlags),
    /// Recording rules
    Rules(upkeep::RecordingFlags),
    /// Run tests of rules
    Test(upkeep::TestFlags),
    /// Show the contents of a data folder: read from the manifest, nothing is changed
    Inspect(upkeep::InspectFlags),
    /// What a folder lost and an operator accepted; answers about its time carry a warning until that is acknowledged
    Losses(upkeep::LossesFlags),
    /// Who reads the log, and how far: what a reader has not read is held for it
    Cursors(upkeep::CursorsFlags),
    /// Flush, merge all that is due, and give back the room of deleted rows now
    Compact(upkeep::CompactFlags),
    /// Keep answers of queries on flash, in front of any database
    Cache(cache::CacheFlags),
    /// Measure
    #[cfg(feature = "bench")]
    Bench(bench::BenchFlags),
}

/// Heads and requests come and go: each time the system clears whole huge pages, touched or not. Without them groups of ten are
/// written at twice the rate (`thalweg bench storage insert --members 10`: 24 to 28 M values a CPU second of the writer before, 52 to
/// 59 M after), remote write takes a tenth less, and queries are as fast as before.
fn avoid_huge_pages() {
    // What cannot be had is done without.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

fn main() -> ExitCode {
    if let Some(complaint) = machine::processor::complaint() {
        eprintln!("thalweg: {complaint}");
        return ExitCode::from(2);
    }
    machine::allocator::return_memory_early();
    avoid_huge_pages();
    let cli = Cli::parse();
    let done = match cli.command {
        None => serve::run(&cli.serve),
        Some(Command::Serve(flags)) => serve::run(&flags),
        Some(Command::Query(flags)) => query::run(&flags),
        Some(Command::Tail(flags)) => query::tail::run(&flags),
        Some(Command::Import(flags)) => files::import::run(&flags),
        Some(Command::Export(flags)) => files::export::run(&flags),
        Some(Command::Db(flags)) => upkeep::database(&flags),
        Some(Command::Token(flags)) => upkeep::token(&flags),
        Some(Command::User(flags)) => upkeep::user(&flags),
        Some(Command::Cert(flags)) => upkeep::certificate(&flags),
        Some(Command::Delete(flags)) => upkeep::delete(&flags),
        Some(Command::Backup(flags)) => upkeep::backup(&flags),
        Some(Command::Restore(flags)) => upkeep::restore(&flags),
        Some(Command::Pack(flags)) => upkeep::pack(&flags),
        Some(Command::Unpack(flags)) => upkeep::unpack(&flags),
        Some(Command::Rebuild(flags)) => upkeep::rebuild(&flags),
        Some(Command::Trash(flags)) => upkeep::trash(&flags),
        Some(Command::Repair(flags)) => upkeep::repair(&flags),
        Some(Command::Check(flags)) => upkeep::check(&flags),
        Some(Command::Rules(flags)) => upkeep::recording(&flags),
        Some(Command::Test(flags)) => Ok(upkeep::run_tests(&flags)),
        Some(Command::Inspect(flags)) => upkeep::inspect(&flags),
        Some(Command::Losses(flags)) => upkeep::losses(&flags),
        Some(Command::Cursors(flags)) => upkeep::cursors(&flags),
        Some(Command::Compact(flags)) => upkeep::compact(&flags),
        Some(Command::Cache(flags)) => cache::run(&flags),
        #[cfg(feature = "bench")]
        Some(Command::Bench(flags)) => bench::run(&flags),
    };
    match done {
        Ok(code) => code,
        Err(message) => {
            eprintln!("thalweg: {message}");
            ExitCode::from(2)
        }
    }
}
