//! How a regular database keeps its series.

use codec::{DecodeError, Reader, varint};

/// The shortest interval between two epochs, in nanoseconds: query languages have times of milliseconds.
const INTERVAL_NS_MIN: i64 = 1_000_000;

/// Bits of the byte of flags.
const FLOAT: u8 = 1;
const REFUSE: u8 = 2;
const MISSING: u8 = 4;

/// The type of all values of a regular database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EpochKind {
    /// Integers of 64 bits.
    #[default]
    Int,
    /// Floats of 64 bits.
    Float,
}

/// A value of a regular database.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EpochValue {
    /// Of a database of integers.
    Int(i64),
    /// Of a database of floats.
    Float(f64),
}

impl EpochValue {
    /// The value as a float.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// The value's 64 bits, as blocks have them.
    pub(crate) fn to_bits(self) -> i64 {
        match self {
            Self::Int(value) => value,
            Self::Float(value) => value.to_bits() as i64,
        }
    }

    pub(crate) fn from_bits(kind: EpochKind, bits: i64) -> Self {
        match kind {
            EpochKind::Int => Self::Int(bits),
            EpochKind::Float => Self::Float(f64::from_bits(bits as u64)),
        }
    }
}

/// How a regular database keeps its series: all of them have a value, or none, at the same moments, its epochs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RegularDefinition {
    /// Nanoseconds from one epoch to the next. Epochs are its multiples since 1970, UTC.
    pub interval_ns: i64,
    /// Nothing is written before this time.
    pub start_ns: i64,
    /// The type of all values.
    pub kind: EpochKind,
    /// What a series reads as in an epoch in which nothing was written for it; `None`: as missing.
    pub missing: Option<EpochValue>,
    /// True if a value that was written may be written again.
    pub may_overwrite: bool,
}

impl RegularDefinition {
    /// One whose values are integers, may be missing, and may be written again.
    pub const fn new(interval_ns: i64) -> Self {
        Self { interval_ns, start_ns: 0, kind: EpochKind::Int, missing: None, may_overwrite: true }
    }

    /// Fails with the reason if the definition is not valid.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.interval_ns < INTERVAL_NS_MIN {
            return Err(
                "the interval of a regular database is at least one millisecond, such as interval = '5m'".to_owned()
            );
        }
        let is_of_kind = matches!(
            (self.kind, self.missing),
            (_, None) | (EpochKind::Int, Some(EpochValue::Int(_))) | (EpochKind::Float, Some(EpochValue::Float(_)))
        );
        if is_of_kind { Ok(()) } else { Err("missing must have the type of the database's values".to_owned()) }
    }

    /// The number of the epoch that a time is in.
    pub fn epoch_at(&self, time_ns: i64) -> i64 {
        time_ns.div_euclid(self.interval_ns.max(1))
    }

    /// When an epoch begins; the timestamp of its values.
    pub fn time_of(&self, epoch: i64) -> i64 {
        epoch.saturating_mul(self.interval_ns)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        varint::push_signed(out, self.interval_ns);
        varint::push_signed(out, self.start_ns);
        let is_float = if self.kind == EpochKind::Float { FLOAT } else { 0 };
        let refuses = if self.may_overwrite { 0 } else { REFUSE };
        out.push(is_float | refuses | if self.missing.is_some() { MISSING } else { 0 });
        if let Some(missing) = self.missing {
            out.extend_from_slice(&missing.to_bits().to_le_bytes());
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (interval_ns, start_ns, flags) = (reader.varint_signed()?, reader.varint_signed()?, reader.byte()?);
        if interval_ns < INTERVAL_NS_MIN {
            return Err(reader.error("interval of a regular database too short"));
        }
        let kind = if flags & FLOAT == 0 { EpochKind::Int } else { EpochKind::Float };
        let missing = if flags & MISSING == 0 { None } else { Some(reader.u64()? as i64) };
        Ok(Self {
            interval_ns,
            start_ns,
            kind,
            missing: missing.map(|bits| EpochValue::from_bits(kind, bits)),
            may_overwrite: flags & REFUSE == 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_come_back() {
        let int = RegularDefinition { start_ns: -5, may_overwrite: false, ..RegularDefinition::new(300_000_000_000) };
        let float = RegularDefinition {
            kind: EpochKind::Float,
            missing: Some(EpochValue::Float(-0.5)),
            ..RegularDefinition::new(INTERVAL_NS_MIN)
        };
        let zero = RegularDefinition { missing: Some(EpochValue::Int(0)), ..int };
        for definition in [int, float, zero] {
            let mut bytes = Vec::new();
            definition.encode(&mut bytes);
            assert_eq!(RegularDefinition::decode(&mut Reader::new(&bytes)), Ok(definition));
            assert_eq!(definition.check(), Ok(()));
        }
        assert!(RegularDefinition { missing: Some(EpochValue::Float(0.0)), ..int }.check().is_err());
        assert!(RegularDefinition::new(0).check().is_err());
    }

    #[test]
    fn epochs_are_rounded_down() {
        let definition = RegularDefinition::new(300_000_000_000);
        assert_eq!(definition.time_of(definition.epoch_at(299_999_999_999)), 0);
        assert_eq!(definition.epoch_at(-1), -1);
        assert_eq!(definition.time_of(definition.epoch_at(600_000_000_001)), 600_000_000_000);
    }
}
