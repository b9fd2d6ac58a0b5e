use std::collections::HashMap;

use platform::sim::Simulation;

use super::*;

const BLOCK_BYTES: u64 = 1024;

fn path() -> &'static Path {
    Path::new("cache/blocks")
}

fn file_bytes(slots: u64) -> u64 {
    HEADER_BYTES * 2 + slots * (BLOCK_BYTES + ENTRY_BYTES)
}

fn open(simulation: &Simulation, slots: u64) -> FlashCache {
    FlashCache::open(&*simulation.platform().files, path(), file_bytes(slots), BLOCK_BYTES).unwrap()
}

fn key(number: u32) -> BlockKey {
    BlockKey { object: u128::from(number % 3) << 70, number }
}

fn content(number: u32) -> Vec<u8> {
    let length = 1 + (number as usize * 37) % BLOCK_BYTES as usize;
    (0..length).map(|place| (place as u32 ^ number.wrapping_mul(0x9e37)) as u8).collect()
}

/// Blocks that come back; every one that does must be right.
fn kept(flash: &FlashCache, numbers: std::ops::Range<u32>) -> Vec<u32> {
    let right =
        |number: &u32| flash.get(key(*number)).map(|found| assert_eq!(found, content(*number), "block {number}"));
    numbers.filter(|number| right(number).is_some()).collect()
}

#[test]
fn blocks_survive_a_restart() {
    let simulation = Simulation::new(1);
    let flash = open(&simulation, 16);
    (0..10).for_each(|number| flash.put(key(number), &content(number)));
    assert_eq!(kept(&flash, 0..20), (0..10).collect::<Vec<_>>());
    drop(flash);
    let flash = open(&simulation, 16);
    assert_eq!(kept(&flash, 0..20), (0..10).collect::<Vec<_>>());
    assert_eq!(flash.used_bytes(), 10 * BLOCK_BYTES);
}

#[test]
fn the_file_keeps_its_size_and_the_oldest_go_first_unless_they_were_read() {
    let simulation = Simulation::new(1);
    let flash = open(&simulation, 8);
    (0..8).for_each(|number| flash.put(key(number), &content(number)));
    let size = simulation.read(path()).unwrap().len() as u64;
    assert!(size <= file_bytes(8) && flash.slots() == 8, "{size}");
    assert!(flash.get(key(2)).is_some());
    (8..12).for_each(|number| flash.put(key(number), &content(number)));
    assert_eq!(kept(&flash, 0..12), [2, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(simulation.read(path()).unwrap().len() as u64, size);
}

#[test]
fn a_file_of_another_shape_is_made_anew() {
    let simulation = Simulation::new(1);
    open(&simulation, 8).put(key(1), &content(1));
    let flash = open(&simulation, 9);
    assert_eq!(kept(&flash, 0..4), [0_u32; 0]);
    drop(flash);
    simulation.flip_bit(path(), 3, 0).unwrap();
    assert_eq!(kept(&open(&simulation, 9), 0..4), [0_u32; 0]);
    let files = simulation.platform().files;
    let refused = FlashCache::open(&*files, path(), 100, BLOCK_BYTES).err().unwrap();
    assert!(refused.to_string().contains("no room"), "{refused}");
}

#[test]
fn every_flipped_bit_is_a_miss_or_does_no_harm() {
    let simulation = Simulation::new(1);
    let flash = open(&simulation, 4);
    (0..4).for_each(|number| flash.put(key(number), &content(number)));
    drop(flash);
    let size = simulation.read(path()).unwrap().len() as u64;
    let mut lost = 0;
    for offset in (0..size).step_by(3) {
        simulation.flip_bit(path(), offset, (offset % 8) as u8).unwrap();
        let flash = open(&simulation, 4);
        let found = kept(&flash, 0..4).len();
        lost += u32::from(found < 4);
        if found < 4 {
            // An emptied slot takes its block again; a damaged header has emptied them all.
            (0..4).for_each(|number| flash.put(key(number), &content(number)));
            assert_eq!(kept(&flash, 0..4), [0, 1, 2, 3], "offset {offset}");
        } else {
            drop(flash);
            simulation.flip_bit(path(), offset, (offset % 8) as u8).unwrap();
        }
    }
    assert!(lost > 500, "only {lost} flips were noticed");
}

#[test]
fn a_crash_never_brings_a_wrong_block() {
    let mut kept_by_seed = HashMap::new();
    for seed in 0..200 {
        let simulation = Simulation::new(seed);
        let flash = open(&simulation, 4);
        simulation.platform().files.sync_directory(Path::new("cache")).unwrap();
        flash.file.sync_data().unwrap();
        (0..8).for_each(|number| flash.put(key(number), &content(number)));
        simulation.crash();
        assert_eq!(kept(&flash, 0..8), [0_u32; 0], "handles from before the crash read nothing");
        let flash = open(&simulation, 4);
        kept_by_seed.insert(kept(&flash, 0..8).len(), seed);
    }
    assert!(kept_by_seed.len() > 2, "crashes of all kinds: {kept_by_seed:?}");
}

#[test]
fn threads_read_what_was_written_while_slots_are_reused() {
    let simulation = Simulation::new(1);
    let flash = open(&simulation, 4);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let flash = &flash;
            scope.spawn(move || {
                for round in 0..2_000 {
                    let number = (round * 7 + thread) % 12;
                    flash.put(key(number), &content(number));
                    kept(flash, 0..12);
                }
            });
        }
    });
    assert_eq!(flash.counters.damaged.load(Ordering::Relaxed), 0);
    assert!(flash.counters.writes.load(Ordering::Relaxed) > 1_000);
}

#[test]
fn an_entry_whose_number_nothing_comes_after_is_none() {
    let entry = |sequence| Entry { key: key(1), length: 5, checksum: 7, sequence };
    assert_eq!(Entry::decode(&entry(SEQUENCE_MAX).encode()), Some(entry(SEQUENCE_MAX)));
    for sequence in [SEQUENCE_MAX + 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(Entry::decode(&entry(sequence).encode()), None, "{sequence}");
    }
}
