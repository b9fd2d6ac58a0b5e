//! `thalweg export`: from a running server to files.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::rrd::{self, RrdExportFlags};

/// From a running database to files
#[derive(Debug, Args)]
pub(crate) struct ExportFlags {
    #[command(subcommand)]
    form: Form,
}

#[derive(Debug, Subcommand)]
enum Form {
    /// RRDtool's files
    Rrd(RrdExportFlags),
}

pub(crate) fn run(flags: &ExportFlags) -> Result<ExitCode, String> {
    match &flags.form {
        Form::Rrd(flags) => rrd::export(flags),
    }
}
