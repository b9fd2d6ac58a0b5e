//! Groups of series of which every two correlate: agglomerative, by complete linkage, cut at a correlation.
//!
//! The chain of nearest neighbours: Murtagh, "A Survey of Recent Advances in Hierarchical Clustering Algorithms", 1983.

use std::cmp::Ordering;

use crate::{Pattern, Spectra, distance_of};

/// Series that are grouped at once: a distance is held for every two.
pub const MEMBERS_MAX: usize = 4096;

/// Bytes that grouping so many series takes.
pub const fn matrix_bytes(members: usize) -> usize {
    members.saturating_mul(members).saturating_mul(8)
}

/// The group of each series, numbered from 0 in the order of their first members: every two series of a group correlate by `correlation` at least, and
/// groups were joined nearest first. Series have one length; they are normalised. `check` is called now and then; its error ends the work.
pub fn groups<E>(
    series: &[Pattern],
    correlation: f64,
    check: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Vec<usize>, E> {
    let width = series.first().map_or(0, Pattern::width);
    let most = distance_of(correlation, width) * (1.0 + 1e-12);
    let mut matrix = Matrix::new(series, most, check)?;
    let mut chain: Vec<usize> = Vec::new();
    loop {
        check()?;
        let top = match chain.last() {
            Some(top) => *top,
            None => match matrix.is_active.iter().position(|active| *active) {
                Some(first) => {
                    chain.push(first);
                    first
                }
                None => break,
            },
        };
        let before = chain.len().checked_sub(2).and_then(|at| chain.get(at)).copied();
        match matrix.nearest(top, before) {
            // Groups only get farther from each other, so that this one stays as it is.
            None => {
                matrix.is_active[top] = false;
                chain.pop();
            }
            Some(near) if Some(near) == before => {
                chain.truncate(chain.len() - 2);
                matrix.join(near, top);
            }
            Some(near) => chain.push(near),
        }
    }
    Ok(matrix.numbered())
}

/// Distances between groups, each named by one of its members; infinity if they are not to be joined.
struct Matrix {
    count: usize,
    distances: Vec<f64>,
    is_active: Vec<bool>,
    /// The group of each series.
    group: Vec<usize>,
}

impl Matrix {
    fn new<E>(series: &[Pattern], most: f64, check: &mut dyn FnMut() -> Result<(), E>) -> Result<Self, E> {
        let count = series.len();
        let mut spectra = Spectra::new(series.first().map_or(0, Pattern::width));
        let spectra: Vec<_> = series.iter().map(|pattern| spectra.spectrum(pattern)).collect();
        let mut distances = vec![f64::INFINITY; count * count];
        for (row, (one, spectrum)) in series.iter().zip(&spectra).enumerate() {
            check()?;
            for (column, (other, of_other)) in series.iter().zip(&spectra).enumerate().skip(row + 1) {
                if spectrum.bound(of_other) > most {
                    continue;
                }
                let distance = distance(one, other);
                if distance <= most {
                    distances[row * count + column] = distance;
                    distances[column * count + row] = distance;
                }
            }
        }
        Ok(Self { count, distances, is_active: vec![true; count], group: (0..count).collect() })
    }

    /// The nearest other group; of several that are equally near the one that is preferred, else the first.
    fn nearest(&self, of: usize, preferred: Option<usize>) -> Option<usize> {
        let row = &self.distances[of * self.count..(of + 1) * self.count];
        let mut best: Option<(f64, usize)> = None;
        for (other, (distance, active)) in row.iter().zip(&self.is_active).enumerate() {
            if !active || other == of || !distance.is_finite() {
                continue;
            }
            let is_better = best.is_none_or(|(least, _)| match distance.total_cmp(&least) {
                Ordering::Less => true,
                Ordering::Equal => Some(other) == preferred,
                Ordering::Greater => false,
            });
            if is_better {
                best = Some((*distance, other));
            }
        }
        best.map(|(_, other)| other)
    }

    /// The second joins the first: the farthest members count.
    fn join(&mut self, into: usize, gone: usize) {
        for other in 0..self.count {
            let distance = self.distances[into * self.count + other].max(self.distances[gone * self.count + other]);
            self.distances[into * self.count + other] = distance;
            self.distances[other * self.count + into] = distance;
        }
        self.is_active[gone] = false;
        self.group.iter_mut().filter(|group| **group == gone).for_each(|group| *group = into);
    }

    fn numbered(self) -> Vec<usize> {
        let mut numbers = vec![None; self.count];
        let mut next = 0;
        let number = |group: usize| {
            *numbers[group].get_or_insert_with(|| {
                next += 1;
                next - 1
            })
        };
        self.group.into_iter().map(number).collect()
    }
}

fn distance(one: &Pattern, other: &Pattern) -> f64 {
    if one.is_constant() || other.is_constant() {
        return crate::pattern::constant_distance(one.is_constant(), other.is_constant(), one.width());
    }
    let pairs = one.values().iter().zip(other.values());
    pairs.map(|(one, other)| (one - other).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// Joins the nearest two groups again and again.
    fn plain(series: &[Pattern], correlation: f64) -> Vec<usize> {
        let width = series.first().map_or(0, Pattern::width);
        let mut groups: Vec<Vec<usize>> = (0..series.len()).map(|number| vec![number]).collect();
        loop {
            let mut best = (distance_of(correlation, width) * (1.0 + 1e-12), None);
            for a in 0..groups.len() {
                for b in a + 1..groups.len() {
                    let pairs = groups[a].iter().flat_map(|one| groups[b].iter().map(move |other| (*one, *other)));
                    let farthest = pairs.map(|(one, other)| distance(&series[one], &series[other])).fold(0.0, f64::max);
                    if farthest < best.0 {
                        best = (farthest, Some((a, b)));
                    }
                }
            }
            let Some((a, b)) = best.1 else { break };
            let gone = groups.remove(b);
            groups[a].extend(gone);
        }
        groups.iter_mut().for_each(|group| group.sort_unstable());
        groups.sort();
        let mut numbers = vec![0; series.len()];
        for (number, group) in groups.iter().enumerate() {
            group.iter().for_each(|member| numbers[*member] = number);
        }
        numbers
    }

    proptest! {
        #[test]
        fn groups_are_joined_nearest_first(
            series in prop::collection::vec(prop::collection::vec(-1.0..1.0f64, 6), 0..24), correlation in -0.5..1.0f64,
        ) {
            let series: Vec<Pattern> = series.iter().map(|values| Pattern::new(values, true).unwrap()).collect();
            let found = groups::<Infallible>(&series, correlation, &mut || Ok(())).unwrap();
            prop_assert_eq!(found, plain(&series, correlation));
        }
    }

    #[test]
    fn waves_of_one_phase_are_a_group() {
        let wave = |phase: f64, scale: f64| {
            let values: Vec<f64> = (0..100).map(|step| scale * (f64::from(step) / 8.0 + phase).sin()).collect();
            Pattern::new(&values, true).unwrap()
        };
        let flat = Pattern::new(&[3.0; 100], true).unwrap();
        let series = [wave(0.0, 1.0), wave(1.5, 2.0), wave(0.05, 9.0), flat.clone(), wave(1.52, 0.1), flat];
        let found = groups::<Infallible>(&series, 0.9, &mut || Ok(())).unwrap();
        assert_eq!(found, [0, 1, 0, 2, 1, 2]);
        assert_eq!(groups(&series, 0.9, &mut || Err("stopped")), Err("stopped"));
    }
}
