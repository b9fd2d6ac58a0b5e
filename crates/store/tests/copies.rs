//! What merges read is checked before any of it is written again.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use model::TimeRange;
use platform::sim::Simulation;
use support::{Content, Row, apply, batch, read_all};
use thalweg_store::{Store, StoreOptions};

const SECOND_NS: i64 = 1_000_000_000;
const HOSTS: u64 = 6;

/// Rows of one host, as many as make several chunks of level 2.
fn rows(host: u64, steps: std::ops::Range<i64>, scale: f64) -> Vec<Row> {
    let row = |step: i64| Row {
        host: format!("h{host}"),
        timestamp_ns: step * 10 * SECOND_NS,
        fields: vec![("a".to_owned(), step as f64 * scale), ("b".to_owned(), scale)],
    };
    steps.map(row).collect()
}

fn write(store: &Store, content: &mut Content, rows: &[Row]) {
    for some in rows.chunks(2000) {
        store.write("default", &batch(some)).unwrap();
        apply(content, some);
    }
}

#[test]
fn a_damaged_chunk_is_not_copied() {
    let simulation = Simulation::new(4);
    let store = Store::open(simulation.platform(), StoreOptions::new("data")).unwrap();
    let mut content = Content::new();
    (0..HOSTS).for_each(|host| write(&store, &mut content, &rows(host, 0..20_000, 1.0)));
    write(&store, &mut content, &rows(0, 200_000..200_010, 1.0));
    store.compact_all().unwrap();
    assert_eq!(read_all(&store, TimeRange::ALL), content);
    let files = simulation.files();
    let parts = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "part"));
    let largest = parts.max_by_key(|path| simulation.read(path).unwrap().len()).unwrap();
    // In the first key's first chunk, which nothing touches.
    simulation.flip_bit(largest, 500, 3).unwrap();
    for host in 0..HOSTS {
        store.write("default", &batch(&rows(host, 19_990..19_999, 2.0))).unwrap();
    }
    let error = store.compact_all().unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
}
