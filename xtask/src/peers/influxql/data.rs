//! Rows of every type, some of them sparse, with series that lack a tag.

use std::fmt::Write;

/// Numbers out of a seed: splitmix64.
pub(in crate::peers) struct Random(u64);

impl Random {
    pub(in crate::peers) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below another.
    pub(in crate::peers) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Whether something happens that does once in so many times.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of several.
    pub(super) fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let place = usize::try_from(self.below(items.len() as u64)).unwrap_or(0);
        &items[place]
    }
}

/// 2016-01-01T00:00:00Z.
pub(in crate::peers) const START_S: u64 = 1_451_606_400;
/// Seconds that have rows.
pub(super) const LENGTH_S: u64 = 3 * 3600;

/// Line protocol.
pub(super) fn lines(random: &mut Random) -> String {
    let mut lines = String::new();
    for host in 0..5u64 {
        let region = if host == 4 { String::new() } else { format!(",region=r{}", host % 2) };
        let mut time_s = START_S;
        while time_s < START_S + LENGTH_S {
            let mut fields = vec![format!("busy={}", random.below(100_000) as f64 / 1000.0)];
            if random.once_in(2) {
                fields.push(format!("load={}", random.below(8000) as f64 / 1000.0 - 2.0));
            }
            if !random.once_in(4) {
                fields.push(format!("jobs={}i", random.below(1000)));
            }
            if random.once_in(3) {
                fields.push(format!("up={}", random.once_in(2)));
            }
            if random.once_in(5) {
                fields.push(format!("note=\"n{}\"", random.below(4)));
            }
            let _ = writeln!(lines, "cpu,host=h{host}{region} {} {time_s}000000000", fields.join(","));
            time_s += if random.once_in(20) { 600 } else { 60 };
        }
    }
    for host in 0..3u64 {
        // No two rows of one time.
        for place in 0..120u64 {
            let time_ns = (START_S + place * 90) * 1_000_000_000 + host * 1_000_000 + random.below(900_000);
            let _ = writeln!(
                lines,
                "mem,host=h{host} used={},pages={}i {time_ns}",
                random.below(1_000_000) as f64 / 100.0,
                place * (host + 1)
            );
        }
    }
    lines
}
