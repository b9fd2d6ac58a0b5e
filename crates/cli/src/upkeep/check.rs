//! `thalweg check`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use db::CheckReport;
use serde_json::{Value, json};

use super::check_config::ConfigFlags;
use super::check_discovery::DiscoveryFlags;
use super::check_rules::RulesFlags;
use super::check_stream_aggregation::AggregationFlags;
use super::show::{Bar, partitions, partitions_json};
use super::{counted, platform_of, size};
use crate::objects::ObjectAccess;

const EXAMPLES: &str = "Examples:
  thalweg check --data /var/lib/thalweg
  thalweg check --data /var/lib/thalweg --objects s3://bucket/prefix --json
  thalweg check config prometheus.yml

Exit code: 0 all is as it was written, 1 something is damaged, 2 the check could not be made.
A damaged part or segment: restore a backup into a new folder (thalweg restore), or start the server, which sets damaged
parts aside and serves the rest.";

/// Verify every checksum of a data folder; nothing is changed
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct CheckFlags {
    #[command(subcommand)]
    subject: Option<Subject>,
    /// Data folder, or database in one file; a server may be running on it
    #[arg(long, env = "THALWEG_DATA", value_name = "FOLDER", default_value = "./thalweg-data")]
    data: PathBuf,
    /// The object store that holds the folder's settled parts: they are read and checked too
    #[arg(long, env = "THALWEG_OBJECTS", value_name = "URL")]
    objects: Option<String>,
    #[command(flatten)]
    access: ObjectAccess,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A check of something that is not a data folder.
#[derive(Debug, Subcommand)]
enum Subject {
    /// Check configurations of Prometheus (prometheus.yml)
    Config(ConfigFlags),
    /// Check rule files of Prometheus
    Rules(RulesFlags),
    /// Check stream aggregation files of VictoriaMetrics, and print the rules that they become
    StreamAggregation(AggregationFlags),
    /// Advise on metrics in the text format, which come by standard input
    ///
    /// Exit code: 0 all is well, 1 they cannot be read, 3 there is advice.
    #[command(after_help = "Example: curl -s http://localhost:9090/metrics | thalweg check metrics")]
    Metrics,
    /// Look for the targets of a job once, and print their labels before and after relabelling as JSON
    #[command(alias = "sd")]
    ServiceDiscovery(DiscoveryFlags),
}

pub(crate) fn run(flags: &CheckFlags) -> Result<ExitCode, String> {
    match &flags.subject {
        Some(Subject::Config(flags)) => return Ok(super::check_config::run(flags)),
        Some(Subject::Rules(flags)) => return Ok(super::check_rules::run(flags)),
        Some(Subject::StreamAggregation(flags)) => return Ok(super::check_stream_aggregation::run(flags)),
        Some(Subject::Metrics) => return super::check_metrics::run(),
        Some(Subject::ServiceDiscovery(flags)) => return super::check_discovery::run(flags),
        None => {}
    }
    let platform = platform_of(&flags.data)?;
    let tier = flags.objects.as_deref().map(|url| flags.access.tier(url)).transpose()?;
    let bar = Bar::new();
    let checked = db::check(&platform, &flags.data, tier.as_ref(), &mut |progress| bar.tell(progress));
    drop(bar);
    let report = checked.map_err(|error| error.to_string())?;
    // Without a readable manifest there is nothing to tell of parts; the damage says so.
    let folder = db::inspect(&platform, &flags.data).unwrap_or_default();
    if flags.json {
        let mut value = as_json(&report);
        value["partitions"] = partitions_json(&folder);
        say!("{value}");
    } else {
        say!("{}\n{}", partitions(&folder), as_text(&report));
    }
    Ok(if report.damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_text(report: &CheckReport) -> String {
    let mut lines: Vec<String> = Vec::new();
    let damages = report.damages.iter();
    lines.extend(
        damages.map(|damage| format!("damaged: {} at offset {}: {}", damage.file, damage.offset, damage.message)),
    );
    lines.extend(report.log_torn.iter().map(|torn| format!("no damage: {torn}")));
    lines.extend(report.unnamed.iter().map(|file| format!("not named by the manifest: {file}")));
    if report.objects_skipped > 0 {
        let parts = counted(report.objects_skipped, "part was", "parts were");
        lines.push(format!("{parts} not read in the object store: name it with --objects"));
    }
    let read = format!(
        "{} with {}, {} and {} read",
        counted(report.files, "file", "files"),
        size(report.bytes),
        counted(report.chunks, "chunk", "chunks"),
        counted(report.log_records, "log record", "log records")
    );
    lines.push(match report.damages.len() as u64 {
        0 => format!("all is well: {read}"),
        count => format!("{} damaged: {read}", counted(count, "file is", "files are")),
    });
    lines.join("\n")
}

fn as_json(report: &CheckReport) -> Value {
    let damages: Vec<Value> = report
        .damages
        .iter()
        .map(|damage| json!({ "file": damage.file, "offset": damage.offset, "message": damage.message }))
        .collect();
    json!({
        "damages": damages,
        "files": report.files,
        "bytes": report.bytes,
        "chunks": report.chunks,
        "log_records": report.log_records,
        "log_torn": report.log_torn,
        "objects_skipped": report.objects_skipped,
        "unnamed": report.unnamed,
    })
}
