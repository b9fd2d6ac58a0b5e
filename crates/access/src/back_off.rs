//! Waiting times after failed sign-ins: by address, and by address and name. A name alone never waits, so that no stranger can lock a user out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::account::NAME_BYTES_MAX;

/// Failures that cost nothing: people mistype.
const FREE_FAILURES: u32 = 5;

/// The longest wait.
const WAIT_MAX_S: u64 = 60;

/// After how long without failures they are forgotten.
const FORGET_AFTER_NS: i64 = 15 * 60 * 1_000_000_000;

/// Addresses and names that are remembered at the same time.
const ENTRIES_MAX: usize = 50_000;

const NS_PER_S: i64 = 1_000_000_000;

/// Bits of an address of version 6 that one owner has.
const OWNER_BITS: u32 = 64;

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last_ns: i64,
}

impl Failures {
    fn until_ns(self) -> i64 {
        let Some(over) = self.count.checked_sub(FREE_FAILURES) else { return i64::MIN };
        let wait_s = 1_u64.checked_shl(over.min(32)).unwrap_or(WAIT_MAX_S).min(WAIT_MAX_S);
        self.last_ns.saturating_add(wait_s as i64 * NS_PER_S)
    }
}

/// Failed sign-ins.
#[derive(Debug, Default)]
pub struct BackOff {
    failures: HashMap<(IpAddr, String), Failures>,
}

impl BackOff {
    /// How long an address has to wait before it may try to sign in with a name.
    pub fn wait(&self, address: IpAddr, name: &str, now_ns: i64) -> Option<Duration> {
        let until =
            |name: &str| self.failures.get(&(owner(address), name.to_owned())).map(|failures| failures.until_ns());
        let until_ns = until(name).max(until(""))?;
        let left_ns = until_ns.saturating_sub(now_ns);
        (left_ns > 0).then(|| Duration::from_nanos(left_ns as u64))
    }

    /// Notes a failure. One that has no name, because a token was wrong, counts for the address.
    pub fn fail(&mut self, address: IpAddr, name: &str, now_ns: i64) {
        if self.failures.len() >= ENTRIES_MAX {
            self.forget(now_ns);
        }
        let note = |failures: &mut HashMap<(IpAddr, String), Failures>, name: &str| {
            let entry =
                failures.entry((owner(address), name.to_owned())).or_insert(Failures { count: 0, last_ns: now_ns });
            if now_ns.saturating_sub(entry.last_ns) > FORGET_AFTER_NS {
                entry.count = 0;
            }
            *entry = Failures { count: entry.count.saturating_add(1), last_ns: now_ns };
        };
        note(&mut self.failures, "");
        // No account has a longer name: such a one is counted for the address alone.
        if (1..=NAME_BYTES_MAX).contains(&name.len()) {
            note(&mut self.failures, name);
        }
    }

    /// Forgets the failures of an address with a name that has signed in.
    pub fn succeed(&mut self, address: IpAddr, name: &str) {
        self.failures.remove(&(owner(address), name.to_owned()));
    }

    fn forget(&mut self, now_ns: i64) {
        self.failures.retain(|_, failures| now_ns.saturating_sub(failures.last_ns) <= FORGET_AFTER_NS);
        if self.failures.len() >= ENTRIES_MAX {
            // A flood from everywhere: those that wait least go.
            self.failures.retain(|_, failures| failures.until_ns() > now_ns);
        }
        if self.failures.len() >= ENTRIES_MAX {
            self.failures.clear();
        }
    }
}

/// The address, or the network of an address of version 6 that one owner has.
fn owner(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> (128 - OWNER_BITS) << (128 - OWNER_BITS);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_make_an_address_wait_and_never_a_name_elsewhere() {
        let (bad, good): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut back_off = BackOff::default();
        for second in 0..5 {
            assert_eq!(back_off.wait(bad, "root", second * NS_PER_S), None);
            back_off.fail(bad, "root", second * NS_PER_S);
        }
        assert_eq!(back_off.wait(bad, "root", 4 * NS_PER_S), Some(Duration::from_secs(1)));
        assert_eq!(back_off.wait(bad, "other", 4 * NS_PER_S), Some(Duration::from_secs(1)), "the address waits");
        assert_eq!(back_off.wait(good, "root", 4 * NS_PER_S), None, "the name does not");
        for _ in 0..100 {
            back_off.fail(bad, "root", 5 * NS_PER_S);
        }
        assert_eq!(back_off.wait(bad, "root", 5 * NS_PER_S), Some(Duration::from_secs(WAIT_MAX_S)));
        assert_eq!(back_off.wait(bad, "root", 66 * NS_PER_S), None);
        // After a quarter of an hour it begins anew.
        back_off.fail(bad, "root", 2_000 * NS_PER_S);
        assert_eq!(back_off.wait(bad, "root", 2_000 * NS_PER_S), None);
    }

    #[test]
    fn addresses_of_one_network_of_version_6_count_together_and_entries_are_bounded() {
        let mut back_off = BackOff::default();
        for last in 0..6 {
            back_off.fail(format!("2001:db8::{last:x}").parse().unwrap(), "", 0);
        }
        assert!(back_off.wait("2001:db8::ffff".parse().unwrap(), "", 0).is_some());
        assert!(back_off.wait("2001:db8:0:1::1".parse().unwrap(), "", 0).is_none());
        back_off.fail("10.0.0.1".parse().unwrap(), &"x".repeat(NAME_BYTES_MAX + 1), 0);
        assert!(back_off.failures.keys().all(|(_, name)| name.is_empty()), "no account has a name that is this long");
        for number in 0..2 * ENTRIES_MAX as u32 {
            back_off.fail(IpAddr::V4(number.into()), "", 0);
        }
        assert!(back_off.failures.len() <= ENTRIES_MAX);
    }
}
