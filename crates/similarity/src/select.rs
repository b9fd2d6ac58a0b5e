//! The best of the distances of a series' windows, with a zone around each in which there is no other.

use crate::mass::{CORRELATION_ERROR, Direct};
use crate::{Best, Match, Pattern};

/// Windows that begin so near to each other, and no farther, are the same finding: a quarter of the width, rounded up, as stumpy has it.
pub const fn exclusion_zone(width: usize) -> usize {
    width.div_ceil(4)
}

/// The best windows of a series by their distances, which [`crate::Mass`] gave: at most so many, none of which begins within `zone` of another, and none
/// farther away than a limit. What rounding might put in another order is computed exactly. Windows in `distances` that are not wanted are infinite;
/// the search makes the windows that it chose, and those around them, infinite, too. `check` is asked whether to go on.
///
/// # Errors
/// What `check` gives.
pub fn select<E>(
    distances: &mut [f64],
    (series, pattern): (&[f64], &Pattern),
    ((count, zone), limit): ((usize, usize), f64),
    check: &dyn Fn() -> Result<(), E>,
) -> Result<Vec<Match<usize>>, E> {
    let mut direct = Direct { check, left: 0 };
    let width = pattern.width();
    let scale = if pattern.is_normalised() { 2.0 * width as f64 } else { pattern.squares().max(f64::MIN_POSITIVE) };
    let margin = 8.0 * scale * CORRELATION_ERROR;
    let mut is_exact = vec![false; distances.len()];
    let mut chosen: Vec<Match<usize>> = Vec::new();
    while chosen.len() < count {
        direct.note(distances.len())?;
        let smallest = distances.iter().copied().fold(f64::INFINITY, f64::min);
        let near = smallest * smallest * (1.0 + 8.0 * CORRELATION_ERROR) + margin;
        if !smallest.is_finite() || smallest * smallest > limit * limit + margin {
            break;
        }
        let mut best = Best::new(1);
        for (index, (distance, is_exact)) in distances.iter_mut().zip(&mut is_exact).enumerate() {
            if *distance * *distance > near {
                continue;
            }
            if !*is_exact {
                direct.note(width)?;
                let window = series.get(index..index + width).unwrap_or_default();
                (*distance, *is_exact) = (pattern.distance(window, f64::INFINITY), true);
            }
            best.offer(*distance, index);
        }
        let Some(found) = best.matches().first().copied() else { break };
        if found.distance > limit {
            break;
        }
        let first = found.key.saturating_sub(zone);
        distances.iter_mut().skip(first).take(found.key - first + zone + 1).for_each(|near| *near = f64::INFINITY);
        chosen.push(found);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Mass;

    proptest! {
        #[test]
        fn windows_are_chosen_as_by_hand(
            series in prop::collection::vec(0..6u8, 60..300), from in 0..50usize, width in 4..60usize, count in 0..6usize,
        ) {
            let series: Vec<f64> = series.into_iter().map(f64::from).collect();
            let pattern: Vec<f64> = series.iter().copied().skip(from).take(width).collect();
            let width = pattern.len();
            let pattern = Pattern::new(&pattern, true).unwrap();
            let mut expected = Vec::new();
            let mut left: Vec<(f64, usize)> =
                series.windows(width).map(|window| pattern.distance(window, f64::INFINITY)).zip(0..).collect();
            let zone = exclusion_zone(width);
            while let Some((distance, index)) = left.iter().copied().min_by(|a, b| a.partial_cmp(b).unwrap()) {
                if expected.len() == count {
                    break;
                }
                expected.push(Match { distance, key: index });
                left.retain(|(_, other)| other.abs_diff(index) > zone);
            }
            let mut distances = Mass::new(pattern.clone(), series.len()).distances(&series, &|| Ok::<_, ()>(())).unwrap();
            let found = select(&mut distances, (&series, &pattern), ((count, zone), f64::INFINITY), &|| Ok::<_, ()>(())).unwrap();
            prop_assert_eq!(&found, &expected);
            let limit = expected.get(1).map_or(0.0, |second| second.distance);
            let mut distances = Mass::new(pattern.clone(), series.len()).distances(&series, &|| Ok::<_, ()>(())).unwrap();
            let near = select(&mut distances, (&series, &pattern), ((count, zone), limit), &|| Ok::<_, ()>(())).unwrap();
            expected.retain(|found| found.distance <= limit);
            prop_assert_eq!(near, expected);
        }
    }
}
