//! Upkeep as its users do it, over a real server and real folders.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use support::{Folder, PostgresSession, TestServer, run, text};

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

fn write(server: &TestServer, hosts: std::ops::Range<u32>) {
    let lines: Vec<String> = hosts.map(|host| format!("m,host=h{host} v={host} {}000000000\n", host + 1)).collect();
    let lines = lines.concat();
    assert_eq!(server.post("/write", lines.as_bytes()).0, 204);
}

fn count(server: &TestServer) -> String {
    server.get("/api/v1/query?query=sum(count_over_time(m_v[1h]))&time=1000").1
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    found.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[test]
fn a_running_server_is_backed_up_and_restored() {
    let folder = Folder::new("backup");
    let path = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    let (data, to, restored) = (path("data"), path("backups"), path("restored"));
    let targets = format!("nightly={to}");
    let server = TestServer::start(Path::new(&data), &["--no-host-metrics", "--backup-targets", &targets]);
    write(&server, 0..50);
    for elsewhere in [path("elsewhere"), path("backups/../elsewhere"), "s3://bucket/x".to_owned(), "hourly".to_owned()]
    {
        let (code, said) = tell(&["backup", "--url", server.url(), "--to", &elsewhere]);
        assert!(code == Some(2) && said.contains("--backup-targets"), "{elsewhere}: {said}");
    }
    let said = done(&["backup", "--url", server.url(), "--to", "nightly"]);
    assert!(said.contains("backup ") && said.contains("copied now"), "{said}");
    write(&server, 50..80);
    done(&["backup", "--url", server.url(), "--to", &to]);
    write(&server, 80..100);
    let names = done(&["restore", "--from", &to, "--list"]);
    let names: Vec<&str> = names.lines().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    done(&["restore", "--from", &to, "--data", &restored]);
    done(&["restore", "--from", &to, "--data", &path("first"), "--backup", names[0]]);
    for (name, rows) in [("restored", r#"[1000,"80"]"#), ("first", r#"[1000,"50"]"#)] {
        assert!(done(&["check", "--data", &path(name)]).contains("all is well"));
        let server = TestServer::start(&folder.0.join(name), &["--no-host-metrics"]);
        let counted = count(&server);
        assert!(counted.contains(rows), "{name}: {counted}");
    }
    let (code, said) = tell(&["restore", "--from", &to, "--data", &restored]);
    assert!(code == Some(2) && said.contains("is not empty"), "{said}");
    let (code, said) = tell(&["restore", "--from", &path("nothing"), "--data", &path("new")]);
    assert!(code == Some(2) && said.contains("there is no backup"), "{said}");
    let (code, said) = tell(&["backup", "--data", &data, "--to", &to]);
    assert!(code == Some(2) && said.contains("--url"), "{said}");
    assert_eq!(server.stop().0, Some(0));
    let said = done(&["backup", "--data", &data, "--to", &to, "--keep", "1"]);
    assert!(said.contains("2 old backups were removed"), "{said}");
}

#[test]
fn check_and_inspect_tell_of_a_live_and_of_a_damaged_folder() {
    let folder = Folder::new("check");
    let data = folder.0.join("data");
    let named = data.to_str().unwrap();
    let server = TestServer::start(&data, &["--no-host-metrics"]);
    write(&server, 0..50);
    done(&["db", "create", "short", "--retention", "30d", "--url", server.url()]);
    assert!(done(&["check", "--data", named]).contains("all is well"));
    let said = done(&["inspect", "--data", named]);
    assert!(said.contains("short") && said.contains("30d") && said.contains("bytes/row"), "{said}");
    assert_eq!(server.stop().0, Some(0));
    let said = done(&["inspect", "--data", named, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    let rows: u64 = report["partitions"].as_array().unwrap().iter().map(|part| part["rows"].as_u64().unwrap()).sum();
    assert_eq!((rows, report["shards"].as_u64().is_some()), (50, true), "{said}");
    let part = files(&data.join("parts"), "part").remove(0);
    let mut bytes = fs::read(&part).unwrap();
    bytes[40] ^= 1;
    fs::write(&part, bytes).unwrap();
    let (code, said) = tell(&["check", "--data", named]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("damaged: ") && said.contains(part.to_str().unwrap()) && said.contains("at offset"),
        "{said}"
    );
    let (code, said) = tell(&["check", "--data", named, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, report["damages"].as_array().unwrap().len()), (Some(1), 1), "{said}");
    let (code, said) = tell(&["check", "--data", folder.0.join("elsewhere").to_str().unwrap()]);
    assert!(code == Some(2) && said.contains("is no data folder"), "{said}");
    assert!(!folder.0.join("elsewhere").exists());
}

#[test]
fn what_retention_took_is_listed_and_restored() {
    let folder = Folder::new("trash");
    let data = folder.0.join("data");
    let named = data.to_str().unwrap();
    let server = TestServer::start(&data, &["--no-host-metrics"]);
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let old_s = now_s - 60 * 86_400;
    done(&["db", "create", "kept", "--retention", "100d", "--url", server.url()]);
    let lines = format!("m v=1 {old_s}\nm v=2 {now_s}\n");
    assert_eq!(server.post("/write?db=kept&precision=s", lines.as_bytes()).0, 204);
    done(&["compact", "--url", server.url()]);
    done(&["db", "alter", "kept", "--retention", "10d", "--url", server.url()]);
    let (status, said) = server.post("/write?db=kept&precision=s", lines.as_bytes());
    assert!(status == 400 && said.contains("partial write: points beyond retention policy"), "{said}");
    done(&["compact", "--url", server.url()]);
    let count = |server: &TestServer| {
        let query = format!("/api/v1/query?db=kept&query=count_over_time(m_v[80d])&time={}", now_s + 1);
        server.get(&query).1
    };
    assert!(count(&server).contains(r#","1"]"#), "{}", count(&server));
    let list =
        || -> serde_json::Value { serde_json::from_str(&done(&["trash", "list", "--data", named, "--json"])).unwrap() };
    assert_eq!((list()[0]["rows"].as_u64(), list()[0]["databases"][0].as_str()), (Some(1), Some("kept")));
    assert!(server.get("/metrics").1.contains("thalweg_trash_parts 1\n"));
    let (code, said) = tell(&["trash", "restore", "--data", named]);
    assert!(code == Some(2) && said.contains("in use"), "{said}");
    assert_eq!(server.stop().0, Some(0));
    let (code, said) = tell(&["trash", "restore", "--data", named]);
    assert!(code == Some(1) && said.contains("name one of 61 d or more with --retention"), "{said}");
    let said = done(&["trash", "restore", "--data", named, "--retention", "90d"]);
    assert!(said.contains("1 part with 1 row") && said.contains("changed for it: kept"), "{said}");
    let server = TestServer::start(&data, &["--no-host-metrics"]);
    assert!(count(&server).contains(r#","2"]"#), "{}", count(&server));
    assert_eq!(list().as_array().map(Vec::len), Some(0));
}

#[test]
fn databases_are_listed_made_and_altered() {
    let folder = Folder::new("db");
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics"]);
    let db = |arguments: &[&str]| tell(&[&["db"], arguments, &["--url", server.url()]].concat());
    let (code, said) = db(&["create", "a b", "--retention", "1y", "--fold", "30d:5m", "--fold", "90d:1h"]);
    assert!(code == Some(0) && said.contains("365d") && said.contains("30d:5m,90d:1h"), "{said}");
    let (code, said) = db(&["create", "a b"]);
    assert!(code == Some(2) && said.contains("db alter"), "{said}");
    let (code, said) = db(&["alter", "other", "--retention", "1d"]);
    assert!(code == Some(2) && said.contains("db create"), "{said}");
    assert_eq!(db(&["alter", "a b", "--retention", "forever", "--no-folds"]).0, Some(0));
    let (_, said) = db(&["show", "a b"]);
    assert!(said.contains("forever") && !said.contains("5m"), "{said}");
    let (code, said) = db(&["alter", "a b", "--retention", "soon"]);
    assert!(code == Some(2) && said.contains("soon"), "{said}");
    assert!(db(&["list"]).1.contains("a b"));
}

#[test]
fn series_are_deleted_and_the_room_given_back() {
    let folder = Folder::new("delete");
    let data = folder.0.join("data");
    let server = TestServer::start(&data, &["--no-host-metrics"]);
    write(&server, 0..50);
    let selector = "m_v{host=~\"h[0-9]\"}";
    let said = done(&["delete", "--url", server.url(), "--match", selector, "--end", "1000", "--compact"]);
    assert!(said.contains("samples of 10 series deleted"), "{said}");
    assert!(count(&server).contains(r#"[1000,"40"]"#), "{}", count(&server));
    let said = done(&["inspect", "--data", data.to_str().unwrap()]);
    assert!(said.contains("40 rows") && said.contains("0 deletes pending"), "{said}");
    assert!(done(&["compact", "--url", server.url()]).contains("parts took"));
    let (code, said) = tell(&["delete", "--url", server.url(), "--match", "m_v{"]);
    assert!(code == Some(2) && said.contains("match[]"), "{said}");
    assert_eq!(server.stop().0, Some(0));
    assert!(done(&["compact", "--data", data.to_str().unwrap()]).contains("0 merges"));
}

#[test]
fn help_teaches_with_examples() {
    for command in ["check", "inspect", "compact", "backup", "restore", "rebuild", "db", "delete"] {
        let said = done(&[command, "--help"]);
        assert!(said.contains("Examples:") && said.contains(&format!("  thalweg {command} ")), "{said}");
    }
}

/// A part is removed: the server says which, goes on without it if it is told to, and warns until that is acknowledged.
#[test]
fn losses_are_refused_accepted_and_acknowledged() {
    let folder = Folder::new("losses");
    let data = folder.0.join("data");
    let flags = ["--no-host-metrics"];
    let server = TestServer::start(&data, &flags);
    write(&server, 0..50);
    // A second server is not let in, whatever happens to the file that says so.
    fs::remove_file(data.join("LOCK")).unwrap();
    let serve = ["serve", "--data", data.to_str().unwrap(), "--http", "127.0.0.1:0"];
    let (code, said) = tell(&serve);
    assert!(code == Some(2) && said.contains("is in use"), "{said}");
    assert_eq!(server.stop().0, Some(0));
    let parts = files(&data.join("parts"), "part");
    fs::remove_file(&parts[0]).unwrap();
    let (code, said) = tell(&serve);
    let names = parts[0].to_str().unwrap();
    assert!(code == Some(2) && said.contains(names) && said.contains("--accept-loss"), "{said}");
    let postgres = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let accepting = ["--no-host-metrics", "--accept-loss", "--postgres", &postgres.to_string()];
    let server = TestServer::start(&data, &accepting);
    let counted = count(&server);
    assert!(counted.contains("\"warnings\"") && counted.contains(names), "{counted}");
    let elsewhere = server.get("/api/v1/query?query=sum(count_over_time(m_v[1m]))&time=9000").1;
    assert!(!elsewhere.contains("warnings"), "{elsewhere}");
    let url = server.url().to_owned();
    let has_header = |path: &str| {
        let answer = support::agent().get(format!("{url}{path}")).call().unwrap();
        answer.headers().contains_key("x-thalweg-warning")
    };
    let header = || has_header("/query?q=SHOW%20DATABASES");
    assert!(header());
    // InfluxQL, SQL and plans: only responses whose times are hit.
    let mut session = PostgresSession::start(postgres);
    let hour_ns = 3_600_000_000_000_i64;
    for (is_hit, plan_range) in [(true, format!("0 {hour_ns}")), (false, format!("{hour_ns} {}", 2 * hour_ns))] {
        let plan =
            format!("/api/v1/plan?query=(-%3E%3E%20(metric%20%22m_v%22)%20(range%20{plan_range}))").replace(' ', "%20");
        assert_eq!(has_header(&plan), is_hit, "{plan}");
    }
    for (is_hit, range) in [(true, "time%20%3C%20"), (false, "time%20%3E%20")] {
        let influxql = format!("/query?db=default&q=SELECT%20v%20FROM%20m%20WHERE%20{range}9000s");
        assert_eq!(has_header(&influxql), is_hit, "{influxql}");
        let sql = format!("/sql?query=SELECT%20v%20FROM%20m%20WHERE%20{range}%271970-01-01T02:30:00Z%27");
        assert_eq!(has_header(&sql), is_hit, "{sql}");
        let comparison = if is_hit { "<" } else { ">" };
        session.query(&format!("SELECT v FROM m WHERE time {comparison} '1970-01-01T02:30:00Z'"));
        let warned = |(kind, text): &(u8, String)| *kind == b'N' && text.contains("01000") && text.contains(names);
        assert_eq!(session.until_ready().iter().any(warned), is_hit, "{comparison}");
    }
    assert!(done(&["losses", "--url", &url]).contains(names));
    assert!(done(&["losses", "--url", &url, "--acknowledge"]).contains("1 loss acknowledged"));
    assert!(!header() && !count(&server).contains("warnings"));
    assert_eq!(server.stop().0, Some(0));
    drop(TestServer::start(&data, &flags));
}

/// What the log holds for a receiver that no configuration names any more is listed, warned of, and given up when an operator says so.
#[test]
fn receivers_that_are_gone_are_listed_and_removed() {
    let folder = Folder::new("cursors");
    let (data, file) = (folder.0.join("data"), folder.0.join("prometheus.yml"));
    fs::write(&file, "remote_write: [{url: 'http://127.0.0.1:9/write', name: gone}]\n").unwrap();
    let server = TestServer::start(&data, &["--no-host-metrics", "--prometheus", file.to_str().unwrap()]);
    write(&server, 0..5);
    let listed = done(&["cursors", "--url", server.url()]);
    assert!(
        listed.starts_with("forward/gone: ") && listed.contains("1 cursor") && !listed.contains("no configuration"),
        "{listed}"
    );
    let (code, said) = tell(&["cursors", "--url", server.url(), "--remove", "forward/gone"]);
    assert!(code == Some(2) && said.contains("take it out of remote_write"), "{said}");
    assert_eq!(server.stop().0, Some(0));
    let server = TestServer::start(&data, &["--no-host-metrics"]);
    let listed = done(&["cursors", "--url", server.url()]);
    assert!(listed.contains("forward/gone: ") && listed.contains("no configuration names its receiver"), "{listed}");
    let (code, said) = tell(&["cursors", "--url", server.url(), "--remove", "forward/other"]);
    assert!(code == Some(2) && said.contains("no cursor"), "{said}");
    let (code, said) = server.stop();
    assert!(code == Some(0) && said.contains("the log is held for forward/gone"), "{said}");
    assert!(done(&["cursors", "--data", data.to_str().unwrap(), "--remove", "forward/gone"]).contains("0 cursors"));
}

#[test]
fn a_folder_without_a_manifest_is_repaired() {
    let folder = Folder::new("repair");
    let data = folder.0.join("data");
    let path = data.to_str().unwrap();
    let flags = ["--no-host-metrics"];
    let server = TestServer::start(&data, &flags);
    write(&server, 0..50);
    assert_eq!(server.stop().0, Some(0));
    for name in ["MANIFEST", "MANIFEST.twin"] {
        fs::remove_file(data.join(name)).unwrap();
    }
    let (code, said) = tell(&["serve", "--data", path, "--http", "127.0.0.1:0"]);
    assert!(code == Some(2) && said.contains("thalweg repair"), "{said}");
    assert!(done(&["repair", "--data", path, "--dry-run"]).contains("nothing was changed"));
    assert!(done(&["repair", "--data", path]).contains("with 50 rows"));
    assert!(done(&["repair", "--data", path]).contains("nothing to repair"));
    let server = TestServer::start(&data, &flags);
    let counted = count(&server);
    assert!(counted.contains(r#"[1000,"50"]"#), "{counted}");
    assert!(done(&["repair", "--data", path, "--list"]).contains("0 files in lost+found"));
}
