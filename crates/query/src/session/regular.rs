//! Settings that make a database regular.

use store::{EpochKind, EpochValue, RegularDefinition};

use crate::Interval;
use crate::time::{parse, parse_interval};

const DAY_NS: i64 = 86_400_000_000_000;

/// What a series reads as where nothing was written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MissingValue {
    /// As missing.
    Null,
    /// A number.
    Number(f64),
}

/// What a statement or a request says of how a regular database keeps its series; what is left out stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegularSettings {
    /// Nanoseconds from one epoch to the next.
    pub interval_ns: Option<i64>,
    /// Nothing is written before this time.
    pub start_ns: Option<i64>,
    /// The type of all values.
    pub kind: Option<EpochKind>,
    /// What missing values read as.
    pub missing: Option<MissingValue>,
    /// Whether values may be written again.
    pub may_overwrite: Option<bool>,
}

impl RegularSettings {
    /// The settings' names.
    pub const NAMES: [&str; 5] = ["interval", "start", "value", "missing", "overwrite"];

    /// Takes a setting by its name; returns whether it is one of these.
    ///
    /// # Errors
    /// With what is wrong with the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "interval" => self.interval_ns = Some(interval(value)?),
            "start" => self.start_ns = Some(time(value)?),
            "value" => self.kind = Some(kind(value)?),
            "missing" => self.missing = Some(missing(value)?),
            "overwrite" => self.may_overwrite = Some(overwrite(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The definition of a database with these settings; `None` if it is not regular and none of them makes it so.
    ///
    /// # Errors
    /// With what is missing or does not fit.
    pub fn over(&self, known: Option<RegularDefinition>) -> Result<Option<RegularDefinition>, String> {
        if *self == Self::default() {
            return Ok(known);
        }
        let Some(interval_ns) = self.interval_ns.or(known.map(|known| known.interval_ns)) else {
            return Err(
                "start, value, missing and overwrite are settings of regular databases, which have an interval: \
                        add interval = '5m'"
                    .to_owned(),
            );
        };
        let known = known.unwrap_or(RegularDefinition::new(interval_ns));
        let kind = self.kind.unwrap_or(known.kind);
        let missing = match self.missing {
            None => known.missing,
            Some(MissingValue::Null) => None,
            Some(MissingValue::Number(value)) => Some(value_of(kind, value)?),
        };
        Ok(Some(RegularDefinition {
            interval_ns,
            start_ns: self.start_ns.unwrap_or(known.start_ns),
            kind,
            missing,
            may_overwrite: self.may_overwrite.unwrap_or(known.may_overwrite),
        }))
    }
}

fn interval(text: &str) -> Result<i64, String> {
    // A bare number would be seconds.
    let found = if text.trim().parse::<f64>().is_ok() { None } else { parse_interval(text) };
    // Epochs are those of UTC, where a day is a day.
    let length = |found: Interval| i64::from(found.days).checked_mul(DAY_NS)?.checked_add(found.ns);
    let ns = found.filter(|found| found.months == 0).and_then(length).filter(|ns| *ns > 0);
    ns.ok_or_else(|| {
        format!("interval: {text:?} is no length of time that is the same everywhere: write it as 5m, 1h or 1d")
    })
}

fn time(text: &str) -> Result<i64, String> {
    let seconds = text.parse::<i64>().ok().and_then(|seconds| seconds.checked_mul(1_000_000_000));
    seconds.or_else(|| parse(text)).ok_or_else(|| {
        format!("start: {text:?} is no time: write it as 2026-01-01, 2026-01-01T00:00:00Z or seconds since 1970")
    })
}

fn kind(text: &str) -> Result<EpochKind, String> {
    match text.to_ascii_lowercase().as_str() {
        "int" | "integer" | "bigint" => Ok(EpochKind::Int),
        "float" | "double" => Ok(EpochKind::Float),
        _ => Err(format!("value: {text:?} is neither int nor float")),
    }
}

fn missing(text: &str) -> Result<MissingValue, String> {
    if text.eq_ignore_ascii_case("null") {
        return Ok(MissingValue::Null);
    }
    text.parse().map(MissingValue::Number).map_err(|_| format!("missing: {text:?} is neither null nor a number"))
}

fn overwrite(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "allow" => Ok(true),
        "refuse" => Ok(false),
        _ => Err(format!("overwrite: {text:?} is neither allow nor refuse")),
    }
}

fn value_of(kind: EpochKind, value: f64) -> Result<EpochValue, String> {
    match kind {
        EpochKind::Float => Ok(EpochValue::Float(value)),
        EpochKind::Int if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 => {
            Ok(EpochValue::Int(value as i64))
        }
        EpochKind::Int => {
            Err(format!("missing: {value} is no integer, and the values of the database are (value = int)"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_a_definition() {
        let mut settings = RegularSettings::default();
        for (name, value) in
            [("interval", "5m"), ("start", "2026-01-01"), ("value", "int"), ("missing", "0"), ("overwrite", "refuse")]
        {
            assert_eq!(settings.set(name, value), Ok(true));
        }
        assert_eq!(settings.set("retention", "1d"), Ok(false));
        for (text, interval_ns) in [("1d", DAY_NS), ("1 day 12 hours", DAY_NS / 2 * 3), ("24h", DAY_NS)] {
            let mut daily = RegularSettings::default();
            assert_eq!((daily.set("interval", text), daily.interval_ns), (Ok(true), Some(interval_ns)));
        }
        let made = settings.over(None).unwrap().unwrap();
        assert_eq!(made.interval_ns, 300_000_000_000);
        assert_eq!(made.start_ns, 1_767_225_600_000_000_000);
        assert_eq!(made.missing, Some(EpochValue::Int(0)));
        assert!(!made.may_overwrite);
        let allowing = RegularSettings { may_overwrite: Some(true), ..RegularSettings::default() };
        assert_eq!(allowing.over(Some(made)), Ok(Some(RegularDefinition { may_overwrite: true, ..made })));
        assert_eq!(RegularSettings::default().over(None), Ok(None));
        assert!(allowing.over(None).unwrap_err().contains("interval"));
        for (name, value) in [
            ("interval", "300"),
            ("interval", "1 month"),
            ("start", "soon"),
            ("value", "text"),
            ("missing", "x"),
            ("overwrite", "no"),
        ] {
            assert!(settings.set(name, value).unwrap_err().starts_with(name), "{name} {value}");
        }
        assert!(RegularSettings { missing: Some(MissingValue::Number(0.5)), ..settings }.over(None).is_err());
    }
}
