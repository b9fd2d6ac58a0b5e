//! Replacement policies against generated requests, without a file: the same policies as the cache's own, over slabs that stand for
//! equal stretches of time.

mod workload;

pub(crate) use workload::{Mix, Request, Workload};

use cache::PolicyKind;

/// The simulated cache and its requests.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Minutes of data in the database behind the cache.
    pub(crate) data_minutes: i64,
    /// Minutes of data that one slab holds.
    pub(crate) slab_minutes: i64,
    /// Bytes of a slab.
    pub(crate) slab_bytes: u64,
    /// Slabs that the cache holds.
    pub(crate) cache_slabs: usize,
    /// Requests.
    pub(crate) requests: u64,
    /// How often the partition sizes are told, in the course of all requests.
    pub(crate) samples: u64,
    /// What the requests are like.
    pub(crate) mix: Mix,
    /// What chance follows from.
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    /// Which policy.
    pub(crate) policy: PolicyKind,
    /// Requests that found all of their slabs.
    pub(crate) hits: u64,
    /// Requests.
    pub(crate) requests: u64,
    /// Slabs that requests touched, and those of them that were there.
    pub(crate) slabs_touched: u64,
    /// See above.
    pub(crate) slab_hits: u64,
    /// Bytes that were read from the cache: of each slab what the request wanted of it.
    pub(crate) read_bytes: u64,
    /// Bytes that were written to it.
    pub(crate) written_bytes: u64,
    /// The share of the LRU partition over time; empty for policies without one.
    pub(crate) lru_shares: Vec<f64>,
}

impl Outcome {
    /// The share of requests that found everything.
    pub(crate) fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.requests.max(1) as f64
    }
}

/// Runs one policy.
pub(crate) fn run(settings: &Settings, policy: PolicyKind) -> Outcome {
    let mut workload = Workload::new(settings.mix, settings.data_minutes, settings.seed);
    let mut state = policy.policy(settings.cache_slabs);
    let mut resident = std::collections::HashSet::new();
    let mut outcome = Outcome {
        policy,
        hits: 0,
        requests: settings.requests,
        slabs_touched: 0,
        slab_hits: 0,
        read_bytes: 0,
        written_bytes: 0,
        lru_shares: Vec::new(),
    };
    let sample_every = (settings.requests / settings.samples.max(1)).max(1);
    for number in 0..settings.requests {
        let request = workload.request();
        let mut is_hit = true;
        let slabs = request.span.start / settings.slab_minutes..=(request.span.end - 1) / settings.slab_minutes;
        for slab in slabs.map(|slab| slab as u32) {
            outcome.slabs_touched += 1;
            if resident.contains(&slab) {
                state.touch(slab);
                outcome.slab_hits += 1;
                outcome.read_bytes += wanted_bytes(settings, &request, slab);
                continue;
            }
            is_hit = false;
            state.missed(slab);
            if resident.len() >= settings.cache_slabs {
                state.evict().map(|victim| resident.remove(&victim));
            }
            state.insert(slab, i64::from(slab));
            resident.insert(slab);
            outcome.written_bytes += settings.slab_bytes;
        }
        outcome.hits += u64::from(is_hit);
        if number % sample_every == 0 {
            outcome.lru_shares.extend(state.lru_share());
        }
    }
    outcome
}

fn wanted_bytes(settings: &Settings, request: &Request, slab: u32) -> u64 {
    let start = i64::from(slab) * settings.slab_minutes;
    let wanted = request.span.intersect(&cache::Span::new(start, start + settings.slab_minutes));
    (settings.slab_bytes as f64 * wanted.length() / settings.slab_minutes as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(mix: Mix) -> Settings {
        Settings {
            data_minutes: 1 << 17,
            slab_minutes: 128,
            slab_bytes: 1 << 20,
            cache_slabs: 100,
            requests: 20_000,
            samples: 10,
            mix,
            seed: 1,
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_outcome() {
        let settings = settings(Mix::Latest);
        let first = run(&settings, PolicyKind::TsCache);
        assert_eq!(first, run(&settings, PolicyKind::TsCache));
        assert_eq!(first.lru_shares.len(), 10);
        assert!(first.hits > 0 && first.slab_hits < first.slabs_touched);
    }

    #[test]
    fn two_partitions_keep_more_than_one_queue() {
        for mix in [Mix::Latest, Mix::HotSpot { new: 2, old: 1 }, Mix::HotSpot { new: 1, old: 1 }] {
            let settings = Settings { data_minutes: 1 << 18, cache_slabs: 204, ..settings(mix) };
            let ratio = |policy| run(&settings, policy).hit_ratio();
            let (fifo, lru, tscache) = (ratio(PolicyKind::Fifo), ratio(PolicyKind::Lru), ratio(PolicyKind::TsCache));
            assert!(tscache > fifo + 0.05 && tscache > lru + 0.01, "{mix:?}: {fifo}, {lru}, {tscache}");
        }
    }
}
