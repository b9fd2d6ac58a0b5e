//! Forwarding in simulated time: receivers that are down, refuse, hang and ask for patience, restarts and crashes of the sender between. Every
//! sample arrives at least once, and those of a series in order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use db::{Db, DbOptions};
use ingest::remote_write::{self, Options};
use ingest::{KeyHasher, Limits, Protocol};
use model::Labels;
use platform::network::sim::{SimAnswer, SimNetwork, SimResponse};
use platform::network::{HttpError, HttpRequest};
use platform::sim::Simulation;
use thalweg_scrape::{Forwarder, config};

const START_MS: i64 = 1_700_000_000_000;

/// How a receiver answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Takes,
    IsDown,
    /// Takes a request, and the answer is lost.
    LosesAnswers,
    Status(u16),
    AsksForPatience,
    Hangs,
    /// Is down for requests with a certain series.
    HoldsUpOne,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    series: String,
    time_ms: i64,
    value: f64,
}

struct Receiver {
    mode: Mode,
    /// In order of arrival.
    samples: Vec<Sample>,
    requests: u64,
    heads: Vec<Vec<(String, String)>>,
}

fn samples(request: &HttpRequest) -> Vec<Sample> {
    let hasher = KeyHasher::new([7; ingest::KEY_SECRET_BYTES]);
    let limits = Limits::default();
    let options = Options { hasher: hasher.scope(Protocol::RemoteWrite, 1), limits: &limits, dropped_label: None };
    let body = remote_write::decompress(request.body.clone(), 1 << 26).unwrap();
    let is_v2 = request.header("X-Prometheus-Remote-Write-Version") == Some("2.0.0");
    let parsed = if is_v2 { remote_write::parse_v2(&body, &options) } else { remote_write::parse(&body, &options) };
    let request = parsed.unwrap();
    assert!(request.errors.is_empty(), "{:?}", request.errors);
    let mut found = Vec::new();
    for block in &request.batch.blocks {
        for ((key, time_ns), cell) in block.keys.iter().zip(&block.timestamps_ns).zip(&block.cells) {
            let identity = remote_write::decode_key(request.batch.text(key.text)).unwrap();
            let series = format!("{}{}", identity.measurement, identity.labels);
            found.push(Sample { series, time_ms: time_ns / 1_000_000, value: f64::from_bits(*cell) });
        }
    }
    found
}

fn answer(receiver: &Mutex<Receiver>, request: &HttpRequest) -> SimAnswer {
    let mut receiver = receiver.lock().unwrap();
    receiver.requests += 1;
    receiver.heads.push(request.headers.clone());
    let failed = |reason: &str| Err(HttpError::Failed(reason.to_owned()));
    let status = |status, headers: Vec<(String, String)>| Ok(SimResponse { status, headers, ..SimResponse::default() });
    let has_one =
        receiver.mode == Mode::HoldsUpOne && samples(request).iter().any(|sample| sample.series.contains("n=\"0\""));
    let takes = matches!(receiver.mode, Mode::Takes | Mode::LosesAnswers | Mode::HoldsUpOne) && !has_one;
    if takes {
        let found = samples(request);
        receiver.samples.extend(found);
    }
    let result = match receiver.mode {
        Mode::HoldsUpOne if has_one => status(503, Vec::new()),
        Mode::Takes | Mode::HoldsUpOne => status(204, Vec::new()),
        Mode::IsDown => failed("connection refused"),
        Mode::LosesAnswers => failed("connection reset"),
        Mode::Status(code) => status(code, Vec::new()),
        Mode::AsksForPatience => status(429, vec![("Retry-After".to_owned(), "20".to_owned())]),
        Mode::Hangs => return SimAnswer { delay_ms: u64::MAX, result: status(204, Vec::new()) },
    };
    SimAnswer { delay_ms: 20, result }
}

/// A sender and its receiver.
struct World {
    simulation: Simulation,
    network: SimNetwork,
    receiver: Arc<Mutex<Receiver>>,
    config: config::Config,
    options: fn() -> DbOptions,
    running: Option<(Arc<Db>, Forwarder)>,
    /// Steps that were written.
    step: i64,
}

fn options() -> DbOptions {
    let mut options = DbOptions::new("/data");
    options.store.shards = 2;
    options.store.log_segment_bytes = 1 << 14;
    options
}

/// So little of the log stays that an outage is longer.
fn options_of_a_short_log() -> DbOptions {
    let mut options = options();
    options.store.log_retained_bytes_max = 1 << 15;
    options
}

impl World {
    fn new(remote: &str, options: fn() -> DbOptions) -> Self {
        let simulation = Simulation::new(11);
        let receiver = Receiver { mode: Mode::Takes, samples: Vec::new(), requests: 0, heads: Vec::new() };
        let receiver = Arc::new(Mutex::new(receiver));
        let for_network = receiver.clone();
        let network = SimNetwork::new(&simulation, move |request| answer(&for_network, request));
        let text = format!(
            "global: {{external_labels: {{region: eu, own: no}}}}\nremote_write:\n- url: http://u:p@receiver/write\n  {remote}\n"
        );
        let config = config::parse(Path::new("/p.yml"), &text, &|_| None).unwrap().config;
        let mut world = Self { simulation, network, receiver, config, options, running: None, step: 0 };
        world.start();
        world
    }

    fn start(&mut self) {
        let db = Arc::new(Db::open(self.simulation.platform(), (self.options)()).unwrap());
        let forwarder = Forwarder::start(&self.network.platform(), db.clone(), "default");
        forwarder.apply(&self.config);
        self.running = Some((db, forwarder));
    }

    /// Ends the sender: as it should, or by a loss of power.
    fn restart(&mut self, is_crash: bool) {
        let (db, forwarder) = self.running.take().unwrap();
        if is_crash {
            // Tasks end with the machine; what they would save is lost.
            self.simulation.crash();
            forwarder.stop();
        } else {
            forwarder.stop();
            db.close().unwrap();
        }
        drop(forwarder);
        self.network.run_ms(1);
        drop(db);
        self.start();
    }

    /// So many seconds, a sample of each series in each.
    fn run(&mut self, mode: Mode, seconds: usize) {
        self.receiver.lock().unwrap().mode = mode;
        for _ in 0..seconds {
            self.write();
            self.network.run_ms(1000);
        }
    }

    fn db(&self) -> &Arc<Db> {
        &self.running.as_ref().unwrap().0
    }

    fn write(&mut self) {
        let labels = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied()).unwrap();
        let mut series: Vec<(&str, Labels)> = Vec::new();
        let numbers: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        series.extend(numbers.iter().map(|number| ("m", labels(&[("n", number), ("own", "yes")]))));
        series.push(("secret", labels(&[("a", "b")])));
        let db = self.db();
        let tokens = db.register_series("default", &series).unwrap();
        let mut appender = db.appender();
        let tokens: Vec<u64> = tokens.into_iter().map(db::Token::to_bits).collect();
        let time_ns = (START_MS + self.step * 1000) * 1_000_000;
        let cells = vec![(self.step as f64).to_bits(); tokens.len()];
        appender.push_samples(&tokens, &vec![time_ns; tokens.len()], &cells).unwrap();
        let written = appender.append(None).unwrap();
        db.commit(&written).unwrap();
        self.step += 1;
    }

    /// Checks that everything up to now arrived; returns how many samples came more than once.
    fn check(&self) -> usize {
        let receiver = self.receiver.lock().unwrap();
        let mut by_series: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for Sample { series, time_ms, value } in &receiver.samples {
            let step = (time_ms - START_MS) / 1000;
            assert_eq!(*value, step as f64, "{series}");
            by_series.entry(series).or_default().push(step);
        }
        let names: Vec<&str> = by_series.keys().copied().collect();
        assert_eq!(names.len(), 20, "{names:?}");
        let mut repeated = 0;
        for (series, steps) in by_series {
            assert!(series.starts_with("m{n=") && series.contains("own=\"yes\", region=\"eu\""), "{series}");
            let mut known = BTreeSet::new();
            let first: Vec<i64> = steps.iter().copied().filter(|step| known.insert(*step)).collect();
            repeated += steps.len() - first.len();
            assert_eq!(first, (0..self.step).collect::<Vec<_>>(), "{series}");
        }
        repeated
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.running.as_ref().unwrap().1.metrics();
        let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

const REMOTE: &str = "remote_timeout: 5s
  queue_config: {retry_on_http_429: true, max_samples_per_send: 30, batch_send_deadline: 2s, max_backoff: 4s, max_shards: 4}
  metadata_config: {send: false}
  write_relabel_configs: [{source_labels: [__name__], regex: secret, action: drop}]";

#[test]
fn everything_arrives_through_outages_and_restarts() {
    let mut world = World::new(REMOTE, options);
    world.run(Mode::Takes, 30);
    world.run(Mode::Takes, 5);
    assert!(world.metric("prometheus_remote_storage_samples_total") > 500.0);
    assert!(world.metric("prometheus_remote_storage_samples_dropped_total") > 20.0, "of the series that is dropped");
    for (mode, seconds) in [
        (Mode::IsDown, 60),
        (Mode::Status(500), 30),
        (Mode::Takes, 20),
        (Mode::AsksForPatience, 45),
        (Mode::Hangs, 30),
        (Mode::Status(503), 10),
    ] {
        world.run(mode, seconds);
    }
    assert!(world.metric("prometheus_remote_storage_samples_retried_total") > 0.0);
    let failures = world.running.as_ref().unwrap().1.failures();
    assert!(failures[0].1.contains("503"), "{failures:?}");
    // Restarts while nothing gets through.
    world.run(Mode::IsDown, 20);
    world.restart(false);
    world.run(Mode::IsDown, 10);
    world.restart(true);
    world.run(Mode::Takes, 40);
    world.network.run_ms(30_000);
    assert_eq!(world.metric("prometheus_remote_storage_samples_failed_total"), 0.0);
    world.check();
    // What was sent right before a crash comes again.
    world.run(Mode::LosesAnswers, 5);
    world.restart(true);
    world.run(Mode::Takes, 20);
    world.network.run_ms(30_000);
    assert!(world.check() > 0);
    let shown = world.running.as_ref().unwrap().1.metrics();
    assert!(shown.contains("url=\"http://receiver/write\"") && !shown.contains("u:p"), "{shown}");
}

#[test]
fn a_shard_that_waits_holds_up_no_other() {
    let mut world = World::new(&REMOTE.replace("max_shards: 4", "min_shards: 4, max_shards: 4"), options);
    world.run(Mode::Takes, 10);
    world.run(Mode::HoldsUpOne, 60);
    let last_steps = |world: &World| {
        let receiver = world.receiver.lock().unwrap();
        let mut last: BTreeMap<String, i64> = BTreeMap::new();
        for Sample { series, time_ms, .. } in &receiver.samples {
            last.insert(series.clone(), (time_ms - START_MS) / 1000);
        }
        last
    };
    let last = last_steps(&world);
    let held_up = last.iter().find(|(series, _)| series.contains("n=\"0\"")).unwrap();
    assert!(*held_up.1 < 12, "{last:?}");
    // Those that share its shard wait with it.
    let up_to_date = last.values().filter(|step| **step > world.step - 8).count();
    assert!(up_to_date >= 8, "{last:?}");
    // Of what others got meanwhile nothing counts as done with before the series that waits.
    world.restart(true);
    world.run(Mode::Takes, 20);
    world.network.run_ms(30_000);
    world.check();
    // The position follows: after another restart little comes again.
    let before = world.receiver.lock().unwrap().samples.len();
    world.network.run_ms(10_000);
    world.restart(true);
    world.network.run_ms(10_000);
    assert_eq!(world.receiver.lock().unwrap().samples.len(), before, "all of it was done with");
}

#[test]
fn patience_is_kept_and_what_is_refused_is_not_sent_again() {
    let mut world = World::new(REMOTE, options);
    world.run(Mode::AsksForPatience, 19);
    let requests = world.receiver.lock().unwrap().requests;
    assert!((1..=2).contains(&requests), "{requests} requests within 20 s");
    world.run(Mode::Takes, 30);
    world.network.run_ms(10_000);
    world.check();
    let before = world.receiver.lock().unwrap().samples.len();
    world.run(Mode::Status(400), 10);
    world.network.run_ms(10_000);
    assert!(world.metric("prometheus_remote_storage_samples_failed_total") >= 200.0);
    world.run(Mode::Takes, 1);
    world.network.run_ms(10_000);
    let receiver = world.receiver.lock().unwrap();
    assert_eq!(receiver.samples.len(), before + 20, "what was refused is dropped");
    let retried: Vec<&Vec<(String, String)>> =
        receiver.heads.iter().filter(|head| head.iter().any(|(name, _)| name == "Retry-Attempt")).collect();
    assert!(!retried.is_empty());
}

#[test]
fn what_the_log_does_not_hold_any_more_comes_from_the_store() {
    for version in ["prometheus.WriteRequest", "io.prometheus.write.v2.Request"] {
        let mut world = World::new(&format!("{REMOTE}\n  protobuf_message: {version}"), options_of_a_short_log);
        world.run(Mode::Takes, 10);
        for round in 0..30 {
            world.run(Mode::IsDown, 20);
            world.db().compact_all().unwrap();
            if round == 20 {
                world.restart(true);
            }
        }
        assert!(world.db().log_retained_bytes() <= 1 << 15);
        world.run(Mode::Takes, 30);
        world.network.run_ms(60_000);
        assert!(world.metric("thalweg_forward_log_gaps_total") > 0.0);
        world.check();
    }
}

#[test]
fn nothing_is_held_for_a_receiver_that_is_gone() {
    let mut world = World::new(REMOTE, options);
    world.run(Mode::IsDown, 20);
    assert_eq!(world.db().log_cursors().len(), 1);
    // Another setting: it goes on where it was.
    world.config.remote_write[0].timeout_ms = 7_000;
    world.running.as_ref().unwrap().1.apply(&world.config);
    world.run(Mode::Takes, 20);
    world.network.run_ms(10_000);
    world.check();
    world.config.remote_write.clear();
    world.running.as_ref().unwrap().1.apply(&world.config);
    assert!(world.db().log_cursors().is_empty());
}

#[test]
fn what_is_too_old_is_dropped() {
    let mut world = World::new(&REMOTE.replace("max_shards: 4", "sample_age_limit: 30s"), options);
    world.run(Mode::IsDown, 120);
    world.run(Mode::Takes, 5);
    world.network.run_ms(10_000);
    let receiver = world.receiver.lock().unwrap();
    let first = receiver.samples.iter().map(|sample| (sample.time_ms - START_MS) / 1000).min().unwrap();
    assert!(first > 60, "{first}");
    drop(receiver);
    assert!(world.metric("prometheus_remote_storage_samples_dropped_total{remote_name") >= 0.0);
}

/// A receiver over loopback, in a mode that the test changes.
struct LoopbackReceiver {
    address: std::net::SocketAddr,
    accepting: tokio::task::JoinHandle<()>,
}

impl LoopbackReceiver {
    async fn start(address: &str, receiver: Arc<Mutex<Receiver>>) -> Self {
        // The port may be in use for a moment after its last owner.
        let listener = loop {
            match tokio::net::TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            // Connections end with the task.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, receiver.clone()));
            }
        });
        Self { address, accepting }
    }

    /// Nothing listens any more.
    async fn stop(self) -> std::net::SocketAddr {
        self.accepting.abort();
        let _ = self.accepting.await;
        self.address
    }
}

/// Answers requests until the connection ends.
async fn serve(mut stream: tokio::net::TcpStream, receiver: Arc<Mutex<Receiver>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut buffer = Vec::new();
    loop {
        let (head_end, length) = loop {
            let text = String::from_utf8_lossy(&buffer).to_lowercase();
            if let Some(head_end) = text.find("\r\n\r\n") {
                let (_, rest) = text.split_once("content-length: ").unwrap();
                let length: usize = rest.split("\r\n").next().unwrap().parse().unwrap();
                if buffer.len() >= head_end + 4 + length {
                    break (head_end, length);
                }
            }
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
        let headers = head.lines().filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let body = buffer[head_end + 4..head_end + 4 + length].to_vec();
        buffer.drain(..head_end + 4 + length);
        let request = HttpRequest { method: "POST", url: String::new(), headers, body };
        let SimAnswer { delay_ms, result } = answer(&receiver, &request);
        if delay_ms == u64::MAX {
            // Longer than the sender waits.
            tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        }
        let Ok(SimResponse { status, headers, .. }) = result else { return };
        let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = headers.concat();
        let answer = format!("HTTP/1.1 {status} X\r\n{headers}content-length: 0\r\n\r\n");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Writes numbered samples of two series.
fn write_real(db: &Db, numbers: std::ops::Range<i64>) {
    for number in numbers {
        let line = format!("m,n=a value={number} {0}\nm,n=b value={number} {0}", (START_MS + number) * 1_000_000);
        db.write_lines("default", line.as_bytes()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_over_loopback_gets_everything_through_faults_and_restarts() {
    use platform::Platform;
    use platform::network::NetworkPlatform;

    let folder = std::env::temp_dir().join(format!("thalweg-forward-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("password"), "s3cret\n").unwrap();
    let state = Receiver { mode: Mode::Takes, samples: Vec::new(), requests: 0, heads: Vec::new() };
    let state = Arc::new(Mutex::new(state));
    let mut receiver = LoopbackReceiver::start("127.0.0.1:0", state.clone()).await;
    let text = format!(
        "remote_write:\n- url: http://{}/write\n  remote_timeout: 1s\n  basic_auth: {{username: u, password_file: password}}\n  \
         metadata_config: {{send: false}}\n  \
         queue_config: {{retry_on_http_429: true, batch_send_deadline: 50ms, max_backoff: 100ms, max_samples_per_send: 17}}\n",
        receiver.address
    );
    let config = config::parse(&folder.join("p.yml"), &text, &|_| None).unwrap().config;
    let open = || {
        let db = Arc::new(Db::open(Platform::real(), DbOptions::new(folder.join("data"))).unwrap());
        let forwarder = Forwarder::start(&NetworkPlatform::real(Platform::real()), db.clone(), "default");
        forwarder.apply(&config);
        (db, forwarder)
    };
    let (mut db, mut forwarder) = open();
    let mut written = 0;
    for mode in [Mode::Takes, Mode::Status(500), Mode::AsksForPatience, Mode::Hangs, Mode::LosesAnswers, Mode::Takes] {
        let requests = {
            let mut state = state.lock().unwrap();
            state.mode = mode;
            state.requests
        };
        write_real(&db, written..written + 100);
        wait_for(&state, |state| state.requests > requests).await;
        // Nothing listens for a while, and the sender starts anew.
        let address = receiver.stop().await.to_string();
        write_real(&db, written + 100..written + 200);
        written += 200;
        forwarder.stop();
        drop(forwarder);
        db.close().unwrap();
        drop(db);
        (db, forwarder) = open();
        receiver = LoopbackReceiver::start(&address, state.clone()).await;
    }
    state.lock().unwrap().mode = Mode::Takes;
    let has_all = |state: &Receiver| {
        let all: BTreeSet<(&str, i64)> =
            state.samples.iter().map(|sample| (sample.series.as_str(), sample.time_ms)).collect();
        all.len() as i64 == 2 * written
    };
    wait_for(&state, has_all).await;
    for series in ["m{n=\"a\"}", "m{n=\"b\"}"] {
        let state = state.lock().unwrap();
        let mut known = BTreeSet::new();
        let own = state.samples.iter().filter(|sample| sample.series == series);
        let first: Vec<i64> = own.map(|sample| sample.time_ms - START_MS).filter(|step| known.insert(*step)).collect();
        assert_eq!(first, (0..written).collect::<Vec<_>>(), "{series}");
        let credentials = ("authorization".to_owned(), "Basic dTpzM2NyZXQ=".to_owned());
        assert!(state.heads.iter().all(|head| head.contains(&credentials)), "{:?}", state.heads[0]);
    }
    forwarder.stop();
    drop(forwarder);
    db.close().unwrap();
    let _ = std::fs::remove_dir_all(&folder);
}

async fn wait_for(state: &Mutex<Receiver>, is_so: impl Fn(&Receiver) -> bool) {
    let begun = std::time::Instant::now();
    while !is_so(&state.lock().unwrap()) {
        assert!(begun.elapsed() < std::time::Duration::from_mins(1), "it does not come");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
