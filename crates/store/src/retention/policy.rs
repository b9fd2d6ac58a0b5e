//! How long databases keep what.

use codec::{DecodeError, Reader, varint};

/// Steps of folding that a policy may have.
const FOLDS_MAX: usize = 16;

/// Marks the class of a strict database.
const STRICT: u64 = 1 << 32;

/// How a database keeps its data. Databases that were given the same policy while they were empty share parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabasePolicy {
    /// How long rows are kept, in nanoseconds; 0: for ever.
    pub retention_ns: i64,
    /// From which age samples are replaced by summaries, and of which width, both in nanoseconds; youngest first. Every width
    /// divides the next.
    pub folds: Vec<(i64, i64)>,
    /// True if queries fail whose answer would be made of what folding left: the rule is at [`model::Folds`].
    pub is_strict: bool,
    /// The retention class of what is written now: parts hold rows of one class. Set by the store.
    pub class: u32,
    /// Rows before this are gone though the present policy would keep them: an earlier one did not. Set by the store.
    pub floor_ns: i64,
    /// Classes of what was written under earlier policies, oldest first: numbers only grow. Set by the store.
    pub earlier_classes: Vec<u32>,
}

impl Default for DatabasePolicy {
    fn default() -> Self {
        Self {
            retention_ns: 0,
            folds: Vec::new(),
            is_strict: false,
            class: 0,
            floor_ns: i64::MIN,
            earlier_classes: Vec::new(),
        }
    }
}

impl DatabasePolicy {
    /// The oldest timestamp that is not past keeping by its age.
    pub(crate) const fn oldest_by_age_ns(&self, now_ns: i64) -> i64 {
        if self.retention_ns > 0 { now_ns.saturating_sub(self.retention_ns) } else { i64::MIN }
    }

    /// Fails with the reason if the policy is not valid.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.retention_ns < 0 {
            return Err("retention must not be negative (0 keeps everything)".to_owned());
        }
        if self.folds.len() > FOLDS_MAX {
            return Err(format!("at most {FOLDS_MAX} folding steps"));
        }
        if self.folds.iter().any(|(age_ns, width_ns)| *age_ns <= 0 || *width_ns <= 0) {
            return Err("ages and widths of folding must be positive".to_owned());
        }
        if let Some((age_ns, width_ns)) = self.folds.iter().find(|(age_ns, width_ns)| width_ns > age_ns) {
            let [age, width] = [age_ns, width_ns].map(|ns| length_text(*ns));
            return Err(format!(
                "a folding step is an age and a shorter width, so {age}:{width} would make summaries of {width} from samples \
                 that are {age} old: write {width}:{age} for summaries of {age} from samples older than {width}"
            ));
        }
        let grows = |pair: &[(i64, i64)]| match pair {
            [(age, width), (next_age, next_width)] => next_age > age && next_width > width && next_width % width == 0,
            _ => true,
        };
        if !self.folds.windows(2).all(grows) {
            return Err(
                "folding steps must grow in age, and each width must be a multiple of the one before".to_owned()
            );
        }
        Ok(())
    }

    /// Returns whether rows of a class are its.
    pub(crate) fn has_class(&self, class: u32) -> bool {
        self.class == class || self.earlier_classes.contains(&class)
    }

    /// Returns whether both keep data in the same way.
    pub(crate) fn retains_like(&self, other: &Self) -> bool {
        self.retention_ns == other.retention_ns && self.folds == other.folds
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        varint::push(out, u64::from(self.class) | if self.is_strict { STRICT } else { 0 });
        varint::push_signed(out, self.retention_ns);
        varint::push_signed(out, self.floor_ns);
        varint::push(out, self.folds.len() as u64);
        for (age_ns, width_ns) in &self.folds {
            varint::push_signed(out, *age_ns);
            varint::push_signed(out, *width_ns);
        }
        varint::push(out, self.earlier_classes.len() as u64);
        self.earlier_classes.iter().for_each(|class| varint::push(out, u64::from(*class)));
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number =
            |reader: &mut Reader<'_>| u32::try_from(reader.varint()?).map_err(|_| reader.error("class beyond 32 bits"));
        let packed = reader.varint()?;
        let is_strict = packed & STRICT != 0;
        let class = u32::try_from(packed & !STRICT).map_err(|_| reader.error("class beyond 32 bits"))?;
        let (retention_ns, floor_ns) = (reader.varint_signed()?, reader.varint_signed()?);
        let count = reader.length(FOLDS_MAX)?;
        let folds = (0..count).map(|_| Ok((reader.varint_signed()?, reader.varint_signed()?)));
        let folds = folds.collect::<Result<_, _>>()?;
        let count = reader.length(reader.rest().len())?;
        let earlier_classes = (0..count).map(|_| number(reader)).collect::<Result<_, _>>()?;
        Ok(Self { retention_ns, folds, is_strict, class, floor_ns, earlier_classes })
    }
}

/// A length of time in the largest unit that it is whole in.
pub(crate) fn length_text(ns: i64) -> String {
    let units = [("d", 86_400_000_000_000), ("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000)];
    let whole = units.into_iter().find(|(_, unit_ns)| ns % unit_ns == 0);
    whole.map_or_else(|| format!("{ns}ns"), |(unit, unit_ns)| format!("{}{unit}", ns / unit_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_steps_must_nest() {
        let check =
            |folds: &[(i64, i64)]| DatabasePolicy { folds: folds.to_vec(), ..DatabasePolicy::default() }.check();
        assert!(check(&[]).is_ok());
        assert!(check(&[(10, 5), (100, 60)]).is_ok());
        for bad in [&[(10, 0)][..], &[(10, 5), (5, 10)], &[(10, 5), (20, 7)]] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        let swapped = check(&[(300_000_000_000, 30 * 86_400_000_000_000)]).unwrap_err();
        assert!(swapped.contains("5m:30d") && swapped.contains("write 30d:5m"), "{swapped}");
    }

    #[test]
    fn policies_come_back() {
        for is_strict in [false, true] {
            let policy =
                DatabasePolicy { folds: vec![(10, 5)], is_strict, class: u32::MAX, ..DatabasePolicy::default() };
            let mut bytes = Vec::new();
            policy.encode(&mut bytes);
            assert_eq!(DatabasePolicy::decode(&mut Reader::new(&bytes)).unwrap(), policy);
        }
    }
}
