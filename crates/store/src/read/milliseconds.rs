//! Milliseconds of nanoseconds.

const NS_PER_MS: i64 = 1_000_000;

/// Makes milliseconds of ascending nanoseconds; whether some are the same then.
pub fn to_milliseconds(timestamps: &mut [i64]) -> bool {
    if let Some((first_ms, step_ms)) = even_milliseconds(timestamps) {
        let mut next_ms = first_ms;
        for timestamp in timestamps {
            *timestamp = next_ms;
            next_ms = next_ms.wrapping_add(step_ms);
        }
        return false;
    }
    // Most follow one another at the same distance of whole milliseconds: adding is cheaper than dividing.
    let (mut before, mut before_divided) = (timestamps.first().copied().unwrap_or_default(), i64::MIN);
    let (mut step, mut step_divided, mut same) = (0, 0, false);
    for timestamp in timestamps {
        let (now, distance) = (*timestamp, timestamp.wrapping_sub(before));
        let is_even = distance == step && distance > 0;
        let divided = if is_even { before_divided + step_divided } else { now.div_euclid(NS_PER_MS) };
        same |= divided == before_divided;
        if !is_even && distance > 0 && distance % NS_PER_MS == 0 {
            (step, step_divided) = (distance, distance / NS_PER_MS);
        }
        (before, before_divided) = (now, divided);
        *timestamp = divided;
    }
    same
}

/// The first and the distance in milliseconds, if ascending nanoseconds are whole milliseconds at one distance: as those of a regular scrape are,
/// which is found out without looking at one after the other.
fn even_milliseconds(timestamps: &[i64]) -> Option<(i64, i64)> {
    let [first, second, ..] = timestamps else { return None };
    let step = second.checked_sub(*first).filter(|step| *step > 0)?;
    if first % NS_PER_MS != 0 || step % NS_PER_MS != 0 {
        return None;
    }
    let behind = timestamps.get(1..).unwrap_or_default();
    let differs = |(before, now): (&i64, &i64)| now.wrapping_sub(*before) ^ step;
    let other = timestamps.iter().zip(behind).fold(0, |other, pair| other | differs(pair));
    (other == 0).then_some((first / NS_PER_MS, step / NS_PER_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_those_of_a_division() {
        for times in [
            vec![0, 15_000_000_000, 30_000_000_000, 45_000_000_001, 60_000_000_001, 60_000_000_002],
            vec![i64::MIN, -15_000_000, -1, 0, 1, 999_999, 1_000_000, 2_000_000, 3_000_000, i64::MAX],
            vec![-3_000_001, -2_000_001, -1_000_001, -1, 999_999],
            vec![-30_000_000, -15_000_000, 0, 15_000_000],
            vec![-30_000_000, -15_000_000, 0, 15_000_001],
            vec![1, 15_000_001, 30_000_001],
            vec![i64::MIN, i64::MAX],
            vec![7_000_000],
            vec![],
        ] {
            let divided: Vec<i64> = times.iter().map(|time: &i64| time.div_euclid(NS_PER_MS)).collect();
            let mut converted = times.clone();
            let same = to_milliseconds(&mut converted);
            assert_eq!(converted, divided, "{times:?}");
            assert_eq!(same, divided.windows(2).any(|pair| pair[0] == pair[1]));
        }
    }
}
