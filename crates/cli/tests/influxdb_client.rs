//! InfluxDB's own Python clients against the real program.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use std::path::Path;
use std::process::Command;

use support::{Folder, TestServer, text};

/// Runs a script that needs a package with the port of a server, if the package is there.
fn run_script(package: &str, script: &str) {
    let has_client = Command::new("python3").args(["-c", &format!("import {package}")]).output();
    if !has_client.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: python3 with the package {package} is missing");
        return;
    }
    let folder = Folder::new(script);
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics"]);
    let port = server.url().trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let output = Command::new("python3").arg(script).arg(port).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn influxdbs_python_client_works() {
    run_script("influxdb", "influxdb1_client.py");
}

#[test]
fn influxdb_2s_python_client_works() {
    run_script("influxdb_client", "influxdb2_client.py");
}

#[test]
fn influxdb_2s_python_client_makes_tasks() {
    run_script("influxdb_client", "influxdb2_tasks.py");
}
