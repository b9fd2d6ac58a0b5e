//! `thalweg inspect`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use db::{FileSizes, FolderReport, PolicyReport};
use serde_json::{Value, json};

use super::show::{duration, partitions, partitions_json, table, totals};
use super::{counted, platform_of, size};

const EXAMPLES: &str = "Examples:
  thalweg inspect --data /var/lib/thalweg           also while a server runs on it
  thalweg inspect --data ./thalweg-data --json | jq '.partitions[] | select(.level == 2)'";

/// Show the contents of a data folder: read from the manifest, nothing is changed
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectFlags {
    /// Data folder, or database in one file; a server may be running on it
    #[arg(long, env = "THALWEG_DATA", value_name = "FOLDER", default_value = "./thalweg-data")]
    data: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(flags: &InspectFlags) -> Result<ExitCode, String> {
    let report = db::inspect(&platform_of(&flags.data)?, &flags.data).map_err(|error| error.to_string())?;
    if flags.json {
        say!("{}", as_json(&report));
    } else {
        say!("{}", as_text(&report));
    }
    Ok(ExitCode::SUCCESS)
}

fn as_text(report: &FolderReport) -> String {
    let (parts, rows, bytes) = totals(report);
    let mut lines = vec![
        format!(
            "incarnation {:016x}, {}, opened {}, partitions of {}",
            report.incarnation,
            counted(u64::from(report.shards), "shard", "shards"),
            counted(report.epoch, "time", "times"),
            duration(report.partition_ns)
        ),
        databases(&report.databases),
        partitions(report),
        format!(
            "{} with {} in {}; index {}; log {} and {} spare; {}",
            counted(parts, "part", "parts"),
            counted(rows, "row", "rows"),
            size(bytes),
            files(report.index),
            files(report.log),
            files(report.log_spares),
            counted(report.deletes_pending, "delete pending", "deletes pending")
        ),
    ];
    lines.extend(report.missing.iter().map(|file| format!("missing: {file}")));
    lines.extend(report.unnamed.iter().map(|file| format!("not named by the manifest: {file}")));
    lines.join("\n")
}

fn databases(databases: &[PolicyReport]) -> String {
    let mut table = table(&["database", "class", "retention", "folds"]);
    for PolicyReport { database, policy } in databases {
        let folds: Vec<String> = policy
            .folds
            .iter()
            .map(|(age_ns, width_ns)| format!("{}:{}", duration(*age_ns), duration(*width_ns)))
            .collect();
        let retention = if policy.retention_ns > 0 { duration(policy.retention_ns) } else { "forever".to_owned() };
        table.add_row([database.clone(), policy.class.to_string(), retention, folds.join(",")]);
    }
    table.to_string()
}

fn files(sizes: FileSizes) -> String {
    format!("{} of {}", counted(sizes.files, "file", "files"), size(sizes.bytes))
}

fn as_json(report: &FolderReport) -> Value {
    let database = |known: &PolicyReport| {
        json!({
            "name": known.database,
            "class": known.policy.class,
            "retention_ns": known.policy.retention_ns,
            "folds_ns": known.policy.folds,
        })
    };
    let files = |sizes: FileSizes| json!({ "files": sizes.files, "bytes": sizes.bytes });
    json!({
        "incarnation": format!("{:016x}", report.incarnation),
        "shards": report.shards,
        "epoch": report.epoch,
        "partition_ns": report.partition_ns,
        "flushed_through": report.flushed_through,
        "databases": report.databases.iter().map(database).collect::<Vec<_>>(),
        "partitions": partitions_json(report),
        "index": files(report.index),
        "log": files(report.log),
        "log_spares": files(report.log_spares),
        "deletes_pending": report.deletes_pending,
        "missing": report.missing,
        "unnamed": report.unnamed,
    })
}
