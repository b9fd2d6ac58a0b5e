//! A server of its own on a free port, and a client.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use db::{Db, DbOptions};
use platform::Platform;
use thalweg_server::{Listener, Server, ServerSettings, make_first_admin};
use tokio::sync::oneshot;

static SERVERS: AtomicU32 = AtomicU32::new(0);

/// A server that runs until it is dropped, on a data folder that is removed then.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// Those of the listeners beside HTTP, by their flags.
    pub(crate) others: Vec<(&'static str, SocketAddr)>,
    pub(crate) db: Arc<Db>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    folder: PathBuf,
    agent: ureq::Agent,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
    headers: ureq::http::HeaderMap,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Running {
    /// Without samples of the host, so that a test finds only what it wrote.
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub(crate) fn start_with(change: impl FnOnce(&mut ServerSettings)) -> Self {
        Self::start_on(DbOptions::new(Self::new_folder()), change)
    }

    /// A folder that no other server of this process has.
    pub(crate) fn new_folder() -> PathBuf {
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        std::env::temp_dir().join(format!("thalweg-server-{}-{number}", std::process::id()))
    }

    pub(crate) fn start_on(options: DbOptions, change: impl FnOnce(&mut ServerSettings)) -> Self {
        Self::start_with_platform(Platform::real(), options, change)
    }

    pub(crate) fn start_with_platform(
        platform: Platform,
        options: DbOptions,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Self {
        let folder = options.store.directory.clone();
        let db = Arc::new(Db::open(platform, options).unwrap());
        let mut settings = ServerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        settings.host_metrics_interval_ms = None;
        change(&mut settings);
        make_first_admin(&db, &settings, &folder).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (send_address, address) = mpsc::channel();
        let shared = db.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(shared, settings).await.unwrap();
                send_address.send((server.address(), server.addresses().to_vec())).unwrap();
                server.run(async { drop(stopped.await) }).await;
            });
        });
        // A server that hangs fails the test instead of hanging it.
        let patience = Some(Duration::from_mins(1));
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(patience).build();
        let (address, others) = address.recv().unwrap();
        Self { address, others, db, stop: Some(stop), thread: Some(thread), folder, agent: config.into() }
    }

    /// With all listeners on free ports.
    pub(crate) fn start_listening(change: impl FnOnce(&mut ServerSettings)) -> Self {
        let free = Some(Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true });
        Self::start_with(|settings| {
            (settings.line, settings.graphite) = (free, free);
            (settings.opentsdb, settings.otlp_grpc) = (free, free);
            change(settings);
        })
    }

    /// Where the listener with this flag listens.
    pub(crate) fn at(&self, flag: &str) -> SocketAddr {
        self.others.iter().find(|(one, _)| *one == flag).unwrap().1
    }

    /// Waits until a line of the server's own numbers stands there.
    pub(crate) fn wait_for_metric(&self, line: &str) {
        let started = Instant::now();
        loop {
            let text = self.get("/metrics").body;
            if text.lines().any(|found| found == line) {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "{line} not in {text}");
            std::thread::yield_now();
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send("POST", path, &[], body)
    }

    pub(crate) fn get_bytes(&self, path: &str) -> Vec<u8> {
        let (status, _, body) = self.send_for_bytes("GET", path, &[], b"");
        assert_eq!(status, 200, "{path}");
        body
    }

    /// Status, content type and body, which need not be text.
    pub(crate) fn send_for_bytes(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> (u16, String, Vec<u8>) {
        let answer = self.exchange(method, path, headers, body);
        (answer.status().as_u16(), text_of(answer.headers(), "content-type"), answer.into_body())
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
        let answer = self.exchange(method, path, headers, body);
        Answer {
            status: answer.status().as_u16(),
            headers: answer.headers().clone(),
            body: String::from_utf8_lossy(answer.body()).into_owned(),
        }
    }

    fn exchange(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> ureq::http::Response<Vec<u8>> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = body.as_ref();
        let response = if body.is_empty() {
            self.agent.run(request.body(()).unwrap())
        } else {
            self.agent.run(request.body(body).unwrap())
        };
        let mut response = response.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let bytes = response.body_mut().read_to_vec().unwrap();
        response.map(|_| bytes)
    }

    /// Writes line protocol that must be taken.
    pub(crate) fn write(&self, lines: &str) {
        let answer = self.post("/write", lines);
        assert_eq!((answer.status, answer.body.as_str()), (204, ""), "{lines}");
    }

    /// The result of an instant query at a second, in one of the databases.
    pub(crate) fn result(&self, database: &str, query: &str, second: i64) -> String {
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let answer = self.get(&format!("/api/v1/query?db={database}&time={second}&query={query}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let result = answer.body.split_once(r#""result":"#).unwrap().1;
        result.strip_suffix("}}").unwrap().to_owned()
    }

    /// Ends the server as Ctrl-C does and waits for it.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        self.wait();
    }

    /// Waits until the server has ended.
    pub(crate) fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn text_of(headers: &ureq::http::HeaderMap, name: &str) -> String {
    headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned()
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        self.db.close().unwrap();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
