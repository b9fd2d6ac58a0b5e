//! The places most like a reference.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use model::Labels;
use similarity::{
    Best, DtwPattern, Mass, Match, Moments, Pattern, correlation_of, exclusion_zone, moments_of_windows, select,
};

use super::grid::{Grid, invalid};
use super::read::Binned;
use super::{epochs, frame};
use crate::execute::Run;
use crate::plan::{Measure, Offsets, SimilarTo};
use crate::{Budget, Cell, Frame, Plan, QueryError, SAMPLE_BYTES};

/// Pairs of values that one comparison by dynamic time warping may look at: between two comparisons a query can be stopped.
const WARPED_MAX: usize = 1 << 27;

/// Which place: the series' number, and the bin where it begins.
pub(super) type Occurrence = (u64, u32);

/// A search, shared by the threads that read for it.
pub(super) struct Search<'a> {
    pub(super) similar: &'a SimilarTo,
    pub(super) grid: Grid,
    pub(super) pattern: Pattern,
    pub(super) budget: &'a Budget,
    /// The reference's labels, and the bin of the grid where it begins.
    own: (Labels, Option<i64>),
    best: Mutex<(Best<Occurrence>, HashMap<u64, Labels>)>,
    /// The bits of the distance beyond which nothing is among the best any more.
    limit: AtomicU64,
    pool: Mutex<Vec<Tool>>,
}

/// What compares, with memory of its own.
enum Tool {
    Transform(Box<Mass>),
    Warping(Box<DtwPattern>),
}

impl Run<'_> {
    /// A frame for each series that has one of the places.
    pub(super) fn similar(
        &mut self,
        input: &Plan,
        similar: &SimilarTo,
        (grid, of_reference): (Grid, Grid),
    ) -> Result<Vec<Frame>, QueryError> {
        check(similar, &grid, &of_reference)?;
        let reference = self.one_binned(&similar.reference, &of_reference, "the reference")?;
        let Some(pattern) = Pattern::new(&reference.values, similar.is_normalised) else {
            let missing = reference.values.iter().filter(|value| !value.is_finite()).count();
            return invalid(format!(
                "{missing} of the reference's {} bins have no finite value: widen the step, or choose another range",
                reference.values.len()
            ));
        };
        if similar.measure == Measure::Pearson && pattern.is_constant() {
            return invalid("the reference is constant, which correlates with nothing".to_owned());
        }
        let search = Search {
            similar,
            grid,
            pattern,
            budget: self.context.budget,
            own: (reference.labels, grid.bin_of(&of_reference)),
            best: Mutex::new((Best::new(similar.count), HashMap::new())),
            limit: AtomicU64::new(f64::INFINITY.to_bits()),
            pool: Mutex::default(),
        };
        if !epochs::scan(self, input, &search)? {
            self.each_binned(input, &grid, &|number, binned| search.visit(number, binned))?;
        }
        search.give_back_tools();
        search.frames()
    }
}

/// What cannot be compared, or not within reason.
fn check(similar: &SimilarTo, grid: &Grid, of_reference: &Grid) -> Result<(), QueryError> {
    let width = of_reference.bins;
    if width > grid.bins {
        return invalid(format!(
            "the reference has {width} bins, and the range of the series {}: nothing in it is as long",
            grid.bins
        ));
    }
    match similar.measure {
        Measure::Pearson if !similar.is_normalised => {
            invalid("correlation is of normalised stretches: leave out that they are raw".to_owned())
        }
        Measure::Dtw { band } if width.saturating_mul(band.min(width) * 2 + 1) > WARPED_MAX => invalid(format!(
            "a band of {band} around {width} bins: one comparison would look at more than {WARPED_MAX} pairs; narrow the band or widen the step"
        )),
        _ => Ok(()),
    }
}

impl Search<'_> {
    /// The bins of a place.
    pub(super) fn width(&self) -> usize {
        self.pattern.width()
    }

    /// A distance beyond which nothing is among the best any more.
    pub(super) fn limit(&self) -> f64 {
        f64::from_bits(self.limit.load(Ordering::Relaxed))
    }

    /// Returns whether a place of a series is the reference itself, or overlaps with most of it.
    fn is_own(&self, labels: &Labels, bin: usize) -> bool {
        self.is_own_bin(bin) && self.is_own_series(labels)
    }

    /// A label of the reference's series.
    pub(super) fn own_label(&self, name: &str) -> Option<&str> {
        self.own.0.get(name)
    }

    /// Returns whether the reference's series has these labels.
    pub(super) fn is_own_series(&self, labels: &Labels) -> bool {
        self.own.0 == *labels
    }

    /// Returns whether a place is the reference if it is one of its series.
    pub(super) fn is_own_bin(&self, bin: usize) -> bool {
        let zone = exclusion_zone(self.width()) as u64;
        self.own.1.is_some_and(|own| own.abs_diff(bin as i64) <= zone)
    }

    /// Takes a place.
    pub(super) fn offer(&self, distance: f64, occurrence: Occurrence, labels: &Labels) {
        let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
        let (best, known) = &mut *best;
        if best.offer(distance, occurrence) {
            known.entry(occurrence.0).or_insert_with(|| labels.clone());
            self.limit.store(best.limit().to_bits(), Ordering::Relaxed);
            if known.len() > 2 * self.similar.count + 16 {
                let used: std::collections::HashSet<u64> = best.matches().iter().map(|found| found.key.0).collect();
                known.retain(|number, _| used.contains(number));
            }
        }
    }

    /// Compares a series.
    fn visit(&self, number: u64, binned: &Binned) -> Result<(), QueryError> {
        let count = self.similar.count.min(self.similar.per_series);
        let matches = match self.similar.offsets {
            Offsets::Aligned => self.aligned(binned, count)?,
            Offsets::Every => self.every(binned, count)?,
        };
        for found in matches {
            self.offer(found.distance, (number, found.key as u32), &binned.labels);
        }
        Ok(())
    }

    fn aligned(&self, binned: &Binned, count: usize) -> Result<Vec<Match<usize>>, QueryError> {
        let width = self.width();
        let mut best = Best::new(count);
        let mut tool = match self.similar.measure {
            Measure::Dtw { .. } => Some(self.tool()?),
            _ => None,
        };
        for (index, window) in binned.values.chunks_exact(width).enumerate() {
            let bin = index * width;
            if self.is_own(&binned.labels, bin) {
                continue;
            }
            let limit = self.limit().min(best.limit());
            let distance = match &mut tool {
                Some(Tool::Warping(pattern)) => {
                    self.budget.check()?;
                    pattern.distance(window, limit)
                }
                _ => self.pattern.distance_soon(window, limit),
            };
            if distance.is_finite() && !self.is_left_out(window) {
                best.offer(distance, bin);
            }
        }
        self.put_back(tool);
        Ok(best.matches().to_vec())
    }

    /// Constant stretches have distances, but no correlation.
    pub(super) fn is_left_out(&self, window: &[f64]) -> bool {
        self.similar.measure == Measure::Pearson && Moments::from_values(window).is_constant()
    }

    fn every(&self, binned: &Binned, count: usize) -> Result<Vec<Match<usize>>, QueryError> {
        let (width, limit) = (self.width(), self.limit());
        let zone = exclusion_zone(width);
        let check = || self.budget.check();
        let mut tool = self.tool()?;
        let mut distances = match &mut tool {
            Tool::Transform(mass) => mass.distances(&binned.values, &check)?,
            Tool::Warping(pattern) => {
                let mut distances = Vec::with_capacity(binned.values.len());
                for window in binned.values.windows(width) {
                    self.budget.check()?;
                    distances.push(pattern.distance(window, limit));
                }
                distances
            }
        };
        let is_warped = matches!(tool, Tool::Warping(_));
        self.put_back(Some(tool));
        self.leave_out(binned, &mut distances);
        if is_warped {
            return Ok(greedy(&distances, count, zone));
        }
        select(&mut distances, (&binned.values, &self.pattern), ((count, zone), limit), &check)
    }

    /// Makes the distances of places infinite that are no answer.
    fn leave_out(&self, binned: &Binned, distances: &mut [f64]) {
        if let Some(own) = self.own.1.filter(|_| self.own.0 == binned.labels) {
            let zone = exclusion_zone(self.width()) as i64;
            let first = own.saturating_sub(zone).max(0) as usize;
            let end = own.saturating_add(zone + 1).clamp(0, distances.len() as i64) as usize;
            distances.get_mut(first..end).unwrap_or_default().fill(f64::INFINITY);
        }
        if self.similar.measure == Measure::Pearson {
            let moments = moments_of_windows(&binned.values, self.width());
            let constant = distances.iter_mut().zip(moments).filter(|(_, moments)| moments.is_constant());
            constant.for_each(|(distance, _)| *distance = f64::INFINITY);
        }
    }

    /// Something that compares, and that no other thread uses meanwhile.
    fn tool(&self) -> Result<Tool, QueryError> {
        if let Some(tool) = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(tool);
        }
        self.budget.take(self.tool_samples())?;
        Ok(match self.similar.measure {
            Measure::Dtw { band } => Tool::Warping(Box::new(DtwPattern::new(self.pattern.clone(), band))),
            _ => Tool::Transform(Box::new(Mass::new(self.pattern.clone(), self.grid.bins))),
        })
    }

    /// What a tool takes out of the budget.
    fn tool_samples(&self) -> usize {
        let bytes = match self.similar.measure {
            Measure::Dtw { .. } => self.width() * 64,
            _ => Mass::memory_bytes(self.width(), self.grid.bins),
        };
        bytes / SAMPLE_BYTES
    }

    fn put_back(&self, tool: Option<Tool>) {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).extend(tool);
    }

    fn give_back_tools(&self) {
        let tools = std::mem::take(&mut *self.pool.lock().unwrap_or_else(PoisonError::into_inner));
        self.budget.give_back(tools.len() * self.tool_samples());
    }

    /// The places by series.
    fn frames(self) -> Result<Vec<Frame>, QueryError> {
        let (best, labels) = self.best.into_inner().unwrap_or_else(PoisonError::into_inner);
        let has_correlation = self.similar.is_normalised && !matches!(self.similar.measure, Measure::Dtw { .. });
        let mut of_series: HashMap<u64, Vec<(i64, Vec<Cell<'_>>)>> = HashMap::new();
        for (rank, found) in (1..).zip(best.matches()) {
            let (number, bin) = found.key;
            let mut cells = vec![Cell::I64(rank), Cell::F64(found.distance)];
            if has_correlation {
                cells.push(Cell::F64(correlation_of(found.distance, self.pattern.width())));
            }
            of_series.entry(number).or_default().push((self.grid.time_of(bin as usize), cells));
        }
        let names: &[&str] = if has_correlation { &["rank", "distance", "correlation"] } else { &["rank", "distance"] };
        let mut frames = Vec::with_capacity(of_series.len());
        for (number, rows) in of_series {
            frames.push(frame(labels.get(&number).cloned().unwrap_or_else(Labels::empty), names, rows)?);
        }
        self.budget.take(frames.iter().map(Frame::samples).sum())?;
        frames.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(frames)
    }
}

/// The nearest places, none of which begins within a zone of another.
fn greedy(distances: &[f64], count: usize, zone: usize) -> Vec<Match<usize>> {
    let mut order: Vec<Match<usize>> = distances
        .iter()
        .enumerate()
        .filter(|(_, distance)| distance.is_finite())
        .map(|(key, distance)| Match { distance: *distance, key })
        .collect();
    order.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(a.key.cmp(&b.key)));
    let mut chosen: Vec<Match<usize>> = Vec::new();
    for found in order {
        if chosen.len() >= count {
            break;
        }
        if chosen.iter().all(|known| known.key.abs_diff(found.key) > zone) {
            chosen.push(found);
        }
    }
    chosen
}
