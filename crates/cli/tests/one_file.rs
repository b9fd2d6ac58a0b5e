//! Databases in one file, as their users have them: served, killed, looked at, copied, packed and unpacked.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;
use std::path::Path;

use support::{Folder, TestServer, run, text};

/// Runs the program; its exit code and what it said.
fn tell(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(arguments);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

fn done(arguments: &[&str]) -> String {
    let (code, said) = tell(arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {said}");
    said
}

fn refused(arguments: &[&str], why: &str) {
    let (code, said) = tell(arguments);
    assert!(code == Some(2) && said.contains(why), "{arguments:?}: {said}");
}

fn start(data: &Path) -> TestServer {
    TestServer::start(data, &["--no-host-metrics"])
}

fn write(server: &TestServer, hosts: std::ops::Range<u32>) {
    let lines: Vec<String> = hosts.map(|host| format!("m,host=h{host} v={host} {}000000000\n", host + 1)).collect();
    let lines = lines.concat();
    assert_eq!(server.post("/write", lines.as_bytes()).0, 204);
}

fn count(data: &Path) -> String {
    counted(&start(data))
}

fn counted(server: &TestServer) -> String {
    let answer = server.get("/api/v1/query?query=sum(count_over_time(m_v[1h]))&time=1000").1;
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    answer["data"]["result"][0]["value"][1].as_str().unwrap_or("none").to_owned()
}

/// Commands that a guide has in its blocks of code.
fn guide_has(commands: &[&str]) {
    let guide = include_str!("../../../docs/guide/upkeep.md");
    for command in commands {
        assert!(guide.lines().any(|line| line == *command), "the guide lacks: {command}");
    }
}

#[test]
fn one_file_is_served_killed_and_looked_at() {
    let folder = Folder::new("one-file");
    let data = folder.0.join("metrics.tsdb");
    let named = data.to_str().unwrap();
    let server = start(&data);
    assert!(data.is_file());
    write(&server, 0..50);
    done(&["compact", "--url", server.url()]);
    write(&server, 50..80);
    assert!(done(&["check", "--data", named]).contains("all is well"));
    assert!(done(&["inspect", "--data", named]).contains("bytes/row"));
    assert!(done(&["trash", "list", "--data", named]).contains("part"));
    refused(&["serve", "--data", named, "--http", "127.0.0.1:0"], &format!("pid {}", server.pid()));
    refused(&["backup", "--data", named, "--to", &format!("{named}.copy.tsdb")], "in use");
    server.kill();
    let server = start(&data);
    assert_eq!(counted(&server), "80");
    // As Prometheus's: beside the file.
    assert_eq!(server.post("/api/v1/admin/tsdb/snapshot", b"").0, 200);
    assert!(folder.0.join("metrics.tsdb.snapshots").is_dir());
    assert_eq!(server.stop().0, Some(0));
    let beside: Vec<String> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert!(beside.iter().all(|name| name.starts_with("metrics.tsdb")) && beside.len() == 2, "{beside:?}");
    done(&["compact", "--data", named]);
    assert!(done(&["repair", "--data", named]).contains("nothing to repair"));
    // A folder of such a name stays one.
    let other = folder.0.join("folder.tsdb");
    fs::create_dir(&other).unwrap();
    start(&other).kill();
    assert!(other.join("MANIFEST").is_file());
}

#[test]
fn one_file_is_copied_while_it_is_served() {
    let folder = Folder::new("one-file-copy");
    let path = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("copies")).unwrap();
    let flags = ["--no-host-metrics", "--backup-targets", &format!("copies={}", path("copies"))];
    for (form, data) in [("file", "metrics.tsdb"), ("folder", "folder")] {
        let (data, copy) = (folder.0.join(data), path(&format!("copies/of-{form}.tsdb")));
        let server = TestServer::start(&data, &flags);
        write(&server, 0..50);
        done(&["backup", "--url", server.url(), "--to", &copy]);
        write(&server, 50..60);
        refused(&["backup", "--url", server.url(), "--to", &copy], "exists");
        refused(&["backup", "--url", server.url(), "--to", &path("copies/other.tsdb"), "--keep", "3"], "older ones");
        assert_eq!(server.stop().0, Some(0));
        assert!(done(&["check", "--data", &copy]).contains("all is well"));
        assert_eq!(count(Path::new(&copy)), "50");
        for to in [format!("again-{form}.tsdb"), format!("again-{form}")] {
            done(&["restore", "--from", &copy, "--data", &path(&to)]);
            assert_eq!(count(Path::new(&path(&to))), "50");
        }
        refused(&["restore", "--from", &copy, "--data", &path(&format!("again-{form}"))], "is not empty");
    }
    // To where backups are kept, as that of a folder.
    done(&["backup", "--data", &path("metrics.tsdb"), "--to", &path("backups")]);
    done(&["restore", "--from", &path("backups"), "--data", &path("restored.tdb")]);
    assert_eq!(count(Path::new(&path("restored.tdb"))), "60");
    assert!(
        !fs::read_dir(path("copies")).unwrap().any(|entry| entry.unwrap().path().extension().unwrap() == "unfinished")
    );
}

#[test]
fn a_folder_is_packed_and_unpacked() {
    let folder = Folder::new("one-file-pack");
    let path = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    guide_has(&[
        "thalweg serve --data metrics.tsdb",
        "thalweg pack ./thalweg-data packed.tsdb",
        "thalweg unpack packed.tsdb ./unpacked",
        "thalweg backup --to copy.tsdb --data metrics.tsdb",
        "thalweg check --data copy.tsdb",
    ]);
    let data = folder.0.join("thalweg-data");
    let server = start(&data);
    write(&server, 0..50);
    done(&["compact", "--url", server.url()]);
    write(&server, 50..60);
    refused(&["pack", &path("thalweg-data"), &path("packed.tsdb")], "in use");
    server.kill();
    fs::write(data.join("audit.log"), "{}\n").unwrap();
    let said = done(&["pack", &path("thalweg-data"), &path("packed.tsdb")]);
    assert!(said.contains("left out: ") && said.contains("audit.log"), "{said}");
    refused(&["pack", &path("thalweg-data"), &path("packed.tsdb")], "exists");
    refused(&["pack", &path("thalweg-data"), &path("packed.db")], "ends in .tsdb");
    refused(&["pack", &path("nothing"), &path("new.tsdb")], "is no data folder");
    assert!(!Path::new(&path("new.tsdb")).exists() && !Path::new(&path("nothing")).exists());
    assert_eq!(count(Path::new(&path("packed.tsdb"))), "60");
    done(&["unpack", &path("packed.tsdb"), &path("unpacked")]);
    assert_eq!(count(Path::new(&path("unpacked"))), "60");
    refused(&["unpack", &path("packed.tsdb"), &path("unpacked")], "is not empty");
    refused(&["unpack", &path("unpacked"), &path("more")], "is no file");
    let server = start(Path::new(&path("packed.tsdb")));
    refused(&["unpack", &path("packed.tsdb"), &path("more")], "in use");
    drop(server);
    // Nothing of it is silently less: a file that was cut, one that is none of ours.
    let whole = fs::read(path("packed.tsdb")).unwrap();
    for length in [0, 10, 5000, whole.len() / 2] {
        fs::write(path("cut.tsdb"), &whole[..length]).unwrap();
        refused(&["check", "--data", &path("cut.tsdb")], "cut.tsdb: at offset ");
        refused(&["serve", "--data", &path("cut.tsdb"), "--http", "127.0.0.1:0"], "cut.tsdb: at offset ");
    }
    fs::write(path("text.tsdb"), "name,value\n".repeat(5000)).unwrap();
    refused(&["serve", "--data", &path("text.tsdb"), "--http", "127.0.0.1:0"], "expected THWGFILE");
}
