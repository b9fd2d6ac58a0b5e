//! The audit log: a file of JSON lines, written by a thread of its own and replaced before it grows too large.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use access::audit::{self, Actor, Event};
use platform::private::PrivateLog;

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
                std::thread::Builder::new().name("audit-log".to_owned()).spawn(move || write_all(path, &receiver));
            writer.ok().map(|_| sender)
        });
        Self { sender, dropped: AtomicU64::new(0) }
    }

    /// Writes an event down. The detail must have no secret in it.
    pub(crate) fn note(&self, now_ns: i64, event: Event, actor: Actor<'_>, detail: &str) {
        let Some(sender) = &self.sender else { return };
        let time = jiff::Timestamp::from_nanosecond(now_ns.into()).map(|time| time.to_string()).unwrap_or_default();
        if sender.try_send(audit::line(&time, event, actor, &crate::redact::addresses(detail))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events that could not be written.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn write_all(path: PathBuf, lines: &Receiver<String>) {
    let mut log = PrivateLog::new(path);
    while let Ok(line) = lines.recv() {
        if let Err(error) = log.append(&line) {
            let path = log.path().display();
            crate::notice::write(&format!("cannot write the audit log {path}: {error}: {}", line.trim_end()));
        }
    }
}
