//! `thalweg rebuild`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::show::{Bar, time};
use super::{counted, platform_of, size};
use crate::objects::ObjectAccess;

const EXAMPLES: &str = "Examples:
  thalweg rebuild --objects s3://bucket/thalweg --data /var/lib/thalweg
  thalweg rebuild --objects /mnt/objects --data ./again --folder 3f2a90c1d4e5b687

What was only in the lost folder is not there: the newest hours, which had not settled yet. Restore a backup if there is a newer one.
The lost folder's server, should it come back, is refused by the object store: its data and the new folder's are not mixed.";

/// Make a data folder anew from what a lost one had put into its object store
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RebuildFlags {
    /// The lost folder's object store: a folder, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`
    #[arg(long, env = "THALWEG_OBJECTS", value_name = "FOLDER-OR-URL")]
    objects: String,
    #[command(flatten)]
    access: ObjectAccess,
    /// The folder, or database in one file, to make; it must be empty or new
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// Which lost folder, if the store holds the objects of several: the first piece of their keys
    #[arg(long, value_name = "NAME")]
    folder: Option<String>,
}

pub(crate) fn run(flags: &RebuildFlags) -> Result<ExitCode, String> {
    let platform = platform_of(&flags.data)?;
    let source = platform.objects.open(&flags.objects, &flags.access.options()?).map_err(|error| error.to_string())?;
    let bar = Bar::new();
    let rebuilt =
        db::rebuild(&*source, flags.folder.as_deref(), &platform, &flags.data, &mut |progress| bar.tell(progress));
    drop(bar);
    let report = rebuilt.map_err(|error| error.to_string())?;
    say!(
        "{} with {} of data up to {}; {} of index with {} fetched; \
         `thalweg serve --data {} --objects {}` serves it",
        counted(report.parts, "part", "parts"),
        size(report.parts_bytes),
        report.newest_ns.map_or_else(|| "nothing".to_owned(), time),
        counted(report.files, "file", "files"),
        size(report.bytes),
        flags.data.display(),
        flags.objects
    );
    Ok(ExitCode::SUCCESS)
}
