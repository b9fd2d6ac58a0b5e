//! Who gets in: every route with no, wrong, expired, revoked, narrow and right credentials, over real sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::{Answer, Running};

/// A server that clients have to sign in to, and its administrator's token.
pub(crate) struct Guarded {
    pub(crate) server: Running,
    pub(crate) admin: String,
}

/// What a client signs in with.
type Headers<'a> = Vec<(&'a str, String)>;

impl Guarded {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub(crate) fn start_with(change: impl FnOnce(&mut thalweg_server::ServerSettings)) -> Self {
        let server = Running::start_with(|settings| {
            settings.sign_in_required = true;
            change(settings);
        });
        let path = server.db.directory().join("admin-token");
        let admin = std::fs::read_to_string(&path).unwrap().trim().to_owned();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let guarded = Self { server, admin };
        for database in ["metrics", "other"] {
            let rows = format!("m,env=prod v=1 1000000000\nm,env=dev v=2 1000000000\n{database}_only v=3 1000000000");
            assert_eq!(guarded.ask("POST", &format!("/write?db={database}"), Some(&guarded.admin), &rows).status, 204);
        }
        guarded
    }

    pub(crate) fn ask(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> Answer {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        self.server.send(method, path, &headers, body)
    }

    /// Makes a token with these grants.
    pub(crate) fn token(&self, name: &str, body: &str) -> String {
        let made = self.ask("PUT", &format!("/api/v1/admin/accounts/{name}"), Some(&self.admin), body);
        assert_eq!(made.status, 200, "{}", made.body);
        assert_eq!(made.header("cache-control"), "no-store");
        let parsed: serde_json::Value = serde_json::from_str(&made.body).unwrap();
        parsed["data"]["token"].as_str().unwrap_or_default().to_owned()
    }

    fn get(&self, path: &str, token: &str) -> Answer {
        self.ask("GET", path, Some(token), "")
    }
}

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"];

/// The same path in other spellings.
fn spellings(path: &str) -> Vec<String> {
    let encoded: String =
        path.bytes().map(|byte| if byte == b'q' { "%71".to_owned() } else { char::from(byte).to_string() }).collect();
    vec![path.to_owned(), format!("/{path}"), format!("{path}/"), format!("/.{path}"), encoded]
}

fn concrete(path: &str) -> String {
    path.replace("{name}", "other").replace("{id}", "1")
}

#[test]
fn without_a_right_token_no_route_gives_anything() {
    let guarded = Guarded::start();
    let expired = guarded.token("expired", r#"{"server_admin":true,"expires":"1ms"}"#);
    let started = Instant::now();
    while guarded.get("/metrics", &expired).status == 200 {
        assert!(started.elapsed() < Duration::from_secs(10), "it does not expire");
    }
    let revoked = guarded.token("revoked", r#"{"server_admin":true}"#);
    assert_eq!(guarded.ask("DELETE", "/api/v1/admin/accounts/revoked", Some(&guarded.admin), "").status, 204);
    let (most, last) = guarded.admin.split_at(guarded.admin.len() - 1);
    let wrong = format!("{most}{}", if last == "A" { "B" } else { "A" });
    let mut failures = 0;
    for (path, need) in thalweg_server::route_needs() {
        for spelling in spellings(&concrete(path)) {
            for method in METHODS {
                for token in [None, Some(&wrong), Some(&expired), Some(&revoked)] {
                    let answer = guarded.ask(method, &spelling, token.map(String::as_str), "");
                    // After some failures the address waits.
                    let is_refused = [401, 429].contains(&answer.status);
                    failures += usize::from(is_refused);
                    let is_harmless = need == "nothing" || answer.status == 404 && token.is_none();
                    assert!(is_refused || is_harmless, "{method} {spelling}: {} {}", answer.status, answer.body);
                    assert!(!answer.body.contains("other_only"), "{spelling}: {}", answer.body);
                }
            }
        }
    }
    assert!(failures > 1_000, "{failures}");
}

#[test]
fn each_route_needs_what_the_table_says() {
    let guarded = Guarded::start();
    let reader = guarded.token("reader", r#"{"grants":["read:metrics"]}"#);
    let writer = guarded.token("writer", r#"{"grants":["write:metrics"]}"#);
    for (path, need) in thalweg_server::route_needs() {
        let path = concrete(path);
        for method in ["GET", "POST", "PUT", "DELETE"] {
            for (who, token) in [("reader", &reader), ("writer", &writer)] {
                let answer = guarded.ask(method, &path, Some(token), "");
                assert_ne!(answer.status, 401, "{who} {method} {path}");
                if need == "server administrator" {
                    assert_eq!(answer.status, 403, "{who} {method} {path}: {}", answer.body);
                }
                assert!(!answer.body.contains("other_only"), "{who} {method} {path}: {}", answer.body);
            }
        }
    }
    assert!(guarded.get("/api/v1/admin/databases", &guarded.admin).body.contains("other"), "nothing was dropped");
}

#[test]
fn readers_read_their_databases_in_every_language_and_no_others() {
    let guarded = Guarded::start();
    let reader = guarded.token("reader", r#"{"grants":["read:metrics"]}"#);
    let writer = guarded.token("writer", r#"{"grants":["write:metrics"]}"#);
    let of = |database: &str| {
        [
            format!("/api/v1/query?db={database}&query=m_v&time=1"),
            format!("/api/v1/query_range?db={database}&query=m_v&start=1&end=2&step=1"),
            format!("/api/v1/series?db={database}&match[]=m_v"),
            format!("/api/v1/labels?db={database}"),
            format!("/api/v1/label/env/values?db={database}"),
            format!("/api/v1/export?db={database}&match[]=m_v"),
            format!("/query?db={database}&q=SELECT%20v%20FROM%20m"),
            format!("/query?q=SELECT%20v%20FROM%20{database}..m"),
            format!("/query?q=SHOW%20MEASUREMENTS%20ON%20{database}"),
            format!("/sql?db={database}&query=SELECT%20v,env%20FROM%20m"),
            format!("/exec?db={database}&query=SELECT%20v,env%20FROM%20m"),
            format!("/api/v1/plan?db={database}&query=(-%3E%3E%20(metric%20%22m_v%22))"),
            format!("/api/v1/graph?db={database}&query=m_v&start=1&end=2&step=1&format=json"),
            format!("/api/v1/status/tsdb?db={database}"),
        ]
    };
    let has_rows = |answer: &Answer| {
        answer.status == 200
            && (answer.body.contains("prod")
                || answer.body.contains("m_v")
                || answer.body.contains("\"m\"")
                || answer.body.contains("[1,")
                || answer.body.contains(",1]")
                || answer.body.contains("env"))
    };
    for path in of("metrics") {
        assert!(has_rows(&guarded.get(&path, &guarded.admin)), "{path}: {}", guarded.get(&path, &guarded.admin).body);
        assert!(has_rows(&guarded.get(&path, &reader)), "{path}: {}", guarded.get(&path, &reader).body);
        let answer = guarded.get(&path, &writer);
        assert!(!has_rows(&answer), "a writer reads {path}: {}", answer.body);
    }
    for path in of("other") {
        // Asked for by one who may, so that an answer is cached.
        assert!(has_rows(&guarded.get(&path, &guarded.admin)), "{path}");
        let unknown = path.replace("other", "nosuch");
        let (answer, missing) = (guarded.get(&path, &reader), guarded.get(&unknown, &reader));
        assert!(!has_rows(&answer), "{path}: {}", answer.body);
        let without_name = |answer: &Answer, name: &str| (answer.status, answer.body.replace(name, "NAME"));
        assert_eq!(without_name(&answer, "other"), without_name(&missing, "nosuch"), "told apart: {path}");
    }
    for path in ["/query?q=SHOW%20DATABASES", "/api/v1/admin/databases", "/sql?query=SHOW%20DATABASES"] {
        let answer = guarded.get(path, &reader);
        assert!(!answer.body.contains("other"), "{path}: {}", answer.body);
    }
}

#[test]
fn statements_need_their_rights() {
    let guarded = Guarded::start();
    let reader = guarded.token("reader", r#"{"grants":["read:metrics"]}"#);
    let writer = guarded.token("writer", r#"{"grants":["read+write:metrics"]}"#);
    let owner = guarded.token("owner", r#"{"grants":["all:metrics","all:new*"]}"#);
    let sql = |token: &str, text: &str| {
        let query: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", text)
            .append_pair("db", "metrics")
            .finish();
        guarded.ask("POST", &format!("/sql?{query}"), Some(token), "").status
    };
    let influxql = |token: &str, text: &str| {
        let query: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("q", text)
            .append_pair("db", "metrics")
            .finish();
        let answer = guarded.ask("POST", &format!("/query?{query}"), Some(token), "");
        if answer.body.contains("does not have the right") { 403 } else { answer.status }
    };
    for (token, insert, create, drop) in [(&reader, 403, 403, 403), (&writer, 200, 403, 403), (&owner, 200, 200, 200)] {
        assert_eq!(sql(token, "INSERT INTO m (time, v) VALUES ('2024-01-01', 1)"), insert);
        assert_eq!(influxql(token, "SELECT v INTO copied FROM m"), insert);
        assert_eq!(sql(token, "CREATE TABLE t (a DOUBLE PRECISION)"), create);
        assert_eq!(influxql(token, "CREATE DATABASE new"), create);
        assert_eq!(influxql(token, "CREATE DATABASE elsewhere"), 403);
        assert_eq!(sql(token, "DELETE FROM m WHERE time < '2000-01-01'"), drop);
        assert_eq!(influxql(token, "DROP MEASUREMENT copied"), drop);
        assert_eq!(influxql(token, "DROP DATABASE other"), 403);
        let deletes =
            guarded.ask("POST", "/api/v1/admin/tsdb/delete_series?db=metrics&match[]=absent", Some(token), "");
        assert_eq!(deletes.status, if drop == 200 { 204 } else { 403 });
    }
    // Those who may write alone see the columns that they write to, and nothing else.
    let write_only = guarded.token("write_only", r#"{"grants":["write:metrics"]}"#);
    assert_eq!(sql(&write_only, "INSERT INTO m (time, v) VALUES ('2024-01-01', 1)"), 200);
    assert_eq!(sql(&write_only, "INSERT INTO m (time, v) SELECT time, v FROM m"), 403);
    // Rows into a database that does not exist need the right to make it.
    let write = |token: &str, database: &str| {
        guarded.ask("POST", &format!("/write?db={database}"), Some(token), "m v=1").status
    };
    assert_eq!((write(&reader, "metrics"), write(&writer, "metrics"), write(&owner, "metrics")), (403, 204, 204));
    assert_eq!((write(&owner, "newer"), write(&owner, "elsewhere"), write(&writer, "other")), (204, 403, 403));
}

#[test]
fn labels_narrow_what_is_read_and_written() {
    let guarded = Guarded::start();
    let narrow = guarded.token("narrow", r#"{"grants":["read+write:metrics{env=\"prod\"}"]}"#);
    for path in [
        "/api/v1/query?db=metrics&query=m_v&time=1",
        "/api/v1/query?db=metrics&query={env=%22dev%22}&time=1",
        "/api/v1/query_range?db=metrics&query=m_v&start=1&end=2&step=1",
        "/api/v1/label/env/values?db=metrics",
        "/api/v1/series?db=metrics&match[]=m_v",
        "/query?db=metrics&q=SELECT%20*%20FROM%20m",
        "/query?db=metrics&q=SHOW%20TAG%20VALUES%20WITH%20KEY%20%3D%20env",
        "/query?db=metrics&q=SHOW%20SERIES",
        "/sql?db=metrics&query=SELECT%20*%20FROM%20m",
        "/sql?db=metrics&query=SELECT%20DISTINCT%20env%20FROM%20m",
        "/api/v1/plan?db=metrics&query=(-%3E%3E%20(metric%20%22m_v%22))",
        "/api/v1/graph?db=metrics&query=m_v&start=1&end=2&step=1&format=json",
        "/api/v1/export?db=metrics&match[]=m_v",
        "/federate?db=metrics&match[]=m_v",
    ] {
        // First the whole, so that it is cached; then the part; then the whole again.
        let before = guarded.get(path, &guarded.admin);
        let part = guarded.get(path, &narrow);
        assert_eq!((before.status, part.status), (200, 200), "{path}: {} {}", before.body, part.body);
        assert!(!part.body.contains("dev"), "{path}: {}", part.body);
        let after = guarded.get(path, &guarded.admin);
        assert_eq!(before.body.contains("dev"), after.body.contains("dev"), "{path}");
    }
    for (path, token, expected) in [
        ("/api/v1/query?db=metrics&query=count(m_v)&time=1", &guarded.admin, "\"2\""),
        ("/api/v1/query?db=metrics&query=count(m_v)&time=1", &narrow, "\"1\""),
        ("/sql?db=metrics&query=SELECT%20count(v)%20FROM%20m", &narrow, "1"),
        ("/query?db=metrics&q=SELECT%20count(v)%20FROM%20m", &narrow, ",1]"),
    ] {
        let answer = guarded.get(path, token);
        assert!(answer.body.contains(expected), "{path}: {}", answer.body);
    }
    // Tables without such series do not exist, whole databases are not counted.
    assert!(!guarded.get("/query?db=metrics&q=SHOW%20MEASUREMENTS", &narrow).body.contains("metrics_only"));
    assert_eq!(guarded.get("/api/v1/status/tsdb?db=metrics", &narrow).status, 403);
    // Rows of others are refused, each for itself.
    let rows = "w,env=prod v=1 1\nw,env=dev v=2 1\nw v=3 1\n";
    let written = guarded.ask("POST", "/write?db=metrics", Some(&narrow), rows);
    assert_eq!(written.status, 400);
    assert!(written.body.contains("dropped=2") && written.body.contains("these labels"), "{}", written.body);
    let inserted = guarded.ask(
        "POST",
        "/sql?db=metrics&query=INSERT%20INTO%20w%20(time,env,v)%20VALUES%20('2024-01-01','dev',1)",
        Some(&narrow),
        "",
    );
    assert_ne!(inserted.status, 200, "{}", inserted.body);
    let found = guarded.get("/api/v1/series?db=metrics&match[]=w_v&start=0&end=9e9", &guarded.admin);
    assert_eq!(found.body.matches("w_v").count(), 1, "{}", found.body);
}

#[test]
fn clients_sign_in_as_they_are_used_to() {
    let guarded = Guarded::start();
    let token = guarded.token("t", r#"{"grants":["all:metrics"]}"#);
    assert_eq!(guarded.token("alice", r#"{"password":"pass word","grants":["all:metrics"]}"#), "");
    let basic = |user: &str, password: &str| {
        use base64::Engine;
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
    };
    let path = "/query?db=metrics&q=SHOW%20MEASUREMENTS";
    for (headers, parameters, expected) in [
        (vec![("authorization", format!("Bearer {token}"))], String::new(), 200),
        (vec![("authorization", format!("Token {token}"))], String::new(), 200),
        (vec![("authorization", basic("anything", &token))], String::new(), 200),
        (vec![("x-api-key", token.clone())], String::new(), 200),
        (vec![], format!("&p={token}"), 200),
        (vec![], "&u=alice&p=pass%20word".to_owned(), 200),
        (vec![("authorization", basic("alice", "pass word"))], String::new(), 200),
        (vec![("authorization", "Token alice:pass word".to_owned())], String::new(), 200),
        (vec![("authorization", basic("alice", "password"))], String::new(), 401),
        (vec![("authorization", basic("nobody", "pass word"))], String::new(), 401),
        (
            vec![("authorization", format!("Bearer {token}")), ("authorization", format!("Bearer {token}"))],
            String::new(),
            401,
        ),
    ] as [(Headers<'_>, String, u16); 11]
    {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = guarded.server.send("GET", &format!("{path}{parameters}"), &headers, "");
        assert_eq!(answer.status, expected, "{headers:?} {parameters}: {}", answer.body);
        if expected == 401 {
            assert!(answer.header("www-authenticate").contains("earer"), "{headers:?}");
        }
    }
    // Too many failures make the address wait; a changed password counts at once.
    let wrong = basic("alice", "wrong");
    let statuses: Vec<u16> =
        (0..8).map(|_| guarded.server.send("GET", path, &[("authorization", &wrong)], "").status).collect();
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[test]
fn accounts_are_kept_and_changed_at_once() {
    let guarded = Guarded::start();
    let token = guarded.token("t", r#"{"grants":["read:metrics"]}"#);
    let path = "/api/v1/query?db=metrics&query=m_v&time=1";
    assert!(guarded.get(path, &token).body.contains("prod"));
    // A change of grants keeps the secret.
    assert_eq!(guarded.token("t", r#"{"grants":["write:metrics"]}"#), "");
    assert_eq!(guarded.get(path, &token).status, 403);
    let renewed = guarded.token("t", r#"{"renew":true,"grants":["read:metrics"]}"#);
    assert_eq!(guarded.get(path, &token).status, 401);
    assert_eq!(guarded.get(path, &renewed).status, 200);
    let listed = guarded.get("/api/v1/admin/accounts", &guarded.admin).body;
    assert!(listed.contains("\"t\"") && !listed.contains("thw_") && !listed.contains("sha256"), "{listed}");
    for (body, reason) in [
        (r#"{"grants":["see:x"]}"#, "no right"),
        (r#"{"grants":"read:x"}"#, "wrong type"),
        (r#"{"rights":[]}"#, "unknown field"),
        (r#"{"quota":{"a":1}}"#, "quota"),
        ("[", "cannot be read"),
    ] {
        let answer = guarded.ask("PUT", "/api/v1/admin/accounts/x", Some(&guarded.admin), body);
        assert!(answer.status == 400 && answer.body.contains(reason), "{body}: {}", answer.body);
    }
    assert_eq!(guarded.ask("PUT", "/api/v1/admin/accounts/a%20b", Some(&guarded.admin), "{}").status, 400);
    assert_eq!(guarded.ask("DELETE", "/api/v1/admin/accounts/x", Some(&guarded.admin), "").status, 404);
}

#[test]
fn quotas_answer_429_with_their_name() {
    let guarded = Guarded::start();
    let slow = guarded.token("slow", r#"{"grants":["all:metrics"],"quota":{"requests_per_s":1}}"#);
    let answers: Vec<Answer> = (0..60).map(|_| guarded.get("/api/v1/query?db=metrics&query=1", &slow)).collect();
    let refused = answers.iter().find(|answer| answer.status == 429).expect("a burst of ten, then one a second");
    assert!(refused.body.contains("requests_per_s") && !refused.header("retry-after").is_empty(), "{}", refused.body);
    let small = guarded.token("small", r#"{"grants":["all:metrics"],"quota":{"samples_per_s":10}}"#);
    let rows: Vec<String> = (0..60).map(|row| format!("q v={row} {row}\n")).collect();
    let rows = rows.concat();
    let statuses: Vec<u16> =
        (0..6).map(|_| guarded.ask("POST", "/write?db=metrics", Some(&small), &rows).status).collect();
    assert!(statuses.starts_with(&[204]) && statuses.contains(&429), "{statuses:?}");
    // Others have their own.
    assert_eq!(guarded.get("/api/v1/query?db=metrics&query=1", &guarded.admin).status, 200);
}

#[test]
fn lines_need_a_token_or_a_known_source() {
    let free = Some(thalweg_server::Listener { address: "127.0.0.1:0".parse().unwrap(), required: true });
    let guarded = Guarded::start_with(|settings| (settings.line, settings.graphite) = (free, free));
    let writer = guarded.token("writer", r#"{"grants":["write+create:default"]}"#);
    let send = |flag: &str, text: &str| {
        let mut stream = TcpStream::connect(guarded.server.at(flag)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        // The server closes once all is stored or refused.
        let _ = stream.read_to_end(&mut rest);
    };
    send("--line", "sneaked v=1 1\n");
    send("--line", &format!("auth {}x\nsneaked v=1 1\n", &writer[..writer.len() - 1]));
    send("--graphite", "sneaked 1 1\n");
    send("--line", &format!("auth {writer}\nsent v=1 1\nsent v=2 2\n"));
    let names = guarded.get("/api/v1/label/__name__/values", &guarded.admin).body;
    assert!(names.contains("sent_v") && !names.contains("sneaked"), "{names}");
    let guarded = Guarded::start_with(|settings| {
        settings.graphite = free;
        settings.line_sources = vec![thalweg_server::Network::parse("127.0.0.0/8").unwrap()];
    });
    let mut stream = TcpStream::connect(guarded.server.at("--graphite")).unwrap();
    stream.write_all(b"let.in 1 1\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    let names = guarded.get("/api/v1/label/__name__/values", &guarded.admin).body;
    assert!(names.contains("let_in") || names.contains("let.in"), "{names}");
}

#[test]
fn clients_of_postgres_sign_in_by_scram() {
    let free = Some(thalweg_server::Listener { address: "127.0.0.1:0".parse().unwrap(), required: true });
    let guarded = Guarded::start_with(|settings| settings.postgres = free);
    let token = guarded.token("reader", r#"{"grants":["read:metrics"]}"#);
    guarded.token("alice", r#"{"password":"pass word","grants":["read:metrics{env=\"prod\"}"]}"#);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let count = |user: &str, password: &str, database: &str| {
        let mut config = tokio_postgres::Config::new();
        let address = guarded.server.at("--postgres");
        config.host("127.0.0.1").port(address.port()).user(user).password(password).dbname(database);
        runtime.block_on(async {
            let (client, connection) =
                config.connect(tokio_postgres::NoTls).await.map_err(|error| format!("{error:?}"))?;
            let driven = tokio::spawn(connection);
            let answer = client.query_one("SELECT count(v) FROM m", &[]).await;
            let insert = client.execute("INSERT INTO m (time, v) VALUES ('2024-01-01', 1)", &[]).await;
            drop(client);
            let _ = driven.await;
            let code = insert.err().and_then(|error| error.code().map(|code| code.code().to_owned()));
            if answer.is_ok() {
                assert_eq!(code.as_deref(), Some("42501"), "a reader writes");
            }
            answer.map(|row| row.get::<_, i64>(0)).map_err(|error| format!("{error:?}"))
        })
    };
    assert_eq!(count("reader", &token, "metrics"), Ok(2));
    assert_eq!(count("alice", "pass word", "metrics"), Ok(1), "rights that labels narrow");
    for (user, password, database, reason) in [
        ("reader", "thw_wrong", "metrics", "28P01"),
        ("alice", "password", "metrics", "28P01"),
        ("nobody", "pass word", "metrics", "28P01"),
        ("reader", &token, "other", "does not exist"),
    ] {
        let refused = count(user, password, database).expect_err(user);
        assert!(refused.contains(reason), "{user} {database}: {refused}");
    }
}

#[test]
fn statements_do_not_tell_which_databases_there_are() {
    let guarded = Guarded::start();
    let reader = guarded.token("reader", r#"{"grants":["read:metrics"]}"#);
    let form = |name: &str, text: &str| -> String {
        form_urlencoded::Serializer::new(String::new()).append_pair(name, text).finish()
    };
    let answers = |database: &str| {
        let create = format!("CREATE DATABASE {database}");
        [
            ("POST", format!("/query?{}", form("q", &create)), String::new()),
            ("POST", format!("/sql?{}", form("query", &create)), String::new()),
            ("PUT", format!("/api/v1/admin/databases/{database}"), String::new()),
            ("POST", "/api/v2/buckets".to_owned(), format!(r#"{{"name":"{database}","orgID":"x"}}"#)),
        ]
        .map(|(method, path, body)| {
            let answer = guarded.ask(method, &path, Some(&reader), &body);
            (answer.status, answer.body.replace(database, "NAME"))
        })
    };
    let (known, unknown) = (answers("other"), answers("nosuch"));
    assert_eq!(known, unknown);
    assert!(known.iter().all(|(_, body)| body.contains("does not have the right create")), "{known:?}");
    // One's own may be made again, as Telegraf does.
    let again = guarded.ask("POST", &format!("/query?{}", form("q", "CREATE DATABASE metrics")), Some(&reader), "");
    assert!(again.status == 200 && !again.body.contains("error"), "{}", again.body);
}

#[test]
fn no_error_of_the_sign_in_opens_a_session_of_postgres() {
    let free = Some(thalweg_server::Listener { address: "127.0.0.1:0".parse().unwrap(), required: true });
    let guarded = Guarded::start_with(|settings| settings.postgres = free);
    let body = b"user\0admin\0database\0default\0\0";
    let startup = [&(8 + body.len() as u32).to_be_bytes()[..], &196_608_u32.to_be_bytes(), body].concat();
    let message = |kind: u8, body: &[u8]| [&[kind][..], &(4 + body.len() as u32).to_be_bytes(), body].concat();
    let query = message(b'Q', b"SELECT 'got ' || 'in'\0");
    let in_answer = |sent: &[Vec<u8>]| {
        let mut stream = TcpStream::connect(guarded.server.at("--postgres")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        for part in sent {
            let _ = stream.write_all(part);
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    for odd in [
        message(b'p', b"\0"),
        message(b'p', b"SCRAM-SHA-1\0\0\0\0\x01n"),
        message(b'p', b"SCRAM-SHA-256\0\0\0\0\x03n,,"),
        message(b'S', b""),
        message(b'P', b"s\0SELECT 1\0\0\0"),
    ] {
        let answer = in_answer(&[startup.clone(), odd.clone(), query.clone()]);
        assert!(!answer.contains("got in"), "{odd:?}: {answer:?}");
    }
    for _ in 0..9 {
        guarded.get("/metrics", "thw_wrong");
    }
    let answer = in_answer(&[startup, query]);
    assert!(answer.contains("too many sign-ins") && answer.contains("FATAL"), "{answer:?}");
    assert!(!answer.contains("got in"), "{answer:?}");
}

#[test]
fn guesses_that_come_together_wait_as_others_do() {
    let guarded = Guarded::start();
    guarded.token("alice", r#"{"password":"pass word","grants":["read:metrics"]}"#);
    let guess = |number: u32| {
        let path = format!("/api/v1/labels?db=metrics&u=alice&p=guess{number}");
        guarded.server.send("GET", &path, &[], "").status
    };
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let guess = &guess;
        let guesses: Vec<_> = (0..60).map(|number| scope.spawn(move || guess(number))).collect();
        guesses.into_iter().map(|guess| guess.join().unwrap()).collect()
    });
    let checked = statuses.iter().filter(|status| **status == 401).count();
    assert!(checked < 20 && statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
}

#[test]
fn open_connections_lose_their_rights_with_the_account() {
    let free = Some(thalweg_server::Listener { address: "127.0.0.1:0".parse().unwrap(), required: true });
    let guarded = Guarded::start_with(|settings| (settings.postgres, settings.line) = (free, free));
    let token = guarded.token("short", r#"{"grants":["read+write+create:*"]}"#);
    let mut lines = TcpStream::connect(guarded.server.at("--line")).unwrap();
    lines.write_all(format!("auth {token}\nbefore v=1 1\n").as_bytes()).unwrap();
    let started = Instant::now();
    let names = || guarded.get("/api/v1/label/__name__/values", &guarded.admin).body;
    while !names().contains("before_v") {
        assert!(started.elapsed() < Duration::from_secs(10), "the first line is not stored");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut config = tokio_postgres::Config::new();
    let address = guarded.server.at("--postgres");
    config.host("127.0.0.1").port(address.port()).user("short").password(&token).dbname("metrics");
    runtime.block_on(async {
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        assert!(client.query("SELECT v FROM m", &[]).await.is_ok_and(|rows| !rows.is_empty()));
        // What is granted later counts, too.
        guarded.token("short", r#"{"grants":["read:metrics"]}"#);
        let refused = client.execute("INSERT INTO m (time, v) VALUES ('2024-01-01', 1)", &[]).await.unwrap_err();
        assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("42501"));
        guarded.token("short", r#"{"grants":["read+write+create:*"]}"#);
        assert_eq!(guarded.ask("DELETE", "/api/v1/admin/accounts/short", Some(&guarded.admin), "").status, 204);
        let read = client.query("SELECT v FROM m", &[]).await;
        assert!(!read.is_ok_and(|rows| !rows.is_empty()), "a removed account reads");
    });
    let _ = lines.write_all(b"sneaked v=1 1\n");
    let _ = lines.read_to_end(&mut Vec::new());
    assert!(!names().contains("sneaked"), "a removed account writes");
}

#[test]
fn lines_before_the_sign_in_are_bounded_and_tokens_are_no_rows() {
    let free = Some(thalweg_server::Listener { address: "127.0.0.1:0".parse().unwrap(), required: true });
    let guarded = Guarded::start_with(|settings| settings.line = free);
    let mut stream = TcpStream::connect(guarded.server.at("--line")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(&[b'x'; 5 << 10]).unwrap();
    let ended = stream.read(&mut [0]);
    let is_slow =
        |error: &std::io::Error| [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut].contains(&error.kind());
    assert!(!ended.as_ref().is_err_and(is_slow), "a client without an account is held on to: {ended:?}");
    let guarded = Guarded::start_with(|settings| {
        settings.line = free;
        settings.line_sources = vec![thalweg_server::Network::parse("127.0.0.0/8").unwrap()];
    });
    let writer = guarded.token("writer", r#"{"grants":["write+create:default"]}"#);
    for text in [format!("auth {writer}\nsent v=1 1\n"), "auth v=1 1\n".to_owned()] {
        let mut stream = TcpStream::connect(guarded.server.at("--line")).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let names = guarded.get("/api/v1/label/__name__/values", &guarded.admin).body;
    assert!(names.contains("sent_v") && names.contains("auth_v"), "{names}");
}

#[test]
fn the_binary_protocol_needs_a_token() {
    let free = Some(thalweg_server::Listener { address: "127.0.0.1:0".parse().unwrap(), required: true });
    let guarded = Guarded::start_with(|settings| (settings.control, settings.ingest) = (free, free));
    let writer = guarded.token("writer", r#"{"grants":["write+create:*"]}"#);
    let narrow = guarded.token("narrow", r#"{"grants":["write+create:default"]}"#);
    let connect = |token: &str| {
        client::Client::connect(client::Options {
            control: guarded.server.at("--control"),
            ingest: guarded.server.at("--ingest"),
            token: token.to_owned(),
            reconnect_timeout_ms: 1,
            ..client::Options::default()
        })
    };
    let reader = guarded.token("reader", r#"{"grants":["read:*"]}"#);
    for token in ["", "thw_wrong", &reader] {
        let refused = connect(token).err().map(|error| error.to_string());
        assert!(
            refused.as_deref().is_some_and(|why| why.contains("token") || why.contains("write:metrics")),
            "{refused:?}"
        );
    }
    let mut client = connect(&writer).unwrap();
    let labels = || model::Labels::from_pairs([("host", "a")]).unwrap();
    let others = client.register_series("secret", &[("up", labels())]).unwrap();
    // A token belongs to a database. An account that may not write that database is told that the token was never given out.
    for name in ["narrow", "labelled"] {
        let grant = if name == "narrow" { "write+create:default" } else { r#"write+create:*{host=\"b\"}"# };
        let token = guarded.token(&format!("{name}-again"), &format!(r#"{{"grants":["{grant}"]}}"#));
        let mut client = connect(&token).unwrap();
        let mut send = |tokens: &[u64]| {
            let columns = [(client::Values::F64(&[1.0]), [].as_slice())];
            let block = client::Outgoing {
                measurement: 0,
                slots: &[],
                tokens,
                timestamps_ns: &[60_000_000_000],
                columns: &columns,
            };
            client.send(&[block]).unwrap();
            client.flush().unwrap()
        };
        let refused = send(&others);
        assert!(refused[0].error.as_deref().is_some_and(|why| why.contains("never given out")), "{refused:?}");
        assert!(send(&[u64::MAX >> 8])[0].error.is_some());
        assert!(client.register_series("secret", &[("up", labels())]).is_err(), "{name}");
    }
    let mut own = connect(&narrow).unwrap();
    let tokens = own.register_series("default", &[("up", labels())]).unwrap();
    let columns = [(client::Values::F64(&[1.0]), [].as_slice())];
    let block = client::Outgoing {
        measurement: 0,
        slots: &[],
        tokens: &tokens,
        timestamps_ns: &[60_000_000_000],
        columns: &columns,
    };
    own.send(&[block]).unwrap();
    assert_eq!(own.flush().unwrap(), []);
}

#[test]
fn running_queries_are_ones_own() {
    let guarded = Guarded::start();
    let reader = guarded.token("reader", r#"{"grants":["read:metrics"]}"#);
    assert_eq!(guarded.get("/api/v1/status/active_queries", &reader).status, 200);
    assert_eq!(guarded.ask("POST", "/api/v1/status/active_queries/1/kill", Some(&reader), "").status, 404);
    // What is wrong with the server is told in words to administrators alone.
    assert_eq!(guarded.ask("GET", "/health", None, "").status, 200);
}

#[test]
fn users_are_made_and_changed_by_statements() {
    let folder = std::env::temp_dir().join(format!("thalweg-audit-statements-{}", std::process::id()));
    let _ = std::fs::create_dir_all(&folder);
    let log = folder.join("audit.jsonl");
    let guarded = Guarded::start_with(|settings| settings.audit_log = Some(log.clone()));
    let ask = |path: &str, secret: &str, text: &str| {
        let text: Vec<String> = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let text = text.concat();
        let answer = guarded.ask("POST", &format!("{path}={text}"), Some(secret), "");
        (answer.status, answer.body)
    };
    let influx = |text: &str| ask("/query?db=metrics&q", &guarded.admin, text).1;
    let sql = |text: &str| ask("/sql?query", &guarded.admin, text);
    // By InfluxQL.
    assert_eq!(influx("CREATE USER ann WITH PASSWORD 'first pass'").trim(), r#"{"results":[{"statement_id":0}]}"#);
    assert!(influx("CREATE USER ann WITH PASSWORD 'x'").contains("already exists"));
    influx("GRANT READ ON metrics TO ann; GRANT ALL ON other TO ann");
    assert!(influx("SHOW USERS").contains(r#"["ann",false]"#));
    let grants = influx("SHOW GRANTS FOR ann");
    assert!(grants.contains(r#"["metrics","READ"],["other","ALL PRIVILEGES"]"#), "{grants}");
    let signed_in = |password: &str| {
        let path = format!("/query?db=metrics&u=ann&p={password}&q=SELECT%20v%20FROM%20m");
        guarded.ask("GET", &path, None, "").status
    };
    assert_eq!((signed_in("first%20pass"), signed_in("x")), (200, 401));
    influx("SET PASSWORD FOR ann = 'second'");
    assert_eq!(signed_in("second"), 200);
    // By SQL.
    assert_eq!(sql("CREATE ROLE ben WITH LOGIN PASSWORD 'third'").0, 200);
    assert_eq!(sql("GRANT SELECT, INSERT ON DATABASE metrics TO ben").0, 200);
    assert!(influx("SHOW GRANTS FOR ben").contains(r#"["metrics","READ+WRITE"]"#));
    assert_eq!(sql("REVOKE INSERT ON DATABASE metrics FROM ben; ALTER USER ben SUPERUSER").0, 200);
    assert!(influx("SHOW USERS").contains(r#"["ben",true]"#));
    let roles = sql("SELECT rolname, rolsuper FROM pg_roles ORDER BY oid").1;
    assert!(roles.contains(r#"["ann",false]"#) && roles.contains(r#"["ben",true]"#), "{roles}");
    // Others may not.
    let reader = guarded.token("reader", r#"{"grants":["all:metrics"]}"#);
    for text in ["CREATE USER eve PASSWORD 'fourth'", "GRANT ALL ON DATABASE metrics TO reader", "DROP USER ann"] {
        assert_eq!(ask("/sql?query", &reader, text).0, 403, "{text}");
    }
    assert!(ask("/query?q", &reader, "DROP USER ann").1.contains("no administrator"));
    let roles = ask("/sql?query", &reader, "SELECT rolname FROM pg_roles").1;
    assert!(roles.contains("reader") && !roles.contains("ann"), "{roles}");
    let by_get = guarded.get("/query?q=CREATE%20USER%20eve%20WITH%20PASSWORD%20'fourth'", &guarded.admin);
    assert!(by_get.status == 405 && !by_get.body.contains("fourth"), "{}", by_get.body);
    influx("DROP USER ann");
    assert_eq!((signed_in("second"), sql("DROP USER IF EXISTS ann").0, sql("DROP USER ann").0), (401, 200, 400));
    // What was done is in the audit log, and no password.
    influx("DELETE FROM m WHERE time < 1; DROP MEASUREMENT gone");
    sql("DROP TABLE IF EXISTS m; ALTER DATABASE metrics SET retention = '30d'");
    let logged = log_with(&log, "settings_changed");
    for part in [
        r#""account":"admin","address":"127.0.0.1","detail":"ben","event":"account_changed""#,
        r#""event":"account_removed""#,
        "DELETE FROM m",
        "DROP MEASUREMENT gone",
        "DROP TABLE",
        r#""event":"settings_changed""#,
    ] {
        assert!(logged.contains(part), "{part}: {logged}");
    }
    for secret in ["first pass", "second", "third", "fourth"] {
        assert!(!logged.contains(secret), "{logged}");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

/// An audit log once this is in it: a thread of its own writes it.
fn log_with(path: &std::path::Path, event: &str) -> String {
    let started = Instant::now();
    loop {
        let logged = std::fs::read_to_string(path).unwrap();
        if logged.contains(event) || started.elapsed() > Duration::from_secs(10) {
            return logged;
        }
    }
}

/// The table in the guide is that of the router.
#[test]
fn the_guide_has_every_route() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/access.md")).unwrap();
    let missing: Vec<String> = thalweg_server::route_needs()
        .into_iter()
        .map(|(path, need)| format!("| `{path}` | {need} |"))
        .filter(|line| !guide.contains(line))
        .collect();
    assert!(missing.is_empty(), "docs/guide/access.md lacks:\n{}", missing.join("\n"));
    let lines = guide.lines().filter(|line| line.starts_with("| `/")).count();
    assert_eq!(lines, thalweg_server::route_needs().len(), "the guide has routes that there are not");
}

#[test]
fn a_view_without_the_label_of_narrowed_rights_is_hidden_from_them() {
    let guarded = Guarded::start();
    let made = "CREATE MATERIALIZED VIEW by_second AS SELECT time_bucket('1 second', time) AS time, sum(v) AS total FROM m GROUP BY 1";
    let created = guarded.ask("POST", "/sql?db=metrics", Some(&guarded.admin), made);
    assert_eq!(created.status, 200, "{}", created.body);
    let narrowed = guarded.token("narrowed", r#"{"grants":["read:metrics{env!=\"dev\"}"]}"#);
    let begun = Instant::now();
    let stored = "/api/v1/query?db=metrics&query=by_second_total&time=1";
    while !guarded.get(stored, &guarded.admin).body.contains("\"3\"") {
        assert!(begun.elapsed() < Duration::from_secs(30), "the view is not computed");
        std::thread::yield_now();
    }
    for path in [
        stored,
        "/api/v1/query?db=metrics&query=%7B__name__%3D~%22by_.%2B%22%7D&time=1",
        "/api/v1/series?db=metrics&match%5B%5D=%7B__name__%3D~%22by_.%2B%22%7D&start=0&end=2",
        "/federate?db=metrics&match%5B%5D=by_second_total",
        "/api/v1/export?db=metrics&match%5B%5D=by_second_total",
        "/query?db=metrics&q=SELECT%20*%20FROM%20by_second",
    ] {
        let answer = guarded.get(path, &narrowed);
        assert!(
            !answer.body.contains("by_second_total\"") && !answer.body.contains("total\":3"),
            "{path}: {}",
            answer.body
        );
        assert!(answer.status != 404, "{path}");
    }
    let refused = guarded.ask("POST", "/sql?db=metrics", Some(&narrowed), "SELECT * FROM by_second");
    assert_eq!(refused.status, 403, "{}", refused.body);
    // What it may read it reads.
    assert!(guarded.get("/api/v1/query?db=metrics&query=m_v&time=1", &narrowed).body.contains("prod"));
}

#[test]
fn what_views_are_made_of_is_not_shown_to_narrowed_rights() {
    let guarded = Guarded::start();
    let sql = |token: &str, text: &str| guarded.ask("POST", "/sql?db=metrics", Some(token), text);
    for (name, by) in [("whole", ""), ("by_env", "env, ")] {
        let made = format!(
            "CREATE MATERIALIZED VIEW {name} AS SELECT {by}time_bucket('1 second', time) AS time, sum(v) AS total FROM m WHERE env <> 'hidden' GROUP BY {by}time_bucket('1 second', time)"
        );
        let created = sql(&guarded.admin, &made);
        assert_eq!(created.status, 200, "{}", created.body);
    }
    let narrowed = guarded.token("narrowed", r#"{"grants":["read:metrics{env!=\"dev\"}"]}"#);
    let listed = sql(&narrowed, "SELECT view_name, view_sql FROM materialized_views()").body;
    assert!(listed.contains("by_env") && !listed.contains("whole") && !listed.contains("hidden"), "{listed}");
    let listed = sql(&narrowed, "SELECT * FROM timescaledb_information.continuous_aggregates").body;
    assert!(!listed.contains("whole") && !listed.contains("hidden"), "{listed}");
    assert_eq!(sql(&narrowed, "SHOW CREATE MATERIALIZED VIEW by_env").status, 403);
    assert!(!guarded.get("/api/v1/views?db=metrics", &narrowed).body.contains("by_env"));
    assert!(guarded.get("/api/v1/views?db=metrics", &guarded.admin).body.contains("by_env"));
    let by_get = guarded.get("/sql?db=metrics&query=SHOW%20CREATE%20MATERIALIZED%20VIEW%20whole", &guarded.admin);
    assert!(by_get.status == 200 && by_get.body.contains("hidden"), "{}", by_get.body);
}

#[test]
fn dropping_a_view_and_its_ttl_need_admin() {
    let guarded = Guarded::start();
    let writer = guarded.token("writer", r#"{"grants":["read+write:metrics"]}"#);
    let sql = |token: &str, text: &str| guarded.ask("POST", "/sql?db=metrics", Some(token), text);
    let query = "SELECT time_bucket('1 second', time) AS time, sum(v) AS total FROM m GROUP BY 1";
    let refused = sql(&writer, &format!("CREATE MATERIALIZED VIEW kept REFRESH IMMEDIATE AS ({query}) TTL 1 DAY"));
    assert_eq!(refused.status, 403, "{}", refused.body);
    let made = sql(&writer, &format!("CREATE MATERIALIZED VIEW kept AS {query}"));
    assert_eq!(made.status, 200, "the refused one left nothing: {}", made.body);
    assert_eq!(sql(&writer, "DROP MATERIALIZED VIEW kept").status, 403);
    assert_eq!(sql(&guarded.admin, "DROP MATERIALIZED VIEW kept").status, 200);
}
