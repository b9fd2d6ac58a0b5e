//! TLS on every listener, by clients of rustls and by programs that are installed.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use access::web_config::{ClientCertificates, WebConfig};
use axum::body::{Body, Bytes};
use axum::http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use thalweg_server::{Listener, Pem, ServerSettings, TlsSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::certificates::{Authority, Certificate, Files, TlsClient, block_on};
use crate::harness::Running;

const LISTENERS: [&str; 6] = ["control", "ingest", "line", "graphite", "opentsdb", "otlp-grpc"];

fn free() -> Listener {
    Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true }
}

/// TLS of files with an authority's certificate for the server.
fn tls_of(authority: &Authority, files: &Files) -> TlsSettings {
    let server = authority.server();
    let (chain, key) = (files.write("server.pem", &server.chain), files.write("server-key.pem", &server.key));
    TlsSettings::new(Pem::File(chain), Pem::File(key))
}

/// A server with all listeners.
fn start(tls: TlsSettings, change: impl FnOnce(&mut ServerSettings)) -> Running {
    Running::start_listening(|settings| {
        (settings.control, settings.ingest, settings.postgres) = (Some(free()), Some(free()), Some(free()));
        settings.tls = Some(tls);
        change(settings);
    })
}

fn others() -> Vec<String> {
    LISTENERS.iter().chain(&["postgres"]).map(|name| (*name).to_owned()).collect()
}

fn admin_token(server: &Running) -> String {
    std::fs::read_to_string(server.db.directory().join("admin-token")).unwrap().trim().to_owned()
}

#[test]
fn every_listener_speaks_tls_and_nothing_else() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = start(tls_of(&authority, &files), |_| {});
    let (client, stranger) = (TlsClient::new(&authority, None), TlsClient::new(&Authority::new(), None));
    let addresses: Vec<SocketAddr> =
        LISTENERS.iter().map(|name| server.at(&format!("--{name}"))).chain([server.address]).collect();
    for address in addresses {
        let is_h2 = address == server.at("--otlp-grpc");
        let one = if is_h2 { client.clone().speaking("h2") } else { client.clone() };
        assert!(block_on(one.connect(address)).is_ok(), "{address}");
        let refused = block_on(stranger.connect(address)).unwrap_err().to_string();
        assert!(refused.contains("invalid peer certificate"), "{refused}");
        let answer = block_on(async {
            let mut bare = TcpStream::connect(address).await.unwrap();
            bare.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            let _ = bare.read_to_end(&mut answer).await;
            answer
        });
        assert!(!answer.starts_with(b"HTTP") && answer.len() < 100, "{address} {answer:?}");
    }
    assert!(client.get(server.address, "/-/healthy", "").unwrap().starts_with("HTTP/1.1 200"));
}

#[test]
fn rows_come_by_tls_and_connections_are_parked() {
    let (authority, files) = (Authority::new(), Files::new());
    let tls = TlsSettings { listeners: Some(others()), ..tls_of(&authority, &files) };
    let server = start(tls, |settings| settings.park_after_ms = 20);
    let client = TlsClient::new(&authority, None);
    block_on(async {
        let mut lines = client.connect(server.at("--line")).await.unwrap();
        lines.write_all(b"m v=1 1000000000\nm v=2 20").await.unwrap();
        lines.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        lines.write_all(b"00000000\n").await.unwrap();
        lines.shutdown().await.unwrap();
        let mut telnet = client.connect(server.at("--opentsdb")).await.unwrap();
        telnet.write_all(b"version\nexit\n").await.unwrap();
        let mut answer = String::new();
        telnet.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("OpenTSDB"), "{answer}");
    });
    server.wait_for_metric("thalweg_protocol_rows_total{protocol=\"line\"} 2");
    let options = |authority: &Authority| client::Options {
        control: server.at("--control"),
        ingest: server.at("--ingest"),
        tls: Some(client::tls::TlsOptions { authorities: authority.pem.clone().into(), ..Default::default() }),
        ..client::Options::default()
    };
    let stranger = client::Client::connect(options(&Authority::new())).err().unwrap();
    assert!(
        matches!(&stranger, client::ClientError::Invalid(why) if why.contains("invalid peer certificate")),
        "{stranger}"
    );
    let mut wire = client::Client::connect(options(&authority)).unwrap();
    let labels = model::Labels::from_pairs([("host", "a")]).unwrap();
    let tokens = wire.register_series("default", &[("up", labels)]).unwrap();
    for second in 1..=3_i64 {
        let (times, columns) = ([second * 1_000_000_000], [(client::Values::F64(&[1.0]), [].as_slice())]);
        let block =
            client::Outgoing { measurement: 0, slots: &[], tokens: &tokens, timestamps_ns: &times, columns: &columns };
        wire.send(&[block]).unwrap();
        assert!(wire.flush().unwrap().is_empty());
        // Long enough for the server to park it.
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(server.result("default", "count_over_time(up[5s])", 3).contains(r#""3""#));
}

#[test]
fn requests_come_by_kept_connections_and_http2() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = start(tls_of(&authority, &files), |settings| settings.park_after_ms = 20);
    let client = TlsClient::new(&authority, None);
    block_on(async {
        let mut stream = client.connect(server.address).await.unwrap();
        for _ in 0..3 {
            stream.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200");
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut rest = [0; 4096];
            let _ = stream.read(&mut rest).await.unwrap();
        }
    });
    let answer = block_on(async {
        let stream = client.clone().speaking("h2").connect(server.address).await.unwrap();
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let lines = "m v=1 1000000000\n".repeat(100_000);
        let request = Request::post(format!("https://{}/write", server.address)).body(Full::new(Bytes::from(lines)));
        let written = sender.send_request(request.unwrap()).await.unwrap();
        assert_eq!((written.status().as_u16(), written.version()), (204, Version::HTTP_2));
        let request = Request::get(format!("https://localhost:{}/api/v1/labels", server.address.port()));
        let answer = sender.send_request(request.body(Full::default()).unwrap()).await.unwrap();
        String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    });
    assert!(answer.contains("__name__"), "{answer}");
    let large = client.get(server.address, &format!("/api/v1/labels?match[]={}", "a".repeat(1_000)), "").unwrap();
    assert!(large.starts_with("HTTP/1.1 200"), "{large}");
}

/// The status of a request by a client that shows a certificate.
fn status(server: &Running, client: &TlsClient, headers: &str) -> std::io::Result<String> {
    let answer = client.get(server.address, "/api/v1/labels?db=metrics", headers)?;
    Ok(answer.get(9..12).unwrap_or_default().to_owned())
}

fn guarded(authority: &Authority, files: &Files, wanted: ClientCertificates) -> Running {
    let clients = files.write("ca.pem", &authority.pem);
    let tls = TlsSettings {
        client_authorities: Some(Pem::File(clients)),
        client_certificates: wanted,
        ..tls_of(authority, files)
    };
    start(tls, |settings| settings.sign_in_required = true)
}

/// Makes an account, by the administrator's token.
fn account(server: &Running, client: &TlsClient, name: &str, body: &str) {
    let token = admin_token(server);
    let request = format!(
        "PUT /api/v1/admin/accounts/{name} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = client.exchange(server.address, request.as_bytes()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!answer.contains("thw_"), "{answer}");
}

#[test]
fn certificates_sign_accounts_in() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = guarded(&authority, &files, ClientCertificates::Verified);
    let known = authority.sign(&["telegraf.example"], "x", 2100);
    let client = |shown: Option<&Certificate>| TlsClient::new(&authority, shown);
    let body = r#"{"certificates":["telegraf.example"],"grants":["all:*"]}"#;
    account(&server, &client(None), "telegraf", body);
    let by_common_name = authority.sign(&[], "cron", 2100);
    account(&server, &client(None), "cron", r#"{"certificates":["cron"],"grants":["write:other"]}"#);
    assert_eq!(status(&server, &client(Some(&known)), "").unwrap(), "200");
    // It is signed in, and no administrator.
    assert!(client(Some(&by_common_name)).get(server.address, "/metrics", "").unwrap().starts_with("HTTP/1.1 403"));
    assert_eq!(status(&server, &client(None), "").unwrap(), "401");
    assert_eq!(status(&server, &client(Some(&authority.sign(&["other.example"], "x", 2100))), "").unwrap(), "401");
    // A name of an account is not that of its certificate, and a wrong token is not made good by a certificate.
    assert_eq!(status(&server, &client(Some(&authority.sign(&["telegraf"], "telegraf", 2100))), "").unwrap(), "401");
    assert_eq!(status(&server, &client(Some(&known)), "authorization: Bearer thw_x\r\n").unwrap(), "401");
    for bad in
        [authority.sign(&["telegraf.example"], "x", 2001), Authority::new().sign(&["telegraf.example"], "x", 2100)]
    {
        assert!(status(&server, &client(Some(&bad)), "").is_err());
    }
    // Protocols without a place for a token, and the binary protocol.
    block_on(async {
        let mut lines = client(Some(&known)).connect(server.at("--graphite")).await.unwrap();
        lines.write_all(b"a.b 1 1000000000\n").await.unwrap();
        lines.shutdown().await.unwrap();
    });
    let certificate =
        client::tls::ClientCertificate { chain: known.chain.clone().into(), key: known.key.clone().into() };
    let connected = client::Client::connect(client::Options {
        control: server.at("--control"),
        ingest: server.at("--ingest"),
        tls: Some(client::tls::TlsOptions {
            authorities: authority.pem.clone().into(),
            certificate: Some(certificate),
            server_name: Some("localhost".to_owned()),
        }),
        reconnect_timeout_ms: 1,
        ..client::Options::default()
    });
    assert!(connected.is_ok());
    let started = Instant::now();
    let metrics =
        || client(None).get(server.address, "/metrics", &format!("authorization: Bearer {}\r\n", admin_token(&server)));
    while !metrics().unwrap().contains("thalweg_protocol_rows_total{protocol=\"graphite\"} 1") {
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn certificates_may_be_required() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = guarded(&authority, &files, ClientCertificates::Required);
    assert!(TlsClient::new(&authority, None).get(server.address, "/-/healthy", "").is_err());
    let shown = authority.sign(&["any.example"], "x", 2100);
    let answer = TlsClient::new(&authority, Some(&shown)).get(server.address, "/-/healthy", "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn revoked_certificates_sign_no_client_in() {
    let (authority, files) = (Authority::new(), Files::new());
    let [kept, lost] = [7, 8].map(|number| authority.sign_numbered("telegraf.example", number));
    let path = files.write("revoked.pem", &authority.revoke(&[]));
    let tls = TlsSettings {
        client_authorities: Some(Pem::File(files.write("ca.pem", &authority.pem))),
        client_revocations: Some(Pem::File(path)),
        client_certificates: ClientCertificates::Required,
        ..tls_of(&authority, &files)
    };
    let server = start(tls, |_| {});
    let get = |shown: &Certificate| TlsClient::new(&authority, Some(shown)).get(server.address, "/-/healthy", "");
    let is_let_in = |shown: &Certificate| get(shown).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
    assert!(is_let_in(&kept) && is_let_in(&lost));
    files.write("revoked.pem", &authority.revoke(&[8]));
    block_on(wait(|| !is_let_in(&lost)));
    assert!(is_let_in(&kept));
    // A file that cannot be read changes nothing.
    files.write("revoked.pem", "nonsense");
    let metrics = || TlsClient::new(&authority, Some(&kept)).get(server.address, "/metrics", "").unwrap();
    block_on(wait(|| metrics().contains("thalweg_tls_reloads_failed_total 1")));
    assert!(!is_let_in(&lost));
}

#[test]
fn changed_files_are_taken_while_connections_stay() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = start(tls_of(&authority, &files), |_| {});
    let (old, next) = (TlsClient::new(&authority, None), Authority::new());
    block_on(async {
        let mut kept = old.connect(server.address).await.unwrap();
        files.write("server-key.pem", "no key");
        wait(|| old.get(server.address, "/health", "").unwrap().contains("changed certificates cannot be used")).await;
        assert!(old.get(server.address, "/metrics", "").unwrap().contains("thalweg_tls_reloads_failed_total 1"));
        let Certificate { chain, key } = next.server();
        files.write("server.pem", &chain);
        files.write("server-key.pem", &key);
        let new = TlsClient::new(&next, None);
        wait(|| new.get(server.address, "/health", "").is_ok_and(|answer| !answer.contains("cannot be used"))).await;
        kept.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        kept.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    });
    assert!(old.get(server.address, "/health", "").is_err(), "the old authority");
}

/// Waits until something is so.
async fn wait(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(15));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn silent_clients_do_not_shake_hands_for_ever() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = start(tls_of(&authority, &files), |settings| settings.head_timeout_ms = 200);
    for address in [server.address, server.at("--line"), server.at("--postgres")] {
        block_on(async {
            let mut silent = TcpStream::connect(address).await.unwrap();
            // The beginning of a record.
            silent.write_all(&[0x16, 3]).await.unwrap();
            assert!(matches!(silent.read(&mut [0; 64]).await, Ok(0) | Err(_)));
        });
    }
    let metrics = TlsClient::new(&authority, None).get(server.address, "/metrics", "").unwrap();
    assert!(metrics.contains("thalweg_tls_handshakes_failed_total 3"), "{metrics}");
}

#[test]
fn the_web_configuration_of_prometheus_is_served() {
    let (authority, files) = (Authority::new(), Files::new());
    tls_of(&authority, &files);
    files.write("ca.pem", &authority.pem);
    let text = "
tls_server_config:
  cert_file: server.pem
  key_file: server-key.pem
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [prometheus.example]
  min_version: TLS13
http_server_config:
  http2: false
";
    let config = WebConfig::parse(text).unwrap().resolved(&files.0);
    let tls = TlsSettings::from_web_config(&config.tls_server_config.unwrap(), config.http_server_config.http2);
    let server = start(tls.unwrap(), |_| {});
    let client = |name| TlsClient::new(&authority, Some(&authority.sign(&[name], name, 2100)));
    assert!(client("prometheus.example").get(server.address, "/-/healthy", "").unwrap().starts_with("HTTP/1.1 200"));
    assert!(client("other.example").get(server.address, "/-/healthy", "").is_err());
    let h2 = client("prometheus.example").speaking("h2");
    assert!(block_on(h2.connect(server.address)).is_err());
}

#[test]
fn postgres_sessions_are_encrypted() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = guarded(&authority, &files, ClientCertificates::Verified);
    let admin = admin_token(&server);
    let client = TlsClient::new(&authority, None);
    account(&server, &client, "alice", r#"{"password":"pass","server_admin":true}"#);
    account(&server, &client, "bob", r#"{"certificates":["bob.example"],"server_admin":true}"#);
    let bob = authority.sign(&["bob.example"], "bob", 2100);
    files.write("bob.pem", &bob.chain);
    let key = files.write("bob-key.pem", &bob.key);
    #[cfg(unix)]
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let address = server.at("--postgres");
    // TLS from the first byte, and by a request of the protocol's own.
    for is_direct in [true, false] {
        block_on(async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if !is_direct {
                for (wish, expected) in [(b"\0\0\0\x08\x04\xd2\x16\x30", b"N"), (b"\0\0\0\x08\x04\xd2\x16\x2f", b"S")] {
                    stream.write_all(wish).await.unwrap();
                    let mut answer = [0];
                    stream.read_exact(&mut answer).await.unwrap();
                    assert_eq!(&answer, expected);
                }
            }
            let mut session = client.clone().speaking("postgresql").shake_hands(stream).await.unwrap();
            session.write_all(b"\0\0\0\x14\0\x03\0\0user\0alice\0\0").await.unwrap();
            let mut kind = [0];
            session.read_exact(&mut kind).await.unwrap();
            assert_eq!(&kind, b"R");
        });
    }
    let psql = |user: &str, password: &str, more: &str| {
        let folder = files.0.display();
        let connection =
            format!("host=localhost hostaddr=127.0.0.1 port={} user={user} dbname=default {more}", address.port());
        let run = Command::new("psql")
            .args(["-AtX", &connection.replace("FOLDER", &folder.to_string()), "-c", "SELECT 1 + 1"])
            .env("PGPASSWORD", password)
            .env("HOME", &files.0)
            .output();
        run.ok().map(|output| {
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        })
    };
    let full = "sslmode=verify-full sslrootcert=FOLDER/ca.pem";
    let Some(answer) = psql("alice", "pass", full) else { return };
    assert_eq!(answer, "2\n");
    assert_eq!(psql("admin", &admin, full).unwrap(), "2\n");
    let shown = format!("{full} sslcert=FOLDER/bob.pem sslkey=FOLDER/bob-key.pem");
    assert_eq!(psql("bob", "", &shown).unwrap(), "2\n");
    assert!(psql("alice", "", &shown).unwrap().contains("password"), "another's name");
    files.write("stranger.pem", &Authority::new().pem);
    let refused = psql("alice", "pass", "sslmode=verify-full sslrootcert=FOLDER/stranger.pem").unwrap();
    assert!(refused.contains("SSL error"), "{refused}");
    // On loopback a session may go without.
    assert_eq!(psql("alice", "pass", "sslmode=disable").unwrap(), "2\n");
}

/// Asks by psycopg, where it is installed.
const PSYCOPG: &str = r#"
import sys
try:
    import psycopg
except ImportError:
    sys.exit(77)
port, authority, user, password = sys.argv[1:]
try:
    session = psycopg.connect(host="localhost", hostaddr="127.0.0.1", port=port, user=user, password=password,
                              dbname="default", sslmode="verify-full", sslrootcert=authority)
    print(session.execute("SELECT 1 + 1").fetchone()[0], session.pgconn.ssl_in_use)
except psycopg.OperationalError as error:
    print(error)
"#;

#[test]
fn psycopg_verifies_the_server_and_signs_in() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = guarded(&authority, &files, ClientCertificates::Verified);
    let admin = admin_token(&server);
    account(&server, &TlsClient::new(&authority, None), "alice", r#"{"password":"pass","server_admin":true}"#);
    let port = server.at("--postgres").port().to_string();
    let ask = |authority: &str, user: &str, password: &str| {
        let path = files.0.join(authority);
        let run =
            Command::new("python3").args(["-c", PSYCOPG, &port]).arg(path).args([user, password]).output().ok()?;
        let is_missing = run.status.code() == Some(77);
        (!is_missing)
            .then(|| format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr)))
    };
    let Some(answer) = ask("ca.pem", "alice", "pass") else { return };
    assert_eq!(answer, "2 True\n");
    assert_eq!(ask("ca.pem", "admin", &admin).unwrap(), "2 True\n");
    let refused = ask("ca.pem", "alice", "wrong").unwrap();
    assert!(refused.contains("assword authentication failed"), "{refused}");
    files.write("stranger.pem", &Authority::new().pem);
    let refused = ask("stranger.pem", "alice", "pass").unwrap();
    assert!(refused.contains("SSL error"), "{refused}");
}

#[test]
fn postgres_asks_all_names_in_the_same_way() {
    let (authority, files) = (Authority::new(), Files::new());
    // As web.config.yml has it: of "test".
    let bcrypt = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay";
    let config = WebConfig::parse(&format!("basic_auth_users:\n  prom: {bcrypt}\n")).unwrap();
    let stored = config.basic_auth_users.get("prom").unwrap().clone();
    let server = start(tls_of(&authority, &files), |settings| {
        settings.sign_in_required = true;
        settings.accounts = vec![access::account::Account {
            name: "prom".to_owned(),
            credential: access::account::Credential::Password(stored),
            certificates: Vec::new(),
            scram: None,
            is_server_admin: true,
            grants: Vec::new(),
            quota: access::rate::Quota::default(),
            created_ns: 0,
            expires_ns: None,
        }];
    });
    let client = TlsClient::new(&authority, None).speaking("postgresql");
    let basic = format!("authorization: Basic {}\r\n", "cHJvbTp0ZXN0");
    let made = TlsClient::new(&authority, None).exchange(
        server.address,
        format!(
            "PUT /api/v1/admin/accounts/alice HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{basic}content-length: 19\r\n\r\n{{\"password\":\"pass\"}}"
        )
        .as_bytes(),
    );
    assert!(made.unwrap().starts_with("HTTP/1.1 200"));
    let asked_of = |user: &str| {
        block_on(async {
            let stream = TcpStream::connect(server.at("--postgres")).await.unwrap();
            let mut session = client.clone().shake_hands(stream).await.unwrap();
            let mut startup = b"\0\x03\0\0user\0".to_vec();
            startup.extend_from_slice(user.as_bytes());
            startup.extend_from_slice(b"\0\0");
            session.write_all(&(startup.len() as u32 + 4).to_be_bytes()).await.unwrap();
            session.write_all(&startup).await.unwrap();
            let mut answer = [0; 9];
            session.read_exact(&mut answer).await.unwrap();
            answer
        })
    };
    let asked = ["prom", "alice", "no-such-name"].map(asked_of);
    assert!(asked.iter().all(|answer| *answer == asked[0]), "{asked:?}");
    assert_eq!(&asked[0][..1], b"R");
}

#[test]
fn curl_and_grpc_come_by_tls() {
    let (authority, files) = (Authority::new(), Files::new());
    let server = start(tls_of(&authority, &files), |_| {});
    let ca = files.write("ca.pem", &authority.pem);
    let url = format!("https://localhost:{}/-/healthy", server.address.port());
    let curl = Command::new("curl").args(["-sS", "--cacert", &ca.display().to_string(), &url]).output();
    if let Ok(output) = curl {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "Thalweg is healthy.\n", "{output:?}");
    }
    let status = block_on(async {
        let client = TlsClient::new(&authority, None).speaking("h2");
        let stream = client.connect(server.at("--otlp-grpc")).await.unwrap();
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let path = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
        let request = Request::post(format!("https://localhost{path}")).header("content-type", "application/grpc");
        let body = Body::new(Full::new(Bytes::from_static(&[0; 5])));
        let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
        answer.into_body().collect().await.unwrap().trailers().unwrap().get("grpc-status").cloned().unwrap()
    });
    assert_eq!(status, "0");
}
