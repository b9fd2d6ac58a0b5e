//! The notation of series: `1 2`, `0+10x5`, `1x3`, `_`, `_x4`, `stale`, `{{count:1 buckets:[1]}}+{{count:2 buckets:[2]}}x3`.

use std::sync::Arc;

use promql::Histogram;

use super::histograms;
use crate::store::RuleValue;

/// Values of one series.
const VALUES_MAX: usize = 10_000_000;

/// The values of a series; `None` where it has none.
pub(super) fn parse(text: &str) -> Result<Vec<Option<RuleValue>>, String> {
    let mut values = Vec::new();
    for word in words(text) {
        if word.starts_with("{{") {
            push_histograms(word, &mut values)?;
            continue;
        }
        let (base, times) = match word.rsplit_once('x') {
            // `0x3` is three more zeros: Prometheus has no hexadecimal numbers here.
            Some((base, times)) => {
                let times: usize = times.parse().map_err(|_| bad(word))?;
                (base, Some(times))
            }
            None => (word, None),
        };
        check_room(times, &values)?;
        match base {
            "_" => values.extend(std::iter::repeat_n(None, times.unwrap_or(1))),
            "stale" => values.extend(std::iter::repeat_n(Some(RuleValue::Stale), times.map_or(1, |times| times + 1))),
            _ => {
                let (first, step) = split(base).ok_or_else(|| bad(word))?;
                let count = times.map_or(1, |times| times + 1);
                values.extend((0..count).map(|at| Some(RuleValue::Float(first + step * at as f64))));
            }
        }
    }
    Ok(values)
}

fn check_room(times: Option<usize>, values: &[Option<RuleValue>]) -> Result<(), String> {
    if times.unwrap_or(1) > VALUES_MAX - values.len().min(VALUES_MAX) {
        return Err("the series has too many values".to_owned());
    }
    Ok(())
}

/// The words of a text; blanks between double braces separate none.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start();
    std::iter::from_fn(move || {
        let mut is_inside = false;
        let end = rest.char_indices().find(|(at, symbol)| {
            is_inside = (is_inside || rest[*at..].starts_with("{{")) && !rest[..*at].ends_with("}}");
            symbol.is_whitespace() && !is_inside
        });
        let (word, behind) = rest.split_at_checked(end.map_or(rest.len(), |(at, _)| at))?;
        rest = behind.trim_start();
        Some(word).filter(|word| !word.is_empty())
    })
}

/// `{{…}}`, `{{…}}x3`, `{{…}}+{{…}}x3` or `{{…}}-{{…}}x3`.
fn push_histograms(word: &str, values: &mut Vec<Option<RuleValue>>) -> Result<(), String> {
    let (first, rest) = split_histogram(word)?;
    let (step, is_difference, rest) = match rest.strip_prefix(['+', '-']) {
        Some(step) => {
            let (step, behind) = split_histogram(step)?;
            (Some(step), rest.starts_with('-'), behind)
        }
        None => (None, false, rest),
    };
    let times = match rest.strip_prefix('x') {
        Some(times) => Some(times.parse().map_err(|_| bad(word))?),
        None if rest.is_empty() && step.is_none() => None,
        None => return Err(bad(word)),
    };
    check_room(times, values)?;
    let mut value = Arc::new(first);
    for _ in 0..times.unwrap_or_default() {
        values.push(Some(RuleValue::Histogram(value.clone())));
        if let Some(step) = &step {
            let next = value.combined(step, is_difference);
            value = Arc::new(next.ok_or_else(|| format!("{word}: the buckets of both have nothing in common"))?);
        }
    }
    values.push(Some(RuleValue::Histogram(value)));
    Ok(())
}

/// The histogram that a text begins with, and what follows it.
fn split_histogram(text: &str) -> Result<(Histogram, &str), String> {
    let end = text.find("}}").map(|at| at + 2).filter(|_| text.starts_with("{{")).ok_or_else(|| bad(text))?;
    let (histogram, rest) = text.split_at(end);
    Ok((histograms::parse(histogram)?, rest))
}

fn bad(word: &str) -> String {
    format!("{word:?} is no value, such as 1, 0+10x5, _x3, stale or {{{{count:1 buckets:[1]}}}}x3")
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
        let shown = |text: &str| {
            let values = parse(text).unwrap().into_iter().map(|value| match value {
                Some(RuleValue::Histogram(histogram)) => histograms::text(&histogram),
                other => format!("{other:?}"),
            });
            values.collect::<Vec<_>>()
        };
        assert_eq!(
            shown("{{count:1 buckets:[1]}}+{{count:2  buckets:[2]}}x2 _ {{sum:3}}x1"),
            [
                "{{count:1 buckets:[1]}}",
                "{{count:3 buckets:[3]}}",
                "{{count:5 buckets:[5]}}",
                "None",
                "{{sum:3}}",
                "{{sum:3}}"
            ]
        );
        assert_eq!(shown("{{count:3 buckets:[3]}}-{{count:2 buckets:[2]}}x1")[1], "{{count:1 buckets:[1]}}");
        for bad in [
            "{{count:1",
            "{{count:1}}y",
            "{{count:1}}+{{count:1}}",
            "{{count:1}}+2x3",
            "{{schema:-53 custom_values:[1]}}+{{count:1}}x1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for bad in ["x", "1xx", "1+x3", "-2+-4x1", "a+1x2", "1x99999999999"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
