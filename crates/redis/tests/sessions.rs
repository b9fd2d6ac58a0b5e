//! Commands over a real database in a simulated world.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use db::{Db, DbOptions};
use platform::sim::Simulation;
use proptest::prelude::*;
use query::Budget;
use thalweg_redis::protocol::{Limits as RequestLimits, Parser, ReplyWriter};
use thalweg_redis::{Access, Flow, Limits, NewSeriesGate, Right, Service, Session};

/// An account that may do everything, or nothing before it has signed in.
struct Account {
    db: Arc<Db>,
    is_signed_in: bool,
    may_make_series: bool,
    samples_max: u64,
}

impl Access for Account {
    fn is_signed_in(&self) -> bool {
        self.is_signed_in
    }

    fn sign_in(&mut self, user: &str, password: &str) -> Result<(), String> {
        self.is_signed_in = (user, password) == ("me", "secret");
        if self.is_signed_in { Ok(()) } else { Err("wrong".to_owned()) }
    }

    fn sign_out(&mut self) {
        self.is_signed_in = false;
    }

    fn check(&self, _: Right, database: &str) -> Result<(), String> {
        if database == "redis15" { Err("not this one".to_owned()) } else { Ok(()) }
    }

    fn budget(&self, _: &str) -> Arc<Budget> {
        self.db.budget(self.samples_max)
    }

    fn series_gate(&self, _: &str) -> NewSeriesGate {
        let may_make_series = self.may_make_series;
        Box::new(move |_| if may_make_series { Ok(()) } else { Err("no more series".to_owned()) })
    }

    fn hold_bytes(&mut self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn note_samples(&self, _: &str, _: u64) {}
}

struct World {
    simulation: Simulation,
    db: Option<Arc<Db>>,
    service: Option<Arc<Service>>,
    session: Option<Session>,
    account: Option<Account>,
}

/// The bytes of requests, a line of words each. A word `_` is an empty one.
fn bytes_of(lines: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').map(|word| if word == "_" { "" } else { word }).collect();
        bytes.extend(format!("*{}\r\n", words.len()).bytes());
        words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    }
    bytes
}

impl World {
    fn new() -> Self {
        Self::of_seed(7)
    }

    fn of_seed(seed: u64) -> Self {
        let mut world =
            Self { simulation: Simulation::new(seed), db: None, service: None, session: None, account: None };
        world.open();
        world
    }

    fn open(&mut self) {
        let db = Arc::new(Db::open(self.simulation.platform(), DbOptions::new("/data")).unwrap());
        let service = Service::new(db.clone(), Limits { ahead_ms_max: u64::MAX, ..Limits::default() });
        self.session = Some(service.session());
        self.account =
            Some(Account { db: db.clone(), is_signed_in: true, may_make_series: true, samples_max: 1_000_000 });
        self.service = Some(Arc::new(service));
        self.db = Some(db);
    }

    fn close(&mut self) {
        (self.session, self.account, self.service, self.db) = (None, None, None, None);
    }

    fn crash(&mut self) {
        self.close();
        self.simulation.crash();
        self.open();
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn run(&mut self, input: &[u8]) -> (String, Flow) {
        let (mut parser, mut requests, mut at) = (Parser::default(), Vec::new(), 0);
        while let Some(mut request) = parser.next(&input[at..], &RequestLimits::default()).unwrap() {
            request.arguments.iter_mut().for_each(|range| *range = range.start + at..range.end + at);
            at += request.bytes;
            requests.push(request);
        }
        let mut out = ReplyWriter::default();
        let (session, account) = (self.session.as_mut().unwrap(), self.account.as_mut().unwrap());
        let flow = self.service.as_ref().unwrap().run(session, account, (input, &requests), &mut out);
        (String::from_utf8(out.take()).unwrap(), flow)
    }

    /// The replies to requests, in words: an array is in brackets.
    fn ask(&mut self, lines: &str) -> String {
        let (replies, _) = self.run(&bytes_of(lines));
        let mut rest = replies.as_str();
        let mut shown = Vec::new();
        while !rest.is_empty() {
            shown.push(show(&mut rest));
        }
        shown.join("\n")
    }

    /// The values of a query in PromQL at a time, by the labels of series.
    fn promql(&self, database: &str, text: &str, time_ms: i64) -> Vec<String> {
        let result = self.db().instant(database, &db::InstantQuery::new(text, time_ms)).unwrap();
        let mut lines: Vec<String> = format!("{:?}", result.value).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

/// Takes the first reply of a text.
fn show(rest: &mut &str) -> String {
    let (line, after) = rest.split_once("\r\n").unwrap();
    *rest = after;
    let (sign, text) = line.split_at(1);
    match sign {
        "$" if text == "-1" => "nil".to_owned(),
        "$" => {
            let (text, after) = rest.split_at(text.parse().unwrap());
            *rest = &after[2..];
            text.to_owned()
        }
        "*" | "~" => {
            let items: Vec<String> = (0..text.parse().unwrap()).map(|_| show(rest)).collect();
            format!("[{}]", items.join(" "))
        }
        "%" => {
            let pairs: Vec<String> =
                (0..text.parse().unwrap()).map(|_| format!("{}: {}", show(rest), show(rest))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        "-" => format!("!{text}"),
        _ => text.to_owned(),
    }
}

/// Runs a script: lines that begin with `>` are requests, those after them what is replied.
fn check(world: &mut World, script: &str) {
    let (mut requests, mut expected) = (String::new(), Vec::new());
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in lines.chain(["> "]) {
        match line.strip_prefix('>') {
            Some(request) => {
                if !expected.is_empty() {
                    assert_eq!(world.ask(&requests), expected.join("\n"), "{requests}");
                    requests.clear();
                    expected.clear();
                }
                requests.extend([request.trim(), "\n"]);
            }
            None => expected.push(line),
        }
    }
}

#[test]
fn samples_are_written_and_read() {
    check(
        &mut World::new(),
        "> TS.CREATE a LABELS room 1
         OK
         > TS.CREATE a
         !TSDB: key already exists
         > TS.ADD a 10 1.5
         > TS.ADD a 20 2
         > TS.MADD a 30 3 b 1 1 a 40 x
         10
         20
         [30 !TSDB: the key does not exist !TSDB: invalid value]
         > TS.RANGE a - +
         [[10 1.5] [20 2] [30 3]]
         > TS.REVRANGE a - + COUNT 2
         [[30 3] [20 2]]
         > TS.RANGE a 0 40 AGGREGATION sum,max 20
         [[0 1.5 1.5] [20 5 3]]
         > TS.RANGE a - + FILTER_BY_VALUE 2 3 FILTER_BY_TS 10 30
         [[30 3]]
         > TS.GET a
         [30 3]
         > TS.DEL a 15 25
         1
         > TS.RANGE a - +
         [[10 1.5] [30 3]]
         > TS.GET none
         !TSDB: the key does not exist
         > TS.RANGE a 1 2 3
         !TSDB: unknown argument \"3\"
         > TS.RANGE a x 2
         !TSDB: wrong fromTimestamp
         > TS.ADD a
         !ERR wrong number of arguments for 'ts.add' command
         > NOTHING a
         !ERR unknown command 'NOTHING', with args beginning with: 'a'",
    );
}

#[test]
fn duplicates_are_resolved_by_policies() {
    check(
        &mut World::new(),
        "> TS.ADD a 10 1
         > TS.ADD a 10 2
         10
         !TSDB: Error at upsert, update is not supported when DUPLICATE_POLICY is set to BLOCK mode
         > TS.ADD a 10 2 ON_DUPLICATE SUM
         > TS.ADD a 5 7
         > TS.ADD a 5 9 ON_DUPLICATE MIN
         > TS.ADD a 5 4 ON_DUPLICATE MIN
         > TS.RANGE a - +
         10
         5
         5
         5
         [[5 4] [10 3]]
         > TS.CREATE l DUPLICATE_POLICY last IGNORE 5 10
         > TS.ADD l 1000 1
         > TS.ADD l 1004 3
         > TS.ADD l 1004 30
         > TS.RANGE l - +
         OK
         1000
         1000
         1004
         [[1000 1] [1004 30]]
         > TS.INCRBY c 5 TIMESTAMP 10
         > TS.INCRBY c 5 TIMESTAMP 10
         > TS.DECRBY c 3 TIMESTAMP 20
         > TS.INCRBY c 3 TIMESTAMP 15
         10
         10
         20
         !TSDB: timestamp must be equal to or higher than the maximum existing timestamp
         > TS.RANGE c - +
         [[10 10] [20 7]]
         > TS.ADD r 100 1 RETENTION 50
         > TS.ADD r 200 1
         > TS.ADD r 149 1
         > TS.RANGE r - +
         100
         200
         !TSDB: Timestamp is older than retention
         [[200 1]]",
    );
}

#[test]
fn keys_are_read_side_by_side() {
    let mut world = World::new();
    world.ask("TS.ADD a 1000 10\nTS.ADD a 1100 20\nTS.ADD a 2000 12\nTS.ADD b 1000 5\nTS.ADD b 3000 25");
    check(
        &mut world,
        "> TS.NRANGE 2 a b - +
         > TS.NREVRANGE 3 b a b 1050 + COUNT 2
         > TS.NRANGE 2 a b - + FILTER_BY_VALUE 0 10
         > TS.NRANGE 2 a b - + AGGREGATION avg,max sum 1000
         > TS.NRANGE 2 a b - + AGGREGATION count count 1000 BUCKETTIMESTAMP end EMPTY
         > TS.NRANGE 1 b 5000 +
         > TS.NRANGE 1 a 1100 + ALIGN start AGGREGATION min 500
         [[1000 [10 5]] [1100 [20 NaN]] [2000 [12 NaN]] [3000 [NaN 25]]]
         [[3000 [25 NaN 25]] [2000 [NaN 12 NaN]]]
         [[1000 [10 5]]]
         [[1000 [15 20 5]] [2000 [12 12 NaN]] [3000 [NaN NaN 25]]]
         [[2000 [2 1]] [3000 [1 0]] [4000 [NaN 1]]]
         []
         [[1100 [20]] [1600 [12]]]",
    );
    for wrong in [
        "TS.NRANGE 0 a - +",
        "TS.NRANGE x a - +",
        "TS.NRANGE 3 a b - +",
        "TS.NRANGE 9 a b - +",
        "TS.NRANGE 2 a none - +",
        "TS.NRANGE 2 a b - + AGGREGATION avg 1000",
        "TS.NRANGE 2 a b - + AGGREGATION avg sum max 1000",
        "TS.NRANGE 1 a - + WITHLABELS",
        "TS.NRANGE 1 a -",
    ] {
        let reply = world.ask(wrong);
        assert!(reply.starts_with('!'), "{wrong}: {reply}");
    }
}

#[test]
fn samples_are_read_from_a_cursor_on() {
    let mut world = World::new();
    world.ask("TS.ADD a 100 1\nTS.ADD a 200 2\nTS.ADD a 300 3\nTS.CREATE empty");
    check(
        &mut world,
        "> TS.READ a 0
         > TS.READ a - MAX_COUNT 2
         > TS.READ a 201 max_count 2
         > TS.READ a +
         > TS.READ a $
         > TS.READ a 301
         > TS.READ empty +
         > TS.READ none $
         [[100 1] [200 2] [300 3]]
         [[100 1] [200 2]]
         [[300 3]]
         [[300 3]]
         []
         []
         []
         []",
    );
    for wrong in [
        "TS.READ a -1",
        "TS.READ a x",
        "TS.READ a 0 MAX_COUNT 0",
        "TS.READ a 0 COUNT 1",
        "TS.READ a $ BLOCK 1000",
        "TS.READ a $ BLOCK -1 1",
        "TS.READ a $ BLOCK 1000 0",
    ] {
        let reply = world.ask(wrong);
        assert!(reply.starts_with('!'), "{wrong}: {reply}");
    }
}

/// Runs requests in a session of their own; the replies, and whether the client waits.
fn run_in(world: &mut World, session: &mut Option<Session>, lines: &str) -> (String, bool) {
    let own = session.take().unwrap_or_else(|| world.service.as_ref().unwrap().session());
    let others = world.session.replace(own);
    let (replies, flow) = world.run(&bytes_of(lines));
    *session = std::mem::replace(&mut world.session, others);
    let waits = session.as_ref().unwrap().waiting().is_some();
    assert_eq!(flow == Flow::Wait, waits);
    (replies, waits)
}

fn is_woken(session: Option<&Session>) -> bool {
    let context = std::task::Context::from_waker(std::task::Waker::noop());
    session.unwrap().waiting().unwrap().poll_written(&context).is_ready()
}

#[test]
fn clients_wait_for_samples() {
    let mut world = World::new();
    world.ask("TS.ADD a 100 1\nTS.CREATE s\nTS.CREATERULE a s AGGREGATION sum 100");
    let mut client = None;
    // There are enough; there are none within a transaction.
    let (replies, waits) =
        run_in(&mut world, &mut client, "TS.READ a 0 BLOCK 1000 1\nMULTI\nTS.READ a $ BLOCK 0 1\nEXEC");
    assert!(!waits && replies.ends_with("*1\r\n*0\r\n"), "{replies}");
    // What comes before is answered at once, what comes after when the wait is over.
    let (replies, waits) = run_in(&mut world, &mut client, "PING\nTS.READ a $ BLOCK 1000 2 MAX_COUNT 1\nECHO x");
    assert_eq!((replies.as_str(), waits), ("+PONG\r\n", true));
    assert_eq!(client.as_ref().unwrap().waiting().unwrap().done(), 1);
    assert!(!is_woken(client.as_ref()));
    let rest = "TS.READ a $ BLOCK 1000 2 MAX_COUNT 1\nECHO x";
    world.ask("TS.ADD a 150 1\nTS.ADD b 150 1");
    assert!(is_woken(client.as_ref()) && !is_woken(client.as_ref()));
    assert_eq!(run_in(&mut world, &mut client, rest), (String::new(), true));
    world.ask("TS.ADD a 160 2");
    assert!(is_woken(client.as_ref()));
    let (replies, waits) = run_in(&mut world, &mut client, rest);
    assert_eq!((replies.as_str(), waits), ("*1\r\n*2\r\n:150\r\n+1\r\n$1\r\nx\r\n", false));
    // Buckets of rules are waited for as others are, and so are keys that are not there.
    let asked = ["TS.READ s $ BLOCK 0 1", "TS.READ new - BLOCK 60000 3"];
    let mut clients = asked.map(|asked| {
        let mut client = None;
        assert_eq!(run_in(&mut world, &mut client, asked), (String::new(), true));
        client
    });
    world.ask("TS.ADD a 200 1\nTS.ADD new 5 1\nTS.ADD new 6 1");
    assert!(clients.iter().all(|client| is_woken(client.as_ref())));
    assert!(run_in(&mut world, &mut clients[0], asked[0]).0.contains(":100"));
    assert!(run_in(&mut world, &mut clients[1], asked[1]).1);
    // Its time is up: what there is counts, and a transaction that follows is one as always.
    world.simulation.advance_ns(61_000_000_000);
    let (replies, waits) = run_in(&mut world, &mut clients[1], asked[1]);
    assert!(!waits && replies.starts_with("*2\r\n"), "{replies}");
    assert!(run_in(&mut world, &mut clients[0], "TS.READ s $ BLOCK 0 1").1);
}

#[test]
fn waiting_has_bounds() {
    let mut world = World::new();
    world.ask("TS.ADD a 100 1");
    let most = Limits::default().waiting_max;
    let mut clients: Vec<Option<Session>> = (0..most).map(|_| None).collect();
    for client in &mut clients {
        assert!(run_in(&mut world, client, "TS.READ a $ BLOCK 0 1").1);
    }
    let (replies, waits) = run_in(&mut world, &mut None, "TS.READ a $ BLOCK 0 1");
    assert!(!waits && replies.contains("waiting_max"), "{replies}");
    // A client that goes makes room.
    clients.pop();
    assert!(run_in(&mut world, &mut None, "TS.READ a $ BLOCK 0 1").1);
}

#[test]
fn what_is_more_than_a_command_may_hold_is_read_in_pieces() {
    let mut world = World::new();
    let adds: Vec<String> = (0..3_000).map(|number| format!("TS.ADD a {} {number}", number * 1_000)).collect();
    world.ask(&adds.join("\n"));
    world.ask("TS.ALTER a LABELS other 1");
    let adds: Vec<String> = (3_000..4_000).map(|number| format!("TS.ADD a {} {number}", number * 1_000)).collect();
    world.ask(&adds.join("\n"));
    world.account.as_mut().unwrap().samples_max = 3_000;
    let all = world.ask("TS.RANGE a - +");
    assert!(all.starts_with('!'), "{all}");
    check(
        &mut world,
        "> TS.RANGE a - + COUNT 2
         [[0 0] [1000 1]]
         > TS.REVRANGE a - + COUNT 2
         [[3999000 3999] [3998000 3998]]
         > TS.RANGE a 2998001 + COUNT 3
         [[2999000 2999] [3000000 3000] [3001000 3001]]
         > TS.REVRANGE a - 3000000 COUNT 2
         [[3000000 3000] [2999000 2999]]
         > TS.RANGE a - + COUNT 2 AGGREGATION count,sum 10000
         [[0 10 45] [10000 10 145]]
         > TS.REVRANGE a - + COUNT 2 AGGREGATION count 12000
         [[3996000 4] [3984000 12]]
         > TS.RANGE a - + FILTER_BY_VALUE 50 51 COUNT 1
         [[50000 50]]
         > TS.READ a 5000 MAX_COUNT 1
         [[5000 5]]",
    );
    let info = world.ask("TS.INFO a");
    assert!(info.contains("totalSamples 4000") && info.contains("firstTimestamp 0"), "{info}");
    check(&mut world, "> TS.DEL a 1000 3500000\n 3500");
    let info = world.ask("TS.INFO a");
    assert!(info.contains("totalSamples 500 "), "{info}");
}

#[test]
fn keys_are_chosen_by_labels() {
    check(
        &mut World::new(),
        "> TS.ADD a 1 1 LABELS t x room 1
         > TS.ADD b 1 3 LABELS t x room 2
         > TS.ADD c 2 5 LABELS t y
         1
         1
         2
         > TS.QUERYINDEX t=x
         [a b]
         > TS.QUERYINDEX t=(x,y) room=
         [c]
         > TS.QUERYINDEX room=
         !TSDB: please provide at least one matcher
         > TS.MGET SELECTED_LABELS room FILTER t=(x,y)
         [[a [[room 1]] [1 1]] [b [[room 2]] [1 3]] [c [[room nil]] [2 5]]]
         > TS.MRANGE - + FILTER t=x
         [[a [] [[1 1]]] [b [] [[1 3]]]]
         > TS.MRANGE - + WITHLABELS FILTER t=(x,y) GROUPBY t REDUCE sum
         [[t=x [[t x] [__reducer__ sum] [__source__ a,b]] [[1 4]]] [t=y [[t y] [__reducer__ sum] [__source__ c]] [[2 5]]]]
         > TS.ALTER a LABELS t y
         > TS.QUERYINDEX t=y
         OK
         [a c]
         > HELLO 3
         {server: redis, version: 8.8.0, proto: 3, id: 1, mode: standalone, role: master, modules: [{name: timeseries, ver: 80800, path: , args: []}]}
         > TS.MRANGE - + FILTER t=y AGGREGATION max 10
         {a: [{} {aggregators: [max]} [[0 1]]], c: [{} {aggregators: [max]} [[0 5]]]}",
    );
}

#[test]
fn rules_write_buckets_that_are_over() {
    check(
        &mut World::new(),
        "> TS.CREATE a
         > TS.CREATE s LABELS is compaction
         > TS.CREATERULE a s AGGREGATION sum 10
         > TS.CREATERULE a s AGGREGATION sum 10
         > TS.CREATERULE s a AGGREGATION sum 10
         > TS.CREATERULE a a AGGREGATION sum 10
         OK
         OK
         OK
         !TSDB: the destination key already has a src rule
         !TSDB: the source key already has a source rule
         !TSDB: the source key and destination key should be different
         > TS.ADD a 1 1
         > TS.ADD a 2 3
         > TS.ADD a 11 7
         > TS.ADD a 13 1
         > TS.GET s
         1
         2
         11
         13
         [0 4]
         > TS.GET s LATEST
         [10 8]
         > TS.RANGE s 0 10 LATEST
         [[0 4] [10 8]]
         > TS.RANGE s 0 9 LATEST
         [[0 4]]
         > TS.MGET LATEST FILTER is=compaction
         [[s [] [10 8]]]
         > TS.ADD a 5 10
         > TS.ADD a 21 1
         > TS.RANGE s - +
         5
         21
         [[0 14] [10 8]]
         > TS.DEL a 2 12
         3
         > TS.RANGE s - +
         [[0 1] [10 1]]
         > DEL s
         > TS.CREATE s
         > TS.CREATERULE a s AGGREGATION count 10
         > TS.ADD a 35 1
         > TS.RANGE s - +
         1
         OK
         OK
         35
         [[20 1]]
         > TS.DELETERULE a s
         > TS.DELETERULE a s
         OK
         !TSDB: compaction rule does not exist",
    );
}

#[test]
fn redis_commands_of_keys_work() {
    let mut world = World::new();
    check(
        &mut world,
        "> PING
         > ECHO a
         > DBSIZE
         PONG
         a
         0
         > TS.ADD temp:1 1 1
         > TS.ADD temp:2 1 1
         > TS.ADD other 1 1
         > KEYS temp:*
         1
         1
         1
         [temp:1 temp:2]
         > EXISTS temp:1 temp:1 none
         > TYPE temp:1
         > TYPE none
         > DEL other none other
         > DBSIZE
         2
         TSDB-TYPE
         none
         1
         2
         > TTL temp:1
         > EXPIRE temp:1 100
         > TTL temp:1
         > TTL none
         > PERSIST temp:1
         > TTL temp:1
         > EXPIRE temp:2 10
         -1
         1
         100
         -2
         1
         -1
         1
         > SELECT 1
         > DBSIZE
         > TS.ADD x 1 1
         > SELECT 15
         > DBSIZE
         > SELECT 16
         > SELECT 0
         OK
         0
         1
         OK
         !NOPERM not this one
         !ERR DB index is out of range
         OK",
    );
    world.simulation.advance_ns(11_000_000_000);
    check(&mut world, "> KEYS *\n [temp:1]\n > FLUSHDB\n > DBSIZE\n OK\n 0\n > SELECT 1\n > DBSIZE\n OK\n 1");
    let scanned = world.ask("SCAN 0 MATCH x* COUNT 5");
    assert_eq!(scanned, "[0 [x]]");
}

#[test]
fn transactions_run_whole() {
    check(
        &mut World::new(),
        "> MULTI
         > TS.ADD a 1 1
         > TS.ADD a 1 2
         > TS.GET a
         > EXEC
         OK
         QUEUED
         QUEUED
         QUEUED
         [1 !TSDB: Error at upsert, update is not supported when DUPLICATE_POLICY is set to BLOCK mode [1 1]]
         > MULTI
         > NOTHING
         > EXEC
         OK
         !ERR unknown command 'NOTHING', with args beginning with:
         !EXECABORT Transaction discarded because of previous errors.
         > MULTI
         > SELECT 1
         > EXEC
         OK
         !ERR SELECT is not taken inside MULTI: choose the database before it
         !EXECABORT Transaction discarded because of previous errors.
         > MULTI
         > TS.ADD a 2 2
         > DISCARD
         > TS.GET a
         > EXEC
         OK
         QUEUED
         OK
         [1 1]
         !ERR EXEC without MULTI",
    );
}

#[test]
fn clients_that_have_to_sign_in_do_so_first() {
    let mut world = World::new();
    world.account.as_mut().unwrap().is_signed_in = false;
    check(
        &mut world,
        "> TS.ADD a 1 1
         > HELLO 3
         > AUTH me wrong
         !NOAUTH Authentication required.
         !NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time
         !WRONGPASS invalid username-password pair or user is disabled. wrong
         > AUTH me secret
         > TS.ADD a 1 1
         OK
         1",
    );
    let (replies, flow) = world.run(&bytes_of("QUIT\nPING"));
    assert_eq!((replies.as_str(), flow), ("+OK\r\n", Flow::Close));
}

#[test]
fn keys_outlive_restarts_and_crashes() {
    let mut world = World::new();
    check(
        &mut world,
        "> TS.ADD a 10 1 LABELS room 1
         > TS.CREATE empty RETENTION 5000 DUPLICATE_POLICY max LABELS room 2
         > TS.CREATE s
         > TS.CREATERULE a s AGGREGATION max 10
         > TS.ADD b 10 1
         > TS.ADD gone 10 1
         > DEL gone
         > TS.DEL b 0 100
         10
         OK
         OK
         OK
         10
         10
         1
         1",
    );
    world.crash();
    check(
        &mut world,
        "> KEYS *
         [a b empty s]
         > TS.QUERYINDEX room=(1,2)
         [a empty]
         > TS.ADD empty 10 1
         > TS.ADD empty 10 5
         > TS.RANGE empty - +
         10
         10
         [[10 5]]
         > TS.ADD a 10 2
         !TSDB: Error at upsert, update is not supported when DUPLICATE_POLICY is set to BLOCK mode
         > TS.ADD a 25 2
         > TS.RANGE s - +
         25
         [[10 1]]
         > TS.ADD b 30 2
         > TS.GET b
         30
         [30 2]",
    );
}

#[test]
fn settings_outlive_the_retention_of_their_database() {
    const DAY_NS: i64 = 86_400_000_000_000;
    let mut world = World::new();
    world.ask("TS.CREATE a DUPLICATE_POLICY max\nTS.CREATE s\nTS.CREATERULE a s AGGREGATION max 10");
    let policy = db::DatabasePolicy { retention_ns: 10 * DAY_NS, ..db::DatabasePolicy::default() };
    world.db().set_policy("redis", &policy).unwrap();
    for _ in 0..4 {
        world.simulation.advance_ns(6 * DAY_NS);
        assert_eq!(world.ask("DBSIZE"), "2");
        world.db().compact_all().unwrap();
    }
    world.crash();
    check(
        &mut world,
        "> KEYS *\n [a s]\n > TS.CREATERULE a s AGGREGATION max 10\n !TSDB: the destination key already has a src rule",
    );
    check(&mut world, "> TS.ADD a 1 1\n !TSDB: Timestamp is older than retention");
    let info = world.ask("TS.INFO a");
    assert!(info.contains("duplicatePolicy max"), "{info}");
}

const HOUR_MS: i64 = 3_600_000;

/// How many samples of a key the database has.
fn stored(world: &World, key: &str, time_ms: i64) -> String {
    let found = world.promql("redis", &format!("count_over_time(ts{{key=\"{key}\"}}[9999h])"), time_ms).join("");
    let count = found.rsplit_once(".0").map(|(before, _)| before.rsplit(|c: char| !c.is_ascii_digit()).next());
    count.flatten().unwrap_or_default().to_owned()
}

#[test]
fn samples_beyond_the_retention_of_their_key_give_back_their_room() {
    let mut world = World::new();
    let (day, hours) = (24 * HOUR_MS, |hours: i64| hours * HOUR_MS);
    for time_ms in [hours(1), day - 1, day, day + hours(3)] {
        world.ask(&format!("TS.ADD short {time_ms} 1 RETENTION {}\nTS.ADD whole {time_ms} 1", hours(3)));
    }
    assert_eq!(stored(&world, "short", day + hours(3)), "4", "they do not go at once");
    world.simulation.advance_ns(2 * HOUR_MS * 1_000_000);
    assert_eq!(world.ask("DBSIZE"), "2");
    let counts = |world: &World| ["short", "whole"].map(|key| stored(world, key, day + hours(3)));
    assert_eq!(counts(&world), ["2", "4"]);
    check(&mut world, &format!("> TS.RANGE short - +\n [[{day} 1] [{} 1]]", day + hours(3)));
    world.crash();
    assert_eq!(counts(&world), ["2", "4"]);
    // The second look after a start finds nothing to do: no record is written, and nothing is flushed.
    assert_eq!(world.ask("DBSIZE"), "2");
    let before = world.db().last_sequence();
    world.simulation.advance_ns(2 * HOUR_MS * 1_000_000);
    assert_eq!(world.ask("DBSIZE"), "2");
    assert_eq!(world.db().last_sequence(), before);
}

#[test]
fn a_sample_that_is_ahead_of_the_clock_takes_no_others_along() {
    let mut world = World::new();
    let now_ms = world.db().now_ns() / 1_000_000;
    let times = [now_ms - 5 * HOUR_MS, now_ms - HOUR_MS, now_ms + 9_000 * HOUR_MS];
    times.iter().for_each(|time_ms| _ = world.ask(&format!("TS.ADD a {time_ms} 1 RETENTION {}", 3 * HOUR_MS)));
    world.simulation.advance_ns(HOUR_MS * 1_000_000);
    assert_eq!(world.ask("DBSIZE"), "1");
    // What the clock says is too old is gone; what the sample that is ahead says is not.
    assert_eq!(stored(&world, "a", times[2]), "2");
}

#[test]
fn buckets_outlive_the_samples_that_they_were_made_of() {
    let mut world = World::new();
    let hours = |hours: i64| hours * HOUR_MS;
    let pass = |world: &mut World| {
        world.simulation.advance_ns(2 * HOUR_MS * 1_000_000);
        world.ask("DBSIZE");
    };
    world.ask(&format!("TS.CREATE s RETENTION {}\nTS.CREATE d", hours(3)));
    world.ask(&format!("TS.CREATERULE s d AGGREGATION sum {}", hours(24)));
    (1..24).for_each(|hour| _ = world.ask(&format!("TS.ADD s {} 1", hours(hour))));
    pass(&mut world);
    assert_eq!(stored(&world, "s", hours(40)), "23", "the bucket is open");
    world.ask(&format!("TS.ADD s {} 1", hours(25)));
    check(&mut world, "> TS.GET d\n [0 23]");
    pass(&mut world);
    assert_eq!(stored(&world, "s", hours(40)), "24", "late samples may still come into the bucket");
    world.ask(&format!("TS.ADD s {} 1", hours(23) + 1));
    world.ask(&format!("TS.ADD s {} 1", hours(30)));
    check(&mut world, "> TS.GET d\n [0 24]");
    pass(&mut world);
    assert_eq!(stored(&world, "s", hours(40)), "2");
    for _ in 0..2 {
        // The newest samples go, so that older ones may come again: of their bucket too little is left to compute it.
        world.ask(&format!("TS.DEL s {} +\nTS.ADD s {} 1", hours(24), hours(23) + 2));
        world.ask(&format!("TS.ADD s {} 1\nTS.ADD s {} 1", hours(25), hours(30)));
        check(&mut world, "> TS.RANGE d - +\n [[0 24]]");
        world.ask("TS.DEL s 0 5");
        check(&mut world, "> TS.RANGE d - +\n [[0 24]]");
        world.crash();
    }
}

/// A key with a retention, the buckets of its rules, and every sample that was taken.
struct Compacted {
    retention_ms: i64,
    /// Destination, width and alignment in milliseconds; all are sums.
    rules: [(&'static str, i64, i64); 3],
    samples: BTreeMap<i64, i64>,
}

impl Compacted {
    fn new(world: &mut World) -> Self {
        let minutes = |minutes: i64| minutes * HOUR_MS / 60;
        let rules = [("by10", minutes(10), 0), ("by90", minutes(90), minutes(7)), ("by24h", 24 * HOUR_MS, 0)];
        let retention_ms = 3 * HOUR_MS;
        world.ask(&format!("TS.CREATE s RETENTION {retention_ms}"));
        for (to, width_ms, align_ms) in rules {
            world.ask(&format!("TS.CREATE {to}\nTS.CREATERULE s {to} AGGREGATION sum {width_ms} {align_ms}"));
        }
        Self { retention_ms, rules, samples: BTreeMap::new() }
    }

    fn last_ms(&self) -> i64 {
        self.samples.keys().last().copied().unwrap_or(48 * HOUR_MS)
    }

    /// Adds a sample at a distance from the newest one. It is taken unless it is older than the retention, or there is one.
    fn add(&mut self, world: &mut World, from_last_ms: i64, value: i64) {
        let time_ms = self.last_ms() + from_last_ms;
        let is_kept = self.samples.is_empty() || -from_last_ms <= self.retention_ms;
        let is_taken = is_kept && !self.samples.contains_key(&time_ms);
        let reply = world.ask(&format!("TS.ADD s {time_ms} {value}"));
        assert_eq!(reply.starts_with('!'), !is_taken, "{reply}");
        if is_taken {
            self.samples.insert(time_ms, value);
        }
    }

    /// Compares the buckets that are over with the sums of all samples that were taken.
    fn check(&self, world: &mut World) {
        for (to, width_ms, align_ms) in self.rules {
            let start_of = |time_ms: i64| time_ms - (time_ms - align_ms).rem_euclid(width_ms);
            let open_ms = start_of(self.last_ms());
            let mut sums: BTreeMap<i64, i64> = BTreeMap::new();
            for (time_ms, value) in self.samples.range(..open_ms) {
                *sums.entry(start_of(*time_ms)).or_default() += value;
            }
            let expected: Vec<String> = sums.iter().map(|(start_ms, sum)| format!("[{start_ms} {sum}]")).collect();
            assert_eq!(world.ask(&format!("TS.RANGE {to} - +")), format!("[{}]", expected.join(" ")), "{to}");
        }
    }
}

#[test]
fn buckets_are_sums_of_all_samples_whenever_the_key_is_trimmed() {
    let mut trimmed = 0;
    for seed in 0..10 {
        let mut world = World::of_seed(seed);
        let mut key = Compacted::new(&mut world);
        for step in 0..120 {
            let [kind, minutes] = [12, 220].map(|bound| world.simulation.below(bound) as i64);
            match kind {
                0..6 => key.add(&mut world, 1 + (minutes % 90) * HOUR_MS / 60, step),
                // Late ones, some of them too late, mostly into buckets that are over.
                6..9 => key.add(&mut world, -minutes * HOUR_MS / 60, step),
                9 | 10 => {
                    world.simulation.advance_ns(2 * HOUR_MS * 1_000_000);
                    world.ask("DBSIZE");
                }
                _ if step % 3 == 0 => world.crash(),
                _ => key.check(&mut world),
            }
        }
        key.check(&mut world);
        let left: usize = stored(&world, "s", key.last_ms()).parse().unwrap();
        trimmed += key.samples.len() - left;
        world.crash();
        key.check(&mut world);
    }
    assert!(trimmed > 200, "{trimmed} samples went");
}

#[test]
fn buckets_close_while_their_key_is_trimmed() {
    let mut world = World::new();
    let mut key = Compacted::new(&mut world);
    let stop = AtomicBool::new(false);
    let (service, db, simulation) =
        (world.service.clone().unwrap(), world.db.clone().unwrap(), world.simulation.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut session, input) = (service.session(), bytes_of("DBSIZE"));
            let mut account =
                Account { db: db.clone(), is_signed_in: true, may_make_series: true, samples_max: 1_000_000 };
            let request = Parser::default().next(&input, &RequestLimits::default()).unwrap().unwrap();
            let requests = [request];
            while !stop.load(Ordering::Acquire) {
                simulation.advance_ns(2 * HOUR_MS * 1_000_000);
                let mut out = ReplyWriter::default();
                let _ = service.run(&mut session, &mut account, (&input, &requests), &mut out);
            }
        });
        for step in 0..400 {
            key.add(&mut world, 11 * HOUR_MS / 60 + step % 7, step);
            key.add(&mut world, -((step % 170) * HOUR_MS / 60), step);
        }
        stop.store(true, Ordering::Release);
    });
    key.check(&mut world);
    let left: usize = stored(&world, "s", key.last_ms()).parse().unwrap();
    assert!(left < key.samples.len(), "nothing went");
    drop((service, db));
    world.crash();
    key.check(&mut world);
}

#[test]
fn other_languages_see_keys_as_series() {
    let mut world = World::new();
    let (_, _) = world.run(&bytes_of("TS.ADD temp:1 60000 1.5 LABELS room 1\nTS.ADD temp:2 60000 2.5 LABELS room 2"));
    let found = world.promql("redis", "sum(ts{key=~\"temp:.*\"})", 60_000).join("");
    assert!(found.contains("4.0"), "{found}");
    let found = world.promql("redis", "ts{room=\"2\"}", 60_000).join("");
    assert!(found.contains("temp:2") && found.contains("2.5"), "{found}");
    // Rows that others write are keys, once the keys are read.
    world.db().write_lines("redis1", b"ts,key=lines,room=3 value=7 5000000").unwrap();
    check(&mut world, "> SELECT 1\n > TS.GET lines\n > TS.QUERYINDEX room=3\n OK\n [5 7]\n [lines]");
    // A database that was dropped has no keys.
    assert!(world.db().drop_database("redis1").unwrap());
    check(&mut world, "> DBSIZE\n 0");
}

#[test]
fn what_is_not_stored_is_not_answered_as_if_it_was() {
    let mut world = World::new();
    world.ask("TS.ADD late 5000 1");
    world.account.as_mut().unwrap().may_make_series = false;
    // The late sample has the ones before it appended, which needs a series.
    let replies = world.ask("TS.ADD new 1000 1\nTS.ADD late 4000 1\nTS.ADD late 6000 1");
    assert!(replies.lines().all(|reply| reply.starts_with("!ERR")), "{replies}");
    assert!(world.ask("TS.CREATE made RETENTION 5000").starts_with("!ERR"));
    check(&mut world, "> KEYS *\n > TS.RANGE late - +\n [late]\n [[5000 1]]");
    world.account.as_mut().unwrap().may_make_series = true;
    check(
        &mut world,
        "> TS.ADD new 1000 1\n > TS.ADD late 4000 1\n > TS.CREATE made RETENTION 5000\n 1000\n 4000\n OK",
    );
    // A time that no sample may have makes no key.
    assert!(world.ask("TS.ADD never -1 1 RETENTION 7\nTS.ADD never 9223372036854775807 1").starts_with('!'));
    world.crash();
    check(&mut world, "> KEYS *\n > TS.RANGE late - +\n [late made new]\n [[4000 1] [5000 1]]");
    let info = world.ask("TS.INFO made");
    assert!(info.contains("retentionTime 5000"), "{info}");
}

#[test]
fn samples_of_other_protocols_are_read_at_once() {
    let mut world = World::new();
    check(
        &mut world,
        "> TS.ADD a 1000 1 LABELS room 1\n > TS.ADD old 1000 1 RETENTION 5000\n > TS.GET a\n 1000\n 1000\n [1000 1]",
    );
    let lines =
        "ts,key=a,room=1 value=5 2000000000\nts,key=new,room=2 value=7 3000000000\nts,key=old value=2 9000000000";
    world.db().write_lines("redis", lines.as_bytes()).unwrap();
    check(
        &mut world,
        "> TS.GET a
         > TS.MGET FILTER room=1
         > TS.GET new
         > TS.RANGE new - +
         > TS.QUERYINDEX room=2
         > TS.RANGE old - +
         [2000 5]
         [[a [] [2000 5]]]
         [3000 7]
         [[3000 7]]
         [new]
         [[9000 2]]",
    );
    let matchers = [vec![model::Matcher::new("key", model::MatchOp::Equal, "a")]];
    let range = model::TimeRange::new(1_500_000_000, i64::MAX);
    world.db().delete("redis", &matchers, &range).unwrap();
    check(&mut world, "> TS.GET a\n > TS.GET none\n [1000 1]\n !TSDB: the key does not exist");
}

#[test]
fn a_sample_that_is_written_again_has_one_value_whatever_labels_its_key_had() {
    let mut world = World::new();
    for (key, before, after) in [("a", 1, 9), ("b", 9, 1)] {
        world.ask(&format!(
            "TS.ADD {key} 1000 1 LABELS room {before}\nTS.ADD {key} 2000 2\nTS.ALTER {key} LABELS room {after}"
        ));
        let replies = world.ask(&format!(
            "TS.ADD {key} 1000 5 ON_DUPLICATE LAST\nTS.ADD {key} 3000 3\nTS.ADD {key} 2000 9 ON_DUPLICATE SUM"
        ));
        assert_eq!(replies, "1000\n3000\n2000");
        assert_eq!(world.ask(&format!("TS.RANGE {key} - +")), "[[1000 5] [2000 11] [3000 3]]");
    }
    world.crash();
    for key in ["a", "b"] {
        assert_eq!(world.ask(&format!("TS.ADD {key} 1000 7 ON_DUPLICATE LAST")), "1000");
        assert_eq!(world.ask(&format!("TS.RANGE {key} - +")), "[[1000 7] [2000 11] [3000 3]]");
    }
}

#[test]
fn a_clock_that_jumps_takes_no_keys() {
    const YEAR_NS: i64 = 365 * 86_400_000_000_000;
    let mut world = World::new();
    check(&mut world, "> TS.ADD a 1 1\n > EXPIRE a 100\n 1\n 1");
    world.simulation.set_clock_ns(world.simulation.honest_ns() + YEAR_NS);
    check(&mut world, "> KEYS *\n > TTL a\n [a]\n 100");
    world.simulation.advance_ns(101_000_000_000);
    check(&mut world, "> KEYS *\n []");
}

#[test]
fn replies_have_bounds() {
    let mut world = World::new();
    let adds: Vec<String> = (0..40).map(|number| format!("TS.ADD key:{number} 1 1")).collect();
    world.ask(&adds.join("\n"));
    let limits = Limits { ahead_ms_max: u64::MAX, reply_bytes_max: 1_000, ..Limits::default() };
    world.service = Some(Arc::new(Service::new(world.db.clone().unwrap(), limits)));
    let commands = ["KEYS *"; 20].join("\n");
    let (replies, _) = world.run(&bytes_of(&format!("MULTI\n{commands}\nTS.ADD key:1 2 2\nEXEC")));
    assert!(replies.len() < 5_000 && replies.contains("this command was not run"), "{replies}");
    check(&mut world, "> TS.GET key:1\n [1 1]");
    let adds: Vec<String> = (2..1_000).map(|time| format!("TS.ADD key:1 {time} 1")).collect();
    world.ask(&adds.join("\n"));
    let many = vec!["avg"; 300_000].join(",");
    let (replies, _) = world.run(&bytes_of(&format!("TS.RANGE key:1 - + AGGREGATION {many} 1")));
    assert!(replies.starts_with("-ERR") && replies.len() < 1_000, "{}", &replies[..100]);
}

#[test]
fn the_settings_that_were_said_last_count_after_a_wrong_clock() {
    const YEAR_NS: i64 = 365 * 86_400_000_000_000;
    let mut world = World::new();
    world.simulation.set_clock_ns(world.simulation.honest_ns() + YEAR_NS);
    world.ask("TS.CREATE a RETENTION 5000\nTS.CREATE s\nTS.CREATERULE a s AGGREGATION max 10");
    world.simulation.set_clock_ns(world.simulation.honest_ns());
    world.ask("TS.ALTER a RETENTION 7000\nDEL s");
    world.crash();
    let info = world.ask("TS.INFO a");
    assert!(info.contains("retentionTime 7000") && info.contains("rules []"), "{info}");
}

/// All memory that requests may have.
fn take_request_memory(db: &Db) -> Vec<(Arc<db::TenantMemory>, u64)> {
    let mut taken = Vec::new();
    for bytes in (0..40).rev().map(|shift| 1u64 << shift) {
        // One tenant alone may not have all that is left.
        loop {
            let tenant = db.request_memory().tenant();
            if !tenant.take(bytes, 0) {
                break;
            }
            taken.push((tenant, bytes));
        }
    }
    taken
}

#[test]
fn a_key_that_there_is_no_memory_to_look_up_goes_on_from_its_newest_sample() {
    let mut world = World::new();
    let adds: Vec<String> = (0..100).map(|number| format!("TS.ADD k{number:02} 1 5 LABELS g 1")).collect();
    world.ask(&adds.join("\n"));
    // Others make a key, which there is no memory for, and write one of the known ones.
    world.db().write_lines("redis", b"ts,g=1,key=a value=1 1000000\nts,g=1,key=k07 value=8 3000000").unwrap();
    let memory = take_request_memory(world.db());
    let refused = world.ask("TS.MGET FILTER g=1");
    assert!(refused.starts_with("!OOM the keys of this database"), "{refused}");
    memory.iter().for_each(|(tenant, bytes)| tenant.give_back(*bytes));
    for number in [0, 7, 50, 99] {
        world.ask(&format!("TS.INCRBY k{number:02} 1 TIMESTAMP 4\nTS.ADD k{number:02} 1 6"));
    }
    check(
        &mut world,
        "> TS.RANGE k00 - +
         > TS.RANGE k07 - +
         > TS.RANGE k50 - +
         > TS.RANGE k99 - +
         [[1 5] [4 6]]
         [[1 5] [3 8] [4 9]]
         [[1 5] [4 6]]
         [[1 5] [4 6]]",
    );
}

#[test]
fn buckets_that_could_not_be_computed_are_computed_later() {
    for restarts in [false, true] {
        let mut world = World::new();
        world.ask("TS.CREATE s\nTS.CREATE d\nTS.CREATE n\nTS.CREATERULE s d AGGREGATION sum 100\nTS.CREATERULE s n AGGREGATION count 10");
        // A bucket has more samples than a command may read.
        world.account.as_mut().unwrap().samples_max = 4;
        let adds: Vec<String> = (10..18).map(|time| format!("TS.ADD s {time} 1")).collect();
        world.ask(&adds.join("\n"));
        check(&mut world, "> TS.ADD s 100 1\n > TS.ADD s 205 1\n 100\n 205");
        check(&mut world, "> TS.GET d\n > TS.GET d\n [100 1]\n [100 1]");
        if restarts {
            world.crash();
            check(&mut world, "> PING\n > DBSIZE\n PONG\n 3");
        } else {
            world.account.as_mut().unwrap().samples_max = 1_000_000;
            check(&mut world, "> TS.RANGE d - +\n [[100 1]]");
            world.simulation.advance_ns(60_000_000_000);
        }
        check(&mut world, "> TS.RANGE d - +\n > TS.RANGE n - +\n [[0 8] [100 1]]\n [[10 8] [100 1]]");
        world.crash();
        check(&mut world, "> TS.RANGE d - +\n [[0 8] [100 1]]");
    }
}

#[test]
fn many_keys_that_expire_at_once_are_gone_at_once() {
    let mut world = World::new();
    let count = 4_200;
    let key = |number: usize| format!("k{number:04}");
    let adds: Vec<String> = (0..count).map(|number| format!("TS.ADD {} 1 1", key(number))).collect();
    world.ask(&adds.join("\n"));
    let expire: Vec<String> = (0..count).map(|number| format!("EXPIRE {} 100", key(number))).collect();
    world.ask(&format!("TS.ADD stays 1 1\n{}", expire.join("\n")));
    let stored = |world: &World| {
        format!("{:?}", world.db().instant("redis", &db::InstantQuery::new("count(ts)", 2)).unwrap().value)
    };
    assert!(stored(&world).contains("4201"), "{}", stored(&world));
    world.simulation.advance_ns(101_000_000_000);
    let before = world.db().last_sequence();
    // Some are left on disk; clients see nothing of them, and a new one of their name has nothing of the old one.
    check(&mut world, "> DBSIZE\n 1");
    assert!(world.db().last_sequence() - before < 64, "a delete of many keys is a few records");
    assert!(!stored(&world).contains(" 1.0"), "{}", stored(&world));
    let last = key(count - 1);
    check(&mut world, &format!("> TS.ADD {last} 2 7\n 2"));
    check(
        &mut world,
        &format!(
            "> KEYS *\n > TS.RANGE {last} - +\n > TS.GET k4198\n [{last} stays]\n [[2 7]]\n !TSDB: the key does not exist"
        ),
    );
    assert!(stored(&world).contains(" 2.0"), "{}", stored(&world));
    world.crash();
    check(&mut world, &format!("> KEYS *\n > TS.RANGE {last} - +\n [{last} stays]\n [[2 7]]"));
}

#[derive(Debug, Clone)]
enum Step {
    Add(i64, i32, &'static str),
    Delete(i64, i64),
    Increment(i64, i32),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let policy = prop::sample::select(vec!["BLOCK", "FIRST", "LAST", "MIN", "MAX", "SUM"]);
    prop_oneof![
        8 => (0..60i64, -5..5i32, policy).prop_map(|(time, value, policy)| Step::Add(time, value, policy)),
        1 => (0..60i64, 0..20i64).prop_map(|(from, length)| Step::Delete(from, from + length)),
        2 => (0..60i64, -5..5i32).prop_map(|(time, by)| Step::Increment(time, by)),
        1 => Just(Step::Crash),
    ]
}

/// What Redis would hold.
fn apply(model: &mut BTreeMap<i64, f64>, step: &Step) {
    let newest = model.last_key_value().map(|(time, value)| (*time, *value));
    match *step {
        Step::Add(time, value, policy) => {
            let value = f64::from(value);
            let old = model.get(&time).copied();
            let resolved = old.map_or(Some(value), |old| match policy {
                "BLOCK" => None,
                "FIRST" => Some(old),
                "LAST" => Some(value),
                "MIN" => Some(old.min(value)),
                "MAX" => Some(old.max(value)),
                _ => Some(old + value),
            });
            model.extend(resolved.map(|value| (time, value)));
        }
        Step::Delete(from, to) => model.retain(|time, _| !(from..=to).contains(time)),
        Step::Increment(time, by) => {
            if newest.is_none_or(|(newest, _)| time >= newest) {
                model.insert(time, newest.map_or(0.0, |(_, value)| value) + f64::from(by));
            }
        }
        Step::Crash => {}
    }
}

/// The sums of buckets of ten that a rule has written: those before the bucket of the newest sample.
fn sums(model: &BTreeMap<i64, f64>) -> String {
    let mut sums: BTreeMap<i64, f64> = BTreeMap::new();
    model.iter().for_each(|(time, value)| *sums.entry(time / 10 * 10).or_default() += value);
    sums.pop_last();
    let shown: Vec<String> = sums.iter().map(|(time, sum)| format!("[{time} {sum}]")).collect();
    format!("[{}]", shown.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_key_holds_what_redis_would_hold(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new();
        world.ask("TS.CREATE a\nTS.CREATE s\nTS.CREATERULE a s AGGREGATION sum 10");
        let mut model = BTreeMap::new();
        let mut newest = i64::MIN;
        for step in &steps {
            match step {
                Step::Add(time, value, policy) => drop(world.ask(&format!("TS.ADD a {time} {value} ON_DUPLICATE {policy}"))),
                Step::Delete(from, to) => drop(world.ask(&format!("TS.DEL a {from} {to}"))),
                Step::Increment(time, by) => drop(world.ask(&format!("TS.INCRBY a {by} TIMESTAMP {time}"))),
                Step::Crash => world.crash(),
            }
            apply(&mut model, step);
            let shown: Vec<String> = model.iter().map(|(time, value)| format!("[{time} {value}]")).collect();
            prop_assert_eq!(world.ask("TS.RANGE a - +"), format!("[{}]", shown.join(" ")), "after {:?}", step);
            // A bucket that was over is so no more when what came after it is deleted: nothing is said of such.
            let is_back = model.last_key_value().map_or(i64::MIN, |(time, _)| *time) < newest;
            newest = newest.max(model.last_key_value().map_or(i64::MIN, |(time, _)| *time));
            if !is_back {
                prop_assert_eq!(world.ask("TS.RANGE s - +"), sums(&model), "after {:?}", step);
            }
        }
    }
}
