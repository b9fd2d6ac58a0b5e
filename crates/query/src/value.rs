//! Values of SQL and InfluxQL, and their types.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use model::Cell;

use crate::time;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SqlType {
    /// Not known: a null, or a text whose type its use decides.
    Unknown,
    /// `boolean`
    Bool,
    /// `bigint`
    Int,
    /// `integer`: the difference of two dates. Its values are those of `bigint`.
    Int4,
    /// `double precision`
    Float,
    /// `text`
    Text,
    /// `timestamptz`: an instant, in nanoseconds since the Unix epoch
    Timestamp,
    /// `timestamp`: a date and time of some clock
    LocalTimestamp,
    /// `date`
    Date,
    /// `interval`
    Interval,
}

const NS_PER_DAY: i64 = 86_400_000_000_000;

/// Bytes that a sample of the budget stands for.
const SAMPLE_BYTES: usize = 16;

/// A value of a row.
#[derive(Debug, Clone)]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that is not negative. SQL has none of these.
    Unsigned(u64),
    /// A number.
    Float(f64),
    /// A text.
    Text(Arc<str>),
    /// Nanoseconds since the Unix epoch.
    Timestamp(i64),
    /// A date and time of some clock, in nanoseconds since the Unix epoch as if it were UTC.
    LocalTimestamp(i64),
    /// The midnight of a day, in nanoseconds since the Unix epoch as if it were UTC.
    Date(i64),
    /// A length of time.
    Interval(Interval),
}

/// A length of time: neither months nor the days of a calendar have a fixed length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interval {
    /// Calendar months.
    pub months: i32,
    /// Calendar days.
    pub days: i32,
    /// Nanoseconds.
    pub ns: i64,
}

impl SqlType {
    /// Returns whether its values are whole numbers.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::Int | Self::Int4)
    }

    /// Its name in Postgres's `information_schema`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Int => "bigint",
            Self::Int4 => "integer",
            Self::Float => "double precision",
            Self::Unknown | Self::Text => "text",
            Self::Timestamp => "timestamp with time zone",
            Self::LocalTimestamp => "timestamp without time zone",
            Self::Date => "date",
            Self::Interval => "interval",
        }
    }

    /// The type of numbers of both; `None` if one is no number.
    pub const fn common_number(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Int | Self::Int4, Self::Int | Self::Int4) => Some(Self::Int),
            (
                Self::Int | Self::Int4 | Self::Float | Self::Unknown,
                Self::Int | Self::Int4 | Self::Float | Self::Unknown,
            ) => Some(Self::Float),
            _ => None,
        }
    }

    /// A type that holds values of both: of branches, of unions.
    #[must_use]
    pub fn unified(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, known) | (known, Self::Unknown) => known,
            (a, b) if a == b => a,
            (Self::Timestamp, Self::LocalTimestamp | Self::Date)
            | (Self::LocalTimestamp | Self::Date, Self::Timestamp) => Self::Timestamp,
            (Self::LocalTimestamp, Self::Date) | (Self::Date, Self::LocalTimestamp) => Self::LocalTimestamp,
            (a, b) => a.common_number(b).unwrap_or(Self::Text),
        }
    }
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// The samples that its text takes out of a budget: nothing if it is none, or one as short as a sample.
    pub fn text_samples(&self) -> usize {
        if let Self::Text(text) = self { text.len() / SAMPLE_BYTES } else { 0 }
    }

    /// As SQL has it: unsigned integers are signed ones, those beyond what these hold are floats.
    #[must_use]
    pub fn signed(self) -> Self {
        match self {
            Self::Unsigned(value) => i64::try_from(value).map_or(Self::Float(value as f64), Self::Int),
            other => other,
        }
    }

    /// Returns whether it is null.
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Its type.
    pub const fn sql_type(&self) -> SqlType {
        match self {
            Self::Null => SqlType::Unknown,
            Self::Bool(_) => SqlType::Bool,
            Self::Int(_) | Self::Unsigned(_) => SqlType::Int,
            Self::Float(_) => SqlType::Float,
            Self::Text(_) => SqlType::Text,
            Self::Timestamp(_) => SqlType::Timestamp,
            Self::LocalTimestamp(_) => SqlType::LocalTimestamp,
            Self::Date(_) => SqlType::Date,
            Self::Interval(_) => SqlType::Interval,
        }
    }

    /// The nanoseconds of an instant, of a date and time, or of a date.
    pub const fn time_ns(&self) -> Option<i64> {
        match self {
            Self::Timestamp(ns) | Self::LocalTimestamp(ns) | Self::Date(ns) => Some(*ns),
            _ => None,
        }
    }

    /// As a column of this type has it: whole numbers among floats are floats, so that equal numbers make equal rows.
    #[must_use]
    pub fn widened(self, to: SqlType) -> Self {
        match (self, to) {
            (Self::Int(value), SqlType::Float) => Self::Float(value as f64),
            (Self::Unsigned(value), SqlType::Float) => Self::Float(value as f64),
            (value, _) => value,
        }
    }

    /// As a number, if it is one or a text that says one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Unsigned(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// The order of two values, as SQL has it: NaN above all numbers; `None` if one is null or they have none.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        Some(match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Unsigned(a), Self::Unsigned(b)) => a.cmp(b),
            (Self::Int(a), Self::Unsigned(b)) => i128::from(*a).cmp(&i128::from(*b)),
            (Self::Unsigned(a), Self::Int(b)) => i128::from(*a).cmp(&i128::from(*b)),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Interval(a), Self::Interval(b)) => a.approximate_ns().cmp(&b.approximate_ns()),
            // A text beside something else is read as that: literals have no type of their own.
            (Self::Bool(a), Self::Text(text)) => a.cmp(&parse_bool(text)?),
            (Self::Text(text), Self::Bool(b)) => parse_bool(text)?.cmp(b),
            (a, b) if a.time_ns().is_some() || b.time_ns().is_some() => a.as_ns()?.cmp(&b.as_ns()?),
            (a, b) => compare_floats(a.number()?, b.number()?),
        })
    }

    /// A time, its text, or a number of nanoseconds since the epoch.
    fn as_ns(&self) -> Option<i64> {
        match self {
            Self::Int(ns) => Some(*ns),
            Self::Float(ns) => Some(*ns as i64),
            Self::Text(text) => time::parse(text),
            other => other.time_ns(),
        }
    }

    /// The order of rows: nulls last.
    pub fn order(&self, other: &Self) -> Ordering {
        match (self.is_null(), other.is_null()) {
            (false, false) => self.compare(other).unwrap_or_else(|| self.kind().cmp(&other.kind())),
            (a, b) => a.cmp(&b),
        }
    }

    /// An order of all values, as sorting needs it: values of several types stand apart, and whole numbers
    /// that are the same as floats are ordered among themselves.
    pub fn sort_order(&self, other: &Self) -> Ordering {
        let by_kind = match (self.is_null(), other.is_null()) {
            (false, false) => self.kind().cmp(&other.kind()),
            (a, b) => a.cmp(&b),
        };
        let by_number = || match (self, other) {
            (Self::Int(a), Self::Float(b)) => compare_floats(*a as f64, *b).then(Ordering::Less),
            (Self::Float(a), Self::Int(b)) => compare_floats(*a, *b as f64).then(Ordering::Greater),
            (Self::Unsigned(a), Self::Float(b)) => compare_floats(*a as f64, *b).then(Ordering::Less),
            (Self::Float(a), Self::Unsigned(b)) => compare_floats(*a, *b as f64).then(Ordering::Greater),
            _ => self.compare(other).unwrap_or(Ordering::Equal),
        };
        by_kind.then_with(by_number)
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Int(_) | Self::Unsigned(_) | Self::Float(_) => 2,
            Self::Text(_) => 3,
            Self::Timestamp(_) | Self::LocalTimestamp(_) | Self::Date(_) => 4,
            Self::Interval(_) => 5,
        }
    }
}

impl From<Cell<'_>> for Value {
    fn from(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Null => Self::Null,
            Cell::F64(value) => Self::Float(value),
            Cell::I64(value) => Self::Int(value),
            Cell::U64(value) => Self::Unsigned(value),
            Cell::Bool(value) => Self::Bool(value),
            Cell::Text(text) => Self::text(text),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl Interval {
    /// A length of so many months.
    pub const fn of_months(months: i32) -> Self {
        Self { months, days: 0, ns: 0 }
    }

    /// A length of so many nanoseconds.
    pub const fn of_ns(ns: i64) -> Self {
        Self { months: 0, days: 0, ns }
    }

    /// With months of 30 days and days of 24 hours, to compare.
    pub const fn approximate_ns(self) -> i128 {
        (self.months as i128 * 30 + self.days as i128) * NS_PER_DAY as i128 + self.ns as i128
    }

    /// With days of 24 hours: the width of bins, which are cut by the local clock.
    #[must_use]
    pub const fn with_even_days(self) -> Self {
        let ns = (self.days as i64).saturating_mul(NS_PER_DAY).saturating_add(self.ns);
        Self { months: self.months, days: 0, ns }
    }

    /// The sum of each part; `None` if one is out of range.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            months: self.months.checked_add(other.months)?,
            days: self.days.checked_add(other.days)?,
            ns: self.ns.checked_add(other.ns)?,
        })
    }

    /// Its opposite; `None` if a part has none.
    pub fn checked_neg(self) -> Option<Self> {
        let Self { months, days, ns } = self;
        Some(Self { months: months.checked_neg()?, days: days.checked_neg()?, ns: ns.checked_neg()? })
    }

    /// So many times the length, as Postgres computes it: a part of a month is one of 30 days, a part of a day one of 24 hours. Lengths of
    /// whole microseconds stay such. `None` if it is out of range.
    pub fn times(self, factor: f64) -> Option<Self> {
        // What floats make of a part that is a whole number of microseconds.
        let rounded = |part: f64| (part * 1e6).round_ties_even() / 1e6;
        let (months, days) = (f64::from(self.months) * factor, f64::from(self.days) * factor);
        let days_of_months = rounded((months - months.trunc()) * 30.0);
        let mut whole_days = days.trunc() + days_of_months.trunc();
        let mut seconds = rounded((days - days.trunc() + days_of_months.fract()) * 86_400.0);
        if seconds.abs() >= 86_400.0 {
            let over = (seconds / 86_400.0).trunc();
            whole_days += over;
            seconds -= over * 86_400.0;
        }
        let unit_ns = if self.ns % 1000 == 0 { 1e3 } else { 1.0 };
        let ns = (self.ns as f64 / unit_ns * factor + seconds * 1e9 / unit_ns).round_ties_even() * unit_ns;
        let fits = months.abs() < 2_147_483_648.0 && whole_days.abs() < 2_147_483_648.0 && ns.abs() < 9.2e18;
        fits.then_some(Self { months: months as i32, days: whole_days as i32, ns: ns as i64 })
    }
}

/// A boolean as Postgres reads it.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "t" | "true" | "yes" | "on" | "1" => Some(true),
        "f" | "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// NaN is equal to itself and above everything, as in Postgres.
fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Equality by which rows are grouped and made distinct: nulls are equal, `1` and `1.0` too.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Null, _) | (_, Self::Null) => false,
            (a, b) => a.kind() == b.kind() && a.compare(b) == Some(Ordering::Equal),
        }
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind().hash(state);
        match self {
            Self::Null => {}
            Self::Bool(value) => value.hash(state),
            Self::Int(value) => (*value as f64).to_bits().hash(state),
            Self::Unsigned(value) => (*value as f64).to_bits().hash(state),
            // Zeros are equal, and so is every NaN.
            Self::Float(value) if value.is_nan() => f64::NAN.to_bits().hash(state),
            Self::Float(value) => (value + 0.0).to_bits().hash(state),
            Self::Text(text) => text.hash(state),
            Self::Timestamp(ns) | Self::LocalTimestamp(ns) | Self::Date(ns) => ns.hash(state),
            Self::Interval(interval) => interval.approximate_ns().hash(state),
        }
    }
}

/// As Postgres writes it.
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => Ok(()),
            Self::Bool(value) => out.write_str(if *value { "t" } else { "f" }),
            Self::Int(value) => write!(out, "{value}"),
            Self::Unsigned(value) => write!(out, "{value}"),
            Self::Float(value) => out.write_str(&float(*value)),
            Self::Text(text) => out.write_str(text),
            Self::Timestamp(ns) | Self::LocalTimestamp(ns) => out.write_str(&time::format(*ns)),
            Self::Date(ns) => out.write_str(&time::format_date(*ns)),
            Self::Interval(interval) => out.write_str(&time::format_interval(*interval)),
        }
    }
}

/// The shortest text that is read as the same number; exponents where Postgres has them.
pub fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |exponent| ("-", exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorting_has_an_order_of_all_values() {
        // Whole numbers that one float is the same as, texts that are read as a time or a number beside one, and what is not a number.
        let big = 1i64 << 53;
        let mut values = vec![Value::Null, Value::Bool(true), Value::Int(0), Value::Int(i64::MAX), Value::Timestamp(0)];
        values.extend((-1..=1).map(|offset| Value::Int(big + offset)));
        values.extend([big as f64, f64::NAN, f64::INFINITY, -0.0, 0.0, i64::MAX as f64].map(Value::Float));
        values.extend(["1", "true", "2020-01-01", "1970-01-01", "x"].map(Value::text));
        for a in &values {
            for b in &values {
                assert_eq!(a.sort_order(b), b.sort_order(a).reverse(), "{a:?} {b:?}");
                for c in &values {
                    let is_sorted = a.sort_order(b).is_le() && b.sort_order(c).is_le();
                    assert!(!is_sorted || a.sort_order(c).is_le(), "{a:?} {b:?} {c:?}");
                }
            }
        }
    }
}
