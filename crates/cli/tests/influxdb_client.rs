//! InfluxDB's own Python client against the real program.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;
use std::process::Command;

use support::{Folder, TestServer, text};

#[test]
fn influxdbs_python_client_works() {
    let has_client = Command::new("python3").args(["-c", "import influxdb"]).output();
    if !has_client.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: python3 with the package influxdb is missing");
        return;
    }
    let folder = Folder::new("influxdb-client");
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics"]);
    let port = server.url().trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/influxdb_client.py");
    let output = Command::new("python3").arg(script).arg(port).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
