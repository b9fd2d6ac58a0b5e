//! `thalweg compact`.

use std::process::ExitCode;

use clap::Args;

use super::show::Bar;
use super::{Location, Where, size};

const EXAMPLES: &str = "Examples:
  thalweg compact                                  the server on 127.0.0.1:7780
  thalweg compact --data /var/lib/thalweg          a folder that no server runs on";

/// Flush, merge all that is due, and give back the room of deleted rows now
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompactFlags {
    #[command(flatten)]
    location: Location,
}

pub(crate) fn run(flags: &CompactFlags) -> Result<ExitCode, String> {
    let bar = Bar::new();
    let (merges, before, after) = match flags.location.resolve() {
        Where::Server(server) => {
            let data = server.patient_client()?.send_api("POST", "/api/v1/admin/compact", &[], b"")?;
            let number = |name: &str| data[name].as_u64().unwrap_or(0);
            (number("merges"), number("bytes_before"), number("bytes_after"))
        }
        Where::Folder(data) => {
            let db = flags.location.open(data)?;
            let report = db.compact(&mut |progress| bar.tell(progress)).map_err(|error| error.to_string())?;
            db.close().map_err(|error| error.to_string())?;
            (report.merges, report.bytes.0, report.bytes.1)
        }
    };
    drop(bar);
    say!("{}; parts took {}, now {}", super::counted(merges, "merge", "merges"), size(before), size(after));
    Ok(ExitCode::SUCCESS)
}
