//! Who sent what last: a batch that comes again, after a lost answer or a restart, is not applied twice. Bounded, held in
//! memory; durable by the log records of the rows themselves and, before the log is released, by a segment that holds all.
//!
//! Layout: `docs/formats/producers.md`.

use std::collections::HashMap;
use std::path::Path;

use codec::{DecodeError, Reader, varint};
use platform::Files;

use crate::flush::segment;
use crate::{Store, StoreError};

/// Stands for the number of a shard where the manifest names the segment of producers.
pub(crate) const PRODUCERS_SHARD: u32 = u32::MAX - 2;

/// Who sent a batch, and which of its batches that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// A number that no other producer has.
    pub producer: u64,
    /// Larger than that of the batch before.
    pub sequence: u64,
}

impl Sent {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        varint::push(out, self.producer);
        varint::push(out, self.sequence);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { producer: reader.varint()?, sequence: reader.varint()? })
    }
}

/// A producer's last batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastBatch {
    pub(crate) sequence: u64,
    /// Sequence id of its log record.
    pub(crate) record: u64,
}

/// The producers of a folder.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    last: HashMap<u64, LastBatch>,
    /// Smallest sequence id of a record that no segment holds.
    pub(crate) unsaved_since: Option<u64>,
    /// Records up to this sequence id are in the segment.
    saved_through: u64,
}

impl Producers {
    pub(crate) fn last(&self, producer: u64) -> Option<LastBatch> {
        self.last.get(&producer).copied()
    }

    /// Takes a batch in; those who have been silent longest are forgotten when there are too many.
    pub(crate) fn applied(&mut self, sent: Sent, record: u64, producers_max: usize) {
        self.last.insert(sent.producer, LastBatch { sequence: sent.sequence, record });
        self.unsaved_since.get_or_insert(record);
        self.forget(producers_max);
    }

    fn forget(&mut self, producers_max: usize) {
        while self.last.len() > producers_max.max(1) {
            let silent = self.last.iter().min_by_key(|(_, last)| last.record).map(|(producer, _)| *producer);
            silent.map(|producer| self.last.remove(&producer));
        }
    }

    /// Takes in a record of a log that is replayed.
    pub(crate) fn replay(&mut self, sent: Sent, record: u64, producers_max: usize) {
        if record > self.saved_through {
            self.applied(sent, record, producers_max);
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut all: Vec<(u64, LastBatch)> = self.last.iter().map(|(producer, last)| (*producer, *last)).collect();
        all.sort_unstable_by_key(|(producer, _)| *producer);
        varint::push(out, all.len() as u64);
        for (producer, last) in all {
            [producer, last.sequence, last.record].iter().for_each(|number| varint::push(out, *number));
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let saved_through = reader.varint()?;
        let count = reader.length(reader.rest().len())?;
        let mut last = HashMap::with_capacity(count);
        for _ in 0..count {
            let producer = reader.varint()?;
            last.insert(producer, LastBatch { sequence: reader.varint()?, record: reader.varint()? });
        }
        Ok(Self { last, unsaved_since: None, saved_through })
    }
}

/// Reads bytes as the payload of the segment of producers: the entry for fuzzing.
///
/// # Panics
///
/// If what it finds contradicts itself: that is what a fuzzer looks for.
pub fn fuzz(payload: &[u8]) {
    if let Ok(mut producers) = Producers::decode(&mut Reader::new(payload)) {
        let mut written = vec![0];
        producers.encode(&mut written);
        assert!(Producers::decode(&mut Reader::new(&written)).is_ok_and(|again| again.last == producers.last));
        producers.replay(Sent { producer: 1, sequence: 1 }, u64::MAX, 10);
    }
}

/// Reads the segment of producers.
pub(crate) fn load(files: &dyn Files, path: &Path) -> Result<Producers, StoreError> {
    let (bytes, start) = segment::read_entries(files, path)?;
    let mut reader = Reader::new(bytes.get(start..).unwrap_or_default());
    Producers::decode(&mut reader).map_err(|error| StoreError::corrupt(path, (start + error.offset) as u64, error.what))
}

impl Store {
    /// The sequence of a producer's last batch that was applied; `None` if the producer is not known, or was forgotten because
    /// too many others sent something since.
    pub fn last_sent(&self, producer: u64) -> Option<u64> {
        self.ingestor.producers.lock().last(producer).map(|last| last.sequence)
    }

    /// Writes all of them to a segment, in the place of the one before, if the log has records that no segment holds.
    pub(crate) fn save_producers(&self) -> Result<(), StoreError> {
        let (payload, since, through) = {
            let mut producers = self.ingestor.producers.lock();
            let Some(since) = producers.unsaved_since.take() else {
                return Ok(());
            };
            // Every record of theirs is appended under this lock.
            let through = self.log.last_sequence();
            let mut payload = Vec::new();
            varint::push(&mut payload, through);
            producers.encode(&mut payload);
            (payload, since, through)
        };
        let saved = self.replace_segment_beside(PRODUCERS_SHARD, through, &payload);
        saved.inspect_err(|_| {
            let mut producers = self.ingestor.producers.lock();
            producers.unsaved_since = Some(producers.unsaved_since.map_or(since, |later| later.min(since)));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silent_are_forgotten_and_bytes_come_back() {
        let mut producers = Producers::default();
        for (record, producer) in [7, 8, 7, 9].into_iter().enumerate() {
            producers.applied(Sent { producer, sequence: 10 + record as u64 }, record as u64, 2);
        }
        let of = |producers: &Producers| [7, 8, 9].map(|producer| producers.last(producer).map(|last| last.sequence));
        assert_eq!(of(&producers), [Some(12), None, Some(13)]);
        let mut bytes = vec![3];
        producers.encode(&mut bytes);
        let again = Producers::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!((of(&again), again.saved_through), (of(&producers), 3));
        for end in 0..bytes.len() {
            assert!(Producers::decode(&mut Reader::new(&bytes[..end])).is_err(), "{end}");
        }
    }

    #[test]
    fn records_that_the_segment_holds_are_not_taken_again() {
        let mut producers = Producers { saved_through: 5, ..Producers::default() };
        producers.replay(Sent { producer: 1, sequence: 1 }, 5, 10);
        producers.replay(Sent { producer: 2, sequence: 1 }, 6, 10);
        assert_eq!((producers.last(1), producers.last(2).is_some(), producers.unsaved_since), (None, true, Some(6)));
    }
}
