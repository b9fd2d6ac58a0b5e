//! Merges take over chunks that nothing touches byte for byte: the answers must be the same as ever.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stderr)]

mod support;

use index::compile;
use model::{MatchOp, Matcher, TimeRange};
use platform::sim::Simulation;
use support::{Content, Row, apply, batch, read_all};
use thalweg_store::{Store, StoreOptions, Windows};

const SECOND_NS: i64 = 1_000_000_000;
const HOUR_NS: i64 = 3600 * SECOND_NS;
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

/// What windows of an hour add up to, for each series: count and sum.
fn sums(store: &Store) -> Vec<Vec<(u64, f64)>> {
    let windows = Windows { start_ns: 0, width_ns: HOUR_NS, count: 60 };
    let groups = store.select("default", &compile(&[]).unwrap()).unwrap();
    let aggregated = groups.iter().flat_map(|group| store.aggregate(group, &windows).unwrap().0);
    aggregated.map(|column| column.windows.iter().map(|summary| (summary.count, summary.sum.0)).collect()).collect()
}

fn expected_sums(content: &Content) -> Vec<Vec<(u64, f64)>> {
    let of_hour = |samples: &std::collections::BTreeMap<i64, f64>, hour: i64| {
        let inside = samples.range(hour * HOUR_NS..(hour + 1) * HOUR_NS).map(|(_, value)| *value);
        (inside.clone().count() as u64, inside.sum())
    };
    content.values().map(|samples| (0..60).map(|hour| of_hour(samples, hour)).collect()).collect()
}

/// Settles, and says how many chunks were copied and how many encoded for that.
fn settle(store: &Store, content: &Content) -> (u64, u64) {
    let before = store.stats().merged_chunks;
    store.settle().unwrap();
    let after = store.stats().merged_chunks;
    assert_eq!(&read_all(store, TimeRange::ALL), content);
    let (mut found, mut expected) = (sums(store), expected_sums(content));
    found.sort_by(|a, b| a.partial_cmp(b).unwrap());
    expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert_eq!(found, expected);
    (after[0] - before[0], after[1] - before[1])
}

#[test]
fn what_late_rows_and_deletes_do_not_touch_is_copied() {
    let simulation = Simulation::new(3);
    let options = StoreOptions { node_rows_min: 100, ..StoreOptions::new("data") };
    let store = Store::open(simulation.platform(), options).unwrap();
    let mut content = Content::new();
    for host in 0..HOSTS {
        write(&store, &mut content, &rows(host, 0..20_000, 1.0));
    }
    // Newer rows, so that the others are past the fast tier.
    write(&store, &mut content, &rows(0, 200_000..200_010, 1.0));
    settle(&store, &content);
    let chunks = store.stats().levels[2].chunks;
    assert!(chunks > 4 * HOSTS, "{chunks}");
    // Late rows of one host: of the others nothing is encoded again.
    write(&store, &mut content, &rows(2, 7000..7010, 2.0));
    let (copied, encoded) = settle(&store, &content); eprintln!("{:?} {:?}", store.stats().merges_by_goal, store.stats().levels);
    assert!(
        copied >= chunks * 3 / 4 && encoded < chunks / 4 && encoded > 0,
        "{copied} copied, {encoded} encoded of {chunks}"
    );
    // A delete in one host's rows.
    let matchers = compile(&[Matcher::new("host", MatchOp::Equal, "h4")]).unwrap();
    let range = TimeRange::new(0, 100 * 10 * SECOND_NS);
    store.delete("default", &matchers, &range).unwrap();
    content.iter_mut().filter(|((host, _), _)| host == "h4").for_each(|(_, samples)| {
        samples.retain(|timestamp_ns, _| !range.contains(*timestamp_ns));
    });
    let (copied, encoded) = settle(&store, &content); eprintln!("{:?} {:?}", store.stats().merges_by_goal, store.stats().levels);
    assert!(
        copied >= chunks * 3 / 4 && encoded < chunks / 4 && encoded > 0,
        "{copied} copied, {encoded} encoded of {chunks}"
    );
    drop(store);
    let store = Store::open(simulation.platform(), StoreOptions::new("data")).unwrap();
    assert_eq!(read_all(&store, TimeRange::ALL), content);
}

#[test]
fn a_damaged_chunk_is_not_copied() {
    let simulation = Simulation::new(4);
    let store = Store::open(simulation.platform(), StoreOptions::new("data")).unwrap();
    let mut content = Content::new();
    (0..HOSTS).for_each(|host| write(&store, &mut content, &rows(host, 0..20_000, 1.0)));
    write(&store, &mut content, &rows(0, 200_000..200_010, 1.0));
    settle(&store, &content);
    let files = simulation.files();
    let parts = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "part"));
    let largest = parts.max_by_key(|path| simulation.read(path).unwrap().len()).unwrap();
    // In the first key's first chunk, which nothing touches.
    simulation.flip_bit(largest, 500, 3).unwrap();
    for host in 0..HOSTS {
        store.write("default", &batch(&rows(host, 19_990..19_999, 2.0))).unwrap();
    }
    let error = store.settle().unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
}
