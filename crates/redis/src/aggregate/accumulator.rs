//! What samples add up to.

use super::Sample;

/// How the samples of a bucket, or of series at one time, become a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aggregator {
    /// Arithmetic mean.
    Avg,
    /// Sum.
    Sum,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Difference of the largest and the smallest value.
    Range,
    /// Values that are numbers.
    Count,
    /// Value of the first sample.
    First,
    /// Value of the last sample.
    Last,
    /// Standard deviation of a population.
    StdP,
    /// Standard deviation of a sample.
    StdS,
    /// Variance of a population.
    VarP,
    /// Variance of a sample.
    VarS,
    /// Mean weighted by time.
    Twa,
    /// Values that are NaN.
    CountNan,
    /// All values.
    CountAll,
}

impl Aggregator {
    /// All of them, with their names in requests and replies.
    pub const ALL: [(&'static str, Self); 15] = [
        ("avg", Self::Avg),
        ("sum", Self::Sum),
        ("min", Self::Min),
        ("max", Self::Max),
        ("range", Self::Range),
        ("count", Self::Count),
        ("first", Self::First),
        ("last", Self::Last),
        ("std.p", Self::StdP),
        ("std.s", Self::StdS),
        ("var.p", Self::VarP),
        ("var.s", Self::VarS),
        ("twa", Self::Twa),
        ("countnan", Self::CountNan),
        ("countall", Self::CountAll),
    ];

    /// One by its name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, aggregator)| *aggregator)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Returns whether series may be reduced by it: times have no part in that.
    pub const fn is_reducer(self) -> bool {
        !matches!(self, Self::First | Self::Last | Self::Twa)
    }
}

/// Sums of samples in order of time. Values that are NaN are counted and take no other part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accumulator {
    count: u64,
    nan: u64,
    sum: f64,
    min: f64,
    max: f64,
    first: f64,
    last: f64,
    /// Welford's mean and sum of squared differences.
    mean: f64,
    squares: f64,
}

impl Default for Accumulator {
    fn default() -> Self {
        Self {
            count: 0,
            nan: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            first: f64::NAN,
            last: f64::NAN,
            mean: 0.0,
            squares: 0.0,
        }
    }
}

impl Accumulator {
    pub(super) fn push(&mut self, (_, value): Sample) {
        if value.is_nan() {
            self.nan += 1;
            return;
        }
        if self.count == 0 {
            self.first = value;
        }
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.last = value;
        let difference = value - self.mean;
        self.mean += difference / self.count as f64;
        self.squares += difference * (value - self.mean);
    }

    /// The value by an aggregator that does not weigh by time; NaN where there is none.
    pub(super) fn value(&self, aggregator: Aggregator) -> f64 {
        let count = self.count as f64;
        let of_values = |value: f64| if self.count == 0 { f64::NAN } else { value };
        let of_sample = if self.count == 1 { 0.0 } else { self.squares / (count - 1.0) };
        match aggregator {
            Aggregator::Avg | Aggregator::Twa => of_values(self.sum / count),
            Aggregator::Sum => self.sum,
            Aggregator::Min => of_values(self.min),
            Aggregator::Max => of_values(self.max),
            Aggregator::Range => of_values(self.max - self.min),
            Aggregator::Count => count,
            Aggregator::First => self.first,
            Aggregator::Last => self.last,
            Aggregator::VarP => of_values(self.squares / count),
            Aggregator::StdP => of_values((self.squares / count).sqrt()),
            Aggregator::VarS => of_values(of_sample),
            Aggregator::StdS => of_values(of_sample.sqrt()),
            Aggregator::CountNan => self.nan as f64,
            Aggregator::CountAll => (self.count + self.nan) as f64,
        }
    }

    /// Returns whether a bucket has a value: buckets of nothing but NaN are counted, and have no other value.
    pub(super) const fn has_value(&self, aggregator: Aggregator) -> bool {
        match aggregator {
            Aggregator::CountNan | Aggregator::CountAll => self.count + self.nan > 0,
            _ => self.count > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_their_definitions() {
        let mut found = Accumulator::default();
        [2.0, 4.0, f64::NAN, 9.0].into_iter().enumerate().for_each(|(time, value)| found.push((time as i64, value)));
        let variance: f64 = (9.0 + 1.0 + 16.0) / 3.0;
        let expected = [
            ("avg", 5.0),
            ("sum", 15.0),
            ("min", 2.0),
            ("max", 9.0),
            ("range", 7.0),
            ("count", 3.0),
            ("first", 2.0),
            ("last", 9.0),
            ("var.p", variance),
            ("std.p", variance.sqrt()),
            ("var.s", 13.0),
            ("std.s", 13.0f64.sqrt()),
            ("countnan", 1.0),
            ("countall", 4.0),
        ];
        for (name, value) in expected {
            let aggregator = Aggregator::from_name(&name.to_uppercase()).unwrap();
            assert!((found.value(aggregator) - value).abs() < 1e-12, "{name}");
            assert_eq!(aggregator.name(), name);
        }
        assert!(Accumulator::default().value(Aggregator::Avg).is_nan());
    }
}
