use std::collections::BTreeMap;

use super::*;

fn check(text: &str, expected: &str) {
    let parsed = parse(text, &BTreeMap::new()).map(|statements| {
        let printed: Vec<String> = statements.iter().map(ToString::to_string).collect();
        let printed = printed.join("; ");
        assert_eq!(parse(&printed, &BTreeMap::new()).unwrap(), statements, "{printed} is read back the same");
        printed
    });
    match parsed {
        Ok(printed) => assert_eq!(printed, expected, "{text}"),
        Err(error) => assert_eq!(format!("error: {error}"), expected, "{text}"),
    }
}

#[test]
fn selections() {
    check("select * from cpu", "SELECT * FROM cpu");
    check("SELECT max(a) m, b FROM x", "error: found m, expected FROM at line 1, char 15");
    check(
        "select max(usage_user) as \"m x\", mean(b)/2 from cpu, \"db\".rp./c.*\\/d/ where (host='a' or host =~ /b|c/) and \
         time >= '2016-01-01T00:00:00Z' and time < now() - 1h30m group by time(10m, -5m), host, /r.*/, * fill(previous) \
         order by time desc limit 1 offset 2 slimit 3 soffset 4 tz('Europe/Berlin')",
        "SELECT max(usage_user) AS \"m x\", mean(b) / 2 FROM cpu, db.rp./c.*\\/d/ WHERE (host = 'a' OR host =~ /b|c/) AND \
         time >= '2016-01-01T00:00:00Z' AND time < now() - 90m GROUP BY time(10m, -5m), host, /r.*/, * fill(previous) \
         ORDER BY time DESC LIMIT 1 OFFSET 2 SLIMIT 3 SOFFSET 4 TZ('Europe/Berlin')",
    );
    check(
        "SELECT mean(*::field) INTO db..:measurement FROM (SELECT a::tag, -b, -(c), -2, - 3.5 FROM d..m fill(0))",
        "SELECT mean(*::field) INTO db..:MEASUREMENT FROM (SELECT a::tag, -1 * b, -1 * (c), -2, -3.5 FROM d..m fill(0))",
    );
    check("select distinct a, distinct(a) from m", "SELECT distinct(a), distinct(a) FROM m");
    check(
        "select a + b * c - d % 2 & 1 | 3 ^ 4 from m where a = 1 and b != 2 or c <> 3",
        "SELECT a + b * c - d % 2 & 1 | 3 ^ 4 FROM m WHERE a = 1 AND b != 2 OR c != 3",
    );
    check("select a from m -- and a comment\n/* or\ntwo */ limit 1;;;", "SELECT a FROM m LIMIT 1");
    check("select \"select\", 'it''s' from m", "error: found s, expected FROM at line 1, char 22");
    check(
        "select \"a\\\"b\" from \"select\" where x = 'it\\'s'",
        "SELECT \"a\\\"b\" FROM \"select\" WHERE x = 'it\\'s'",
    );
    check(
        "select 18446744073709551615, .5, 1., 1e5 from m",
        "error: found 1e5, expected a duration such as 1h30m at line 1, char 38",
    );
    check("select a from m where time > 5", "SELECT a FROM m WHERE time > 5");
    check("explain analyze select a from m", "EXPLAIN ANALYZE SELECT a FROM m");
}

#[test]
fn shows_and_changes() {
    for same in [
        "SHOW DATABASES",
        "SHOW MEASUREMENTS ON db WITH MEASUREMENT =~ /c.*/ WHERE host = 'a' LIMIT 1 OFFSET 2",
        "SHOW TAG KEYS FROM cpu, /m.*/ WHERE host = 'a' LIMIT 3",
        "SHOW TAG VALUES ON db FROM cpu WITH KEY IN (host, \"a b\") WHERE region =~ /e.*/ LIMIT 5",
        "SHOW TAG VALUES WITH KEY = host",
        "SHOW TAG VALUES WITH KEY !~ /x/",
        "SHOW FIELD KEYS FROM cpu",
        "SHOW SERIES FROM cpu WHERE host = 'a' LIMIT 2",
        "SHOW SERIES EXACT CARDINALITY ON db",
        "SHOW MEASUREMENT CARDINALITY",
        "SHOW TAG VALUES CARDINALITY WITH KEY = host",
        "SHOW RETENTION POLICIES ON db",
        "SHOW CONTINUOUS QUERIES",
        "CREATE SUBSCRIPTION s ON d.autogen DESTINATIONS ALL 'http://a:1', 'udp://b:2'",
        "CREATE SUBSCRIPTION \"a b\" ON d.\"x y\" DESTINATIONS ANY 'http://a:1'",
        "DROP SUBSCRIPTION s ON d.autogen",
        "SHOW SHARD GROUPS",
        "CREATE DATABASE db WITH DURATION 30d REPLICATION 1 SHARD DURATION 1h NAME x",
        "CREATE RETENTION POLICY x ON db DURATION INF REPLICATION 1 DEFAULT",
        "ALTER RETENTION POLICY x ON db DURATION 1w DEFAULT",
        "DROP RETENTION POLICY x ON db",
        "DROP DATABASE \"a-b\"",
        "DROP MEASUREMENT cpu",
        "DROP SERIES FROM cpu WHERE host = 'a'",
        "DELETE FROM cpu WHERE time < '2016-01-01'",
        "KILL QUERY 5",
    ] {
        check(same, same);
        check(&same.to_lowercase(), same);
    }
    check(
        "create user x with password '[REDACTED]'; grant all to x",
        "CREATE USER \"x\" WITH PASSWORD '[REDACTED]'; GRANT ALL TO \"x\"",
    );
    check(
        "SET PASSWORD FOR x = '[REDACTED]'; GRANT READ ON d TO x; revoke all privileges on \"D 2\" from x",
        "SET PASSWORD FOR \"x\" = '[REDACTED]'; GRANT READ ON \"d\" TO \"x\"; REVOKE ALL ON \"D 2\" FROM \"x\"",
    );
    check(
        "revoke all from x; drop user x; show users; show grants for x",
        "REVOKE ALL FROM \"x\"; DROP USER \"x\"; SHOW USERS; SHOW GRANTS FOR \"x\"",
    );
}

#[test]
fn errors_tell_where() {
    check("select", "error: found EOF, expected identifier, string, number, bool at line 1, char 7");
    check(
        "selec a",
        "error: found selec, expected SELECT, DELETE, SHOW, CREATE, DROP, EXPLAIN, GRANT, REVOKE, ALTER, SET, KILL at line 1, char 1",
    );
    check("select a\nfrom", "error: found EOF, expected identifier at line 2, char 5");
    check("select a from m where b =~ 'x'", "error: found x, expected regex at line 1, char 28");
    check("select a from m limit x", "error: found x, expected integer at line 1, char 23");
    check("select a from m group by time(5)", "error: time dimension must have duration argument");
    check("select a from m order by b", "error: only ORDER BY time supported at this time");
    check("select a from m select b from m", "error: found select, expected ; or the end at line 1, char 17");
    check("select $x from m", "error: missing parameter: x");
    check(
        "select a from /(/",
        "error: found /, expected a regular expression: regex parse error:\n    (\n    ^\nerror: unclosed group at line 1, char 15",
    );
}

#[test]
fn what_nests_or_runs_on_is_bounded() {
    let too_deep = format!("select {}a{} from m", "(".repeat(200), ")".repeat(200));
    check(&too_deep, "error: the query nests more than 100 levels deep");
    let subqueries = format!("{}select a from m{}", "select a from (".repeat(200), ")".repeat(200));
    check(&subqueries, "error: the query nests more than 100 levels deep");
    let chain = format!("select a{} from m", "+a".repeat(1000));
    check(&chain, "error: an expression has more than 200 operators in a row");
    let hosts = vec!["host = 'a'"; 10_000].join(" OR ");
    check(&format!("SELECT a FROM m WHERE {hosts}"), &format!("SELECT a FROM m WHERE {hosts}"));
    let long = " ".repeat(TEXT_BYTES_MAX + 1);
    assert!(parse(&long, &BTreeMap::new()).unwrap_err().contains("longer than"));
}

#[test]
fn parameters_are_bound() {
    let parameters: BTreeMap<String, Parameter> = [
        ("host", Parameter::Text("a' or 'b".to_owned())),
        ("field", Parameter::Identifier("load avg".to_owned())),
        ("since", Parameter::Duration(3_600_000_000_000)),
        ("rows", Parameter::Integer(5)),
        ("of", Parameter::Pattern("c.*".to_owned())),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    let text = "select $field from $of where host = $host and time > now() - $since limit $rows";
    let expected = r#"SELECT "load avg" FROM /c.*/ WHERE host = 'a\' or \'b' AND time > now() - 1h LIMIT 5"#;
    assert_eq!(parse(text, &parameters).unwrap()[0].to_string(), expected);
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    const PIECES: [&str; 40] = [
        "select",
        "from",
        "where",
        "group by",
        "fill(",
        "order by time",
        "limit",
        "into",
        "show",
        "tag values",
        "with key",
        "a",
        "m",
        "\"q\"",
        "'t'",
        "/r/",
        "*",
        "(",
        ")",
        ",",
        ";",
        ".",
        "=",
        "=~",
        "and",
        "or",
        "+",
        "-",
        "1",
        "2.5",
        "3h",
        "time(1m)",
        "mean(",
        "::tag",
        "$p",
        "'",
        "\"",
        "/",
        "\n",
        "--",
    ];

    proptest! {
        #[test]
        fn a_statement_or_an_error(pieces in prop::collection::vec(0..PIECES.len(), 0..40)) {
            let text = pieces.iter().map(|piece| PIECES[*piece]).collect::<Vec<_>>().join(" ");
            if let Ok(statements) = parse(&text, &BTreeMap::new()) {
                for statement in statements {
                    let printed = statement.to_string();
                    prop_assert_eq!(parse(&printed, &BTreeMap::new()), Ok(vec![statement]), "{}", printed);
                }
            }
        }

        #[test]
        fn any_text(text in "\\PC{0,60}") {
            let _ = parse(&text, &BTreeMap::new());
        }
    }
}
