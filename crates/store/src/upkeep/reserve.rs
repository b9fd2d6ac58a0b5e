//! A little room on the disk that is set apart: on a full disk it lets the folder be opened, and deletes, retention and merges give room back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platform::{Files, OpenMode};
use tracing_mutex::parkinglot::Mutex;

use crate::{Store, StoreError, StoreOptions};

/// The room is taken again once this many times as much is free.
const FREE_FACTOR: u64 = 8;

/// The file that holds the room.
pub(crate) struct Reserve {
    files: Arc<dyn Files>,
    path: PathBuf,
    /// 0: nothing is set apart.
    bytes: usize,
    state: Mutex<State>,
}

/// True if the file is there, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Held,
    Released,
}

impl Reserve {
    pub(crate) fn new(files: Arc<dyn Files>, options: &StoreOptions) -> Self {
        let path = options.directory.join("RESERVE");
        Self { files, path, bytes: options.reserve_bytes, state: Mutex::new(State::Unknown) }
    }

    /// Gives the room free. Returns whether there was any.
    pub(crate) fn release(&self) -> bool {
        let mut state = self.state.lock();
        *state = State::Released;
        self.files.remove(&self.path).is_ok()
    }

    /// Sets room apart again where the disk has plenty of it. A disk that has not keeps going without.
    fn fill_if_free(&self, directory: &Path) {
        let mut state = self.state.lock();
        if *state == State::Held || self.bytes == 0 {
            return;
        }
        if *state == State::Unknown && self.files.open(&self.path, OpenMode::Read).is_ok() {
            *state = State::Held;
            return;
        }
        let is_roomy = |free_bytes: u64| free_bytes >= FREE_FACTOR * self.bytes as u64;
        if !self.files.disk_space(directory).is_ok_and(|space| is_roomy(space.free_bytes)) {
            return;
        }
        let zeros = vec![0; self.bytes];
        match platform::write_file(&*self.files, &self.path, &zeros) {
            Ok(()) => *state = State::Held,
            // An unfinished file would only take room.
            Err(_) => drop(self.files.remove(&self.path.with_extension("tmp"))),
        }
    }
}

/// Returns whether an error says that the disk is full.
pub(crate) fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { error, .. } if error.kind() == std::io::ErrorKind::StorageFull)
}

impl Store {
    /// Runs what gives room back in the end; where the disk is too full for it, once more with the reserve given free.
    pub(crate) fn with_reserve<T>(&self, run: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        match run() {
            Err(error) if is_full(&error) && self.upkeep.reserve.release() => run(),
            done => done,
        }
    }

    pub(crate) fn fill_reserve(&self) {
        self.upkeep.reserve.fill_if_free(&self.options.directory);
    }
}
