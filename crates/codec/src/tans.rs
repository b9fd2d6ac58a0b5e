//! Bytes in about as many bits as their frequencies allow: a table-driven asymmetric numeral system (Duda, "Asymmetric
//! numeral systems", 2013; the table layout is that of Collet's finite state entropy).
//!
//! A state is a place in a table of 2^r entries. An entry gives a symbol, and how many bits to take for the next state.
//! Unlike a Huffman code a symbol may cost part of a bit, which is what small differences need. The first half of the
//! symbols and the second are streams of their own, and in each four states take turns: how many bits a symbol took is
//! known only after its look-up, so eight look-ups are under way at a time. The encoder goes backwards, so that the
//! decoder goes forwards.

use crate::{DecodeError, Reader, bitpack, varint};

/// Different symbols.
pub(crate) const SYMBOLS: usize = 256;

const STREAMS: usize = 2;
const LANES: usize = 4;
const TABLE_BITS_MIN: u8 = 5;
const TABLE_BITS_MAX: u8 = 11;
const TABLE_MAX: usize = 1 << TABLE_BITS_MAX;

/// How often each symbol occurs.
pub(crate) type Counts = [u32; SYMBOLS];

/// Shares of the table that each symbol has: they sum up to 2^bits.
struct Shares {
    bits: u8,
    by_symbol: [u16; SYMBOLS],
}

/// About how many bits the symbols take without their table, and how many the table takes.
pub(crate) fn estimated_bits(counts: &[u32]) -> (f64, f64) {
    let total = f64::from(counts.iter().sum::<u32>());
    let used = || counts.iter().filter(|count| **count > 0);
    let bits = |count: &u32| f64::from(*count) * (total / f64::from(*count)).log2();
    // One or two bytes for each share; states, lengths.
    (used().map(bits).sum(), used().count() as f64 * 12.0 + 96.0)
}

/// Symbols of the first stream.
const fn first_stream(count: usize) -> usize {
    count / (STREAMS * LANES) * LANES
}

/// Appends the symbols: shares, states packed, lengths of the streams in bytes, streams.
pub(crate) fn encode(symbols: &[u8], out: &mut Vec<u8>) {
    let counts = counts(symbols);
    let Some(shares) = Shares::of_counts(&counts) else {
        return;
    };
    shares.write(out);
    let table = EncoderTable::new(&shares);
    let (first, second) = symbols.split_at(first_stream(symbols.len()));
    let streams = [table.encode(first), table.encode(second)];
    let states: Vec<i64> = streams.iter().flat_map(|(states, _)| states.map(i64::from)).collect();
    bitpack::pack(&states, 0, shares.bits, out);
    for (_, bits) in &streams {
        varint::push(out, bits.len() as u64);
    }
    for (_, bits) in &streams {
        out.extend_from_slice(bits);
    }
}

/// How often each symbol occurs among these.
pub(crate) fn counts(symbols: &[u8]) -> Counts {
    // Two counts for each: of a symbol that comes again at once the first need not be written by then.
    let (mut counts, mut others) = ([0; SYMBOLS], [0; SYMBOLS]);
    let (pairs, last) = symbols.as_chunks::<2>();
    for [one, other] in pairs {
        counts[usize::from(*one)] += 1;
        others[usize::from(*other)] += 1;
    }
    last.iter().for_each(|symbol| counts[usize::from(*symbol)] += 1);
    counts.iter_mut().zip(others).for_each(|(count, other)| *count += other);
    counts
}

/// Symbols that are still coded.
pub(crate) struct Coded<'a> {
    shares: Shares,
    streams: [Stream<'a>; STREAMS],
}

impl<'a> Coded<'a> {
    /// Takes what [`encode`] appended, of at least one symbol.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let shares = Shares::read(reader)?;
        let mut states = [0; STREAMS * LANES];
        bitpack::unpack(reader, shares.bits, 0, &mut states)?;
        let lengths = [reader.length(reader.rest().len())?, reader.length(reader.rest().len())?];
        let [first, second] = lengths.map(|length| reader.bytes(length));
        let stream = |bits: &'a [u8], from: usize| {
            let states = std::array::from_fn(|lane| states[from + lane] as u32);
            Stream { bits, at: 0, states }
        };
        let streams = [stream(first?, 0), stream(second?, LANES)];
        Ok(Self { shares, streams })
    }

    /// The largest symbol that occurs.
    pub(crate) fn largest(&self) -> u8 {
        self.shares.by_symbol.iter().rposition(|share| *share > 0).unwrap_or(0) as u8
    }

    /// Fills `values` with what the symbols stand for; false if there are too few bits.
    pub(crate) fn decode<T: Copy>(self, meanings: &[T; SYMBOLS], values: &mut [T]) -> bool {
        let table = self.shares.decoder_table();
        let [mut one, mut two] = self.streams;
        let (first, second) = values.split_at_mut(first_stream(values.len()));
        let done = decode_fours([&mut one, &mut two], &table, meanings, first, second);
        one.finish(&table, meanings, &mut first[done..]) & two.finish(&table, meanings, &mut second[done..])
    }
}

impl Shares {
    /// `None` if there are no symbols.
    fn of_counts(counts: &Counts) -> Option<Self> {
        let total: u32 = counts.iter().sum();
        let used = counts.iter().filter(|count| **count > 0).count() as u32;
        // Fine shares save bits, but a large table costs time to build: a table is at most a quarter of the symbols.
        let wanted = (total.checked_ilog2()?.saturating_sub(2)).max((used * 2).ilog2() + 1);
        let bits = (wanted as u8).clamp(TABLE_BITS_MIN, TABLE_BITS_MAX - 1);
        let size = 1i64 << bits;
        let share = |count: &u32| match count {
            0 => 0,
            count => ((i64::from(*count) * size + i64::from(total) / 2) / i64::from(total)).max(1),
        };
        let mut by_symbol: [i64; SYMBOLS] = std::array::from_fn(|symbol| share(&counts[symbol]));
        let mut excess = by_symbol.iter().sum::<i64>() - size;
        // Rounding is settled with the largest shares, where it costs least.
        while excess != 0 {
            let largest = by_symbol.iter_mut().max_by_key(|share| **share)?;
            let change = if excess > 0 { excess.min((*largest / 2).max(1)) } else { excess };
            *largest -= change;
            excess -= change;
        }
        Some(Self { bits, by_symbol: by_symbol.map(|share| share as u16) })
    }

    /// Table bits, then the shares of the symbols from 0 on until they are all given; behind a 0 stands how many more
    /// zeros follow.
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.bits);
        let mut left = 1u32 << self.bits;
        let mut symbol = 0;
        while left > 0 && symbol < SYMBOLS {
            let share = self.by_symbol[symbol];
            varint::push(out, u64::from(share));
            left -= u32::from(share);
            symbol += 1;
            if share == 0 {
                let zeros = self.by_symbol[symbol..].iter().take_while(|share| **share == 0).count();
                out.push(zeros as u8);
                symbol += zeros;
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bits = reader.byte()?;
        if !(TABLE_BITS_MIN..=TABLE_BITS_MAX).contains(&bits) {
            return Err(reader.error("impossible size of an entropy table"));
        }
        let mut shares = Self { bits, by_symbol: [0; SYMBOLS] };
        let mut left = 1usize << bits;
        let mut symbol = 0;
        while left > 0 {
            let share = reader.length(left)?;
            let Some(slot) = shares.by_symbol.get_mut(symbol) else {
                return Err(reader.error("more symbols than there are"));
            };
            *slot = share as u16;
            left -= share;
            symbol += 1;
            if share == 0 {
                symbol += usize::from(reader.byte()?);
            }
        }
        Ok(shares)
    }

    fn size(&self) -> usize {
        1 << self.bits
    }

    fn decoder_table(&self) -> [Entry; TABLE_MAX] {
        let size = self.size();
        let mut table = [0; TABLE_MAX];
        self.spread(|place, symbol| table[place & (TABLE_MAX - 1)] = symbol as u32);
        let mut next = self.by_symbol.map(u32::from);
        for entry in &mut table[..size] {
            let symbol = *entry;
            let state = &mut next[symbol as usize & (SYMBOLS - 1)];
            let bits = u32::from(self.bits) - state.checked_ilog2().unwrap_or(0);
            let base = (*state << bits) as usize - size;
            *entry = (base as u32) << 16 | bits << 8 | symbol;
            *state += 1;
        }
        table
    }

    /// Calls with each place of the table and its symbol; a symbol's places are spread evenly.
    fn spread(&self, mut each: impl FnMut(usize, usize)) {
        let size = self.size();
        let stride = (size >> 1) + (size >> 3) + 3;
        let mut place = 0;
        for (symbol, share) in self.by_symbol.iter().enumerate() {
            for _ in 0..*share {
                each(place, symbol);
                place = (place + stride) & (size - 1);
            }
        }
    }
}

/// What the encoder knows of a symbol.
#[derive(Clone, Copy, Default)]
struct Step {
    /// Added to a state, bits 16 and up are how many bits to put out.
    bits: u32,
    /// Added to what is left of a state, the place in the table of next states.
    offset: i32,
}

struct EncoderTable {
    size: usize,
    steps: [Step; SYMBOLS],
    next_states: [u16; TABLE_MAX],
}

impl EncoderTable {
    fn new(shares: &Shares) -> Self {
        let size = shares.size();
        let mut starts = [0usize; SYMBOLS];
        let mut steps = [Step::default(); SYMBOLS];
        let mut start = 0;
        for (symbol, share) in shares.by_symbol.iter().enumerate().filter(|(_, share)| **share > 0) {
            let bits_max = u32::from(shares.bits) - u32::from(share - 1).checked_ilog2().unwrap_or(0);
            let bits = (bits_max << 16).wrapping_sub(u32::from(*share) << bits_max);
            steps[symbol] = Step { bits, offset: start as i32 - i32::from(*share) };
            starts[symbol] = start;
            start += usize::from(*share);
        }
        let mut symbols_of = [0u8; TABLE_MAX];
        shares.spread(|place, symbol| symbols_of[place & (TABLE_MAX - 1)] = symbol as u8);
        let mut next_states = [0u16; TABLE_MAX];
        for (place, symbol) in symbols_of.iter().enumerate().take(size) {
            let start = &mut starts[usize::from(*symbol)];
            next_states[*start & (TABLE_MAX - 1)] = (size + place) as u16;
            *start += 1;
        }
        Self { size, steps, next_states }
    }

    /// The states that the decoder starts with, and the bits.
    fn encode(&self, symbols: &[u8]) -> ([u16; LANES], Vec<u8>) {
        let mut states = [self.size as u32; LANES];
        let mut bits = BackwardBits::new(symbols.len());
        let (fours, last) = symbols.as_chunks::<LANES>();
        for (state, symbol) in states.iter_mut().zip(last).rev() {
            let (low, count) = self.step(state, *symbol);
            bits.push(low, count);
        }
        for four in fours.iter().rev() {
            let mut lows = [(0, 0); LANES];
            for ((low, state), symbol) in lows.iter_mut().zip(&mut states).zip(four) {
                *low = self.step(state, *symbol);
            }
            let [first, second, third, fourth] = lows;
            bits.push(fourth.0 << third.1 | third.0, fourth.1 + third.1);
            bits.push(second.0 << first.1 | first.0, second.1 + first.1);
        }
        (states.map(|state| (state as usize - self.size) as u16), bits.finish())
    }

    /// Goes on to the next state; the bits that are put out for that, and how many.
    #[inline]
    fn step(&self, state: &mut u32, symbol: u8) -> (u64, u32) {
        let step = self.steps[usize::from(symbol)];
        let bits = state.wrapping_add(step.bits) >> 16;
        let low = *state & ((1 << bits) - 1);
        let next = (*state >> bits) as i32 + step.offset;
        *state = u32::from(self.next_states[next as usize & (TABLE_MAX - 1)]);
        (u64::from(low), bits)
    }
}

/// Bits that come backwards: each goes before those that are pending, and what is complete at the end is a word.
struct BackwardBits {
    words: Vec<u32>,
    /// Complete words.
    complete: usize,
    pending: u64,
    pending_bits: u32,
}

impl BackwardBits {
    /// With room for what so many symbols take.
    fn new(symbols: usize) -> Self {
        let words = vec![0; symbols * TABLE_BITS_MAX as usize / u32::BITS as usize + 1];
        Self { words, complete: 0, pending: 0, pending_bits: 0 }
    }

    /// Up to 32 bits. A word is written whether it is complete or not: that takes less time than to ask.
    #[inline]
    fn push(&mut self, bits: u64, count: u32) {
        self.pending = self.pending << count | bits;
        self.pending_bits += count;
        if let Some(word) = self.words.get_mut(self.complete) {
            *word = (self.pending >> (self.pending_bits % u32::BITS)) as u32;
        }
        self.complete += (self.pending_bits / u32::BITS) as usize;
        self.pending_bits %= u32::BITS;
    }

    fn finish(self) -> Vec<u8> {
        let first = self.pending & ((1 << self.pending_bits) - 1);
        write_words(first, self.pending_bits, self.words.get(..self.complete).unwrap_or_default())
    }
}

/// Some bits and, behind them, words from the last to the first.
fn write_words(first: u64, first_bits: u32, words: &[u32]) -> Vec<u8> {
    let mut out = Vec::with_capacity((words.len() + 1) * size_of::<u32>());
    let mut pending = first;
    for word in words.iter().rev() {
        pending |= u64::from(*word) << first_bits;
        out.extend_from_slice(&(pending as u32).to_le_bytes());
        pending >>= u32::BITS;
    }
    out.extend_from_slice(&pending.to_le_bytes()[..first_bits.div_ceil(8) as usize]);
    out
}

/// An entry of the decoder's table: symbol in bits 0 to 7, number of bits in 8 to 15, base of the next state above.
type Entry = u32;

/// One sequence of bits and its states.
struct Stream<'a> {
    bits: &'a [u8],
    at: usize,
    states: [u32; LANES],
}

impl Stream<'_> {
    /// Fills the values behind the last word; false if there are too few bits.
    fn finish<T: Copy>(&mut self, table: &[Entry; TABLE_MAX], meanings: &[T; SYMBOLS], values: &mut [T]) -> bool {
        // Where symbols take part of a bit the last bytes are those of hundreds: of them a copy with zeros after it, made once.
        let start = self.bits.len().saturating_sub(size_of::<u64>());
        let last = self.bits.get(start..).unwrap_or_default();
        let mut padded = [0; 2 * size_of::<u64>()];
        padded.iter_mut().zip(last).for_each(|(to, byte)| *to = *byte);
        for four in values.chunks_mut(LANES) {
            let of_last = || word_at(&padded, self.at.saturating_sub(start * 8));
            let mut word = word_at(self.bits, self.at).or_else(of_last).unwrap_or(0);
            for (value, state) in four.iter_mut().zip(&mut self.states) {
                *value = meanings[step(state, &mut word, &mut self.at, table)];
            }
        }
        self.at <= self.bits.len() * 8
    }
}

/// The symbol of a state; takes bits for the next state off the word.
#[inline]
fn step(state: &mut u32, word: &mut u64, at: &mut usize, table: &[Entry; TABLE_MAX]) -> usize {
    let entry = table[*state as usize & (TABLE_MAX - 1)];
    let taken = entry >> 8 & 0xff;
    *state = (entry >> 16) + (*word as u32 & ((1 << taken) - 1));
    *word >>= taken;
    *at += taken as usize;
    entry as usize & (SYMBOLS - 1)
}

/// Fills fours of both streams' values while whole words can be loaded; returns how many of each are done.
fn decode_fours<T: Copy>(
    [one, two]: [&mut Stream<'_>; STREAMS],
    table: &[Entry; TABLE_MAX],
    meanings: &[T; SYMBOLS],
    first: &mut [T],
    second: &mut [T],
) -> usize {
    // What changes is kept in variables of its own, so that it stays in registers.
    let (mut at, mut other_at) = (one.at, two.at);
    let (mut states, mut other_states) = (one.states, two.states);
    let mut done = 0;
    for (first, second) in first.as_chunks_mut::<LANES>().0.iter_mut().zip(second.as_chunks_mut::<LANES>().0) {
        let (Some(word), Some(other)) = (word_at(one.bits, at), word_at(two.bits, other_at)) else {
            break;
        };
        let entries = states.map(|state| table[state as usize & (TABLE_MAX - 1)]);
        let other_entries = other_states.map(|state| table[state as usize & (TABLE_MAX - 1)]);
        *first = entries.map(|entry| meanings[entry as usize & (SYMBOLS - 1)]);
        *second = other_entries.map(|entry| meanings[entry as usize & (SYMBOLS - 1)]);
        at += advance(&mut states, entries, word);
        other_at += advance(&mut other_states, other_entries, other);
        done += LANES;
    }
    (one.at, one.states) = (at, states);
    (two.at, two.states) = (other_at, other_states);
    done
}

/// The next states; returns how many bits they took.
#[inline]
fn advance(states: &mut [u32; LANES], entries: [Entry; LANES], mut word: u64) -> usize {
    let mut taken_bits = 0;
    for (state, entry) in states.iter_mut().zip(entries) {
        let taken = entry >> 8 & 0xff;
        *state = (entry >> 16) + (word as u32 & ((1 << taken) - 1));
        word >>= taken;
        taken_bits += taken;
    }
    taken_bits as usize
}

/// The bits from a place on, at least 57, while as many are there.
#[inline]
fn word_at(bits: &[u8], at: usize) -> Option<u64> {
    let word = bits.get(at / 8..at / 8 + 8)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word) >> (at % 8))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(symbols: &[u8]) -> usize {
        let mut out = Vec::new();
        encode(symbols, &mut out);
        let mut reader = Reader::new(&out);
        let mut back = vec![0; symbols.len()];
        if !symbols.is_empty() {
            let coded = Coded::read(&mut reader).unwrap();
            assert_eq!(Some(coded.largest()), symbols.iter().copied().max());
            assert!(coded.decode(&std::array::from_fn(|symbol| symbol as u8), &mut back));
        }
        assert_eq!(back, symbols);
        assert!(reader.is_empty());
        out.len()
    }

    proptest! {
        #[test]
        fn any_symbols(symbols in proptest::collection::vec(any::<u8>(), 0..3000)) {
            check(&symbols);
        }

        #[test]
        fn few_symbols(symbols in proptest::collection::vec(prop_oneof![50 => Just(0u8), 10 => 1..4u8, 1 => any::<u8>()], 0..3000)) {
            check(&symbols);
        }

        #[test]
        fn hostile_bytes_are_an_error_or_symbols(bytes in proptest::collection::vec(any::<u8>(), 0..200), table_bits in 5u8..13, count in 0usize..500) {
            let bytes = [&[table_bits], bytes.as_slice()].concat();
            if let Ok(coded) = Coded::read(&mut Reader::new(&bytes)) {
                coded.decode(&[(); SYMBOLS], &mut vec![(); count]);
            }
        }
    }

    #[test]
    fn sizes_in_bytes() {
        assert!(check(&vec![7; 100_000]) <= 20, "one symbol costs nothing");
        let mut rare = vec![0; 10_000];
        rare.iter_mut().step_by(100).for_each(|symbol| *symbol = 1);
        assert!(check(&rare) < 10_000 / 8 / 8, "one in a hundred is 0.08 bits");
        let all: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert!(check(&all) < 101_000);
    }
}
