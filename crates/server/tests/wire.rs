//! The binary protocol over real sockets, by the Rust client and by hand.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Client, ClientError, Options, Outgoing, Values, asynchronous};
use db::{Db, DbOptions, InstantQuery};
use model::histogram::{
    BUCKETS_MAX, BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, Counts, HistogramCounts, HistogramLayout,
    NativeHistogram,
};
use model::{Field, Labels, ValueType};
use thalweg_server::{Listener, Server, ServerSettings};
use tokio::sync::oneshot;
use wire::control;
use wire::data::{self, Answer, Encoder, Hello, Reason};
use wire::frame::{HEADER_BYTES, MessageBuffer, Plane, preface};

static FOLDERS: AtomicU32 = AtomicU32::new(0);
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn at(address: SocketAddr) -> Listener {
    Listener { address, required: true }
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("thalweg-wire-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Running {
    db: Arc<Db>,
    http: SocketAddr,
    control: SocketAddr,
    ingest: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(folder: &Folder, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let db = Arc::new(Db::open(platform::Platform::real(), DbOptions::new(&folder.0)).unwrap());
        let mut settings = ServerSettings::new(LOCAL);
        settings.host_metrics_interval_ms = None;
        (settings.control, settings.ingest) = (Some(at(LOCAL)), Some(at(LOCAL)));
        change(&mut settings);
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let shared = db.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(shared, settings).await.unwrap();
                let at = |flag| server.addresses().iter().find(|(name, _)| *name == flag).unwrap().1;
                tell.send((server.address(), at("--control"), at("--ingest"))).unwrap();
                server.run(async { drop(stopped.await) }).await;
            });
        });
        let (http, control, ingest) = told.recv().unwrap();
        Self { db, http, control, ingest, stop: Some(stop), thread: Some(thread) }
    }

    /// Waits until so many connections are parked. Whoever asks has one that is not.
    fn wait_for_parked(&self, count: usize) {
        let (started, wanted) = (Instant::now(), format!("thalweg_connections_parked {count}"));
        loop {
            let text = ureq::get(format!("http://{}/metrics", self.http)).call().unwrap();
            let text = text.into_body().read_to_string().unwrap();
            if text.lines().any(|line| line == wanted) {
                return;
            }
            let found = text.lines().find(|line| line.starts_with("thalweg_connections_parked "));
            assert!(started.elapsed() < Duration::from_mins(1), "{found:?}, not {wanted}");
            std::thread::yield_now();
        }
    }

    fn options(&self) -> Options {
        Options { control: self.control, ingest: self.ingest, ..Options::default() }
    }

    fn answer(&self, query: &str, time_ms: i64) -> String {
        format!("{:?}", self.db.instant("default", &InstantQuery::new(query, time_ms)).unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join);
    }
}

fn members() -> Vec<(Field, Labels)> {
    let types = [("usage", ValueType::F64), ("count", ValueType::I64), ("state", ValueType::String)];
    let field = |(name, value_type): (&str, ValueType)| (Field { name: name.to_owned(), value_type }, Labels::empty());
    types.into_iter().map(field).collect()
}

fn host(name: &str) -> Labels {
    Labels::from_pairs([("host", name)]).unwrap()
}

#[test]
fn what_the_client_sends_is_found_and_asking_twice_gives_the_same_tokens() {
    let folder = Folder::new();
    let server = Running::start(&folder, |_| {});
    let mut client = Client::connect(server.options()).unwrap();
    let cpu = client.register_groups("default", "cpu", &[host("a"), host("b")], &members()).unwrap();
    assert_eq!(client.register_groups("default", "cpu", &[host("a"), host("b")], &members()).unwrap(), cpu);
    let up = client.register_series("default", &[("up", host("a")), ("up", host("b"))]).unwrap();
    assert_eq!(client.register_series("default", &[("up", host("b"))]).unwrap(), up[1..]);
    // The second row has no count.
    let columns = [
        (Values::F64(&[1.5, 2.5]), [].as_slice()),
        (Values::I64(&[7, 0]), &[0b01]),
        (Values::String(&["well", "ill"]), &[]),
    ];
    let grouped = Outgoing {
        measurement: cpu.measurement,
        slots: &cpu.slots,
        tokens: &cpu.tokens,
        timestamps_ns: &[60_000_000_000],
        columns: &columns,
    };
    let values = [(Values::F64(&[1.0, 0.0]), [].as_slice())];
    let lone = Outgoing { measurement: 0, slots: &[], tokens: &up, timestamps_ns: &[60_000_000_000], columns: &values };
    client.send(&[grouped, lone]).unwrap();
    assert_eq!(client.flush().unwrap(), []);
    for (query, expected) in [
        ("sum(cpu_usage)", "4.0"),
        ("count(cpu_count)", "1.0"),
        ("cpu_count{host=\"a\"}", "7.0"),
        ("sum(up)", "1.0"),
        ("count(up)", "2.0"),
    ] {
        let answer = server.answer(query, 60_000);
        assert!(answer.contains(expected), "{query}: {answer}");
    }
    let refused = client.register_series("default", &[("", Labels::empty())]);
    assert!(matches!(refused, Err(ClientError::Invalid(_))), "{refused:?}");
}

/// A histogram whose buckets above 1 at a factor of 2 have these counts.
fn histogram(layout: &Arc<HistogramLayout>, positive: &[u64]) -> NativeHistogram {
    let counts =
        Counts { count: positive.iter().sum(), zero_count: 0, positive: positive.to_vec(), negative: Vec::new() };
    NativeHistogram {
        layout: layout.clone(),
        counter_reset: CounterReset::Unknown,
        sum: 10.0,
        counts: HistogramCounts::Integer(counts),
    }
}

#[test]
fn native_histograms_are_written_and_found_also_after_a_restart() {
    let folder = Folder::new();
    let server = Running::start(&folder, |_| {});
    let mut client = Client::connect(server.options()).unwrap();
    let member = |name: &str, value_type| (Field { name: name.to_owned(), value_type }, Labels::empty());
    let members = [member("usage", ValueType::F64), member("latency", ValueType::Histogram)];
    let cpu = client.register_groups("default", "cpu", &[host("a"), host("b"), host("c")], &members).unwrap();
    let members = [member(model::HISTOGRAM_FIELD, ValueType::Histogram)];
    let lone = client.register_groups("default", "rpc", &[host("a")], &members).unwrap();
    let spans = vec![BucketSpan { offset: 1, length: 2 }];
    let layout = Arc::new(HistogramLayout { schema: 0, positive_spans: spans, ..HistogramLayout::default() });
    let values = [histogram(&layout, &[1, 2]), histogram(&layout, &[3, 4]), histogram(&layout, &[9, 9])];
    // The third row has none.
    let columns = [(Values::F64(&[0.5; 3]), [].as_slice()), (Values::Histogram(&values), &[0b011])];
    let of =
        |registered: &client::Registered| (registered.measurement, registered.slots.clone(), registered.tokens.clone());
    let blocks = [(of(&cpu), &columns[..]), (of(&lone), &[(Values::Histogram(&values[2..]), [].as_slice())])];
    let blocks: Vec<Outgoing<'_>> = blocks
        .iter()
        .map(|((measurement, slots, tokens), columns)| Outgoing {
            measurement: *measurement,
            slots,
            tokens,
            timestamps_ns: &[60_000_000_000],
            columns,
        })
        .collect();
    client.send(&blocks).unwrap();
    assert_eq!(client.flush().unwrap(), []);
    let check = |server: &Running| {
        for (query, expected) in [
            ("histogram_count(sum(cpu_latency))", "10.0"),
            ("count(cpu_latency)", "2.0"),
            ("histogram_sum(cpu_latency{host=\"b\"})", "10.0"),
            ("histogram_fraction(2, 4, cpu_latency{host=\"a\"}) * 3", "2.0"),
            ("histogram_count(rpc)", "18.0"),
            ("sum(cpu_usage)", "1.5"),
        ] {
            let answer = server.answer(query, 60_000);
            assert!(answer.contains(expected), "{query}: {answer}");
        }
    };
    check(&server);
    drop(client);
    drop(server);
    check(&Running::start(&folder, |_| {}));
}

#[test]
fn histograms_that_share_a_large_layout_do_not_fill_the_memory() {
    let folder = Folder::new();
    let server = Running::start(&folder, |_| {});
    let mut client = Client::connect(server.options()).unwrap();
    let field = Field { name: model::HISTOGRAM_FIELD.to_owned(), value_type: ValueType::Histogram };
    let rpc = client.register_groups("default", "rpc", &[host("a")], &[(field, Labels::empty())]).unwrap();
    let custom_bounds = (0..BUCKETS_MAX).map(|bound| bound as f64).collect();
    let schema = CUSTOM_BUCKETS_SCHEMA;
    let layout = Arc::new(HistogramLayout { schema, custom_bounds, ..HistogramLayout::default() });
    let mut send = |rows: usize| {
        let values = vec![histogram(&layout, &[]); rows];
        let block = Outgoing {
            measurement: rpc.measurement,
            slots: &rpc.slots,
            tokens: &rpc.tokens,
            timestamps_ns: &(0..rows as i64).collect::<Vec<_>>(),
            columns: &[(Values::Histogram(&values), &[])],
        };
        client.send(&[block]).unwrap();
        client.flush().unwrap()
    };
    let error = send(40_000)[0].error.clone().unwrap();
    assert!(error.contains("histograms take more than 67108864 bytes: split it"), "{error}");
    assert_eq!(send(10), []);
}

#[test]
fn batches_that_can_not_be_written_are_told_and_the_next_ones_are() {
    let folder = Folder::new();
    let server = Running::start(&folder, |_| {});
    let mut client = Client::connect(server.options()).unwrap();
    let up = client.register_series("default", &[("up", host("a"))]).unwrap()[0];
    let values = [(Values::F64(&[1.0]), [].as_slice())];
    let mut send = |tokens: &[u64]| {
        let block = Outgoing { measurement: 0, slots: &[], tokens, timestamps_ns: &[60_000_000_000], columns: &values };
        client.send(&[block]).unwrap();
        client.flush().unwrap()
    };
    let forged = send(&[u64::MAX]);
    assert!(forged[0].error.as_ref().unwrap().contains("was never given out"), "{forged:?}");
    assert_eq!(send(&[up + 1])[0].stale_tokens, [up + 1]);
    assert_eq!(send(&[up]), []);
    assert!(server.answer("up", 60_000).contains("1.0"));
}

#[test]
fn a_restart_under_a_client_loses_and_doubles_nothing() {
    let folder = Folder::new();
    let mut server = Running::start(&folder, |_| {});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = Options { producer: 77, reconnect_timeout_ms: 20_000, ..server.options() };
    let mut client = runtime.block_on(asynchronous::Client::connect(options)).unwrap();
    let up = runtime.block_on(client.register_series("default", &[("up", host("a"))])).unwrap();
    for round in 0..3i64 {
        let values = [(Values::F64(&[round as f64]), [].as_slice())];
        let time = [(round + 1) * 60_000_000_000];
        let block = Outgoing { measurement: 0, slots: &[], tokens: &up, timestamps_ns: &time, columns: &values };
        runtime.block_on(client.send(&[block])).unwrap();
        if round == 2 {
            break;
        }
        // Stops and starts again on the same ports; whether the batch was applied before or not, it is once.
        let (control, ingest) = (server.control, server.ingest);
        drop(server);
        server = Running::start(&folder, |settings| {
            (settings.control, settings.ingest) = (Some(at(control)), Some(at(ingest)));
        });
    }
    assert_eq!(runtime.block_on(client.flush()).unwrap(), []);
    assert_eq!(server.db.last_sent(77), Some(3));
    let answer = server.answer("count_over_time(up[5m])", 180_000);
    assert!(answer.contains("3.0"), "{answer}");
}

#[test]
fn tokens_of_another_folder_are_told() {
    let (one, other) = (Folder::new(), Folder::new());
    let server = Running::start(&one, |_| {});
    let (control, ingest) = (server.control, server.ingest);
    let mut client = Client::connect(server.options()).unwrap();
    let up = client.register_series("default", &[("up", host("a"))]).unwrap();
    drop(server);
    let server =
        Running::start(&other, |settings| (settings.control, settings.ingest) = (Some(at(control)), Some(at(ingest))));
    let values = [(Values::F64(&[1.0]), [].as_slice())];
    let block =
        Outgoing { measurement: 0, slots: &[], tokens: &up, timestamps_ns: &[60_000_000_000], columns: &values };
    let sent = client.send(&[block]).and_then(|_| client.flush());
    assert!(matches!(sent, Err(ClientError::RegisterAgain(_))), "{sent:?}");
    let again = client.register_series("default", &[("up", host("a"))]).unwrap();
    client.send(&[Outgoing { tokens: &again, ..block }]).unwrap();
    assert_eq!(client.flush().unwrap(), []);
    assert!(server.answer("up", 60_000).contains("1.0"));
}

/// A client that says what it likes.
struct Raw(TcpStream);

impl Raw {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    fn greeted(address: SocketAddr) -> Self {
        let mut raw = Self::new(address);
        let mut bytes = preface(Plane::Data).to_vec();
        data::encode_hello(&Hello::default(), &mut bytes);
        raw.0.write_all(&bytes).unwrap();
        assert!(matches!(raw.answer(), Answer::Welcome(_)));
        raw
    }

    fn message(&mut self) -> MessageBuffer {
        let mut header = [0; HEADER_BYTES];
        self.0.read_exact(&mut header).unwrap();
        let mut buffer = MessageBuffer::default();
        let bytes = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        self.0.read_exact(buffer.resize(bytes)).unwrap();
        buffer
    }

    fn answer(&mut self) -> Answer {
        data::decode_answer(self.message().bytes()).unwrap()
    }

    /// The reason of the last message, after which the connection ends.
    fn refusal(mut self) -> (Reason, String) {
        let Answer::Refused(refused) = self.answer() else { panic!("not refused") };
        let _ = self.0.shutdown(Shutdown::Write);
        assert_eq!(self.0.read(&mut [0]).unwrap(), 0, "the end");
        (refused.reason, refused.message)
    }
}

#[test]
fn hostile_clients_are_told_why_and_others_are_served() {
    let folder = Folder::new();
    let server = Running::start(&folder, |settings| settings.in_flight_bytes_max = 4096);
    let check = |mut raw: Raw, bytes: &[u8], expected: &str| {
        raw.0.write_all(bytes).unwrap();
        let (reason, message) = raw.refusal();
        assert_eq!(reason, Reason::Malformed, "{message}");
        assert!(message.contains(expected), "{expected}: {message}");
    };
    let new = || Raw::new(server.ingest);
    let greeted = || Raw::greeted(server.ingest);
    check(new(), b"GET / HTTP/1.1\r\n", "HTTP is elsewhere");
    check(new(), &preface(Plane::Control), "other plane");
    let frame = |length: u32, message: &[u8]| {
        let mut bytes = u64::from(length).to_le_bytes().to_vec();
        bytes.extend_from_slice(message);
        bytes
    };
    check(greeted(), &frame(u32::MAX - 7, &[]), "at most");
    check(greeted(), &frame(0, &[]), "no frame");
    check(greeted(), &frame(16, &[0xff; 16]), "malformed message");
    // A segment table that promises 2^32 words in a segment, and one of 2^31 segments.
    check(greeted(), &frame(8, &[0, 0, 0, 0, 255, 255, 255, 255]), "malformed message");
    check(greeted(), &frame(8, &[255, 255, 255, 127, 0, 0, 0, 0]), "malformed message");
    let mut batch = Vec::new();
    Encoder::default().batch(1, &[], &mut batch).unwrap();
    let mut early = preface(Plane::Data).to_vec();
    early.extend_from_slice(&batch);
    check(new(), &early, "before the greeting");
    let twice = [batch.as_slice(), &batch].concat();
    let mut raw = greeted();
    raw.0.write_all(&twice).unwrap();
    assert!(matches!(raw.answer(), Answer::Ack(_)));
    assert!(raw.refusal().1.contains("ascend"));
    let many = vec![1.0; 1000];
    let columns = [(Values::F64(&many), [].as_slice())];
    let block = Outgoing { measurement: 0, slots: &[], tokens: &[1], timestamps_ns: &[0; 1000], columns: &columns };
    let mut large = Vec::new();
    Encoder::default().batch(1, &[block], &mut large).unwrap();
    check(greeted(), &large[..HEADER_BYTES], "were allowed so far");
    // The control plane tells too.
    let mut raw = Raw::new(server.control);
    raw.0.write_all(&[preface(Plane::Control).as_slice(), &frame(8, &[9; 8])].concat()).unwrap();
    let answer = control::decode_answer(raw.message().bytes()).unwrap();
    assert!(answer.registered.unwrap_err().contains("malformed"));
    // A cut frame is nobody's fault.
    let mut cut = greeted();
    cut.0.write_all(&batch[..batch.len() - 8]).unwrap();
    drop(cut);
    let mut client = Client::connect(server.options()).unwrap();
    assert_eq!(client.register_series("default", &[("up", host("a"))]).unwrap().len(), 1);
}

#[test]
fn slow_and_idle_clients_are_dropped() {
    let folder = Folder::new();
    let server = Running::start(&folder, |settings| {
        (settings.head_timeout_ms, settings.body_timeout_ms, settings.idle_timeout_ms) = (50, 50, 50);
    });
    let is_dropped = |mut raw: Raw| raw.0.read(&mut [0]).map_or(true, |bytes| bytes == 0);
    assert!(is_dropped(Raw::new(server.ingest)), "no preface");
    assert!(is_dropped(Raw::new(server.control)), "no preface");
    let mut half = Raw::greeted(server.ingest);
    half.0.write_all(&1024u64.to_le_bytes()).unwrap();
    assert!(is_dropped(half), "no message behind a header");
    assert!(is_dropped(Raw::greeted(server.ingest)), "silent");
}

#[test]
fn the_no_op_mode_acknowledges_and_keeps_nothing() {
    let folder = Folder::new();
    let server = Running::start(&folder, |settings| settings.ingest_discard = true);
    let mut client = Client::connect(server.options()).unwrap();
    let up = client.register_series("default", &[("up", host("a"))]).unwrap();
    let values = [(Values::F64(&[1.0]), [].as_slice())];
    let block =
        Outgoing { measurement: 0, slots: &[], tokens: &up, timestamps_ns: &[60_000_000_000], columns: &values };
    client.send(&[block]).unwrap();
    assert_eq!(client.flush().unwrap(), []);
    assert_eq!(server.db.stats().rows, 0);
}

/// A frame with one row of a lone series.
fn row(sequence: u64, token: u64, time: i64) -> Vec<u8> {
    let columns = [(Values::F64(&[1.0]), [].as_slice())];
    let block = Outgoing {
        measurement: 0,
        slots: &[],
        tokens: &[token],
        timestamps_ns: &[time * 1_000_000],
        columns: &columns,
    };
    let mut bytes = Vec::new();
    Encoder::default().batch(sequence, &[block], &mut bytes).unwrap();
    bytes
}

impl Raw {
    /// Waits until this batch is acknowledged; how many bytes may be sent.
    #[track_caller]
    fn acknowledged(&mut self, sequence: u64) -> u64 {
        loop {
            let Answer::Ack(ack) = self.answer() else { panic!("no acknowledgement") };
            assert_eq!(ack.exceptions, []);
            if ack.sequence == sequence {
                return ack.credit_bytes;
            }
        }
    }
}

fn register(server: &Running, names: &[&str]) -> Vec<u64> {
    let series: Vec<_> = names.iter().map(|name| (*name, host("a"))).collect();
    Client::connect(server.options()).unwrap().register_series("default", &series).unwrap()
}

/// Threads of this process, in which other tests run, too.
#[cfg(target_os = "linux")]
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[cfg(target_os = "linux")]
#[test]
fn silent_connections_hold_no_thread_and_go_on() {
    const CONNECTIONS: usize = 300;
    let folder = Folder::new();
    let server = Running::start(&folder, |settings| (settings.wire_threads_max, settings.park_after_ms) = (2, 20));
    let up = register(&server, &["up"])[0];
    let before = threads();
    let mut open: Vec<Raw> = (0..CONNECTIONS).map(|_| Raw::greeted(server.ingest)).collect();
    let mut credits = Vec::new();
    for (place, raw) in open.iter_mut().enumerate() {
        raw.0.write_all(&row(1, up, place as i64)).unwrap();
        credits.push(raw.acknowledged(1));
    }
    // Of two that apply, some of the pool that served the asking, and what other tests have begun meanwhile.
    let grown = threads().saturating_sub(before);
    assert!(grown < CONNECTIONS / 3, "{grown} threads more for {CONNECTIONS} connections");
    server.wait_for_parked(CONNECTIONS);
    let frame_bytes = row(2, up, 0).len() as u64;
    for (place, (raw, credit)) in open.iter_mut().zip(credits).enumerate().rev() {
        raw.0.write_all(&row(2, up, (CONNECTIONS + place) as i64)).unwrap();
        assert_eq!(raw.acknowledged(2), credit + frame_bytes);
    }
    let answer = server.answer("count_over_time(up[1m])", 30_000);
    assert!(answer.contains("600.0"), "{answer}");
}

#[test]
fn what_was_said_before_a_silence_still_holds_behind_it() {
    let folder = Folder::new();
    let server = Running::start(&folder, |settings| {
        (settings.park_after_ms, settings.in_flight_bytes_max) = (20, 1024);
    });
    let up = register(&server, &["up"])[0];
    let mut raw = Raw::greeted(server.ingest);
    raw.0.write_all(&row(5, up, 1)).unwrap();
    let credit = raw.acknowledged(5);
    assert_eq!(credit, 1024 + row(5, up, 1).len() as u64);
    server.wait_for_parked(1);
    raw.0.write_all(&row(5, up, 2)).unwrap();
    assert!(raw.refusal().1.contains("ascend"));
    // Credit does not begin anew either.
    let mut raw = Raw::greeted(server.ingest);
    raw.0.write_all(&row(1, up, 3)).unwrap();
    raw.acknowledged(1);
    server.wait_for_parked(1);
    raw.0.write_all(&2048u64.to_le_bytes()).unwrap();
    assert!(raw.refusal().1.contains("were allowed so far"));
    // A part of a header is no silence, and not forgotten.
    let mut raw = Raw::greeted(server.ingest);
    let frame = row(1, up, 4);
    raw.0.write_all(&frame[..3]).unwrap();
    server.wait_for_parked(0);
    raw.0.write_all(&frame[3..]).unwrap();
    raw.acknowledged(1);
    // Who is parked is told of the stop.
    server.wait_for_parked(1);
    drop(server);
    assert_eq!(raw.refusal().0, Reason::Unavailable);
}

/// Counts a client that is done, also if it failed: nobody goes on for ever then.
struct Done<'a>(&'a AtomicU32);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn busy_clients_share_few_threads_and_stalled_ones_hold_none() {
    let folder = Folder::new();
    let server = Running::start(&folder, |settings| settings.wire_threads_max = 1);
    let tokens = register(&server, &["stalled", "greedy", "a", "b", "c", "d"]);
    // It has had the thread, and keeps the server waiting for the rest of a message.
    let mut stalled = Raw::greeted(server.ingest);
    stalled.0.write_all(&row(1, tokens[0], 1)).unwrap();
    stalled.acknowledged(1);
    let next = row(2, tokens[0], 2);
    stalled.0.write_all(&next[..next.len() - 1]).unwrap();
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        // It is never silent.
        let greedy = scope.spawn(|| {
            let mut client = Client::connect(server.options()).unwrap();
            let times: Vec<i64> = (0..10_000).collect();
            let values = vec![1.0; times.len()];
            let columns = [(Values::F64(&values), [].as_slice())];
            let block = Outgoing {
                measurement: 0,
                slots: &[],
                tokens: &tokens[1..2],
                timestamps_ns: &times,
                columns: &columns,
            };
            while done.load(Ordering::Relaxed) < 4 {
                client.send(&[block]).unwrap();
            }
            assert_eq!(client.flush().unwrap(), []);
        });
        for token in &tokens[2..] {
            let (server, done) = (&server, Done(&done));
            scope.spawn(move || {
                let _done = done;
                let mut raw = Raw::greeted(server.ingest);
                for sequence in 1..=50 {
                    raw.0.write_all(&row(sequence, *token, sequence as i64)).unwrap();
                }
                raw.acknowledged(50);
            });
        }
        greedy.join().unwrap();
    });
    for name in ["a", "b", "c", "d"] {
        let answer = server.answer(&format!("count_over_time({name}[1m])"), 30_000);
        assert!(answer.contains("50.0"), "{name}: {answer}");
    }
    stalled.0.write_all(&next[next.len() - 1..]).unwrap();
    stalled.acknowledged(2);
}

/// Whether another's only row is acknowledged before all rows of one who has more all along are applied.
fn is_served_between(server: &Running, name: &str, (greedy, other): (u64, u64), batches: u64) -> bool {
    let frames: Vec<u8> = (1..=batches).flat_map(|sequence| row(sequence, greedy, sequence as i64)).collect();
    let (mut ahead, mut behind) = (Raw::greeted(server.ingest), Raw::greeted(server.ingest));
    let mut writer = ahead.0.try_clone().unwrap();
    let (all, query) = (format!("{:?}", batches as f64), format!("count_over_time({name}[1m])"));
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&frames).unwrap());
        // Its turn has begun.
        assert!(matches!(ahead.answer(), Answer::Ack(_)));
        behind.0.write_all(&row(1, other, 1)).unwrap();
        behind.acknowledged(1);
        let applied = server.answer(&query, 30_000);
        ahead.acknowledged(batches);
        assert!(server.answer(&query, 30_000).contains(&all));
        !applied.contains(&all)
    })
}

#[test]
fn a_turn_ends_though_more_is_there_already() {
    const BATCHES: u64 = 20_000;
    let folder = Folder::new();
    let server = Running::start(&folder, |settings| {
        (settings.wire_threads_max, settings.in_flight_bytes_max) = (1, 64 << 20);
    });
    let names = ["a", "b", "c", "d", "e"];
    let (tokens, other) = (register(&server, &names), register(&server, &["other"])[0]);
    // Where this thread gets no core for long, all may be applied before the other's row is sent: then it tells nothing.
    let mut attempts = names.iter().zip(&tokens);
    let is_served = attempts.any(|(name, token)| is_served_between(&server, name, (*token, other), BATCHES));
    assert!(is_served, "the other waited for the end each time");
}

#[test]
fn frames_in_pieces_are_whole_when_every_pause_is_a_silence() {
    const BATCHES: u64 = 300;
    let folder = Folder::new();
    let server = Running::start(&folder, |settings| (settings.wire_threads_max, settings.park_after_ms) = (2, 0));
    let names = ["a", "b", "c", "d", "e"];
    let tokens = register(&server, &names);
    std::thread::scope(|scope| {
        for (place, token) in tokens.iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                let mut raw = Raw::greeted(server.ingest);
                raw.0.set_nodelay(true).unwrap();
                let mut state = place as u64 + 1;
                for sequence in 1..=BATCHES {
                    let frame = row(sequence, *token, sequence as i64);
                    let mut rest = frame.as_slice();
                    while !rest.is_empty() {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let (piece, behind) = rest.split_at((state >> 33) as usize % rest.len() + 1);
                        raw.0.write_all(piece).unwrap();
                        rest = behind;
                    }
                    if state >> 62 == 0 {
                        raw.acknowledged(sequence);
                    }
                }
                raw.0.write_all(&row(BATCHES + 1, *token, 0)).unwrap();
                raw.acknowledged(BATCHES + 1);
            });
        }
    });
    for name in names {
        let answer = server.answer(&format!("count_over_time({name}[1m])"), 30_000);
        assert!(answer.contains("301.0"), "{name}: {answer}");
    }
}
