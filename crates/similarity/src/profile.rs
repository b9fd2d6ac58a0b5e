//! The matrix profile: for each window of a series the nearest other one, that does not begin next to it. Correlations are updated along the diagonals of
//! the matrix of all pairs, many diagonals abreast, and begun anew in every tile, so that rounding does not add up. Distances are computed
//! directly in the end.
//!
//! Yeh et al., "Matrix Profile I", 2016; the update is that of Zimmerman et al., "Matrix Profile XIV", 2019.

use crate::moments::moments_of_windows;
use crate::pattern::constant_distance;
use crate::{Moments, Pattern, exclusion_zone};

/// Rows of a tile, and diagonals: what an inner loop uses stays in the first cache.
const TILE_ROWS: usize = 1024;
const TILE_DIAGONALS: usize = 512;

/// Tiles whose windows' deviations differ by more than this are cut into shorter ones: rounding of the large spoils the small.
const SPREAD_MAX: f64 = 1000.0;
const SPREAD_TILE_ROWS: usize = 128;

/// The nearest other window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    /// Where it begins.
    pub index: usize,
    /// Its normalised distance.
    pub distance: f64,
}

/// The nearest neighbour of each window; `None` of those without distances, or without others.
pub type MatrixProfile = Vec<Option<Neighbour>>;

/// Two windows that are each like nothing else so much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Motif {
    /// Where the first begins, and the second.
    pub indexes: [usize; 2],
    /// Their distance.
    pub distance: f64,
}

/// The best correlation of each window so far, and with which.
#[derive(Debug, Clone)]
struct Bests {
    correlations: Vec<f64>,
    /// As wide as the numbers beside, so that both are moved alike.
    indexes: Vec<u64>,
}

impl Bests {
    fn new(count: usize) -> Self {
        Self { correlations: vec![f64::NEG_INFINITY; count], indexes: vec![0; count] }
    }

    #[expect(clippy::float_cmp, reason = "of two that are equal the first one counts, whichever tile came first")]
    fn merge_at(&mut self, first: usize, other: &Self) {
        let own = self.correlations.iter_mut().zip(&mut self.indexes).skip(first);
        for ((own, own_index), (new, new_index)) in own.zip(other.correlations.iter().zip(&other.indexes)) {
            if new > own || new == own && new_index < own_index {
                (*own, *own_index) = (*new, *new_index);
            }
        }
    }
}

/// What a tile found: neighbours of its rows, and of its columns.
#[derive(Debug)]
pub struct TileResult {
    rows: (usize, Bests),
    columns: (usize, Bests),
}

/// The work of computing a matrix profile: numbered tiles, which threads may share, and what they found.
#[derive(Debug)]
pub struct ProfileTask {
    width: usize,
    zone: usize,
    /// The series, to compute distances by.
    series: Vec<f64>,
    /// The series without its mean, missing values as 0.
    values: Vec<f64>,
    moments: Vec<Moments>,
    /// What updates are made of, by window.
    halves: Vec<f64>,
    sums: Vec<f64>,
    /// 1/(σ√m); NaN of windows that are compared otherwise or not at all.
    inverses: Vec<f64>,
    means: Vec<f64>,
    tiles: Vec<Tile>,
}

/// What the tiles that were taken so far found, together.
#[derive(Debug)]
pub struct ProfileSum(Bests);

impl ProfileSum {
    /// Takes what a tile found.
    pub fn take(&mut self, found: &TileResult) {
        for (first, bests) in [&found.rows, &found.columns] {
            self.0.merge_at(*first, bests);
        }
    }
}

/// Rows from the first to before the end, and diagonals.
#[derive(Debug, Clone, Copy)]
struct Tile {
    rows: [usize; 2],
    diagonals: [usize; 2],
}

impl ProfileTask {
    /// Bytes that a profile of a series of so many values takes, with what its tiles take.
    pub const fn memory_bytes(values: usize) -> usize {
        values.saturating_mul(12 * 8)
    }

    /// The work for windows of so many values; without any if there are none that do not begin next to each other.
    pub fn new(series: &[f64], width: usize) -> Self {
        let moments = moments_of_windows(series, width);
        let zone = exclusion_zone(width);
        let (sum, count) = series
            .iter()
            .filter(|value| value.is_finite())
            .fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        let mean: f64 = sum / count;
        let mean = if mean.is_finite() { mean } else { 0.0 };
        let values: Vec<f64> = series.iter().map(|value| if value.is_finite() { value - mean } else { 0.0 }).collect();
        let means: Vec<f64> = moments_of_windows(&values, width).iter().map(|moments| moments.mean).collect();
        let (halves, sums) = updates(&values, &means, width);
        let inverse = |moments: &Moments| {
            if moments.is_defined() && !moments.is_constant() {
                1.0 / (moments.deviation * (width as f64).sqrt())
            } else {
                f64::NAN
            }
        };
        let inverses: Vec<f64> = moments.iter().map(inverse).collect();
        let tiles = tiles(&moments, zone);
        Self { width, zone, series: series.to_vec(), values, moments, halves, sums, inverses, means, tiles }
    }

    /// How many tiles there are.
    pub const fn tiles(&self) -> usize {
        self.tiles.len()
    }

    /// Pairs of windows in a tile, about.
    pub fn pairs(&self, tile: usize) -> usize {
        self.tiles.get(tile).map_or(0, |tile| (tile.rows[1] - tile.rows[0]) * (tile.diagonals[1] - tile.diagonals[0]))
    }

    /// Computes a tile, by its number.
    #[expect(clippy::float_cmp, reason = "the same product of the same numbers is looked for")]
    pub fn run(&self, tile: usize) -> TileResult {
        let Some(tile) = self.tiles.get(tile) else {
            return TileResult { rows: (0, Bests::new(0)), columns: (0, Bests::new(0)) };
        };
        let Tile { rows: [first_row, end_row], diagonals: [first_diagonal, end_diagonal] } = *tile;
        let first_column = first_row + first_diagonal;
        let columns = (end_row + end_diagonal - 1).min(self.moments.len()) - first_column;
        let mut of_rows = Bests::new(end_row - first_row);
        let mut of_columns = Bests::new(columns);
        let mut covariances = vec![0.0; end_diagonal - first_diagonal];
        self.begin(first_row, first_column, &mut covariances);
        for row in first_row..end_row {
            let column = row + first_diagonal;
            let abreast = (end_diagonal - first_diagonal).min(self.moments.len() - column);
            let offset = column - first_column;
            if row > first_row {
                let (half, sum) = (self.halves[row], self.sums[row]);
                let of_columns = self.halves[column..column + abreast].iter().zip(&self.sums[column..column + abreast]);
                for (covariance, (column_half, column_sum)) in covariances.iter_mut().zip(of_columns) {
                    *covariance += half * column_sum + column_half * sum;
                }
            }
            let inverse = self.inverses[row];
            let window = Columns {
                inverses: &self.inverses[column..column + abreast],
                best: &mut of_columns.correlations[offset..offset + abreast],
                indexes: &mut of_columns.indexes[offset..offset + abreast],
            };
            let best = window.take(&covariances[..abreast], inverse, row as u64);
            if best > of_rows.correlations[row - first_row] {
                let is_best = |(covariance, of_column): (&f64, &f64)| covariance * inverse * of_column == best;
                let inverses = &self.inverses[column..column + abreast];
                let at = covariances.iter().zip(inverses).position(is_best).unwrap_or_default();
                of_rows.correlations[row - first_row] = best;
                of_rows.indexes[row - first_row] = (column + at) as u64;
            }
        }
        TileResult { rows: (first_row, of_rows), columns: (first_column, of_columns) }
    }

    /// The covariances of a row's window with those of columns that follow one another, from the values.
    fn begin(&self, row: usize, column: usize, covariances: &mut [f64]) {
        let abreast = covariances.len().min(self.moments.len().saturating_sub(column));
        let of_row = &self.values[row..row + self.width];
        let means = &self.means[column..column + abreast];
        for (step, value) in of_row.iter().enumerate() {
            let factor = value - self.means[row];
            let of_columns = &self.values[column + step..column + step + abreast];
            for (covariance, (value, mean)) in covariances.iter_mut().zip(of_columns.iter().zip(means)) {
                *covariance += factor * (value - mean);
            }
        }
    }

    /// To take what tiles found.
    pub fn sum(&self) -> ProfileSum {
        ProfileSum(Bests::new(self.moments.len()))
    }

    /// The profile, once all tiles were taken.
    pub fn finish(&self, ProfileSum(bests): &ProfileSum) -> MatrixProfile {
        let constants: Vec<usize> = self.indexes_where(Moments::is_constant);
        let defined: Vec<usize> = self.indexes_where(Moments::is_defined);
        let mut profile = Vec::with_capacity(self.moments.len());
        for (index, moments) in self.moments.iter().enumerate() {
            if !moments.is_defined() {
                profile.push(None);
                continue;
            }
            let correlation = bests.correlations[index];
            let best = (correlation > f64::NEG_INFINITY).then(|| self.exact(index, bests.indexes[index] as usize));
            let of_constants = self.outside(index, &constants).map(|other| self.exact(index, other));
            let others = || self.outside(index, &defined).map(|other| self.exact(index, other));
            let known = [best, of_constants].into_iter().flatten();
            let nearest = known.min_by(|one, other| one.distance.total_cmp(&other.distance));
            profile.push(if moments.is_constant() && of_constants.is_none() {
                others()
            } else {
                nearest.or_else(others)
            });
        }
        profile
    }

    fn indexes_where(&self, holds: impl Fn(Moments) -> bool) -> Vec<usize> {
        (0..).zip(&self.moments).filter(|(_, moments)| holds(**moments)).map(|(index, _)| index).collect()
    }

    /// The first of ascending windows that does not begin next to one.
    fn outside(&self, index: usize, ascending: &[usize]) -> Option<usize> {
        let first = ascending.first().copied().filter(|first| first.abs_diff(index) > self.zone);
        let after = ascending.partition_point(|other| *other <= index + self.zone);
        first.or_else(|| ascending.get(after).copied())
    }

    fn exact(&self, index: usize, other: usize) -> Neighbour {
        let of = |index: usize| (&self.series[index..index + self.width], self.moments[index]);
        let ((one, moments), (two, of_two)) = (of(index), of(other));
        let distance = if moments.is_constant() || of_two.is_constant() {
            constant_distance(moments.is_constant(), of_two.is_constant(), self.width)
        } else {
            Pattern::new(one, true).map_or(f64::INFINITY, |pattern| pattern.distance(two, f64::INFINITY))
        };
        Neighbour { index: other, distance }
    }
}

/// The columns of a tile that stand in one row.
struct Columns<'a> {
    inverses: &'a [f64],
    best: &'a mut [f64],
    indexes: &'a mut [u64],
}

impl Columns<'_> {
    /// Takes the correlations of a row; returns the largest.
    fn take(self, covariances: &[f64], inverse: f64, row: u64) -> f64 {
        const LANES: usize = 8;
        let mut largest = [f64::NEG_INFINITY; LANES];
        let count = covariances.len().min(self.inverses.len());
        let (covariances, inverses) = (&covariances[..count], &self.inverses[..count]);
        let (best, indexes) = (&mut self.best[..count], &mut self.indexes[..count]);
        let whole = count - count % LANES;
        for first in (0..whole).step_by(LANES) {
            let covariances = &covariances[first..first + LANES];
            let inverses = &inverses[first..first + LANES];
            let best = &mut best[first..first + LANES];
            let indexes = &mut indexes[first..first + LANES];
            for lane in 0..LANES {
                let correlation = covariances[lane] * inverse * inverses[lane];
                let is_better = correlation > best[lane];
                best[lane] = if is_better { correlation } else { best[lane] };
                indexes[lane] = if is_better { row } else { indexes[lane] };
                largest[lane] = if correlation > largest[lane] { correlation } else { largest[lane] };
            }
        }
        let mut all = largest.into_iter().fold(f64::NEG_INFINITY, f64::max);
        for at in whole..count {
            let correlation = covariances[at] * inverse * inverses[at];
            if correlation > best[at] {
                (best[at], indexes[at]) = (correlation, row);
            }
            all = all.max(correlation);
        }
        all
    }
}

/// By window: half of what the value that came is larger than the one that left; and how far both are from the means, together.
fn updates(values: &[f64], means: &[f64], width: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut halves, mut sums) = (vec![0.0; means.len()], vec![0.0; means.len()]);
    for index in 1..means.len() {
        let (left, came) = (values[index - 1], values[index + width - 1]);
        halves[index] = (came - left) / 2.0;
        sums[index] = (came - means[index]) + (left - means[index - 1]);
    }
    (halves, sums)
}

/// All pairs of windows outside of the zone, once each.
fn tiles(moments: &[Moments], zone: usize) -> Vec<Tile> {
    let count = moments.len();
    let mut tiles = Vec::new();
    for first_diagonal in (zone + 1..count).step_by(TILE_DIAGONALS) {
        let diagonals = [first_diagonal, (first_diagonal + TILE_DIAGONALS).min(count)];
        // The first diagonal is the longest.
        let rows = count - first_diagonal;
        for first_row in (0..rows).step_by(TILE_ROWS) {
            let end_row = (first_row + TILE_ROWS).min(rows);
            let columns = first_row + first_diagonal..(end_row + diagonals[1]).min(count);
            let is_spread = is_spread(moments, first_row..end_row) || is_spread(moments, columns);
            let step = if is_spread { SPREAD_TILE_ROWS } else { TILE_ROWS };
            for first_row in (first_row..end_row).step_by(step) {
                tiles.push(Tile { rows: [first_row, (first_row + step).min(end_row)], diagonals });
            }
        }
    }
    tiles
}

fn is_spread(moments: &[Moments], windows: std::ops::Range<usize>) -> bool {
    let deviations = moments.get(windows).unwrap_or_default().iter().map(|moments| moments.deviation);
    let (least, most) = deviations
        .filter(|deviation| *deviation > 0.0)
        .fold((f64::INFINITY, 0.0_f64), |(least, most), deviation| (least.min(deviation), most.max(deviation)));
    most > least * SPREAD_MAX
}

/// Pairs of windows that are most alike, the nearest first: at most so many, none of whose windows begins next to one of another pair.
pub fn motifs(profile: &[Option<Neighbour>], width: usize, count: usize) -> Vec<Motif> {
    let mut order: Vec<(usize, Neighbour)> =
        (0..).zip(profile).filter_map(|(index, near)| Some((index, (*near)?))).collect();
    order.sort_by(|(a, one), (b, other)| one.distance.total_cmp(&other.distance).then(a.cmp(b)));
    let mut chosen: Vec<Motif> = Vec::new();
    let zone = exclusion_zone(width);
    for (index, Neighbour { index: other, distance }) in order {
        if chosen.len() >= count {
            break;
        }
        let is_free =
            |index: usize| chosen.iter().flat_map(|motif| motif.indexes).all(|known| known.abs_diff(index) > zone);
        if is_free(index) && is_free(other) {
            chosen.push(Motif { indexes: [index.min(other), index.max(other)], distance });
        }
    }
    chosen
}

/// Windows that are least like any other, the farthest first: at most so many, none of which begins next to another.
pub fn discords(profile: &[Option<Neighbour>], width: usize, count: usize) -> Vec<(usize, Neighbour)> {
    let mut order: Vec<(usize, Neighbour)> =
        (0..).zip(profile).filter_map(|(index, near)| Some((index, (*near)?))).collect();
    order.sort_by(|(a, one), (b, other)| other.distance.total_cmp(&one.distance).then(a.cmp(b)));
    let mut chosen: Vec<(usize, Neighbour)> = Vec::new();
    let zone = exclusion_zone(width);
    for (index, neighbour) in order {
        if chosen.len() >= count {
            break;
        }
        if chosen.iter().all(|(known, _)| known.abs_diff(index) > zone) {
            chosen.push((index, neighbour));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn profile(series: &[f64], width: usize) -> MatrixProfile {
        let task = ProfileTask::new(series, width);
        let mut sum = task.sum();
        (0..task.tiles()).for_each(|tile| sum.take(&task.run(tile)));
        task.finish(&sum)
    }

    /// Every pair, by the definition.
    fn plain(series: &[f64], width: usize) -> Vec<Option<f64>> {
        let windows: Vec<&[f64]> = series.windows(width).collect();
        let nearest = |(index, window): (usize, &&[f64])| {
            let pattern = Pattern::new(window, true)?;
            let others = windows.iter().enumerate().filter(|(other, _)| other.abs_diff(index) > exclusion_zone(width));
            let distances = others.map(|(_, other)| pattern.distance(other, f64::INFINITY));
            distances.min_by(f64::total_cmp).filter(|distance| distance.is_finite())
        };
        windows.iter().enumerate().map(nearest).collect()
    }

    fn check(series: &[f64], width: usize) {
        let (found, expected) = (profile(series, width), plain(series, width));
        assert_eq!(found.len(), expected.len());
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert_eq!(found.is_some(), expected.is_some(), "{index}: {found:?} {expected:?}");
            let (Some(found), Some(expected)) = (found, expected) else { continue };
            assert!(
                (found.distance.powi(2) - expected.powi(2)).abs() < 1e-9 * width as f64,
                "{index}: {found:?} {expected}"
            );
            assert!(found.index.abs_diff(index) > exclusion_zone(width));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn neighbours_are_the_nearest(
            series in prop::collection::vec(prop_oneof![
                30 => -1.0..1.0f64, 10 => 100.0..101.0f64, 1 => Just(1e4), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)
            ], 0..250),
            flat in 0..60usize, width in 3..40usize,
        ) {
            let mut series = series;
            for value in series.iter_mut().skip(80).take(flat) {
                *value = 5.0;
            }
            check(&series, width);
        }
    }

    #[test]
    fn tiles_make_up_the_whole() {
        let series: Vec<f64> = (0..1700_u64).map(|place| (place * place % 1009) as f64 + place as f64 * 0.01).collect();
        check(&series, 50);
        let mut spread = series;
        spread[900] = 1e8;
        check(&spread, 20);
        check(&[3.0; 40], 4);
    }

    #[test]
    fn motifs_and_discords_keep_away_from_each_other() {
        let near = |index, distance| Some(Neighbour { index, distance });
        let mut profile = vec![near(50, 5.0); 100];
        (profile[10], profile[60]) = (near(60, 1.0), near(10, 1.0));
        (profile[11], profile[61]) = (near(61, 1.5), near(11, 1.5));
        (profile[20], profile[80]) = (near(80, 2.0), near(20, 2.0));
        profile[40] = near(10, 9.0);
        profile[41] = near(10, 8.0);
        profile[90] = None;
        let found = motifs(&profile, 8, 2);
        assert_eq!(found, [Motif { indexes: [10, 60], distance: 1.0 }, Motif { indexes: [20, 80], distance: 2.0 }]);
        let found: Vec<usize> = discords(&profile, 8, 3).into_iter().map(|(index, _)| index).collect();
        assert_eq!(found, [40, 0, 3]);
        assert!(motifs(&[], 8, 3).is_empty() && discords(&[None], 8, 3).is_empty());
    }
}
