//! The notation of series: `1 2`, `0+10x5`, `1x3`, `_`, `_x4`, `stale`.

use crate::store::RuleValue;

/// Values of one series.
const VALUES_MAX: usize = 10_000_000;

/// The values of a series; `None` where it has none.
pub(super) fn parse(text: &str) -> Result<Vec<Option<RuleValue>>, String> {
    let mut values = Vec::new();
    for word in text.split_whitespace() {
        let (base, times) = match word.rsplit_once('x') {
            // `0x3` is three more zeros: Prometheus has no hexadecimal numbers here.
            Some((base, times)) => {
                let times: usize = times.parse().map_err(|_| bad(word))?;
                (base, Some(times))
            }
            None => (word, None),
        };
        if times.unwrap_or(1) > VALUES_MAX - values.len().min(VALUES_MAX) {
            return Err("the series has too many values".to_owned());
        }
        match base {
            "_" => values.extend(std::iter::repeat_n(None, times.unwrap_or(1))),
            "stale" => values.extend(std::iter::repeat_n(Some(RuleValue::Stale), times.map_or(1, |times| times + 1))),
            _ if base.starts_with("{{") => return Err("native histograms are not supported".to_owned()),
            _ => {
                let (first, step) = split(base).ok_or_else(|| bad(word))?;
                let count = times.map_or(1, |times| times + 1);
                values.extend((0..count).map(|at| Some(RuleValue::Float(first + step * at as f64))));
            }
        }
    }
    Ok(values)
}

fn bad(word: &str) -> String {
    format!("{word:?} is no value, such as 1, 0+10x5, _x3 or stale")
}

/// A number, and what is added to it each time.
fn split(text: &str) -> Option<(f64, f64)> {
    if let Some(only) = number(text) {
        return Some((only, 0.0));
    }
    // A sign after an exponent belongs to the number.
    let signs = text.char_indices().skip(1).filter(|(_, symbol)| matches!(symbol, '+' | '-'));
    signs.map(|(at, _)| text.split_at(at)).find_map(|(first, step)| Some((number(first)?, number(step)?)))
}

/// A number as PromQL spells it.
pub(super) fn number(text: &str) -> Option<f64> {
    let is_number = text.bytes().any(|byte| byte.is_ascii_digit()) || text.to_ascii_lowercase().ends_with(['f', 'n']);
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(text: &str) -> Vec<Option<f64>> {
        let parsed = parse(text).unwrap();
        let float = |value| match value {
            RuleValue::Float(value) => value,
            _ => -1000.0,
        };
        parsed.into_iter().map(|value| value.map(float)).collect()
    }

    #[test]
    fn notation() {
        assert_eq!(floats("1 2.5"), [Some(1.0), Some(2.5)]);
        assert_eq!(floats("0+10x2"), [Some(0.0), Some(10.0), Some(20.0)]);
        assert_eq!(floats("5-2x2"), [Some(5.0), Some(3.0), Some(1.0)]);
        assert_eq!(floats("-2-4x1"), [Some(-2.0), Some(-6.0)]);
        assert_eq!(floats("1x2 _ _x2 stale"), [Some(1.0), Some(1.0), Some(1.0), None, None, None, Some(-1000.0)]);
        assert_eq!(floats("1e-3+1e1x1"), [Some(0.001), Some(10.001)]);
        assert_eq!(floats("0x2"), [Some(0.0), Some(0.0), Some(0.0)]);
        assert!(floats("NaN")[0].unwrap().is_nan());
        for bad in ["x", "1xx", "1+x3", "-2+-4x1", "a+1x2", "1x99999999999"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
