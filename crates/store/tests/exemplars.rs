//! Exemplars and start timestamps: out of the log, out of their segment, out of a backup.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use index::compile;
use model::{
    Batch, Block, Exemplar, Field, GroupIdentity, GroupKey, Labels, MatchOp, Matcher, SeriesExemplar, StartTimestamp,
    TimeRange, VALUE_FIELD, ValueType,
};
use platform::objects::ObjectOptions;
use platform::sim::Simulation;
use thalweg_store::{Progress, Store, StoreOptions, check, restore};

const EXEMPLARS_MAX: usize = 6;

fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let job = std::str::from_utf8(key).map_err(|error| error.to_string())?;
    let labels = Labels::from_pairs([("job", job)]).map_err(|error| error.to_string())?;
    Ok(GroupIdentity { measurement: "x".to_owned(), labels })
}

/// A sample of `x{job}` with an exemplar of the same time and value.
fn batch(job: &str, time_ns: i64) -> Batch<'static> {
    let mut batch = Batch::new(&[], decode_key);
    let hash = job.bytes().fold(7u128, |hash, byte| hash * 1_000_003 + u128::from(byte));
    let key = GroupKey { hash, text: batch.push_text(job.as_bytes()) };
    let value = time_ns as f64;
    batch.blocks.push(Block {
        measurement: None,
        fields: vec![Field { name: VALUE_FIELD.to_owned(), value_type: ValueType::F64 }],
        keys: vec![key],
        timestamps_ns: vec![time_ns],
        lines: vec![1],
        cells: vec![value.to_bits()],
    });
    let labels = Labels::from_pairs([("trace_id", time_ns.to_string())]).unwrap();
    batch.exemplars.push(SeriesExemplar { key, exemplar: Exemplar { labels, value, timestamp_ns: time_ns } });
    batch.start_timestamps.push(StartTimestamp { key, start_ns: time_ns / 100 });
    batch
}

fn options(directory: &str) -> StoreOptions {
    StoreOptions { exemplars_max: EXEMPLARS_MAX, log_segment_bytes: 1 << 12, ..StoreOptions::new(directory) }
}

/// Job, trace and time of each, and each job's start.
fn check_content(store: &Store, exemplars: &[(&str, &[i64])], starts: &[(&str, i64)]) {
    let metric = compile(&[Matcher::new("__name__", MatchOp::Equal, "x")]).unwrap();
    let job = |labels: &Labels| labels.get("job").unwrap().to_owned();
    let found = store.exemplars("default", &metric, &TimeRange::ALL);
    let found: Vec<(String, Vec<i64>)> = found
        .iter()
        .map(|(labels, exemplars)| {
            for exemplar in exemplars {
                assert_eq!(exemplar.labels.get("trace_id"), Some(exemplar.timestamp_ns.to_string().as_str()));
            }
            (job(labels), exemplars.iter().map(|exemplar| exemplar.timestamp_ns).collect())
        })
        .collect();
    let expected: Vec<(String, Vec<i64>)> =
        exemplars.iter().map(|(job, times)| ((*job).to_owned(), times.to_vec())).collect();
    assert_eq!(found, expected);
    let found: Vec<(String, i64)> =
        store.start_timestamps("default", &metric).iter().map(|(labels, start)| (job(labels), *start)).collect();
    assert_eq!(found, starts.iter().map(|(job, start)| ((*job).to_owned(), *start)).collect::<Vec<_>>());
    let other = compile(&[Matcher::new("job", MatchOp::Equal, "z")]).unwrap();
    assert_eq!(store.exemplars("default", &other, &TimeRange::ALL), Vec::new());
}

#[test]
fn they_outlive_a_crash_the_log_and_a_restore() {
    let simulation = Simulation::new(5);
    let store = Store::open(simulation.platform(), options("data")).unwrap();
    for (job, time) in [("a", 300), ("b", 400), ("a", 500), ("a", 500)] {
        store.write("default", &batch(job, time)).unwrap();
    }
    let expected: (&[(&str, &[i64])], _) = (&[("a", &[300, 500]), ("b", &[400])], &[("a", 5), ("b", 4)]);
    check_content(&store, expected.0, expected.1);
    drop(store);
    simulation.crash();

    let store = Store::open(simulation.platform(), options("data")).unwrap();
    check_content(&store, expected.0, expected.1);
    // Their records' log segments are released by flushes.
    for time in 1000..1200 {
        store.write("default", &batch("c", time)).unwrap();
        store.flush_all().unwrap();
    }
    assert!(store.stats().log.segments <= 2, "{:?}", store.stats().log);
    let expected: (&[(&str, &[i64])], _) =
        (&[("c", &[1194, 1195, 1196, 1197, 1198, 1199])], &[("a", 5), ("b", 4), ("c", 11)]);
    check_content(&store, expected.0, expected.1);
    drop(store);
    simulation.crash();

    let store = Store::open(simulation.platform(), options("data")).unwrap();
    check_content(&store, expected.0, expected.1);
    let target = simulation.platform().objects.open("sim://backups", &ObjectOptions::default()).unwrap();
    let report = store.backup(&*target, &mut |_: &Progress| {}).unwrap();
    drop(store);
    let whole = check(&simulation.platform(), Path::new("data"), None, &mut |_| {}).unwrap();
    assert_eq!(whole.damages, Vec::new());

    restore(&*target, Some(&report.name), &simulation.platform(), Path::new("again"), &mut |_| {}).unwrap();
    check_content(&Store::open(simulation.platform(), options("again")).unwrap(), expected.0, expected.1);
}
