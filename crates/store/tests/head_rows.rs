//! What is found at once of the newest rows of many groups is what each group gives by itself: after late rows, rows that replace others, rows
//! with other columns and texts, deletes, flushes that succeed and such that do not, merges, and where rows are kept for a while only.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::sync::Arc;

use index::compile;
use model::{Batch, Field, MatchOp, Matcher, STALE_NAN_BITS, SummaryParts, TimeRange, ValueType};
use platform::sim::Simulation;
use support::{Row, batch};
use thalweg_store::{DatabasePolicy, SelectedGroup, Store, StoreOptions, Windows};

const SECOND_NS: i64 = 1_000_000_000;
const HOSTS: u64 = 40;

fn options() -> StoreOptions {
    StoreOptions {
        head_bytes_max: 256 << 10,
        log_segment_bytes: 64 << 10,
        log_bytes_max: 256 << 10,
        partition_ns: 3600 * SECOND_NS,
        level0_parts_max: 2,
        ..StoreOptions::new("data")
    }
}

/// When the first row comes: when the simulation's clock begins.
const START_NS: i64 = 1_700_000_000_000_000_000;

fn time_ns(step: i64) -> i64 {
    START_NS + step * 10 * SECOND_NS
}

/// A row of most hosts; hosts whose rows have had other columns have no part in it.
fn write(simulation: &Simulation, store: &Store, step: i64) {
    let row = |host: u64| {
        let late_s = if simulation.below(30) == 0 { simulation.below(4000) as i64 } else { 0 };
        let stale = f64::from_bits(STALE_NAN_BITS);
        let value = |name: &str| {
            let value = if simulation.below(12) == 0 { stale } else { (step * 1000 + host as i64) as f64 + 0.1 };
            (name.to_owned(), value)
        };
        let fields = match host {
            0 => vec![value("b")],
            1 if simulation.below(3) == 0 => vec![value("a")],
            _ => vec![value("a"), value("b")],
        };
        Row { host: format!("h{host}"), timestamp_ns: time_ns(step) - late_s * SECOND_NS, fields }
    };
    let mut rows: Vec<Row> = (0..HOSTS).filter(|_| simulation.below(15) != 0).map(row).collect();
    if simulation.below(20) == 0 {
        // The same once more, with other values.
        rows.push(row(simulation.below(HOSTS)));
    }
    store.write("default", &batch(&rows)).unwrap();
    store.write("default", &with_text(&batch(&[row(HOSTS), row(HOSTS + 1)]))).unwrap();
}

/// The same rows with a text each.
fn with_text(rows: &Batch<'_>) -> Batch<'static> {
    let mut batch = batch(&[]);
    for block in &rows.blocks {
        let (mut block, width) = (block.clone(), block.fields.len());
        for key in &mut block.keys {
            key.text = batch.push_text(rows.text(key.text));
        }
        block.fields.push(Field { name: "note".to_owned(), value_type: ValueType::String });
        let texts = block.cells.chunks(width).zip(0..);
        let cells = texts.flat_map(|(row, number)| {
            let text = batch.push_text(format!("text {number}").as_bytes()).to_cell();
            row.iter().copied().chain([text]).collect::<Vec<_>>()
        });
        block.cells = cells.collect();
        batch.blocks.push(block);
    }
    batch
}

/// A group without its texts: these have no sums.
fn of_numbers(group: &SelectedGroup) -> SelectedGroup {
    let numbers = group.columns.iter().filter(|column| column.value_type != ValueType::String);
    let mut of_numbers = group.clone();
    of_numbers.columns = Arc::new(numbers.cloned().collect());
    of_numbers
}

/// Compares what is found of groups with what they give by themselves. How many were found, and how many rows.
fn check(store: &Store, windows: &Windows) -> (usize, usize) {
    let groups = store.select_table("default", "m", &[], &compile(&[]).unwrap()).unwrap();
    let (mut found, mut rows) = (0, 0);
    let recent = store.head_rows(&groups, &windows.range());
    for (place, group) in groups.iter().enumerate() {
        let has_text = group.columns.iter().any(|column| column.value_type == ValueType::String);
        assert!(!has_text || recent.rows(place) == 0 || !recent.has_all(place, &group.columns));
        let group = &of_numbers(group);
        if !recent.has_all(place, &group.columns) {
            continue;
        }
        let (expected, counts) = store.aggregate_parts(group, windows, SummaryParts::Values).unwrap();
        assert_eq!(recent.rows(place) as u64, counts.rows);
        for (column, expected) in group.columns.iter().zip(expected) {
            let mut summed = vec![None; windows.count];
            recent.sum(place, column, windows, SummaryParts::Values, |number, summary| {
                assert_eq!(summed[number].replace(summary), None, "each window once");
            });
            for (summary, expected) in summed.into_iter().zip(expected.windows) {
                // Of what is not asked for nothing is said.
                let shown = |of: model::Summary| {
                    (of.count, of.stale_count, of.first, of.last, of.min, of.max, of.sum, of.sum_integer)
                };
                let summary = summary.unwrap_or(model::Summary::empty(column.value_type));
                assert_eq!(shown(summary), shown(expected), "{} of {}", column.field, group.labels);
            }
        }
        (found, rows) = (found + 1, rows + recent.rows(place));
    }
    (found, rows)
}

/// What happens to a store now and then; whether a flush failed, which leaves rows in a head that nothing is written to any more.
fn disturb(simulation: &Simulation, store: &Store, step: i64) -> bool {
    match simulation.below(120) {
        0..3 => store.flush_all().unwrap(),
        3..6 => drop(store.compact(&mut |_| {}).unwrap()),
        6..9 => drop(store.maintain().unwrap()),
        9..11 => {
            let matchers = [Matcher::new("host", MatchOp::Equal, "h7")];
            let range = TimeRange::new(time_ns(step) - 100 * SECOND_NS, time_ns(step) - 20 * SECOND_NS);
            store.delete_rows("default", "m", &compile(&matchers).unwrap(), &range).unwrap();
        }
        11..15 => {
            simulation.limit_room(Some(simulation.used_bytes()));
            let flushed = store.flush_all();
            simulation.limit_room(None);
            return flushed.is_err();
        }
        _ => {}
    }
    false
}

#[test]
fn what_is_found_at_once_is_what_each_group_gives() {
    let (mut seen, mut failed) = ([0; 3], 0);
    for seed in 0..8 {
        let simulation = Simulation::new(seed);
        let options = StoreOptions { shards: 1 + seed as u32 % 3, ..options() };
        let store = Store::open(simulation.platform(), options).unwrap();
        if seed % 2 == 1 {
            let policy = DatabasePolicy { retention_ns: 100 * SECOND_NS, ..DatabasePolicy::default() };
            store.set_policy("default", &policy).unwrap();
        }
        for step in 0..300 {
            write(&simulation, &store, step);
            failed += usize::from(disturb(&simulation, &store, step));
            let count = 1 + simulation.below(5) as usize;
            let width_ns = (1 + simulation.below(60) as i64) * SECOND_NS;
            let behind_ns = time_ns(step) + SECOND_NS + simulation.below(20 * SECOND_NS as u64) as i64;
            let windows = Windows { start_ns: behind_ns - count as i64 * width_ns, width_ns, count };
            let (found, rows) = check(&store, &windows);
            seen = [seen[0] + usize::from(found > 30), seen[1] + usize::from(found == 0), seen[2] + rows];
            simulation.advance_ns(10 * SECOND_NS);
        }
    }
    assert!(seen[0] > 500 && seen[1] > 10 && seen[2] > 20_000 && failed > 20, "{seen:?}, {failed} flushes failed");
}

/// Of few groups among many others rows are not looked for that way: the others' would be looked at, too.
#[test]
fn few_groups_are_read_by_themselves() {
    let simulation = Simulation::new(1);
    let store = Store::open(simulation.platform(), StoreOptions { shards: 1, ..options() }).unwrap();
    for step in 0..10 {
        let row = |host: u64| Row {
            host: format!("h{host}"),
            timestamp_ns: time_ns(step),
            fields: vec![("a".to_owned(), step as f64)],
        };
        store.write("default", &batch(&(0..200).map(row).collect::<Vec<_>>())).unwrap();
    }
    let groups = store.select_table("default", "m", &[], &compile(&[]).unwrap()).unwrap();
    let range = TimeRange::new(time_ns(0), time_ns(100));
    let has_all = |few: &[SelectedGroup]| store.head_rows(few, &range).has_all(0, &few[0].columns);
    assert!(has_all(&groups));
    assert!(!has_all(&groups[..1]));
}
