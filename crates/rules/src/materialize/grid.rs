//! The moments at which a rule is evaluated.

/// They come one interval after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct MomentGrid {
    /// One of them, in milliseconds since the Unix epoch.
    pub(super) any_ms: i64,
    pub(super) interval_ms: i64,
}

impl MomentGrid {
    /// The last one up to a time.
    pub(super) fn last_until(self, time_ms: i64) -> i64 {
        time_ms.saturating_sub(time_ms.saturating_sub(self.any_ms).rem_euclid(self.interval_ms))
    }

    /// The first one from a time on.
    pub(super) fn first_from(self, time_ms: i64) -> i64 {
        let last_ms = self.last_until(time_ms);
        if last_ms < time_ms { last_ms.saturating_add(self.interval_ms) } else { last_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_of_the_grid() {
        let grid = MomentGrid { any_ms: 7, interval_ms: 10 };
        for (time_ms, last, first) in [(7, 7, 7), (8, 7, 17), (16, 7, 17), (-4, -13, -3), (-3, -3, -3)] {
            assert_eq!((grid.last_until(time_ms), grid.first_from(time_ms)), (last, first), "{time_ms}");
        }
    }
}
