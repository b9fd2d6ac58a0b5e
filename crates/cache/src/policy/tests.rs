use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Inserts slabs 0 to 5 of times 0 to 5, reads some, and tells in which order all go.
fn check(mut policy: Box<dyn Policy>, reads: &[u32], expected: &[u32]) {
    (0..6).for_each(|slab| policy.insert(slab, i64::from(slab)));
    reads.iter().for_each(|slab| policy.touch(*slab));
    let order: Vec<u32> = std::iter::from_fn(|| policy.evict()).collect();
    assert_eq!(order, expected, "after reading {reads:?}");
}

#[test]
fn order_of_eviction() {
    let fifo = || PolicyKind::Fifo.policy(6);
    check(fifo(), &[0, 1, 0], &[0, 1, 2, 3, 4, 5]);
    let lru = || PolicyKind::Lru.policy(6);
    check(lru(), &[0, 2, 0], &[1, 3, 4, 5, 2, 0]);
    let sieve = || PolicyKind::Sieve.policy(6);
    check(sieve(), &[], &[0, 1, 2, 3, 4, 5]);
    check(sieve(), &[0, 2], &[1, 3, 4, 5, 0, 2]);
    check(sieve(), &[0, 1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]);
    let tscache = || PolicyKind::TsCache.policy(6);
    check(tscache(), &[], &[0, 1, 2, 3, 4, 5]);
    check(tscache(), &[4, 5], &[0, 1, 2, 3, 4, 5]);
    check(tscache(), &[0], &[1, 2, 3, 4, 5, 0]);
}

#[test]
fn the_oldest_data_goes_whenever_it_came() {
    let mut policy = OldestData::default();
    [(1, 30), (2, 10), (3, 20)].iter().for_each(|(slab, time)| policy.insert(*slab, *time));
    assert_eq!([policy.evict(), policy.evict(), policy.evict()], [Some(2), Some(3), Some(1)]);
}

#[test]
fn old_slabs_that_are_read_are_promoted_and_the_coldest_demoted() {
    let mut policy = TsCache::new(9, 1);
    (0..9).for_each(|slab| policy.insert(slab, i64::from(slab)));
    policy.touch(8);
    assert!(!policy.is_in_lru(8), "the newer half stays where it is");
    for slab in [0, 1, 2] {
        policy.touch(slab);
        assert!(policy.is_in_lru(slab));
    }
    policy.touch(3);
    assert!(policy.is_in_lru(3) && !policy.is_in_lru(0), "a third of nine slabs is in the LRU partition at most");
}

#[test]
fn ghosts_move_the_border() {
    let mut policy = TsCache::new(30, 1);
    (0..30).for_each(|slab| policy.insert(slab, i64::from(slab)));
    let start = policy.lru_share();
    // What was just evicted for age is wanted again and again: the FIFO partition grows.
    for round in 0..5 {
        let slab = policy.evict().unwrap();
        policy.missed(slab);
        policy.insert(100 + round, i64::from(100 + round));
    }
    policy.evict();
    assert!(policy.lru_share() < start);
}

proptest! {
    #[test]
    fn every_policy_gives_back_what_it_was_given(
        kind in prop::sample::select(PolicyKind::ALL.to_vec()),
        steps in prop::collection::vec((0u8..5, 0u32..20, -5i64..5), 0..200),
    ) {
        let mut policy = kind.policy(10);
        let mut resident = BTreeSet::new();
        for (step, slab, time) in steps {
            match step {
                0 | 1 => {
                    policy.insert(slab, time);
                    resident.insert(slab);
                }
                2 => policy.touch(slab),
                3 => {
                    policy.remove(slab);
                    resident.remove(&slab);
                }
                _ => {
                    let gone = policy.evict();
                    prop_assert_eq!(gone.is_some(), !resident.is_empty());
                    prop_assert!(gone.is_none_or(|slab| resident.remove(&slab)));
                }
            }
        }
        let rest: BTreeSet<u32> = std::iter::from_fn(|| policy.evict()).collect();
        prop_assert_eq!(rest, resident);
    }
}
