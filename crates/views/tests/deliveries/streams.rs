//! Live streams.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use model::{MatchOp, Matcher};
use platform::network::Tasks;
use thalweg_views::tail::{TailError, TailRequest};

use crate::world::{START_NS, World, options, options_of_a_short_log};

/// A client of a stream: what it has read, and whether it reads.
struct Client {
    text: Arc<Mutex<String>>,
    reads: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
}

impl Client {
    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// The values of samples, in order.
    fn values(&self) -> Vec<f64> {
        let text = self.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: {\"labels\":"));
        let value = |line: &str| line.rsplit("\"value\":").next().unwrap().trim_end_matches('}').parse().unwrap();
        lines.map(value).collect()
    }

    fn last_id(&self) -> u64 {
        self.text().lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap().parse().unwrap()
    }
}

fn request(selectors: &[(&str, &str)], since: Option<u64>) -> TailRequest {
    let matchers: Vec<Matcher> =
        selectors.iter().map(|(name, value)| Matcher::new(*name, MatchOp::Equal, *value)).collect();
    let matcher_sets = if matchers.is_empty() { Vec::new() } else { vec![matchers] };
    TailRequest { database: "default".to_owned(), matcher_sets, since }
}

fn open(world: &World, request: TailRequest) -> Result<Client, TailError> {
    open_with(world, request, || Ok(Vec::new()))
}

fn open_with(
    world: &World,
    request: TailRequest,
    access: impl Fn() -> Result<Vec<Matcher>, String> + Send + Sync + 'static,
) -> Result<Client, TailError> {
    let mut receiver = world.deliveries().streams().open(request, Arc::new(access))?;
    let client = Client { text: Arc::default(), reads: Arc::new(true.into()), has_ended: Arc::default() };
    let (text, reads, has_ended) = (client.text.clone(), client.reads.clone(), client.has_ended.clone());
    let network = world.network.clone();
    world.network.spawn(Box::pin(async move {
        loop {
            if !reads.load(Ordering::Relaxed) {
                network.sleep_ms(100).await;
                continue;
            }
            let Some(chunk) = receiver.recv().await else { break };
            text.lock().unwrap().push_str(std::str::from_utf8(&chunk).unwrap());
        }
        has_ended.store(true, Ordering::Relaxed);
    }));
    world.network.run_ms(1);
    Ok(client)
}

const USAGE_OF_A: [(&str, &str); 2] = [("__name__", "cpu_usage"), ("host", "a")];

#[test]
fn a_stream_shows_what_is_written_and_resumes() {
    let mut world = World::new(options);
    world.write(3);
    let client = open(&world, request(&USAGE_OF_A, None)).unwrap();
    world.write(3);
    world.network.run_ms(100);
    assert_eq!(client.values(), [3.0, 4.0, 5.0]);
    let text = client.text();
    assert!(text.starts_with(": heartbeat\nid: "), "{text}");
    let time = jiff::Timestamp::from_nanosecond(i128::from(START_NS + 3_000_000_000)).unwrap();
    assert!(text.contains(&format!(
        "data: {{\"labels\":{{\"__name__\":\"cpu_usage\",\"host\":\"a\"}},\"time\":\"{time}\",\"value\":3}}\nid: "
    )));
    let last = client.last_id();
    world.write(2);
    world.restart(false);
    world.write(2);
    assert!(
        client.has_ended() && client.text().contains("event: end\ndata: {\"reason\":\"stopped\""),
        "{}",
        client.text()
    );
    let resumed = open(&world, request(&USAGE_OF_A, Some(last))).unwrap();
    world.network.run_ms(100);
    assert_eq!(resumed.values(), [6.0, 7.0, 8.0, 9.0]);
    world.write(1);
    assert_eq!(resumed.values().len(), 5);
    // Nothing of the log is held for streams.
    assert!(world.db().log_cursors().is_empty());
}

#[test]
fn a_silent_stream_has_heartbeats_from_which_it_resumes() {
    let world = World::new(options);
    world.lines("other v=1 1");
    let client = open(&world, request(&USAGE_OF_A, None)).unwrap();
    let before = client.last_id();
    world.lines("other v=2 2");
    world.network.run_ms(46_000);
    assert!(client.text().matches(": heartbeat\n").count() >= 4, "{}", client.text());
    assert!(client.last_id() > before, "rows that are not wanted need not be read again");
    assert_eq!(client.values(), [0.0; 0]);
}

#[test]
fn streams_share_one_reader_and_are_bounded() {
    let mut world = World::new(options);
    world.write(1);
    let clients: Vec<Client> = (0..3).map(|_| open(&world, request(&USAGE_OF_A, None)).unwrap()).collect();
    let refused = open(&world, request(&[], None)).err();
    assert_eq!(refused, Some(TailError::TooMany { streams_max: 3 }));
    world.write(2);
    let mut metrics = String::new();
    world.deliveries().render(&mut metrics);
    assert!(
        metrics.contains("\nthalweg_feed_readers 1\n") && metrics.contains("\nthalweg_tail_streams 3\n"),
        "{metrics}"
    );
    assert!(clients.iter().all(|client| client.values() == [1.0, 2.0]));
    let behind = open(&world, request(&[], Some(u64::MAX))).err();
    assert!(matches!(behind, Some(TailError::Invalid(message)) if message.contains("since")));
}

#[test]
fn a_slow_client_is_cut_off_and_told() {
    let mut world = World::new(options);
    world.write(1);
    let slow = open(&world, request(&[], None)).unwrap();
    let quick = open(&world, request(&USAGE_OF_A, None)).unwrap();
    slow.reads.store(false, Ordering::Relaxed);
    let many: Vec<String> = (0..4_000).map(|number| format!("big,host=h{number} v={number} {number}\n")).collect();
    let many = many.concat();
    for _ in 0..200 {
        world.lines(&many);
        world.network.run_ms(100);
    }
    world.write(1);
    world.network.run_ms(1_000);
    assert!(!slow.has_ended(), "it has not read why yet");
    slow.reads.store(true, Ordering::Relaxed);
    world.network.run_ms(1_000);
    assert!(slow.has_ended());
    let text = slow.text();
    let end = text.rsplit("event: end\ndata: ").next().unwrap();
    assert!(end.contains("\"reason\":\"too_slow\"") && end.contains("resume"), "{end}");
    assert_eq!(quick.values(), [1.0], "others are not held up");
    assert_eq!(world.deliveries().streams().stats().cut_off, 1);
    // It resumes with the whole record in which it was cut off.
    let last = slow.last_id();
    let resumed = open(&world, request(&[("__name__", "big_v"), ("host", "h7")], Some(last))).unwrap();
    world.network.run_ms(5_000);
    assert!(!resumed.values().is_empty() && resumed.values().iter().all(|value| *value == 7.0));
}

#[test]
fn rights_are_those_of_the_moment() {
    let mut world = World::new(options);
    world.write(1);
    let (may_read, host) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new("a")));
    let (of_access, host_of_access) = (may_read.clone(), host.clone());
    let access = move || {
        if !of_access.load(Ordering::Relaxed) {
            return Err("the token has expired".to_owned());
        }
        Ok(vec![Matcher::new("host", MatchOp::Equal, *host_of_access.lock().unwrap())])
    };
    let client = open_with(&world, request(&[("__name__", "cpu_usage")], None), access).unwrap();
    world.write(2);
    assert_eq!(client.values(), [1.0, 2.0]);
    *host.lock().unwrap() = "b";
    world.write(1);
    assert_eq!(client.values(), [1.0, 2.0, -1.0]);
    may_read.store(false, Ordering::Relaxed);
    world.write(1);
    world.network.run_ms(20_000);
    assert!(
        client.has_ended() && client.text().contains("\"reason\":\"forbidden\",\"message\":\"the token has expired\"")
    );
    assert_eq!(client.values().len(), 3);
}

#[test]
fn what_the_log_does_not_have_any_more_is_named() {
    let mut world = World::new(options_of_a_short_log);
    world.write(1);
    let first = world.db().durable_sequence();
    for _ in 0..10 {
        world.write(20);
        world.db().compact_all().unwrap();
    }
    let client = open(&world, request(&USAGE_OF_A, Some(first))).unwrap();
    world.network.run_ms(1_000);
    assert!(client.text().contains(&format!("event: gap\ndata: {{\"first\":{},", first + 1)), "{}", client.text());
    world.write(1);
    assert_eq!(client.values().last(), Some(&((world.step - 1) as f64)));
}
