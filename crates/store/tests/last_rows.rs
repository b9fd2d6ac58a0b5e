//! The last rows of groups are those that reading everything gives: in heads and parts, cached or not, after late rows, deletes and merges.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use index::compile;
use model::{MatchOp, Matcher, STALE_NAN_BITS, TimeRange, Values};
use platform::sim::Simulation;
use support::{Row, batch};
use thalweg_store::{DatabasePolicy, End, EndRows, SelectedGroup, Store, StoreOptions};

const SECOND_NS: i64 = 1_000_000_000;

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

fn cell(column: Option<&model::Column>, row: usize) -> Option<f64> {
    let column = column?;
    let Values::F64(values) = &column.values else { panic!("a column of floats expected") };
    let is_present = column.is_valid(row);
    is_present.then(|| values[row])
}

/// The newest of all rows.
fn newest_of_all(store: &Store, group: &SelectedGroup, range: &TimeRange) -> Option<Shown> {
    let rows = store.read_rows(group, range).unwrap();
    let last = rows.timestamps_ns.len().checked_sub(1)?;
    Some((rows.timestamps_ns[last], rows.columns.iter().map(|column| cell(column.as_ref(), last)).collect()))
}

/// Compares the last rows of all groups, and of each group alone, with all that they have. How many groups have one that was cached or in a head
/// alone.
fn check(store: &Store, range: &TimeRange) -> usize {
    let groups = store.select_table("default", "m", &[], &compile(&[]).unwrap()).unwrap();
    let reader = store.reader();
    let mut cached = 0;
    for batch in 0..groups.batches() {
        let (first, batch_groups) = groups.batch(batch);
        let last = reader.last_rows(&groups, batch, range).unwrap();
        assert_eq!(last.rows.timestamps_ns.len(), last.groups.len());
        for index in first..first + batch_groups.len() {
            let row = last.groups.iter().position(|group| *group == index);
            let cells = |row| last.rows.columns.iter().map(|column| cell(column.as_ref(), row)).collect();
            let found = row.map(|row| (last.rows.timestamps_ns[row], cells(row)));
            let newest = newest_of_all(store, &groups[index], range);
            assert_eq!(found, newest);
            let wanted = EndRows { range: *range, rows: 1, end: End::Newest };
            let alone = reader.end_rows(&groups[index], &wanted).unwrap();
            assert_eq!(alone.timestamps_ns.last().copied(), newest.map(|(time_ns, _)| time_ns));
        }
        cached += last.groups.len() - last.read;
    }
    cached
}

#[test]
fn cached_last_rows_are_those_of_all_rows() {
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

/// The newest rows of a part are deleted, and a head has a row before them that is newer than what is left of the part.
#[test]
fn a_row_in_a_head_is_newer_than_what_a_delete_left_of_a_part() {
    let simulation = Simulation::new(1);
    let store = Store::open(simulation.platform(), options()).unwrap();
    let row = |time_s: i64| Row {
        host: "h0".to_owned(),
        timestamp_ns: time_s * SECOND_NS,
        fields: vec![("a".to_owned(), time_s as f64)],
    };
    store.write("default", &batch(&[row(10), row(100)])).unwrap();
    store.flush_all().unwrap();
    check(&store, &TimeRange::ALL);
    let range = TimeRange::new(90 * SECOND_NS, 110 * SECOND_NS);
    store.delete_rows("default", "m", &compile(&[]).unwrap(), &range).unwrap();
    check(&store, &TimeRange::ALL);
    store.write("default", &batch(&[row(50)])).unwrap();
    for _ in 0..3 {
        check(&store, &TimeRange::ALL);
    }
    store.write("default", &batch(&[row(5)])).unwrap();
    for _ in 0..3 {
        check(&store, &TimeRange::ALL);
    }
}

/// Two parts have a row of the same time, each some of its columns: it is put together once, and then cached.
#[test]
fn a_row_in_two_parts_is_put_together() {
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
    assert_eq!([0; 3].map(|_| check(&store, &TimeRange::ALL)), [0, 1, 1]);
    store.compact(&mut |_| {}).unwrap();
    assert_eq!((0..3).map(|_| check(&store, &TimeRange::ALL)).max(), Some(1));
}

/// Rows of five hosts, one every ten seconds; the newest one of each is 500 seconds older than that of the host before.
fn write_apart(store: &Store, now_ns: i64) {
    let rows = (0..500i64).map(|number| {
        let (host, second) = (number % 5, 1_000 - number / 5 * 10 + number % 5 * 500);
        let fields = vec![("a".to_owned(), number as f64), ("b".to_owned(), -number as f64)];
        Row { host: format!("h{host}"), timestamp_ns: now_ns - second * SECOND_NS, fields }
    });
    store.write("default", &batch(&rows.collect::<Vec<_>>())).unwrap();
}

/// What is held goes by the clock: of a row that is past keeping nobody has the newest one.
#[test]
fn last_rows_past_retention_are_not_returned() {
    for is_in_head in [true, false] {
        let simulation = Simulation::new(2);
        let options = StoreOptions { partition_ns: 36_000 * SECOND_NS, ..options() };
        let store = Store::open(simulation.platform(), options).unwrap();
        let policy = DatabasePolicy { retention_ns: 3_000 * SECOND_NS, ..DatabasePolicy::default() };
        store.set_policy("default", &policy).unwrap();
        write_apart(&store, simulation.platform().clock.now_ns());
        if !is_in_head {
            store.flush_all().unwrap();
        }
        for (later_s, kept) in [(0, 5), (1_200, 4), (500, 3), (2_000, 0)] {
            simulation.advance_ns(later_s * SECOND_NS);
            assert_eq!((0..3).map(|_| check(&store, &TimeRange::ALL)).max(), Some(kept), "{later_s} s later");
        }
    }
}

/// Newest rows in heads are at hand at once, late rows or not, and so are those of parts that lie behind late rows in heads.
#[test]
fn last_rows_in_heads_need_no_read() {
    let simulation = Simulation::new(3);
    let options = StoreOptions { partition_ns: 36_000 * SECOND_NS, ..options() };
    let store = Store::open(simulation.platform(), options).unwrap();
    let now_ns = simulation.platform().clock.now_ns();
    write_apart(&store, now_ns);
    assert_eq!(check(&store, &TimeRange::ALL), 5);
    let row = |host: i64, second: i64, value: f64| Row {
        host: format!("h{host}"),
        timestamp_ns: now_ns + second * SECOND_NS,
        fields: vec![("a".to_owned(), value), ("b".to_owned(), value)],
    };
    let late: Vec<Row> = (0..300).map(|number| row(number % 5, -4_000 - number, 1.0)).collect();
    store.write("default", &batch(&late)).unwrap();
    assert_eq!(check(&store, &TimeRange::ALL), 5);
    assert_eq!(check(&store, &TimeRange::new(0, now_ns - 4_100 * SECOND_NS)), 5);
    // The same time again: the later row counts, and the one before it is not seen.
    store
        .write("default", &batch(&[row(0, 10, 2.0), row(0, 10, 3.0), row(1, 10, f64::from_bits(STALE_NAN_BITS))]))
        .unwrap();
    assert_eq!(check(&store, &TimeRange::ALL), 5);
    store.flush_all().unwrap();
    assert_eq!((0..3).map(|_| check(&store, &TimeRange::ALL)).max(), Some(5));
    store.write("default", &batch(&late)).unwrap();
    assert_eq!(check(&store, &TimeRange::ALL), 5, "late rows in a head change nothing");
    store.write("default", &batch(&[row(2, 20, 4.0)])).unwrap();
    assert_eq!(check(&store, &TimeRange::ALL), 5, "one in a head, the others held of parts");
}

/// A group all of whose rows are deleted, though parts still have them, has no last row.
#[test]
fn groups_without_visible_rows_have_no_last_row() {
    let simulation = Simulation::new(4);
    let options = StoreOptions { partition_ns: 36_000 * SECOND_NS, ..options() };
    let store = Store::open(simulation.platform(), options).unwrap();
    write_apart(&store, simulation.platform().clock.now_ns());
    store.flush_all().unwrap();
    let matchers = [Matcher::new("host", MatchOp::Equal, "h2")];
    store.delete_rows("default", "m", &compile(&matchers).unwrap(), &TimeRange::ALL).unwrap();
    assert_eq!([0; 3].map(|_| check(&store, &TimeRange::ALL)), [0, 4, 4]);
}
