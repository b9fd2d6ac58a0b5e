//! `thalweg restore`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use platform::objects::ObjectOptions;
use platform::{PathKind, Platform};

use super::pack::copy;
use super::show::{Bar, time};
use super::{counted, platform_of, size};

const EXAMPLES: &str = "Examples:
  thalweg restore --from /mnt/backups/thalweg --list
  thalweg restore --from /mnt/backups/thalweg --data /var/lib/thalweg-restored
  thalweg restore --from s3://bucket/thalweg --data ./restored --backup 00000007-00000000000000812345
  thalweg restore --from copy.tsdb --data /var/lib/thalweg-restored

The folder must be empty or new. Every byte is checked on its way; a damaged object is named and nothing is left behind.";

/// Write a backup into an empty folder
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreFlags {
    /// Where the backups are: a folder, a copy in one file, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`
    #[arg(long, value_name = "FOLDER-OR-URL")]
    from: String,
    /// The folder, or database in one file, to make
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
    if is_one_file(&flags.from)? {
        return restore_copy(flags);
    }
    let source = platform.objects.open(&flags.from, &ObjectOptions::default()).map_err(|error| error.to_string())?;
    let Some(data) = flags.data.as_deref().filter(|_| !flags.list) else {
        for name in db::backups(&*source).map_err(|error| error.to_string())? {
            say!("{name}");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let bar = Bar::new();
    let target = platform_of(data)?;
    let restored = db::restore(&*source, flags.backup.as_deref(), &target, data, &mut |progress| bar.tell(progress));
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

fn is_one_file(from: &str) -> Result<bool, String> {
    let kind = Platform::real().files.kind(Path::new(from));
    let kind = if from.contains("://") { None } else { kind.map_err(|error| format!("{from}: {error}"))? };
    Ok(kind == Some(PathKind::File))
}

/// A copy in one file is a database: it is copied as it is.
fn restore_copy(flags: &RestoreFlags) -> Result<ExitCode, String> {
    let Some(data) = flags.data.as_deref().filter(|_| flags.backup.is_none() && !flags.list) else {
        return Err(format!("{} is a copy in one file: it holds no other backups than itself", flags.from));
    };
    let report = copy(Path::new(&flags.from), data)?;
    say!(
        "{} with {} written to {}; `thalweg serve --data {}` serves it",
        counted(report.files, "file", "files"),
        size(report.bytes),
        data.display(),
        data.display()
    );
    Ok(ExitCode::SUCCESS)
}
