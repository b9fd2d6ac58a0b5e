//! Settings of RRDtool's files and of rrdcached's protocol.

use std::path::PathBuf;

use server::{RrdSettings, ServerSettings};

use super::listeners::optional_listener;
use super::{ServeFlags, database};

impl ServeFlags {
    pub(super) fn set_rrd(&self, server: &mut ServerSettings) -> Result<(), String> {
        let texts = self.rrd_pattern.as_deref().unwrap_or_default().split(';').map(str::trim);
        let patterns = ::rrd::pattern::Patterns::parse(texts.filter(|text| !text.is_empty()));
        let directory = self.rrdcached_directory.as_deref();
        server.web.rrd = RrdSettings {
            listener: optional_listener("--rrdcached", self.rrdcached.as_deref(), 42217)?,
            socket: self.rrdcached_socket.clone(),
            database: database("--rrdcached-database", self.rrdcached_database.as_deref())?,
            patterns: patterns.map_err(|error| format!("--rrd-pattern: {error}"))?,
            directory: directory.map(|path| std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))),
        };
        Ok(())
    }
}
