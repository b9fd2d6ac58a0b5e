//! Upkeep: looking at data folders, backing them up, and telling a running server to.

mod account;
mod backfill_rules;
mod backup;
mod certificate;
mod check;
mod check_config;
mod check_discovery;
mod check_metrics;
mod check_rules;
mod check_stream_aggregation;
mod compact;
mod cursors;
mod database;
mod delete;
mod inspect;
mod losses;
mod pack;
mod rebuild;
mod repair;
mod restore;
mod show;
mod trash;

pub(crate) use account::{TokenFlags, UserFlags, run_token as token, run_user as user};
pub(crate) use backfill_rules::{RecordingFlags, run as recording};
pub(crate) use backup::{BackupFlags, run as backup};
pub(crate) use certificate::{CertificateFlags, run as certificate};
pub(crate) use check::{CheckFlags, run as check};
pub(crate) use check_rules::{TestFlags, run_tests};
pub(crate) use compact::{CompactFlags, run as compact};
pub(crate) use cursors::{CursorsFlags, run as cursors};
pub(crate) use database::{DatabaseFlags, run as database};
pub(crate) use delete::{DeleteFlags, run as delete};
pub(crate) use inspect::{InspectFlags, run as inspect};
pub(crate) use losses::{LossesFlags, run as losses};
pub(crate) use pack::{PackFlags, UnpackFlags, run as pack, run_unpack as unpack};
pub(crate) use rebuild::{RebuildFlags, run as rebuild};
pub(crate) use repair::{RepairFlags, run as repair};
pub(crate) use restore::{RestoreFlags, run as restore};
pub(crate) use trash::{TrashFlags, run as trash};

use std::path::{Path, PathBuf};

use clap::Args;
use db::{Db, DbOptions};
use platform::Platform;

use crate::http::{DEFAULT_URL, ServerFlags, TlsFlags};
use crate::objects::ObjectAccess;

/// A data folder without a server, or a running server.
#[derive(Debug, Args)]
pub(crate) struct Location {
    /// Data folder, or database in one file; no server may be running on it
    #[arg(long, value_name = "FOLDER", conflicts_with = "url")]
    data: Option<PathBuf>,
    /// Where the database listens [default: `THALWEG_URL`, else `http://127.0.0.1:7780`, if no --data is given]
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    tls: TlsFlags,
    /// With --data: the object store that holds the folder's settled parts, if there is one
    #[arg(long, env = "THALWEG_OBJECTS", value_name = "URL")]
    objects: Option<String>,
    #[command(flatten)]
    access: ObjectAccess,
}

/// One of the two.
enum Where<'a> {
    Folder(&'a Path),
    Server(ServerFlags),
}

impl Location {
    fn resolve(&self) -> Where<'_> {
        match &self.data {
            Some(data) => Where::Folder(data),
            None => {
                let named = self.url.clone().or_else(|| std::env::var("THALWEG_URL").ok());
                let url = named.unwrap_or_else(|| DEFAULT_URL.to_owned());
                Where::Server(ServerFlags { url, tls: self.tls.clone() })
            }
        }
    }

    /// Opens the folder, which must be one already.
    fn open(&self, data: &Path) -> Result<Db, String> {
        let platform = platform_of(data)?;
        // Opening would make a new folder where a name is misspelt.
        db::inspect(&platform, data).map_err(|error| error.to_string())?;
        let mut options = DbOptions::new(data);
        options.store.objects = self.objects.as_deref().map(|url| self.access.tier(url)).transpose()?;
        Db::open(platform, options).map_err(|error| match error {
            locked @ db::StoreError::Locked { .. } => {
                format!("{locked}; or name the running server with --url instead of --data")
            }
            error => error.to_string(),
        })
    }
}

/// The platform on which a path is a data folder, whether it is one or a database in one file.
fn platform_of(data: &Path) -> Result<Platform, String> {
    Platform::real().with_data(data).map_err(|error| format!("{}: {error}", data.display()))
}

/// A number of things, with the right ending.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A size as people read it.
fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}
