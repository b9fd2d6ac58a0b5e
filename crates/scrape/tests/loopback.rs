//! Real requests over loopback: credentials, compression, formats, and what is read back by PromQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::float_cmp, reason = "a test")]

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use db::{Db, DbOptions, InstantQuery};
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

#[tokio::test(flavor = "multi_thread")]
async fn targets_are_scraped_over_loopback() {
    let folder = folder("loopback");
    let network = NetworkPlatform::real(Platform::real());
    let db = Arc::new(Db::open(Platform::real(), DbOptions::new(folder.join("data"))).unwrap());
    let text = "# HELP requests_total How many.\n# TYPE requests_total counter\nrequests_total{code=\"200\"} 7\ntemperature 21.5\n";
    let (plain, heads) =
        serve(Response { content_type: "text/plain; version=0.0.4", body: text.into(), ..Response::default() }).await;
    let metrics = "# TYPE packed gauge\npacked{a=\"b\"} 3\n# EOF\n";
    let (packed, _) = serve(Response {
        content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
        encoding: "gzip",
        body: gzip(metrics),
    })
    .await;
    let (wrong, _) = serve(Response { content_type: "text/html", body: text.into(), ..Response::default() }).await;
    std::fs::write(folder.join("password"), "s3cret\n").unwrap();
    let file = folder.join("prometheus.yml");
    let written = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: plain
  basic_auth: {{username: u, password_file: password}}
  http_headers: {{X-Own: {{values: [one]}}}}
  params: {{x: ['1 2']}}
  static_configs: [{{targets: ['{plain}'], labels: {{zone: n}}}}]
- job_name: packed
  static_configs: [{{targets: ['{packed}']}}]
- job_name: wrong
  static_configs: [{{targets: ['{wrong}', '127.0.0.1:1']}}]
"
    );
    std::fs::write(&file, written).unwrap();
    let origin = config::Origin { files: &*network.platform.files, variable: &|_| None };
    let loaded = config::load(&file, &origin).unwrap();
    let scraper = Scraper::start(&network, db.clone(), "default");
    scraper.apply(&loaded.config);
    assert_eq!(wait_for(&db, "requests_total{code=\"200\",job=\"plain\",zone=\"n\"}").await, 7.0);
    assert_eq!(wait_for(&db, "packed{a=\"b\",job=\"packed\"}").await, 3.0);
    assert_eq!(wait_for(&db, "up{job=\"plain\"}").await, 1.0);
    assert_eq!(wait_for(&db, "count(up{job=\"wrong\"} == 0)").await, 2.0);
    assert_eq!(wait_for(&db, "scrape_samples_scraped{job=\"plain\"}").await, 2.0);
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
    let mut smaller = loaded.config.clone();
    smaller.scrape_configs.truncate(1);
    scraper.apply(&smaller);
    assert_eq!(scraper.pools().len(), 1);
    assert!(Arc::ptr_eq(&scraper.pools()[0], plain_pool), "what did not change goes on");
    scraper.stop();
    drop(scraper);
    db.close().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
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

#[test]
fn files_of_examples_load() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs");
    let files = Platform::real().files;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        let origin = config::Origin { files: &*files, variable: &|_| None };
        let loaded = config::load(&path, &origin);
        assert!(loaded.is_ok(), "{}: {:?}", path.display(), loaded.err());
    }
}
