//! Points into buckets.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::state::State;
use super::{Cache, Shared};
use crate::index::{Extent, Extents, FieldNumber};
use crate::open_slab::{Batch, Bucket};
use crate::points::{Answer, FieldPoints, Points, Values};
use crate::slab::CachedInterval;
use crate::slab::header::FIELD_NAME_BYTES_MAX;
use crate::{Key, Span};

/// The field that stands for "no field" where an answer has none.
const NO_FIELD: &str = "";
/// Points of one batch: batches are cut between times, never within one.
const BATCH_POINTS_MAX: usize = 8192;
/// Stretches of a key to which a field that is new can be added; a key that has more begins anew.
const GROWN_EXTENTS_MAX: usize = 1024;
/// Fields of one key, and of the whole cache.
const FIELDS_PER_KEY_MAX: usize = 4096;
const FIELDS_MAX: usize = 1 << 20;
/// Of what may wait for the file, a bucket's points that are not packed are packed from so small a part on.
const PACKED_SHARE_MIN: usize = 64;
/// A value or a series' name in a slab of one MiB; smaller slabs take less.
const SLAB_SHARE: usize = 16;

/// Why an answer was not kept.
#[derive(Debug)]
pub enum SetError {
    /// It is not a whole answer as it should be; the message says what is wrong.
    Invalid(String),
    /// It is larger than what the cache takes.
    TooLarge(String),
    /// The file could not be written.
    Io(io::Error),
}

impl fmt::Display for SetError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message) | Self::TooLarge(message) => formatter.write_str(message),
            Self::Io(error) => write!(formatter, "the cache's file: {error}"),
        }
    }
}

impl std::error::Error for SetError {}

impl Cache {
    /// Keeps the whole answer to a query for a span. Where the key's answer is cached already, that one stays: data is written once. To
    /// change it, [`Cache::delete`] it first.
    pub fn set(&self, key: Key, answer: &Answer, span: Span) -> Result<(), SetError> {
        self.set_stamped(key, answer, span, 0)
    }

    /// As [`Cache::set`], with a number that comes back with the answer: the snapshot of the database that it was computed on, say.
    pub fn set_stamped(&self, key: Key, answer: &Answer, span: Span, stamp: u64) -> Result<(), SetError> {
        self.shared.set(key, answer, span, stamp)
    }
}

impl Shared {
    fn set(&self, key: Key, answer: &Answer, span: Span, stamp: u64) -> Result<(), SetError> {
        let size_bytes = self.check(answer, span)?;
        let mut sorted = answer.clone();
        sorted.fields.iter_mut().for_each(|field| field.points.sort());
        for field in &sorted.fields {
            check_points(field, span)?;
        }
        {
            let mut state = self.state.lock();
            if state.fields.len() + sorted.fields.len() > FIELDS_MAX {
                return Err(SetError::TooLarge(format!("a cache holds {FIELDS_MAX} fields")));
            }
            state.add(key, &sorted, span, stamp, size_bytes);
        }
        self.counters.add(&self.counters.sets, 1);
        self.counters.add(&self.counters.set_bytes, size_bytes as u64);
        self.pack_as_needed();
        for field in self.full_buckets() {
            self.seal(field, false).map_err(SetError::Io)?;
        }
        Ok(())
    }

    /// Checks an answer but for its points; its bytes.
    fn check(&self, answer: &Answer, span: Span) -> Result<usize, SetError> {
        let part_bytes_max = self.options.slab_bytes / SLAB_SHARE;
        let size_bytes = answer.size_bytes();
        if span.is_empty() {
            return Err(SetError::Invalid(format!("the span from {} to {} is empty", span.start, span.end)));
        }
        if size_bytes > self.options.answer_bytes_max {
            let max = self.options.answer_bytes_max;
            return Err(SetError::TooLarge(format!("the answer takes {size_bytes} bytes, more than {max}")));
        }
        let names = answer.fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
        if answer.fields.len() > FIELDS_PER_KEY_MAX || names > FIELD_NAME_BYTES_MAX {
            let message =
                format!("an answer has {FIELDS_PER_KEY_MAX} fields with names of {FIELD_NAME_BYTES_MAX} bytes at most");
            return Err(SetError::TooLarge(message));
        }
        let texts = answer.fields.iter().filter_map(|field| match &field.points.values {
            Values::Text(column) => column.iter().map(|text| text.len()).max(),
            _ => None,
        });
        let series = answer.series.iter().map(|name| name.len());
        if texts.chain(series).any(|len| len > part_bytes_max) {
            return Err(SetError::TooLarge(format!("a value or a series' name is longer than {part_bytes_max} bytes")));
        }
        if answer.series.iter().map(|name| name.len() + 3).sum::<usize>() > self.options.slab_bytes / 8 {
            return Err(SetError::TooLarge("the answer has too many series for one slab".to_owned()));
        }
        let distinct: BTreeSet<&Arc<str>> = answer.series.iter().collect();
        let fields: BTreeSet<_> =
            answer.fields.iter().map(|field| (&field.name, field.points.values.value_type())).collect();
        if distinct.len() < answer.series.len() || fields.len() < answer.fields.len() {
            return Err(SetError::Invalid("a series or a field is there twice".to_owned()));
        }
        let numbers = answer.fields.iter().flat_map(|field| &field.points.series);
        if numbers.max().is_some_and(|number| *number as usize >= answer.series.len()) {
            return Err(SetError::Invalid("a point has a series that is not in the list of series".to_owned()));
        }
        Ok(size_bytes)
    }

    /// Packs points as long as what waits takes more than it may and much would be spared: a slab is made of a bucket that is not full only if
    /// packing does not help.
    fn pack_as_needed(&self) {
        loop {
            let field = self.packable_bucket(&self.state.lock());
            if !field.is_some_and(|field| self.pack(field)) {
                return;
            }
        }
    }

    /// The bucket whose points are to be packed now.
    fn packable_bucket(&self, state: &State) -> Option<FieldNumber> {
        if state.open_bytes <= self.options.open_bytes_max {
            return None;
        }
        let (field, bucket) = state.open.iter().max_by_key(|(_, bucket)| bucket.packable_bytes())?;
        (bucket.packable_bytes() > self.options.open_bytes_max / PACKED_SHARE_MIN).then_some(*field)
    }

    /// Packs the points of a bucket; whether there were any.
    fn pack(&self, field: FieldNumber) -> bool {
        // So that no two pack the same, nor what is being made into slabs.
        let _sealing = self.sealing.lock();
        let packable = self.state.lock().open.get(&field).map(Bucket::packable).unwrap_or_default();
        let packed = |(key, batch): (Key, Arc<Batch>)| {
            let packed = Arc::new(batch.packed()?);
            Some((key, batch, packed))
        };
        let packed: Vec<_> = packable.into_iter().filter_map(packed).collect();
        let has_any = !packed.is_empty();
        let mut state = self.state.lock();
        let State { open, open_bytes, .. } = &mut *state;
        if let Some(bucket) = open.get_mut(&field) {
            let before = bucket.memory_bytes();
            bucket.replace(packed);
            *open_bytes = (*open_bytes + bucket.memory_bytes()).saturating_sub(before);
        }
        has_any
    }

    /// The buckets that should become slabs now.
    fn full_buckets(&self) -> Vec<FieldNumber> {
        let (state, mut full) = (self.state.lock(), Vec::new());
        let is_crowded = state.open_bytes > self.options.open_bytes_max;
        let largest = state.open.iter().max_by_key(|(_, bucket)| bucket.memory_bytes());
        full.extend(largest.filter(|_| is_crowded).map(|(field, _)| *field));
        for (field, bucket) in &state.open {
            let compressed = state.compressed.get(field).copied().unwrap_or(0.5);
            // More than one slab's worth, so that the first one is full.
            let is_full = bucket.slab_bytes(compressed) > self.options.slab_bytes * 9 / 8;
            if is_full && !full.contains(field) {
                full.push(*field);
            }
        }
        full
    }
}

fn check_points(field: &FieldPoints, span: Span) -> Result<(), SetError> {
    let (points, name) = (&field.points, &field.name);
    let len = points.len();
    if points.series.len() != len || points.values.len() != len {
        return Err(SetError::Invalid(format!("the columns of field {name:?} are not equally long")));
    }
    if points.timestamps.first().is_some_and(|first| *first < span.start)
        || points.timestamps.last().is_some_and(|last| *last >= span.end)
    {
        return Err(SetError::Invalid(format!("a point of field {name:?} is outside the span that it answers for")));
    }
    let at = |place: usize| (points.timestamps.get(place), points.series.get(place));
    if (1..len).any(|place| at(place - 1) == at(place)) {
        return Err(SetError::Invalid(format!("two points of field {name:?} have the same time and series")));
    }
    Ok(())
}

impl State {
    fn add(&mut self, key: Key, answer: &Answer, span: Span, stamp: u64, size_bytes: usize) {
        let fields = self.fields_of(key, answer);
        let missing = self.entry(key).extents.missing(span);
        let sequence = self.sequence();
        let density = (size_bytes as f64 / span.length()) as f32;
        let series: Arc<[Arc<str>]> = answer.series.clone().into();
        for span in missing.spans() {
            let interval = CachedInterval { span: *span, sequence, stamp, fields: fields.len() as u16 };
            for (number, field) in &fields {
                self.add_field(key, interval, *number, *field, &series);
            }
            self.entry(key).extents.insert(Extent { span: *span, stamp, density });
        }
    }

    /// The fields of the key, those of the answer among them, each with its points in the answer. Of one that is new, what is cached of
    /// the key has no points: answers are whole.
    fn fields_of<'a>(&mut self, key: Key, answer: &'a Answer) -> Vec<(FieldNumber, Option<&'a Points>)> {
        let mut fields: Vec<(FieldNumber, Option<&Points>)> = Vec::new();
        for field in &answer.fields {
            fields.push((self.field(&field.name, field.points.values.value_type()), Some(&field.points)));
        }
        let known = self.keys.get(&key).map(|entry| entry.fields.clone()).unwrap_or_default();
        let own: BTreeSet<FieldNumber> = fields.iter().map(|(number, _)| *number).collect();
        fields.extend(known.iter().filter(|number| !own.contains(number)).map(|number| (*number, None)));
        if fields.is_empty() {
            fields.push((self.field(&Arc::from(NO_FIELD), crate::ValueType::F64), None));
        }
        if fields.len() != known.len() {
            let numbers: Vec<FieldNumber> = fields.iter().map(|(number, _)| *number).collect();
            self.entry(key).fields = self.field_set(&numbers);
            let new: Vec<FieldNumber> = numbers.into_iter().filter(|number| !known.contains(number)).collect();
            self.add_new_fields(key, &new, fields.len());
        }
        fields
    }

    /// Says of what is cached of a key that it has no points of fields that are new to it, so that it is found again with all fields.
    fn add_new_fields(&mut self, key: Key, new: &[FieldNumber], fields: usize) {
        let cached: Vec<Extent> = self.entry(key).extents.iter().take(GROWN_EXTENTS_MAX + 1).collect();
        if cached.len() > GROWN_EXTENTS_MAX {
            self.entry(key).extents = Extents::default();
            return;
        }
        let series: Arc<[Arc<str>]> = Arc::from([]);
        for Extent { span, stamp, .. } in cached {
            let interval = CachedInterval { span, sequence: self.sequence(), stamp, fields: fields as u16 };
            new.iter().for_each(|number| self.add_field(key, interval, *number, None, &series));
        }
    }

    /// A field's points of an interval, or that there are none, in batches.
    fn add_field(
        &mut self,
        key: Key,
        interval: CachedInterval,
        number: FieldNumber,
        points: Option<&Points>,
        series: &Arc<[Arc<str>]>,
    ) {
        let Some(value_type) = self.fields.get(number as usize).map(|field| field.value_type) else {
            return;
        };
        let mut rest = points.map_or_else(|| Points::new(value_type), |points| points.within(interval.span));
        let mut span = interval.span;
        while !span.is_empty() {
            let cut = rest.timestamps.get(BATCH_POINTS_MAX).copied().filter(|cut| *cut > span.start);
            let end = cut.unwrap_or(span.end);
            let part = Span::new(span.start, end);
            span.start = end;
            let own =
                if span.is_empty() { std::mem::replace(&mut rest, Points::new(value_type)) } else { rest.within(part) };
            rest = rest.within(span);
            let batch = Batch::new(CachedInterval { span: part, ..interval }, own, series.clone());
            self.push_batch(number, key, Arc::new(batch));
        }
    }

    pub(super) fn push_batch(&mut self, number: FieldNumber, key: Key, batch: Arc<Batch>) {
        let bucket = self.open.entry(number).or_default();
        let before = bucket.memory_bytes();
        bucket.push(key, batch);
        self.open_bytes += bucket.memory_bytes() - before;
    }
}
