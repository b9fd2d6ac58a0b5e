//! The newest rows that are held are those that a look at everything gives: in heads and parts, after late rows, deletes and merges.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use index::compile;
use model::{MatchOp, Matcher, STALE_NAN_BITS, TimeRange, Values};
use platform::sim::Simulation;
use support::{Row, batch};
use thalweg_store::{NewestRows, SelectedGroup, Store, StoreOptions};

const SECOND_NS: i64 = 1_000_000_000;
const WIDTH_NS: i64 = 60 * SECOND_NS;

/// Chunks are longer than the stretch in which newest rows are looked for, so that their ends are held.
fn options() -> StoreOptions {
    StoreOptions {
        head_bytes_max: 24 << 10,
        log_segment_bytes: 16 << 10,
        log_bytes_max: 64 << 10,
        partition_ns: 3600 * SECOND_NS,
        level0_parts_max: 2,
        ..StoreOptions::new("data")
    }
}

/// Rows of five hosts, now and then late; some have but one of the fields, and some end a series.
fn write(simulation: &Simulation, store: &Store, step: i64) {
    let row = |place: i64| {
        let late_s = if simulation.below(20) == 0 { simulation.below(4000) as i64 } else { 0 };
        let stale = f64::from_bits(STALE_NAN_BITS);
        let value = |name: &str| {
            let is_end = simulation.below(12) == 0;
            (name.to_owned(), if is_end { stale } else { (step * 100 + place) as f64 })
        };
        let fields = match simulation.below(6) {
            0 => vec![value("b")],
            1 => vec![value("a")],
            _ => vec![value("a"), value("b")],
        };
        Row { host: format!("h{}", place % 5), timestamp_ns: (step * 10 - late_s) * SECOND_NS, fields }
    };
    store.write("default", &batch(&(0..10).map(row).collect::<Vec<_>>())).unwrap();
}

fn delete(simulation: &Simulation, store: &Store, step: i64) {
    let host = format!("h{}", simulation.below(5));
    let matchers = [Matcher::new("host", MatchOp::Equal, &host)];
    let from_s = step * 10 - simulation.below(300) as i64;
    let range = TimeRange::new(from_s * SECOND_NS, (from_s + 120) * SECOND_NS);
    store.delete_rows("default", "m", &compile(&matchers).unwrap(), &range).unwrap();
}

/// A row's time, and the cells of its columns; `None` for nulls.
type Shown = (i64, Vec<Option<f64>>);

fn cell(column: Option<&model::CellColumn>, row: usize) -> Option<f64> {
    let column = column?;
    let Values::F64(values) = &column.values else { panic!("a column of floats expected") };
    let is_present = column.present.as_ref().is_none_or(|present| present[row]);
    is_present.then(|| values[row])
}

/// The newest of all rows.
fn newest_of_all(store: &Store, group: &SelectedGroup, range: &TimeRange) -> Option<Shown> {
    let rows = store.read_rows(group, range).unwrap();
    let last = rows.timestamps_ns.len().checked_sub(1)?;
    Some((rows.timestamps_ns[last], rows.columns.iter().map(|column| cell(column.as_ref(), last)).collect()))
}

/// Compares what is held of groups with all that they have. How many were held.
fn check(store: &Store, range: &TimeRange) -> usize {
    let groups = store.select_table("default", "m", &[], &compile(&[]).unwrap()).unwrap();
    let reader = store.reader();
    let mut held = 0;
    for groups in groups.chunk_by(|a, b| a.columns == b.columns) {
        let columns = groups[0].columns.clone();
        let mut rows = NewestRows::new(&columns, 0);
        let mut found = Vec::new();
        reader
            .held_newest(groups, (range, WIDTH_NS), &columns, &mut rows, |group, is_held| found.push((group, is_held)))
            .unwrap();
        assert_eq!(found.len(), groups.len());
        for (row, (group, _)) in found.iter().filter(|(_, is_held)| *is_held).enumerate() {
            let cells = rows.columns.iter().map(|column| cell(column.as_ref(), row)).collect();
            assert_eq!(Some((rows.timestamps_ns[row], cells)), newest_of_all(store, group, range));
            held += 1;
        }
        assert_eq!(rows.timestamps_ns.len(), found.iter().filter(|(_, is_held)| *is_held).count());
        for (group, _) in found {
            reader.read_newest(group, range, (WIDTH_NS, 1)).unwrap();
        }
    }
    held
}

#[test]
fn newest_rows_that_are_held_are_those_of_everything() {
    let mut held = 0;
    for seed in 0..8 {
        let simulation = Simulation::new(seed);
        let store = Store::open(simulation.platform(), options()).unwrap();
        for step in 0..340 {
            write(&simulation, &store, step);
            if simulation.below(40) == 0 {
                delete(&simulation, &store, step);
                held += check(&store, &TimeRange::ALL);
            }
            if simulation.below(25) == 0 {
                store.compact(&mut |_| {}).unwrap();
            }
            if simulation.below(15) == 0 {
                store.maintain().unwrap();
                // What is read the first time is held from then on; so are index blocks that were seen twice.
                for range in [TimeRange::ALL, TimeRange::new(0, (step * 10 - 600) * SECOND_NS)] {
                    held += (0..3).map(|_| check(&store, &range)).sum::<usize>();
                }
            }
        }
        store.flush_all().unwrap();
        store.compact(&mut |_| {}).unwrap();
        let ask = || (0..3).map(|_| check(&store, &TimeRange::ALL)).max();
        assert_eq!(ask(), Some(5), "of parts that rest all are held");
        // A part that has a little of the newest stretch, and parts of which something is masked.
        write(&simulation, &store, 339);
        store.flush_all().unwrap();
        ask();
        delete(&simulation, &store, 340);
        ask();
        store.compact(&mut |_| {}).unwrap();
        ask();
        delete(&simulation, &store, 338);
        ask();
    }
    assert!(held > 0);
}

/// Two parts have a row of the same time, each some of its columns: neither chunk's end is all of it.
#[test]
fn what_lies_in_two_parts_is_not_held_of_one() {
    let simulation = Simulation::new(1);
    let store = Store::open(simulation.platform(), options()).unwrap();
    for fields in [&["a", "b"][..], &["b"]] {
        let row = |second: i64| Row {
            host: "h".to_owned(),
            timestamp_ns: second * 10 * SECOND_NS,
            fields: fields.iter().map(|name| ((*name).to_owned(), second as f64 + fields.len() as f64)).collect(),
        };
        store.write("default", &batch(&(0..100).map(row).collect::<Vec<_>>())).unwrap();
        store.flush_all().unwrap();
    }
    for _ in 0..3 {
        assert_eq!(check(&store, &TimeRange::ALL), 0);
    }
    store.compact(&mut |_| {}).unwrap();
    assert_eq!((0..3).map(|_| check(&store, &TimeRange::ALL)).max(), Some(1));
}
