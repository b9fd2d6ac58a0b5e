//! Regular databases over HTTP: the guide's commands, and what is refused.

use crate::harness::Running;

/// Words of a command as a shell takes them apart, with single quotes alone.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut quoted = false;
    for part in command.split('\'') {
        if quoted {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
        quoted = !quoted;
    }
    words
}

/// Runs a command of curl; its answer.
fn curl(server: &Running, command: &str) -> String {
    let words = words(command);
    assert_eq!(words[0], "curl");
    let body = words.iter().position(|word| word == "-d").map(|place| words[place + 1].as_str());
    let path = words.last().unwrap().strip_prefix("http://127.0.0.1:7780").unwrap();
    match body {
        Some(body) => server.post(path, body).body,
        None => server.get(path).body,
    }
}

#[test]
fn the_guides_commands_give_what_it_says() {
    let server = Running::start();
    assert_eq!(run_guide(&server, "dns", include_str!("../../../../docs/guide/epochs.md")), 18, "blocks of the guide");
}

/// Runs a guide's commands of curl and statements of SQL, and looks for what its comments say in the answers; returns how many there are.
pub(crate) fn run_guide(server: &Running, database: &str, guide: &str) -> usize {
    let (mut language, mut checked) = (None, 0);
    let (mut command, mut answer) = (String::new(), String::new());
    for line in guide.lines() {
        match (line, language) {
            ("```sh", _) => language = Some("# "),
            ("```sql", _) => language = Some("-- "),
            ("```", _) => {
                assert!(command.is_empty(), "without an end: {command}");
                language = None;
            }
            (line, Some(comment)) if line.starts_with(comment) => {
                if !command.is_empty() {
                    answer = curl(server, &std::mem::take(&mut command));
                }
                assert!(answer.contains(&line[comment.len()..]), "{line}: {answer}");
                checked += 1;
            }
            (line, Some("-- ")) => {
                command.push_str(line);
                if line.ends_with(';') {
                    let found = server.post(&format!("/sql?db={database}"), &*std::mem::take(&mut command));
                    assert_eq!(found.status, 200, "{line}: {}", found.body);
                    answer = found.body;
                }
            }
            (line, Some(_)) => {
                command.push_str(line);
                command.push('\n');
            }
            _ => {}
        }
    }
    checked
}

#[test]
fn what_exists_is_refused_and_the_rest_written() {
    let server = Running::start();
    let path = "/api/v1/admin/databases/dns";
    let body = r#"{"interval":"1m","value":"float","missing":0,"overwrite":"refuse","retention":"1y"}"#;
    let answer = server.send("PUT", path, &[], body);
    let shown = r#""interval":"1m","missing":"0","name":"dns","overwrite":"refuse","retention":"365d","start":"1970-01-01T00:00:00"#;
    assert!(answer.status == 200 && answer.body.contains(shown), "{}", answer.body);
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let to = format!("/api/v1/epoch?db=dns&time={now_s}");
    assert_eq!(server.post(&to, "a,1.5\nb,2").status, 200);
    let refused = server.post(&to, "a,1\nb,2\nc,3");
    assert_eq!(refused.status, 409);
    for part in ["1 values were refused, 1 written", r#"\"a\" has the value 1.5 in the epoch"#] {
        assert!(refused.body.contains(part), "{}", refused.body);
    }
    let read = server.get(&format!("/api/v1/epoch/values?db=dns&time={now_s}"));
    assert!(read.body.contains(r#""names":["a","b","c"],"values":[1.5,2,3]"#), "{}", read.body);
    let binary = server.get_bytes(&format!("/api/v1/epoch/values?db=dns&time={now_s}&format=binary"));
    let body =
        binary.windows(8).position(|window| window == b"THWGEPB1").map(|start| binary[start..].to_vec()).unwrap();
    let later = format!("/api/v1/epoch?db=dns&time={}", now_s - 60);
    let answer = server.post(&later, body);
    assert!(answer.body.contains(r#""written":3"#), "{}", answer.body);
}

#[test]
fn errors_say_what_to_do() {
    let server = Running::start();
    server.write("cpu,host=a v=1 1000");
    assert_eq!(server.post("/sql", "CREATE DATABASE dns WITH (interval = '5m')").status, 200);
    for (path, body, status, part) in [
        ("/api/v1/epoch?db=default&time=1", "a,1", 400, "is not regular: CREATE DATABASE default WITH"),
        ("/api/v1/epoch?db=dns", "a,1", 400, "invalid parameter \\\"time\\\": it is missing"),
        ("/api/v1/epoch?db=dns&time=1", "a", 400, "CSV: line 1: expected a name, a comma and a value"),
        ("/api/v1/epoch?db=dns&time=1", "a,1.5", 400, "integers (value = int), and 1.5 is none"),
        ("/api/v1/epoch?db=dns&time=2100-01-01T00:00:00Z", "a,1", 400, "ahead of the clock"),
        ("/api/v1/epoch/remove?db=dns&time=1", "a", 400, "is not valid at 1970-01-01T00:00:00Z"),
        ("/write?db=dns", "cpu v=1 1000", 400, "this database is regular"),
        ("/sql?db=dns", "ALTER DATABASE dns SET interval = '1m'", 400, "cannot change: make another one"),
        (
            "/sql?db=dns",
            "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1 hour', time) AS b, max(value) AS m FROM dns GROUP BY b",
            400,
            "views of regular databases",
        ),
        ("/sql", "CREATE DATABASE x WITH (missing = 0)", 400, "add interval"),
        ("/sql", "CREATE DATABASE x WITH (interval = '5m', folds = '1d:1h')", 400, "is not folded"),
    ] {
        let answer = server.post(path, body);
        assert!(
            answer.status == status && answer.body.contains(part),
            "{path} {body}: {} {}",
            answer.status,
            answer.body
        );
    }
    for (path, status, part) in [
        ("/api/v1/epoch/values?db=dns&name=a", 404, "has no series"),
        ("/api/v1/epoch/values?db=dns", 400, "say name="),
        ("/api/v1/epoch/top?db=dns&by=min", 400, "it is sum or max"),
    ] {
        let answer = server.get(path);
        assert!(answer.status == status && answer.body.contains(part), "{path}: {} {}", answer.status, answer.body);
    }
}
