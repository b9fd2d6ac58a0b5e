//! A bounded number of seeds; `cargo xtask sim --seeds N` runs more, optimised.

use std::thread;

/// The same each time, so that a failure is one of the change at hand; `THALWEG_SIM_FIRST` tries others.
const FIRST: u64 = 0;
const SEEDS: u64 = 60;
const OPERATIONS: u64 = 400;

/// Seeds that once diverged, and the number of operations with which they did.
const ONCE_DIVERGED: [u64; 8] = [900_083, 900_573, 903_100, 903_239, 1_004_934, 6_001_584, 6_100_058, 6_202_330];
const THEIR_OPERATIONS: u64 = 300;

#[test]
fn seeds_that_once_diverged_do_so_no_more() {
    let divergences: Vec<String> = ONCE_DIVERGED
        .into_iter()
        .filter_map(|seed| thalweg_sim::run(seed, THEIR_OPERATIONS).err().map(|divergence| divergence.to_string()))
        .collect();
    assert!(divergences.is_empty(), "{}", divergences.join("\n"));
}

#[test]
fn the_store_holds_what_the_oracle_holds() {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    };
    let first = number("THALWEG_SIM_FIRST", FIRST);
    let end = first + number("THALWEG_SIM_SEEDS", SEEDS);
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let run = |from: u64| {
        (from..end).step_by(threads as usize).filter_map(|seed| thalweg_sim::run(seed, OPERATIONS).err()).collect()
    };
    let divergences: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> =
            (first..first + threads).map(|from| scope.spawn(move || -> Vec<_> { run(from) })).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let told: Vec<String> = divergences.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
}
