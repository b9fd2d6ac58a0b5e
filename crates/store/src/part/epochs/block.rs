//! The values of an epoch for [`BLOCK_SLOTS`] neighbouring indexes: a block is what is read of an epoch for one series.
//!
//! Layout: `docs/formats/epochs.md`. Values are columns of `codec`, those that are absent are left out or stand among the integers as one
//! that does not occur otherwise.

use codec::{DecodeError, Effort, Reader, float, integer, varint};

use super::definition::EpochKind;

/// Indexes of a block.
pub(crate) const BLOCK_SLOTS: usize = 2048;

/// Slots from 0 on hold values.
const PREFIX: u8 = 0;
/// The slots that hold values are listed.
const LIST: u8 = 1;
/// A bit for each slot.
const BITS: u8 = 2;
/// Of the integers one stands for an absent value.
const INLINE: u8 = 3;

/// With fewer values than one slot in so many has, slots are listed.
const LIST_SHARE: usize = 16;

const WORDS: usize = BLOCK_SLOTS / 64;

/// A block's values by slot.
pub(crate) struct Block {
    present: [u64; WORDS],
    values: Vec<i64>,
}

impl Block {
    pub(crate) fn empty() -> Self {
        Self { present: [0; WORDS], values: vec![0; BLOCK_SLOTS] }
    }

    /// Forgets all values.
    pub(crate) fn clear(&mut self) {
        self.present = [0; WORDS];
    }

    /// The bits of a slot's value.
    pub(crate) fn get(&self, slot: usize) -> Option<i64> {
        let word = self.present.get(slot / 64)?;
        if word >> (slot % 64) & 1 == 0 { None } else { self.values.get(slot).copied() }
    }

    pub(crate) fn set(&mut self, slot: usize, bits: i64) {
        if let (Some(word), Some(value)) = (self.present.get_mut(slot / 64), self.values.get_mut(slot)) {
            *word |= 1 << (slot % 64);
            *value = bits;
        }
    }

    /// Visits the values in order of slots.
    pub(crate) fn each(&self, mut visit: impl FnMut(usize, i64)) {
        for ((first, word), values) in (0..).step_by(64).zip(self.present).zip(self.values.chunks(64)) {
            if word == u64::MAX {
                values.iter().enumerate().for_each(|(slot, bits)| visit(first + slot, *bits));
                continue;
            }
            let mut rest = word;
            while rest != 0 {
                let slot = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                visit(first + slot, values.get(slot).copied().unwrap_or(0));
            }
        }
    }

    /// All values, if no slot is without one.
    pub(crate) fn all(&self) -> Option<&[i64]> {
        self.present.iter().all(|word| *word == u64::MAX).then_some(&self.values)
    }

    /// The slots and the bits of the values, in order.
    pub(crate) fn cells(&self) -> (Vec<u16>, Vec<i64>) {
        let mut cells = (Vec::with_capacity(BLOCK_SLOTS), Vec::with_capacity(BLOCK_SLOTS));
        self.each(|slot, bits| {
            cells.0.push(slot as u16);
            cells.1.push(bits);
        });
        cells
    }

    /// Takes over values of a column, from slot 0 on.
    fn set_first(&mut self, values: &[i64]) {
        if let Some(own) = self.values.get_mut(..values.len()) {
            own.copy_from_slice(values);
        }
        for (word, left) in self.present.iter_mut().zip((0..=values.len()).rev().step_by(64)) {
            *word |= if left >= 64 { u64::MAX } else { (1 << left) - 1 };
        }
    }
}

/// Appends the values of some slots, which ascend.
pub(crate) fn encode(kind: EpochKind, slots: &[u16], bits: &[i64], out: &mut Vec<u8>) {
    varint::push(out, slots.len() as u64);
    let end = slots.last().map_or(0, |slot| usize::from(*slot) + 1);
    if end == slots.len() {
        out.push(PREFIX);
        encode_values(kind, bits, out);
    } else if slots.len() * LIST_SHARE < end {
        out.push(LIST);
        let listed: Vec<i64> = slots.iter().map(|slot| i64::from(*slot)).collect();
        integer::encode(&listed, out);
        encode_values(kind, bits, out);
    } else if let Some(absent) = absent_value(kind, bits) {
        out.push(INLINE);
        varint::push(out, end as u64);
        varint::push_signed(out, absent);
        let mut all = vec![absent; end];
        for (slot, bits) in slots.iter().zip(bits) {
            if let Some(place) = all.get_mut(usize::from(*slot)) {
                *place = *bits;
            }
        }
        encode_values(kind, &all, out);
    } else {
        out.push(BITS);
        let mut words = [0u64; WORDS];
        for slot in slots {
            if let Some(word) = words.get_mut(usize::from(*slot) / 64) {
                *word |= 1 << (slot % 64);
            }
        }
        words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        encode_values(kind, bits, out);
    }
}

/// An integer beside those that occur.
fn absent_value(kind: EpochKind, bits: &[i64]) -> Option<i64> {
    match kind {
        EpochKind::Int => bits.iter().min()?.checked_sub(1),
        EpochKind::Float => None,
    }
}

fn encode_values(kind: EpochKind, bits: &[i64], out: &mut Vec<u8>) {
    match kind {
        EpochKind::Int => integer::encode_unordered(bits, out),
        EpochKind::Float => {
            let floats: Vec<f64> = bits.iter().map(|bits| f64::from_bits(*bits as u64)).collect();
            float::encode_with(&floats, Effort::Small, out);
        }
    }
}

/// Memory for decoding one block after another.
#[derive(Default)]
pub(crate) struct Scratch {
    values: Vec<i64>,
    slots: Vec<i64>,
    floats: Vec<u64>,
    of_floats: float::Scratch,
}

/// Reads what [`encode`] wrote over what is in a block.
pub(crate) fn decode(
    kind: EpochKind,
    bytes: &[u8],
    scratch: &mut Scratch,
    block: &mut Block,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    let count = reader.length(BLOCK_SLOTS)?;
    match reader.byte()? {
        PREFIX => {
            decode_values(kind, &mut reader, count, scratch)?;
            block.set_first(&scratch.values);
        }
        LIST => {
            scratch.slots.clear();
            integer::decode(&mut reader, count, &mut scratch.slots)?;
            decode_values(kind, &mut reader, count, scratch)?;
            for (slot, bits) in scratch.slots.iter().zip(&scratch.values) {
                let slot = usize::try_from(*slot).ok().filter(|slot| *slot < BLOCK_SLOTS);
                block.set(slot.ok_or_else(|| reader.error("slot outside its block"))?, *bits);
            }
        }
        BITS => {
            let mut words = [0; WORDS];
            for word in &mut words {
                *word = reader.u64()?;
            }
            if words.iter().map(|word: &u64| word.count_ones() as usize).sum::<usize>() != count {
                return Err(reader.error("another number of slots than of values"));
            }
            decode_values(kind, &mut reader, count, scratch)?;
            let is_set = |slot: &usize| words.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1);
            (0..BLOCK_SLOTS).filter(is_set).zip(&scratch.values).for_each(|(slot, bits)| block.set(slot, *bits));
        }
        INLINE => {
            let (end, absent) = (reader.length(BLOCK_SLOTS)?, reader.varint_signed()?);
            decode_values(kind, &mut reader, end, scratch)?;
            let present = scratch.values.iter().enumerate().filter(|(_, bits)| **bits != absent);
            present.for_each(|(slot, bits)| block.set(slot, *bits));
        }
        _ => return Err(reader.error("unknown scheme of slots")),
    }
    if reader.is_empty() { Ok(()) } else { Err(reader.error("bytes after the values of a block")) }
}

fn decode_values(
    kind: EpochKind,
    reader: &mut Reader<'_>,
    count: usize,
    scratch: &mut Scratch,
) -> Result<(), DecodeError> {
    scratch.values.clear();
    match kind {
        EpochKind::Int => integer::decode(reader, count, &mut scratch.values),
        EpochKind::Float => {
            scratch.floats.clear();
            float::decode_with(reader, count, &mut scratch.of_floats, &mut scratch.floats)?;
            scratch.values.extend(scratch.floats.iter().map(|bits| *bits as i64));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(kind: EpochKind, cells: &[(u16, i64)]) -> usize {
        let slots: Vec<u16> = cells.iter().map(|(slot, _)| *slot).collect();
        let bits: Vec<i64> = cells.iter().map(|(_, bits)| *bits).collect();
        let mut out = Vec::new();
        encode(kind, &slots, &bits, &mut out);
        let mut block = Block::empty();
        decode(kind, &out, &mut Scratch::default(), &mut block).unwrap();
        assert_eq!(block.cells(), (slots.clone(), bits.clone()));
        assert!(slots.iter().zip(&bits).all(|(slot, bits)| block.get(usize::from(*slot)) == Some(*bits)));
        for cut in 0..out.len() {
            assert!(decode(kind, &out[..cut], &mut Scratch::default(), &mut Block::empty()).is_err());
        }
        out.len()
    }

    proptest! {
        #[test]
        fn blocks_come_back(
            cells in proptest::collection::btree_map(0u16..BLOCK_SLOTS as u16, prop_oneof![0i64..9, any::<i64>()], 1..300),
            is_float: bool,
        ) {
            let kind = if is_float { EpochKind::Float } else { EpochKind::Int };
            check(kind, &cells.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_an_error_or_values(bytes in proptest::collection::vec(any::<u8>(), 0..400), is_float: bool) {
            let kind = if is_float { EpochKind::Float } else { EpochKind::Int };
            let _ = decode(kind, &bytes, &mut Scratch::default(), &mut Block::empty());
        }
    }

    #[test]
    fn each_scheme_of_slots_comes_back() {
        let all: Vec<(u16, i64)> = (0..BLOCK_SLOTS as u16).map(|slot| (slot, i64::from(slot % 7))).collect();
        assert!(check(EpochKind::Int, &all) < BLOCK_SLOTS / 2);
        check(EpochKind::Float, &all);
        check(EpochKind::Int, &all[..65]);
        let most: Vec<(u16, i64)> = all.iter().copied().filter(|(slot, _)| slot % 5 != 3).collect();
        assert!(check(EpochKind::Int, &most) < BLOCK_SLOTS / 2);
        check(EpochKind::Float, &most);
        let lowest: Vec<(u16, i64)> = most.iter().map(|(slot, bits)| (*slot, bits + i64::MIN)).collect();
        check(EpochKind::Int, &lowest);
        check(EpochKind::Int, &[(2047, 5)]);
        check(EpochKind::Int, &[(0, i64::MAX)]);
    }
}
