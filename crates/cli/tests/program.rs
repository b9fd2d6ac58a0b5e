//! The program as its users run it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fmt::Write as _;
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
fn import_of_what_others_export() {
    let folder = Folder::new("exports");
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics"]);
    let import = |name: &str, content: &str, flags: &[&str]| {
        let file = folder.file(name, content.as_bytes());
        let output = run(&[&["import", "--url", server.url(), file.to_str().unwrap()], flags].concat());
        (output.status.code(), text(&output.stderr))
    };
    let value = |query: &str| {
        let output = run(&["query", "--url", server.url(), query, "--time", "1700000000", "--format", "csv"]);
        text(&output.stdout).lines().nth(1).map(|line| line.rsplit(',').next().unwrap().to_owned())
    };
    let prometheus = ["--format", "prometheus"];
    let (code, said) =
        import("dump.om.txt", "om{a=\"b\"} 1 1700000000.000\nom{a=\"b\"} 2 1700000000.5\n# EOF\n", &prometheus);
    assert!(code == Some(0) && value("om{a=\"b\"}").as_deref() == Some("1"), "{said}");
    let (code, said) = import("whole.txt", "whole 3 1700000000\n# EOF\n", &prometheus);
    assert!(code == Some(0) && value("whole").as_deref() == Some("3"), "{said}");
    let (code, said) = import("dump.txt", "{__name__=\"dumped\", a=\"b\"} 4 1700000000000\n", &prometheus);
    assert!(code == Some(0) && value("dumped{a=\"b\"}").as_deref() == Some("4"), "{said}");
    let (code, said) = import("text.prom", "plain 5 1700000000000\n", &[]);
    assert!(code == Some(0) && value("plain").as_deref() == Some("5"), "{said}");
    let json = r#"{"metric":{"__name__":"lines","a":"b"},"values":[6],"timestamps":[1700000000000]}"#;
    let (code, said) = import("lines.txt", &format!("{json}\n{{}}\n"), &["--format", "json"]);
    assert!(code == Some(1) && said.contains("2 lines sent, 1 refused") && said.contains("line 2: "), "{said}");
    assert_eq!(value("lines{a=\"b\"}").as_deref(), Some("6"));
}

#[test]
fn an_import_that_is_interrupted_says_how_far_it_came() {
    let folder = Folder::new("interrupted");
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics"]);
    let mut child = std::process::Command::new(support::PROGRAM)
        .args(["import", "-", "--batch-bytes", "20", "--url", server.url()])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than is read at once, so that the first lines are on their way while the program waits for more.
    let comment = format!("#{}\n", "x".repeat(1 << 20));
    input.write_all(format!("m v=1 1\nm v=2 2\nm v=3 3\n{}", comment.repeat(2)).as_bytes()).unwrap();
    let started = std::time::Instant::now();
    while !server.get("/api/v1/query?query=m_v&time=1").1.contains(r#""3""#) {
        assert!(started.elapsed().as_secs() < 20, "nothing came");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // What the program said first tells that it has seen the signal.
    let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("Ctrl-C again ends at once") {
        assert!(std::io::BufRead::read_line(&mut errors, &mut said).unwrap() > 0, "{said}");
    }
    drop(input);
    std::io::Read::read_to_string(&mut errors, &mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("lines sent, 0 refused") && said.contains("is next"), "{said}");
}

#[test]
fn commands_have_manners() {
    let folder = Folder::new("manners");
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics", "--body-bytes-max", "1MiB"]);
    assert_eq!(server.post("/write", b"m,host=a v=1\nm,host=b v=2").0, 204);
    let short = server.url().strip_prefix("http://").unwrap();
    let tell = |arguments: &[&str]| {
        let output = run(&[arguments, &["--url", short]].concat());
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    for time in ["now", "-0s", "now+1s"] {
        let (code, said) = tell(&["query", "sum(m_v)", "--time", time, "--format", "csv"]);
        assert!(code == Some(0) && said.ends_with(",3\n"), "{time}: {said}");
    }
    let (code, said) = tell(&["query", "sum(m_v)", "--start", "-1h", "--end", "now", "--format", "json"]);
    assert!(code == Some(0) && said.contains("matrix"), "{said}");
    let (code, said) = tell(&["query", "m_v", "--db", "defualt"]);
    assert!(code == Some(2) && said.contains("there is no database \"defualt\"; there are: default"), "{said}");

    let (code, said) = tell(&["delete", "--match", "{host=~\".+\"}", "--dry-run"]);
    assert!(code == Some(0) && said.contains("samples of 2 series would be deleted"), "{said}");
    let (code, said) = tell(&["delete", "--match", "{host=~\".+\"}"]);
    assert!(code == Some(2) && said.contains("this deletes all 2 series of database \"default\"; say --yes"), "{said}");
    let (code, said) = tell(&["delete", "--match", "{host=\"a\"}"]);
    assert!(code == Some(0) && said.contains("samples of 1 series deleted"), "{said}");
    let (code, said) = tell(&["delete", "--match", "m_v", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(tell(&["query", "m_v", "--format", "csv"]).1.trim(), "time,value");

    let (_, said) = tell(&["db", "list", "--json"]);
    assert!(said.starts_with("[{") && said.contains(r#""name":"default""#), "{said}");
    let (_, said) = tell(&["db", "show", "default", "--json"]);
    assert!(said.starts_with('{') && said.contains(r#""retention":"forever""#), "{said}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(support::PROGRAM).args(["db", "--help"]).stdout(Stdio::null()).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    let folder = Folder::new("pipe");
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let query = ["query", "vector(1)", "--url", server.url()];
    let output = Command::new(support::PROGRAM).args(query).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn an_export_of_influxdb_goes_to_the_databases_that_it_names() {
    let folder = Folder::new("import-context");
    let server = TestServer::start(&folder.0.join("data"), &[]);
    let export = "# INFLUXDB EXPORT: 1677-09-21T00:12:43Z - 2262-04-11T23:47:16Z\n# DDL\nCREATE DATABASE empty WITH NAME autogen\n\
                  CREATE DATABASE one WITH NAME autogen\n# DML\n# CONTEXT-DATABASE:one\n# CONTEXT-RETENTION-POLICY:autogen\n\
                  # writing tsm data\nm v=1 1000000000\n# CONTEXT-DATABASE: two\nm v=2 1000000000\nm v=3 bad\n";
    let file = folder.file("export.lp", export.as_bytes());
    let output = run(&["import", "--url", server.url(), file.to_str().unwrap()]);
    assert!(text(&output.stderr).contains("  line 12: "), "{}", text(&output.stderr));
    for (database, value) in [("one", 1), ("two", 2)] {
        let (_, found) = server.get(&format!("/api/v1/query?db={database}&time=1&query=m_v"));
        assert!(found.contains(&format!(r#""value":[1,"{value}"]"#)), "{database}: {found}");
    }
    let (_, databases) = server.get("/query?q=SHOW%20DATABASES");
    assert!(databases.contains("empty"), "{databases}");
}

#[test]
fn import_keeps_strings_of_several_lines_whole() {
    let folder = Folder::new("strings");
    let server = TestServer::start(&folder.0.join("data"), &["--no-host-metrics"]);
    // With batches this small a cut at every line end would go through the strings.
    let line = |second: u64| format!("note,host=a text=\"first\nsecond, \\\"quoted\\\"\nthird\",n={second} {second}\n");
    let lines = (1..=50).map(line).collect::<String>();
    let file = folder.file("notes.lp", (lines + "bad line here=\n").as_bytes());
    let flags = ["--precision", "s", "--batch-bytes", "20"];
    let output = run(&[&["import", "--url", server.url(), file.to_str().unwrap()], &flags[..]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("151 lines sent, 1 refused") && said.contains("line 151: "), "{said}");
    let (_, body) = server.get("/api/v1/query?query=count_over_time(note_n[1m])&time=50");
    assert!(body.contains(r#"[50,"50"]"#), "{body}");
}

#[test]
fn the_readme_works_when_pasted() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let readme = std::fs::read_to_string(format!("{root}/README.md")).unwrap();
    let (_, part) = readme.split_once("## Five minutes").unwrap();
    let (part, _) = part.split_once("\n## ").unwrap();
    let blocks = part.split("```sh\n").skip(1).map(|block| block.split_once("```").unwrap().0);
    // The shell that a test has knows no aliases: a function stands in.
    let commands: String = blocks.filter(|block| !block.starts_with("alias ")).collect();
    assert!(commands.matches("thalweg ").count() >= 5 && commands.contains("curl "), "{commands}");
    let folder = Folder::new("readme");
    let server = TestServer::start(&folder.0, &["--no-host-metrics"]);
    let script = commands.replace("http://127.0.0.1:7780", server.url());
    let output = std::process::Command::new("sh")
        .args(["-ec", &format!("thalweg() {{ \"$PROGRAM\" \"$@\"; }}\n{script}")])
        .envs([("PROGRAM", support::PROGRAM), ("THALWEG_URL", server.url())])
        .current_dir(root)
        .output()
        .unwrap();
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{said}");
    for expected in ["204 No Content", "21.5", "{station=\"north\"}  min ", "time,__name__,station,value"] {
        assert!(out.contains(expected), "{expected:?} is missing in:\n{out}{said}");
    }
    assert!(said.contains("river.lp: ") && said.contains("weather.csv: ") && !said.contains(" 1 refused"), "{said}");
}

#[test]
fn a_small_benchmark_reports_what_it_wrote() {
    let output = run(&["bench", "load", "--scale", "2", "--days", "0.01", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["rows"].as_u64(), report["values"].as_u64()), (Some(172), Some(1720)));
    assert!(report["part_bytes"].as_u64().unwrap() > 0, "{report}");
    let output =
        run(&["bench", "load", "--scale", "2", "--days", "0.01", "--use-case", "devops", "--settle", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["rows"].as_u64(), report["values"].as_u64()), (Some(172 * 9), Some(172 * 101)));
    assert!(report["restart_after_kill_seconds"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn a_benchmark_of_scraping_reports_what_is_stored() {
    let flags = [
        "--targets",
        "3",
        "--series",
        "40",
        "--interval-s",
        "1",
        "--seconds",
        "3",
        "--rules",
        "20",
        "--gzip",
        "--json",
    ];
    let output = run(&[&["bench", "scrape"], &flags[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let measured = &report["programs"][0];
    assert_eq!((measured["program"].as_str(), measured["has_rules"].as_bool()), (Some("thalweg"), Some(true)));
    // A machine with much to do may miss some.
    let samples_per_second = measured["samples_per_second"].as_f64().unwrap();
    assert!(samples_per_second > 0.0 && samples_per_second <= 120.0, "{report}");
    assert!(
        measured["scrapes_served"].as_u64().unwrap() > 0 && measured["resident_peak_bytes"].as_u64().unwrap() > 0,
        "{report}"
    );
}

#[test]
fn hostile_queries_are_told_their_limit_and_others_go_on() {
    let folder = Folder::new("hostile");
    let flags = ["--no-host-metrics", "--query-samples-max", "2000", "--query-timeout-ms", "5000"];
    let server = TestServer::start(&folder.0, &flags);
    let mut rows = String::new();
    for row in 0..2000_i64 {
        writeln!(rows, "x,host=h{} value={row} {}", row % 50, row * 1_000_000_000).unwrap();
    }
    assert_eq!(server.post("/write", rows.as_bytes()).0, 204);
    let nested = |head: &str, tail: &str, depth: usize| format!("{}x{}", head.repeat(depth), tail.repeat(depth));
    let label_bomb = nested("label_replace(", ", \"host\", \"$1$1\", \"host\", \"(.*)\")", 60);
    let ask = |path: &str, query: &str| {
        let mut address = format!("/api/v1/{path}nocache=1&query=");
        query.bytes().for_each(|byte| write!(address, "%{byte:02X}").unwrap());
        server.get(&address)
    };
    for (path, query, status, told) in [
        ("query?time=2000&", "x{host=~\"((a{100}){100}){100}\"}", 400, "too large"),
        ("query?time=2000&", "max_over_time(x[2000000s:1ms])", 422, "steps_max"),
        ("query_range?start=0&end=2000&step=0.001&", "x", 400, "maximum resolution"),
        ("query_range?start=0&end=2000&step=1&", "x", 422, "the limit is 2000 (query_samples_max)"),
        ("query?time=2000&", "count_values(\"v\", quantile_over_time(0.5, x[2000s:1s]))", 422, "query_samples_max"),
        ("query?time=2000&", nested("abs(", ")", 2000).as_str(), 400, "nests deeper"),
        ("query?time=2000&", label_bomb.as_str(), 422, "the limit is 65536"),
        ("query?time=2000&", "x * on () x", 422, "many-to-many matching not allowed"),
    ] {
        let (found, body) = ask(path, query);
        assert_eq!(found, status, "{body}");
        assert!(body.contains(told) && body.len() < 2000, "{body}");
    }
    let (status, body) = ask("query?time=2000&", "count(x)");
    assert!(status == 200 && body.contains("\"50\""), "{body}");
}

#[test]
fn queries_are_explained() {
    let folder = Folder::new("explain");
    let server = TestServer::start(&folder.0, &["--no-host-metrics"]);
    assert_eq!(server.post("/write", b"m v=1 1000000000").0, 204);
    let explain = |how: &str| {
        let output = run(&["query", "--url", server.url(), "sum(m_v)", "--time", "1", "--explain", how]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let plan = explain("plan");
    assert!(plan.starts_with("(promql \"sum(m_v)\"\n  (at 1000000000)\n  (sum\n    (newest 5m\n"), "{plan}");
    let analyzed = explain("analyze");
    for line in ["; scan: 1 series, 1 rows, ", "; sum: 1 series, 1 rows, ", "; from head: 0 chunks, 1 rows, 0 bytes"] {
        assert!(analyzed.contains(line), "{analyzed}");
    }
}

#[test]
fn metrics_and_service_discovery_are_checked() {
    let folder = Folder::new("check-more");
    let metrics = |text: &str| {
        let child = std::process::Command::new(support::PROGRAM)
            .args(["check", "metrics"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), support::text(&output.stdout))
    };
    assert_eq!(metrics("# HELP a A.\n# TYPE a gauge\na 1\n"), (Some(0), String::new()));
    assert_eq!(metrics("a_ms 1\n").0, Some(3));
    assert_eq!(metrics("a{ 1\n").0, Some(1));

    let list = folder.file("targets.json", br#"[{"targets":["a:1","b:2"],"labels":{"x":"y"}}]"#);
    let config = format!(
        "scrape_configs:\n- job_name: j\n  file_sd_configs: [{{files: ['{}']}}]\n  \
         relabel_configs: [{{source_labels: [__address__], regex: 'b:.*', action: drop}}]\n",
        list.display()
    );
    let config = folder.file("prometheus.yml", config.as_bytes());
    let discover = |job: &str| run(&["check", "service-discovery", config.to_str().unwrap(), job]);
    let output = discover("j");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found.as_array().unwrap().len(), 2, "{found}");
    assert_eq!(found[0]["labels"], serde_json::json!({ "instance": "a:1", "job": "j", "x": "y" }));
    assert_eq!(found[1]["labels"], serde_json::json!({}));
    assert_eq!(found[1]["discoveredLabels"]["__address__"], "b:2");
    let output = discover("none");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("has no job \"none\"; it has j"));
}

#[test]
fn a_prometheus_yml_is_checked_run_and_read_again() {
    let folder = Folder::new("prometheus");
    let targets = folder.file("targets.json", b"[]");
    let job = |name: &str| {
        format!(
            "- job_name: {name}\n  scrape_interval: 1s\n  file_sd_configs: [{{files: ['{}']}}]\n",
            targets.display()
        )
    };
    let good = folder.file("good.yml", format!("scrape_configs:\n{}", job("first")).as_bytes());
    let bad = folder.file("bad.yml", b"scrape_configs:\n- job_nam: x\n");
    let disabled = folder.file("disabled.yml", b"scrape_configs:\n- job_name: x\n  nomad_sd_configs: [{}]\n");
    let secret = folder.file("secret.yml", b"scrape_configs:\n- job_name: x\n  bearer_token_file: /nowhere/token\n");
    for (arguments, code, part) in [
        (vec![&good], 0, "SUCCESS"),
        (vec![&good, &bad], 1, "bad.yml:2:3: unknown field job_nam: did you mean job_name?"),
        (vec![&disabled], 1, "the job \"x\" does not run: nomad_sd_configs is not built in"),
        (vec![&secret], 1, "/nowhere/token does not exist"),
    ] {
        let paths = arguments.iter().map(|path| path.to_str().unwrap());
        let output = run(&["check", "config"].into_iter().chain(paths).collect::<Vec<_>>());
        let told = text(&output.stdout);
        assert_eq!((output.status.code(), told.contains(part)), (Some(code), true), "{told}");
    }
    assert!(run(&["check", "config", "--syntax-only", secret.to_str().unwrap()]).status.success());
    let data = folder.0.join("data");
    let refused = run(&["serve", "--data", data.to_str().unwrap(), "--prometheus", bad.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("did you mean job_name?"));
    let server = TestServer::start(&data, &["--no-host-metrics", "--prometheus", good.to_str().unwrap()]);
    // It scrapes itself.
    let address = server.url().trim_start_matches("http://").to_owned();
    folder.file("targets.json", format!("[{{\"targets\": [\"{address}\"]}}]").as_bytes());
    folder.file("good.yml", format!("scrape_configs:\n{}{}", job("first"), job("second")).as_bytes());
    let pid = rustix::process::Pid::from_raw(server.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    for job in ["first", "second"] {
        let path = format!("/api/v1/query?query=up%7Bjob%3D%22{job}%22%7D");
        let mut tries = 0;
        while !server.get(&path).1.contains(",\"1\"]") {
            tries += 1;
            assert!(tries < 300, "{job}: {}", server.get("/api/v1/targets").1);
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
    let (code, errors) = server.stop();
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("the configuration was reloaded"), "{errors}");
}
