//! Two replicas of a Prometheus send by remote write: one of them is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use db::DbOptions;
use ingest::remote_write::{Series, SeriesV2, compress, encode, encode_v2};
use ingest::replicas::ReplicaSettings;
use platform::{Clock, Platform};

use crate::harness::{Answer, Running};

/// A clock that a test can put forward.
struct Ahead {
    clock: Arc<dyn Clock>,
    ahead_ns: AtomicU64,
}

impl Ahead {
    fn pass_s(&self, seconds: u64) {
        self.ahead_ns.fetch_add(seconds * 1_000_000_000, Ordering::SeqCst);
    }
}

impl Clock for Ahead {
    fn now_ns(&self) -> i64 {
        self.clock.now_ns() + self.ahead_ns.load(Ordering::SeqCst) as i64
    }

    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns() + self.ahead_ns.load(Ordering::SeqCst)
    }

    fn thread_cpu_ns(&self) -> u64 {
        self.clock.thread_cpu_ns()
    }
}

fn start(settings: ReplicaSettings) -> (Running, Arc<Ahead>) {
    let platform = Platform::real();
    let clock = Arc::new(Ahead { clock: platform.clock.clone(), ahead_ns: AtomicU64::new(0) });
    let options = DbOptions::new(Running::new_folder());
    let platform = Platform { clock: clock.clone(), ..platform };
    (Running::start_with_platform(platform, options, |server| server.replicas = Some(settings)), clock)
}

/// Sends a sample at a second, by version 1 or 2, with labels beside the metric's name.
fn send(server: &Running, version: u8, labels: &[(&str, &str)], second: i64) -> Answer {
    let labels = [&[("__name__", "up")], labels].concat();
    let samples = [(second * 1000, second as f64)];
    let (body, content_type) = if version == 1 {
        (encode(&[Series { labels: &labels, samples: &samples }], &[]), "application/x-protobuf")
    } else {
        let series = SeriesV2 { labels: &labels, samples: &samples, ..SeriesV2::default() };
        (encode_v2(&[series]), "application/x-protobuf;proto=io.prometheus.write.v2.Request")
    };
    let headers = [("content-encoding", "snappy"), ("content-type", content_type)];
    server.send("POST", "/api/v1/write", &headers, compress(&body))
}

#[test]
fn one_of_two_replicas_is_stored_and_the_other_takes_over() {
    for version in [1, 2] {
        let (server, clock) = start(ReplicaSettings::default());
        let from = |replica: &str, second| {
            let answer = send(&server, version, &[("__replica__", replica), ("cluster", "c"), ("job", "j")], second);
            // A sender of version 2 takes a request without counts for failed.
            assert_eq!(answer.header("x-prometheus-remote-write-samples-written"), "1", "{replica} {second}");
            answer.status
        };
        assert_eq!((from("a", 1), from("b", 2), from("a", 3)), (204, 202, 204));
        clock.pass_s(20);
        assert_eq!((from("b", 4), from("a", 5)), (202, 204));
        clock.pass_s(20);
        assert_eq!((from("b", 6), from("a", 7)), (202, 204));
        // "a" is down.
        clock.pass_s(31);
        assert_eq!((from("b", 8), from("a", 9), from("b", 10)), (204, 202, 204));
        let all = server.result("default", "count_over_time(up[1m])", 10);
        assert_eq!(all, r#"[{"metric":{"cluster":"c","job":"j"},"value":[10,"6"]}]"#, "without the replica's label");
        assert_eq!(server.result("default", "sum_over_time(up[1m])", 10).split('"').nth(13), Some("34"));
        server.wait_for_metric("thalweg_ha_deduplicated_requests_total 4");
        for line in ["deduplicated_samples_total 4", "failovers_total 1", "clusters 1"] {
            server.wait_for_metric(&format!("thalweg_ha_{line}"));
        }
    }
}

#[test]
fn requests_without_the_labels_are_taken_as_ever_and_clusters_are_bounded() {
    let (server, clock) = start(ReplicaSettings { clusters_max: 1, ..ReplicaSettings::default() });
    for version in [1, 2] {
        for labels in [&[][..], &[("cluster", "c")], &[("__replica__", "a")], &[("__replica__", ""), ("cluster", "c")]]
        {
            assert_eq!(send(&server, version, labels, 1).status, 204, "{labels:?}");
        }
    }
    let one = |cluster| send(&server, 1, &[("__replica__", "a"), ("cluster", cluster)], 2);
    assert_eq!(one("c").status, 204);
    let refused = one("d");
    assert!(refused.status == 400 && refused.body.contains("ha_clusters_max"), "{}", refused.body);
    clock.pass_s(31);
    assert_eq!((one("d").status, one("c").status), (204, 400));
    // Databases have clusters of their own, within the same bound.
    let plain = Running::start();
    assert_eq!(send(&plain, 1, &[("__replica__", "a"), ("cluster", "c")], 3).status, 204);
    assert!(plain.result("default", "up", 3).contains(r#""__replica__":"a""#), "the setting is off");
    assert!(!plain.get("/metrics").body.contains("thalweg_ha_"));
}
