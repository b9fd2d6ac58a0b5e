//! A position in what is written to a database.

use std::sync::Arc;

use db::{LogCursor, LogGap, LogRead};
use platform::network::compute;

use super::hub::{HubStep, Member};
use super::{Batch, ERROR_PAUSE_MS, Feed};

/// What a follower does that was slower than what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenOverrun {
    /// It reads on by itself.
    ReadsAlone,
    /// It ends.
    Ends,
}

/// What comes next for a follower.
pub(crate) enum Step {
    /// Records, of which those up to a sequence id are not for it.
    Batch { batch: Arc<Batch>, after: u64 },
    /// Records that are not there any more.
    Gap(LogGap),
    /// Nothing more at present.
    CaughtUp,
    /// It was too slow.
    Overrun,
}

enum Source {
    /// A cursor of its own; `None` before it is opened, and while it reads.
    Own(Option<LogCursor>),
    Shared(Member),
}

/// A position in what is written to a database.
pub(crate) struct Follower {
    feed: Arc<Feed>,
    database: String,
    when_overrun: WhenOverrun,
    sequence: u64,
    source: Source,
}

impl Follower {
    /// Follows what comes after a sequence id.
    pub(crate) fn new(feed: &Arc<Feed>, database: &str, sequence: u64, when_overrun: WhenOverrun) -> Self {
        // It joins once it has caught up: one that is behind must not set the others back.
        let source = Source::Own(None);
        Self { feed: feed.clone(), database: database.to_owned(), when_overrun, sequence, source }
    }

    /// Sequence id up to which everything was read.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// What comes next, or that there is nothing at present.
    pub(crate) async fn read(&mut self) -> Step {
        loop {
            match &mut self.source {
                Source::Own(_) => {
                    if let Some(step) = self.read_alone().await {
                        return step;
                    }
                }
                Source::Shared(member) => match member.step() {
                    // The hub may be behind one that joins.
                    HubStep::Batch(batch) if batch.last_sequence <= self.sequence => {}
                    HubStep::Batch(batch) => {
                        let after = std::mem::replace(&mut self.sequence, batch.last_sequence);
                        return Step::Batch { batch, after };
                    }
                    HubStep::CaughtUp(position) => {
                        self.sequence = self.sequence.max(position);
                        return Step::CaughtUp;
                    }
                    HubStep::Overrun if self.when_overrun == WhenOverrun::Ends => return Step::Overrun,
                    HubStep::Overrun => self.source = Source::Own(None),
                },
            }
        }
    }

    /// Reads on by itself; `None` once it shares what the hub reads.
    async fn read_alone(&mut self) -> Option<Step> {
        let Source::Own(cursor) = &mut self.source else { return None };
        let mut cursor = cursor.take().unwrap_or_else(|| self.feed.db.log_reader(&self.database, self.sequence));
        let read = compute(&self.feed.network.tasks, move || (cursor.read(), cursor)).await;
        let Some((Ok(read), cursor)) = read else {
            self.feed.note_read_error();
            self.feed.network.tasks.sleep_ms(ERROR_PAUSE_MS).await;
            return None;
        };
        let after = std::mem::replace(&mut self.sequence, cursor.sequence());
        self.source = Source::Own(Some(cursor));
        match read {
            LogRead::Records(batch) => {
                let (records, last_sequence, memory) = (batch.records, batch.last_sequence, batch.memory);
                Some(Step::Batch { batch: Arc::new(Batch { records, last_sequence, memory }), after })
            }
            LogRead::Gap(gap) => Some(Step::Gap(gap)),
            LogRead::End => {
                // If its reader is ahead by now, there is more to read.
                if let Some(member) = self.feed.join(&self.database, self.sequence) {
                    self.source = Source::Shared(member);
                }
                None
            }
        }
    }

    /// Waits until there is more to read.
    pub(crate) async fn changed(&mut self) {
        if let Source::Shared(member) = &mut self.source {
            member.changed().await;
        }
    }

    /// Resolves once it is too slow.
    pub(crate) async fn overrun(&mut self) {
        loop {
            match &mut self.source {
                Source::Shared(member) if member.is_overrun() => return,
                Source::Shared(member) => member.changed().await,
                Source::Own(_) => return std::future::pending().await,
            }
        }
    }
}
