//! `thalweg query --data`: a data folder without a server: opened for reading only, also while a server has it, and asked as a server is, by a
//! port of this machine for as long as the command runs.

use std::path::Path;
use std::sync::Arc;

use client::http::HttpClient;
use db::{Db, DbOptions};
use platform::Platform;
use server::{Server, ServerSettings};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// A folder that can be asked until this is dropped.
pub(super) struct Folder {
    runtime: Option<Runtime>,
    url: String,
    _stop: oneshot::Sender<()>,
}

impl Folder {
    pub(super) fn open(directory: &Path) -> Result<Self, String> {
        let db = Db::open_read_only(Platform::real(), DbOptions::new(directory)).map_err(|error| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
        let mut settings = ServerSettings::new(([127, 0, 0, 1], 0).into());
        settings.host_metrics_interval_ms = None;
        let server = runtime.block_on(Server::bind(Arc::new(db), settings)).map_err(|error| error.to_string())?;
        let url = format!("http://{}", server.address());
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(server.run(async { drop(stopped.await) }));
        Ok(Self { runtime: Some(runtime), url, _stop: stop })
    }

    pub(super) fn client(&self) -> HttpClient {
        HttpClient::new(&self.url)
    }
}

impl Drop for Folder {
    /// Nothing is written, so nothing need be waited for.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
