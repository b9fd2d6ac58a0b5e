//! Prometheus's XOR chunks, `tsdb/docs/format/chunks.md`: a count in two bytes, then bits, the highest first.
//!
//! ```text
//!  first sample    time as a varint          value as it is
//!  second          distance as a varint      value as below
//!  others          0                         distance as before        value  0        the same
//!                  10 and 14 bits            by how much it differs           10 and   as many bits as last time
//!                  110 and 17 bits                                            11 and   zeros before (5), length (6), bits
//!                  1110 and 20 bits
//!                  1111 and 64 bits
//! ```

/// Encodes at most 65,535 samples with ascending times.
pub(super) fn encode(timestamps_ms: &[i64], values: &[f64]) -> Vec<u8> {
    let count = timestamps_ms.len().min(values.len());
    let mut bits = Bits::default();
    bits.push(count as u64, 16);
    let (mut before_ms, mut distance_ms) = (0_i64, 0_i64);
    let mut xors = Xors::default();
    for (place, (time_ms, value)) in timestamps_ms.iter().zip(values).enumerate() {
        let now_ms = time_ms.wrapping_sub(before_ms);
        match place {
            0 => {
                bits.push_varint((time_ms << 1 ^ time_ms >> 63) as u64);
                bits.push(value.to_bits(), 64);
                xors = Xors::from(value.to_bits());
            }
            1 => {
                bits.push_varint(now_ms as u64);
                distance_ms = now_ms;
                xors.push(&mut bits, value.to_bits());
            }
            _ => {
                push_difference(&mut bits, now_ms.wrapping_sub(distance_ms));
                distance_ms = now_ms;
                xors.push(&mut bits, value.to_bits());
            }
        }
        before_ms = *time_ms;
    }
    bits.bytes
}

fn push_difference(bits: &mut Bits, difference: i64) {
    let fits = |width: u32| {
        let half = 1_i64 << (width - 1);
        (1 - half..=half).contains(&difference)
    };
    match difference {
        0 => bits.push(0, 1),
        _ if fits(14) => bits.push_marked(0b10, 2, difference, 14),
        _ if fits(17) => bits.push_marked(0b110, 3, difference, 17),
        _ if fits(20) => bits.push_marked(0b1110, 4, difference, 20),
        _ => bits.push_marked(0b1111, 4, difference, 64),
    }
}

/// Values as what differs from the one before.
#[derive(Default)]
pub(super) struct Xors {
    before: u64,
    /// Zeros before and behind the bits that were written last, if any were.
    window: Option<(u32, u32)>,
}

impl Xors {
    /// From a value on that is written as it is.
    pub(super) const fn from(value: u64) -> Self {
        Self { before: value, window: None }
    }

    pub(super) fn push(&mut self, bits: &mut Bits, value: u64) {
        let changed = value ^ self.before;
        self.before = value;
        if changed == 0 {
            return bits.push(0, 1);
        }
        bits.push(1, 1);
        // Five bits hold no more.
        let (leading, trailing) = (changed.leading_zeros().min(31), changed.trailing_zeros());
        if let Some((before, behind)) = self.window.filter(|(before, behind)| leading >= *before && trailing >= *behind)
        {
            bits.push(0, 1);
            return bits.push(changed >> behind, 64 - before - behind);
        }
        self.window = Some((leading, trailing));
        let length = 64 - leading - trailing;
        bits.push(1, 1);
        bits.push(u64::from(leading), 5);
        // 64 becomes 0: no length is 0.
        bits.push(u64::from(length), 6);
        bits.push(changed >> trailing, length);
    }
}

/// Bits, the highest of each byte first.
#[derive(Default)]
pub(super) struct Bits {
    pub(super) bytes: Vec<u8>,
    /// Bits of the last byte that are free.
    free: u32,
}

impl Bits {
    /// The lowest so many bits of a value.
    pub(super) fn push(&mut self, value: u64, count: u32) {
        for place in (0..count).rev() {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            self.free -= 1;
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((value >> place & 1) as u8) << self.free;
            }
        }
    }

    fn push_marked(&mut self, mark: u64, mark_bits: u32, value: i64, count: u32) {
        self.push(mark, mark_bits);
        self.push(value as u64, count);
    }

    fn push_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value & 0x7f | 0x80, 8);
            value >>= 7;
        }
        self.push(value, 8);
    }
}
