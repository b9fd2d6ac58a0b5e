//! `thalweg cursors`.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::{Location, Where, counted};

const EXAMPLES: &str = "Examples:
  thalweg cursors                                  who reads the log of the server on 127.0.0.1:7780
  thalweg cursors --remove 'forward/mimir'         the log is held for this receiver no longer";

/// Who reads the log, and how far: what a reader has not read is held for it (--log-retained-bytes-max)
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CursorsFlags {
    #[command(flatten)]
    location: Location,
    /// Give up what the log holds for this reader. One that comes back begins with what is written then
    #[arg(long, value_name = "NAME")]
    remove: Option<String>,
}

pub(crate) fn run(flags: &CursorsFlags) -> Result<ExitCode, String> {
    let lines = match flags.location.resolve() {
        Where::Server(server) => {
            let client = server.client()?;
            if let Some(name) = &flags.remove {
                client.send_api("DELETE", "/api/v1/admin/cursors", &[("name", name)], b"")?;
            }
            let data = client.api("/api/v1/admin/cursors", &[])?;
            data["cursors"].as_array().into_iter().flatten().map(line).collect::<Vec<_>>()
        }
        Where::Folder(data) => {
            let db = flags.location.open(data)?;
            if let Some(name) = &flags.remove
                && !db.remove_log_cursor(name).map_err(|error| error.to_string())?
            {
                return Err(format!("the log has no cursor {name:?}"));
            }
            let cursors = db.log_cursors();
            let lines = cursors.iter().map(|cursor| format!("{}: read up to record {}", cursor.name, cursor.sequence));
            let lines = lines.collect();
            db.close().map_err(|error| error.to_string())?;
            lines
        }
    };
    lines.iter().for_each(|line| say!("{line}"));
    say!("{}", counted(lines.len() as u64, "cursor", "cursors"));
    Ok(ExitCode::SUCCESS)
}

fn line(cursor: &Value) -> String {
    let name = cursor["name"].as_str().unwrap_or_default();
    let behind = cursor["records_behind"].as_u64().unwrap_or_default();
    let use_text = if cursor["in_use"] == Value::Bool(false) { "; no configuration names its receiver" } else { "" };
    format!("{name}: {} behind{use_text}", counted(behind, "record", "records"))
}
