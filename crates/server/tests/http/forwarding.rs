//! A server that forwards by its `prometheus.yml` to another one, by both versions of remote write.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use db::DbOptions;
use ingest::remote_write::{Series, SeriesV2, compress, encode, encode_v2};
use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout};
use model::{Exemplar, Labels, MetricKind, MetricMetadata, NativeHistogram};
use platform::Platform;
use platform::network::NetworkPlatform;
use rules::materialize::RulePatterns;
use thalweg_server::{PrometheusMode, PrometheusSettings};

use crate::harness::Running;

fn start(file: PathBuf) -> Running {
    let (database, external_url) = ("default".to_owned(), "http://t.example".to_owned());
    let settings = PrometheusSettings {
        file: Some(file),
        stream_aggregation: None,
        database,
        external_url,
        materialize_rules: RulePatterns::default(),
    };
    let (mode, warnings) = PrometheusMode::load(settings, NetworkPlatform::real(Platform::real())).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    Running::start_on(DbOptions::new(Running::new_folder()), |settings| settings.prometheus = Some(mode))
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn histogram() -> NativeHistogram {
    NativeHistogram {
        layout: Arc::new(HistogramLayout {
            schema: 1,
            positive_spans: vec![BucketSpan { offset: 0, length: 2 }],
            ..HistogramLayout::default()
        }),
        counter_reset: CounterReset::Unknown,
        sum: 9.0,
        counts: HistogramCounts::Integer(Counts { count: 4, zero_count: 0, positive: vec![1, 3], negative: vec![] }),
    }
}

/// What arrives at the sender: floats, a histogram with exemplar, start and metadata, a stale marker.
fn written() -> Vec<u8> {
    let stale = f64::from_bits(model::STALE_NAN_BITS);
    let exemplar = Exemplar {
        labels: Labels::from_pairs([("trace_id", "abc")]).unwrap(),
        value: 0.5,
        timestamp_ns: 2_000_000_000,
    };
    let metadata = MetricMetadata {
        family: "took_seconds".to_owned(),
        kind: MetricKind::Histogram,
        help: "How long it took.".to_owned(),
        unit: "seconds".to_owned(),
    };
    let body = encode_v2(&[
        SeriesV2 {
            labels: &[("__name__", "took_seconds"), ("job", "a")],
            histograms: &[(2_000, histogram())],
            exemplars: &[exemplar],
            metadata: Some(&metadata),
            ..SeriesV2::default()
        },
        SeriesV2 {
            labels: &[("__name__", "up"), ("job", "a")],
            samples: &[(1_000, 1.0), (2_000, 0.0)],
            ..SeriesV2::default()
        },
        SeriesV2 {
            labels: &[("__name__", "up"), ("job", "b")],
            samples: &[(1_000, 1.0), (2_000, stale)],
            ..SeriesV2::default()
        },
    ]);
    compress(&body)
}

#[test]
fn another_server_gets_what_is_written_by_both_versions() {
    let receiver = Running::start();
    let folder = std::env::temp_dir().join(format!("thalweg-forwarding-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let remote = |database: &str, message: &str| {
        format!(
            "- url: http://{}/api/v1/write?db={database}\n  name: {database}\n  protobuf_message: {message}\n  \
             send_exemplars: true\n  send_native_histograms: true\n  queue_config: {{batch_send_deadline: 200ms}}\n  \
             metadata_config: {{send_interval: 1s}}\n",
            receiver.address
        )
    };
    let text = format!(
        "global: {{external_labels: {{region: eu}}}}\nremote_write:\n{}{}- {{url: 'http://127.0.0.1:1/', name: dead}}\n",
        remote("one", "prometheus.WriteRequest"),
        remote("two", "io.prometheus.write.v2.Request")
    );
    let file = folder.join("prometheus.yml");
    std::fs::write(&file, text).unwrap();
    let sender = start(file);
    let headers = [
        ("content-encoding", "snappy"),
        ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
        ("x-prometheus-remote-write-version", "2.0.0"),
    ];
    let answer = sender.send("POST", "/api/v1/write", &headers, written());
    assert_eq!(answer.status, 204, "{}", answer.body);
    for database in ["one", "two"] {
        let has = |query: &str| receiver.result(database, query, 2) != "[]";
        wait_until("samples arrive", || has("up") && has("took_seconds"));
        let up = r#"[{"metric":{"__name__":"up","job":"a","region":"eu"},"value":[2,"0"]}]"#;
        assert_eq!(receiver.result(database, "up", 2), up, "{database}: the stale marker arrives");
        assert_eq!(
            receiver.result(database, "histogram_sum(took_seconds) + histogram_count(took_seconds)", 2),
            r#"[{"metric":{"job":"a","region":"eu"},"value":[2,"13"]}]"#
        );
        let path = format!("/api/v1/query_exemplars?db={database}&query=took_seconds&start=0&end=10");
        wait_until("the exemplar arrives", || receiver.get(&path).body.contains(r#""trace_id":"abc""#));
        let path = format!("/api/v1/metadata?db={database}");
        wait_until("metadata arrive", || receiver.get(&path).body.contains("How long it took."));
    }
    // Line protocol goes on, too; and of other databases nothing does.
    sender.write("weather,station=north temperature=1.5 3000000000");
    let elsewhere =
        compress(&encode(&[Series { labels: &[("__name__", "elsewhere")], samples: &[(3_000, 1.0)] }], &[]));
    let headers =
        [("content-encoding", "snappy"), ("content-type", "application/x-protobuf"), ("x-thalweg-database", "other")];
    assert_eq!(sender.send("POST", "/api/v1/write", &headers, elsewhere).status, 204);
    sender.write("weather,station=south temperature=2.5 3000000000");
    for database in ["one", "two"] {
        wait_until("line protocol arrives", || {
            receiver.result(database, "weather_temperature{station='south'}", 3) != "[]"
        });
        assert_eq!(receiver.result(database, "elsewhere", 3), "[]");
    }
    wait_until("the one that is not there is told of", || {
        sender.get("/api/v1/notifications").body.contains("Forwarding to dead fails: ")
    });
    let metrics = sender.get("/metrics").body;
    for line in [
        "thalweg_log_cursor_sequence{cursor=\"forward/one\"}",
        "prometheus_remote_storage_exemplars_total{remote_name=\"two\"",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    let _ = std::fs::remove_dir_all(&folder);
}
