//! Gaps between bins of time, filled for plans, SQL and InfluxQL in one way.

use crate::plan::FillWith;

/// Fills the gaps of one column. Slots are bins in their order, each with its time and its value if it has one; `number` makes a value of a
/// number, `between` one of its neighbours.
pub fn fill_gaps<V: Clone>(
    slots: &mut [(i64, Option<V>)],
    with: FillWith,
    number: impl Fn(f64) -> V,
    between: impl Fn(&(i64, V), &(i64, V), i64) -> Option<V>,
) {
    let mut before: Option<(i64, V)> = None;
    let mut rest = slots;
    while !rest.is_empty() {
        let gaps = rest.iter().take_while(|(_, value)| value.is_none()).count();
        let (gap, others) = rest.split_at_mut(gaps);
        let next = others.first().and_then(|(ns, value)| Some((*ns, value.clone()?)));
        for (ns, value) in gap {
            *value = match with {
                FillWith::Null => None,
                FillWith::Number(with) => Some(number(with)),
                FillWith::Previous => before.as_ref().map(|(_, value)| value.clone()),
                FillWith::Linear => {
                    before.as_ref().zip(next.as_ref()).and_then(|(before, next)| between(before, next, *ns))
                }
            };
        }
        before = next;
        rest = others.get_mut(1..).unwrap_or_default();
    }
}

/// The number at a time between two others, in proportion to time.
pub fn interpolated((from_ns, from): (i64, f64), (to_ns, to): (i64, f64), at_ns: i64) -> f64 {
    // Times at both ends of time are further apart than 64 bits hold.
    let since = |ns: i64| (i128::from(ns) - i128::from(from_ns)) as f64;
    from + (to - from) * (since(at_ns) / since(to_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_by_what_is_around_them() {
        let fill = |with| {
            let values = [None, Some(1.0), None, None, Some(7.0), None];
            let mut slots: Vec<(i64, Option<f64>)> = (0..).zip(values).collect();
            let between = |before: &(i64, f64), next: &(i64, f64), ns| Some(interpolated(*before, *next, ns));
            fill_gaps(&mut slots, with, |number| number, between);
            slots.into_iter().map(|(_, value)| value.unwrap_or(-1.0)).collect::<Vec<_>>()
        };
        assert_eq!(fill(FillWith::Null), [-1.0, 1.0, -1.0, -1.0, 7.0, -1.0]);
        assert_eq!(fill(FillWith::Number(0.5)), [0.5, 1.0, 0.5, 0.5, 7.0, 0.5]);
        assert_eq!(fill(FillWith::Previous), [-1.0, 1.0, 1.0, 1.0, 7.0, 7.0]);
        assert_eq!(fill(FillWith::Linear), [-1.0, 1.0, 3.0, 5.0, 7.0, -1.0]);
    }
}
