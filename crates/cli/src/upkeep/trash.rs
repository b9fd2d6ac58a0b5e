//! `thalweg trash`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use db::TrashReport;
use serde_json::{Value, json};

use super::show::{table, time};
use super::{counted, platform_of, size};
use crate::units::times;

const EXAMPLES: &str = "Examples:
  thalweg trash list --data /var/lib/thalweg                       also while a server runs on it
  thalweg trash restore --data /var/lib/thalweg                    everything that retention keeps now
  thalweg trash restore --data /var/lib/thalweg --retention 90d    and keep rows for 90 days from now on
  thalweg trash restore --data /var/lib/thalweg --part 17 --part 18

What retention takes stays in the trash for a day (`thalweg serve --trash-age-ms-max`), as long as the disk has room.";

/// List the parts that retention took in the last day, or restore them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TrashFlags {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List what is in the trash, oldest first
    List {
        /// Data folder; a server may be running on it
        #[arg(long, env = "THALWEG_DATA", value_name = "FOLDER", default_value = "./thalweg-data")]
        data: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Put parts back, so that they are served again
    Restore(RestoreTrashFlags),
}

#[derive(Debug, Args)]
struct RestoreTrashFlags {
    /// Data folder; no server may be running on it
    #[arg(long, env = "THALWEG_DATA", value_name = "FOLDER", default_value = "./thalweg-data")]
    data: PathBuf,
    /// Which part; may be repeated [default: all]
    #[arg(long = "part", value_name = "NUMBER")]
    parts: Vec<u64>,
    /// How long the databases with these rows keep rows from now on, if that is longer than now: 90d, forever
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,
}

pub(crate) fn run(flags: &TrashFlags) -> Result<ExitCode, String> {
    match &flags.action {
        Action::List { data, json } => list(data, *json),
        Action::Restore(flags) => restore(flags),
    }
}

fn list(data: &Path, as_json: bool) -> Result<ExitCode, String> {
    let trash = db::trash_of(&platform_of(data)?, data).map_err(|error| error.to_string())?;
    if as_json {
        say!("{}", Value::from(trash.iter().map(to_json).collect::<Vec<_>>()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = table(&["part", "databases", "from", "to", "rows", "bytes", "since"]);
    for part in &trash {
        table.add_row([
            part.id.to_string(),
            part.databases.join(", "),
            time(part.range.start_ns),
            time(part.range.end_ns),
            part.rows.to_string(),
            if part.is_remote { format!("{} in the object store", size(part.bytes)) } else { size(part.bytes) },
            time(part.since_ns),
        ]);
    }
    say!("{table}");
    Ok(ExitCode::SUCCESS)
}

fn to_json(part: &TrashReport) -> Value {
    json!({
        "part": part.id,
        "databases": part.databases,
        "start_ns": part.range.start_ns,
        "end_ns": part.range.end_ns,
        "rows": part.rows,
        "bytes": part.bytes,
        "is_remote": part.is_remote,
        "since_ns": part.since_ns,
    })
}

fn restore(flags: &RestoreTrashFlags) -> Result<ExitCode, String> {
    let retention_ns = match flags.retention.as_deref() {
        None => None,
        Some("forever") => Some(0),
        Some(text) => Some(times::duration_s(text)?.saturating_mul(1_000_000_000)),
    };
    let restored = db::restore_trash(&platform_of(&flags.data)?, &flags.data, &flags.parts, retention_ns);
    let report = restored.map_err(|error| error.to_string())?;
    for refused in &report.refused {
        eprintln!("thalweg: {refused}");
    }
    say!(
        "{} with {} ({}) restored",
        counted(report.parts, "part", "parts"),
        counted(report.rows, "row", "rows"),
        size(report.bytes)
    );
    if !report.databases.is_empty() {
        say!("what these databases keep was changed for it: {}", report.databases.join(", "));
    }
    Ok(if report.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
