//! `thalweg pack` and `thalweg unpack`: a data folder into one file, and back.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use db::{CopyReport, NewOneFile};
use platform::container::{ENDINGS, is_one_file};
use platform::{PathKind, Platform};

use super::show::Bar;
use super::{counted, platform_of, size};

const PACK_EXAMPLES: &str = "Examples:
  thalweg pack /var/lib/thalweg metrics.tsdb       then: thalweg serve --data metrics.tsdb
  thalweg pack old.tsdb new.tsdb                   copies a file, without what is free in it

The folder stays as it is; no server may be running on it. The file must not exist: it has its name once it is whole. Left out is what belongs to
the place: locks, backups inside the folder (snapshots), kept results (answers.cache), audit.log, admin-token.";

const UNPACK_EXAMPLES: &str = "Example:
  thalweg unpack metrics.tsdb /var/lib/thalweg     then: thalweg serve --data /var/lib/thalweg

The file stays as it is; no server may be running on it. The folder must be empty or new.";

/// Put a data folder into one file
#[derive(Debug, Args)]
#[command(after_help = PACK_EXAMPLES)]
pub(crate) struct PackFlags {
    /// The data folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The file to make
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Take a database in one file apart into a data folder
#[derive(Debug, Args)]
#[command(after_help = UNPACK_EXAMPLES)]
pub(crate) struct UnpackFlags {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The folder to make
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(crate) fn run(flags: &PackFlags) -> Result<ExitCode, String> {
    if !flags.file.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
        return Err(format!("{}: the name of a database in one file ends in .tsdb or .tdb", flags.file.display()));
    }
    say_done(&copy(&flags.folder, &flags.file)?, &flags.file);
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run_unpack(flags: &UnpackFlags) -> Result<ExitCode, String> {
    let files = Platform::real().files;
    let kind = |path: &Path| files.kind(path).map_err(|error| format!("{}: {error}", path.display()));
    if kind(&flags.file)? != Some(PathKind::File) {
        return Err(format!("{} is no file; a data folder needs no unpacking", flags.file.display()));
    }
    if is_one_file(&*files, &flags.folder).map_err(|error| error.to_string())? {
        return Err(format!("{} is or would be one file, not a folder", flags.folder.display()));
    }
    say_done(&copy(&flags.file, &flags.folder)?, &flags.folder);
    Ok(ExitCode::SUCCESS)
}

/// Copies a database that no server runs on from one form or place to another.
pub(super) fn copy(from: &Path, to: &Path) -> Result<CopyReport, String> {
    let (bar, real) = (Bar::new(), Platform::real());
    let source = platform_of(from)?;
    let is_one = is_one_file(&*real.files, to).map_err(|error| format!("{}: {error}", to.display()))?;
    let copied = if is_one {
        NewOneFile::begin(&real, to).and_then(|new| {
            let target = (&new.platform, new.unfinished.as_path());
            let copied = db::copy_folder((&source, from), target, &mut |progress| bar.tell(progress));
            new.finish(copied)
        })
    } else {
        db::copy_folder((&source, from), (&real, to), &mut |progress| bar.tell(progress))
    };
    copied.map_err(|error| error.to_string())
}

fn say_done(report: &CopyReport, to: &Path) {
    let left = if report.left.is_empty() { String::new() } else { format!("; left out: {}", report.left.join(", ")) };
    say!(
        "{} with {} written to {}{left}; `thalweg serve --data {}` serves it",
        counted(report.files, "file", "files"),
        size(report.bytes),
        to.display(),
        to.display()
    );
}
