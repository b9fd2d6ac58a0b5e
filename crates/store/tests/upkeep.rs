//! Backup and restore, check and inspect, compact: against a map, and against every kind of damage.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use index::compile;
use model::{MatchOp, Matcher, TimeRange};
use platform::objects::{ObjectOptions, Objects};
use platform::sim::{ObjectFaults, Simulation};
use support::{Content, Row, apply, batch, read_all};
use thalweg_store::{
    BackupReport, CheckReport, DatabasePolicy, ObjectTierOptions, Progress, Store, StoreError, StoreOptions, backups,
    check, inspect, prune, restore,
};

const SECOND_NS: i64 = 1_000_000_000;
const TARGET: &str = "sim://backups";
const TIER: &str = "sim://tier";
/// Taken while writers are at work; each is restored and compared.
const BACKUPS: usize = 100;

fn options(directory: &str) -> StoreOptions {
    StoreOptions {
        head_bytes_max: 6 << 10,
        log_segment_bytes: 8 << 10,
        log_bytes_max: 64 << 10,
        partition_ns: 60 * SECOND_NS,
        level0_parts_max: 2,
        ..StoreOptions::new(directory)
    }
}

fn with_tier(directory: &str) -> StoreOptions {
    let tier = ObjectTierOptions { local_bytes_max: 0, cache_flash_bytes: 0, ..ObjectTierOptions::new(TIER) };
    StoreOptions { objects: Some(tier), ..options(directory) }
}

fn open(simulation: &Simulation, options: StoreOptions) -> Store {
    Store::open(simulation.platform(), options).unwrap()
}

fn target(simulation: &Simulation) -> Arc<dyn Objects> {
    simulation.platform().objects.open(TARGET, &ObjectOptions::default()).unwrap()
}

fn quiet(_: &Progress) {}

/// As [`write`], without maintenance of what cannot be reached.
fn write_here(simulation: &Simulation, store: &Store, content: &mut Content, steps: std::ops::Range<i64>) {
    for step in steps {
        let fields = vec![("a".to_owned(), step as f64)];
        let host = format!("h{}", simulation.below(6));
        let rows = [Row { host, timestamp_ns: step * 10 * SECOND_NS, fields }];
        store.write("default", &batch(&rows)).unwrap();
        apply(content, &rows);
    }
}

/// Writes rows of some steps; values are unique, some rows are late, some rewrite others.
fn write(simulation: &Simulation, store: &Store, content: &mut Content, steps: std::ops::Range<i64>) {
    for step in steps {
        let rows: Vec<Row> = (0..8)
            .map(|place| {
                let late_s = if simulation.below(8) == 0 { simulation.below(3000) as i64 } else { 0 };
                let fields = vec![("a".to_owned(), (step * 100 + place) as f64), ("b".to_owned(), -(step as f64))];
                let host = format!("h{}", simulation.below(6));
                Row { host, timestamp_ns: (step * 10 - late_s) * SECOND_NS, fields }
            })
            .collect();
        store.write("default", &batch(&rows)).unwrap();
        apply(content, &rows);
        if step % 7 == 0 {
            store.maintain().unwrap();
        }
    }
}

fn backup(store: &Store, target: &dyn Objects) -> BackupReport {
    store.backup(target, &mut quiet).unwrap()
}

/// Restores into a folder, opens it and reads everything.
fn restored(simulation: &Simulation, which: Option<&str>, directory: &str) -> Content {
    let platform = simulation.platform();
    restore(&*target(simulation), which, &platform, Path::new(directory), &mut quiet).unwrap();
    let report = check(&platform, Path::new(directory), None, &mut quiet).unwrap();
    assert_eq!((&report.damages, &report.unnamed), (&Vec::new(), &Vec::new()));
    let store = open(simulation, options(directory));
    assert!(store.recovery().parts_set_aside.is_empty() && !store.recovery().created);
    read_all(&store, TimeRange::ALL)
}

#[test]
fn a_restored_backup_is_what_the_folder_held_at_its_moment() {
    for seed in 0..6 {
        let simulation = Simulation::new(seed);
        let store = open(&simulation, if seed % 2 == 0 { options("data") } else { with_tier("data") });
        let mut content = Content::new();
        write(&simulation, &store, &mut content, 0..150);
        let first = backup(&store, &*target(&simulation));
        let at_first = content.clone();
        assert_eq!((first.files_copied, first.bytes_copied), (first.files, first.bytes));
        write(&simulation, &store, &mut content, 150..170);
        let second = backup(&store, &*target(&simulation));
        let at_second = content.clone();
        assert!(second.bytes_copied < second.bytes, "only what is new is copied: {second:?}");
        let third = backup(&store, &*target(&simulation));
        assert_eq!((third.files_copied, third.sequence), (0, second.sequence), "nothing is new");
        write(&simulation, &store, &mut content, 170..300);
        assert_eq!(restored(&simulation, Some(&first.name), "first"), at_first, "seed {seed}");
        let short_name = second.name.rsplit('/').next().unwrap();
        assert_eq!(restored(&simulation, Some(short_name), "second"), at_second, "seed {seed}");
        assert_eq!(restored(&simulation, None, "newest"), at_second, "seed {seed}");
        assert_eq!(read_all(&store, TimeRange::ALL), content, "the folder itself goes on");
    }
}

#[test]
fn a_restored_folder_is_written_on_and_is_another_one() {
    let simulation = Simulation::new(9);
    let store = open(&simulation, options("data"));
    let mut content = Content::new();
    write(&simulation, &store, &mut content, 0..60);
    let hosts = compile(&[Matcher::new("host", MatchOp::Equal, "h1")]).unwrap();
    store.delete("default", &hosts, &TimeRange::ALL).unwrap();
    content.retain(|(host, _), _| host != "h1");
    backup(&store, &*target(&simulation));
    assert_eq!(restored(&simulation, None, "other"), content);
    let other = open(&simulation, options("other"));
    assert_ne!(other.incarnation(), store.incarnation(), "numbers of the one mean nothing in the other");
    // The delete masks nothing that is written from here on, though the log that numbered it is gone.
    write(&simulation, &other, &mut content, 60..120);
    assert_eq!(read_all(&other, TimeRange::ALL), content);
    drop(other);
    assert_eq!(read_all(&open(&simulation, options("other")), TimeRange::ALL), content);
    let other = open(&simulation, options("other"));
    let again = backup(&other, &*target(&simulation));
    assert_eq!(again.files_copied, again.files, "its files are not taken for those of the first");
}

#[test]
fn a_delete_of_many_sets_takes_what_they_select_and_costs_as_one() {
    let simulation = Simulation::new(9);
    let shards = 2;
    let with_shards = || StoreOptions { shards, ..options("data") };
    let store = open(&simulation, with_shards());
    let mut content = Content::new();
    write(&simulation, &store, &mut content, 0..60);
    let hosts: BTreeSet<String> = content.keys().map(|(host, _)| host.clone()).collect();
    let chosen: Vec<&String> = hosts.iter().skip(1).collect();
    let set = |host: &&String| compile(&[Matcher::new("host", MatchOp::Equal, host.as_str())]).unwrap();
    let sets: Vec<_> = chosen.iter().map(set).collect();
    let before = store.last_sequence();
    let deleted = store.delete_sets("default", &sets, &TimeRange::ALL).unwrap();
    assert!(chosen.len() > 1 && deleted.groups >= chosen.len() as u64, "{deleted:?}");
    content.retain(|(host, _), _| !chosen.contains(&host));
    assert!(!content.is_empty());
    assert_eq!(read_all(&store, TimeRange::ALL), content);
    assert!(store.last_sequence() - before <= u64::from(shards), "{} after {before}", store.last_sequence());
    drop(store);
    assert_eq!(read_all(&open(&simulation, with_shards()), TimeRange::ALL), content);
}

#[test]
fn old_backups_stay_until_they_are_pruned() {
    let simulation = Simulation::new(4);
    let store = open(&simulation, options("data"));
    let mut content = Content::new();
    let mut taken: Vec<(String, Content)> = Vec::new();
    for round in 0..4 {
        write(&simulation, &store, &mut content, round * 60..round * 60 + 60);
        store.compact_all().unwrap();
        taken.push((backup(&store, &*target(&simulation)).name, content.clone()));
    }
    let names: Vec<String> = taken.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(backups(&*target(&simulation)).unwrap(), names);
    let pruned = prune(&*target(&simulation), 2).unwrap();
    assert_eq!((pruned.backups_kept, pruned.backups_removed), (2, 2));
    assert!(pruned.files_removed > 0, "what merges replaced goes: {pruned:?}");
    for (name, content) in &taken[2..] {
        let directory = format!("from-{}", name.rsplit('/').next().unwrap());
        assert_eq!(restored(&simulation, Some(name), &directory), *content);
    }
    let platform = simulation.platform();
    let gone = restore(&*target(&simulation), Some(&names[0]), &platform, Path::new("gone"), &mut quiet).unwrap_err();
    assert!(gone.to_string().contains("there is no backup"), "{gone}");
    assert!(prune(&*target(&simulation), 0).is_err());
}

#[test]
fn a_damaged_or_missing_object_is_named_and_nothing_is_left_behind() {
    let simulation = Simulation::new(5);
    let store = open(&simulation, options("data"));
    write(&simulation, &store, &mut Content::new(), 0..80);
    backup(&store, &*target(&simulation));
    let platform = simulation.platform();
    for key in simulation.object_keys(TARGET).iter().filter(|key| *key != "LATEST") {
        let size = simulation.object(TARGET, key).unwrap().len() as u64;
        let try_restore = || restore(&*target(&simulation), None, &platform, Path::new("broken"), &mut quiet);
        for offset in [0, size / 2, size - 1] {
            simulation.flip_object_bit(TARGET, key, offset, 3).unwrap();
            let error = try_restore().unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }) && error.to_string().contains(key), "{key}: {error}");
            simulation.flip_object_bit(TARGET, key, offset, 3).unwrap();
        }
        let whole = simulation.object(TARGET, key).unwrap();
        let put = |bytes: &[u8]| {
            let content = platform::objects::Content::Bytes(bytes);
            target(&simulation).put(key, content, &platform::objects::PutCondition::Always).unwrap();
        };
        put(&whole[..whole.len() - 1]);
        let error = try_restore().unwrap_err();
        assert!(error.to_string().contains(key), "{key}: {error}");
        put(&whole);
        let left: Vec<PathBuf> = simulation.files();
        let left: Vec<_> = left.iter().filter(|path| path.starts_with("broken") && !path.ends_with("LOCK")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    restore(&*target(&simulation), None, &platform, Path::new("broken"), &mut quiet).unwrap();
    let error = restore(&*target(&simulation), None, &platform, Path::new("broken"), &mut quiet).unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
}

fn checked(simulation: &Simulation, tier: bool) -> CheckReport {
    let tier = tier.then(|| ObjectTierOptions::new(TIER));
    check(&simulation.platform(), Path::new("data"), tier.as_ref(), &mut quiet).unwrap()
}

#[test]
fn check_finds_every_flipped_byte_and_names_its_file() {
    let simulation = Simulation::new(6);
    let store = open(&simulation, options("data"));
    // Without merges, so that every byte of every file is of a part that counts.
    for steps in [1..7, 8..14, 15..21] {
        store.flush_all().unwrap();
        write(&simulation, &store, &mut Content::new(), steps);
    }
    let before = simulation.files();
    let clean = checked(&simulation, false);
    assert!(clean.damages.is_empty() && clean.chunks > 0 && clean.log_records > 0 && clean.bytes > 0, "{clean:?}");
    assert_eq!(simulation.files(), before, "an open folder is checked, and nothing is written");
    drop(store);
    let files = before.iter().filter(|path| {
        let is_index = path.starts_with("data/index");
        path.extension().is_some_and(|extension| extension == "part" || is_index && extension != "damaged")
    });
    for path in files {
        let size = simulation.read(path).unwrap().len() as u64;
        for place in 0..12 {
            let offset = place * (size - 1) / 11;
            simulation.flip_bit(path, offset, 5).unwrap();
            let found = checked(&simulation, false);
            let named = found.damages.iter().any(|damage| damage.file == path.display().to_string());
            // The four zeros behind the version say nothing and are not looked at.
            assert!(named || (12..16).contains(&offset), "{} at {offset}: {found:?}", path.display());
            simulation.flip_bit(path, offset, 5).unwrap();
        }
    }
    simulation.flip_bit(Path::new("data/MANIFEST"), 30, 1).unwrap();
    assert_eq!(checked(&simulation, false).damages.len(), 1);
}

/// Whatever is wrong with one copy of an index segment, answers are right, the damage is reported once and both copies are whole afterwards.
#[test]
fn a_damaged_copy_of_the_index_is_served_around_and_repaired() {
    let simulation = Simulation::new(16);
    let store = open(&simulation, options("data"));
    let mut content = Content::new();
    write(&simulation, &store, &mut content, 0..60);
    store.compact_all().unwrap();
    drop(store);
    let of_kind = |kind: &str| {
        let files = simulation.files();
        let is_of_kind = |path: &PathBuf| path.extension().is_some_and(|name| name == kind);
        files.into_iter().filter(|path| path.starts_with("data/index") && is_of_kind(path)).collect::<Vec<PathBuf>>()
    };
    assert_eq!(of_kind("segment").len(), of_kind("twin").len());
    for path in of_kind("segment").into_iter().chain(of_kind("twin")) {
        let size = simulation.read(&path).unwrap().len() as u64;
        for place in 0..9 {
            let offset = place * (size - 1) / 8;
            simulation.flip_bit(&path, offset, 4).unwrap();
            let store = open(&simulation, options("data"));
            assert_eq!(read_all(&store, TimeRange::ALL), content, "{} at {offset}", path.display());
            let reported = store.health().damages();
            let is_named = reported.iter().all(|damage| damage.file.ends_with(".segment"));
            assert!(reported.len() <= 1 && is_named, "{reported:?}");
            store.compact_all().unwrap();
            assert_eq!(read_all(&store, TimeRange::ALL), content);
            assert!(!has_damage(&store), "{} at {offset} was repaired", path.display());
            drop(store);
            let found = checked(&simulation, false);
            let is_unread = path.extension().is_some_and(|name| name == "twin") || (12..16).contains(&offset);
            assert!(is_unread || found.damages.is_empty(), "{} at {offset}: {found:?}", path.display());
            if !found.damages.is_empty() || is_unread {
                simulation.flip_bit(&path, offset, 4).unwrap();
            }
        }
    }
    for kind in ["twin", "segment"] {
        for path in of_kind(kind) {
            simulation.platform().files.remove(&path).unwrap();
        }
        let store = open(&simulation, options("data"));
        assert_eq!(read_all(&store, TimeRange::ALL), content, "without {kind} files");
        store.compact_all().unwrap();
        drop(store);
        assert_eq!(of_kind("segment").len(), of_kind("twin").len());
        assert_eq!(checked(&simulation, false).damages, []);
    }
}

/// A full disk keeps no folder closed, and what gives room back works on it.
#[test]
fn a_folder_opens_on_a_full_disk_and_deletes_give_room() {
    let simulation = Simulation::new(19);
    let store = open(&simulation, options("data"));
    let mut content = Content::new();
    write(&simulation, &store, &mut content, 0..120);
    store.compact_all().unwrap();
    drop(store);
    simulation.limit_room(Some(simulation.used_bytes()));
    let store = open(&simulation, options("data"));
    assert_eq!(read_all(&store, TimeRange::ALL), content);
    let hosts = compile(&[Matcher::new("host", MatchOp::Equal, "h1")]).unwrap();
    store.delete("default", &hosts, &TimeRange::ALL).unwrap();
    content.retain(|(host, _), _| host != "h1");
    assert_eq!(read_all(&store, TimeRange::ALL), content);
    simulation.limit_room(None);
    write(&simulation, &store, &mut content, 120..130);
    assert_eq!(read_all(&store, TimeRange::ALL), content);
}

/// Without its object store a folder opens all the same, serves what is here, and uploads once the store is back.
#[test]
fn a_folder_opens_without_its_object_store() {
    let simulation = Simulation::new(20);
    let with_copies = || StoreOptions {
        objects: Some(ObjectTierOptions { cache_flash_bytes: 0, ..ObjectTierOptions::new(TIER) }),
        ..options("data")
    };
    let store = open(&simulation, with_copies());
    let mut content = Content::new();
    write(&simulation, &store, &mut content, 0..100);
    store.compact_all().unwrap();
    drop(store);
    simulation.set_object_faults(ObjectFaults { busy_per_mille: 1000, ..ObjectFaults::default() });
    let store = open(&simulation, with_copies());
    assert_eq!(read_all(&store, TimeRange::ALL), content);
    // Old rows too: their parts settle, whatever the seed.
    write_here(&simulation, &store, &mut content, 100..140);
    write_here(&simulation, &store, &mut content, -400..-300);
    store.flush_all().unwrap();
    assert!(matches!(store.maintain_objects(), Err(StoreError::Objects(_))));
    assert_eq!(read_all(&store, TimeRange::ALL), content);
    let before = simulation.object_keys(TIER);
    simulation.set_object_faults(ObjectFaults::default());
    store.compact_all().unwrap();
    assert_ne!(simulation.object_keys(TIER), before, "uploads go on");
    assert_eq!(read_all(&store, TimeRange::ALL), content);
}

/// Reads everything there is, as time passes.
fn scrub_all(simulation: &Simulation, store: &Store) {
    let period_ms = options("data").scrub_period_ms;
    for _ in 0..400 {
        simulation.advance_ns(period_ms as i64 * 1_000_000 / 200);
        while store.scrub().unwrap() {}
    }
}

#[test]
fn the_scrub_reports_a_damaged_part_and_fetches_it_again_where_it_can() {
    let with_copies = |directory| StoreOptions {
        objects: Some(ObjectTierOptions { cache_flash_bytes: 0, ..ObjectTierOptions::new(TIER) }),
        ..options(directory)
    };
    for in_objects in [false, true] {
        let simulation = Simulation::new(18);
        let options = if in_objects { with_copies } else { |directory| options(directory) };
        let store = open(&simulation, options("data"));
        let mut content = Content::new();
        write(&simulation, &store, &mut content, 0..200);
        store.compact_all().unwrap();
        scrub_all(&simulation, &store);
        assert_eq!(store.health().damages(), []);
        let part =
            simulation.files().into_iter().find(|path| path.extension().is_some_and(|name| name == "part")).unwrap();
        simulation.flip_bit(&part, 40, 3).unwrap();
        scrub_all(&simulation, &store);
        let damages = store.health().damages();
        assert!(damages.len() == 1 && damages[0].file == part.display().to_string(), "{damages:?}");
        assert_eq!(store.stats().parts_fetched_again, u64::from(in_objects));
        assert_eq!(has_damage(&store), !in_objects, "the check is over once the part was fetched again");
        if in_objects {
            assert_eq!(read_all(&store, TimeRange::ALL), content);
            assert_eq!(checked(&simulation, true).damages, []);
        }
    }
}

/// Returns whether the health check says that something is damaged at present.
fn has_damage(store: &Store) -> bool {
    store.health().checks().iter().any(|check| check.name == "damage")
}

fn files_of(simulation: &Simulation, folder: &str, ending: &str) -> Vec<PathBuf> {
    let is_meant = |path: &PathBuf| path.starts_with(folder) && path.extension().is_some_and(|found| found == ending);
    simulation.files().into_iter().filter(is_meant).collect()
}

#[test]
fn the_scrub_repairs_the_manifest_and_flushes_what_a_damaged_log_held() {
    let simulation = Simulation::new(21);
    let store = open(&simulation, options("data"));
    let mut content = Content::new();
    write_here(&simulation, &store, &mut content, 0..40);
    for (number, name) in ["data/MANIFEST", "data/MANIFEST.twin"].into_iter().enumerate() {
        for damaged in [true, false] {
            let whole = simulation.read(Path::new(name)).unwrap();
            let cut = (!damaged).then(|| whole[..whole.len() - 1].to_vec());
            match cut {
                None => simulation.flip_bit(Path::new(name), 30, 1).unwrap(),
                Some(cut) => simulation.spoil(Path::new(name), Some(cut)).unwrap(),
            }
            scrub_all(&simulation, &store);
            let damages = store.health().damages();
            assert_eq!(damages.len(), 2 * number + 2 - usize::from(damaged), "{name}: {damages:?}");
            assert_eq!(damages.last().map(|damage| damage.file.as_str()), Some(name));
            assert!(!has_damage(&store), "it was written anew");
            assert_eq!(checked(&simulation, false).damages, []);
        }
    }
    let log = files_of(&simulation, "data/log", "log");
    assert!(log.len() > 2, "{log:?}");
    simulation.flip_bit(&log[1], 50, 2).unwrap();
    scrub_all(&simulation, &store);
    let damages = store.health().damages();
    assert_eq!(damages.last().map(|damage| damage.file.as_str()), log[1].to_str());
    assert!(!has_damage(&store) && !simulation.files().contains(&log[1]), "its rows are in parts");
    // The last records' block is written to still.
    write_here(&simulation, &store, &mut content, 100..102);
    let newest = files_of(&simulation, "data/log", "log").pop().unwrap();
    let used = simulation.read(&newest).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    simulation.flip_bit(&newest, used as u64, 2).unwrap();
    scrub_all(&simulation, &store);
    assert!(store.health().damages_total() > 5 && has_damage(&store), "{:?}", store.health().damages());
    assert_eq!(read_all(&store, TimeRange::ALL), content);
    drop(store);
    let store = open(&simulation, options("data"));
    assert_eq!((read_all(&store, TimeRange::ALL), store.health().losses()), (content, Vec::new()));
}

#[test]
fn the_scrub_reads_the_trash_and_damage_goes_with_it() {
    let simulation = Simulation::new(22);
    // A pass is over before the trash is emptied.
    let options = StoreOptions { scrub_period_ms: 60_000, ..options("data") };
    let (store, ..) = with_trash(&simulation, &options);
    let trash = thalweg_store::trash_of(&simulation.platform(), Path::new("data")).unwrap();
    let path = PathBuf::from(format!("data/parts/{:010}.part", trash[0].id));
    simulation.flip_bit(&path, 40, 3).unwrap();
    for _ in 0..300 {
        simulation.advance_ns(SECOND_NS);
        while store.scrub().unwrap() {}
    }
    assert!(has_damage(&store), "{:?}", simulation.files());
    assert_eq!(store.health().damages().first().map(|damage| damage.file.as_str()), path.to_str());
    simulation.limit_room(Some(simulation.used_bytes() + (1 << 20)));
    maintain(&store);
    assert!(store.stats().trash_parts == 0 && !has_damage(&store));
}

/// Every backup that is taken while writers are at work holds each of their requests whole or not at all, up to one moment.
#[test]
fn backups_under_load_hold_whole_requests() {
    const WRITERS: u64 = 3;
    const ROWS: u64 = 12;
    let simulation = Simulation::new(17);
    let store = open(&simulation, StoreOptions { shards: 4, head_bytes_max: 64 << 10, ..options("data") });
    let request = |writer: u64, number: u64| -> Vec<Row> {
        let row = |place: u64| Row {
            host: format!("w{writer}-{place}"),
            timestamp_ns: number as i64 * SECOND_NS,
            fields: vec![("a".to_owned(), number as f64)],
        };
        (0..ROWS).map(row).collect()
    };
    let stop = AtomicBool::new(false);
    let names: Vec<String> = std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    store.write("default", &batch(&request(writer, number))).unwrap();
                    number += 1;
                }
            });
        }
        let target = target(&simulation);
        let names = (0..BACKUPS).map(|_| backup(&store, &*target).name).collect();
        stop.store(true, Ordering::Relaxed);
        names
    });
    for (place, name) in names.iter().enumerate() {
        let found = restored(&simulation, Some(name), &format!("restored-{place}"));
        for writer in 0..WRITERS {
            let of_row = |place: u64| found.get(&(format!("w{writer}-{place}"), "m_a".to_owned()));
            let counts: Vec<usize> = (0..ROWS).map(|place| of_row(place).map_or(0, BTreeMap::len)).collect();
            assert!(
                counts.iter().all(|count| *count == counts[0]),
                "{name}: requests of writer {writer} in parts: {counts:?}"
            );
            let times: Vec<i64> = of_row(0).into_iter().flat_map(BTreeMap::keys).copied().collect();
            assert!(
                times.iter().enumerate().all(|(number, time_ns)| *time_ns == number as i64 * SECOND_NS),
                "{name}: a gap"
            );
        }
    }
}

#[test]
fn check_reads_objects_when_it_may() {
    let simulation = Simulation::new(7);
    let store = open(&simulation, with_tier("data"));
    write(&simulation, &store, &mut Content::new(), 0..400);
    store.compact_all().unwrap();
    let keys = simulation.object_keys(TIER);
    let keys: Vec<&String> = keys.iter().filter(|key| key.contains("/parts/")).collect();
    assert!(!keys.is_empty());
    assert_eq!(checked(&simulation, false).objects_skipped, keys.len() as u64);
    let clean = checked(&simulation, true);
    assert_eq!((clean.damages.len(), clean.objects_skipped), (0, 0), "{clean:?}");
    for key in keys {
        simulation.flip_object_bit(TIER, key, 40, 2).unwrap();
        let found = checked(&simulation, true);
        assert!(found.damages.len() == 1 && found.damages[0].file == *key, "{found:?}");
        simulation.flip_object_bit(TIER, key, 40, 2).unwrap();
    }
}

#[test]
fn inspect_tells_what_there_is() {
    let simulation = Simulation::new(8);
    let store = open(&simulation, options("data"));
    let policy = DatabasePolicy { retention_ns: 3600 * SECOND_NS, ..DatabasePolicy::default() };
    store.set_policy("short", &policy).unwrap();
    write(&simulation, &store, &mut Content::new(), 0..300);
    store.flush_all().unwrap();
    let report = inspect(&simulation.platform(), Path::new("data")).unwrap();
    let stats = store.stats();
    for level in 0..3u8 {
        let rows: u64 = report.partitions.iter().filter(|part| part.level == level).map(|part| part.rows).sum();
        assert_eq!(rows, stats.levels[usize::from(level)].rows, "level {level}");
    }
    assert_eq!((report.shards, report.epoch, report.incarnation), (2, 1, store.incarnation()));
    let named: Vec<&str> = report.databases.iter().map(|known| known.database.as_str()).collect();
    assert_eq!(named, ["short", "default"]);
    assert_eq!(report.databases[0].policy.retention_ns, policy.retention_ns);
    assert!(report.missing.is_empty() && report.index.bytes > 0 && report.log.bytes > 0, "{report:?}");
    let error = inspect(&simulation.platform(), Path::new("elsewhere")).unwrap_err();
    assert!(error.to_string().contains("is no data folder"), "{error}");
}

#[test]
fn compact_carries_out_deletes() {
    let simulation = Simulation::new(3);
    let store = open(&simulation, options("data"));
    let mut content = Content::new();
    write(&simulation, &store, &mut content, 0..200);
    let hosts = compile(&[Matcher::new("host", MatchOp::Equal, "h2")]).unwrap();
    store.delete("default", &hosts, &TimeRange::ALL).unwrap();
    content.retain(|(host, _), _| host != "h2");
    let report = store.compact(&mut quiet).unwrap();
    assert!(report.deletes.0 > 0 && report.deletes.1 == 0 && report.merges > 0, "{report:?}");
    assert!(report.bytes.1 < report.bytes.0, "{report:?}");
    assert_eq!(read_all(&store, TimeRange::ALL), content);
}

#[test]
fn parts_of_a_flush_that_are_alone_move_down_as_they_lie() {
    let simulation = Simulation::new(5);
    let large = || StoreOptions { head_bytes_max: 1 << 20, ..options("data") };
    let store = open(&simulation, large());
    let mut content = Content::new();
    let mut write_rows = |store: &Store, seconds: [i64; 4]| {
        let row = |time_s: i64| Row {
            host: format!("h{}", time_s % 3),
            timestamp_ns: time_s * SECOND_NS,
            fields: vec![("a".to_owned(), (time_s * 7) as f64)],
        };
        let rows = seconds.map(row);
        store.write("default", &batch(&rows)).unwrap();
        apply(&mut content, &rows);
        store.flush_all().unwrap();
        content.clone()
    };
    // Two partitions in one file.
    let expected = write_rows(&store, [10, 20, 70, 80]);
    let flushed = store.stats();
    store.compact(&mut quiet).unwrap();
    let moved = store.stats();
    let parts = |stats: &thalweg_store::Stats| stats.levels.map(|level| level.parts);
    assert_eq!((parts(&moved)[0], parts(&moved)[1]), (0, parts(&flushed)[0]));
    assert_eq!((moved.part_bytes_written, moved.merged_chunks), (flushed.part_bytes_written, [0, 0]));
    assert_eq!(read_all(&store, TimeRange::ALL), expected);
    // One of the two is merged with what comes behind: the other one keeps the file.
    let expected = write_rows(&store, [70, 71, 72, 73]);
    store.compact(&mut quiet).unwrap();
    assert!(store.stats().part_bytes_written > moved.part_bytes_written);
    assert_eq!(read_all(&store, TimeRange::ALL), expected);
    drop(store);
    assert_eq!(read_all(&open(&simulation, large()), TimeRange::ALL), expected);
    let checked = checked(&simulation, false);
    assert!(checked.damages.is_empty() && checked.unnamed.is_empty(), "{checked:?}");
}

#[test]
fn late_rows_that_are_many_are_encoded_once() {
    let simulation = Simulation::new(6);
    let options = || StoreOptions { head_bytes_max: 1 << 20, node_rows_min: 20, ..options("data") };
    let store = open(&simulation, options());
    let mut content = Content::new();
    let mut write_rows = |store: &Store, seconds: &mut dyn Iterator<Item = i64>| {
        let row = |time_s: i64| Row {
            host: "h".to_owned(),
            timestamp_ns: time_s * SECOND_NS,
            fields: vec![("a".to_owned(), (time_s * 7 % 1000) as f64)],
        };
        let rows: Vec<Row> = seconds.map(row).collect();
        store.write("default", &batch(&rows)).unwrap();
        apply(&mut content, &rows);
        content.clone()
    };
    // The newest row makes the others late. They fill more than one chunk.
    let expected = write_rows(&store, &mut (0..6000).chain([90_000]));
    store.flush_all().unwrap();
    let flushed = store.stats();
    assert_eq!(read_all(&store, TimeRange::ALL), expected);
    store.compact(&mut quiet).unwrap();
    let merged = store.stats();
    assert!(merged.merged_chunks[0] >= 2 && merged.merged_chunks[1] == 0, "{:?}", merged.merged_chunks);
    assert_eq!((flushed.levels[2].parts, merged.levels[0].parts), (0, 0));
    assert_eq!(read_all(&store, TimeRange::ALL), expected);
    // A row among them is merged into its chunk; the chunks beside it stay.
    let expected = write_rows(&store, &mut [7000, 4000].into_iter());
    store.compact(&mut quiet).unwrap();
    assert!(store.stats().merged_chunks[1] > 0);
    assert_eq!(read_all(&store, TimeRange::ALL), expected);
    drop(store);
    assert_eq!(read_all(&open(&simulation, options()), TimeRange::ALL), expected);
}

#[test]
fn rows_with_other_columns_replace_those_of_the_same_flush() {
    // The first cell of the longest length, and another one: partitions of late rows begin with it, or before it.
    for start_s in [0, 62_000] {
        for (first, second) in [(0..500, 250..251), (250..251, 0..500)] {
            let simulation = Simulation::new(7);
            let options = || StoreOptions { head_bytes_max: 1 << 20, node_rows_min: 20, ..options("data") };
            let store = open(&simulation, options());
            let mut content = Content::new();
            let mut write_rows = |seconds: std::ops::Range<i64>, names: &[&str], value: f64| {
                let row = |time_s: i64| Row {
                    host: "h".to_owned(),
                    timestamp_ns: (start_s + time_s) * SECOND_NS,
                    fields: names.iter().map(|name| ((*name).to_owned(), value)).collect(),
                };
                let rows: Vec<Row> = seconds.map(row).collect();
                store.write("default", &batch(&rows)).unwrap();
                apply(&mut content, &rows);
            };
            write_rows(90_000..90_001, &["a"], 0.0);
            write_rows(first, &["a"], 1.0);
            write_rows(second, &["a", "b"], 2.0);
            store.flush_all().unwrap();
            assert_eq!(read_all(&store, TimeRange::ALL), content);
            store.compact(&mut quiet).unwrap();
            assert_eq!(read_all(&store, TimeRange::ALL), content);
        }
    }
}

#[test]
fn what_others_keep_of_requests_is_in_the_accountant_and_given_back_when_memory_is_short() {
    let simulation = Simulation::new(1);
    let store = open(&simulation, StoreOptions { memory_bytes_max: 64 << 20, ..options("data") });
    let before = store.memory_use().spare;
    assert!(!store.memory().account_requests(1 << 20));
    assert_eq!(store.memory_use().spare - before, 1 << 20);
    store.memory().account_requests(65 << 20);
    store.maintain_heads().unwrap();
    assert!(store.memory().account_requests(0), "more is held than may be");
    store.maintain_heads().unwrap();
    assert!(!store.memory().account_requests(0));
}

#[test]
fn merges_that_somebody_waits_for_keep_to_no_rate() {
    let simulation = Simulation::new(29);
    // A byte per second, on a clock that stands still: a merge that kept to it would never end.
    let slow = StoreOptions { merge_bytes_per_second_max: 1, ..options("/data") };
    let store = open(&simulation, slow);
    let mut content = Content::new();
    for step in 0..40 {
        let rows = [Row { host: "h".to_owned(), timestamp_ns: step * SECOND_NS, fields: vec![("a".to_owned(), 1.0)] }];
        store.write("default", &batch(&rows)).unwrap();
        apply(&mut content, &rows);
        store.flush_all().unwrap();
    }
    let before = store.stats();
    assert!(before.levels[0].parts > 8, "{before:?}");
    store.compact_all().unwrap();
    let after = store.stats();
    assert!(after.merges > 0 && after.levels[0].parts == 0, "{after:?}");
    assert_eq!(read_all(&store, TimeRange::ALL), content);
    // For good: what is under way when a store is closed.
    store.hurry_for_good();
    store.write("default", &batch(&[])).unwrap();
    store.flush_all().unwrap();
    while store.maintain_parts().unwrap() {}
}

const HOUR_NS: i64 = 3600 * SECOND_NS;
const DAY_NS: i64 = 24 * HOUR_NS;

fn keep_for(store: &Store, retention_ns: i64) {
    store.set_policy("default", &DatabasePolicy { retention_ns, ..DatabasePolicy::default() }).unwrap();
}

/// One row of each of a few hosts.
fn write_at(store: &Store, timestamp_ns: i64, content: &mut Content) {
    let row = |host: usize| Row { host: format!("h{host}"), timestamp_ns, fields: vec![("a".to_owned(), host as f64)] };
    let rows: Vec<Row> = (0..4).map(row).collect();
    let report = store.write("default", &batch(&rows)).unwrap();
    assert_eq!(report.rejected, []);
    apply(content, &rows);
}

fn maintain(store: &Store) {
    while store.maintain().unwrap() {}
}

fn clock_warning(store: &Store) -> Option<String> {
    store.health().checks().into_iter().find(|check| check.name == "clock").map(|check| check.message)
}

#[test]
fn a_wrong_clock_deletes_and_hides_nothing() {
    for ahead_ns in [40 * DAY_NS, -40 * DAY_NS, 10_000 * DAY_NS] {
        let simulation = Simulation::new(1);
        let store = open(&simulation, options("data"));
        keep_for(&store, 30 * DAY_NS);
        let mut content = Content::new();
        write_at(&store, simulation.honest_ns() - 2 * HOUR_NS, &mut content);
        store.flush_all().unwrap();
        simulation.set_clock_ns(simulation.honest_ns() + ahead_ns);
        maintain(&store);
        // What comes with the wrong time proves nothing.
        write_at(&store, simulation.platform().clock.now_ns().max(simulation.honest_ns()), &mut content);
        store.flush_all().unwrap();
        maintain(&store);
        assert_eq!(read_all(&store, TimeRange::ALL), content, "{ahead_ns}");
        assert!(clock_warning(&store).unwrap().starts_with("the clock jumped "));
        assert_eq!((store.stats().clock_jumps, store.stats().trash_parts), (1, 0));
        // Nor does it after a restart, with a clock that is still wrong.
        drop(store);
        let store = open(&simulation, options("data"));
        for _ in 0..59 {
            maintain(&store);
            simulation.advance_ns(60 * SECOND_NS);
        }
        assert_eq!(read_all(&store, TimeRange::ALL), content, "{ahead_ns}");
        assert!(clock_warning(&store).unwrap().contains("the time at which this folder was last in use"));
        // The right time again: after an hour it is believed.
        simulation.set_clock_ns(simulation.honest_ns());
        maintain(&store);
        assert_eq!(read_all(&store, TimeRange::ALL), content, "{ahead_ns}");
        simulation.advance_ns(HOUR_NS);
        maintain(&store);
        assert_eq!((store.trusted_now_ns(), clock_warning(&store)), (simulation.honest_ns(), None));
        assert_eq!(read_all(&store, TimeRange::ALL), content, "{ahead_ns}");
    }
}

#[test]
fn the_time_goes_on_over_restarts_and_crashes() {
    let simulation = Simulation::new(1);
    let mut store = open(&simulation, options("data"));
    keep_for(&store, DAY_NS);
    let mut content = Content::new();
    write_at(&store, simulation.honest_ns(), &mut content);
    for hour in 0..30 {
        simulation.advance_ns(HOUR_NS);
        maintain(&store);
        if hour % 2 == 0 {
            store.save_time().unwrap();
            drop(store);
        } else {
            simulation.crash();
        }
        store = open(&simulation, options("data"));
        let behind_ns = simulation.honest_ns() - store.trusted_now_ns();
        assert!((0..=600 * SECOND_NS).contains(&behind_ns), "{behind_ns} ns behind after hour {hour}");
    }
    assert!(read_all(&store, TimeRange::ALL).is_empty());
}

#[test]
fn rows_beyond_the_retention_are_rejected_and_told() {
    let simulation = Simulation::new(1);
    let store = open(&simulation, options("data"));
    keep_for(&store, DAY_NS);
    let now_ns = simulation.honest_ns();
    let row = |host: &str, age_ns: i64| Row {
        host: host.to_owned(),
        timestamp_ns: now_ns - age_ns,
        fields: vec![("a".to_owned(), age_ns as f64)],
    };
    let rows = [row("h0", 0), row("h1", 2 * DAY_NS), row("h0", DAY_NS), row("h2", 3 * DAY_NS), row("h3", HOUR_NS)];
    let report = store.write("default", &batch(&rows)).unwrap();
    assert_eq!((report.rows_written, report.rejected_total), (3, 2));
    assert_eq!(report.rejected.iter().map(|rejected| rejected.line).collect::<Vec<_>>(), [2, 4]);
    assert!(report.rejected.iter().all(|rejected| rejected.reason.starts_with(thalweg_store::BEYOND_RETENTION)));
    let hosts: Vec<String> = read_all(&store, TimeRange::ALL).into_keys().map(|(host, _)| host).collect();
    assert_eq!(hosts, ["h0", "h3"]);
    assert_eq!(store.stats().groups, 2, "nothing is registered for rows that are not taken");
    let report = store.write("default", &batch(&rows[1..2])).unwrap();
    assert_eq!((report.rows_written, report.rejected_total), (0, 1));
    // By token, too.
    let labels = model::Labels::from_pairs([("host", "h9")]).unwrap();
    let token = store.register_series("default", &[("m", labels)]).unwrap()[0];
    let mut appender = store.appender();
    for age_ns in [0, 2 * DAY_NS, HOUR_NS] {
        appender.sample(token, now_ns - age_ns, 1.0).unwrap();
    }
    assert_eq!(appender.append(None).unwrap().beyond_retention, 1);
    assert_eq!(store.stats().rejected_rows, 4);
}

/// A folder whose oldest rows have just gone to the trash, and what it held before.
fn with_trash(simulation: &Simulation, options: &StoreOptions) -> (Store, Content, Content) {
    let store = open(simulation, options.clone());
    keep_for(&store, 6 * HOUR_NS);
    let (mut all, mut kept) = (Content::new(), Content::new());
    for _ in 0..8 {
        write_at(&store, simulation.honest_ns(), &mut all);
        store.flush_all().unwrap();
        maintain(&store);
        simulation.advance_ns(HOUR_NS);
    }
    let oldest_ns = simulation.honest_ns() - 6 * HOUR_NS;
    for (series, samples) in &all {
        let later = samples.iter().filter(|(timestamp_ns, _)| **timestamp_ns >= oldest_ns);
        kept.insert(series.clone(), later.map(|(timestamp_ns, value)| (*timestamp_ns, *value)).collect());
    }
    store.compact_all().unwrap();
    assert_eq!(read_all(&store, TimeRange::ALL), kept);
    (store, all, kept)
}

#[test]
fn what_expires_can_be_had_back_for_a_day() {
    for options in [options("data"), with_tier("data")] {
        let simulation = Simulation::new(3);
        let platform = simulation.platform();
        let (store, all, kept) = with_trash(&simulation, &options);
        assert!(store.stats().trash_parts > 0);
        let directory = Path::new("data");
        let busy = thalweg_store::restore_trash(&platform, directory, &[], None);
        assert!(matches!(busy, Err(StoreError::Locked { .. })), "{busy:?}");
        drop(store);
        let trash = thalweg_store::trash_of(&platform, directory).unwrap();
        assert!(trash.iter().all(|part| part.databases == ["default"] && part.rows > 0), "{trash:?}");
        // It would go again.
        let refused = thalweg_store::restore_trash(&platform, directory, &[], None).unwrap();
        assert_eq!((refused.parts, refused.refused.len()), (0, trash.len()));
        assert!(refused.refused[0].contains("--retention"), "{refused:?}");
        assert!(thalweg_store::restore_trash(&platform, directory, &[12345], None).is_err());
        let report = check(&platform, directory, None, &mut quiet).unwrap();
        assert_eq!((&report.damages, &report.unnamed), (&Vec::new(), &Vec::new()), "files of the trash are named");
        let store = open(&simulation, options.clone());
        assert_eq!(read_all(&store, TimeRange::ALL), kept);
        drop(store);
        let restored = thalweg_store::restore_trash(&platform, directory, &[], Some(2 * DAY_NS)).unwrap();
        assert_eq!((restored.parts as usize, restored.databases.clone()), (trash.len(), vec!["default".to_owned()]));
        let store = open(&simulation, options.clone());
        maintain(&store);
        assert_eq!(read_all(&store, TimeRange::ALL), all);
        assert_eq!(store.policy("default").unwrap().retention_ns, 2 * DAY_NS);
        store.compact_all().unwrap();
        drop(store);
        assert_eq!(read_all(&open(&simulation, options), TimeRange::ALL), all);
    }
}

#[test]
fn the_trash_is_emptied_after_a_day_or_when_there_is_no_room() {
    let files_of_parts = |simulation: &Simulation| {
        let local = simulation.files().iter().filter(|path| path.starts_with("data/parts")).count();
        local + simulation.object_keys(TIER).iter().filter(|key| key.contains("/parts/")).count()
    };
    for options in [options("data"), with_tier("data")] {
        let simulation = Simulation::new(4);
        let (store, _, _) = with_trash(&simulation, &options);
        // Everything goes.
        simulation.advance_ns(7 * HOUR_NS);
        maintain(&store);
        let before = files_of_parts(&simulation);
        assert!(before > 0 && store.stats().groups > 0, "the trash can be had back whole");
        assert!(read_all(&store, TimeRange::ALL).is_empty());
        // A clock that jumps does not empty it.
        simulation.set_clock_ns(simulation.honest_ns() + 100 * DAY_NS);
        maintain(&store);
        simulation.set_clock_ns(simulation.honest_ns());
        maintain(&store);
        assert_eq!(files_of_parts(&simulation), before);
        simulation.advance_ns(25 * HOUR_NS);
        maintain(&store);
        assert_eq!((store.stats().trash_parts, store.stats().groups), (0, 0));
        assert_eq!(files_of_parts(&simulation), 0);
    }
    let simulation = Simulation::new(4);
    let (store, _, _) = with_trash(&simulation, &options("data"));
    assert!(store.stats().trash_parts > 0);
    simulation.limit_room(Some(simulation.used_bytes() + (1 << 20)));
    maintain(&store);
    assert_eq!(store.stats().trash_parts, 0);
    let small = StoreOptions { trash_bytes_max: 1, ..options("small") };
    let (store, _, _) = with_trash(&Simulation::new(4), &small);
    assert_eq!(store.stats().trash_parts, 0);
}
