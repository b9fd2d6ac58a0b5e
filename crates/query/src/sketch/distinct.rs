//! How many different values there are, in little room: `HyperLogLog` (Flajolet, Fusy, Gandouet and Meunier, "`HyperLogLog`: the analysis of a
//! near-optimal cardinality estimation algorithm", 2007) with 64 bits of hash, and linear counting where there are few values.
//!
//! The error is 1.6 % (a standard deviation). The sketch of two sets of values is that of both, whatever the order. As text it is described in
//! `docs/formats/sketches.md`.

use std::fmt::Write;

use xxhash_rust::xxh3::xxh3_64;

/// Bits of a hash that choose a register.
const PRECISION: u32 = 12;
/// Registers.
const REGISTERS: usize = 1 << PRECISION;
/// The largest rank: bits that are left of a hash, and one.
const RANK_MAX: u8 = (64 - PRECISION + 1) as u8;
/// Registers that have a value, up to which a text names each of them.
const SPARSE_MAX: usize = 512;

/// The first words of texts: of those that name registers, and of those that have all.
const SPARSE: &str = "d1s|";
const DENSE: &str = "d1|";

/// Why a text is refused that says something in another form.
const UNUSUAL: &str = "it is not written as sketches are";

/// The character of a register without a value; ranks follow it.
const DENSE_ZERO: u8 = b'0';

/// A sketch of values that tells how many of them differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistinctSketch {
    /// The largest rank of the values of each register; 0 for none.
    registers: Vec<u8>,
}

/// The hash by which a text is known.
pub(crate) fn text_hash(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}

impl Default for DistinctSketch {
    fn default() -> Self {
        Self { registers: vec![0; REGISTERS] }
    }
}

impl DistinctSketch {
    /// Bytes of memory that each has; of its text there are no more.
    pub const MEMORY_BYTES: usize = REGISTERS + 64;

    /// Of some numbers.
    pub fn of_numbers(numbers: &[f64]) -> Self {
        let mut sketch = Self::default();
        numbers.iter().for_each(|number| sketch.add_number(*number));
        sketch
    }

    /// Adds a number; all that is no number is one value, and so are both zeros.
    pub fn add_number(&mut self, number: f64) {
        let number = if number.is_nan() { f64::NAN } else { number + 0.0 };
        self.add_hash(xxh3_64(&number.to_bits().to_le_bytes()));
    }

    /// Adds a time, to the nanosecond.
    pub fn add_time(&mut self, ns: i64) {
        self.add_hash(xxh3_64(&ns.to_le_bytes()));
    }

    /// Adds a text.
    pub fn add_text(&mut self, text: &str) {
        self.add_hash(text_hash(text));
    }

    /// Of texts, by their hashes.
    pub(crate) fn of_hashes(hashes: &[u64]) -> Self {
        let mut sketch = Self::default();
        hashes.iter().for_each(|hash| sketch.add_hash(*hash));
        sketch
    }

    fn add_hash(&mut self, hash: u64) {
        let register = (hash >> (64 - PRECISION)) as usize;
        // A bit after the last one bounds the rank.
        let rest = (hash << PRECISION) | (1 << (PRECISION - 1));
        let rank = rest.leading_zeros() as u8 + 1;
        if let Some(known) = self.registers.get_mut(register) {
            *known = (*known).max(rank);
        }
    }

    /// Adds the values of another one.
    pub fn merge(&mut self, other: &Self) {
        self.registers.iter_mut().zip(&other.registers).for_each(|(known, rank)| *known = (*known).max(*rank));
    }

    /// About how many values there are.
    pub fn estimate(&self) -> u64 {
        let count = REGISTERS as f64;
        let (mut empty, mut sum) = (0usize, 0.0);
        for rank in &self.registers {
            empty += usize::from(*rank == 0);
            sum += (-f64::from(*rank)).exp2();
        }
        let raw = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let estimate = if raw <= 2.5 * count && empty > 0 { count * (count / empty as f64).ln() } else { raw };
        estimate.round() as u64
    }

    /// Bytes that the text of the sketch of so many values has at most.
    pub(crate) fn text_bytes_max(values: usize) -> usize {
        values.saturating_mul(8).saturating_add(super::TEXT_BYTES).min(Self::MEMORY_BYTES)
    }

    /// As text: the same values give the same text.
    pub fn encode(&self) -> String {
        let with_value = self.registers.iter().enumerate().filter(|(_, rank)| **rank > 0);
        if with_value.clone().count() > SPARSE_MAX {
            let ranks = self.registers.iter().map(|rank| char::from(DENSE_ZERO + rank));
            return DENSE.chars().chain(ranks).collect();
        }
        let mut text = SPARSE.to_owned();
        for (place, (register, rank)) in with_value.enumerate() {
            let separator = if place == 0 { "" } else { "," };
            let _ = write!(text, "{separator}{register}:{rank}");
        }
        text
    }

    /// Reads a text.
    ///
    /// # Errors
    /// If it is not one that [`DistinctSketch::encode`] wrote; the text says why.
    pub fn decode(text: &str) -> Result<Self, String> {
        let mut sketch = Self::default();
        sketch.merge_text(text)?;
        Ok(sketch)
    }

    /// Adds the values of a sketch that is a text; no memory is allocated for it.
    ///
    /// # Errors
    /// If [`DistinctSketch::encode`] did not write it; the text says why. Some of its registers may have been added.
    pub fn merge_text(&mut self, text: &str) -> Result<(), String> {
        if let Some(ranks) = text.strip_prefix(DENSE) {
            return self.merge_ranks(ranks);
        }
        let Some(named) = text.strip_prefix(SPARSE) else {
            return Err("it is no sketch of distinct values, or one of a version that is not known".to_owned());
        };
        let (mut next, mut count) = (0, 0);
        for pair in named.split(',').take(if named.is_empty() { 0 } else { usize::MAX }) {
            let read = pair
                .split_once(':')
                .and_then(|(at, rank)| Some((super::whole::<usize>(at)?, super::whole::<usize>(rank)?)));
            let known = read.and_then(|(at, rank)| Some((at, self.registers.get_mut(at)?, u8::try_from(rank).ok()?)));
            let Some((at, known, rank)) = known.filter(|(_, _, rank)| (1..=RANK_MAX).contains(rank)) else {
                return Err(format!("{} is no register and its rank", super::excerpt(pair)));
            };
            (count, *known) = (count + 1, (*known).max(rank));
            if at < next || count > SPARSE_MAX {
                return Err(UNUSUAL.to_owned());
            }
            next = at + 1;
        }
        Ok(())
    }

    /// Adds registers that are written as a character each.
    fn merge_ranks(&mut self, ranks: &str) -> Result<(), String> {
        if ranks.len() != REGISTERS {
            return Err(format!("a sketch of distinct values has {REGISTERS} registers, not {}", ranks.len()));
        }
        let mut with_value = 0;
        for (known, character) in self.registers.iter_mut().zip(ranks.bytes()) {
            let rank = character.checked_sub(DENSE_ZERO).filter(|rank| *rank <= RANK_MAX);
            let rank = rank.ok_or_else(|| format!("{:?} is no register", char::from(character)))?;
            with_value += usize::from(rank > 0);
            *known = (*known).max(rank);
        }
        if with_value > SPARSE_MAX { Ok(()) } else { Err(UNUSUAL.to_owned()) }
    }
}
