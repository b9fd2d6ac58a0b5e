//! Places like a reference among the series of a regular database, as their values lie: epoch by epoch, for many neighbouring series at once. Sums say how far
//! each place is away, but for what rounding may have done; only the places that this leaves are read by themselves.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use model::TimeRange;
use similarity::{Best, distance_of};
use store::{EpochCell, EpochRows, EpochSlots, NamesRead};

use super::grid::Grid;
use super::read::matchers;
use super::similar::{Occurrence, Search};
use crate::execute::{Context, Run, regular_source};
use crate::plan::{Measure, Offsets};
use crate::series::regular::{NAME_TAG, RegularSource};
use crate::{Plan, QueryError, SAMPLE_BYTES};

/// Names whose validity is looked up at once.
const NAMES_AT_ONCE: usize = 4096;

/// Candidates of a block until it is looked which of them are none any more.
const CANDIDATES: usize = 1 << 14;

/// Samples that a candidate counts as.
const CANDIDATE_SAMPLES: usize = size_of::<Candidate>().div_ceil(SAMPLE_BYTES);

/// Bytes that a name takes while its values are compared.
const NAME_BYTES: u64 = 64;

/// A name that has one index in the whole range.
#[derive(Clone, Copy)]
struct Owner {
    slot: usize,
    /// The series' number, by the order of names.
    series: u64,
    /// When the index is that of the name; the end is not part of it.
    valid_ns: (i64, i64),
}

/// A place that may be among the best, with the bounds of its distance.
#[derive(Clone, Copy)]
struct Candidate {
    least: f64,
    most: f64,
    occurrence: Occurrence,
}

/// What all threads have in common.
struct Scan<'a, 'b> {
    context: &'a Context<'b>,
    source: RegularSource<'a>,
    search: &'a Search<'a>,
    names: Vec<(u32, String)>,
    blocks: Vec<(u32, Vec<Owner>)>,
    /// The number of the reference's series, if it is one of them.
    own: Option<u64>,
    chosen: Mutex<Chosen>,
}

/// The blocks that were compared, taken together.
struct Chosen {
    /// The best places by the most that they can be away.
    best: Best<Occurrence>,
    /// Those that may be among the best.
    candidates: Vec<Candidate>,
    /// So many of them are charged to the budget.
    charged: usize,
}

/// The candidates of a block, by series those that are certainly the best.
struct Near {
    list: Vec<Candidate>,
    of_series: HashMap<u64, Best<u32>>,
    /// So many are charged to the budget; of more it is looked first which are none.
    charged: usize,
}

/// Searches the series of a plan; returns false if they are not such that it can.
pub(super) fn scan(run: &mut Run<'_>, input: &Plan, search: &Search<'_>) -> Result<bool, QueryError> {
    let (Plan::Scan(plan), Some(source)) = (input, regular_source(run.context)) else { return Ok(false) };
    let Some(definition) = run.context.store.regular(run.context.database) else { return Ok(false) };
    let Grid { start_ns, step_ns, .. } = search.grid;
    let is_as_it_lies = plan.table.is_none()
        && plan.tokens.is_empty()
        && definition.interval_ns == step_ns
        && definition.missing.is_none()
        && definition.time_of(definition.epoch_at(start_ns)) == start_ns;
    let is_summed = search.similar.offsets == Offsets::Aligned
        && !matches!(search.similar.measure, Measure::Dtw { .. })
        && !(search.pattern.is_normalised() && search.pattern.is_constant());
    if !is_as_it_lies || !is_summed {
        return Ok(false);
    }
    let context = run.context;
    let names = source.names(&matchers(plan), &plan.range, context.budget)?;
    context.budget.hold_bytes(names.len() as u64 * NAME_BYTES)?;
    let (blocks, moved) = owners(context, &names, &plan.range)?;
    let own = search.own_label(NAME_TAG).filter(|name| search.is_own_series(&source.labels(name, true)));
    let own = own.and_then(|own| names.iter().position(|(_, name)| name == own)).map(|place| place as u64);
    let chosen = Mutex::new(Chosen { best: Best::new(search.similar.count), candidates: Vec::new(), charged: 0 });
    let scan = Scan { context, source, search, names, blocks, own, chosen };
    context.helpers.run(scan.blocks.len(), context.budget, &|place| {
        let Some((block, owners)) = scan.blocks.get(place) else { return Ok(0) };
        scan.block(*block, owners)
    })?;
    let (candidates, charged) = {
        let mut chosen = scan.lock();
        (std::mem::take(&mut chosen.candidates), chosen.charged)
    };
    scan.verify(candidates)?;
    context.budget.give_back(charged * CANDIDATE_SAMPLES);
    for series in moved {
        scan.whole_series(series)?;
    }
    run.reads.groups += scan.names.len() as u64;
    run.reads.samples += (scan.names.len() * search.grid.bins) as u64;
    Ok(true)
}

/// Names by the blocks in which they have their values, and those that had several indexes in the range.
type Owners = (Vec<(u32, Vec<Owner>)>, Vec<u64>);

fn owners(context: &Context<'_>, names: &[(u32, String)], range: &TimeRange) -> Result<Owners, QueryError> {
    let mut blocks: std::collections::BTreeMap<u32, Vec<Owner>> = std::collections::BTreeMap::new();
    let mut moved = Vec::new();
    for (chunk, names) in names.chunks(NAMES_AT_ONCE).enumerate() {
        context.budget.check()?;
        let numbers: Vec<u32> = names.iter().map(|(number, _)| *number).collect();
        let mut validity = context.store.name_validity(context.database, &numbers)?;
        validity
            .retain(|valid| valid.from_ns <= range.end_ns && valid.to_ns.is_none_or(|to_ns| to_ns > range.start_ns));
        let mut validity = validity.into_iter().peekable();
        for ((_, name), series) in names.iter().zip((chunk * NAMES_AT_ONCE) as u64..) {
            let Some(first) = validity.next_if(|valid| valid.name == *name) else { continue };
            let mut is_moved = false;
            while validity.next_if(|valid| valid.name == *name).is_some() {
                is_moved = true;
            }
            if is_moved {
                moved.push(series);
                continue;
            }
            let (block, slot) = (first.index as usize / EpochSlots::COUNT, first.index as usize % EpochSlots::COUNT);
            let valid_ns = (first.from_ns, first.to_ns.unwrap_or(i64::MAX));
            blocks.entry(block as u32).or_default().push(Owner { slot, series, valid_ns });
        }
    }
    Ok((blocks.into_iter().collect(), moved))
}

impl Scan<'_, '_> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Chosen> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a stretch lies; its end is part of it.
    fn range_of(&self, bin: usize) -> TimeRange {
        let grid = &self.search.grid;
        TimeRange::new(grid.time_of(bin), grid.time_of(bin + self.search.width()) - 1)
    }

    /// Compares the series of a block; returns the values that were read.
    fn block(&self, block: u32, owners: &[Owner]) -> Result<u64, QueryError> {
        let (search, width) = (self.search, self.search.width());
        let per_series = search.similar.per_series.min(search.similar.count);
        let mut sums = Sums::new();
        self.context.budget.take(CANDIDATES * CANDIDATE_SAMPLES)?;
        let mut near = Near { list: Vec::new(), of_series: HashMap::new(), charged: CANDIDATES };
        let (mut samples, mut own_limit) = (0, f64::INFINITY);
        for bin in (0..=search.grid.bins - width).step_by(width) {
            self.context.budget.check()?;
            sums.begin();
            let range = self.range_of(bin);
            self.context.store.scan_epochs(self.context.database, block, &range, &mut |time_ns, slots| {
                let step = ((time_ns - range.start_ns) / search.grid.step_ns) as usize;
                if let Some(value) = search.pattern.values().get(step) {
                    sums.add(*value, slots, search.pattern.is_normalised());
                    samples += EpochSlots::COUNT as u64;
                }
            })?;
            let limit = search.limit().min(self.lock().best.limit()).min(own_limit);
            for owner in owners {
                let is_valid = owner.valid_ns.0 <= range.start_ns && owner.valid_ns.1 > range.end_ns;
                if !is_valid || Some(owner.series) == self.own && search.is_own_bin(bin) {
                    continue;
                }
                let Some((least, most)) = self.bounds(&sums, owner.slot) else { continue };
                if least <= limit {
                    let of_series = &mut near.of_series;
                    of_series.entry(owner.series).or_insert_with(|| Best::new(per_series)).offer(most, bin as u32);
                    near.list.push(Candidate { least, most, occurrence: (owner.series, bin as u32) });
                }
            }
            if near.list.len() + owners.len() > near.charged {
                own_limit = near.thin(search.similar.count);
                let wanted = 2 * near.list.len() + owners.len();
                self.context.budget.take(wanted.saturating_sub(near.charged) * CANDIDATE_SAMPLES)?;
                near.charged = near.charged.max(wanted);
            }
        }
        self.take_near(near)?;
        Ok(samples)
    }

    /// Takes what is left of a block.
    fn take_near(&self, mut near: Near) -> Result<(), QueryError> {
        near.thin(self.search.similar.count);
        let mut found = self.lock();
        let Chosen { best, candidates, charged } = &mut *found;
        offer_all(best, &near.of_series);
        let limit = best.limit();
        candidates.retain(|candidate| candidate.least <= limit);
        near.list.retain(|candidate| candidate.least <= limit);
        let wanted = candidates.len() + near.list.len();
        if wanted > *charged {
            self.context.budget.take((wanted - *charged) * CANDIDATE_SAMPLES)?;
            *charged = wanted;
        }
        candidates.append(&mut near.list);
        self.context.budget.give_back(near.charged * CANDIDATE_SAMPLES);
        Ok(())
    }

    /// Bounds of the distance of the stretch in a slot; `None` if it has none.
    fn bounds(&self, sums: &Sums, slot: usize) -> Option<(f64, f64)> {
        let width = self.search.width();
        let count = width as f64;
        let Totals { sum, squares, product } = sums.of_slot(slot, width)?;
        let unit = 4.0 * f64::EPSILON * count;
        if !self.search.pattern.is_normalised() {
            let is_known = squares.is_finite();
            let least = if is_known { (squares * (1.0 - unit)).sqrt() } else { 0.0 };
            return Some((least, if is_known { (squares * (1.0 + unit)).sqrt() } else { f64::INFINITY }));
        }
        if squares == 0.0 {
            // All values are the first one.
            let distance = count.sqrt();
            return (self.search.similar.measure != Measure::Pearson).then_some((distance, distance));
        }
        let variance = squares / count - (sum / count).powi(2);
        // How much of the squares is left, which is how much rounding counts.
        let spread = squares / count / variance;
        let error = unit * (spread.sqrt() + spread);
        if !(variance > 0.0 && error < 0.5) {
            return Some((0.0, f64::INFINITY));
        }
        let correlation = product / count / variance.sqrt();
        let [least, most] = [correlation + error, correlation - error].map(|bound| distance_of(bound, width));
        Some((least * (1.0 - 1e-12), most * (1.0 + 1e-12)))
    }

    /// Reads the candidates that may still be among the best, and offers what they are.
    fn verify(&self, mut candidates: Vec<Candidate>) -> Result<(), QueryError> {
        let search = self.search;
        let limit = self.lock().best.limit();
        candidates.retain(|candidate| candidate.least <= limit);
        candidates.sort_by(|a, b| a.most.total_cmp(&b.most));
        let per_series = search.similar.per_series.min(search.similar.count);
        let mut of_series: HashMap<u64, Best<u32>> = HashMap::new();
        for Candidate { occurrence: (series, bin), .. } in candidates {
            self.context.budget.check()?;
            let values = self.read(series, &self.range_of(bin as usize), search.width())?;
            let distance = search.pattern.distance(&values, f64::INFINITY);
            if distance.is_finite() && !search.is_left_out(&values) {
                of_series.entry(series).or_insert_with(|| Best::new(per_series)).offer(distance, bin);
            }
        }
        self.offer(&of_series);
        Ok(())
    }

    /// Compares a series whose values lie at several indexes.
    fn whole_series(&self, series: u64) -> Result<(), QueryError> {
        let search = self.search;
        let mut best = Best::new(search.similar.per_series.min(search.similar.count));
        for bin in (0..=search.grid.bins - search.width()).step_by(search.width()) {
            self.context.budget.check()?;
            if Some(series) == self.own && search.is_own_bin(bin) {
                continue;
            }
            let values = self.read(series, &self.range_of(bin), search.width())?;
            let distance = search.pattern.distance(&values, search.limit());
            if distance.is_finite() && !search.is_left_out(&values) {
                best.offer(distance, bin as u32);
            }
        }
        self.offer(&HashMap::from([(series, best)]));
        Ok(())
    }

    fn offer(&self, of_series: &HashMap<u64, Best<u32>>) {
        for (series, best) in of_series {
            let Some((_, name)) = self.names.get(*series as usize) else { continue };
            let labels = self.source.labels(name, true);
            for found in best.matches() {
                self.search.offer(found.distance, (*series, found.key), &labels);
            }
        }
    }

    /// The values of a series in a stretch.
    fn read(&self, series: u64, range: &TimeRange, width: usize) -> Result<Vec<f64>, QueryError> {
        let Some((number, _)) = self.names.get(series as usize) else { return Ok(Vec::new()) };
        let read = NamesRead { names: &[*number], range: *range, rows: EpochRows::Values };
        let rows = self.context.store.read_names(self.context.database, &read)?;
        let grid = Grid { start_ns: range.start_ns, bins: width, ..self.search.grid };
        let values = rows.into_iter().flat_map(|rows| {
            let number = |cell: EpochCell| match cell {
                EpochCell::Value(value) => value.to_f64(),
                EpochCell::Undefined | EpochCell::Missing => f64::NAN,
            };
            rows.times_ns.into_iter().zip(rows.cells.into_iter().map(number))
        });
        Ok(grid.fill(values))
    }
}

impl Near {
    /// Leaves out candidates that others of the block keep out; beyond the returned distance none is among so many best.
    fn thin(&mut self, count: usize) -> f64 {
        let Self { list, of_series, .. } = self;
        let mut best = Best::new(count);
        offer_all(&mut best, of_series);
        let limit = best.limit();
        list.retain(|candidate| {
            let of_series = of_series.get(&candidate.occurrence.0).map_or(f64::INFINITY, Best::limit);
            candidate.least <= limit.min(of_series)
        });
        limit
    }
}

/// Offers the best places of each series.
fn offer_all(best: &mut Best<Occurrence>, of_series: &HashMap<u64, Best<u32>>) {
    for (series, of_series) in of_series {
        for found in of_series.matches() {
            best.offer(found.distance, (*series, found.key));
        }
    }
}

/// What the values of a stretch add up to. The first is taken from each, so that little is lost where they differ little.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Totals {
    sum: f64,
    squares: f64,
    /// With the pattern's values. Not needed where stretches are not normalised: then squares are those of differences to the pattern.
    product: f64,
}

/// Such sums for all slots of a block.
struct Sums {
    first: Vec<f64>,
    sum: Vec<f64>,
    squares: Vec<f64>,
    product: Vec<f64>,
    /// Epochs in which all slots had values, and in how many others each had one.
    whole: usize,
    others: Vec<u32>,
}

impl Sums {
    fn new() -> Self {
        let zeros = || vec![0.0; EpochSlots::COUNT];
        let (first, sum, squares, product) = (zeros(), zeros(), zeros(), zeros());
        Self { first, sum, squares, product, whole: 0, others: vec![0; EpochSlots::COUNT] }
    }

    fn begin(&mut self) {
        for column in [&mut self.sum, &mut self.squares, &mut self.product] {
            column.fill(0.0);
        }
        self.others.fill(0);
        self.whole = 0;
    }

    /// Adds an epoch, in which the pattern has a value.
    fn add(&mut self, of_pattern: f64, slots: EpochSlots<'_>, is_normalised: bool) {
        let is_begin = self.whole == 0 && self.others.iter().all(|count| *count == 0);
        if let Some(all) = slots.all() {
            if is_begin {
                self.first.iter_mut().zip(all).for_each(|(first, bits)| *first = slots.number(*bits));
            }
            self.whole += 1;
            match (is_normalised, slots.is_int()) {
                (true, true) => self.add_all(of_pattern, all.iter().map(|bits| *bits as f64)),
                (true, false) => self.add_all(of_pattern, all.iter().map(|bits| f64::from_bits(*bits as u64))),
                (false, _) => {
                    let squares = self.squares.iter_mut().zip(all);
                    squares.for_each(|(squares, bits)| *squares += (slots.number(*bits) - of_pattern).powi(2));
                }
            }
            return;
        }
        let whole = self.whole;
        let Self { first, sum, squares, product, others, .. } = self;
        slots.each(|slot, value| {
            let columns = (first.get_mut(slot), sum.get_mut(slot), squares.get_mut(slot), product.get_mut(slot));
            let (Some(first), Some(sum), Some(squares), Some(product)) = columns else { return };
            let Some(count) = others.get_mut(slot) else { return };
            if whole == 0 && *count == 0 {
                *first = value;
            }
            *count += 1;
            if is_normalised {
                let value = value - *first;
                *sum += value;
                *squares += value * value;
                *product += value * of_pattern;
            } else {
                *squares += (value - of_pattern).powi(2);
            }
        });
    }

    fn add_all(&mut self, of_pattern: f64, values: impl Iterator<Item = f64>) {
        let Self { first, sum, squares, product, .. } = self;
        let sums = sum.iter_mut().zip(squares).zip(product.iter_mut().zip(first));
        for (((sum, squares), (product, first)), value) in sums.zip(values) {
            let value = value - *first;
            *sum += value;
            *squares += value * value;
            *product += value * of_pattern;
        }
    }

    /// The sums of a slot that had a value in so many epochs.
    fn of_slot(&self, slot: usize, epochs: usize) -> Option<Totals> {
        let others = *self.others.get(slot)? as usize;
        if self.whole + others != epochs {
            return None;
        }
        Some(Totals { sum: *self.sum.get(slot)?, squares: *self.squares.get(slot)?, product: *self.product.get(slot)? })
    }
}
