//! Limits and damage as clients of the whole program meet them.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::{Folder, PostgresSession, TestServer, run, text};

const PATIENCE: Duration = Duration::from_mins(1);

/// A session of Postgres that copies rows in.
struct Copying(PostgresSession);

impl Copying {
    fn start(address: SocketAddr) -> Self {
        let mut session = PostgresSession::start(address);
        session.query("COPY copied (time, pod, value) FROM STDIN");
        while session.next().0 != b'G' {}
        Self(session)
    }

    fn send_rows(&mut self) {
        // Messages that are themselves small.
        for _ in 0..60 {
            self.0.send(b"d", "2024-01-01 00:00:00\tp\t1\n".repeat(1_000).as_bytes());
        }
    }

    /// Ends the COPY; why it was refused, if it was.
    fn finish(mut self) -> Option<String> {
        self.0.send(b"c", b"");
        loop {
            match self.0.next() {
                (b'E', error) => return Some(error),
                (b'C', _) => return None,
                _ => {}
            }
        }
    }
}

#[test]
fn held_copies_have_their_share_and_others_work() {
    let folder = Folder::new("limits-copy");
    let postgres = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let flags = ["--no-host-metrics", "--bodies-bytes-max", "8388608", "--postgres", &postgres.to_string()];
    let server = TestServer::start(&folder.0.join("data"), &flags);
    let mut held: Vec<Copying> = (0..6).map(|_| Copying::start(postgres)).collect();
    held.iter_mut().for_each(Copying::send_rows);
    // What was sent may not have arrived all yet, and of copies that arrive at the same moment
    // several may be refused, which frees their shares: the number of those held grows until one
    // that comes alone has no room.
    let started = Instant::now();
    let refusal = loop {
        let mut another = Copying::start(postgres);
        another.send_rows();
        if let Some(refusal) = another.finish() {
            break refusal;
        }
        assert!(started.elapsed() < PATIENCE, "no COPY is refused");
        let mut one_more = Copying::start(postgres);
        one_more.send_rows();
        held.push(one_more);
    };
    assert!(refusal.contains("53200") && refusal.contains("bodies_bytes_max"), "{refusal}");
    assert_eq!(server.post("/write", b"m v=1 1000000000").0, 204, "small writes get in");
    assert!(server.get("/api/v1/query?query=m_v&time=1").1.contains("\"1\""), "queries are answered");
    let ended: Vec<Option<String>> = held.into_iter().map(Copying::finish).collect();
    assert!(ended.iter().any(Option::is_none), "those with a share are written: {ended:?}");
    let refused = ended.into_iter().flatten().all(|refusal| refusal.contains("bodies_bytes_max"));
    assert!(refused, "the others are told why");
    // What they held is free again.
    let mut again = Copying::start(postgres);
    again.send_rows();
    assert_eq!(again.finish(), None);
}

#[test]
fn large_writes_wait_for_one_another_and_small_ones_do_not() {
    let folder = Folder::new("limits-large");
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics"]);
    let cores = std::thread::available_parallelism().unwrap().get();
    // More than may work at the same time.
    let (count, left) = (4 * (cores + 2), AtomicUsize::new(4 * (cores + 2)));
    let mut large = String::new();
    for row in 0..60_000 {
        writeln!(large, "large,host=h{} v={row},w=2 {row}000000", row % 100).unwrap();
    }
    let small = std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let (status, said) = server.post("/write", large.as_bytes());
                assert_eq!((status, said.as_str()), (204, ""), "it waits for its place");
                left.fetch_sub(1, Ordering::SeqCst);
            });
        }
        let mut small = 0;
        while left.load(Ordering::SeqCst) > 0 {
            assert_eq!(server.post("/write", b"small v=1 1000000000").0, 204);
            small += 1;
        }
        small
    });
    assert!(small >= count / 4, "only {small} small writes got in beside {count} large ones");
}

const SERIES: u32 = 20_000;

/// A part that is longer than those which are read into memory, and nothing of it in the head.
fn fill(data: &Path) {
    let server = TestServer::start(data, &["--no-host-metrics"]);
    let mut state = 1_u64;
    for post in 0..4 {
        let mut lines = String::new();
        for row in 0..100_000 {
            // Values that do not compress.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let time_ms = (post * 1_000 + row / 100) * 1_000;
            writeln!(lines, "m,host=h{} v={} {time_ms}000000", row % 100, (state >> 11) as f64 / 7.0).unwrap();
        }
        assert_eq!(server.post("/write", lines.as_bytes()).0, 204);
    }
    // Series enough for a long index.
    let mut lines = String::new();
    for series in 0..SERIES {
        writeln!(lines, "wide,pod={series:0100} v=1 1000000000").unwrap();
    }
    assert_eq!(server.post("/write", lines.as_bytes()).0, 204);
    let compacted = run(&["compact", "--url", server.url()]);
    assert_eq!(compacted.status.code(), Some(0), "{}", text(&compacted.stderr));
    assert_eq!(server.stop().0, Some(0));
}

/// Cuts the files of a kind that are longer than so much.
fn cut(folder: &Path, extension: &str, longer_than: u64) {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|found| found == extension));
    let files: Vec<_> = files.filter(|file| std::fs::metadata(file).unwrap().len() > longer_than).collect();
    assert!(!files.is_empty(), "a file of {} is long enough to be mapped", folder.display());
    for file in &files {
        std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(4096).unwrap();
    }
}

#[test]
fn a_file_that_is_cut_fails_queries_and_not_the_server() {
    let folder = Folder::new("limits-cut");
    let data = folder.0.join("data");
    fill(&data);
    let server = TestServer::start(&data, &["--no-host-metrics"]);
    let query = "/api/v1/query?query=sum(count_over_time(m_v[1d])%2Bsum_over_time(m_v[1d]))&nocache=1&time=4000";
    // From here on the file is mapped, as far as one host needs it.
    let one = server.get("/api/v1/query?query=sum_over_time(m_v{host=%22h1%22}[1m])&nocache=1&time=100");
    assert!(one.0 == 200 && one.1.contains("\"h1\""), "{one:?}");
    cut(&data.join("parts"), "part", 1 << 20);
    let (status, said) = server.get(query);
    assert!(status >= 400 || said.contains("warnings"), "{status} {said}");
    // It lives, takes rows and answers from them.
    assert_eq!(server.post("/write", b"alive v=1 1000000000").0, 204);
    assert!(server.get("/api/v1/query?query=alive_v&time=1").1.contains("\"1\""));
    assert_eq!(server.get("/health").0, 200);
    // An index is there twice: its copy takes its place, or the query is told.
    cut(&data.join("index"), "segment", 4096);
    let (status, said) = server.get("/api/v1/query?query=count(wide_v)&nocache=1&time=10");
    assert!(status == 500 || status == 200 && said.contains(&format!("\"{SERIES}\"")), "{status} {said}");
    assert_eq!(server.get("/health").0, 200);
    assert!(server.get("/api/v1/query?query=alive_v&time=1").1.contains("\"1\""));
    assert_eq!(server.stop().0, Some(0));
}
