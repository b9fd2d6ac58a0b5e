//! The requests of ntopng's driver for InfluxDB; expected are the answers of InfluxDB 1.6.7 to the same requests on the same rows.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::Running;

/// The time of the first rows, seconds.
const START_S: i64 = 1_700_000_040;

/// `RANGE` is the time of all rows, `TOTAL` a subquery for the sum of all protocols.
const QUERIES: [(&str, &str); 9] = [
    (
        r#"SELECT (DERIVATIVE(MEAN("bytes_sent")) / 60) as bytes_sent,(DERIVATIVE(MEAN("bytes_rcvd")) / 60) as bytes_rcvd FROM "iface:ndpi" WHERE ifid='0' AND protocol='TLS' AND RANGE GROUP BY TIME(60s)"#,
        r#"[{"name":"iface:ndpi","columns":["time","bytes_sent","bytes_rcvd"],"values":[[1700000100,1.6666666666666667,0.8333333333333334],[1700000160,1.6666666666666667,0.8333333333333334],[1700000220,1.6666666666666667,0.8333333333333334],[1700000280,1.6666666666666667,0.8333333333333334]]}]"#,
    ),
    (
        r#"SELECT MEAN("bytes_sent") as bytes_sent FROM "iface:ndpi" WHERE ifid='0' AND protocol='TLS' AND RANGE GROUP BY TIME(120s)"#,
        r#"[{"name":"iface:ndpi","columns":["time","bytes_sent"],"values":[[1700000040,50],[1700000160,250],[1700000280,400]]}]"#,
    ),
    (
        "SELECT NON_NEGATIVE_DERIVATIVE(total_serie) AS total_serie FROM (TOTAL)",
        r#"[{"name":"iface:ndpi","columns":["time","total_serie"],"values":[[1700000100,3],[1700000160,3],[1700000220,3],[1700000280,3]]}]"#,
    ),
    (
        r#"SELECT NON_NEGATIVE_DERIVATIVE(total_serie) AS total_serie FROM (SELECT MEAN("total_serie") AS "total_serie" FROM (TOTAL) GROUP BY time(120s))"#,
        r#"[{"name":"iface:ndpi","columns":["time","total_serie"],"values":[[1700000160,3],[1700000280,2.25]]}]"#,
    ),
    (
        r#"SELECT SUM("total_serie") * 60 FROM (SELECT NON_NEGATIVE_DERIVATIVE(total_serie) AS total_serie FROM (TOTAL))"#,
        r#"[{"name":"iface:ndpi","columns":["time","sum"],"values":[[0,720]]}]"#,
    ),
    (
        r#"SELECT TOP("value", "protocol", 10) FROM (SELECT protocol, (bytes_sent + bytes_rcvd) AS "value" FROM "iface:ndpi" WHERE ifid='0' AND RANGE)"#,
        r#"[{"name":"iface:ndpi","columns":["time","top","protocol"],"values":[[1700000280,600,"TLS"],[1700000280,120,"DNS"]]}]"#,
    ),
    (
        r#"SELECT * FROM "iface:ndpi" WHERE ifid='0' AND time >= 1700000040000000000 GROUP BY protocol LIMIT 2"#,
        r#"[{"name":"iface:ndpi","tags":{"protocol":"DNS"},"columns":["time","bytes_rcvd","bytes_sent","ifid"],"values":[[1700000040,0,0,"0"],[1700000100,20,10,"0"]]},{"name":"iface:ndpi","tags":{"protocol":"TLS"},"columns":["time","bytes_rcvd","bytes_sent","ifid"],"values":[[1700000040,0,0,"0"],[1700000100,50,100,"0"]]}]"#,
    ),
    (
        r#"SELECT FIRST(bytes_sent) FROM "iface:ndpi" WHERE ifid='0' AND protocol='TLS' AND RANGE GROUP BY TIME(60s)"#,
        r#"[{"name":"iface:ndpi","columns":["time","first"],"values":[[1700000040,0],[1700000100,100],[1700000160,200],[1700000220,300],[1700000280,400]]}]"#,
    ),
    (
        r#"SHOW TAG VALUES ON "ntopng" FROM "iface:ndpi" WITH KEY = "protocol" WHERE "ifid" = '0'"#,
        r#"[{"name":"iface:ndpi","columns":["key","value"],"values":[["protocol","DNS"],["protocol","TLS"]]}]"#,
    ),
];

fn statement(text: &str) -> String {
    let range = format!("time >= {START_S}000000000 AND time <= {}000000000", START_S + 240);
    let total = r#"SELECT SUM("value") AS "total_serie" FROM (SELECT (bytes_sent + bytes_rcvd) AS "value" FROM "iface:ndpi" WHERE ifid='0' AND RANGE) GROUP BY time(60s)"#;
    text.replace("TOTAL", total).replace("RANGE", &range)
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[test]
fn ntopng_finds_what_influxdb_would_give_it() {
    let server = Running::start();
    // It looks for the version by this spelling, and reads digits and points after it.
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\nX-Influxdb-Version: 1.8."), "{answer}");
    for statement in [r#"CREATE DATABASE "ntopng""#, r#"ALTER RETENTION POLICY autogen ON "ntopng" DURATION 36500d"#] {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let answer = server.send("POST", "/query", &form, format!("q={statement}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(!answer.body.contains("error"), "{}", answer.body);
    }
    let mut lines = String::new();
    for minute in 0..5 {
        let time_s = START_S + 60 * minute;
        for (protocol, sent, received) in [("TLS", 100 * minute, 50 * minute), ("DNS", 10 * minute, 20 * minute)] {
            writeln!(
                lines,
                "iface:ndpi,ifid=0,protocol={protocol} bytes_sent={sent},bytes_rcvd={received} {time_s}000000000"
            )
            .unwrap();
        }
    }
    assert_eq!(server.send("POST", "/write?db=ntopng", &[], &lines).status, 204);
    for (text, expected) in QUERIES {
        let path = format!("/query?db=ntopng&epoch=s&q={}", encoded(&statement(text)));
        let answer = server.get(&path).body;
        let expected = format!(r#"{{"results":[{{"statement_id":0,"series":{expected}}}]}}"#);
        assert_eq!(answer.trim_end(), expected, "{text}");
    }
}
