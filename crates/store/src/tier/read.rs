//! Ranges of objects through the cache.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use platform::objects::{ObjectError, ObjectErrorKind};
use xxhash_rust::xxh3::Xxh3;

use super::Tier;
use super::blocks::{Block, BlockKey};
use super::flights::{Claim, Flight};
use super::plan::{Run, Shape};

/// Blocks of one object by number.
type Blocks = HashMap<u32, Arc<Block>>;

/// At most this share of the cache's memory is fetched ahead at once, so that it is still there when it is read.
const WARM_SHARE: u64 = 4;

/// An object that is being read.
struct Object<'a> {
    key: &'a str,
    hash: u128,
    shape: Shape,
}

impl Object<'_> {
    fn block_key(&self, number: u32) -> BlockKey {
        BlockKey { object: self.hash, number }
    }
}

/// The requests that fetch blocks of objects.
fn runs_of<'a, 'b>(missing: &'b [(Object<'a>, BTreeSet<u32>)]) -> Vec<(&'b Object<'a>, Run)> {
    let runs = |(object, numbers): &'b (Object<'a>, BTreeSet<u32>)| {
        let numbers: Vec<u32> = numbers.iter().copied().collect();
        object.shape.runs(&numbers).into_iter().map(move |run| (object, run))
    };
    missing.iter().flat_map(runs).collect()
}

impl Tier {
    /// Reads ranges of an object of a known size: all in full, in the order given, or an error. Blocks come from
    /// memory, flash or the store; what is missing is fetched in parallel, each block once for all threads.
    pub fn read(&self, key: &str, object_bytes: u64, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, ObjectError> {
        let object = self.object(key, object_bytes);
        self.check_ranges(&object, ranges)?;
        let numbers = object.shape.blocks(ranges);
        let mut blocks = Blocks::with_capacity(numbers.len());
        let mut missing = Vec::new();
        for number in numbers {
            match self.cache.get(object.block_key(number)) {
                Some(block) => drop(blocks.insert(number, block)),
                None => missing.push(number),
            }
        }
        if !missing.is_empty() {
            self.fetch_missing(&object, &missing, &mut blocks)?;
        }
        ranges.iter().map(|range| self.assemble(&object, range, &blocks)).collect()
    }

    /// Fetches what the cache lacks of ranges of several objects, all at once, so that those who read them find it there. What cannot be
    /// had is passed over: who reads it is told why. Objects are given by key and size.
    pub fn warm(&self, wanted: &[(&str, u64, Range<u64>)]) {
        let mut missing = self.lacking(wanted);
        // One request is as quick when it is made by who needs it.
        if runs_of(&missing).len() <= 1 {
            return;
        }
        let blocks = missing.iter().flat_map(|(object, numbers)| numbers.iter().map(|one| object.block_key(*one)));
        let (mut claim, others) = self.flights.claim(blocks);
        let others: HashSet<BlockKey> = others.into_iter().map(|(key, _)| key).collect();
        for (object, numbers) in &mut missing {
            numbers.retain(|number| {
                let key = object.block_key(*number);
                if others.contains(&key) {
                    return false;
                }
                // It may have landed between the look into the cache and the claim.
                let landed = self.cache.peek(key);
                let is_missing = landed.is_none();
                landed.into_iter().for_each(|block| claim.land(&key, Ok(block)));
                is_missing
            });
        }
        self.fetch_each(&runs_of(&missing), claim);
    }

    /// The blocks that the cache lacks of ranges, as many as may be fetched ahead.
    fn lacking<'a>(&self, wanted: &[(&'a str, u64, Range<u64>)]) -> Vec<(Object<'a>, BTreeSet<u32>)> {
        let mut bytes_left = self.options.read_bytes_max.min(self.options.memory_bytes / WARM_SHARE);
        let mut missing: Vec<(Object<'_>, BTreeSet<u32>)> = Vec::new();
        let mut indexes: HashMap<u128, usize> = HashMap::new();
        for (key, object_bytes, range) in wanted {
            let object = self.object(key, *object_bytes);
            let range = std::slice::from_ref(range);
            if self.check_ranges(&object, range).is_err() {
                continue;
            }
            let index = *indexes.entry(object.hash).or_insert(missing.len());
            if index == missing.len() {
                missing.push((object, BTreeSet::new()));
            }
            let Some((object, numbers)) = missing.get_mut(index) else { continue };
            for number in object.shape.blocks(range) {
                let is_bounded = bytes_left >= object.shape.block_bytes;
                if is_bounded && !numbers.contains(&number) && self.cache.get(object.block_key(number)).is_none() {
                    bytes_left -= object.shape.block_bytes;
                    numbers.insert(number);
                }
            }
        }
        missing
    }

    /// Fetches runs of blocks of several objects; others may wait for those that are claimed.
    fn fetch_each(&self, runs: &[(&Object<'_>, Run)], mut claim: Claim<'_>) {
        let requests: Vec<(&str, Range<u64>)> =
            runs.iter().map(|(object, run)| (object.key, object.shape.bytes(run))).collect();
        let contents = self.objects.read_each(&requests);
        for (((object, run), (_, range)), content) in runs.iter().zip(&requests).zip(contents) {
            let message = "the store's answer is not as long as what was asked for";
            let short = || self.error(ObjectErrorKind::Other, "read", object.key, message);
            let is_whole = |content: &Vec<u8>| content.len() as u64 == range.end - range.start;
            let content = content.and_then(|content| if is_whole(&content) { Ok(content) } else { Err(short()) });
            match content {
                Ok(content) => self.land(object, run.clone(), &content, &mut claim, |_, _| {}),
                Err(error) => run.clone().for_each(|one| claim.land(&object.block_key(one), Err(error.clone()))),
            }
        }
    }

    /// Takes the blocks of a run apart and hands them to the cache and to all who wait for them.
    fn land(
        &self,
        object: &Object<'_>,
        run: Run,
        content: &[u8],
        claim: &mut Claim<'_>,
        mut tell: impl FnMut(u32, Arc<Block>),
    ) {
        for (number, bytes) in run.zip(content.chunks(object.shape.block_bytes as usize)) {
            let block = Block::new(bytes.to_vec());
            let key = object.block_key(number);
            // In the cache first, so that a reader that comes too late for the flight finds the block.
            self.cache.insert(key, block.clone());
            claim.land(&key, Ok(block.clone()));
            tell(number, block);
        }
    }

    fn object<'a>(&self, key: &'a str, object_bytes: u64) -> Object<'a> {
        let mut hash = Xxh3::with_seed(self.options.identity);
        hash.update(&object_bytes.to_le_bytes());
        hash.update(&(key.len() as u64).to_le_bytes());
        hash.update(key.as_bytes());
        hash.update(self.location().as_bytes());
        let shape = Shape {
            object_bytes,
            block_bytes: u64::from(self.options.block_bytes),
            gap_bytes_max: self.options.gap_bytes_max,
            request_bytes_max: self.options.request_bytes_max,
        };
        Object { key, hash: hash.digest128(), shape }
    }

    fn check_ranges(&self, object: &Object<'_>, ranges: &[Range<u64>]) -> Result<(), ObjectError> {
        let size = object.shape.object_bytes;
        let wrong = |message: String| Err(self.error(ObjectErrorKind::Other, "read", object.key, message));
        if let Some(range) = ranges.iter().find(|range| range.start > range.end || range.end > size) {
            return wrong(format!("bytes {range:?} were asked for, it has {size}"));
        }
        let total = ranges.iter().fold(0_u64, |total, range| total.saturating_add(range.end - range.start));
        if total > self.options.read_bytes_max {
            return wrong(format!("{total} bytes were asked for at once, at most {} may", self.options.read_bytes_max));
        }
        if size / object.shape.block_bytes >= u64::from(u32::MAX) {
            return wrong(format!("it has {size} bytes, more than can be numbered in blocks"));
        }
        Ok(())
    }

    /// Fetches what no thread fetches yet, then waits for the others.
    fn fetch_missing(&self, object: &Object<'_>, missing: &[u32], blocks: &mut Blocks) -> Result<(), ObjectError> {
        let (mut claim, others) = self.flights.claim(missing.iter().map(|number| object.block_key(*number)));
        let others: HashMap<u32, Arc<Flight>> = others.into_iter().map(|(key, flight)| (key.number, flight)).collect();
        let mut mine = Vec::new();
        for number in missing.iter().filter(|number| !others.contains_key(number)) {
            // It may have landed between the look into the cache and the claim.
            match self.cache.peek(object.block_key(*number)) {
                Some(block) => {
                    claim.land(&object.block_key(*number), Ok(block.clone()));
                    blocks.insert(*number, block);
                }
                None => mine.push(*number),
            }
        }
        let fetched = self.fetch(object, &mine, &mut claim, blocks);
        if let Err(error) = &fetched {
            claim.fail(error);
        }
        drop(claim);
        fetched?;
        self.waited.fetch_add(others.len() as u64, Ordering::Relaxed);
        for (number, flight) in others {
            blocks.insert(number, flight.wait()?);
        }
        Ok(())
    }

    fn fetch(
        &self,
        object: &Object<'_>,
        mine: &[u32],
        claim: &mut Claim<'_>,
        blocks: &mut Blocks,
    ) -> Result<(), ObjectError> {
        if mine.is_empty() {
            return Ok(());
        }
        let runs = object.shape.runs(mine);
        let ranges: Vec<Range<u64>> = runs.iter().map(|run| object.shape.bytes(run)).collect();
        let contents = self.objects.read(object.key, &ranges)?;
        let whole = contents.len() == ranges.len()
            && contents.iter().zip(&ranges).all(|(content, range)| content.len() as u64 == range.end - range.start);
        if !whole {
            let message = "the store's answer is not as long as what was asked for";
            return Err(self.error(ObjectErrorKind::Other, "read", object.key, message));
        }
        for (run, content) in runs.into_iter().zip(contents) {
            self.land(object, run, &content, claim, |number, block| drop(blocks.insert(number, block)));
        }
        Ok(())
    }

    fn assemble(&self, object: &Object<'_>, range: &Range<u64>, blocks: &Blocks) -> Result<Vec<u8>, ObjectError> {
        let block_bytes = object.shape.block_bytes;
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end {
            let number = (at / block_bytes) as u32;
            let block_start = u64::from(number) * block_bytes;
            let end = range.end.min(block_start + block_bytes);
            let part = blocks
                .get(&number)
                .and_then(|block| block.bytes.get((at - block_start) as usize..(end - block_start) as usize));
            let message = "a block is shorter than it must be";
            bytes.extend_from_slice(
                part.ok_or_else(|| self.error(ObjectErrorKind::Other, "read", object.key, message))?,
            );
            at = end;
        }
        Ok(bytes)
    }
}
