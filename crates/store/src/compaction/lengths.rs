//! How long partitions are, so that levels 0 and 1 fit the fast tier: TimeUnion's Algorithm 1.

const MINUTE_NS: i64 = 60 * 1_000_000_000;

/// Partitions are not made shorter than this.
const SHORTEST_NS: i64 = 30 * MINUTE_NS / 16;

/// Partitions of level 1 are not made longer than this, so that a merge there stays small.
const LONGEST_NS: i64 = 8 * 60 * MINUTE_NS;

/// How much longer partitions of level 2 are than those of level 1.
const SLOW_TIMES: i64 = 4;

/// Lengths of partitions: each a power of two times the shortest, so that they nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// On the fast tier, levels 0 and 1.
    pub(crate) fast_partition_length_ns: i64,
    /// On the object store, level 2.
    pub(crate) slow_partition_length_ns: i64,
}

impl Lengths {
    /// From the length on the fast tier.
    pub(crate) fn new(fast_partition_length_ns: i64) -> Self {
        Self { fast_partition_length_ns, slow_partition_length_ns: fast_partition_length_ns.saturating_mul(SLOW_TIMES) }
    }

    /// Start of what stays on the fast tier when rows up to `newest_ns` have come: everything before has gone to level 2.
    pub(crate) fn fast_from_ns(self, newest_ns: i64) -> i64 {
        super::partition_of(newest_ns.saturating_sub(self.slow_partition_length_ns), self.slow_partition_length_ns)
            .start_ns
    }
}

/// Eighths of the budget above which lengths are halved: what was cut shorter goes to level 2 some merges later, and rows come
/// meanwhile.
const FULL_EIGHTHS: u64 = 7;

/// Eighths of the budget that twice as much must stay below for lengths to be doubled: far enough from `FULL_EIGHTHS` that
/// doubling does not lead to halving at once.
const FREE_EIGHTHS: u64 = 6;

/// Lengths that suit how full the fast tier is: halved when it is nearly full, doubled when what it holds spans all it may
/// and would fit twice.
pub(crate) fn fit(lengths: Lengths, fast_bytes: u64, budget_bytes: u64, fast_span_ns: i64) -> Lengths {
    let mut fast_partition_length_ns = lengths.fast_partition_length_ns;
    let full_bytes = budget_bytes / 8 * FULL_EIGHTHS;
    // The length at which the present rate of bytes would just fill that.
    let fitting_ns = full_bytes as f64 / fast_bytes.max(1) as f64 * lengths.fast_partition_length_ns as f64;
    if fast_bytes > full_bytes {
        while fast_partition_length_ns as f64 > fitting_ns && fast_partition_length_ns / 2 >= SHORTEST_NS {
            fast_partition_length_ns /= 2;
        }
    } else if fast_span_ns >= lengths.slow_partition_length_ns
        && fast_bytes.saturating_mul(2) < budget_bytes / 8 * FREE_EIGHTHS
        && fast_partition_length_ns < LONGEST_NS
    {
        fast_partition_length_ns *= 2;
    }
    Lengths::new(fast_partition_length_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_HOUR: i64 = 30 * MINUTE_NS;

    fn check(fast_bytes: u64, budget_bytes: u64, span_ns: i64, expected_parts: i64) {
        let fitted = fit(Lengths::new(HALF_HOUR), fast_bytes, budget_bytes, span_ns);
        // In sixteenths of half an hour.
        assert_eq!(fitted.fast_partition_length_ns, HALF_HOUR / 16 * expected_parts, "{fast_bytes} of {budget_bytes}");
        assert_eq!(fitted.slow_partition_length_ns, fitted.fast_partition_length_ns * SLOW_TIMES);
    }

    #[test]
    fn lengths_follow_the_budget() {
        let long = 4 * HALF_HOUR;
        check(700, 800, long, 16);
        check(701, 800, long, 8);
        check(2799, 800, long, 4);
        check(8_000_000, 800, long, 1);
        check(299, 800, long, 32);
        check(300, 800, long, 16);
        check(80, 800, long - 1, 16);
    }

    #[test]
    fn level_2_ends_where_a_partition_ends() {
        let lengths = Lengths::new(HALF_HOUR);
        assert_eq!(lengths.fast_from_ns(11 * HALF_HOUR), 4 * HALF_HOUR);
        assert_eq!(lengths.fast_from_ns(12 * HALF_HOUR), 8 * HALF_HOUR);
    }
}
