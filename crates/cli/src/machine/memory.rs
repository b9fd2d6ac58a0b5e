//! How much memory there is.

use std::fs;

/// What a machine that does not say has, in bytes.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// Half of [`of_the_machine`].
pub(crate) fn half_of_the_machine() -> u64 {
    of_the_machine() / 2
}

/// The memory of the machine, or of the control group that the program runs in if that has less.
pub(crate) fn of_the_machine() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of_meminfo(&text));
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    machine.into_iter().chain(group).min().unwrap_or(UNKNOWN_BYTES)
}

/// `MemTotal` of `/proc/meminfo`, which is in KiB.
fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_kib() {
        assert_eq!(total_of_meminfo("MemTotal:       24600000 kB\nMemFree: 1 kB"), Some(24_600_000 << 10));
        assert_eq!(total_of_meminfo("nothing"), None);
    }
}
