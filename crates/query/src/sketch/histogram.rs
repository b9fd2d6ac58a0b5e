//! How many of many numbers lie in each of some ranges of equal width: the histogram of `TimescaleDB`, whose buckets are those of Postgres's `width_bucket`.
//!
//! The histogram of two sets of numbers is the sum of theirs, bucket by bucket. As text it is described in `docs/formats/sketches.md`.

use std::fmt::Write;

/// Numbers of a histogram that is read, at most.
const NUMBERS_MAX: u64 = 1 << 48;

/// Why some histograms have no sum.
const MIXED: &str =
    "histograms of different numbers of buckets cannot be put together: make them with the same low, high and buckets";

/// Bytes that a count has in a text, at most, with what is between it and the next.
const COUNT_TEXT_BYTES: usize = 21;

/// Ranges of equal width between two numbers, and one on each side of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Buckets {
    low: f64,
    high: f64,
    count: u32,
}

impl Buckets {
    /// Ranges between two numbers, at most.
    pub const COUNT_MAX: u32 = 1_000;

    /// So many ranges from one number to right before another.
    ///
    /// # Errors
    /// If the first number is not below the second, one of both is not finite, or there are no ranges or too many; the text says which.
    pub fn new(low: f64, high: f64, count: i64) -> Result<Self, String> {
        if !low.is_finite() || !high.is_finite() || low >= high {
            return Err(format!(
                "the buckets of a histogram lie between a number and a larger one, not between {low} and {high}"
            ));
        }
        match u32::try_from(count).ok().filter(|count| (1..=Self::COUNT_MAX).contains(count)) {
            // Zero has no sign, by which names of columns would differ.
            Some(count) => Ok(Self { low: low + 0.0, high: high + 0.0, count }),
            None => Err(format!("a histogram has 1 to {} buckets, not {count}", Self::COUNT_MAX)),
        }
    }

    /// Its numbers as texts of plans have them: from where to where, and how many.
    pub fn parts(&self) -> (f64, f64, u32) {
        (self.low, self.high, self.count)
    }

    /// The counts of its histograms: of each range, and of what is below and above all.
    const fn counts(self) -> usize {
        self.count as usize + 2
    }

    /// The bytes of memory of a histogram.
    pub const fn histogram_bytes(self) -> usize {
        size_of::<Histogram>() + self.counts() * size_of::<u64>()
    }

    /// The place of a number's count. What is no number comes after all others, as in quantiles.
    fn bucket_of(self, number: f64) -> usize {
        let last = self.count as usize + 1;
        if number < self.low {
            return 0;
        }
        if number.is_nan() || number >= self.high {
            return last;
        }
        let width = self.high - self.low;
        let share = if width.is_finite() {
            (number - self.low) / width
        } else {
            (number / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0)
        };
        // A quotient of what is less than one may be rounded to it.
        1 + ((share * f64::from(self.count)) as usize).min(last - 2)
    }
}

/// Counts of numbers in ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// Of what is below all ranges, of each range, and of what is above them. Empty for the sum of none.
    counts: Vec<u64>,
    /// True if one of other ranges was added: then nothing is known.
    is_mixed: bool,
}

impl Histogram {
    /// Of no numbers.
    pub fn new(buckets: Buckets) -> Self {
        Self { counts: vec![0; buckets.counts()], is_mixed: false }
    }

    /// The sum of no histograms, to which any can be added first.
    pub(super) const fn empty() -> Self {
        Self { counts: Vec::new(), is_mixed: false }
    }

    /// Of some numbers.
    pub fn of_numbers(buckets: Buckets, numbers: &[f64]) -> Self {
        let mut histogram = Self::new(buckets);
        numbers.iter().for_each(|number| histogram.add(buckets, *number));
        histogram
    }

    /// Adds a number by the ranges that it was made with.
    pub fn add(&mut self, buckets: Buckets, number: f64) {
        if let Some(count) = self.counts.get_mut(buckets.bucket_of(number)) {
            *count = count.saturating_add(1);
        }
    }

    /// Adds the numbers of another one.
    ///
    /// # Errors
    /// If it has not as many ranges.
    pub fn add_all(&mut self, other: &Self) -> Result<(), String> {
        self.merge(other);
        if self.is_mixed { Err(MIXED.to_owned()) } else { Ok(()) }
    }

    /// Adds the numbers of another one. If it has not as many ranges, [`Histogram::encode`] refuses the sum.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.is_empty() && !self.is_mixed {
            self.clone_from(other);
            return;
        }
        self.is_mixed |= other.is_mixed || !other.counts.is_empty() && other.counts.len() != self.counts.len();
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count = count.saturating_add(*more));
    }

    /// Bytes of memory that it has.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(self.counts.as_slice())
    }

    /// Bytes that its text has at most.
    pub(crate) fn own_text_bytes_max(&self) -> usize {
        self.counts.len() * COUNT_TEXT_BYTES + super::TEXT_BYTES
    }

    /// As text: the same numbers give the same text.
    ///
    /// # Errors
    /// If histograms of different ranges were put together.
    pub fn encode(&self) -> Result<String, String> {
        if self.is_mixed {
            return Err(MIXED.to_owned());
        }
        let mut text = String::from("{");
        for (place, count) in self.counts.iter().enumerate() {
            let _ = write!(text, "{}{count}", if place == 0 { "" } else { "," });
        }
        text.push('}');
        Ok(text)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// If it is not one that [`Histogram::encode`] wrote; the text says why.
    pub fn decode(text: &str) -> Result<Self, String> {
        let Some(inner) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) else {
            return Err(format!("{} is no histogram, such as {{0,2,5,0}}", super::excerpt(text)));
        };
        let mut counts = Vec::new();
        let mut total = 0u64;
        for count in inner.split(',') {
            let read = super::whole::<u64>(count).and_then(|count| Some((count, total.checked_add(count)?)));
            let Some((count, sum)) = read.filter(|(_, sum)| *sum <= NUMBERS_MAX) else {
                return Err(format!("{} is no count of a histogram, or too many", super::excerpt(count)));
            };
            total = sum;
            counts.push(count);
            if counts.len() > Buckets::COUNT_MAX as usize + 2 {
                return Err(format!("a histogram has at most {} buckets", Buckets::COUNT_MAX));
            }
        }
        counts.shrink_to_fit();
        if counts.len() < 3 {
            return Err(format!(
                "{} is no histogram: it has at least one bucket, and one on each side",
                super::excerpt(text)
            ));
        }
        Ok(Self { counts, is_mixed: false })
    }
}
