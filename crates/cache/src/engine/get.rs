//! Look-up, read, join.

mod read;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::State;
use super::{Cache, Shared};
use crate::flash::pool::Job;
use crate::index::{Extent, FieldNumber, SlabLocation, SlabMeta};
use crate::open_slab::{Batch, rename};
use crate::points::{Answer, FieldPoints, ValueType};
use crate::resolve::Hidden;
use crate::span::SpanSet;
use crate::{Key, Span};

pub(super) use read::{Failure, FieldRead, damaged};

/// The outcome of a lookup.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    /// All of it.
    Hit(Answer),
    /// The head or the tail of the span: that part's answer, and which part it is.
    Partial {
        /// The answer for the part.
        answer: Answer,
        /// The part: it starts with what was asked for, or ends with it.
        span: Span,
    },
    /// Nothing, or too little to be worth two requests.
    Miss,
}

/// A cached answer: for all of the requested span, its head or its tail.
#[derive(Debug, Clone, PartialEq)]
pub struct CachedPart {
    /// The answer for the part.
    pub answer: Answer,
    /// Which part it is.
    pub span: Span,
    /// The oldest stamp of what it was made of.
    pub stamp: u64,
}

impl CachedPart {
    /// The outcome of a lookup of a span.
    pub fn into_lookup(self, asked: Span) -> Lookup {
        if self.span == asked {
            Lookup::Hit(self.answer)
        } else {
            Lookup::Partial { answer: self.answer, span: self.span }
        }
    }
}

/// How a request is to be answered.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Whose answer.
    pub key: Key,
    /// For when.
    pub span: Span,
    /// Gives a part only if the whole is at least so many bytes, as estimated; `None` for the cache's setting.
    pub partial_bytes_min: Option<usize>,
    /// Says of a stretch and its stamp whether what is cached still holds. It is called under the cache's lock.
    pub holds: &'a dyn Fn(Span, u64) -> bool,
}

/// A part of a span and what of it is there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Choice {
    Hit,
    Part(Span),
    Miss,
}

/// Decides what to give: all, the head or the tail, or nothing. Extents are sorted, do not overlap, and share instants with the span.
pub(super) fn choose(extents: &[Extent], span: Span, partial_bytes_min: usize) -> Choice {
    let mut covered = SpanSet::default();
    let mut found_bytes = 0.0;
    for extent in extents {
        let part = extent.span.intersect(&span);
        covered.insert(part);
        found_bytes += f64::from(extent.density) * part.length();
    }
    let head = covered.spans().first().filter(|first| first.start == span.start);
    let tail = covered.spans().last().filter(|last| last.end == span.end);
    if head.is_some_and(|head| head.end == span.end) {
        return Choice::Hit;
    }
    let found_length: f64 = covered.spans().iter().map(Span::length).sum();
    let estimate = if found_length > 0.0 { found_bytes / found_length * span.length() } else { 0.0 };
    let longer = head.into_iter().chain(tail).max_by(|a, b| a.length().total_cmp(&b.length()));
    match longer {
        Some(part) if estimate >= partial_bytes_min as f64 => Choice::Part(*part),
        _ => Choice::Miss,
    }
}

/// The part of a span to give, and the oldest stamp in it.
pub(crate) fn part_of(held: &[Extent], span: Span, partial_bytes_min: usize) -> Option<(Span, u64)> {
    let part = match choose(held, span, partial_bytes_min) {
        _ if span.is_empty() => return None,
        Choice::Hit => span,
        Choice::Part(part) => part,
        Choice::Miss => return None,
    };
    let inside = held.iter().filter(|extent| extent.span.overlaps(&part));
    Some((part, inside.map(|extent| extent.stamp).min().unwrap_or(0)))
}

/// Where points of a field may be.
pub(super) struct Sources {
    pub(super) key: Key,
    pub(super) span: Span,
    pub(super) name: Arc<str>,
    pub(super) value_type: ValueType,
    pub(super) batches: Vec<Arc<Batch>>,
    pub(super) slabs: Vec<SlabSource>,
    pub(super) hidden: Vec<Hidden>,
}

/// A slab to read.
pub(super) struct SlabSource {
    pub(super) slot: u32,
    pub(super) meta: SlabMeta,
    pub(super) location: SlabLocation,
}

impl Cache {
    /// Looks the answer to a query up for a span.
    pub fn get(&self, key: Key, span: Span) -> Lookup {
        self.get_with(&Request { key, span, partial_bytes_min: None, holds: &|_, _| true })
    }

    /// The stretches of a key that share an instant with a span, each with its stamp, by time; nothing is read.
    pub fn extents(&self, key: Key, span: Span) -> Vec<(Span, u64)> {
        let state = self.shared.state.lock();
        let within = state.keys.get(&key).into_iter().flat_map(|entry| entry.extents.within(span));
        within.map(|extent| (extent.span, extent.stamp)).collect()
    }

    /// The largest stamp of anything that is cached.
    pub fn stamp_max(&self) -> Option<u64> {
        let state = self.shared.state.lock();
        state.keys.values().flat_map(|entry| entry.extents.iter()).map(|extent| extent.stamp).max()
    }

    /// As [`Cache::get`], with options.
    pub fn get_with(&self, request: &Request<'_>) -> Lookup {
        self.find(request).map_or(Lookup::Miss, |found| found.into_lookup(request.span))
    }

    /// As [`Cache::get_with`], with the stamp of the answer.
    pub fn find(&self, request: &Request<'_>) -> Option<CachedPart> {
        let shared = &self.shared;
        shared.counters.add(&shared.counters.gets, 1);
        // A slab may go between look-up and read: the second look-up knows.
        for attempt in 0..2 {
            let Some((span, stamp, sources)) = shared.look_up(request) else {
                break;
            };
            match self.read(sources) {
                Ok(answer) => {
                    shared.counters.count_hit(span == request.span, answer.size_bytes());
                    return Some(CachedPart { answer, span, stamp });
                }
                Err(failures) => shared.note_failures(request.key, &failures, attempt > 0),
            }
        }
        shared.counters.add(&shared.counters.misses, 1);
        None
    }

    fn read(&self, sources: Vec<Sources>) -> Result<Answer, Vec<Failure>> {
        let job = |source: Sources| {
            let shared = self.shared.clone();
            let waits = shared.waits_for_file(&source);
            let run: Box<dyn FnOnce() -> Result<FieldRead, Failure> + Send> =
                Box::new(move || shared.read_field(&source));
            Job { waits, run }
        };
        let mut answer = Answer::default();
        let mut failures = Vec::new();
        for result in self.pool.run(sources.into_iter().map(job).collect()) {
            match result {
                Some(Ok((field, series))) => join(&mut answer, field, &series),
                Some(Err(failure)) => failures.push(failure),
                None => failures.push(Failure::default()),
            }
        }
        if failures.is_empty() { Ok(answer) } else { Err(failures) }
    }
}

/// Adds a field to an answer; the one that stands for no field is left out.
fn join(answer: &mut Answer, mut field: FieldPoints, series: &[Arc<str>]) {
    if field.name.is_empty() && field.points.is_empty() {
        return;
    }
    let renamed = rename(&mut answer.series, series);
    field.points.rename_series(&renamed);
    answer.fields.push(field);
}

impl Shared {
    /// What part of a span is cached and worth giving, its stamp, and where it is.
    fn look_up(&self, request: &Request<'_>) -> Option<(Span, u64, Vec<Sources>)> {
        let mut state = self.state.lock();
        let within = state.keys.get(&request.key).into_iter().flat_map(|entry| entry.extents.within(request.span));
        let held: Vec<Extent> = within.filter(|extent| (request.holds)(extent.span, extent.stamp)).collect();
        let partial_bytes_min = request.partial_bytes_min.unwrap_or(self.options.partial_bytes_min);
        let Some((part, stamp)) = part_of(&held, request.span, partial_bytes_min) else {
            state.note_miss(&request.key, request.span);
            return None;
        };
        Some((part, stamp, state.sources(request.key, part)))
    }

    /// Takes what could not be read out of the index. The first time only slabs that are known to be bad.
    fn note_failures(&self, key: Key, failures: &[Failure], is_last: bool) {
        for failure in failures {
            for (slot, serial) in &failure.bad {
                let meta = {
                    let mut state = self.state.lock();
                    let is_there = state.meta(*slot).is_some_and(|meta| meta.serial == *serial);
                    if is_there { state.uninstall(*slot) } else { None }
                };
                if let Some(meta) = meta {
                    self.counters.add(&self.counters.slabs_bad, 1);
                    self.forget_slab(*slot, &meta);
                    self.state.lock().release(*slot);
                }
            }
            if is_last {
                let mut state = self.state.lock();
                if let Some(entry) = state.keys.get_mut(&key) {
                    failure.missing.spans().iter().for_each(|span| entry.extents.remove(*span));
                }
                state.drop_if_empty(&key);
            }
        }
    }
}

impl State {
    fn sources(&mut self, key: Key, span: Span) -> Vec<Sources> {
        let Some(entry) = self.keys.get(&key) else {
            return Vec::new();
        };
        let mut by_field: BTreeMap<FieldNumber, Vec<SlabSource>> = BTreeMap::new();
        for location in entry.locations.iter() {
            let slot = location.slab;
            let Some(meta) = self.meta(slot).filter(|meta| location.span(meta.span).overlaps(&span)) else { continue };
            by_field.entry(meta.field).or_default().push(SlabSource { slot, meta: *meta, location });
        }
        let touched: Vec<u32> = by_field.values().flatten().map(|slab| slab.meta.serial as u32).collect();
        let fields: Vec<FieldNumber> = entry.fields.to_vec();
        touched.into_iter().for_each(|number| self.policy.touch(number));
        // What was set last comes first: it counts wherever it is, so that the others need not be read once nothing is missing.
        by_field.values_mut().for_each(|slabs| slabs.sort_by_key(|slab| Reverse(slab.meta.sequence_max)));
        let source = |number: FieldNumber| {
            let field = self.fields.get(number as usize)?;
            Some(Sources {
                key,
                span,
                name: field.name.clone(),
                value_type: field.value_type,
                batches: self.batches(number, &key, span),
                slabs: by_field.remove(&number).unwrap_or_default(),
                hidden: self.hidden(&key),
            })
        };
        fields.into_iter().filter_map(source).collect()
    }

    fn batches(&self, number: FieldNumber, key: &Key, span: Span) -> Vec<Arc<Batch>> {
        let open = self.open.get(&number).map(|bucket| bucket.batches_of(key)).unwrap_or_default();
        let sealing = self.sealing.as_ref().filter(|(field, _)| *field == number);
        let sealing = sealing.map(|(_, bucket)| bucket.batches_of(key)).unwrap_or_default();
        open.iter().chain(sealing).filter(|batch| batch.interval.span.overlaps(&span)).cloned().collect()
    }

    /// Tells the policy of a slab that is gone and might have had this.
    fn note_miss(&mut self, key: &Key, span: Span) {
        let may_have = |ghost: &&super::state::Ghost| ghost.node.span.overlaps(&span) && ghost.node.may_hold(key);
        let numbers: Vec<u32> = self.ghosts.iter().filter(may_have).map(|ghost| ghost.number).collect();
        numbers.into_iter().for_each(|number| self.policy.missed(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Extents of density 1 over a request from 0 to 100.
    fn check(extents: &[(i64, i64)], partial_bytes_min: usize, expected: Choice) {
        let extent = |(start, end): &(i64, i64)| Extent { span: Span::new(*start, *end), stamp: 0, density: 1.0 };
        let extents: Vec<Extent> = extents.iter().map(extent).collect();
        assert_eq!(choose(&extents, Span::new(0, 100), partial_bytes_min), expected, "{extents:?}");
    }

    #[test]
    fn head_tail_or_nothing() {
        let part = |start, end| Choice::Part(Span::new(start, end));
        check(&[], 0, Choice::Miss);
        check(&[(0, 100)], 1000, Choice::Hit);
        check(&[(-50, 40), (40, 200)], 1000, Choice::Hit);
        check(&[(0, 60)], 100, part(0, 60));
        check(&[(0, 60)], 101, Choice::Miss);
        check(&[(60, 100)], 100, part(60, 100));
        check(&[(20, 80)], 0, Choice::Miss);
        check(&[(0, 10), (30, 40), (60, 100)], 0, part(60, 100));
        check(&[(0, 10), (10, 50), (60, 100)], 0, part(0, 50));
    }
}
