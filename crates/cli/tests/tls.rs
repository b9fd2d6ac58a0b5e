//! `thalweg cert`, and the program's own commands against a server of TLS.
#![cfg(unix)]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use support::{Folder, PROGRAM, TestServer, text};

/// Makes certificates for a server on loopback and a client.
fn certificates(folder: &Folder) {
    let path = folder.0.display().to_string();
    let made = support::run(&["cert", &path, "--names", "localhost,127.0.0.1", "--client", "cron"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    for (name, mode) in [("ca-key.pem", 0o600), ("server-key.pem", 0o600), ("cron-key.pem", 0o600)] {
        let found = std::fs::metadata(folder.0.join(name)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{name}");
    }
    // An authority that is there is used again.
    let authority = std::fs::read(folder.0.join("ca.pem")).unwrap();
    assert!(support::run(&["cert", &path, "--client", "cron"]).status.success());
    assert_eq!(std::fs::read(folder.0.join("ca.pem")).unwrap(), authority);
    assert!(!support::run(&["cert", &path, "--client", "../x"]).status.success());
    assert!(!support::run(&["cert", &path, "--client", "server"]).status.success());
}

fn start(folder: &Folder) -> TestServer {
    let at = |name: &str| folder.0.join(name).display().to_string();
    let (certificate, key, authority) = (at("server.pem"), at("server-key.pem"), at("ca.pem"));
    let tls = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &authority, "--sign-in", "required"];
    TestServer::start(&folder.0.join("data"), &tls)
}

fn run(folder: &Folder, server: &TestServer, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env("THALWEG_URL", server.url()).env("THALWEG_CA_FILE", folder.0.join("ca.pem"));
    command.output().unwrap()
}

#[test]
fn commands_sign_in_by_token_and_by_certificate() {
    let folder = Folder::new("tls");
    certificates(&folder);
    let server = start(&folder);
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.url());
    let refused = run(&folder, &server, &["query", "1 + 1"]);
    assert!(text(&refused.stderr).contains("sign in"), "{}", text(&refused.stderr));
    let token = folder.0.join("data/admin-token").display().to_string();
    let made = Command::new(PROGRAM)
        .args(["user", "create", "cron", "--certificate", "cron", "--server-admin"])
        .args(["--url", server.url(), "--ca-file"])
        .arg(folder.0.join("ca.pem"))
        .env("THALWEG_TOKEN_FILE", token)
        .output()
        .unwrap();
    assert!(made.status.success() && text(&made.stdout).contains("certificate"), "{made:?}");
    let at = |name: &str| folder.0.join(name).display().to_string();
    let (certificate, key) = (at("cron.pem"), at("cron-key.pem"));
    let lines = folder.file("rows.lp", b"m v=1 1000000000\n").display().to_string();
    let shown = ["--client-cert", &certificate, "--client-key", &key];
    for (command, expected) in [
        (&["import", &lines][..], ""),
        (&["query", "m_v", "--time", "1"], "1"),
        (&["db", "list"], "default"),
        (&["token", "list"], "cron"),
        (&["compact"], "merge"),
    ] {
        let ran = run(&folder, &server, &[command, &shown].concat());
        assert!(ran.status.success() && text(&ran.stdout).contains(expected), "{command:?} {ran:?}");
    }
    // The system's authorities do not know this one.
    let ran = Command::new(PROGRAM).args(["query", "1", "--url", server.url()]).output().unwrap();
    assert!(!ran.status.success() && text(&ran.stderr).contains("certificate"), "{ran:?}");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(server.pid().cast_signed()).unwrap(),
        rustix::process::Signal::HUP,
    )
    .unwrap();
    assert!(run(&folder, &server, &[&["query", "1"][..], &shown].concat()).status.success());
    let (code, errors) = server.stop();
    assert_eq!(code, Some(0), "{errors}");
}

#[test]
fn users_of_prometheus_sign_in_everywhere() {
    let folder = Folder::new("web-config");
    certificates(&folder);
    // "test", as Prometheus's documentation has it.
    let web_config = folder.file(
        "web.config.yml",
        b"tls_server_config:\n  cert_file: server.pem\n  key_file: server-key.pem\n  cipher_suites: [TLS_AES_128_GCM_SHA256]\n\
          http_server_config:\n  headers:\n    X-Frame-Options: deny\n\
          basic_auth_users:\n  alice: $2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay\n",
    );
    let flags = ["--web-config-file", &web_config.display().to_string(), "--postgres", "127.0.0.1:0"];
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--http", "127.0.0.1:0", "--control", "off", "--ingest", "off", "--data"]);
    command.arg(folder.0.join("data")).args(flags).env("THALWEG_OTLP_GRPC", "off").env("THALWEG_LINE", "off");
    command.env("THALWEG_GRAPHITE", "off").env("THALWEG_OPENTSDB", "off");
    let (http, postgres, _child) = started(&mut command);
    let authority = folder.0.join("ca.pem");
    let curl = |user: &str| {
        let url = format!("https://127.0.0.1:{http}/metrics");
        let ran = Command::new("curl").args(["-si", "-u", user, "--cacert"]).arg(&authority).arg(url).output();
        ran.ok().map(|ran| text(&ran.stdout))
    };
    let Some(answer) = curl("alice:test") else { return };
    assert!(answer.contains(" 200") && answer.to_lowercase().contains("x-frame-options: deny"), "{answer}");
    assert!(curl("alice:wrong").unwrap().contains(" 401"));
    let psql = |password: &str, mode: &str| {
        let connection = format!(
            "host=127.0.0.1 port={postgres} user=alice dbname=default sslmode={mode} sslrootcert={}",
            authority.display()
        );
        let mut psql = Command::new("psql");
        psql.args(["-AtX", &connection, "-c", "SELECT 7"]).env("PGPASSWORD", password).env("HOME", &folder.0);
        psql.output().ok().map(|ran| text(&ran.stdout) + &text(&ran.stderr))
    };
    let Some(answer) = psql("test", "verify-full") else { return };
    assert_eq!(answer, "7\n");
    for (password, mode) in [("wrong", "verify-full"), ("test", "disable")] {
        // No password in the clear.
        let refused = psql(password, mode).unwrap();
        assert!(refused.to_lowercase().contains("password"), "{mode} {refused}");
    }
}

/// The ports of HTTP and of Postgres, once the program says that it is ready.
fn started(command: &mut Command) -> (String, String, Ended) {
    use std::io::BufRead;
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let child = Ended(child);
    let mut port = || {
        let line = lines.next().unwrap().unwrap();
        line.trim_end_matches('/').rsplit(':').next().unwrap().to_owned()
    };
    let (http, postgres) = (port(), port());
    (http, postgres, child)
}

struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_python_client_writes_by_tls() {
    let has_numpy = Command::new("python3").args(["-c", "import numpy"]).output().is_ok_and(|ran| ran.status.success());
    if !has_numpy {
        return;
    }
    let folder = Folder::new("tls-python");
    certificates(&folder);
    let at = |name: &str| folder.0.join(name).display().to_string();
    let mut command = Command::new(PROGRAM);
    let local = "127.0.0.1:0";
    command.args(["serve", "--http", local, "--control", local, "--ingest", local, "--sign-in", "required", "--data"]);
    command.arg(folder.0.join("data")).args(["--tls-cert", &at("server.pem"), "--tls-key", &at("server-key.pem")]);
    command.args([
        "--line",
        "off",
        "--graphite",
        "off",
        "--opentsdb",
        "off",
        "--otlp-grpc",
        "off",
        "--postgres",
        "off",
    ]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = {
        use std::io::BufRead;
        std::io::BufReader::new(child.stdout.take().unwrap()).lines()
    };
    let _child = Ended(child);
    lines.next().unwrap().unwrap();
    let mut port = || lines.next().unwrap().unwrap().rsplit(':').next().unwrap().to_owned();
    let (control, ingest) = (port(), port());
    let token = std::fs::read_to_string(folder.0.join("data/admin-token")).unwrap();
    let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python");
    let ran = Command::new("python3")
        .arg(bindings.join("tests/roundtrip.py"))
        .args([control, ingest, at("ca.pem"), token.trim().to_owned()])
        .env("PYTHONPATH", &bindings)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert_eq!(text(&ran.stdout).trim(), "well", "{}", text(&ran.stderr));
}
