//! Answers in memory, in front of flash.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use tracing_mutex::parkinglot::Mutex;

use crate::engine::part_of;
use crate::index::Extent;
use crate::policy::{Policy, Sieve};
use crate::{Answer, Cache, CachedPart, Key, Lookup, Request, SetError, Span};

/// What a stretch of a key costs beside its points.
const EXTENT_BYTES: usize = 200;
/// Stretches of a key before those that touch are joined.
const EXTENTS_MAX: usize = 32;

/// What can be kept in memory for a span of time.
pub trait Portion: Clone {
    /// About as many bytes as it takes.
    fn memory_bytes(&self) -> usize;

    /// The portion for a part of its span.
    #[must_use]
    fn within(&self, span: Span) -> Self;

    /// Adds what there is for a later span behind this one.
    fn append(&mut self, later: &Self);
}

impl Portion for Answer {
    fn memory_bytes(&self) -> usize {
        // A point has a number of its series beside time and value.
        let names: usize = self.series.iter().map(|name| name.len() + 24).sum();
        names + self.size_bytes() + self.points() * 4
    }

    fn within(&self, span: Span) -> Self {
        Self::within(self, span)
    }

    fn append(&mut self, later: &Self) {
        Self::append(self, later);
    }
}

/// A cached portion and its span.
#[derive(Debug)]
pub struct CacheEntry<A> {
    /// For when it counts.
    pub span: Span,
    /// The stamp with which it was inserted.
    pub stamp: u64,
    /// It may have more than the span: only what is inside counts.
    pub answer: Arc<A>,
    /// All of the answer's span.
    whole: Span,
    bytes: usize,
}

impl<A> Clone for CacheEntry<A> {
    fn clone(&self) -> Self {
        Self { answer: self.answer.clone(), ..*self }
    }
}

impl<A: Portion> CacheEntry<A> {
    fn new(span: Span, stamp: u64, answer: Arc<A>) -> Self {
        let bytes = EXTENT_BYTES + answer.memory_bytes();
        Self { span, stamp, answer, whole: span, bytes }
    }

    /// What there is within a span.
    pub fn within(&self, span: Span) -> A {
        let span = self.span.intersect(&span);
        if span.contains(&self.whole) { A::clone(&self.answer) } else { self.answer.within(span) }
    }

    /// The entry for a part of its span; nothing is copied.
    fn narrowed(&self, span: Span) -> Self {
        Self { span: self.span.intersect(&span), ..self.clone() }
    }
}

#[derive(Debug)]
struct Entry<A> {
    number: u32,
    /// By time; they do not overlap.
    entries: Vec<CacheEntry<A>>,
}

impl<A: Portion> Entry<A> {
    fn bytes(&self) -> usize {
        self.entries.iter().map(|kept| kept.bytes).sum()
    }

    fn remove(&mut self, span: Span) {
        let mut left = Vec::with_capacity(self.entries.len() + 1);
        for kept in self.entries.drain(..) {
            if !kept.span.overlaps(&span) {
                left.push(kept);
                continue;
            }
            for side in [Span::new(i64::MIN, span.start), Span::new(span.end, i64::MAX)] {
                left.extend(Some(kept.narrowed(side)).filter(|part| !part.span.is_empty()));
            }
        }
        self.entries = left;
    }

    fn insert(&mut self, new: CacheEntry<A>) {
        self.remove(new.span);
        let place = self.entries.partition_point(|kept| kept.span.start < new.span.start);
        self.entries.insert(place, new);
        if self.entries.len() > EXTENTS_MAX {
            self.join();
        }
    }

    /// Joins stretches that touch; of two stamps the older one stays.
    fn join(&mut self) {
        let touches = |a: &CacheEntry<A>, b: &CacheEntry<A>| a.span.end == b.span.start;
        self.entries = self.entries.chunk_by(touches).filter_map(joined).collect();
    }
}

/// Stretches that touch, as one. What comes first is copied once, however many there are.
fn joined<A: Portion>(kept: &[CacheEntry<A>]) -> Option<CacheEntry<A>> {
    let (first, rest) = kept.split_first()?;
    let Some(last) = rest.last() else { return Some(first.clone()) };
    let mut answer = first.within(first.span);
    rest.iter().for_each(|later| answer.append(&later.within(later.span)));
    let stamp = rest.iter().map(|kept| kept.stamp).fold(first.stamp, u64::min);
    Some(CacheEntry::new(Span::new(first.span.start, last.span.end), stamp, Arc::new(answer)))
}

struct Inner<A> {
    entries: HashMap<Key, Entry<A>>,
    keys: HashMap<u32, Key>,
    policy: Sieve,
    next: u32,
    bytes: usize,
    hits: u64,
}

impl<A> Default for Inner<A> {
    fn default() -> Self {
        let (entries, keys, policy) = (HashMap::new(), HashMap::new(), Sieve::default());
        Self { entries, keys, policy, next: 0, bytes: 0, hits: 0 }
    }
}

/// Counts and sizes of what is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrontStats {
    /// Requests that found all or a part.
    pub hits: u64,
    /// Keys.
    pub keys: usize,
    /// Bytes.
    pub bytes: usize,
}

/// Answers in memory, of so many bytes at most. Which key goes when room is needed SIEVE decides.
pub struct Front<A = Answer> {
    inner: Mutex<Inner<A>>,
    bytes_max: usize,
}

impl Front<Answer> {
    /// Looks an answer up.
    pub fn find(&self, request: &Request<'_>) -> Option<CachedPart> {
        let parts = {
            let mut inner = self.inner.lock();
            let entry = inner.entries.get(&request.key)?;
            let (number, kept) = (entry.number, &entry.entries);
            let held = kept.iter().filter(|kept| kept.span.overlaps(&request.span));
            let held: Vec<&CacheEntry<Answer>> = held.filter(|kept| (request.holds)(kept.span, kept.stamp)).collect();
            let extent = |kept: &&CacheEntry<Answer>| {
                let density = (kept.bytes as f64 / kept.span.length()) as f32;
                Extent { span: kept.span, stamp: kept.stamp, density }
            };
            let extents: Vec<Extent> = held.iter().map(extent).collect();
            let (part, stamp) = part_of(&extents, request.span, request.partial_bytes_min.unwrap_or(0))?;
            let parts: Vec<CacheEntry<Answer>> =
                held.into_iter().filter(|kept| kept.span.overlaps(&part)).cloned().collect();
            inner.policy.touch(number);
            inner.hits += 1;
            (part, stamp, parts)
        };
        // Points are copied without the lock.
        let (span, stamp, parts) = parts;
        let mut answers = parts.iter().map(|kept| kept.within(span));
        let mut answer = answers.next().unwrap_or_default();
        answers.for_each(|later| answer.append(&later));
        Some(CachedPart { answer, span, stamp })
    }
}

impl<A: Portion> Front<A> {
    /// Within so many bytes; 0 for none at all.
    pub fn new(bytes_max: usize) -> Self {
        Self { inner: Mutex::default(), bytes_max }
    }

    /// Bytes that it may take.
    pub const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Everything of a key that shares an instant with a span, by time. Nothing is copied.
    pub fn entries(&self, key: Key, span: Span) -> Vec<CacheEntry<A>> {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.entries.get(&key) else { return Vec::new() };
        let number = entry.number;
        let entries: Vec<CacheEntry<A>> =
            entry.entries.iter().filter(|kept| kept.span.overlaps(&span)).cloned().collect();
        if !entries.is_empty() {
            inner.policy.touch(number);
            inner.hits += 1;
        }
        entries
    }

    /// The entries of a span, without counting as a lookup.
    pub fn peek(&self, key: Key, span: Span) -> Vec<CacheEntry<A>> {
        let inner = self.inner.lock();
        let Some(entry) = inner.entries.get(&key) else { return Vec::new() };
        entry.entries.iter().filter(|kept| kept.span.overlaps(&span)).cloned().collect()
    }

    /// Keeps an answer, in place of what is there of its span. One that is larger than everything may be is not kept. Returns what
    /// went to make room.
    pub fn insert(
        &self,
        key: Key,
        answer: impl Into<Arc<A>>,
        span: Span,
        stamp: u64,
    ) -> Vec<(Key, Vec<CacheEntry<A>>)> {
        let new = CacheEntry::new(span, stamp, answer.into());
        let mut inner = self.inner.lock();
        let mut evicted = Vec::new();
        if span.is_empty() || new.bytes > self.bytes_max {
            inner.change(key, |entry| entry.remove(span));
            return evicted;
        }
        inner.add(key);
        inner.change(key, |entry| entry.insert(new));
        while inner.bytes > self.bytes_max {
            let Some(victim) = inner.policy.evict().and_then(|number| inner.keys.get(&number).copied()) else {
                break;
            };
            inner.change(victim, |entry| evicted.push((victim, std::mem::take(&mut entry.entries))));
        }
        evicted
    }

    /// Says of stretches that [`Front::kept`] gave what of them still holds, and gives that another stamp. What was put in their place
    /// meanwhile stays as it is.
    pub fn renew(&self, key: Key, checked: &[(CacheEntry<A>, Vec<Span>)], stamp: u64) {
        self.inner.lock().change(key, |entry| {
            for (known, holds) in checked {
                let same = |kept: &CacheEntry<A>| kept.span == known.span && Arc::ptr_eq(&kept.answer, &known.answer);
                let Some(place) = entry.entries.iter().position(same) else { continue };
                let left = holds.iter().map(|span| CacheEntry { stamp, ..known.narrowed(*span) });
                entry.entries.splice(place..=place, left);
            }
        });
    }

    /// Takes everything out.
    pub fn drain(&self) -> Vec<(Key, Vec<CacheEntry<A>>)> {
        let inner = std::mem::take(&mut *self.inner.lock());
        inner.entries.into_iter().map(|(key, entry)| (key, entry.entries)).collect()
    }

    /// Forgets a key's answer for a span. Returns whether there was any of it.
    pub fn remove(&self, key: Key, span: Span) -> bool {
        let mut inner = self.inner.lock();
        let kept = inner.entries.get(&key).map(|entry| entry.entries.as_slice()).unwrap_or_default();
        let had_any = kept.iter().any(|kept| kept.span.overlaps(&span));
        inner.change(key, |entry| entry.remove(span));
        had_any
    }

    /// Gives what is there of a key within a span another stamp: it was found to hold still.
    pub fn restamp(&self, key: Key, span: Span, stamp: u64) {
        if let Some(entry) = self.inner.lock().entries.get_mut(&key) {
            entry.entries.iter_mut().filter(|kept| span.contains(&kept.span)).for_each(|kept| kept.stamp = stamp);
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.inner.lock() = Inner::default();
    }

    /// Counts and sizes.
    pub fn stats(&self) -> FrontStats {
        let inner = self.inner.lock();
        FrontStats { hits: inner.hits, keys: inner.entries.len(), bytes: inner.bytes }
    }
}

impl<A: Portion> Inner<A> {
    fn add(&mut self, key: Key) {
        if self.entries.contains_key(&key) {
            return;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.entries.insert(key, Entry { number, entries: Vec::new() });
        self.keys.insert(number, key);
        self.policy.insert(number, 0);
    }

    /// Changes a key's entry if there is one, and forgets the key if nothing is left of it.
    fn change(&mut self, key: Key, change: impl FnOnce(&mut Entry<A>)) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let before = entry.bytes();
        change(entry);
        let (after, number, is_empty) = (entry.bytes(), entry.number, entry.entries.is_empty());
        self.bytes = self.bytes + after - before;
        if is_empty {
            self.entries.remove(&key);
            self.keys.remove(&number);
            self.policy.remove(number);
        }
    }
}

impl<A> std::fmt::Debug for Front<A> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Front").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

/// Memory in front of flash, or memory alone.
#[derive(Debug)]
pub struct Layered {
    memory: Front,
    flash: Option<Arc<Cache>>,
    /// Counts deletes: what was read from flash before one must not come into memory after it.
    deletes: Mutex<u64>,
}

impl Layered {
    /// So many bytes of memory in front of a cache.
    pub fn new(memory_bytes_max: usize, flash: Option<Arc<Cache>>) -> Self {
        Self { memory: Front::new(memory_bytes_max), flash, deletes: Mutex::new(0) }
    }

    /// The cache in memory.
    pub const fn memory(&self) -> &Front {
        &self.memory
    }

    /// Looks an answer up; a part that flash had is in memory afterwards.
    pub fn find(&self, request: &Request<'_>) -> Option<CachedPart> {
        // A part is only taken from memory if flash has no more: it may have all.
        let whole = Request { partial_bytes_min: Some(usize::MAX), ..*request };
        if let Some(found) = self.memory.find(&whole) {
            return Some(found);
        }
        let before = *self.deletes.lock();
        let on_flash = self.flash.as_ref().and_then(|flash| flash.find(request));
        if let Some(found) = on_flash.as_ref().filter(|_| self.memory.bytes_max() > 0) {
            let deletes = self.deletes.lock();
            if *deletes == before {
                self.memory.insert(request.key, found.answer.clone(), found.span, found.stamp);
            }
        }
        if on_flash.as_ref().is_some_and(|found| found.span == request.span) {
            return on_flash;
        }
        let in_memory = self.memory.find(request);
        [in_memory, on_flash].into_iter().flatten().max_by(|a, b| a.span.length().total_cmp(&b.span.length()))
    }

    /// Looks an answer up, without its stamp.
    pub fn get_with(&self, request: &Request<'_>) -> Lookup {
        self.find(request).map_or(Lookup::Miss, |found| found.into_lookup(request.span))
    }

    /// Keeps an answer; see [`Cache::set_stamped`].
    pub fn set_stamped(&self, key: Key, answer: &Answer, span: Span, stamp: u64) -> Result<(), SetError> {
        match &self.flash {
            // Flash checks the answer, and keeps what it has already: memory asks for that.
            Some(flash) => flash.set_stamped(key, answer, span, stamp),
            None => {
                self.memory.insert(key, answer.clone(), span, stamp);
                Ok(())
            }
        }
    }

    /// Forgets a key's answer for a span; see [`Cache::delete`].
    pub fn delete(&self, key: Key, span: Span) -> io::Result<bool> {
        let on_flash = self.flash.as_ref().map_or(Ok(false), |flash| flash.delete(key, span));
        let mut deletes = self.deletes.lock();
        *deletes += 1;
        let in_memory = self.memory.remove(key, span);
        Ok(on_flash? || in_memory)
    }

    /// Gives what is cached of a key within a span another stamp.
    pub fn restamp(&self, key: Key, span: Span, stamp: u64) {
        self.memory.restamp(key, span, stamp);
        if let Some(flash) = &self.flash {
            flash.restamp(key, span, stamp);
        }
    }

    /// Forgets everything.
    pub fn clear(&self) -> io::Result<()> {
        let cleared = self.flash.as_ref().map_or(Ok(()), |flash| flash.clear());
        let mut deletes = self.deletes.lock();
        *deletes += 1;
        self.memory.clear();
        cleared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FieldPoints, Points, Values};

    fn answer(span: Span) -> Answer {
        let timestamps: Vec<i64> = (span.start..span.end).collect();
        let values = Values::I64(timestamps.clone());
        let points = Points { series: vec![0; timestamps.len()], timestamps, values };
        Answer { series: vec![Arc::from("")], fields: vec![FieldPoints { name: Arc::from("a"), points }] }
    }

    fn find(front: &Front, key: &str, start: i64, end: i64, oldest: u64) -> Option<(i64, i64, u64)> {
        let span = Span::new(start, end);
        let holds = |_: Span, stamp: u64| stamp >= oldest;
        let request = Request { key: Key::of_statement(key), span, partial_bytes_min: None, holds: &holds };
        let found = front.find(&request)?;
        assert_eq!(found.answer.plain(), answer(found.span).plain());
        Some((found.span.start, found.span.end, found.stamp))
    }

    #[test]
    fn stretches_are_joined_cut_and_refused() {
        let front = Front::new(1 << 20);
        let insert = |start, end, stamp| {
            let span = Span::new(start, end);
            front.insert(Key::of_statement("a"), answer(span), span, stamp);
        };
        insert(0, 50, 1);
        insert(50, 100, 2);
        assert_eq!(find(&front, "a", 10, 90, 0), Some((10, 90, 1)));
        assert_eq!(find(&front, "a", 10, 90, 2), Some((50, 90, 2)));
        assert_eq!(find(&front, "a", 10, 90, 3), None);
        insert(40, 60, 9);
        assert_eq!(find(&front, "a", 42, 58, 0), Some((42, 58, 9)));
        assert!(front.remove(Key::of_statement("a"), Span::new(20, 30)));
        assert_eq!(find(&front, "a", 10, 90, 0), Some((30, 90, 1)));
        (100..200).for_each(|start| insert(start, start + 1, 5));
        assert_eq!(find(&front, "a", 30, 200, 0), Some((30, 200, 1)));
        assert_eq!(find(&front, "b", 30, 200, 0), None);
    }

    #[test]
    fn memory_stays_within_its_bound() {
        let front = Front::new(20_000);
        let span = Span::new(0, 100);
        for number in 0..100 {
            front.insert(Key::of_statement(&number.to_string()), answer(span), span, 0);
            assert!(front.stats().bytes <= 20_000);
        }
        assert!(front.stats().keys > 3, "{:?}", front.stats());
        front.insert(Key::of_statement("large"), answer(Span::new(0, 5000)), Span::new(0, 5000), 0);
        assert_eq!(find(&front, "large", 0, 10, 0), None);
        front.clear();
        assert_eq!(front.stats(), FrontStats::default());
    }
}
