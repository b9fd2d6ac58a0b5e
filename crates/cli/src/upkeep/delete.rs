//! `thalweg delete`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Args;
use client::http::HttpClient;

use crate::http::ServerFlags;
use crate::units::times;

const EXAMPLES: &str = "Examples:
  thalweg delete --match 'node_load1{host=\"a\"}'
  thalweg delete --match '{job=\"old\"}' --start 2026-01-01T00:00:00Z --end 2026-02-01T00:00:00Z
  thalweg delete --match 'up' --end 1767225600 --db archive --compact

The samples are gone at once; their room is given back by later merges, or now with --compact.";

/// Delete series, or a stretch of time of them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DeleteFlags {
    /// Which series, as a PromQL selector; may be repeated
    #[arg(long = "match", value_name = "SELECTOR", required = true)]
    matches: Vec<String>,
    /// First moment: RFC 3339, Unix seconds, now, or -1h for an hour ago [default: from the beginning]
    #[arg(long, allow_hyphen_values = true)]
    start: Option<String>,
    /// Last moment [default: to the end]
    #[arg(long, allow_hyphen_values = true)]
    end: Option<String>,
    #[command(flatten)]
    server: ServerFlags,
    /// Database
    #[arg(long, default_value = "default")]
    db: String,
    /// Give their room back now
    #[arg(long)]
    compact: bool,
    /// Show what would go, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Yes, even if that is everything in the database
    #[arg(long)]
    yes: bool,
}

/// Series that a dry run names.
const SHOWN_MAX: usize = 20;

/// Prints which series would go.
fn show(client: &HttpClient, parameters: &[(&str, &str)], series: u64) -> Result<ExitCode, String> {
    let found = client.api("/api/v1/series", parameters)?;
    for labels in found.as_array().into_iter().flatten().take(SHOWN_MAX) {
        say!("{labels}");
    }
    if series > SHOWN_MAX as u64 {
        say!("and {} more", series - SHOWN_MAX as u64);
    }
    say!("samples of {} would be deleted", super::counted(series, "series", "series"));
    Ok(ExitCode::SUCCESS)
}

impl DeleteFlags {
    /// Asks before all series of a database are deleted for all time.
    fn confirm(&self, client: &HttpClient, series: u64) -> Result<(), String> {
        let all = client.series(&[("db", &self.db), ("match[]", r#"{__name__!=""}"#)])?;
        if series < all || all == 0 {
            return Ok(());
        }
        let what = format!("this deletes all {} of database {:?}", super::counted(all, "series", "series"), self.db);
        if !io::stdin().is_terminal() {
            return Err(format!("{what}; say --yes if that is meant, or see --dry-run"));
        }
        eprint!("{what}. Go on? [y/N] ");
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map_err(|error| format!("cannot read the answer: {error}"))?;
        let is_yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
        if is_yes { Ok(()) } else { Err("nothing was deleted".to_owned()) }
    }
}

pub(crate) fn run(flags: &DeleteFlags) -> Result<ExitCode, String> {
    let client = flags.server.patient_client()?;
    crate::http::check_database(&client, &flags.db)?;
    let mut parameters = vec![("db", flags.db.as_str())];
    parameters.extend(flags.matches.iter().map(|selector| ("match[]", selector.as_str())));
    let [start, end] = [&flags.start, &flags.end].map(|time| time.as_deref().map(times::seconds).transpose());
    let (start, end) = (start?, end?);
    parameters.extend(start.as_deref().map(|start| ("start", start)));
    parameters.extend(end.as_deref().map(|end| ("end", end)));
    let series = client.series(&parameters)?;
    if flags.dry_run {
        return show(&client, &parameters, series);
    }
    if start.is_none() && end.is_none() && !flags.yes {
        flags.confirm(&client, series)?;
    }
    client.send_api("POST", "/api/v1/admin/tsdb/delete_series", &parameters, b"")?;
    say!("samples of {} deleted", super::counted(series, "series", "series"));
    if flags.compact {
        client.send_api("POST", "/api/v1/admin/tsdb/clean_tombstones", &[], b"")?;
    }
    Ok(ExitCode::SUCCESS)
}
