//! Regular databases against a map, and against crashes that lose or tear whatever was not synced.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use model::TimeRange;
use platform::objects::ObjectOptions;
use platform::sim::Simulation;
use proptest::prelude::*;
use thalweg_store::{
    DatabasePolicy, EpochBatch, EpochCell, EpochColumn, EpochKind, EpochNames, EpochRows, EpochValue, EpochWritten,
    NamesRead, RegularDefinition, Store, StoreError, StoreOptions, TopBy, restore,
};

const MINUTE_NS: i64 = 60_000_000_000;
const DATABASE: &str = "dns";

fn open(simulation: &Simulation) -> Store {
    Store::open(simulation.platform(), StoreOptions::new("data")).unwrap()
}

fn regular(simulation: &Simulation, definition: RegularDefinition) -> Store {
    let store = open(simulation);
    store.define_regular(DATABASE, &definition).unwrap();
    store
}

fn write(store: &Store, epoch: i64, cells: &[(&str, i64)]) -> Result<EpochWritten, StoreError> {
    let names: EpochNames = cells.iter().map(|(name, _)| *name).collect();
    let values = EpochColumn::Int(cells.iter().map(|(_, value)| *value).collect());
    store.write_epoch(DATABASE, &EpochBatch { time_ns: epoch * MINUTE_NS + 7, names: &names, values: &values })
}

fn remove(store: &Store, name: &str, epoch: i64) -> Result<u64, StoreError> {
    store.remove_names(DATABASE, &[name].into_iter().collect(), epoch * MINUTE_NS)
}

/// A series in all epochs: the number of the epoch, and the cell.
fn read(store: &Store, name: &str) -> Vec<(i64, EpochCell)> {
    let Some(number) = store.name_number(DATABASE, name).unwrap() else { return Vec::new() };
    let read = NamesRead { names: &[number], range: TimeRange::ALL, rows: EpochRows::All };
    let rows = store.read_names(DATABASE, &read).unwrap().pop().unwrap();
    assert_eq!(rows.name, name);
    rows.times_ns.iter().map(|time_ns| time_ns / MINUTE_NS).zip(rows.cells).collect()
}

/// Ranges in order, those that follow one another as one.
fn joined(mut ranges: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    ranges.retain(|(from, to)| from < to);
    ranges.sort_unstable();
    let mut all: Vec<(i64, i64)> = Vec::new();
    for (from, to) in ranges {
        match all.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => all.push((from, to)),
        }
    }
    all
}

fn validity(store: &Store, name: &str) -> Vec<(i64, i64)> {
    let number = store.name_number(DATABASE, name).unwrap();
    let found = number.map(|number| store.name_validity(DATABASE, &[number]).unwrap()).unwrap_or_default();
    let epochs = |time_ns: i64| time_ns / MINUTE_NS;
    joined(found.iter().map(|valid| (epochs(valid.from_ns), valid.to_ns.map_or(i64::MAX, epochs))).collect())
}

/// A name from one epoch to another, and its values.
#[derive(Debug, Clone, PartialEq)]
struct Life {
    from: i64,
    to: i64,
    values: BTreeMap<i64, i64>,
}

/// What a database should hold.
#[derive(Debug, Clone, Default, PartialEq)]
struct Oracle {
    names: BTreeMap<String, Vec<Life>>,
    /// Epochs in which something was written.
    epochs: BTreeSet<i64>,
}

impl Oracle {
    fn make_valid(&mut self, name: &str, epoch: i64) -> &mut Life {
        let lives = self.names.entry(name.to_owned()).or_default();
        let covers = |life: &Life| life.from <= epoch && epoch < life.to;
        let place = lives.iter().position(covers).unwrap_or_else(|| {
            let later = lives.iter().enumerate().filter(|(_, life)| life.from > epoch && life.from < life.to);
            if let Some((place, _)) = later.min_by_key(|(_, life)| life.from) {
                lives[place].from = epoch;
                return place;
            }
            lives.push(Life { from: epoch, to: i64::MAX, values: BTreeMap::new() });
            lives.len() - 1
        });
        &mut lives[place]
    }

    fn write(&mut self, epoch: i64, cells: &[(&str, i64)]) {
        for (name, value) in cells {
            self.make_valid(name, epoch).values.insert(epoch, *value);
        }
        self.epochs.insert(epoch);
    }

    /// Returns whether the name was valid.
    fn remove(&mut self, name: &str, epoch: i64) -> bool {
        let Some(lives) = self.names.get_mut(name) else { return false };
        let Some(place) = lives.iter().position(|life| life.from <= epoch && epoch < life.to) else { return false };
        let (mut ended, mut to) = (Some(place), epoch);
        while let Some(place) = ended {
            let life = &mut lives[place];
            let next = std::mem::replace(&mut life.to, to);
            life.values.retain(|at, _| *at < to);
            to = next;
            ended = lives.iter().position(|life| life.from == to && life.from < life.to);
        }
        true
    }

    fn series(&self, name: &str) -> Vec<(i64, EpochCell)> {
        let (Some(first), Some(last)) = (self.epochs.first(), self.epochs.last()) else { return Vec::new() };
        if !self.names.contains_key(name) {
            return Vec::new();
        }
        let cell = |epoch: i64| {
            let lives = self.names.get(name).into_iter().flatten();
            let valid: Vec<&Life> = lives.filter(|life| life.from <= epoch && epoch < life.to).collect();
            match valid.iter().find_map(|life| life.values.get(&epoch)) {
                Some(value) => EpochCell::Value(EpochValue::Int(*value)),
                None if valid.is_empty() => EpochCell::Undefined,
                None => EpochCell::Missing,
            }
        };
        (*first..=*last).map(|epoch| (epoch, cell(epoch))).collect()
    }

    /// From when to when a name is valid.
    fn validity(&self, name: &str) -> Vec<(i64, i64)> {
        joined(self.names.get(name).into_iter().flatten().map(|life| (life.from, life.to)).collect())
    }

    fn check(&self, store: &Store) {
        assert_eq!(self.difference(store), None);
    }

    /// The first series that is another one in the store.
    fn difference(&self, store: &Store) -> Option<String> {
        for name in NAMES {
            let (expected, found) = (self.validity(name), validity(store, name));
            if expected != found {
                return Some(format!("{name} is valid: expected {expected:?}, found {found:?}"));
            }
            let (expected, found) = (self.series(name), read(store, name));
            if !expected.is_empty() && expected != found {
                return Some(format!("{name}: expected {expected:?}, found {found:?}"));
            }
        }
        for epoch in &self.epochs {
            let row = store.read_epoch(DATABASE, epoch * MINUTE_NS).unwrap();
            let EpochColumn::Int(values) = &row.values else { panic!("not integers") };
            let found: BTreeMap<String, i64> =
                row.names.iter().map(str::to_owned).zip(values.iter().copied()).collect();
            let value = |name: &String| match self.series(name)[(epoch - self.epochs.first()?) as usize].1 {
                EpochCell::Value(EpochValue::Int(value)) => Some((name.clone(), value)),
                _ => None,
            };
            let expected: BTreeMap<String, i64> = self.names.keys().filter_map(value).collect();
            if found != expected {
                return Some(format!("epoch {epoch}: expected {expected:?}, found {found:?}"));
            }
        }
        None
    }
}

const NAMES: [&str; 7] = ["a.it", "b.it", "c.it", "d.it", "è.it", "f,g", "h"];

#[derive(Debug, Clone)]
enum Step {
    Write(i64, Vec<(usize, i64)>),
    Remove(usize, i64),
    Maintain,
    Reopen,
    Crash,
    /// A write during which syncs begin to fail, then a crash.
    Fail(i64, Vec<(usize, i64)>, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let cells = || proptest::collection::vec((0..NAMES.len(), prop_oneof![0i64..5, any::<i64>()]), 1..6);
    prop_oneof![
        8 => (0i64..30, cells()).prop_map(|(epoch, cells)| Step::Write(epoch, cells)),
        2 => (0..NAMES.len(), 0i64..30).prop_map(|(name, epoch)| Step::Remove(name, epoch)),
        1 => Just(Step::Maintain),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
        2 => (0i64..30, cells(), 0u32..6).prop_map(|(epoch, cells, successes)| Step::Fail(epoch, cells, successes)),
    ]
}

fn named(cells: &[(usize, i64)]) -> Vec<(&'static str, i64)> {
    cells.iter().map(|(name, value)| (NAMES[*name], *value)).collect()
}

/// A write of which it is not known whether it is on disk: nothing of it is, or its names, or all.
fn settle(oracle: &mut Oracle, store: &Store, epoch: i64, cells: &[(&str, i64)]) {
    let mut with_names = oracle.clone();
    for (name, _) in cells {
        with_names.make_valid(name, epoch);
    }
    let mut whole = oracle.clone();
    whole.write(epoch, cells);
    // All of it first: where nothing was written before, a reader of the oracle cannot tell its names without values from those with some.
    let all = [whole, with_names, oracle.clone()];
    let found = all.iter().find(|candidate| candidate.difference(store).is_none());
    *oracle = found.unwrap_or_else(|| panic!("{:?}", oracle.difference(store))).clone();
}

fn run(seed: u64, steps: &[Step]) {
    let simulation = Simulation::new(seed);
    simulation.set_clock_ns(100 * MINUTE_NS);
    let mut store = regular(&simulation, RegularDefinition::new(MINUTE_NS));
    let mut oracle = Oracle::default();
    for step in steps {
        match step {
            Step::Write(epoch, cells) => {
                write(&store, *epoch, &named(cells)).unwrap();
                oracle.write(*epoch, &named(cells));
            }
            Step::Remove(name, epoch) => {
                let removed = remove(&store, NAMES[*name], *epoch);
                assert_eq!(removed.is_ok(), oracle.remove(NAMES[*name], *epoch), "{removed:?}");
            }
            Step::Maintain => while store.maintain().unwrap() {},
            Step::Reopen => {
                drop(store);
                store = open(&simulation);
            }
            Step::Crash => {
                drop(store);
                simulation.crash();
                store = open(&simulation);
            }
            Step::Fail(epoch, cells, successes) => {
                simulation.fail_syncs_after(*successes);
                let written = write(&store, *epoch, &named(cells));
                drop(store);
                simulation.crash();
                store = open(&simulation);
                match written {
                    Ok(_) => oracle.write(*epoch, &named(cells)),
                    Err(_) => settle(&mut oracle, &store, *epoch, &named(cells)),
                }
            }
        }
        oracle.check(&store);
    }
    drop(store);
    oracle.check(&open(&simulation));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_regular_database_is_a_map(seed: u64, steps in proptest::collection::vec(step(), 1..40)) {
        run(seed, &steps);
    }
}

#[test]
fn several_writes_complete_an_epoch_and_the_last_one_counts() {
    let simulation = Simulation::new(1);
    let store = regular(&simulation, RegularDefinition::new(MINUTE_NS));
    assert_eq!(write(&store, 5, &[("a", 1), ("b", 2)]).unwrap().added, 2);
    assert_eq!(write(&store, 5, &[("c", 3), ("b", 7), ("c", 4)]).unwrap().written, 2);
    let row = store.read_epoch(DATABASE, 5 * MINUTE_NS + 1).unwrap();
    assert_eq!(row.names.iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(row.values, EpochColumn::Int(vec![1, 7, 4]));
}

#[test]
fn what_exists_is_protected_and_what_is_missing_taken() {
    let simulation = Simulation::new(2);
    let definition = RegularDefinition { may_overwrite: false, ..RegularDefinition::new(MINUTE_NS) };
    let store = regular(&simulation, definition);
    write(&store, 5, &[("a", 1), ("b", 2)]).unwrap();
    let again = write(&store, 5, &[("a", 1), ("b", 3), ("c", 4)]).unwrap();
    assert_eq!((again.written, again.unchanged, again.refused), (1, 1, 1));
    let refusal = again.refusal.unwrap();
    assert!(refusal.contains("\"b\" has the value 2 in the epoch 1970-01-01T00:05:00Z"), "{refusal}");
    let row = store.read_epoch(DATABASE, 5 * MINUTE_NS).unwrap();
    assert_eq!(row.values, EpochColumn::Int(vec![1, 2, 4]));
    store.define_regular(DATABASE, &RegularDefinition::new(MINUTE_NS)).unwrap();
    assert_eq!(write(&store, 5, &[("b", 3)]).unwrap().written, 1);
    // The setting outlives the process.
    store.define_regular(DATABASE, &definition).unwrap();
    drop(store);
    assert_eq!(write(&open(&simulation), 5, &[("b", 9)]).unwrap().refused, 1);
}

#[test]
fn missing_values_read_as_the_database_says() {
    let simulation = Simulation::new(3);
    let definition = RegularDefinition {
        kind: EpochKind::Float,
        missing: Some(EpochValue::Float(0.5)),
        ..RegularDefinition::new(MINUTE_NS)
    };
    let store = regular(&simulation, definition);
    write(&store, 5, &[("a", 1), ("b", 2)]).unwrap();
    write(&store, 8, &[("a", 3)]).unwrap();
    let float = |value| EpochCell::Value(EpochValue::Float(value));
    assert_eq!(read(&store, "a"), [(5, float(1.0)), (6, float(0.5)), (7, float(0.5)), (8, float(3.0))]);
    assert_eq!(store.read_epoch(DATABASE, 8 * MINUTE_NS).unwrap().values, EpochColumn::Float(vec![3.0, 0.5]));
    let wrong = EpochColumn::Float(vec![f64::NAN]);
    let names = ["a"].into_iter().collect();
    store.write_epoch(DATABASE, &EpochBatch { time_ns: 0, names: &names, values: &wrong }).unwrap();
}

#[test]
fn what_cannot_be_taken_is_refused_with_a_reason() {
    let simulation = Simulation::new(4);
    let store = regular(&simulation, RegularDefinition { start_ns: MINUTE_NS, ..RegularDefinition::new(MINUTE_NS) });
    let error = |epoch, cells: &[(&str, i64)]| write(&store, epoch, cells).unwrap_err().to_string();
    assert!(error(0, &[("a", 1)]).contains("is before the start of the database dns"));
    assert!(error(5, &[("", 1)]).contains("a name has 1 to 1024 bytes, and one has 0"));
    assert!(remove(&store, "a", 5).unwrap_err().to_string().contains("\"a\" is not valid at 1970-01-01T00:05:00Z"));
    let names: EpochNames = ["a"].into_iter().collect();
    let halves = EpochColumn::Float(vec![0.5]);
    let halves = store.write_epoch(DATABASE, &EpochBatch { time_ns: MINUTE_NS, names: &names, values: &halves });
    assert!(halves.unwrap_err().to_string().contains("0.5 is none"));
    let other = RegularDefinition::new(2 * MINUTE_NS);
    assert!(store.define_regular(DATABASE, &other).unwrap_err().to_string().contains("cannot change"));
    let none = store.write_epoch("none", &EpochBatch { time_ns: 0, names: &names, values: &EpochColumn::Int(vec![1]) });
    assert!(none.unwrap_err().to_string().contains("is not regular"));
}

/// What one request writes is there whatever another one defines or drops at the same time.
#[test]
fn databases_are_defined_once() {
    for round in 0..60 {
        let simulation = Simulation::new(100 + round);
        let store = open(&simulation);
        let barrier = std::sync::Barrier::new(3);
        let define = || {
            barrier.wait();
            store.define_regular(DATABASE, &RegularDefinition::new(MINUTE_NS)).unwrap();
            write(&store, 5, &[("a", 1)]).unwrap();
        };
        std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(define))));
        write(&store, 6, &[("a", 2), ("b", 3)]).unwrap();
        let value = |value| EpochCell::Value(EpochValue::Int(value));
        assert_eq!(read(&store, "a"), [(5, value(1)), (6, value(2))], "round {round}");
        drop(store);
        assert_eq!(read(&open(&simulation), "a"), [(5, value(1)), (6, value(2))], "round {round}");
    }
}

#[test]
fn new_names_are_new_series() {
    let simulation = Simulation::new(6);
    let options = StoreOptions { series_per_database_max: 3, ..StoreOptions::new("data") };
    let store = Store::open(simulation.platform(), options.clone()).unwrap();
    store.define_regular(DATABASE, &RegularDefinition::new(MINUTE_NS)).unwrap();
    write(&store, 5, &[("a", 1), ("b", 2)]).unwrap();
    let refused = write(&store, 6, &[("a", 1), ("c", 2), ("d", 3)]).unwrap_err().to_string();
    assert!(refused.contains("has 2 of the 3 that series_per_database_max allows"), "{refused}");
    assert_eq!(read(&store, "a").len(), 1, "nothing of it is written");
    write(&store, 6, &[("a", 1), ("c", 2)]).unwrap();
    drop(store);
    let store = Store::open(simulation.platform(), options).unwrap();
    assert!(write(&store, 7, &[("a", 1), ("e", 2)]).is_err());
    // Names that become valid earlier, or again, are known.
    remove(&store, "a", 7).unwrap();
    write(&store, 7, &[("a", 1), ("c", 2)]).unwrap();
    write(&store, 1, &[("a", 1), ("b", 2), ("c", 2)]).unwrap();
    let store = regular(&Simulation::new(7), RegularDefinition::new(MINUTE_NS));
    let (names, values): (EpochNames, _) = (["a"].into_iter().collect(), EpochColumn::Int(vec![1]));
    let batch = EpochBatch { time_ns: 0, names: &names, values: &values };
    let gated = store.write_epoch_gated(DATABASE, &batch, Some(&|_| Err("no more of this account".to_owned())));
    assert!(gated.unwrap_err().to_string().contains("no more of this account"));
    assert_eq!(store.name_count(DATABASE).unwrap(), 0);
}

#[test]
fn the_largest_are_found_whatever_index_they_had() {
    let simulation = Simulation::new(5);
    let store = regular(&simulation, RegularDefinition::new(MINUTE_NS));
    let names: Vec<String> = (0..5000).map(|number| format!("n{number}")).collect();
    for epoch in 0..3 {
        let cells: Vec<(&str, i64)> = names.iter().zip(0..).map(|(name, value)| (name.as_str(), value)).collect();
        write(&store, epoch, &cells).unwrap();
    }
    remove(&store, "n4000", 3).unwrap();
    write(&store, 3, &[("other", 100_000), ("n7", 1_000_000)]).unwrap();
    write(&store, 4, &[("n4000", 200_000)]).unwrap();
    let top = |range: TimeRange, by| {
        let found = store.top_names(DATABASE, &range, by, 3).unwrap();
        found.into_iter().map(|(name, value)| (name, value.to_f64())).collect::<Vec<_>>()
    };
    let entry = |name: &str, value: f64| (name.to_owned(), value);
    assert_eq!(
        top(TimeRange::ALL, TopBy::Sum),
        [entry("n7", 1_000_021.0), entry("n4000", 212_000.0), entry("other", 100_000.0)]
    );
    assert_eq!(
        top(TimeRange::new(0, 2 * MINUTE_NS), TopBy::Sum),
        [entry("n4999", 14_997.0), entry("n4998", 14_994.0), entry("n4997", 14_991.0)]
    );
    assert_eq!(top(TimeRange::ALL, TopBy::Max)[1], entry("n4000", 200_000.0));
}

#[test]
fn retention_takes_files_and_a_backup_brings_all_back() {
    let simulation = Simulation::new(6);
    simulation.set_clock_ns(1000 * MINUTE_NS);
    let options = StoreOptions { trash_age_ms_max: 0, ..StoreOptions::new("data") };
    let store = Store::open(simulation.platform(), options).unwrap();
    store.define_regular(DATABASE, &RegularDefinition::new(MINUTE_NS)).unwrap();
    store.set_policy(DATABASE, &DatabasePolicy { retention_ns: 80 * MINUTE_NS, ..DatabasePolicy::default() }).unwrap();
    for epoch in 930..1000 {
        write(&store, epoch, &[("a", epoch), ("b", -epoch)]).unwrap();
    }
    assert!(write(&store, 900, &[("a", 1)]).unwrap_err().to_string().contains("older than what the database"));
    let objects = simulation.platform().objects.open("sim://backups", &ObjectOptions::default()).unwrap();
    store.backup(&*objects, &mut |_| {}).unwrap();
    write(&store, 1000, &[("a", 1000)]).unwrap();
    let epoch_files =
        || simulation.files().iter().filter(|path| path.extension().is_some_and(|end| end == "epochs")).count();
    let before = epoch_files();
    assert!(before > 3, "{before} files: one spans an eighth of the retention at most");
    // Time passes, and is trusted as it does.
    for _ in 0..50 {
        simulation.advance_ns(MINUTE_NS);
        while store.maintain().unwrap() {}
    }
    assert_eq!(read(&store, "a").first().unwrap().0, 970);
    assert!(epoch_files() < before, "files of past epochs are gone");
    write(&store, 1049, &[("a", 1)]).unwrap();
    drop(store);
    assert_eq!(read(&open(&simulation), "a").last().unwrap(), &(1049, EpochCell::Value(EpochValue::Int(1))));
    restore(&*objects, None, &simulation.platform(), std::path::Path::new("other"), &mut |_| {}).unwrap();
    let restored = Store::open(simulation.platform(), StoreOptions::new("other")).unwrap();
    let row = restored.read_epoch(DATABASE, 999 * MINUTE_NS).unwrap();
    assert_eq!(row.values, EpochColumn::Int(vec![999, -999]));
    assert_eq!(restored.regular(DATABASE), Some(RegularDefinition::new(MINUTE_NS)));
    assert!(restored.drop_database(DATABASE).unwrap());
    assert_eq!(restored.regular(DATABASE), None);
}

#[test]
fn damage_is_told_and_refused_until_it_is_accepted() {
    let simulation = Simulation::new(7);
    let store = regular(&simulation, RegularDefinition::new(MINUTE_NS));
    for epoch in 0..20 {
        write(&store, epoch, &[("a", epoch), ("b", epoch)]).unwrap();
    }
    drop(store);
    let is_values = |path: &&std::path::PathBuf| path.extension().is_some_and(|end| end == "epochs");
    let files = simulation.files();
    let largest = files.iter().filter(is_values).max_by_key(|path| simulation.read(path).unwrap().len()).unwrap();
    let check =
        || thalweg_store::check(&simulation.platform(), std::path::Path::new("data"), None, &mut |_| {}).unwrap();
    assert_eq!(check().damages, []);
    // A header in the middle: what follows it shows that it was there.
    simulation.flip_bit(largest, 32 + 30, 1).unwrap();
    assert_eq!(check().damages.len(), 1);
    let error = Store::open(simulation.platform(), StoreOptions::new("data")).err().unwrap().to_string();
    assert!(error.contains("acknowledged rows are missing") && error.contains("damaged at offset 32"), "{error}");
    let accepting = StoreOptions { accept_loss: true, ..StoreOptions::new("data") };
    let store = Store::open(simulation.platform(), accepting).unwrap();
    assert_eq!(store.health().losses().len(), 1);
    write(&store, 30, &[("a", 1)]).unwrap();
    drop(store);
    assert_eq!(read(&open(&simulation), "a"), [(30, EpochCell::Value(EpochValue::Int(1)))]);
}

#[test]
fn acknowledged_records_that_are_gone_from_the_end_are_a_loss_and_no_torn_tail() {
    for (is_noted, kept_records) in [(false, 2), (true, 2), (true, 0)] {
        let simulation = Simulation::new(10);
        let store = regular(&simulation, RegularDefinition::new(MINUTE_NS));
        for epoch in 0..3 {
            write(&store, epoch, &[("a", epoch), ("b", epoch)]).unwrap();
        }
        if is_noted {
            // Nothing is written between two of them.
            store.maintain_heads().unwrap();
            store.maintain_heads().unwrap();
        }
        drop(store);
        let files = simulation.files();
        let mut values = files.iter().filter(|path| path.extension().is_some_and(|end| end == "epochs"));
        let values = values.rfind(|path| simulation.read(path).unwrap()[24] == 0).unwrap();
        let content = simulation.read(values).unwrap();
        let record_bytes = (content.len() - 32) / 3;
        let kept = 32 + record_bytes * kept_records + 3;
        simulation.spoil(values, Some(content[..kept].to_vec())).unwrap();
        let opened = Store::open(simulation.platform(), StoreOptions::new("data"));
        let check =
            thalweg_store::check(&simulation.platform(), std::path::Path::new("data"), None, &mut |_| {}).unwrap();
        if !is_noted {
            assert_eq!(check.damages, []);
            assert_eq!(read(&opened.unwrap(), "a").len(), kept_records);
            continue;
        }
        assert_eq!(check.damages.len(), 1);
        let error = opened.err().unwrap().to_string();
        assert!(error.contains(&format!("up to offset {}", content.len())), "{error}");
        let accepting = StoreOptions { accept_loss: true, ..StoreOptions::new("data") };
        let store = Store::open(simulation.platform(), accepting).unwrap();
        assert_eq!((store.health().losses().len(), read(&store, "a").len()), (1, kept_records));
        write(&store, 2, &[("a", 7)]).unwrap();
        drop(store);
        assert_eq!(read(&open(&simulation), "a").last(), Some(&(2, EpochCell::Value(EpochValue::Int(7)))));
    }
}

#[test]
fn a_backup_has_no_torn_end_of_a_file() {
    let simulation = Simulation::new(11);
    let store = regular(&simulation, RegularDefinition::new(MINUTE_NS));
    write(&store, 0, &[("a", 1)]).unwrap();
    drop(store);
    let files = simulation.files();
    let mut values = files.iter().filter(|path| path.extension().is_some_and(|end| end == "epochs"));
    let values = values.rfind(|path| simulation.read(path).unwrap()[24] == 0).unwrap();
    let torn = [simulation.read(values).unwrap(), vec![7; 90]].concat();
    simulation.spoil(values, Some(torn)).unwrap();
    let store = open(&simulation);
    write(&store, 1, &[("a", 2)]).unwrap();
    let objects = simulation.platform().objects.open("sim://backups", &ObjectOptions::default()).unwrap();
    store.backup(&*objects, &mut |_| {}).unwrap();
    restore(&*objects, None, &simulation.platform(), std::path::Path::new("other"), &mut |_| {}).unwrap();
    let restored = Store::open(simulation.platform(), StoreOptions::new("other")).unwrap();
    assert_eq!(read(&restored, "a"), read(&store, "a"));
    assert_eq!(read(&restored, "a").len(), 2);
}

#[test]
fn a_damaged_block_is_an_error_where_it_is_read() {
    let simulation = Simulation::new(8);
    let store = regular(&simulation, RegularDefinition::new(MINUTE_NS));
    let names: Vec<String> = (0..4096).map(|number| format!("n{number}")).collect();
    let cells: Vec<(&str, i64)> =
        names.iter().zip(0..).map(|(name, value)| (name.as_str(), value * 37 % 1000)).collect();
    write(&store, 1, &cells).unwrap();
    write(&store, 2, &cells).unwrap();
    let files = simulation.files();
    let mut values = files.iter().filter(|path| path.extension().is_some_and(|end| end == "epochs"));
    let values = values.rfind(|path| simulation.read(path).unwrap()[24] == 0).unwrap();
    // In the first block of the first record.
    simulation.flip_bit(values, 32 + 56 + 32 + 40, 1).unwrap();
    let read = |name: &str| {
        let number = store.name_number(DATABASE, name).unwrap().unwrap();
        let read = NamesRead { names: &[number], range: TimeRange::ALL, rows: EpochRows::All };
        store.read_names(DATABASE, &read)
    };
    assert!(read("n5").unwrap_err().to_string().contains("checksum of a block does not match"));
    assert_eq!(read("n4000").unwrap()[0].cells.len(), 2, "another block");
}

#[test]
fn rows_do_not_go_into_a_regular_database() {
    let simulation = Simulation::new(9);
    let store = regular(&simulation, RegularDefinition::new(MINUTE_NS));
    let refused = store.register_series(DATABASE, &[("up", model::Labels::empty())]);
    assert!(refused.unwrap_err().to_string().contains("this database is regular"));
    store.register_series("rows", &[("up", model::Labels::empty())]).unwrap();
    let error = store.define_regular("rows", &RegularDefinition::new(MINUTE_NS)).unwrap_err().to_string();
    assert!(error.contains("has tables"), "{error}");
}
