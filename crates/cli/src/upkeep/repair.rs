//! `thalweg repair`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use db::{LostFile, RepairReport};

use super::show::time;
use super::{counted, platform_of, size};

const EXAMPLES: &str = "Examples:
  thalweg repair --data /var/lib/thalweg --dry-run     what would be done
  thalweg repair --data /var/lib/thalweg               do it; no server may be running on the folder
  thalweg repair --data /var/lib/thalweg --list        what is in lost+found, with the time of its rows

A copy of the manifest that is missing or damaged is written anew from the other when the folder is opened: that needs no repair.
A newer backup is better than a repaired folder (thalweg restore).";

/// Put a manifest together for a folder that has none which can be read, from its parts, index and log
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RepairFlags {
    /// Data folder, or database in one file; no server may be running on it
    #[arg(long, env = "THALWEG_DATA", value_name = "FOLDER", default_value = "./thalweg-data")]
    data: PathBuf,
    /// Change nothing, and say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Only list what is in `lost+found`: whole files that no manifest names
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(flags: &RepairFlags) -> Result<ExitCode, String> {
    let platform = platform_of(&flags.data)?;
    if flags.list {
        let found = db::lost_found(&platform, &flags.data).map_err(|error| error.to_string())?;
        found.iter().for_each(|file| say!("{}", listed(file)));
        say!("{} in lost+found", counted(found.len() as u64, "file", "files"));
        return Ok(ExitCode::SUCCESS);
    }
    let report = db::repair(&platform, &flags.data, flags.dry_run).map_err(|error| error.to_string())?;
    say!("{}", as_text(&report, flags));
    Ok(ExitCode::SUCCESS)
}

fn listed(file: &LostFile) -> String {
    let range = file
        .range
        .map_or_else(String::new, |range| format!(", rows from {} to {}", time(range.start_ns), time(range.end_ns)));
    format!("{}: {}{range}", file.file, size(file.bytes))
}

fn as_text(report: &RepairReport, flags: &RepairFlags) -> String {
    if report.is_readable {
        return "the manifest can be read: nothing to repair".to_owned();
    }
    let mut lines: Vec<String> = report.missing.iter().map(|what| format!("missing: {what}")).collect();
    lines.extend(report.left_out.iter().map(|file| format!("to lost+found: {file}")));
    lines.push(format!(
        "{} with {} up to {}, {}; the newest part knew of record {} of the manifest",
        counted(report.parts, "part", "parts"),
        counted(report.rows, "row", "rows"),
        report.newest_ns.map_or_else(|| "nothing".to_owned(), time),
        counted(report.segments, "index segment", "index segments"),
        report.edition
    ));
    lines.push(if flags.dry_run {
        "nothing was changed".to_owned()
    } else {
        format!("the manifest is written; `thalweg serve --data {}` serves the folder", flags.data.display())
    });
    lines.join("\n")
}
