//! Quantiles of many numbers in little room: a `DDSketch` (Masson, Rim and Lee, "`DDSketch`: A Fast and Fully-Mergeable Quantile Sketch with
//! Relative-Error Guarantees", 2019).
//!
//! Numbers are counted in bins, each a fiftieth wider than the one before: a quantile is wrong by a hundredth of its value at most. The sketch of two
//! sets of numbers is that of both, bin by bin, whatever the order. As text it is described in `docs/formats/sketches.md`.

use std::collections::BTreeMap;
use std::fmt::Write;

/// How wrong a quantile may be, as a share of its value.
const ACCURACY: f64 = 0.01;

/// The range of bins of one sign: those that are smaller count in the smallest of them. It spans seventeen powers of ten.
const BINS_MAX: i64 = 2_048;

/// Indexes of bins of finite numbers lie within this.
const INDEX_MAX: i64 = 40_000;

/// The first word of a text.
const VERSION: &str = "q1";

/// Bytes of memory that a bin has at most, with what a tree leaves empty.
const BIN_BYTES: usize = 48;

/// Bytes that a bin has in a text, at most.
const BIN_TEXT_BYTES: usize = 28;

/// Counts of numbers by their size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuantileSketch {
    negative_infinite: u64,
    /// By the index of the bin of the number without its sign.
    negative: BTreeMap<i64, u64>,
    zero: u64,
    positive: BTreeMap<i64, u64>,
    positive_infinite: u64,
    /// NaN comes after all others, as in other quantiles.
    nan: u64,
}

/// The quotient of the ends of a bin.
fn growth() -> f64 {
    (1.0 + ACCURACY) / (1.0 - ACCURACY)
}

/// The bin of a number above zero.
fn index_of(number: f64) -> i64 {
    ((number.ln() / growth().ln()).ceil() as i64).clamp(-INDEX_MAX, INDEX_MAX)
}

/// The number that stands for those of a bin.
fn number_of(index: i64) -> f64 {
    let number = (index as f64 * growth().ln()).exp() * 2.0 / (growth() + 1.0);
    number.clamp(f64::MIN_POSITIVE, f64::MAX)
}

/// Counts numbers of a bin; bins that are out of the range count in the smallest that is within it.
fn add_to(bins: &mut BTreeMap<i64, u64>, index: i64, count: u64) {
    let largest = bins.last_key_value().map_or(index, |(largest, _)| (*largest).max(index));
    let smallest = largest - BINS_MAX + 1;
    while let Some(entry) = bins.first_entry().filter(|entry| *entry.key() < smallest) {
        let below = entry.remove();
        let all = bins.entry(smallest).or_default();
        *all = all.saturating_add(below);
    }
    let all = bins.entry(index.max(smallest)).or_default();
    *all = all.saturating_add(count);
}

impl QuantileSketch {
    /// Of some numbers.
    pub fn of_numbers(numbers: &[f64]) -> Self {
        let mut sketch = Self::default();
        numbers.iter().for_each(|number| sketch.add(*number));
        sketch
    }

    /// Adds a number.
    pub fn add(&mut self, number: f64) {
        if number.is_nan() {
            self.nan = self.nan.saturating_add(1);
        } else if number == 0.0 {
            self.zero = self.zero.saturating_add(1);
        } else if number.is_infinite() {
            let count = if number > 0.0 { &mut self.positive_infinite } else { &mut self.negative_infinite };
            *count = count.saturating_add(1);
        } else {
            let bins = if number > 0.0 { &mut self.positive } else { &mut self.negative };
            add_to(bins, index_of(number.abs()), 1);
        }
    }

    /// Adds the numbers of another one.
    pub fn merge(&mut self, other: &Self) {
        self.negative_infinite = self.negative_infinite.saturating_add(other.negative_infinite);
        self.zero = self.zero.saturating_add(other.zero);
        self.positive_infinite = self.positive_infinite.saturating_add(other.positive_infinite);
        self.nan = self.nan.saturating_add(other.nan);
        for (bins, more) in [(&mut self.negative, &other.negative), (&mut self.positive, &other.positive)] {
            more.iter().for_each(|(index, count)| add_to(bins, *index, *count));
        }
    }

    /// Bytes of memory that it has, about.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + (self.negative.len() + self.positive.len()) * BIN_BYTES
    }

    /// Bytes of memory that merging another one takes at most.
    pub fn merge_bytes(&self, other: &Self) -> usize {
        let bins = [(&self.negative, &other.negative), (&self.positive, &other.positive)];
        let new = |(known, more): (&BTreeMap<i64, u64>, &BTreeMap<i64, u64>)| {
            more.keys().filter(|index| !known.contains_key(*index)).count()
        };
        bins.into_iter().map(new).sum::<usize>() * BIN_BYTES
    }

    /// Bytes that its text has at most.
    pub(crate) fn own_text_bytes_max(&self) -> usize {
        super::TEXT_BYTES + (self.negative.len() + self.positive.len()) * BIN_TEXT_BYTES
    }

    /// Bytes that the text of the sketch of so many numbers has at most.
    pub(crate) fn text_bytes_max(numbers: usize) -> usize {
        super::TEXT_BYTES + numbers.min(2 * BINS_MAX as usize) * BIN_TEXT_BYTES
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        let others = [self.negative_infinite, self.zero, self.positive_infinite, self.nan];
        let counts = self.negative.values().chain(self.positive.values()).copied().chain(others);
        counts.fold(0, u64::saturating_add)
    }

    /// About the number below which a share of them lies (0 to 1); `None` without numbers.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let count = self.count();
        let rank = (share.clamp(0.0, 1.0) * count.checked_sub(1)? as f64) as u64;
        let negative = self.negative.iter().rev().map(|(index, count)| (-number_of(*index), *count));
        let positive = self.positive.iter().map(|(index, count)| (number_of(*index), *count));
        let ordered = std::iter::once((f64::NEG_INFINITY, self.negative_infinite))
            .chain(negative)
            .chain([(0.0, self.zero)])
            .chain(positive)
            .chain([(f64::INFINITY, self.positive_infinite), (f64::NAN, self.nan)]);
        let mut below = 0u64;
        for (number, count) in ordered {
            below = below.saturating_add(count);
            if below > rank {
                return Some(number);
            }
        }
        None
    }

    /// As text: the same numbers give the same text.
    pub fn encode(&self) -> String {
        let mut text = format!("{VERSION}|{}|", self.negative_infinite);
        push_bins(&mut text, &self.negative);
        let _ = write!(text, "|{}|", self.zero);
        push_bins(&mut text, &self.positive);
        let _ = write!(text, "|{}|{}", self.positive_infinite, self.nan);
        text
    }

    /// Reads a text.
    ///
    /// # Errors
    /// If it is not one that [`QuantileSketch::encode`] wrote; the text says why.
    pub fn decode(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('|').collect();
        let [version, negative_infinite, negative, zero, positive, positive_infinite, nan] = parts.as_slice() else {
            return Err("it is no sketch of quantiles".to_owned());
        };
        if *version != VERSION {
            return Err(format!(
                "it is no sketch of quantiles, or one of a version that is not known: {}",
                super::excerpt(version)
            ));
        }
        let count =
            |text: &str| text.parse::<u64>().map_err(|error| format!("{} is no count: {error}", super::excerpt(text)));
        let sketch = Self {
            negative_infinite: count(negative_infinite)?,
            negative: read_bins(negative)?,
            zero: count(zero)?,
            positive: read_bins(positive)?,
            positive_infinite: count(positive_infinite)?,
            nan: count(nan)?,
        };
        let counts = sketch.negative.values().chain(sketch.positive.values());
        let others = [sketch.negative_infinite, sketch.zero, sketch.positive_infinite, sketch.nan];
        let total = counts.copied().chain(others).try_fold(0u64, u64::checked_add);
        // Sums of many of them have room, too.
        if total.is_none_or(|total| total > COUNT_MAX) {
            return Err("it counts more numbers than there can be".to_owned());
        }
        if sketch.encode() != text {
            return Err("it is not written as sketches are".to_owned());
        }
        Ok(sketch)
    }
}

/// Numbers of a sketch, at most.
const COUNT_MAX: u64 = 1 << 48;

/// `-3:5,1:2`: the index of the first bin and its count, then how much further each index is.
fn push_bins(text: &mut String, bins: &BTreeMap<i64, u64>) {
    let mut before = 0;
    for (place, (index, count)) in bins.iter().enumerate() {
        let separator = if place == 0 { "" } else { "," };
        let _ = write!(text, "{separator}{}:{count}", index - before);
        before = *index;
    }
}

fn read_bins(text: &str) -> Result<BTreeMap<i64, u64>, String> {
    let mut bins = BTreeMap::new();
    if text.is_empty() {
        return Ok(bins);
    }
    let (mut index, mut first) = (0i64, None);
    for pair in text.split(',') {
        let read =
            pair.split_once(':').and_then(|(step, count)| Some((step.parse::<i64>().ok()?, count.parse().ok()?)));
        let Some((step, count)) = read else { return Err(format!("{} is no bin and its count", super::excerpt(pair))) };
        index = index.saturating_add(step);
        let smallest = *first.get_or_insert(index);
        let is_next = step > 0 || smallest == index && bins.is_empty();
        if !is_next || !(-INDEX_MAX..=INDEX_MAX).contains(&index) || index - smallest >= BINS_MAX || count == 0 {
            return Err(format!("{} is no bin that can be there", super::excerpt(pair)));
        }
        bins.insert(index, count);
    }
    Ok(bins)
}
