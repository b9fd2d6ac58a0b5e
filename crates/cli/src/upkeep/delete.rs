//! `thalweg delete`.

use std::process::ExitCode;

use clap::Args;

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
    /// First moment: RFC 3339 or Unix seconds [default: from the beginning]
    #[arg(long)]
    start: Option<String>,
    /// Last moment [default: to the end]
    #[arg(long)]
    end: Option<String>,
    /// Where the database listens
    #[arg(long, env = "THALWEG_URL", default_value = super::DEFAULT_URL)]
    url: String,
    /// Database
    #[arg(long, default_value = "default")]
    db: String,
    /// Give their room back now
    #[arg(long)]
    compact: bool,
}

pub(crate) fn run(flags: &DeleteFlags) -> Result<ExitCode, String> {
    let client = crate::http::patient_client(&flags.url);
    let mut parameters = vec![("db", flags.db.as_str())];
    parameters.extend(flags.matches.iter().map(|selector| ("match[]", selector.as_str())));
    parameters.extend(flags.start.as_deref().map(|start| ("start", start)));
    parameters.extend(flags.end.as_deref().map(|end| ("end", end)));
    let series = client.series(&parameters)?;
    client.send_api("POST", "/api/v1/admin/tsdb/delete_series", &parameters, b"")?;
    println!("samples of {} deleted", super::counted(series, "series", "series"));
    if flags.compact {
        client.send_api("POST", "/api/v1/admin/tsdb/clean_tombstones", &[], b"")?;
    }
    Ok(ExitCode::SUCCESS)
}
