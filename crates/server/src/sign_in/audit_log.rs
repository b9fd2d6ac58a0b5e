//! The audit log: a file of JSON lines, written by a thread of its own and replaced before it grows too large.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use access::audit::{self, Actor, Event};

/// Bytes of a file before the next one is begun.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Files that are kept beside the one that is written.
const OLD_FILES: u32 = 4;

/// Lines that wait to be written; further ones are dropped and counted.
const WAITING_MAX: usize = 10_000;

/// Where events go.
pub(crate) struct AuditLog {
    sender: Option<SyncSender<String>>,
    dropped: AtomicU64,
}

impl AuditLog {
    /// To a file; nowhere if there is none.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let sender = path.and_then(|path| {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let writer =
                std::thread::Builder::new().name("audit-log".to_owned()).spawn(move || write_all(&path, &receiver));
            writer.ok().map(|_| sender)
        });
        Self { sender, dropped: AtomicU64::new(0) }
    }

    /// Writes an event down. The detail must have no secret in it.
    pub(crate) fn note(&self, now_ns: i64, event: Event, actor: Actor<'_>, detail: &str) {
        let Some(sender) = &self.sender else { return };
        let time = jiff::Timestamp::from_nanosecond(now_ns.into()).map(|time| time.to_string()).unwrap_or_default();
        if sender.try_send(audit::line(&time, event, actor, detail)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events that could not be written.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn write_all(path: &Path, lines: &Receiver<String>) {
    let mut file: Option<(File, u64)> = None;
    while let Ok(line) = lines.recv() {
        if let Err(error) = write_one(path, &mut file, &line) {
            file = None;
            crate::notice::write(&format!(
                "cannot write the audit log {}: {error}: {}",
                path.display(),
                line.trim_end()
            ));
        }
    }
}

fn write_one(path: &Path, file: &mut Option<(File, u64)>, line: &str) -> io::Result<()> {
    if file.as_ref().is_some_and(|(_, bytes)| *bytes >= FILE_BYTES_MAX) {
        *file = None;
        rotate(path)?;
    }
    let (open, bytes) = match file {
        Some(open) => open,
        None => file.insert(open_private(path)?),
    };
    open.write_all(line.as_bytes())?;
    *bytes += line.len() as u64;
    Ok(())
}

/// Opens the file for its owner alone; its size.
fn open_private(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

/// `audit.log` becomes `audit.log.1`, that `audit.log.2`, and so on; the oldest goes.
fn rotate(path: &Path) -> io::Result<()> {
    let old = |number: u32| PathBuf::from(format!("{}.{number}", path.display()));
    for number in (1..OLD_FILES).rev() {
        if old(number).exists() {
            fs::rename(old(number), old(number + 1))?;
        }
    }
    fs::rename(path, old(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_before_they_grow_too_large() {
        let folder = std::env::temp_dir().join(format!("thalweg-audit-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("audit.log");
        for round in 0..7 {
            let mut file = Some((open_private(&path).unwrap().0, if round > 0 { FILE_BYTES_MAX } else { 0 }));
            write_one(&path, &mut file, &format!("{round}\n")).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert_eq!(
            (read("audit.log").as_str(), read("audit.log.1").as_str(), read("audit.log.4").as_str()),
            ("6\n", "5\n", "2\n")
        );
        assert!(!folder.join("audit.log.5").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
