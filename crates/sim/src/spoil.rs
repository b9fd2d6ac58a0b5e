//! Files that are missing, cut or flipped while the store is closed: it refuses and names the file, or serves everything, or with the
//! loss accepted everything outside of the times that it names. Never silently less.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::TimeRange;
use store::{Store, StoreError, StoreOptions};

use crate::check::{expected, read_all};
use crate::world::{DATA, PLAIN, SHORT, World, options};

/// Which files a kind has.
fn is_of_kind(kind: u64, path: &Path) -> bool {
    let (name, ending) = (path.file_name().unwrap_or_default(), path.extension().unwrap_or_default());
    path.starts_with(DATA)
        && match kind {
            0 => name == "MANIFEST",
            1 => name == "MANIFEST.twin",
            2 => name == "NOTE",
            3 => ending == "log",
            4 => ending == "twin" && path.starts_with("data/index"),
            // Small ones of which most is directory: more often than others.
            5 | 6 => ending == "segment",
            7 => ending == "epochs",
            _ => ending == "part" && !path.starts_with("data/lost+found"),
        }
}

impl World {
    /// Closes the store, spoils one file, and opens it again; what was spoilt is put back afterwards.
    pub(crate) fn spoil(&mut self) -> Result<(), String> {
        if self.full_for > 0 {
            return Ok(());
        }
        for _ in 0..2 {
            // Nothing is written meanwhile: what is acknowledged is noted down.
            self.store()?.maintain_heads().map_err(|error| format!("before spoiling: {error}"))?;
        }
        self.store = None;
        // The files go back in time, which no reader sees of a folder.
        self.reader = None;
        let kind = self.below(9);
        let files = self.simulation.files();
        let is_candidate =
            |path: &Path| if self.is_one_file { path == Path::new(DATA) } else { is_of_kind(kind, path) };
        let candidates: Vec<&PathBuf> = files.iter().filter(|path| is_candidate(path)).collect();
        let Some(path) = candidates.get(self.below(candidates.len() as u64) as usize) else {
            return self.open();
        };
        self.report.spoilt += 1;
        let before = self.snapshot(&files)?;
        let spoilt = self.spoilt(before.get(*path).map(Vec::as_slice).unwrap_or_default());
        let told = format!("{} ({})", path.display(), spoilt.as_ref().map_or(0, Vec::len));
        self.simulation.spoil(path, spoilt).map_err(|error| format!("spoiling {told}: {error}"))?;
        self.compare_spoilt(path).map_err(|message| format!("spoilt {told}: {message}"))?;
        self.store = None;
        self.put_back(before)?;
        self.open()
    }

    /// The rest of a file; `None`: nothing is left, not even its name.
    fn spoilt(&self, content: &[u8]) -> Option<Vec<u8>> {
        let length = content.len() as u64;
        let kept = |bytes: u64| Some(content.get(..bytes as usize).unwrap_or_default().to_vec());
        match self.below(6) {
            // Without its one file a folder is a new one.
            0 if !self.is_one_file => None,
            1 => kept(length.saturating_sub(1)),
            2 => kept(self.below(length + 1)),
            3 => kept(0),
            _ => {
                let mut flipped = content.to_vec();
                if let Some(byte) = flipped.get_mut(self.below(length) as usize) {
                    *byte ^= 1 << self.below(8);
                }
                Some(flipped)
            }
        }
    }

    fn snapshot(&self, files: &[PathBuf]) -> Result<BTreeMap<PathBuf, Vec<u8>>, String> {
        let of_folder = files.iter().filter(|path| path.starts_with(DATA));
        let read = |path: &PathBuf| Ok((path.clone(), self.simulation.read(path).map_err(|error| error.to_string())?));
        of_folder.map(read).collect()
    }

    fn put_back(&self, before: BTreeMap<PathBuf, Vec<u8>>) -> Result<(), String> {
        let files = self.simulation.files();
        for path in files.iter().filter(|path| path.starts_with(DATA) && !before.contains_key(*path)) {
            self.simulation.spoil(path, None).map_err(|error| error.to_string())?;
        }
        before.into_iter().for_each(|(path, content)| self.simulation.put_back(&path, content));
        Ok(())
    }

    fn open_spoilt(&mut self, accept_loss: bool) -> Result<(), StoreError> {
        let options = StoreOptions { accept_loss, ..options(self.seed) };
        self.store = Some(Store::open(self.platform(), options)?);
        Ok(())
    }

    fn compare_spoilt(&mut self, path: &Path) -> Result<(), String> {
        let names = |text: &str| text.contains(&path.display().to_string());
        match self.open_spoilt(false) {
            Ok(()) => match self.compare_everything() {
                // Chunks are checked when they are read.
                Err(message) if !(message.contains("reading failed") && names(&message)) => Err(message),
                _ => Ok(()),
            },
            Err(error @ StoreError::Lossy { .. }) if names(&error.to_string()) => {
                self.report.refused_losses += 1;
                self.open_spoilt(true).map_err(|error| format!("accepting the loss: {error}"))?;
                self.compare_rest()
            }
            Err(error) if names(&error.to_string()) => Ok(()),
            Err(error) => Err(format!("the refusal does not name the file: {error}")),
        }
    }

    /// Compares what is outside of the losses' times.
    fn compare_rest(&self) -> Result<(), String> {
        let losses = self.store()?.health().losses();
        if losses.is_empty() {
            return Err("a loss was accepted and is not listed".to_owned());
        }
        let is_lost = |timestamp_ns: i64| losses.iter().any(|loss| loss.range.contains(timestamp_ns));
        for database in [PLAIN, SHORT] {
            let Some(oracle) = self.oracles.get(database) else { continue };
            let now_ns = self.kept_now_ns();
            let range = oracle.certain(&TimeRange::ALL, now_ns);
            let found = read_all(self.store()?, database, &range)?;
            let expected = expected(oracle, &range, now_ns);
            let mut found = found;
            let mut expected = expected;
            for content in [&mut found, &mut expected] {
                content.values_mut().for_each(|samples| samples.retain(|timestamp_ns, _| !is_lost(*timestamp_ns)));
            }
            if let Some(difference) = crate::check::difference(&found, &expected) {
                return Err(format!("{database}, outside of what is lost: {difference}"));
            }
        }
        Ok(())
    }
}
