//! A database in a folder of its own, which is removed when the test is over.

use std::path::PathBuf;

use platform::Platform;
use thalweg_db::{Db, DbOptions};

/// A folder that is gone when this is.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// One that does not exist yet; no two tests at a time use a name.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An empty database on the real machine; it must be dropped before its folder.
#[allow(dead_code, reason = "some tests open with options of their own")]
pub(crate) fn open(name: &str) -> (Db, Folder) {
    let folder = Folder::new(name);
    let db = Db::open(Platform::real(), DbOptions::new(&folder.0)).unwrap();
    (db, folder)
}
