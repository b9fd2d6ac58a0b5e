//! Making durable what many connections appended: one thread waits for one sync for all that have come meanwhile.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use db::{Appended, Db};
use tokio::sync::mpsc::UnboundedSender;
use wire::data::{Exception, Reason, Refused};

/// Messages that a connection's writer sends, in order.
pub(super) enum Notice {
    /// A batch is done.
    Batch { sequence: u64, frame_bytes: u64, exception: Option<Exception> },
    /// The connection ends.
    End(Refused),
}

/// Something to be notice once the record is on disk.
pub(super) struct Applied {
    /// `None` where there is nothing to wait for.
    pub(super) record: Option<Appended>,
    pub(super) notice: Notice,
    /// The connection's writer. Credits bound what waits there.
    pub(super) to: UnboundedSender<Notice>,
}

/// The way to the thread; it ends when all of them are dropped.
#[derive(Clone)]
pub(super) struct Committer(Sender<Applied>);

impl Committer {
    pub(super) fn start(db: Arc<Db>) -> Self {
        let (sender, receiver) = channel();
        tokio::task::spawn_blocking(move || run(&db, &receiver));
        Self(sender)
    }

    pub(super) fn hand_over(&self, applied: Applied) {
        // The thread outlives its senders.
        let _ = self.0.send(applied);
    }
}

fn run(db: &Db, receiver: &Receiver<Applied>) {
    while let Ok(first) = receiver.recv() {
        let waiting: Vec<Applied> = std::iter::once(first).chain(receiver.try_iter()).collect();
        let newest = waiting.iter().filter_map(|applied| applied.record.as_ref()).max_by_key(|record| record.sequence);
        let failed = newest.and_then(|newest| db.commit(newest).err()).map(|error| error.to_string());
        for Applied { record, notice, to } in waiting {
            let notice = match (&failed, record) {
                (Some(error), Some(_)) => Notice::End(Refused {
                    reason: Reason::Unavailable,
                    message: error.clone(),
                    incarnation: db.incarnation(),
                }),
                _ => notice,
            };
            // A client that has gone asks again when it comes back.
            let _ = to.send(notice);
        }
    }
}
