//! Real requests over loopback: credentials, compression, formats, and what is read back by PromQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "a test")]

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use db::{Db, DbOptions, InstantQuery};
use model::TimeRange;
use platform::Platform;
use platform::network::{NetworkPlatform, Transport};
use promql::ResultValue;
use thalweg_scrape::{Scraper, config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

/// What a server answers with.
#[derive(Clone, Default)]
struct Response {
    content_type: &'static str,
    encoding: &'static str,
    body: Vec<u8>,
}

/// Serves one response to all requests; the address, and the requests' heads.
async fn serve(response: Response) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = heads.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (log, response) = (log.clone(), response.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                loop {
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).await.is_err() {
                        return;
                    }
                    head.push(byte[0]);
                    if !head.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    log.lock().unwrap().push(String::from_utf8(std::mem::take(&mut head)).unwrap().to_lowercase());
                    let Response { content_type, encoding, body } = &response;
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-encoding: {encoding}\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    stream.write_all(body).await.unwrap();
                }
            });
        }
    });
    (address, heads)
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("thalweg-scrape-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn value(db: &Db, query: &str) -> Option<f64> {
    let found = db.instant("default", &InstantQuery::new(query, db.now_ns() / 1_000_000)).unwrap();
    let ResultValue::Vector(samples) = found.value else { panic!() };
    samples.first().map(|sample| sample.value)
}

async fn wait_for(db: &Db, query: &str) -> f64 {
    for _ in 0..200 {
        if let Some(value) = value(db, query) {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{query} gives nothing");
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// A family with a native histogram, as client libraries send it: two buckets of schema 1 with one and three observations.
fn native_histogram() -> Vec<u8> {
    let field = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let double = |number: u8, value: f64| [&[number << 3 | 1][..], &value.to_le_bytes()].concat();
    let span = field(12, &[1 << 3, 2, 2 << 3, 2]);
    let histogram = [
        &[1 << 3, 4][..],
        &double(2, 9.0),
        &[5 << 3, 2],
        &double(6, 0.5),
        &span,
        &[13 << 3, 2, 13 << 3, 4],
        &field(15, &[1 << 3, 100]),
    ];
    let label = field(1, &[field(1, b"kind"), field(2, b"x")].concat());
    let metric = [label, field(7, &histogram.concat())].concat();
    let family = [field(1, b"took"), vec![3 << 3, 4], field(4, &metric)].concat();
    [&[family.len() as u8][..], &family].concat()
}

/// A configuration that runs.
struct Setup {
    folder: PathBuf,
    db: Arc<Db>,
    config: config::Config,
    scraper: Scraper,
}

impl Setup {
    fn start(name: &str, jobs: &str) -> Self {
        let folder = folder(name);
        let network = NetworkPlatform::real(Platform::real());
        let db = Arc::new(Db::open(Platform::real(), DbOptions::new(folder.join("data"))).unwrap());
        std::fs::write(folder.join("password"), "s3cret\n").unwrap();
        let file = folder.join("prometheus.yml");
        let text = format!("global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n{jobs}");
        std::fs::write(&file, text).unwrap();
        let origin = config::Origin { files: &*network.platform.files, variable: &|_| None };
        let config = config::load(&file, &origin).unwrap().config;
        let scraper = Scraper::start(&network, db.clone(), "default");
        scraper.apply(&config);
        Self { folder, db, config, scraper }
    }

    fn end(self) {
        self.scraper.stop();
        drop(self.scraper);
        self.db.close().unwrap();
        std::fs::remove_dir_all(self.folder).unwrap();
    }
}

const TEXT: &str = "# HELP requests_total How many.\n# TYPE requests_total counter\nrequests_total{code=\"200\"} 7\ntemperature 21.5\n";

#[tokio::test(flavor = "multi_thread")]
async fn targets_are_scraped_over_loopback() {
    let text = |content_type| Response { content_type, body: TEXT.into(), ..Response::default() };
    let (plain, heads) = serve(text("text/plain; version=0.0.4")).await;
    let (wrong, _) = serve(text("text/html")).await;
    let setup = Setup::start(
        "loopback",
        &format!(
            "- job_name: plain
  basic_auth: {{username: u, password_file: password}}
  http_headers: {{X-Own: {{values: [one]}}}}
  params: {{x: ['1 2']}}
  static_configs: [{{targets: ['{plain}'], labels: {{zone: n}}}}]
- job_name: wrong
  static_configs: [{{targets: ['{wrong}', '127.0.0.1:1']}}]
"
        ),
    );
    let (db, scraper) = (&setup.db, &setup.scraper);
    assert_eq!(wait_for(db, "requests_total{code=\"200\",job=\"plain\",zone=\"n\"}").await, 7.0);
    assert_eq!(wait_for(db, "up{job=\"plain\"}").await, 1.0);
    assert_eq!(wait_for(db, "count(up{job=\"wrong\"} == 0) == 2").await, 2.0);
    assert_eq!(wait_for(db, "scrape_samples_scraped{job=\"plain\"}").await, 2.0);
    let head = heads.lock().unwrap()[0].clone();
    for part in [
        "get /metrics?x=1+2 http/1.1",
        "authorization: basic dtpzm2nyzxq=",
        "x-own: one",
        "accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6",
        "accept-encoding: gzip",
        "x-prometheus-scrape-timeout-seconds: 1",
        "user-agent: thalweg/",
    ] {
        assert!(head.contains(part), "{part}: {head}");
    }
    let pools = scraper.pools();
    let errors: Vec<String> = pools.iter().flat_map(|pool| pool.active()).map(|target| target.last().error).collect();
    assert!(errors.iter().any(|error| error.contains("text/html")), "{errors:?}");
    let plain_pool = pools.iter().find(|pool| pool.config.job_name == "plain").unwrap();
    assert_eq!(plain_pool.active()[0].metadata()[0].help, "How many.");
    // A reload that takes a job away ends its targets alone.
    let mut smaller = setup.config.clone();
    smaller.scrape_configs.truncate(1);
    scraper.apply(&smaller);
    assert_eq!(scraper.pools().len(), 1);
    assert!(Arc::ptr_eq(&scraper.pools()[0], plain_pool), "what did not change goes on");
    setup.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_openmetrics_and_protobuf_are_read() {
    let (packed, _) = serve(Response {
        content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
        encoding: "gzip",
        body: gzip("# TYPE packed counter\npacked_total{a=\"b\"} 3 # {trace=\"t1\"} 0.5\npacked_created{a=\"b\"} 90.5\n# EOF\n"),
    })
    .await;
    let (native, native_heads) = serve(Response {
        content_type: "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
        body: native_histogram(),
        ..Response::default()
    })
    .await;
    let jobs = format!(
        "- job_name: packed
  static_configs: [{{targets: ['{packed}']}}]
- job_name: native
  scrape_native_histograms: true
  static_configs: [{{targets: ['{native}']}}]
"
    );
    let setup = Setup::start("formats", &jobs);
    let db = &setup.db;
    assert_eq!(wait_for(db, "packed_total{a=\"b\",job=\"packed\"}").await, 3.0);
    let selected = [promql::parse_selector("packed_total{job=\"packed\"}").unwrap()];
    let now_ns = db.now_ns();
    let range = TimeRange { start_ns: now_ns - 60_000_000_000, end_ns: now_ns };
    let exemplars = db.exemplars("default", &selected, &range, &InstantQuery::new("1", 0).budget).unwrap();
    assert_eq!((exemplars[0].1[0].value, exemplars[0].1[0].labels.get("trace")), (0.5, Some("t1")));
    assert_eq!(wait_for(db, "histogram_count(took{kind=\"x\",job=\"native\"})").await, 4.0);
    for (series, start_ns) in [("packed_total", 90_500_000_000), ("took", 100_000_000_000)] {
        let selected = promql::parse_selector(series).unwrap();
        let starts = db.start_timestamps("default", &selected, &InstantQuery::new("1", 0).budget).unwrap();
        assert_eq!(starts.iter().map(|(_, start_ns)| *start_ns).collect::<Vec<_>>(), [start_ns], "{series}");
    }
    assert_eq!(value(db, "took_count"), None, "the native one is in the place of the classic one");
    assert!(native_heads.lock().unwrap()[0].contains("accept: application/vnd.google.protobuf;"));
    // It ends when its target is gone.
    let mut smaller = setup.config.clone();
    smaller.scrape_configs.truncate(1);
    setup.scraper.apply(&smaller);
    for _ in 0..100 {
        if value(db, "histogram_count(took)").is_none() {
            return setup.end();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the series of a target that is gone did not end");
}

#[tokio::test]
async fn messages_are_exchanged() {
    let network = NetworkPlatform::real(Platform::real());
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let listener = TcpListener::bind(socket.local_addr().unwrap()).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 100];
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        buffer[..length].reverse();
        socket.send_to(&buffer[..length], from).await.unwrap();
    });
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut message = [0; 5];
        stream.read_exact(&mut message).await.unwrap();
        stream.write_all(&[0, 2, message[4], message[3]]).await.unwrap();
    });
    let answer = network.network.exchange(address, Transport::Udp, b"abc".to_vec()).await;
    assert_eq!(answer.unwrap(), b"cba");
    let answer = network.network.exchange(address, Transport::Tcp, b"abc".to_vec()).await;
    assert_eq!(answer.unwrap(), b"cb");
}

/// Tokens of OAuth 2.0, by a secret and by a signed statement, are fetched once and sent with each scrape.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_fetched_and_sent() {
    let json = |text: &str| Response { content_type: "application/json", encoding: "identity", body: text.into() };
    let (login, fetched) = serve(json(r#"{"access_token": "T0KEN", "expires_in": "3600"}"#)).await;
    let text = Response { content_type: "text/plain", encoding: "identity", body: b"a 1\n".to_vec() };
    let (target, scraped) = serve(text).await;
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/keys/pkcs8.pem");
    let jobs = [
        "",
        &format!("grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer', client_certificate_key_file: '{key}', "),
    ];
    let jobs = jobs.iter().enumerate().map(|(number, further)| {
        format!(
            "- job_name: j{number}\n  static_configs: [{{targets: ['{target}']}}]\n  oauth2: {{client_id: c, client_secret: s, {further}token_url: 'http://{login}/token'}}\n"
        )
    });
    let setup = Setup::start("tokens", &jobs.collect::<String>());
    assert_eq!(wait_for(&setup.db, "count(count_over_time(a[1m]) > 1) == 2").await, 2.0);
    setup.end();
    assert_eq!(fetched.lock().unwrap().len(), 2);
    let scraped = scraped.lock().unwrap();
    assert!(scraped.iter().all(|head| head.contains("authorization: bearer t0ken")), "{scraped:?}");
}
