//! The program as its users run it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::Write;

use support::{Folder, TestServer, run, text};

#[test]
fn a_second_start_on_the_same_folder_names_the_first() {
    let folder = Folder::new("lock");
    let server = TestServer::start(&folder.0, &["--no-host-metrics"]);
    let second = run(&["serve", "--http", "127.0.0.1:0", "--data", folder.0.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(2));
    let message = text(&second.stderr);
    assert!(message.contains(&format!("lock held by pid {}", server.pid())), "{message}");
    assert_eq!(server.get("/ready").0, 200, "the first goes on");
}

#[test]
fn a_clean_stop_leaves_nothing_to_replay() {
    let folder = Folder::new("stop");
    let server = TestServer::start(&folder.0, &["--no-host-metrics"]);
    assert_eq!(server.post("/write", b"m v=1 1000000000").0, 204);
    let (code, errors) = server.stop();
    assert_eq!(code, Some(0), "{errors}");
    let server = TestServer::start(&folder.0, &["--no-host-metrics"]);
    assert!(server.get("/metrics").1.contains("\nthalweg_head_rows 0\n"));
    assert!(server.get("/api/v1/query?query=m_v&time=1").1.contains(r#"[1,"1"]"#));
}

#[test]
fn settings_errors_say_what_and_where() {
    let folder = Folder::new("settings");
    let file = folder.file("thalweg.toml", b"hhtp = \"127.0.0.1:0\"");
    let output = run(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("unknown field `hhtp`") && message.contains("thalweg.toml"), "{message}");
    let output = run(&["serve", "--http", "nowhere", "--data", folder.0.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("\"nowhere\" is not an address"));
    assert!(text(&run(&["--help"]).stdout).contains("Examples:"));
}

#[test]
fn import_of_every_format_and_query_in_every_form() {
    let folder = Folder::new("import");
    let data = folder.0.join("data");
    let server = TestServer::start(&data, &["--no-host-metrics"]);
    let lines = folder.file("samples.lp", b"cpu,host=a usage=1 60\nbad line here=\ncpu,host=a usage=3 120\n");
    let readings = folder.file(
        "weather.csv",
        b"time,station,temperature\n1970-01-01T00:01:00Z,north,11.5\nsoon,north,1\n1970-01-01T00:02:00Z,south,9\n",
    );
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"up 1 60000\n").unwrap();
    let scrape = folder.file("scrape.prom.gz", &packed.finish().unwrap());
    let import = |file: &std::path::Path, flags: &[&str]| {
        let arguments = [&["import", "--url", server.url(), file.to_str().unwrap()], flags].concat();
        let output = run(&arguments);
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = import(&lines, &["--precision", "s", "--batch-bytes", "30"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("3 lines sent, 1 refused") && said.contains("line 2: "), "{said}");
    let (code, said) = import(&readings, &["--tag", "station"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("line 3: "), "{said}");
    let (code, said) = import(&scrape, &[]);
    assert_eq!(code, Some(0), "{said}");

    let query = |flags: &[&str]| {
        let output = run(&[&["query", "--url", server.url()], flags].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(
        query(&["weather_temperature", "--time", "130", "--format", "csv"]),
        "time,__name__,station,value\n130,weather_temperature,north,11.5\n130,weather_temperature,south,9\n"
    );
    let table = query(&["cpu_usage", "--time", "60"]);
    assert!(table.contains("1970-01-01T00:01:00Z") && table.contains("host"), "{table}");
    let plot = query(&["cpu_usage", "--start", "60", "--end", "120", "--step", "10s", "--format", "plot"]);
    assert!(plot.contains("cpu_usage{host=\"a\"}  min 1 max 3 last 3"), "{plot}");
    assert!(query(&["up", "--time", "60", "--format", "json"]).contains("\"vector\""));
    let output = run(&["query", "--url", server.url(), "sum("]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("invalid parameter"), "{}", text(&output.stderr));
    let output = run(&["query", "--url", "http://127.0.0.1:1", "up"]);
    assert!(text(&output.stderr).contains("is `thalweg serve` running there?"));
}

#[test]
fn a_small_benchmark_reports_what_it_wrote() {
    let output = run(&["bench", "load", "--scale", "2", "--days", "0.01", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["rows"].as_u64(), report["values"].as_u64()), (Some(172), Some(1720)));
    assert!(report["part_bytes"].as_u64().unwrap() > 0, "{report}");
}
