//! `thalweg backup`.

use std::process::ExitCode;

use clap::Args;
use platform::objects::ObjectOptions;

use super::show::Bar;
use super::{Location, Where, counted, size};

const EXAMPLES: &str = "Examples:
  thalweg backup --to nightly                                    the server on 127.0.0.1:7780, to a target that it has by that name
  thalweg backup --to /mnt/backups/thalweg                       the same, to a folder of its machine
  thalweg backup --to s3://bucket/thalweg --keep 14              two weeks of daily backups
  thalweg backup --data /var/lib/thalweg --to /mnt/backups/thalweg   a folder that no server runs on
  thalweg backup --to /mnt/backups/copy.tsdb                     a whole copy in one new file, which can be served as it is

A server writes the backup itself: a folder is one of its machine, and it needs the bucket's credentials. It writes only where
its setting --backup-targets lets it. A folder that no server runs on is backed up anywhere.
Only what the target does not have yet is copied. thalweg restore brings a backup back.";

/// Back up a running server, or a folder that no server runs on
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BackupFlags {
    #[command(flatten)]
    location: Location,
    /// Where backups are kept: a name of the server's --backup-targets (a word alone), a folder, a new file that ends in .tsdb or .tdb, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`
    #[arg(long, value_name = "FOLDER-OR-URL")]
    to: String,
    /// Remove all but the newest so many backups afterwards [default: none is removed]
    #[arg(long = "keep", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    backups_max: Option<u32>,
}

pub(crate) fn run(flags: &BackupFlags) -> Result<ExitCode, String> {
    let bar = Bar::new();
    let (name, all, copied, removed) = match flags.location.resolve() {
        Where::Server(server) => {
            let to = if is_name(&flags.to) { flags.to.clone() } else { absolute(&flags.to)? };
            let keep = flags.backups_max.map(|keep| keep.to_string());
            let mut parameters = vec![("to", to.as_str())];
            parameters.extend(keep.as_deref().map(|keep| ("keep", keep)));
            let data = server.patient_client()?.send_api("POST", "/api/v1/admin/backup", &parameters, b"")?;
            let number = |name: &str| data[name].as_u64().unwrap_or(0);
            let name = data["name"].as_str().unwrap_or_default().to_owned();
            let copied = (number("files_copied"), number("bytes_copied"));
            (name, (number("files"), number("bytes")), copied, number("backups_removed"))
        }
        Where::Folder(data) => {
            let db = flags.location.open(data)?;
            let keep = flags.backups_max.map(|keep| keep as usize);
            let done = db.backup(&flags.to, &ObjectOptions::default(), keep, &mut |progress| bar.tell(progress));
            let (report, pruned) = done.map_err(|error| error.to_string())?;
            db.close().map_err(|error| error.to_string())?;
            let copied = (report.files_copied, report.bytes_copied);
            (report.name, (report.files, report.bytes), copied, pruned.map_or(0, |pruned| pruned.backups_removed))
        }
    };
    drop(bar);
    say!(
        "backup {name}: {} with {}, of which {} with {} were copied now",
        counted(all.0, "file", "files"),
        size(all.1),
        copied.0,
        size(copied.1)
    );
    if removed > 0 {
        say!("{} removed", counted(removed, "old backup was", "old backups were"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether this names a target of the server: a folder beside would be `./name`.
fn is_name(to: &str) -> bool {
    !to.contains(['/', '\\', '.'])
}

/// The server has a working folder of its own.
fn absolute(to: &str) -> Result<String, String> {
    if to.contains("://") {
        return Ok(to.to_owned());
    }
    let path = std::path::absolute(to).map_err(|error| format!("--to {to:?}: {error}"))?;
    path.to_str().map(str::to_owned).ok_or_else(|| format!("--to {to:?} is not UTF-8"))
}
