//! How far a job has read, and what of that waits.

use std::sync::Arc;

use super::queue::{Pending, Queue, RowPosition};
use crate::feed::{Batch, Feed, Follower, WhenOverrun};

/// How far a job has read, and what of that waits.
pub(super) struct Reading {
    feed: Arc<Feed>,
    database: String,
    pub(super) follower: Follower,
    pub(super) queue: Queue,
    /// What of a batch is not in the queue yet.
    pub(super) pending: Option<Pending>,
    /// The first row that is wanted of the next batch, where it is not the first one.
    from: Option<RowPosition>,
}

impl Reading {
    /// Reads what comes after a sequence id.
    pub(super) fn new(feed: &Arc<Feed>, database: &str, sequence: u64) -> Self {
        Self {
            feed: feed.clone(),
            database: database.to_owned(),
            follower: Follower::new(feed, database, sequence, WhenOverrun::ReadsAlone),
            queue: Queue::new(feed.db.query_memory().tenant(), sequence),
            pending: None,
            from: None,
        }
    }

    /// Notes a batch that was read.
    pub(super) fn note_batch(&mut self, batch: Arc<Batch>, after: u64) {
        self.pending = Some(Pending::new(batch, after, self.from.take()));
    }

    /// Notes that records are gone.
    pub(super) fn note_gap(&mut self) {
        self.from = None;
        self.queue.note_read(self.follower.sequence());
    }

    /// Gives back the memory of all that waits, and leaves those that read together: it is read again. What was taken out of the queue counts as
    /// delivered.
    pub(super) fn let_go(&mut self) {
        let of_pending = self.pending.take().map(|pending| pending.position());
        self.from = self.queue.let_go().or(of_pending).or(self.from);
        let sequence =
            self.from.map_or_else(|| self.follower.sequence(), |position| position.sequence.saturating_sub(1));
        self.follower = Follower::new(&self.feed, &self.database, sequence, WhenOverrun::ReadsAlone);
    }
}
