//! The least value of a function of several numbers, after Nelder and Mead ("A simplex method for function minimization", 1965): no
//! derivatives, only a simplex that turns and shrinks. Coefficients, tie-breaks and the order of steps are those of InfluxDB 1.8, whose
//! forecasts depend on where it stops.

const ITERATIONS_MAX: usize = 1000;
const REFLECTION: f64 = 1.0;
const EXPANSION: f64 = 2.0;
const CONTRACTION: f64 = 0.5;

/// Where a function was looked at, and its value there.
#[derive(Debug, Clone)]
pub(crate) struct Corner {
    pub(crate) at: Vec<f64>,
    pub(crate) cost: f64,
}

impl Corner {
    /// The function may move the point to one that it allows.
    fn evaluate<E>(mut at: Vec<f64>, cost: &mut impl FnMut(&mut [f64]) -> Result<f64, E>) -> Result<Self, E> {
        let cost = cost(&mut at)?;
        Ok(Self { at, cost })
    }
}

/// Which corners the next step looks at.
struct Ranks {
    best: usize,
    worst: usize,
    /// The worst but one.
    second: usize,
}

/// Looks for a minimum near a point, until the values at the corners stray less than `tolerance`.
pub(crate) fn minimum<E>(
    start: &[f64],
    tolerance: f64,
    cost: &mut impl FnMut(&mut [f64]) -> Result<f64, E>,
) -> Result<Corner, E> {
    let mut corners = first_corners(start, cost)?;
    for _ in 0..ITERATIONS_MAX {
        step(&mut corners, cost)?;
        if spread(&corners) < tolerance {
            break;
        }
    }
    let best = corners.swap_remove(ranks(&corners).best);
    // The value where the corner is now, which may not be where it was when it was looked at.
    let cost = cost(&mut best.at.clone())?;
    Ok(Corner { cost, ..best })
}

/// The starting point, and one more for each number, all equally far from one another.
fn first_corners<E>(start: &[f64], cost: &mut impl FnMut(&mut [f64]) -> Result<f64, E>) -> Result<Vec<Corner>, E> {
    let count = start.len() as f64;
    let root = (count + 1.0).sqrt() - 1.0;
    let (far, near) = ((root + count) / (count * 2f64.sqrt()), root / (count * 2f64.sqrt()));
    let corner = |number: usize| {
        let moved = |(place, value): (usize, &f64)| match number {
            0 => *value,
            _ if place + 1 == number => far + value,
            _ => near + value,
        };
        start.iter().enumerate().map(moved).collect::<Vec<_>>()
    };
    (0..=start.len()).map(|number| Corner::evaluate(corner(number), cost)).collect()
}

fn ranks(corners: &[Corner]) -> Ranks {
    let (mut best, mut worst) = (0, 0);
    for (place, corner) in corners.iter().enumerate() {
        if corner.cost > corners[worst].cost {
            worst = place;
        }
        if corner.cost < corners[best].cost {
            best = place;
        }
    }
    let mut second = best;
    for (place, corner) in corners.iter().enumerate() {
        if corner.cost > corners[second].cost && corner.cost < corners[worst].cost {
            second = place;
        }
    }
    Ranks { best, worst, second }
}

/// Puts a better point in place of the worst corner, or draws all corners towards the best.
fn step<E>(corners: &mut [Corner], cost: &mut impl FnMut(&mut [f64]) -> Result<f64, E>) -> Result<(), E> {
    let Ranks { best, worst, second } = ranks(corners);
    let middle = middle_without(corners, worst);
    let from_middle = |to: &[f64], times: f64| -> Vec<f64> {
        middle.iter().zip(to).map(|(middle, to)| middle + times * (to - middle)).collect()
    };
    let away: Vec<f64> =
        middle.iter().zip(&corners[worst].at).map(|(middle, at)| middle + REFLECTION * (middle - at)).collect();
    let reflected = Corner::evaluate(away, cost)?;
    if reflected.cost < corners[second].cost && reflected.cost >= corners[best].cost {
        corners[worst] = reflected.clone();
    }
    if reflected.cost < corners[best].cost {
        let expanded = Corner::evaluate(from_middle(&reflected.at, EXPANSION), cost)?;
        corners[worst] = if expanded.cost < reflected.cost { expanded } else { reflected.clone() };
    }
    let is_bad = reflected.cost >= corners[second].cost;
    if !is_bad {
        return Ok(());
    }
    let towards = if reflected.cost < corners[worst].cost { &reflected.at } else { &corners[worst].at };
    let contracted = Corner::evaluate(from_middle(towards, CONTRACTION), cost)?;
    if contracted.cost < corners[worst].cost {
        corners[worst] = contracted;
        return Ok(());
    }
    let target = corners[best].at.clone();
    for (_, corner) in corners.iter_mut().enumerate().filter(|(place, _)| *place != best) {
        corner.at.iter_mut().zip(&target).for_each(|(at, target)| *at = target + (*at - target) / 2.0);
    }
    // The others keep the values that they had.
    for place in [worst, second] {
        corners[place].cost = cost(&mut corners[place].at)?;
    }
    Ok(())
}

fn middle_without(corners: &[Corner], left_out: usize) -> Vec<f64> {
    let count = corners.len() - 1;
    let others = || corners.iter().enumerate().filter(|(place, _)| *place != left_out);
    (0..count).map(|place| others().map(|(_, corner)| corner.at[place]).sum::<f64>() / count as f64).collect()
}

/// How far the values at the corners stray from their mean.
fn spread(corners: &[Corner]) -> f64 {
    let mean = corners.iter().map(|corner| corner.cost).sum::<f64>() / corners.len() as f64;
    let squares = corners.iter().map(|corner| (corner.cost - mean).powi(2) / (corners.len() - 1) as f64);
    squares.sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rosenbrock's valley, whose least value is 0 at (1, 1).
    fn valley(at: &[f64]) -> f64 {
        100.0 * (at[1] - at[0] * at[0]).powi(2) + (1.0 - at[0]).powi(2)
    }

    #[test]
    fn the_bottom_of_a_valley_is_found() {
        let found = minimum(&[-1.2, 1.0], 1e-9, &mut |at: &mut [f64]| Ok::<_, ()>(valley(at))).unwrap();
        assert!(found.cost < 1e-8, "{found:?}");
        assert!(found.at.iter().all(|at| (at - 1.0).abs() < 1e-3), "{found:?}");
    }

    #[test]
    fn a_function_that_fails_ends_the_search() {
        let mut left = 5;
        let mut failing = |at: &mut [f64]| {
            left -= 1;
            if left == 0 { Err("enough") } else { Ok(at[0]) }
        };
        assert_eq!(minimum(&[0.0, 0.0, 0.0], 1e-9, &mut failing).map(|found| found.cost), Err("enough"));
    }
}
