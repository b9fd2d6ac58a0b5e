//! `thalweg restore`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use platform::Platform;
use platform::objects::ObjectOptions;

use super::show::{Bar, time};
use super::{counted, size};

const EXAMPLES: &str = "Examples:
  thalweg restore --from /mnt/backups/thalweg --list
  thalweg restore --from /mnt/backups/thalweg --data /var/lib/thalweg-restored
  thalweg restore --from s3://bucket/thalweg --data ./restored --backup 00000007-00000000000000812345

The folder must be empty or new. Every byte is checked on its way; a damaged object is named and nothing is left behind.";

/// Write a backup into an empty folder
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreFlags {
    /// Where the backups are: a folder, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`
    #[arg(long, value_name = "FOLDER-OR-URL")]
    from: String,
    /// The folder to make
    #[arg(long, value_name = "FOLDER", required_unless_present = "list")]
    data: Option<PathBuf>,
    /// Which backup [default: the newest]
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// Only list the names of backups, oldest first
    #[arg(long, conflicts_with_all = ["data", "backup"])]
    list: bool,
}

pub(crate) fn run(flags: &RestoreFlags) -> Result<ExitCode, String> {
    let platform = Platform::real();
    let source = platform.objects.open(&flags.from, &ObjectOptions::default()).map_err(|error| error.to_string())?;
    let Some(data) = flags.data.as_deref().filter(|_| !flags.list) else {
        for name in db::backups(&*source).map_err(|error| error.to_string())? {
            say!("{name}");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let bar = Bar::new();
    let restored = db::restore(&*source, flags.backup.as_deref(), &platform, data, &mut |progress| bar.tell(progress));
    drop(bar);
    let report = restored.map_err(|error| error.to_string())?;
    say!(
        "backup {} of {}: {} with {} written to {}; `thalweg serve --data {}` serves it",
        report.name,
        time(report.created_ns),
        counted(report.files, "file", "files"),
        size(report.bytes),
        data.display(),
        data.display()
    );
    Ok(ExitCode::SUCCESS)
}
