//! `thalweg rules backfill`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use platform::Platform;
use rules::RuleStore;
use rules::backfill::{BackfillRange, backfill};
use rules::file::{self, ReadOptions};
use scrape::config::reader::Problem;

use super::{Location, Where};
use crate::units::times;

const EXAMPLES: &str = "Examples:
  thalweg rules backfill --data /var/lib/thalweg --start -30d --end now rules.yml
  thalweg rules backfill --data /var/lib/thalweg --start -30d --stream-aggregation aggregation.yml";

/// How far PromQL looks back in a folder that is opened here.
const LOOKBACK_MS: u64 = 300_000;

/// Recording rules
#[derive(Debug, Args)]
pub(crate) struct RecordingFlags {
    #[command(subcommand)]
    command: RecordingCommand,
}

#[derive(Debug, Subcommand)]
enum RecordingCommand {
    /// Write what recording rules would have given in the past, in a folder that no server runs on
    Backfill(BackfillFlags),
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct BackfillFlags {
    #[command(flatten)]
    location: Location,
    /// Database that rules query and write to
    #[arg(long, value_name = "NAME", default_value = "default")]
    database: String,
    /// First moment: RFC 3339, Unix seconds, now, or -1h for an hour ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    start: String,
    /// Last moment
    #[arg(long, value_name = "TIME", default_value = "now", allow_hyphen_values = true)]
    end: String,
    /// Interval of groups that have none
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    eval_interval: String,
    /// What a stream aggregation file of VictoriaMetrics would have given
    #[arg(long, value_name = "FILE")]
    stream_aggregation: Option<PathBuf>,
    /// Rule files
    #[arg(required_unless_present = "stream_aggregation", value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(flags: &RecordingFlags) -> Result<ExitCode, String> {
    let RecordingCommand::Backfill(flags) = &flags.command;
    let Where::Folder(data) = flags.location.resolve() else {
        return Err("stop the server, and name its folder: --data FOLDER".to_owned());
    };
    let now = Timestamp::now();
    let range = BackfillRange {
        start_ms: times::parse(&flags.start, now)?.as_millisecond(),
        end_ms: times::parse(&flags.end, now)?.as_millisecond(),
        interval_ms: u64::try_from(times::duration_s(&flags.eval_interval)?).unwrap_or(0).max(1) * 1000,
    };
    let text = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let mut groups = Vec::new();
    for path in &flags.files {
        let loaded = file::load_file(&*Platform::real().files, path, &ReadOptions::default());
        groups.extend(loaded.map_err(text)?.groups);
    }
    if let Some(path) = &flags.stream_aggregation {
        groups.extend(super::check_stream_aggregation::load(path, LOOKBACK_MS).map_err(text)?.groups);
    }
    let db = Arc::new(flags.location.open(data)?);
    let store = RuleStore::new(db.clone(), &flags.database);
    let evaluations = backfill(&store, &groups, range, &mut |_| ());
    db.close().map_err(|error| error.to_string())?;
    say!("{}", super::counted(evaluations?, "evaluation of a group", "evaluations of groups"));
    Ok(ExitCode::SUCCESS)
}
