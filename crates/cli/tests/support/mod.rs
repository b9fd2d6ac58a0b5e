//! The real program on a folder and a port of the test's own.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests, each using its own part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg");

/// A folder that is removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running server; killed when dropped.
pub(crate) struct TestServer {
    child: Child,
    url: String,
}

impl TestServer {
    /// Starts and returns when it says that it is ready.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--http", "127.0.0.1:0", "--control", "off", "--ingest", "off", "--data"])
            .arg(data)
            .args(flags)
            // Tests run side by side; what one of them asks for by a flag wins over this.
            .envs(["LINE", "GRAPHITE", "OPENTSDB", "OTLP_GRPC"].map(|name| (format!("THALWEG_{name}"), "off")))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some((_, url)) = line.trim().rsplit_once(' ') else {
            let mut errors = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut errors);
            panic!("the server did not start: {errors}");
        };
        Self { child, url: url.trim_end_matches('/').to_owned() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL; returns when the process is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; returns with the exit code and what it said on stderr.
    pub(crate) fn stop(mut self) -> (Option<i32>, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let code = self.child.wait().unwrap().code();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (code, errors)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut response = agent().get(format!("{}{path}", self.url)).call().unwrap();
        (response.status().as_u16(), response.body_mut().with_config().limit(1 << 30).read_to_string().unwrap())
    }

    pub(crate) fn post(&self, path: &str, body: &[u8]) -> (u16, String) {
        let mut response = agent().post(format!("{}{path}", self.url)).send(body).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A session of Postgres, message by message.
pub(crate) struct PostgresSession(TcpStream);

impl PostgresSession {
    pub(crate) fn start(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let mut session = Self(stream);
        session.send(b"", b"\0\x03\0\0user\0test\0database\0default\0\0");
        session.until_ready();
        session
    }

    /// Sends a message; the first of a session has no kind.
    pub(crate) fn send(&mut self, kind: &[u8], body: &[u8]) {
        let message = [kind, &(body.len() as u32 + 4).to_be_bytes(), body].concat();
        self.0.write_all(&message).unwrap();
    }

    pub(crate) fn query(&mut self, text: &str) {
        self.send(b"Q", &[text.as_bytes(), b"\0"].concat());
    }

    /// The kind and the body of the next message.
    pub(crate) fn next(&mut self) -> (u8, String) {
        let mut head = [0; 5];
        self.0.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes(*head.last_chunk().unwrap()) as usize - 4;
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (head[0], text(&body))
    }

    /// All messages up to the one that says that the server waits for the next query.
    pub(crate) fn until_ready(&mut self) -> Vec<(u8, String)> {
        let mut messages = Vec::new();
        while messages.last().is_none_or(|(kind, _)| *kind != b'Z') {
            messages.push(self.next());
        }
        messages
    }
}

pub(crate) fn agent() -> ureq::Agent {
    // A server that hangs fails the test instead of hanging it.
    let patience = Some(Duration::from_mins(1));
    ureq::Agent::config_builder().http_status_as_error(false).timeout_global(patience).build().into()
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).env_remove("THALWEG_URL").output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
