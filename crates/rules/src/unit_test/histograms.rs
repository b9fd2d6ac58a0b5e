//! The notation of native histograms: `{{schema:1 count:4 sum:10 buckets:[1 2 1]}}`, as promtool reads and writes it.

use std::sync::Arc;

use model::NativeHistogram;
use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout};
use promql::Histogram;

use super::number_text;

/// Buckets of a side.
const BUCKETS_MAX: usize = 10_000;

/// Reads one.
pub(super) fn parse(text: &str) -> Result<Histogram, String> {
    let inside = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
    let inside =
        inside.ok_or_else(|| format!("{text:?} is no histogram, such as {{{{schema:0 count:1 buckets:[1]}}}}"))?;
    let mut read = Read::default();
    let mut rest = inside.trim_start();
    while !rest.is_empty() {
        let (name, value) =
            rest.split_once(':').ok_or_else(|| format!("{rest:?}: expected a field such as count:4"))?;
        let end = match value.strip_prefix('[') {
            Some(list) => list.find(']').ok_or_else(|| format!("{name}: missing ]"))? + 2,
            None => value.find(char::is_whitespace).unwrap_or(value.len()),
        };
        let (value, behind) = value.split_at(end);
        read.take(name.trim(), value).map_err(|reason| format!("{name}: {reason}"))?;
        rest = behind.trim_start();
    }
    let native = read.finish();
    native.validate().map_err(|error| format!("{text}: {error}"))?;
    Ok(Histogram::from(&native))
}

/// Fields as they are read.
#[derive(Default)]
struct Read {
    layout: HistogramLayout,
    offsets: [i32; 2],
    counts: Counts<f64>,
    sum: f64,
    counter_reset: CounterReset,
}

impl Read {
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "schema" => self.layout.schema = whole(value)?,
            "sum" => self.sum = number(value)?,
            "count" => self.counts.count = number(value)?,
            "z_bucket" => self.counts.zero_count = number(value)?,
            "z_bucket_w" => self.layout.zero_threshold = number(value)?,
            "buckets" => self.counts.positive = list(value)?,
            "n_buckets" => self.counts.negative = list(value)?,
            "offset" => self.offsets[0] = whole(value)?,
            "n_offset" => self.offsets[1] = whole(value)?,
            "custom_values" => self.layout.custom_bounds = list(value)?,
            "counter_reset_hint" => {
                self.counter_reset = match value {
                    "unknown" => CounterReset::Unknown,
                    "reset" => CounterReset::Reset,
                    "not_reset" => CounterReset::NoReset,
                    "gauge" => CounterReset::Gauge,
                    other => return Err(format!("{other:?} is none of unknown, reset, not_reset, gauge")),
                }
            }
            _ => {
                return Err(
                    "unknown field; there are schema, sum, count, z_bucket, z_bucket_w, buckets, offset, n_buckets, \
                            n_offset, custom_values, counter_reset_hint"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    fn finish(self) -> NativeHistogram {
        let Self { mut layout, offsets: [offset, negative_offset], counts, sum, counter_reset } = self;
        let spans = |offset, buckets: &[f64]| match buckets.len() {
            0 => Vec::new(),
            length => vec![BucketSpan { offset, length: length as u32 }],
        };
        layout.positive_spans = spans(offset, &counts.positive);
        layout.negative_spans = spans(negative_offset, &counts.negative);
        NativeHistogram { layout: Arc::new(layout), counter_reset, sum, counts: HistogramCounts::Float(counts) }
    }
}

fn number(text: &str) -> Result<f64, String> {
    super::values::number(text).ok_or_else(|| format!("{text:?} is no number"))
}

fn whole<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no whole number in range"))
}

fn list(text: &str) -> Result<Vec<f64>, String> {
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inside = inside.ok_or_else(|| format!("{text:?} is no list such as [1 2]"))?;
    let numbers = inside.split_whitespace().map(number).collect::<Result<Vec<f64>, String>>()?;
    if numbers.len() > BUCKETS_MAX { Err(format!("more than {BUCKETS_MAX} buckets")) } else { Ok(numbers) }
}

/// Writes one.
pub(super) fn text(histogram: &Histogram) -> String {
    let (schema, zero_threshold, zero_count, bounds) = histogram.layout();
    let mut fields = Vec::new();
    if schema != 0 {
        fields.push(format!("schema:{schema}"));
    }
    let numbers = [
        ("count", histogram.count()),
        ("sum", histogram.sum()),
        ("z_bucket", zero_count),
        ("z_bucket_w", zero_threshold),
    ];
    let named = numbers.into_iter().filter(|(_, value)| *value != 0.0);
    fields.extend(named.map(|(name, value)| format!("{name}:{}", number_text(value))));
    if !bounds.is_empty() {
        fields.push(format!("custom_values:{}", list_text(bounds)));
    }
    match histogram.counter_reset() {
        CounterReset::Reset => fields.push("counter_reset_hint:reset".to_owned()),
        CounterReset::Gauge => fields.push("counter_reset_hint:gauge".to_owned()),
        CounterReset::Unknown | CounterReset::NoReset => {}
    }
    for (buckets, (name, offset_name)) in
        histogram.indexed_buckets().into_iter().zip([("buckets", "offset"), ("n_buckets", "n_offset")])
    {
        let (offset, counts) = dense(buckets);
        if offset != 0 {
            fields.push(format!("{offset_name}:{offset}"));
        }
        if !counts.is_empty() {
            fields.push(format!("{name}:{}", list_text(&counts)));
        }
    }
    format!("{{{{{}}}}}", fields.join(" "))
}

/// The counts from the first bucket that is not empty to the last, and the index of the first.
fn dense(buckets: &[(i32, f64)]) -> (i32, Vec<f64>) {
    let mut populated = buckets.iter().filter(|(_, count)| *count != 0.0);
    let Some((first, _)) = populated.clone().next() else { return (0, Vec::new()) };
    let last = populated.next_back().map_or(*first, |(last, _)| *last);
    let length = usize::try_from(i64::from(last) - i64::from(*first) + 1).unwrap_or_default().min(BUCKETS_MAX);
    let mut counts = vec![0.0; length];
    for (index, count) in buckets {
        let place = usize::try_from(i64::from(*index) - i64::from(*first));
        if let Some(cell) = place.ok().and_then(|place| counts.get_mut(place)) {
            *cell = *count;
        }
    }
    (*first, counts)
}

fn list_text(numbers: &[f64]) -> String {
    format!("[{}]", numbers.iter().map(|value| number_text(*value)).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written() {
        for whole in [
            "{{}}",
            "{{schema:1 count:32.1 sum:-0.3 z_bucket:7.1 z_bucket_w:0.05 offset:-3 buckets:[5.1 0 7] n_offset:-5 n_buckets:[4.1 5]}}",
            "{{schema:-53 count:3 sum:7 custom_values:[1 2.5] buckets:[1 0 2]}}",
            "{{count:2 sum:3 counter_reset_hint:gauge buckets:[2]}}",
        ] {
            assert_eq!(text(&parse(whole).unwrap()), whole);
        }
        // Empty buckets at the ends have no part in it, and neither has a hint that nothing was reset.
        let padded = parse("{{count:3 counter_reset_hint:not_reset buckets:[0 1 2 0] sum:1}}").unwrap();
        assert_eq!(text(&padded), "{{count:3 sum:1 offset:1 buckets:[1 2]}}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (wrong, reason) in [
            ("{count:1}", "no histogram"),
            ("{{cuont:1}}", "unknown field"),
            ("{{count:x}}", "no number"),
            ("{{schema:1.5}}", "no whole number"),
            ("{{buckets:[1 2}}", "missing ]"),
            ("{{buckets:1}}", "no list"),
            ("{{counter_reset_hint:maybe}}", "none of unknown"),
            ("{{schema:100 count:1 buckets:[1]}}", "schema"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(reason), "{wrong}: {error}");
        }
    }
}
